"""The command line: exit codes, what goes to stdout and what to stderr, and what it loads."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster import cli
from cluster.catalogue import locate
from cluster.run import Run, read_record
from tests.cluster import conftest
from tests.cluster.conftest import ROOT, Command, Done

HEAVY = ("torch", "ray", "flwr", "pandas", "gymnasium", "matplotlib", "scipy", "pyarrow")


@pytest.fixture
def file(folder: Path) -> str:
    Path("run.yaml").write_text("recipe: toy\nsteps: 3\nlabel: The end\n")
    return "run.yaml"


@pytest.fixture
def ran(corymb: Command, file: str) -> Path:
    """A finished run."""
    assert corymb("run", file).code == 0
    return locate("last")


def data(done: Done) -> Any:
    """The JSON on stdout, strictly read."""
    return json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def ids() -> list[str]:
    return sorted(p.name for p in Path("runs").glob("*"))


# Looking


def test_help_and_version(corymb: Command) -> None:
    done = corymb("--help")
    assert done.code == 0
    for name in ("demo", "list", "init", "show", "validate", "run", "resume", "rerun", "compare",
                 "report", "export", "predict", "doctor", "clean"):  # fmt: skip
        assert name in done.out
    assert done.err == ""
    version = corymb("--version")
    assert (version.code, version.out.split()[0], version.err) == (0, "corymb", "")


def test_list(corymb: Command) -> None:
    assert "toy" in corymb("list").out
    names = [entry["name"] for entry in data(corymb("list", "--json"))]
    assert {"fedgmm", "toy"} <= set(names)


@pytest.mark.parametrize("arguments", [["fly"], ["run"], ["run", "a", "b"], ["list", "--fast"]])
def test_wrong_usage(corymb: Command, arguments: list[str]) -> None:
    done = corymb(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Usage:" in done.err


def test_show(corymb: Command, file: str) -> None:
    done = corymb("show", file, "--preset", "smoke", "--set", "stage.rate=1e-2")
    assert (done.code, done.err) == (0, "")
    for line in ("recipe: toy", "steps: 3", "  rate: 0.01", "  width: 2", "preset: smoke"):
        assert line in done.out.splitlines()
    Path("shown.yaml").write_text(done.out)
    assert corymb("show", "shown.yaml").out == done.out


def test_show_origins(corymb: Command, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORYMB__STAGE__WIDTH", "5")
    Path("ray_config.yaml").write_text("metadata: {corymb: {verbose: true}}\n")
    done = corymb("show", file, "--origins", "--set", "stage.rate=1e-2")
    found = {tuple(part.strip() for part in line.split("  # ")) for line in done.out.splitlines()}
    assert {
        ("steps = 3", "run.yaml:2"),
        ("stage.width = 5", "environment CORYMB__STAGE__WIDTH"),
        ("stage.rate = 0.01", "--set stage.rate"),
        ("verbose = true", "ray_config.yaml:1"),
        ('stage.kind = "plain"', "recipe default"),
    } <= found


def test_show_json_and_schema(corymb: Command, file: str) -> None:
    shown = data(corymb("show", file, "--json", "--set", "cluster.wait_for_resources=.inf"))
    assert shown["config"]["steps"] == 3
    assert shown["config"]["cluster"]["wait_for_resources"] is None  # JSON has no infinity
    assert shown["origins"]["steps"] == "run.yaml:2"
    assert "steps" in data(corymb("show", file, "--schema"))["properties"]


def test_validate(corymb: Command, file: str) -> None:
    done = corymb("validate", file)
    assert (done.code, done.err) == (0, "")
    assert "valid, recipe toy, preset small" in done.out
    assert data(corymb("validate", file, "--json")) == {"valid": True, "problems": []}
    assert ids() == []


def test_validate_says_everything_that_is_wrong(corymb: Command, file: str) -> None:
    Path(file).write_text("recipe: toy\nstpes: 3\nstage:\n  rate: fast\n")
    expected = [
        "run.yaml:2: stpes: unknown key; did you mean 'steps'?",
        "run.yaml:4: stage.rate: expected a number, got 'fast'",
    ]
    done = corymb("validate", file)
    assert (done.code, done.out) == (2, "")
    assert sorted(done.err.removeprefix("corymb: ").splitlines()) == expected
    done = corymb("validate", file, "--json")
    assert (done.code, done.err) == (2, "")
    assert data(done)["valid"] is False
    assert sorted(data(done)["problems"]) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "run.yaml:2: the key 'a' is already set on line 1"),
        ("\ta: 1\n", "run.yaml:1: not valid YAML"),
        ("", "run.yaml:1: the file is empty"),
        ("recipe: tpy\n", "run.yaml:1: recipe: There is no recipe 'tpy'; did you mean 'toy'?"),
        (None, "There is no file run.yaml"),
    ],
)
def test_validate_json_of_what_is_no_run_file(
    corymb: Command, file: str, text: str | None, said: str
) -> None:
    Path(file).unlink() if text is None else Path(file).write_text(text)
    done = corymb("validate", file, "--json")
    assert (done.code, done.err) == (2, "")
    assert data(done)["problems"][0].startswith(said)
    plain = corymb("validate", file)
    assert (plain.code, plain.out) == (2, "")
    assert plain.err.startswith(f"corymb: {said}")


def test_dry_run(corymb: Command, file: str) -> None:
    done = corymb("run", file, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "about 3 steps" in done.out
    planned = data(corymb("run", file, "--dry-run", "--json", "--set", "steps=7"))
    assert (planned["steps"], planned["unit"], planned["bundles"]) == (7, "steps", [])
    assert ids() == []


# Running


def test_run_prints_the_result_alone(corymb: Command, file: str) -> None:
    done = corymb("run", file)
    assert done.code == 0
    for text in ("The end", "95 % interval", "note: A random walk proves nothing."):
        assert text in done.out
    assert done.out.splitlines()[-1] == f"report: {locate('last').resolve() / 'report.html'}"
    assert "step 1" in done.err
    assert "step" not in done.out.replace("steps", "")


def test_run_json(corymb: Command, file: str) -> None:
    done = corymb("run", file, "--json", "--preset", "smoke", "--set", "seeds=[5]")
    found = data(done)
    path = Path(found.pop("run"))
    assert path == locate("last").resolve()
    assert found == json.loads((path / "result.json").read_text())
    assert found["seeds"] == [5]
    assert set(found["figures"]["x"]) >= {"value", "low", "high", "n", "unit"}


def test_address_and_waiting_are_settings(corymb: Command, file: str) -> None:
    corymb("run", file, "--address", "10.0.0.1:6379", "--wait-for-resources", "1.5")
    text = (locate("last") / "config.yaml").read_text()
    assert "address: 10.0.0.1:6379" in text
    assert "wait_for_resources: 1.5" in text


def test_variables_and_launcher_defaults_reach_a_run(
    corymb: Command, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ray_config.yaml").write_text("metadata: {corymb: {words: [a], output: elsewhere}}\n")
    monkeypatch.setenv("CORYMB__SEEDS", "[9]")
    path = Path(data(corymb("run", file, "--json"))["run"])
    assert path.parent == Path("elsewhere").resolve()
    origins = json.loads((path / "origins.json").read_text())
    assert origins["words"] == "ray_config.yaml:1"
    assert origins["seeds"] == "environment CORYMB__SEEDS"


def test_mistakes_stop_before_anything_starts(corymb: Command, file: str) -> None:
    for arguments in (["--set", "stpes=1"], ["--require", "x=1"], ["--preset", "smok"]):
        done = corymb("run", file, *arguments)
        assert (done.code, done.out) == (2, "")
        assert arguments[0] in done.err
    assert ids() == []


def test_a_failed_run(corymb: Command, file: str) -> None:
    done = corymb("run", file, "--set", "fail_at=2", "--json")
    assert (done.code, done.out) == (1, "")
    assert f"details in {locate('last').resolve() / 'log.txt'}" in done.err
    assert "Traceback" not in done.err
    assert corymb("run", file, "--set", "fail_at=1", "--set", "failure=dependency").code == 3
    assert corymb("run", file, "--set", "fail_at=1", "--set", "failure=interrupt").code == 130


def test_require(corymb: Command, file: str) -> None:
    assert corymb("run", file, "--require", "x<=1e9", "--require", "y>=-1e9").code == 0
    done = corymb("run", file, "--require", "x>=1e9", "--require", "y>=1e9", "--require", "x<1e9")
    assert done.code == 6
    assert "required >= 1e+09; y is" in done.err
    assert "The end" in done.out  # what was found is shown all the same
    assert read_record(locate("last"))["status"] == "finished"


def test_resume_and_rerun(corymb: Command, file: str, ran: Path) -> None:
    whole = json.loads((ran / "result.json").read_text())["figures"]
    again = data(corymb("rerun", ran.name, "--json"))
    assert again["figures"] == whole
    assert read_record(Path(again["run"]))["lineage"] == {"rerun_of": ran.name}
    assert data(corymb("rerun", ran.name, "--set", "seeds=[8]", "--json"))["figures"] != whole

    assert corymb("run", file, "--set", "fail_at=2").code == 1
    stopped = locate("last")
    config = stopped / "config.yaml"
    config.write_text(config.read_text().replace("fail_at: 2", "fail_at: null"))
    done = corymb("resume", "last", "--json", "--require", "x<=1e9")
    assert done.code == 0
    assert data(done)["figures"] == whole
    assert Path(data(done)["run"]).resolve() == stopped.resolve()
    refused = corymb("resume", stopped.name)
    assert (refused.code, refused.out) == (2, "")
    assert "is finished" in refused.err


def test_rerun_does_not_depend_on_where_it_is_given(
    corymb: Command, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = ran.resolve()
    Path("ray_config.yaml").write_text("metadata: {corymb: {seeds: [77]}}\n")
    monkeypatch.setenv("CORYMB__SEEDS", "[78]")
    monkeypatch.chdir(ran)
    found = data(corymb("rerun", ".", "--json"))
    assert found["seeds"] == [0]
    assert Path(found["run"]).parent == ran.parent
    assert read_record(Path(found["run"]))["lineage"] == {"rerun_of": ran.name}


@pytest.mark.parametrize("command", ["resume", "rerun", "report"])
def test_unknown_run(corymb: Command, command: str) -> None:
    done = corymb(command, "nothing")
    assert (done.code, done.out) == (2, "")
    assert "There is no run 'nothing'" in done.err


# Reading


def test_compare(corymb: Command, file: str, ran: Path) -> None:
    corymb("run", file, "--set", "steps=5")
    first, second = ran.name, locate("last").name
    done = corymb("compare", first, second)
    assert (done.code, done.err) == (0, "")
    assert "last minus first" in done.out
    assert "steps" in done.out
    assert corymb("compare", first, second, "--markdown").out.startswith("| figure |")
    found = data(corymb("compare", first, "last", "--json"))
    assert found["runs"] == [first, second]
    assert found["config"] == {"steps": [3, 5]}
    alone = corymb("compare", first)
    assert (alone.code, alone.out) == (2, "")
    assert "at least two" in alone.err


def test_report(corymb: Command, ran: Path) -> None:
    (ran / "report.html").unlink()
    done = corymb("report", "last")
    assert (done.code, done.err) == (0, "")
    assert Path(done.out.strip()).resolve() == ran.resolve() / "report.html"
    assert "The end" in (ran / "report.html").read_text()


def test_doctor_json(corymb: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster import doctor

    bad = doctor.Finding("disk", "problem", "1 GB", "make room")
    for finding, code in (
        (replace(bad, status="ok"), 0),
        (replace(bad, status="warning"), 0),
        (bad, 1),
    ):
        monkeypatch.setattr(doctor, "examine", lambda finding=finding: [finding])
        done = corymb("doctor", "--json")
        assert (done.code, data(done)[0]["status"]) == (code, finding.status)
        assert "make room" in corymb("doctor").out


# Housekeeping


def test_init_writes_a_run_that_is_valid(corymb: Command, folder: Path) -> None:
    done = corymb("init", "new/place", "--recipe", "toy")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == ["new/place/run.yaml", "new/place/steps.csv"]
    shown = data(corymb("show", "new/place/run.yaml", "--json"))
    assert Path(shown["config"]["table"]) == folder / "new/place/steps.csv"
    Path("new/place/run.yaml").write_text("mine")
    done = corymb("init", "new/place", "--recipe", "toy")
    assert (done.code, done.out) == (2, "")
    assert "already has run.yaml, steps.csv" in done.err
    assert Path("new/place/run.yaml").read_text() == "mine"
    assert "did you mean 'toy'?" in corymb("init", "other", "--recipe", "tpy").err
    assert not Path("other").exists()


def test_clean_asks_first(corymb: Command, ran: Path) -> None:
    done = corymb("clean")
    assert done.code == 0
    assert ran.name in done.out
    assert "add --yes" in done.err
    assert ids() == [ran.name]
    done = corymb("clean", "--yes")
    assert ran.name in done.out
    assert "removed 1 runs" in done.err
    assert ids() == []
    done = corymb("clean", "--yes")
    assert (done.code, done.out) == (0, "")
    assert "nothing to remove" in done.err


def test_clean_takes_only_what_was_asked_for(corymb: Command, file: str, ran: Path) -> None:
    corymb("run", file, "--set", "fail_at=1")
    assert corymb("clean", "--yes", "--older-than", "1").out == ""
    failed = locate("last").name
    assert failed in corymb("clean", "--failed", "--yes").out
    assert ids() == [ran.name]
    with Run.open(recipe="toy", config_yaml="", origins={}, output=Path("runs")) as running:
        corymb("clean", "--yes")
        assert ids() == [running.id]


def test_clean_elsewhere(corymb: Command, file: str) -> None:
    corymb("run", file, "--set", "output=elsewhere")
    assert "nothing to remove" in corymb("clean", "--yes").err
    assert "removed 1" in corymb("clean", "--yes", "--runs", "elsewhere").err


def test_a_bug_of_ours_keeps_its_traceback(
    corymb: Command, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr("cluster.config.load", broken)
    monkeypatch.setattr(sys, "argv", ["corymb", "show", file])
    with pytest.raises(LookupError):
        cli.main()


# In a process of its own


def test_exit_codes_reach_the_shell(folder: Path, file: str) -> None:
    def ended(*arguments: str) -> Done:
        process = conftest.start(*arguments, cwd=folder)
        out, err = process.communicate(timeout=30)
        return Done(process.returncode, out, err)

    done = ended("run", file, "--json", "--require", "x>=1e9")
    assert done.code == 6
    assert "x" in data(done)["figures"]
    assert "Traceback" not in done.err
    done = ended("run", file, "--json")
    assert done.code == 0
    assert data(done)["figures"]["x"]["n"] == 5
    assert "step 1" in done.err


LIGHT = """
import json, sys
from cluster import cli
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["corymb", *arguments]
    try:
        cli.main()
    except SystemExit as ended:
        assert not ended.code, (arguments, ended.code)
    loaded = [name for name in HEAVY if name in sys.modules]
    assert not loaded, (arguments, loaded)
"""


def light(*commands: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", f"HEAVY = {HEAVY}{LIGHT}", json.dumps(commands)],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_looking_loads_nothing_heavy(corymb: Command, file: str, ran: Path) -> None:
    corymb("run", file)
    done = light(
        ["--help"], ["--version"], ["list"], ["init", "example"],
        ["validate", "example/run.yaml"], ["show", "example/run.yaml", "--origins"],
        ["show", "example/run.yaml", "--schema"], ["run", "example/run.yaml", "--dry-run"],
        ["compare", ran.name, "last"], ["report", "last"], ["clean"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "valid, recipe fedgmm" in done.stdout


def test_the_check_of_light_imports_can_fail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sitecustomize.py").write_text("import pyarrow\n")
    run: Callable[..., Any] = subprocess.run

    def with_pyarrow(*arguments: Any, **options: Any) -> Any:
        options["env"]["PYTHONPATH"] += f":{folder}"
        return run(*arguments, **options)

    monkeypatch.setattr(subprocess, "run", with_pyarrow)
    done = light(["list"])
    assert done.returncode != 0
    assert "pyarrow" in done.stderr
