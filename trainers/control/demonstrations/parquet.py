"""How do trajectories stand in a file of ours? Parquet, one row a sample, without modes.

Columns: `trajectory` (text), `time` (s since the trajectory began), then one float32 column for
each observation and action, by name. An action that is also observed has `.action` behind its name.
What the columns are is in the schema's metadata, as JSON under the key `corymb`.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from cluster.errors import UsageError
from cluster.files import write_bytes
from trainers.control.trajectories import Trajectories, padded

KEY = b"corymb"
FORMAT, VERSION = "demonstrations", 1
TRAJECTORY, TIME = "trajectory", "time"

EVEN = 1e-3
"""Share of a sample by which a time may miss its place, since a file may have been rewritten."""


@dataclass(frozen=True)
class Header:
    """What a file of ours says of itself.

    Attributes
    ----------
    observations, actions : names of what was seen and done.
    seconds : between samples.
    plant : the simulated plant's settings, or None where there is none.
    """

    observations: tuple[str, ...]
    actions: tuple[str, ...]
    seconds: float
    plant: Mapping[str, Any] | None = None

    @property
    def columns(self) -> list[str]:
        """Columns that hold numbers of the plant: observations, then actions."""
        both = [f"{name}.action" if name in self.observations else name for name in self.actions]
        return [*self.observations, *both]


def write(path: Path, data: Trajectories, *, plant: Mapping[str, Any] | None = None) -> None:
    """Write trajectories; the file is whole or absent.

    Parameters
    ----------
    plant : settings of the simulated plant, in plain JSON; modes of trajectories are no part of it.

    Raises
    ------
    ValueError : where two trajectories or two columns have one name.
    """
    header = Header(data.observations, data.actions, data.seconds, plant)
    names = [TRAJECTORY, TIME, *header.columns]
    if len(set(names)) < len(names):
        raise ValueError(f"Two of the columns {', '.join(names)} have the same name.")
    if len(np.unique(data.ids)) < len(data):
        raise ValueError("Two trajectories have the same id.")
    row, sample = np.nonzero(data.valid)
    values = np.concatenate([data.x[row, sample], data.u[row, sample]], axis=1)
    ids = pa.DictionaryArray.from_arrays(row.astype(np.int32), data.ids.tolist())
    arrays = [ids.cast(pa.string()), sample * data.seconds, *np.ascontiguousarray(values.T)]
    said = {"format": FORMAT, "version": VERSION, **asdict(header)}
    table = pa.table(dict(zip(names, arrays, strict=True)))
    buffer = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata({KEY: json.dumps(said)}), buffer)
    write_bytes(path, buffer.getvalue())


def header(path: Path) -> Header | None:
    """What a Parquet file says of itself, or None if it is not ours.

    Raises
    ------
    UsageError : for a file that cannot be opened, or a format that this version does not know.
    """
    return _header(path, _open(path).schema_arrow)


def read(path: Path) -> Trajectories:
    """Read what `write` wrote, bit for bit.

    Raises
    ------
    UsageError : for a file that is not ours, or was changed into something else.
    """
    file = _open(path)
    said = _header(path, file.schema_arrow)
    if said is None:
        raise UsageError(
            f"{path} is not a demonstrations file of corymb; to read another table, name its "
            "observations, actions, time and sampling"
        )
    lacking = [n for n in (TRAJECTORY, TIME, *said.columns) if n not in file.schema_arrow.names]
    if lacking:
        raise UsageError(f"{path} lacks the column(s) {', '.join(lacking)}, which it says it has")
    table = file.read(columns=[TRAJECTORY, TIME, *said.columns])
    if table.num_rows == 0:
        raise UsageError(f"{path} holds no samples; write it again with at least one trajectory")
    return _trajectories(path, said, table)


def _trajectories(path: Path, said: Header, table: pa.Table) -> Trajectories:
    _no_holes(path, table)
    ids, starts = _runs(path, table)
    length = np.diff([*starts, table.num_rows])
    sample = np.arange(table.num_rows) - np.repeat(starts, length)
    time = table.column(TIME).to_numpy()
    off = np.abs(time - np.repeat(time[starts], length) - sample * said.seconds)
    late = np.flatnonzero(off > EVEN * said.seconds)
    if len(late):
        raise UsageError(
            f"{path}: row {late[0] + 1} is not {said.seconds:g} s after the one before; "
            "samples of a demonstrations file are evenly spaced"
        )
    columns = [table.column(name).to_numpy() for name in said.columns]
    values = np.stack(columns, axis=1).astype(np.float32, copy=False)
    whole, lengths = padded(np.split(values, starts[1:]))
    k = len(said.observations)
    return Trajectories(
        said.observations, said.actions, said.seconds, np.array(ids), whole[:, :, :k].copy(),
        whole[:, :, k:].copy(), lengths,
    )  # fmt: skip


def _no_holes(path: Path, table: pa.Table) -> None:
    """Refuse columns of another kind, and cells without a value; our files have none."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if not (text if name == TRAJECTORY else pa.types.is_floating(column.type)):
            raise UsageError(f"{path}: column '{name}' is of type {column.type}; write it again")
        wrong = column.null_count
        if name != TRAJECTORY and not wrong:
            wrong = int((~np.isfinite(column.to_numpy())).sum())
        if wrong:
            raise UsageError(
                f"{path}: column '{name}' has {wrong} cell(s) without a value; write it again"
            )


def _runs(path: Path, table: pa.Table) -> tuple[list[str], np.ndarray]:
    """Names of the trajectories in the order of the file, and the row that each begins with."""
    coded = table.column(TRAJECTORY).combine_chunks().dictionary_encode()
    code = coded.indices.to_numpy()
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    ids = coded.dictionary.to_pylist()
    if len(starts) != len(ids):
        raise UsageError(
            f"{path}: the rows of a trajectory do not stand together; sort by trajectory and time"
        )
    return ids, starts


def _open(path: Path) -> parquet.ParquetFile:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    try:
        return parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {error}") from error


def _header(path: Path, schema: pa.Schema) -> Header | None:
    text = (schema.metadata or {}).get(KEY)
    if text is None:
        return None
    try:
        said = json.loads(text)
        if (said["format"], said["version"]) != (FORMAT, VERSION):
            raise UsageError(
                f"{path} holds {said['format']}, version {said['version']}; this version of corymb "
                f"reads {FORMAT}, version {VERSION}"
            )
        names = tuple(said["observations"]), tuple(said["actions"])
        return Header(*names, float(said["seconds"]), said["plant"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} has a damaged header ({error!r}); write it again") from error
