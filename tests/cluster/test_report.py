"""report.html: whole and self-contained for each way a run can end, and safe to open."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster import plots, report
from cluster.errors import InterruptedRunError, UsageError
from cluster.evidence import Figure, Result, Section, Table
from cluster.files import write_json
from cluster.run import Run, read_record
from tests.cluster.test_run import child, kill

EVIL = '<script>alert("x")</script>'


class Page(HTMLParser):
    """Tags, attributes and visible text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, attribute: str) -> list[str]:
        return [value for name, value in self.attributes if name == attribute]


def open_run(folder: Path, config: str = "recipe: toy\n") -> Run:
    origins = {"steps": "run.yaml:3", "label": "recipe default"}
    return Run.open(recipe="toy", config_yaml=config, origins=origins, output=folder)


def finished(folder: Path, result: Result, config: str = "recipe: toy\n") -> Run:
    with open_run(folder, config) as run:
        run.close(result)
    return run


def draw(run: Run, name: str) -> str:
    x = np.linspace(0, 1, 5)
    path = run.artifact(f"plots/{name}.svg")
    plots.lines(path, [plots.Line(EVIL, x, x, x - 1, x + 1)], "x & y", f"<{name}>")
    return f"plots/{name}.svg"


def page(run: Run) -> Page:
    return Page(report.write(run.path).read_text(encoding="utf-8"))


@pytest.fixture
def rich(tmp_path: Path) -> Run:
    """A finished run with everything a result can hold, and evil in every label."""
    with open_run(tmp_path, f"recipe: toy\nlabel: '{EVIL}'\n") as run:
        sections = [
            Section(f"Part {name} {EVIL}", (f"Words {EVIL}",),
                    Table(("method", EVIL), (("ours", EVIL),)), draw(run, name), f"Seen {EVIL}")
            for name in ("one", "two")
        ]  # fmt: skip
        sections.append(Section("Without its plot", svg="plots/absent.svg"))
        result = Result(
            {"mse": Figure(0.01234, 0.01, 0.015, 5, "m²", f"Error {EVIL}"), EVIL: Figure(2.0)},
            {"base": Figure(0.5, label=f"2SLS {EVIL}")},
            [0, 7],
            headline=["mse", "absent"],
            summary=f"It works {EVIL}",
            warnings=[f"Weak instruments {EVIL}"],
            sections=sections,
        )
        run.close(result)
    return run


def test_a_finished_run_is_all_there(rich: Run) -> None:
    found = page(rich)
    for text in (
        "It works", "finished", rich.id, "Error", "0.0123 m²", "0.0100 to 0.0150", "2SLS",
        "(baseline)", "0.5000", "Weak instruments", "Part one", "Words", "Seen", "0, 7",
        f"corymb rerun {rich.id}", "run.yaml:3", "packages · ray", "Without its plot",
    ):  # fmt: skip
        assert text in found.text, text
    assert found.values("class").count("card") == 1
    assert found.tags.count("svg") == 2
    assert "This run is" not in found.text


def test_labels_cannot_become_markup(rich: Run) -> None:
    html = report.write(rich.path).read_text(encoding="utf-8")
    found = Page(html)
    assert "script" not in found.tags
    assert "<script" not in html
    assert found.text.count(EVIL) >= 12  # shown as it was written
    assert not [name for name, _ in found.attributes if name.startswith("on")]


def test_an_error_text_cannot_become_markup(tmp_path: Path) -> None:
    with pytest.raises(ValueError), open_run(tmp_path) as run:
        raise ValueError(EVIL)
    found = page(run)
    assert "script" not in found.tags
    assert EVIL in found.text


def test_the_page_needs_nothing_else(rich: Run) -> None:
    html = report.write(rich.path).read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    found = Page(html)
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(found.tags)
    references = [*found.values("href"), *found.values("xlink:href"), *found.values("src")]
    assert references
    assert all(reference.startswith("#") for reference in references)
    assert "@import" not in html
    assert all(inner.startswith("#") for inner in re.findall(r"url\(([^)]*)\)", html))


def test_ids_of_plots_do_not_meet_and_all_references_are_met(rich: Run) -> None:
    html = report.write(rich.path).read_text(encoding="utf-8")
    found = Page(html)
    ids = found.values("id")
    assert len(ids) > 20
    assert len(ids) == len(set(ids))
    references = {r[1:] for r in [*found.values("href"), *found.values("xlink:href")]}
    references |= set(re.findall(r"url\(#([^)]*)\)", html))
    assert references
    assert references <= set(ids)


def test_inlined_plots_are_well_formed(rich: Run) -> None:
    html = report.write(rich.path).read_text(encoding="utf-8")
    drawings = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(drawings) == 2
    for drawing in drawings:
        ET.fromstring(drawing)
    assert "<?xml" not in html
    assert html.count("<!doctype html>") == 1


def test_every_tag_is_closed(rich: Run) -> None:
    html = report.write(rich.path).read_text(encoding="utf-8")
    for tag in ("div", "p", "table", "tr", "td", "section", "figure", "details", "main"):
        assert len(re.findall(rf"<{tag}[ >]", html)) == html.count(f"</{tag}>"), tag


def test_writing_again_gives_the_same_page(rich: Run) -> None:
    first = report.write(rich.path).read_bytes()
    assert report.write(rich.path).read_bytes() == first


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("walked into a wall"), "failed"), (InterruptedRunError("Stopped"), "interrupted")],
)
def test_runs_that_did_not_finish(tmp_path: Path, error: Exception, status: str) -> None:
    with pytest.raises(type(error)), open_run(tmp_path) as run:
        raise error
    found = page(run)
    assert f"This run is {status}." in found.text
    assert str(error) in found.text
    assert "All figures" not in found.text
    assert "recipe: toy" in found.text


def test_a_running_run(tmp_path: Path) -> None:
    with open_run(tmp_path) as run:
        assert "This run is running." in page(run).text
        run.close(Result({}, {}, [0]))


def test_a_killed_run_does_not_count_as_running(tmp_path: Path) -> None:
    process = child(
        "run = Run.open(recipe='toy', config_yaml='', origins={}, output=path)", tmp_path
    )
    kill(process)
    (path,) = tmp_path.iterdir()
    found = Page(report.write(path).read_text())
    assert "This run is interrupted." in found.text
    assert "without a word" in found.text
    assert read_record(path)["status"] == "running"  # a report changes nothing else


def test_a_machine_about_which_little_is_known(tmp_path: Path) -> None:
    run = finished(tmp_path, Result({}, {}, [0]))
    known: dict[str, Any] = {
        "git": None,
        "memory_gb": None,
        "gpus": ["H100", "A100"],
        "packages": {},
    }
    write_json(run.path / "environment.json", known)
    assert "H100, A100" in page(run).text
    (run.path / "environment.json").unlink()
    (run.path / "origins.json").unlink()
    assert run.id in page(run).text


def test_values_that_are_missing(tmp_path: Path) -> None:
    figures = {"nan": Figure(float("nan")), "half": Figure(1.0, 0.5, None)}
    run = finished(tmp_path, Result(figures, {"inf": Figure(float("inf"))}, [0]))
    assert json.loads((run.path / "result.json").read_text())["figures"]["nan"]["value"] is None
    assert "n/a" in page(run).text
    stored = report.read_result(run.path)
    assert stored is not None
    assert stored.figures["nan"].value != stored.figures["nan"].value


def test_without_a_headline_the_first_figures_are_shown(tmp_path: Path) -> None:
    run = finished(tmp_path, Result({f"f{i}": Figure(float(i)) for i in range(6)}, {}, [0]))
    assert page(run).values("class").count("card") == 4


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run directory"):
        report.write(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0000"), (1.0, "1.0000"), (-0.12345, "-0.1235"), (12.345, "12.35"),
        (999.0, "999.00"), (123456.0, "1.23e+05"), (0.001234, "0.00123"), (1.5e-7, "1.5e-07"),
        (None, "n/a"), (float("nan"), "n/a"),
    ],
)  # fmt: skip
def test_format_number(number: float | None, text: str) -> None:
    assert report.format_number(number) == text


def test_format_figure_and_interval() -> None:
    assert report.format_figure(Figure(2.5, unit="m")) == "2.5000 m"
    assert report.format_interval(Figure(2.5, 2.0, 3.0)) == "2.0000 to 3.0000"
    assert report.format_interval(Figure(2.5)) == ""


# Plots


def test_plots_come_out_the_same_each_time(tmp_path: Path) -> None:
    x = np.linspace(0, 1, 5)
    for name in ("a", "b"):
        curves = [plots.Line("ours", x, x + 1, x, x + 2), plots.Line("truth", x, x, reference=True)]
        plots.lines(tmp_path / f"{name}.svg", curves, "x", "y", log=True, ylim=(0.1, 10))
        rows = [plots.Interval("one", 1, 0, 2), plots.Interval("all", 1, 0.5, 1.5, emphasis=True)]
        plots.forest(tmp_path / f"{name}-f.svg", rows, "effect", reference=0.0, xlim=(-1, 3))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a-f.svg").read_bytes() == (tmp_path / "b-f.svg").read_bytes()
    text = (tmp_path / "a.svg").read_text()
    assert ">truth</text>" in text  # words stay words
    assert "<dc:date>" not in text


def test_plots_leave_matplotlib_as_it_was(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plots.forest(tmp_path / "f.svg", [plots.Interval("one", 1, 0, 2)], "effect")
    assert dict(mpl.rcParams) == before
