"""Runs side by side: their figures, the differences, and what was configured differently."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import yamltext
from cluster.errors import UsageError
from cluster.evidence import Figure
from cluster.report import format_figure, format_interval, format_number, read_result
from cluster.show import aligned


@dataclass(frozen=True)
class Comparison:
    """Figures of several runs by name, and the configuration keys in which they differ."""

    runs: tuple[str, ...]
    figures: Mapping[str, tuple[Figure | None, ...]]
    config: Mapping[str, tuple[Any, ...]]

    def rows(self) -> list[tuple[str, ...]]:
        """One row a figure: its value in each run, and the difference of the last two shown."""
        rows = []
        for name, figures in self.figures.items():
            cells = [_cell(f) for f in figures]
            rows.append((name, *cells, difference(figures[0], figures[-1])))
        return rows

    def columns(self) -> tuple[str, ...]:
        """Headings of `rows`."""
        return ("figure", *self.runs, "last minus first")

    def to_text(self) -> str:
        """Aligned text for a terminal."""
        lines = aligned(self.columns(), tuple(self.rows()))
        if self.config:
            lines += ["", "configuration that differs"]
            config = [(k, *(str(v) for v in values)) for k, values in self.config.items()]
            lines += aligned(("key", *self.runs), tuple(config))
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """Markdown tables."""
        tables = [_markdown(self.columns(), self.rows())]
        if self.config:
            config = [(k, *(str(v) for v in values)) for k, values in self.config.items()]
            tables.append(_markdown(("key", *self.runs), config))
        return "\n\n".join(tables)

    def to_json(self) -> dict[str, Any]:
        """Plain form."""
        figures = {
            name: [None if f is None else vars(f) for f in found]
            for name, found in self.figures.items()
        }
        return {"runs": self.runs, "figures": figures, "config": dict(self.config)}


def compare(paths: Sequence[Path]) -> Comparison:
    """Read the results of runs; raises UsageError for one that has none."""
    found = []
    for path in paths:
        result = read_result(path)
        if result is None:
            raise UsageError(f"{path.name} has no result to compare; resume it first")
        found.append(
            {**result.figures, **{f"{k} (baseline)": v for k, v in result.baselines.items()}}
        )
    names = list(dict.fromkeys(name for figures in found for name in figures))
    configs = [_flat(yamltext.parse((p / "config.yaml").read_text(), p.name).data) for p in paths]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    values = {key: tuple(c.get(key) for c in configs) for key in keys}
    differing = {k: v for k, v in values.items() if len({str(value) for value in v}) > 1}
    return Comparison(
        tuple(p.name for p in paths),
        {name: tuple(figures.get(name) for figures in found) for name in names},
        differing,
    )


def difference(first: Figure | None, last: Figure | None) -> str:
    """Difference with its interval, taking the two estimates as independent.

    The intervals' half-widths add as squares, which is exact for independent normal estimates.
    """
    if first is None or last is None:
        return ""
    change = format_number(last.value - first.value)
    if None in (first.low, first.high, last.low, last.high):
        return change
    halves = [
        (f.high - f.low) / 2 for f in (first, last) if f.high is not None and f.low is not None
    ]
    half = sum(h * h for h in halves) ** 0.5
    delta = last.value - first.value
    return f"{change} ({format_number(delta - half)} to {format_number(delta + half)})"


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    interval = format_interval(figure)
    return format_figure(figure) + (f" ({interval})" if interval else "")


def _flat(data: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(data, dict):
        return {path: data}
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= _flat(value, f"{path}.{key}" if path else str(key))
    return found


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in cells)])
