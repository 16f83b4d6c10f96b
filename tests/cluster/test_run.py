"""The run directory: what is in it, what survives a kill, and who may write it."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cluster import files
from cluster.errors import InterruptedRunError, UsageError
from cluster.evidence import Figure, Result, Section, Table
from cluster.run import Run, is_locked, read_metrics, read_record
from tests.cluster.conftest import ROOT


def make(output: Path) -> Run:
    return Run.open(recipe="toy", config_yaml="recipe: toy\n", origins={}, output=output)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with make(tmp_path) as run:
        yield run
        run.close(Result({}, {}, [0]))


def status(run: Run) -> str:
    return str(read_record(run.path)["status"])


def child(code: str, path: Path) -> "subprocess.Popen[str]":
    """Python code in a process of its own, which says "ready" and then waits to be killed."""
    start = (
        "import sys, time\nfrom pathlib import Path\nfrom cluster.run import Run\n"
        "path = Path(sys.argv[1])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"{start}{code}\nprint('ready', flush=True)\ntime.sleep(60)", path],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate(timeout=10)


# Contents


def test_a_new_run_has_everything_that_describes_it(tmp_path: Path) -> None:
    origins = {"steps": "run.yaml:3"}
    output = tmp_path / "deep" / "runs"
    run = Run.open(
        recipe="toy", config_yaml="recipe: toy\n", origins=origins, output=output,
        lineage={"rerun_of": "x"},
    )  # fmt: skip
    with run:
        assert run.path.parent == output
        assert run.id == run.path.name
        assert run.id.split("-")[3] == "toy"
        record = read_record(run.path)
        assert record["status"] == "running"
        assert (record["id"], record["recipe"], record["pid"]) == (run.id, "toy", os.getpid())
        assert record["lineage"] == {"rerun_of": "x"}
        assert record["ended"] is None
        assert datetime.fromisoformat(record["created"]).utcoffset() is not None
        assert (run.path / "config.yaml").read_text() == "recipe: toy\n"
        assert json.loads((run.path / "origins.json").read_text()) == origins
        machine = json.loads((run.path / "environment.json").read_text())
        assert machine["python"] == sys.version.split()[0]
        for name in ("ray", "numba", "scipy"):
            assert machine["packages"][name]
        assert machine["cpus"] >= 1
        run.close(Result({}, {}, [0]))


def test_runs_of_the_same_minute_have_folders_of_their_own(tmp_path: Path) -> None:
    runs = [make(tmp_path) for _ in range(5)]
    assert len({run.path for run in runs}) == 5


def test_a_name_that_is_taken_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("cluster.run.secrets.token_hex", lambda _: next(names))
    first, second = make(tmp_path), make(tmp_path)
    assert (first.id[-4:], second.id[-4:]) == ("aaaa", "bbbb")


def test_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(UsageError, match="choose another folder with --set output"):
        make(tmp_path / "runs")


def test_close_leaves_the_result(tmp_path: Path) -> None:
    result = Result(
        {"mse": Figure(0.5, 0.4, 0.6, 5, "m", "Error", "lower")},
        {"base": Figure(float("nan"), None, float("inf"))},
        [0, 1],
        headline=["mse"],
        summary="Done",
        sections=[Section("S", ("text",), Table(("a",), (("b",),)), "plots/x.svg", "caption")],
    )
    with make(tmp_path) as run:
        sum(range(10**6))
        run.close(result)
    record = read_record(run.path)
    assert record["status"] == "finished"
    assert record["error"] is None
    assert datetime.fromisoformat(record["ended"]) >= datetime.fromisoformat(record["started"])
    assert record["seconds"] > 0
    assert record["cpu_seconds"] > 0
    stored = json.loads((run.path / "result.json").read_text())
    assert stored["figures"]["mse"]["value"] == 0.5
    assert stored["baselines"]["base"]["value"] is None
    assert stored["seconds"] == record["seconds"]
    assert Result.from_json(stored).sections == result.sections


def test_fail_keeps_sentence_and_traceback(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), make(tmp_path) as run:
        raise ZeroDivisionError("walked into a wall")
    record = read_record(run.path)
    assert (record["status"], record["error"]) == ("failed", "walked into a wall")
    log = (run.path / "log.txt").read_text()
    assert "Traceback" in log
    assert "ZeroDivisionError: walked into a wall" in log
    assert not (run.path / "result.json").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InterruptedRunError("stopped")])
def test_a_stop_is_no_failure(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), make(tmp_path) as run:
        raise error
    assert status(run) == "interrupted"
    assert read_record(run.path)["error"]


def test_a_run_without_a_verdict_has_failed(tmp_path: Path) -> None:
    with make(tmp_path) as run:
        pass
    assert status(run) == "failed"


# Metrics


def test_metrics_are_read_back(run: Run) -> None:
    run.log(1, loss=0.5, count=3)
    run.log(2, loss=float("nan"), other=float("-inf"))
    (first, second) = run.metrics()
    assert (first["step"], first["loss"], first["count"]) == (1, 0.5, 3)
    assert abs(first["time"] - datetime.now().timestamp()) < 60
    assert (second["loss"], second["other"]) == (None, None)
    for line in (run.path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_a_line_is_on_disk_once_it_is_logged(run: Run) -> None:
    for step in range(3):
        run.log(step, loss=1.0)
        assert len(read_metrics(run.path)) == step + 1


def test_a_step_logged_again_supersedes_its_own_metrics_only(run: Run) -> None:
    run.log(1, loss=1.0)
    run.log(1, score=7.0)
    run.log(2, loss=2.0)
    run.log(1, loss=3.0)
    found = [{k: v for k, v in line.items() if k != "time"} for line in run.metrics()]
    assert sorted(found, key=str) == [
        {"step": 1, "loss": 3.0}, {"step": 1, "score": 7.0}, {"step": 2, "loss": 2.0},
    ]  # fmt: skip


def test_no_metrics(run: Run) -> None:
    assert run.metrics() == []


def test_a_torn_last_line_is_left_out_and_harms_no_later_one(tmp_path: Path) -> None:
    with contextlib.suppress(KeyboardInterrupt), make(tmp_path) as run:
        run.log(1, loss=1.0)
        run.log(2, loss=2.0)
        raise KeyboardInterrupt
    file = run.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    assert [line["step"] for line in read_metrics(run.path)] == [1]
    with Run.reopen(run.path) as again:
        again.log(2, loss=2.5)
        again.log(3, loss=3.0)
        again.close(Result({}, {}, [0]))
    assert [(line["step"], line["loss"]) for line in read_metrics(run.path)] == [
        (1, 1.0), (2, 2.5), (3, 3.0),
    ]  # fmt: skip


def test_metrics_and_checkpoints_survive_kill_9(tmp_path: Path) -> None:
    process = child(
        "import numpy\n"
        "run = Run.open(recipe='toy', config_yaml='', origins={}, output=path)\n"
        "run.__enter__()\n"
        "for step in range(1, 501):\n"
        "    run.log(step, loss=step / 2)\n"
        "run.save(500, {'a': numpy.arange(3)}, {'k': 1})",
        tmp_path,
    )
    (path,) = tmp_path.iterdir()
    assert is_locked(path)
    with pytest.raises(UsageError, match="is being written by another process"):
        Run.reopen(path)
    assert read_record(path)["status"] == "running"
    kill(process)

    assert not is_locked(path)
    assert [line["step"] for line in read_metrics(path)] == list(range(1, 501))
    with Run.reopen(path) as run:  # no stale lock
        found = run.load()
        assert found is not None
        assert (found[0], found[1]["a"].tolist(), found[2]) == (500, [0, 1, 2], {"k": 1})
        run.close(Result({}, {}, [0]))
    assert read_record(path)["status"] == "finished"


# One writer


def test_two_writers_in_one_process(tmp_path: Path) -> None:
    with contextlib.suppress(KeyboardInterrupt), make(tmp_path) as run:
        assert is_locked(run.path)
        with pytest.raises(UsageError, match="another process"):
            Run.reopen(run.path)
        assert status(run) == "running"
        raise KeyboardInterrupt
    assert not is_locked(run.path)
    with Run.reopen(run.path) as again:
        assert is_locked(run.path)
        again.close(Result({}, {}, [0]))


def test_reopen_goes_on_counting(tmp_path: Path) -> None:
    with pytest.raises(ValueError), make(tmp_path) as run:
        raise ValueError("x")
    before = read_record(run.path)
    with Run.reopen(run.path) as again:
        record = read_record(run.path)
        assert (record["status"], record["error"], record["ended"]) == ("running", None, None)
        assert record["created"] == before["created"]
        assert record["started"] > before["started"]
        again.close(Result({}, {}, [0]))
    assert read_record(run.path)["seconds"] >= before["seconds"]


def test_what_cannot_be_reopened(tmp_path: Path, run: Run) -> None:
    with make(tmp_path) as done:
        done.close(Result({}, {}, [0]))
    with pytest.raises(UsageError, match="is finished; `corymb rerun` repeats it"):
        Run.reopen(done.path)
    assert status(done) == "finished"
    assert not is_locked(done.path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is not a run directory"):
        Run.reopen(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


# Files


@pytest.mark.parametrize("name", ["../x", "plots/../../x", "/etc/x", "..", "link/x"])
def test_artifacts_stay_inside(run: Run, tmp_path: Path, name: str) -> None:
    (run.path / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="outside the run directory"):
        run.artifact(name)
    assert not (tmp_path / "x").exists()


def test_artifacts_get_their_folders(run: Run) -> None:
    path = run.artifact("plots/deep/curve.svg")
    path.write_text("x")
    assert path == run.path.resolve() / "plots/deep/curve.svg"
    assert run.artifact("plots/../top.txt") == run.path.resolve() / "top.txt"


def test_a_failed_write_leaves_the_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    files.write_json(path, {"a": 1})

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        files.write_json(path, {"a": 2})
    with pytest.raises(TypeError):
        files.write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_file_is_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    files.write_text(path, "old")
    seen: list[str] = []
    sync = os.fsync

    def look(descriptor: int) -> None:
        seen.append(path.read_text())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    files.write_text(path, "new")
    assert seen == ["old"]
    assert path.read_text() == "new"


def test_finite() -> None:
    data: Any = {"a": [1.5, float("nan"), (float("inf"), 2)], "b": "nan", "c": None, "d": True}
    assert files.finite(data) == {"a": [1.5, None, [None, 2]], "b": "nan", "c": None, "d": True}


# Signals, log and progress


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_and_a_second_one_insists(
    tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with contextlib.suppress(KeyboardInterrupt), make(tmp_path) as run:
        run.check_stop()
        assert not run.stop_requested()
        signal.raise_signal(number)
        assert run.stop_requested()
        with pytest.raises(InterruptedRunError, match=f"corymb resume {run.id}"):
            run.check_stop()
        assert f"{number.name}: stopping at the next checkpoint" in capsys.readouterr().err
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
    assert status(run) == "interrupted"


def test_a_signal_while_something_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reentered(*_: Any) -> None:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter>")

    with make(tmp_path) as run:
        monkeypatch.setattr(run, "warn", reentered)
        signal.raise_signal(signal.SIGTERM)
        assert run.stop_requested()
        run.close(Result({}, {}, [0]))


def test_log_holds_ours_and_the_libraries_words(run: Run) -> None:
    run.say("step 1")
    run.say("step 2")
    run.warn("take care")
    logging.getLogger("ray.train").warning("a worker died")
    logging.getLogger("flwr").error("no client")
    log = (run.path / "log.txt").read_text()
    for text in ("step 1", "step 2", "take care", "a worker died", "no client"):
        assert text in log


@pytest.mark.parametrize("propagates", [True, False])
def test_a_library_below_another_is_logged_once(
    run: Run, propagates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = logging.getLogger("ray.rllib")
    monkeypatch.setattr(library, "propagate", propagates)
    for _ in range(2):
        library.error("an env runner is gone")
    assert (run.path / "log.txt").read_text().count("an env runner is gone") == 2


def test_handlers_go_with_the_run(tmp_path: Path) -> None:
    names = ("corymb", "ray", "ray.rllib", "flwr")
    before = {name: list(logging.getLogger(name).handlers) for name in names}
    with make(tmp_path) as run:
        run.close(Result({}, {}, [0]))
    assert before == {n: list(logging.getLogger(n).handlers) for n in before}


def test_progress_is_rare_and_never_on_stdout(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 1000.0
    monkeypatch.setattr("cluster.run.time.monotonic", lambda: clock)
    for step in range(100):
        run.say(f"step {step}")
        clock += 0.1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["step 0", "step 50"]
    run.warn("look")
    assert capsys.readouterr().err == "warning: look\n"
