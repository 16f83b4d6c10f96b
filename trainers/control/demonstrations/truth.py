"""In which mode was each simulated demonstration made? Known to judges, never to what learns."""

import io
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from numpy.typing import ArrayLike
from pyarrow import parquet

from cluster.errors import UsageError
from cluster.files import write_bytes


def write_truth(path: Path, ids: Sequence[str], mode: ArrayLike) -> None:
    """Write the mode, a whole number, of each trajectory.

    Raises
    ------
    ValueError : where ids and modes differ in number.
    """
    table = pa.table({"trajectory": pa.array(ids, pa.string()), "mode": pa.array(mode, pa.int64())})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    write_bytes(path, buffer.getvalue())


def read_truth(path: Path) -> dict[str, int]:
    """Read the mode of each trajectory by its id.

    Raises
    ------
    UsageError : for a file that is not one of modes, or names a trajectory twice.
    """
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file; name one of modes as truth")
    try:
        table = parquet.read_table(path, columns=["trajectory", "mode"])
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {error}") from error
    if table.column_names != ["trajectory", "mode"] or not pa.types.is_integer(
        table.schema.field("mode").type
    ):
        raise UsageError(
            f"{path} holds no modes; it must have the columns trajectory (text) and mode (whole "
            "numbers)"
        )
    ids, modes = table.column("trajectory").to_pylist(), table.column("mode").to_pylist()
    found = dict(zip(ids, modes, strict=True))
    if len(found) < len(ids) or None in ids or None in modes:
        raise UsageError(f"{path} must give each trajectory one mode, and only once")
    return found
