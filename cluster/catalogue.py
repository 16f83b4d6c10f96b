"""Finding run directories by name, and removing old ones."""

import shutil
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cluster.errors import UsageError
from cluster.run import is_locked, read_record

RUNS = Path("runs")


def locate(name: str, runs: Path = RUNS) -> Path:
    """Return the run directory meant by a path, an id, a unique start of an id, or "last".

    Raises UsageError, with the candidates, where that is none or several.
    """
    path = Path(name)
    if (path / "run.json").is_file():
        return path.resolve()  # "." has a name too
    known = sorted(p.parent for p in runs.glob("*/run.json"))
    if name == "last" and known:
        return max(known, key=lambda p: (str(read_record(p)["created"]), p.name))
    found = [p for p in known if p.name == name] or [p for p in known if p.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"'{name}' could be any of {', '.join(p.name for p in found)}")
    recent = ", ".join(p.name for p in known[-3:])
    raise UsageError(
        f"There is no run '{name}' in {runs.resolve()}"
        + (f"; the latest are {recent}" if recent else ", which has no runs")
    )


def removable(runs: Path, older_than_days: float, only_failed: bool) -> list[tuple[Path, int]]:
    """Runs that may be removed, with their size in bytes; running ones are never among them."""
    found = []
    limit = time.time() - older_than_days * 86400
    for file in sorted(runs.glob("*/run.json")):
        record = read_record(file.parent)
        created = datetime.fromisoformat(record["created"]).timestamp()
        if created > limit or (only_failed and record["status"] == "finished"):
            continue
        if not is_locked(file.parent):
            size = sum(p.stat().st_size for p in file.parent.rglob("*") if p.is_file())
            found.append((file.parent, size))
    return found


def remove(paths: Sequence[Path]) -> None:
    """Delete run directories."""
    for path in paths:
        shutil.rmtree(path)
