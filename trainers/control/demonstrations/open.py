"""Which demonstrations does a configuration name, and what was dropped of them?"""

from pathlib import Path

import numpy as np

from cluster.errors import UsageError
from trainers.control.demonstrations import parquet
from trainers.control.demonstrations.account import Account, Dropped
from trainers.control.demonstrations.historian import read_historian
from trainers.control.demonstrations.settings import (
    PARQUET_SUFFIXES,
    TEXT_SUFFIXES,
    DemonstrationSettings,
)
from trainers.control.trajectories import Trajectories


def open_demonstrations(settings: DemonstrationSettings) -> tuple[Trajectories, Account]:
    """Read the file that the settings name, whichever kind it is.

    Raises
    ------
    UsageError : for no file, one that cannot be read, or one of which nothing is left.
    """
    if settings.path is None:
        raise UsageError("There is no file of demonstrations; name one as path")
    path = Path(settings.path)
    _can_be_read(path)
    if path.suffix.lower() in PARQUET_SUFFIXES and parquet.header(path) is not None:
        return _ours(path, settings)
    lacking = settings.lacking()
    if lacking:
        raise UsageError(f"{path} is not a demonstrations file of corymb, and {lacking[0]}")
    return read_historian(path, settings)


def _ours(path: Path, settings: DemonstrationSettings) -> tuple[Trajectories, Account]:
    if settings.described:
        raise UsageError(
            f"{path} is a demonstrations file of corymb, which says itself what its columns are; "
            f"leave out {', '.join(settings.described)}"
        )
    data = parquet.read(path)
    long = data.length >= settings.shortest
    rows, kept = data.samples, int(data.length[long].sum())
    short = Dropped(
        f"the trajectory has fewer than {settings.shortest} samples",
        rows - kept,
        f"the first is '{data.ids[int(np.argmin(long))]}'",
    )
    account = Account(
        path.name, rows, kept, len(data), tuple(data.ids[long].tolist()), kept,
        () if long.all() else (short,),
    )  # fmt: skip
    if not long.any():
        raise UsageError("\n".join([f"{path}: no demonstrations are left", *account.lines()]))
    return (data if long.all() else data.take(np.flatnonzero(long))), account


def _can_be_read(path: Path) -> None:
    known = (*TEXT_SUFFIXES, *PARQUET_SUFFIXES)
    if path.suffix.lower() not in known:
        raise UsageError(f"{path}: the ending '{path.suffix}' is unknown; use {', '.join(known)}")
    if not path.is_file():
        what = "this is a folder" if path.is_dir() else "there is no such file"
        raise UsageError(f"{path}: {what}; name a file of demonstrations as path")
    if path.stat().st_size == 0:
        raise UsageError(f"{path} is empty; export it again")
