"""Finding runs by name, and removing old ones but never a running one."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cluster.catalogue import locate, removable, remove
from cluster.errors import UsageError
from cluster.evidence import Result
from cluster.files import write_json
from cluster.run import Run, read_record
from tests.cluster.test_run import child, kill


def place(runs: Path, name: str, status: str = "finished", days: float = 0.0) -> Path:
    """A run directory as an older run leaves it."""
    created = datetime.now(UTC) - timedelta(days=days)
    record = {"id": name, "recipe": "toy", "status": status, "created": created.isoformat()}
    write_json(runs / name / "run.json", record)
    return runs / name


@pytest.fixture
def runs(folder: Path) -> Path:
    for days, name in ((3, "2026-01-01T0000-toy-ab12"), (2, "2026-01-01T0000-toy-ab34"),
                       (1, "2026-01-02T0000-toy-cd56")):  # fmt: skip
        place(folder / "runs", name, days=days)
    return folder / "runs"


def test_by_path_id_prefix_and_last(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = runs / "2026-01-01T0000-toy-ab12"
    assert locate(str(wanted)) == wanted
    assert locate(f"runs/{wanted.name}/").resolve() == wanted
    assert locate(wanted.name).resolve() == wanted
    assert locate("2026-01-01T0000-toy-ab1").resolve() == wanted
    assert locate("2026-01-02").name == "2026-01-02T0000-toy-cd56"
    assert locate("last").name == "2026-01-02T0000-toy-cd56"
    monkeypatch.chdir(wanted)
    assert locate(".").name == wanted.name


def test_last_is_the_newest_whatever_its_name(runs: Path) -> None:
    place(runs, "2020-01-01T0000-toy-0000")
    assert locate("last").name == "2020-01-01T0000-toy-0000"


def test_a_whole_id_is_not_ambiguous(runs: Path) -> None:
    place(runs, "2026-01-01T0000-toy-ab12-more")
    assert locate("2026-01-01T0000-toy-ab12").name == "2026-01-01T0000-toy-ab12"


def test_ambiguous_and_unknown_names(runs: Path) -> None:
    with pytest.raises(UsageError) as caught:
        locate("2026-01-01")
    assert str(caught.value) == (
        "'2026-01-01' could be any of 2026-01-01T0000-toy-ab12, 2026-01-01T0000-toy-ab34"
    )
    with pytest.raises(UsageError, match=r"There is no run 'x'.*the latest are .*cd56"):
        locate("x")


def test_no_runs_at_all(folder: Path) -> None:
    for name in ("last", "x"):
        with pytest.raises(UsageError, match="which has no runs"):
            locate(name)


def test_removable_by_age_and_status(folder: Path) -> None:
    runs = folder / "runs"
    old = place(runs, "old", days=10)
    new = place(runs, "new", days=1)
    failed = place(runs, "failed", "failed", days=10)
    stopped = place(runs, "stopped", "interrupted", days=1)
    killed = place(runs, "killed", "running", days=1)
    (folder / "runs/notes").mkdir()
    (old / "big.bin").write_bytes(bytes(5000))

    def found(days: float, only_failed: bool) -> set[Path]:
        return {path for path, _ in removable(runs, days, only_failed)}

    assert found(0, False) == {old, new, failed, stopped, killed}
    assert found(5, False) == {old, failed}
    assert found(0, True) == {failed, stopped, killed}
    assert found(5, True) == {failed}
    assert dict(removable(runs, 5, False))[old] >= 5000
    assert removable(folder / "absent", 0, False) == []


def test_a_running_run_is_never_removable(folder: Path) -> None:
    runs = folder / "runs"
    with Run.open(recipe="toy", config_yaml="", origins={}, output=runs) as run:
        assert removable(runs, 0, False) == []
        run.close(Result({}, {}, [0]))
        assert removable(runs, 0, False) == []  # its report is still to be written
    assert [path for path, _ in removable(runs, 0, False)] == [run.path]


def test_a_run_of_another_process(folder: Path) -> None:
    runs = folder / "runs"
    process = child("run = Run.open(recipe='toy', config_yaml='', origins={}, output=path)", runs)
    try:
        assert len(list(runs.iterdir())) == 1
        assert removable(runs, 0, True) == []
    finally:
        kill(process)
    ((path, size),) = removable(runs, 0, True)
    assert size > 0
    assert read_record(path)["pid"] != os.getpid()


def test_remove(runs: Path) -> None:
    gone = runs / "2026-01-01T0000-toy-ab12"
    remove([gone])
    assert not gone.exists()
    assert len(list(runs.iterdir())) == 2
