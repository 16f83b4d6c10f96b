"""Nature deals the rows of a simulation to its clients, one file each, before anything starts.

From then on a client opens its own file and no other, and the server opens `clients.json`, which
holds labels and sizes but no value of any row.
"""

import json
import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from cluster.errors import UsageError
from cluster.files import write_bytes, write_text
from federated.partition import Index


class Dealable(Protocol):
    """Rows of any kind: arrays of equal length, named in `ARRAYS`."""

    ARRAYS: ClassVar[tuple[str, ...]]

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def take(self, index: Index) -> "Dealable":
        """Return the rows at `index`."""
        ...


R = TypeVar("R", bound=Dealable)


def deal(
    rows: Dealable,
    parts: Sequence[Index],
    names: Mapping[str, str | Sequence[str]],
    labels: Sequence[str],
    folder: Path,
) -> None:
    """Write each client's rows to `client-0003.npz` and the list of clients to `clients.json`.

    Every file is written whole or not at all, `clients.json` last, so that its presence says that
    the deal is complete.

    Parameters
    ----------
    rows
        All rows.
    parts
        Row numbers of each client.
    names
        Column names of each array; kept in `clients.json`.
    labels
        What to call each client, in the order of `parts`.
    folder
        Made if needed; an earlier deal there is replaced.
    """
    if len(labels) != len(parts):
        raise ValueError(f"{len(parts)} clients have {len(labels)} labels")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "clients.json").unlink(missing_ok=True)
    for stale in folder.glob("client-*.npz"):
        stale.unlink()
    for partition_id, part in enumerate(parts):
        own = rows.take(part)
        arrays: dict[str, Any] = {name: getattr(own, name) for name in rows.ARRAYS}
        packed = BytesIO()
        np.savez(packed, **arrays)
        write_bytes(_client_file(folder, partition_id), packed.getvalue())
    index = {
        "names": dict(names),
        "clients": [
            {"label": label, "rows": len(part)} for label, part in zip(labels, parts, strict=True)
        ],
    }
    text = json.dumps(index, indent=1, ensure_ascii=False) + "\n"
    write_text(folder / "clients.json", text)


def open_client(folder: Path, partition_id: int, kind: type[R]) -> tuple[R, str]:
    """Return the rows, of the kind that was dealt, and the label of one client.

    Raises UsageError when the folder holds no complete deal, the client is not in it, or its file
    is missing, damaged or of another deal.
    """
    clients = _clients(folder)
    if not 0 <= partition_id < len(clients):
        raise UsageError(
            f"There is no client {partition_id} in {folder}; it has clients 0 to "
            f"{len(clients) - 1}."
        )
    path = _client_file(folder, partition_id)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            rows = kind(*(arrays[name] for name in kind.ARRAYS))
    except FileNotFoundError:
        raise UsageError(
            f"The rows of client {partition_id} are missing: no file {path}."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is damaged ({error}); deal the rows again.") from error
    label, expected = clients[partition_id]
    if len(rows) != expected:
        raise UsageError(
            f"{path} holds {len(rows)} rows where clients.json says {expected}; "
            f"deal the rows again."
        )
    return rows, label


def _clients(folder: Path) -> list[tuple[str, int]]:
    """Return label and number of rows of each client dealt to `folder`."""
    path = folder / "clients.json"
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        return [(str(client["label"]), int(client["rows"])) for client in index["clients"]]
    except FileNotFoundError:
        raise UsageError(f"No rows were dealt to {folder}: there is no {path.name}.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is damaged ({error}); deal the rows again.") from error


def _client_file(folder: Path, partition_id: int) -> Path:
    return folder / f"client-{partition_id:04d}.npz"
