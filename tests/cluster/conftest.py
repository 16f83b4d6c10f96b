"""The toy recipe, a folder to work in, and the command line here or in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster import cli, environment, recipes
from tests.cluster import toy

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture(scope="session")
def machine() -> dict[str, Any]:
    """What this machine is, found out once."""
    return environment.capture()


@pytest.fixture(autouse=True)
def _known_machine(machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares each run the look at git and the graphics driver."""
    monkeypatch.setattr(environment, "capture", lambda: machine)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, the toy in the table of recipes, no variables of ours."""
    for name in list(os.environ):
        if name.startswith("CORYMB__"):
            monkeypatch.delenv(name)
    monkeypatch.setitem(recipes.RECIPES, "toy", toy.RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def corymb(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command line, called in this process."""

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["corymb", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 1, out, err)

    return call


def start(*arguments: str, cwd: Path, module: str = "tests.cluster.toy") -> "subprocess.Popen[str]":
    """Start the command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
