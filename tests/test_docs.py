"""Every command and code block of README and docs runs, or is run by the checks themselves."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

BY_THE_CHECKS = ("make demo", "make test")
"""`.ci/run` runs these."""

CLUSTER = ("ray start", "ray stop", "corymb run study/run.yaml --address")
"""Need a second machine, or would stop every Ray on this one; tests/cluster joins a cluster."""

INSTALL = ("python3 -m venv", ".venv/bin/pip install")
"""The Makefile's own steps, which ran before this test could."""

FLOWER = ("flwr run",)
"""A slow test of its own, below."""

WITHOUT_ENGINE = (ROOT / "docs" / "control.md",)
"""Pages whose recipes have no `engine` to choose."""

LONG = {"python -m benchmarks.fedgmm_accuracy": "--quick"}
"""Commands that run for hours get the flag that shortens them."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    for match in re.finditer(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        yield Block(page, match[1], match[2])


def all_blocks(*languages: str) -> list[Block]:
    return [b for page in PAGES for b in blocks(page) if b.language in languages]


def commands(page: Path) -> list[str]:
    lines = [
        line.split("  #")[0].strip()
        for block in blocks(page)
        if block.language in ("bash", "console")
        for line in block.text.splitlines()
    ]
    return [line for line in lines if line]


def environment(page: Path | None = None) -> dict[str, str]:
    home = str(Path(sys.executable).parent)
    engine = {} if page in WITHOUT_ENGINE else {"CORYMB__ENGINE": "in_process"}
    return {
        **os.environ, "PATH": f"{home}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT), "CORYMB__PRESET": "smoke", **engine,
    }  # fmt: skip


def run(command: str, folder: Path, page: Path | None = None) -> str:
    done = subprocess.run(
        shlex.split(command), cwd=folder, env=environment(page), capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_runs_as_written(page: Path, tmp_path: Path) -> None:
    """In order, in one folder, with the files that the page shows; presets shortened to smoke."""
    for block in blocks(page):
        shown = r"`([\w./]+\.yaml)`[^`]*\n```yaml\n" + re.escape(block.text)
        named = re.search(shown, page.read_text())
        if block.language == "yaml" and named:
            (tmp_path / named[1]).write_text(block.text)
    elsewhere = (*BY_THE_CHECKS, *CLUSTER, *INSTALL, *FLOWER)
    for command in commands(page):
        if command.startswith(elsewhere):
            continue
        if command.startswith("python -m"):
            flag = next((f for start, f in LONG.items() if command == start), "")
            run(f"{command} {flag}", ROOT, page)
        else:
            run(command.replace("compare A B", "compare last last"), tmp_path, page)


def test_the_checks_run_the_makefiles_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for command in BY_THE_CHECKS:
        assert f"\n{command}\n" in script + "\n"


@pytest.mark.parametrize("block", all_blocks("python"), ids=lambda b: b.page.name)
def test_python_blocks_run(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "block.py"
    file.write_text(block.text)
    run(f"{sys.executable} {file}", tmp_path)


def test_readme_shows_the_demo_as_it_prints() -> None:
    """The estimates in the README's output are those of the code, digit by digit."""
    (text,) = [b.text for b in blocks(ROOT / "README.md") if b.language == "text"]
    script = (
        "from federated.fedgmm import sources; from federated.fedgmm.api import LinearIV;"
        "c = sources.card(); r = c.rows;"
        "f = LinearIV().fit(r.z, r.x, r.y, w=r.w, client=c.client);"
        "print(*(f'{v:.4f}' for e in (f.coefficients[0], f.gmm[0])"
        " for v in (e.value, *e.interval())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    two_stage, gmm = done.stdout.split()[:3], done.stdout.split()[3:]
    for name, (value, low, high) in {"2SLS": two_stage, "two-step GMM": gmm}.items():
        assert re.search(rf"educ: federated {name} +{value} +{low} to {high}", text)


@pytest.mark.slow
def test_flower_runs_the_app(tmp_path: Path) -> None:
    """`flwr run .` from the checkout ends in a run directory that `corymb report` reads."""
    changed = {"FLWR_HOME": str(tmp_path), "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    before = set((ROOT / "runs").glob("*"))
    command = ["flwr", "run", ".", "--stream"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**environment(), **changed}, capture_output=True, text=True,
            timeout=280, check=False,
        )  # fmt: skip
    finally:
        subprocess.run(["pkill", "-f", str(tmp_path)], check=False)
    (made,) = set((ROOT / "runs").glob("*")) - before
    assert (made / "result.json").is_file(), done.stdout
    run(f"corymb report {made}", ROOT)
