"""The one door: how runs end, go on, and repeat, with a recipe that needs no Ray."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from cluster import config, execute
from cluster.errors import (
    CorymbError,
    InterruptedRunError,
    MissingDependencyError,
    ResourcesError,
    ThresholdError,
    UsageError,
)
from cluster.evidence import Figure, Result
from cluster.execute import Requirement
from cluster.plan import Plan
from cluster.run import Run, read_metrics, read_record
from tests.cluster import conftest, toy


@pytest.fixture(autouse=True)
def _in_folder(folder: Path) -> None:
    """All tests here know the toy recipe and start in an empty folder."""


def start(*sets: str, require: tuple[str, ...] = ()) -> execute.Outcome:
    loaded = config.load(None, recipe="toy", sets=sets)
    return execute.start(loaded, requirements=[Requirement.parse(text) for text in require])


def only_run() -> Path:
    (path,) = Path("runs").iterdir()
    return path


def values(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "time"} for line in metrics]


def test_a_run_leaves_everything() -> None:
    done = start("steps=4", "seeds=[3]")
    assert done.path == only_run().resolve()
    assert done.report == done.path / "report.html"
    assert {p.name for p in done.path.iterdir()} == {
        ".lock", "run.json", "config.yaml", "origins.json", "environment.json", "metrics.jsonl",
        "checkpoints", "result.json", "report.html", "log.txt",
    }  # fmt: skip
    assert read_record(done.path)["status"] == "finished"
    stored = json.loads((done.path / "result.json").read_text())
    assert stored["figures"]["x"]["value"] == done.result.figures["x"].value
    assert (stored["seeds"], stored["seconds"] > 0) == ([3], True)
    assert [line["step"] for line in read_metrics(done.path)] == [1, 2, 3, 4]
    assert json.loads((done.path / "origins.json").read_text())["steps"] == "--set steps"
    assert execute.stored_config(done.path) == config.load(done.path / "config.yaml").config
    assert "step 4" in (done.path / "log.txt").read_text()


def test_a_rerun_is_equal_to_the_digit() -> None:
    first = start("steps=4", "seeds=[3]")
    again = execute.start(config.load(first.path / "config.yaml"), repeats=first.path.name)
    other = start("steps=4", "seeds=[4]")
    assert again.path != first.path
    assert again.result.figures == first.result.figures != other.result.figures
    assert values(read_metrics(again.path)) == values(read_metrics(first.path))
    assert read_record(again.path)["lineage"] == {"rerun_of": first.path.name}
    assert first.path.name in again.report.read_text()


def test_a_rerun_remembers_where_values_first_came_from() -> None:
    first = start("steps=4", "seeds=[3]")
    again = execute.stored(first.path, ["seeds=[5]", "label=x"])
    assert again.config.seeds == (5,)
    assert (again.origins["seeds"], again.origins["label"]) == ("--set seeds", "--set label")
    assert again.origins["steps"] == "--set steps"
    assert again.origins["stage.rate"] == "recipe default"
    (first.path / "origins.json").unlink()
    with pytest.raises(UsageError, match="no readable origins"):
        execute.stored(first.path)


def test_what_a_recipe_prints_does_not_reach_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    walk = toy.run

    def chatty(settings: toy.Config, run: Run) -> Result:
        print("a library has something to say")
        return walk(settings, run)

    monkeypatch.setattr(toy, "run", chatty)
    start("steps=1")
    out, err = capsys.readouterr()
    assert out == ""
    assert "a library has something to say" in err


def test_a_bug_in_a_recipe_names_the_log() -> None:
    with pytest.raises(CorymbError) as caught:
        start("fail_at=2")
    path = only_run().resolve()
    assert caught.value.exit_code == 1
    assert str(caught.value) == (
        f"ZeroDivisionError: walked into a wall (details in {path / 'log.txt'})"
    )
    record = read_record(path)
    assert (record["status"], record["error"]) == ("failed", "walked into a wall")
    assert "in _fail" in (path / "log.txt").read_text()
    assert "walked into a wall" in (path / "report.html").read_text()
    assert not (path / "result.json").exists()


def test_our_own_errors_keep_their_exit_code() -> None:
    with pytest.raises(MissingDependencyError, match="pip install boots"):
        start("fail_at=1", "failure=dependency")
    assert read_record(only_run())["status"] == "failed"
    assert "pip install boots" in (only_run() / "report.html").read_text()


def test_a_failed_run_is_taken_up_at_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = start("steps=6")
    with pytest.raises(CorymbError):
        start("steps=6", "fail_at=3")
    path = next(p for p in Path("runs").iterdir() if p.name != whole.path.name)
    asked: list[int] = []
    monkeypatch.setattr("tests.cluster.toy._fail", lambda how: asked.append(1))
    done = execute.resume(path)
    assert asked == []  # step 3 was done before
    assert done.result.figures == whole.result.figures
    assert values(read_metrics(path)) == values(read_metrics(whole.path))
    record = read_record(path)
    assert (record["status"], record["error"]) == ("finished", None)
    assert "This run is" not in done.report.read_text()


def test_keyboard_interrupt_leaves_a_report() -> None:
    with pytest.raises(KeyboardInterrupt):
        start("fail_at=2", "failure=interrupt")
    assert read_record(only_run())["status"] == "interrupted"
    assert "This run is interrupted" in (only_run() / "report.html").read_text()


STEPS = 60


@pytest.fixture
def unbroken() -> execute.Outcome:
    """What a run of so many steps comes to if nothing happens."""
    return start(f"steps={STEPS}", "output=unbroken")


def under_way(folder: Path) -> "tuple[subprocess.Popen[str], Path]":
    """The same run in a process of its own, a few slow steps from its start."""
    Path("run.yaml").write_text(f"recipe: toy\nsteps: {STEPS}\npause: 0.05\n")
    process = conftest.start("run", "run.yaml", "--json", cwd=folder)
    deadline = time.monotonic() + 30
    while not any(len(read_metrics(p)) >= 4 for p in Path("runs").glob("*")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    return process, only_run()


def resume_quickly(path: Path) -> execute.Outcome:
    file = path / "config.yaml"
    file.write_text(file.read_text().replace("pause: 0.05", "pause: 0.0"))
    return execute.resume(path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_where_an_unbroken_one_does(
    folder: Path, unbroken: execute.Outcome, number: signal.Signals
) -> None:
    process, path = under_way(folder)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert out == ""
    assert f"{number.name}: stopping at the next checkpoint" in err
    assert f"corymb resume {path.name}" in err
    assert "Traceback" not in err
    record = read_record(path)
    assert record["status"] == "interrupted"
    assert 4 <= len(read_metrics(path)) < STEPS
    assert "This run is interrupted" in (path / "report.html").read_text()

    done = resume_quickly(path)
    assert done.result.figures == unbroken.result.figures
    assert values(read_metrics(path)) == values(read_metrics(unbroken.path))
    assert read_record(path)["seconds"] > record["seconds"]


def test_a_killed_run_with_a_damaged_checkpoint_ends_there_too(
    folder: Path, unbroken: execute.Outcome
) -> None:
    process, path = under_way(folder)
    process.kill()
    process.communicate(timeout=10)
    assert read_record(path)["status"] == "running"
    index = json.loads((path / "checkpoints/index.json").read_text())
    newest = path / "checkpoints" / index["last"][-1]["file"]
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)

    done = resume_quickly(path)
    assert done.result.figures == unbroken.result.figures
    assert values(read_metrics(path)) == values(read_metrics(unbroken.path))
    assert newest.name in (path / "log.txt").read_text()


def test_resuming_what_is_finished() -> None:
    done = start("steps=2")
    before = (done.path / "result.json").read_bytes()
    with pytest.raises(UsageError, match="is finished"):
        execute.resume(done.path)
    assert (done.path / "result.json").read_bytes() == before
    with pytest.raises(UsageError):
        execute.resume(Path("absent"))


# The session


class FakeSession:
    """Stands for Ray: counts visits, and does in `preflight` what a test wants."""

    def __init__(self, settings: config.ClusterSettings, *, say: Callable[[str], None]) -> None:
        self.say = say
        self.left = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.left = True

    def preflight(self, plan: Plan) -> None:
        """Find nothing amiss."""


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> type[FakeSession]:
    """Makes the toy ask for a CPU."""
    monkeypatch.setattr(toy.Config, "plan", lambda _: Plan(({"CPU": 1.0},), 3, "steps", ("steps",)))
    monkeypatch.setattr(execute, "Session", FakeSession)
    return FakeSession


def test_a_recipe_that_needs_resources_gets_a_session(
    session: type[FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    walk = toy.run

    def look(settings: toy.Config, run: Run) -> Result:
        seen.append((run.session, vars(run.session)["left"]))
        return walk(settings, run)

    monkeypatch.setattr(toy, "run", look)
    start("steps=1")
    ((given, left),) = seen
    assert isinstance(given, FakeSession)
    assert (left, given.left) == (False, True)


def test_a_cluster_too_small_is_said_and_kept(
    session: type[FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(self: FakeSession, plan: Plan) -> None:
        raise ResourcesError("The run needs 1 CPU; change steps")

    monkeypatch.setattr(session, "preflight", lacking)
    with pytest.raises(ResourcesError, match="change steps"):
        start()
    assert read_record(only_run())["status"] == "failed"
    assert "change steps" in (only_run() / "report.html").read_text()
    assert read_metrics(only_run()) == []


def test_waiting_for_a_cluster_can_be_stopped(
    session: type[FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(self: FakeSession, plan: Plan) -> None:
        signal.raise_signal(signal.SIGINT)
        self.say("waiting for the cluster to grow")
        pytest.fail("went on waiting")

    monkeypatch.setattr(session, "preflight", wait)
    with pytest.raises(InterruptedRunError):
        start()
    assert read_record(only_run())["status"] == "interrupted"


# Thresholds


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("mse<=0.01", ("mse", "<=", 0.01)), ("mse >= 1e-3", ("mse", ">=", 0.001)),
        ("a.b/c-d<2", ("a.b/c-d", "<", 2.0)), (" x > -5 ", ("x", ">", -5.0)),
    ],
)  # fmt: skip
def test_requirements_are_read(text: str, parts: tuple[str, str, float]) -> None:
    found = Requirement.parse(text)
    assert (found.name, found.sign, found.value) == parts


@pytest.mark.parametrize("text", ["", "mse", "mse=1", "mse<=", "<=1", "mse<=ten", "mse<=1<=2"])
def test_requirements_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="expected NAME<=VALUE"):
        Requirement.parse(text)


@pytest.mark.parametrize(
    ("text", "miss"),
    [
        ("x<=2", None), ("x>=2", None), ("x<2", "x is 2, required < 2"),
        ("x>2", "x is 2, required > 2"), ("x<=1.5", "x is 2, required <= 1.5"),
        ("nan<=1", "nan is nan, required <= 1"), ("nan>=1", "nan is nan, required >= 1"),
        ("y<=1", "y was not measured (figures: x, nan)"),
    ],
)  # fmt: skip
def test_misses(text: str, miss: str | None) -> None:
    result = Result({"x": Figure(2.0), "nan": Figure(float("nan"))}, {"y": Figure(0.0)}, [0])
    assert Requirement.parse(text).miss(result) == miss


def test_all_misses_are_listed_and_the_run_is_finished() -> None:
    start("steps=2", require=("x<=1e9", "y>=-1e9")).check()
    done = start("steps=2", "output=missed", require=("x>=1e9", "y<=1e9", "z<=1"))
    with pytest.raises(ThresholdError) as caught:
        done.check()
    (path,) = Path("missed").iterdir()
    x = json.loads((path / "result.json").read_text())["figures"]["x"]["value"]
    assert str(caught.value) == (
        f"x is {x:g}, required >= 1e+09; z was not measured (figures: x, y) (run {path.name})"
    )
    assert caught.value.exit_code == 6
    assert read_record(path)["status"] == "finished"
    assert (path / "report.html").is_file()
