"""Runs side by side, as text, Markdown and JSON."""

import json
from pathlib import Path

import pytest

from cluster.compare import compare, difference
from cluster.errors import UsageError
from cluster.evidence import Figure, Result
from cluster.run import Run


def finished(folder: Path, config: str, figures: dict[str, Figure]) -> Path:
    with Run.open(recipe="toy", config_yaml=config, origins={}, output=folder) as run:
        run.close(Result(figures, {"base": Figure(1.0)}, [0]))
    return run.path


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    first = {"mse": Figure(0.5, 0.4, 0.6, 5, "m"), "only first": Figure(2.0)}
    second = {"mse": Figure(0.8, 0.7, 0.9, 5, "m"), "only|second": Figure(float("nan"))}
    return [
        finished(tmp_path, "steps: 3\nstage:\n  rate: 0.1\n  width: 8\nlabel: a|b\n", first),
        finished(tmp_path, "steps: 3\nstage:\n  rate: 0.2\n  width: 8\nmore: 1\n", second),
    ]


def test_figures_differences_and_configuration(paths: list[Path]) -> None:
    found = compare(paths)
    assert found.runs == (paths[0].name, paths[1].name)
    assert list(found.figures) == ["mse", "only first", "base (baseline)", "only|second"]
    assert found.config == {"stage.rate": (0.1, 0.2), "label": ("a|b", None), "more": (None, 1)}
    rows = {row[0]: row[1:] for row in found.rows()}
    half = 0.1 * 2**0.5
    assert rows["mse"] == (
        "0.5000 m (0.4000 to 0.6000)",
        "0.8000 m (0.7000 to 0.9000)",
        f"0.3000 ({0.3 - half:.4f} to {0.3 + half:.4f})",
    )
    assert rows["only first"] == ("2.0000", "", "")
    assert rows["only|second"] == ("", "n/a", "")
    assert rows["base (baseline)"] == ("1.0000", "1.0000", "0.0000")


def test_text_is_aligned(paths: list[Path]) -> None:
    text = compare(paths).to_text()
    table, config = text.split("\n\n")
    heading, *lines = table.splitlines()
    assert heading.split("  ")[0].strip() == "figure"
    end = heading.index(paths[0].name) + len(paths[0].name)
    assert lines[0][:end].endswith("  0.5000 m (0.4000 to 0.6000)")  # right under its heading
    assert config.splitlines()[0] == "configuration that differs"
    assert any(line.split() == ["stage.rate", "0.1", "0.2"] for line in config.splitlines())
    assert "steps" not in config


def test_markdown_has_the_same_number_of_cells_in_each_row(paths: list[Path]) -> None:
    for table in compare(paths).to_markdown().split("\n\n"):
        lines = table.splitlines()
        assert set(lines[1]) == {"|", "-"}
        counts = {line.replace("\\|", "").count("|") for line in lines}
        assert len(counts) == 1
    assert "only\\|second" in compare(paths).to_markdown()
    assert "| label | a\\|b | None |" in compare(paths).to_markdown()


def test_json_is_plain(paths: list[Path]) -> None:
    from cluster.files import finite

    data = json.loads(json.dumps(finite(compare(paths).to_json()), allow_nan=False))
    assert data["runs"] == [p.name for p in paths]
    assert data["figures"]["mse"][1]["value"] == 0.8
    assert data["figures"]["only first"][1] is None
    assert data["figures"]["only|second"][1]["value"] is None
    assert data["config"]["stage.rate"] == [0.1, 0.2]


def test_equal_runs_and_three_runs(tmp_path: Path) -> None:
    made = [finished(tmp_path, "steps: 3\n", {"mse": Figure(float(i))}) for i in (1, 1, 4)]
    assert compare(made[:2]).config == {}
    assert "configuration" not in compare(made[:2]).to_text()
    (row, _) = compare(made).rows()
    assert row == ("mse", "1.0000", "1.0000", "4.0000", "3.0000")  # last minus first


def test_a_run_without_a_result(tmp_path: Path, paths: list[Path]) -> None:
    with (
        pytest.raises(ValueError),
        Run.open(recipe="toy", config_yaml="", origins={}, output=tmp_path) as run,
    ):
        raise ValueError("x")
    with pytest.raises(UsageError, match=f"{run.id} has no result to compare"):
        compare([paths[0], run.path])


def test_difference() -> None:
    assert difference(None, Figure(1.0)) == difference(Figure(1.0), None) == ""
    assert difference(Figure(1.0, 0.0, 2.0), Figure(3.0)) == "2.0000"
    # half-widths 3 and 4 add to 5
    pair = Figure(10.0, 7.0, 13.0), Figure(30.0, 26.0, 34.0)
    assert difference(*pair) == "20.00 (15.00 to 25.00)"
    assert difference(Figure(float("nan")), Figure(1.0)) == "n/a"
