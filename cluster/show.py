"""What a person sees on the terminal once a run has ended, or before it begins."""

import json
import sys
from typing import TYPE_CHECKING

from cluster.files import finite
from cluster.report import format_figure, format_interval, headline

if TYPE_CHECKING:
    from cluster.config import RunConfig
    from cluster.execute import Outcome


def outcome(done: "Outcome", as_json: bool) -> None:
    """Print the result to stdout: figures beside baselines, warnings, the report's path."""
    if as_json:
        print(json.dumps(finite({"run": str(done.path), **done.result.to_json()}), indent=2))
        return
    result = done.result
    print(result.summary)
    print()
    for section in result.sections:
        if section.table is None or section.table.prose:
            continue
        print(section.title)
        _table(section.table.columns, section.table.rows)
        print()
    shown = [
        (figure.label or name, format_figure(figure), format_interval(figure))
        for name, figure in headline(result)
    ]
    _table(("Headline", "Value", "95 % interval"), tuple(shown))
    print()
    for warning in result.warnings:
        print(f"note: {warning}")
    print(f"report: {done.report}")


def plan(config: "RunConfig", as_json: bool) -> None:
    """Print what a run would need and where it would write, without running it."""
    needed = config.plan()
    where = f"{config.output}/<time>-{config.recipe}-<id>"
    if as_json:
        data = {"bundles": list(needed.bundles), "steps": needed.steps, "unit": needed.unit}
        print(json.dumps({**data, "output": where}, indent=2))
        return
    print(f"recipe    {config.recipe}, preset {config.preset}, seeds {list(config.seeds)}")
    for bundle in needed.bundles:
        print("bundle    " + ", ".join(f"{value:g} {name}" for name, value in bundle.items()))
    print(f"length    about {needed.steps} {needed.unit}")
    print(f"output    {where}")


def _table(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> None:
    """A rich table on a terminal, aligned text elsewhere."""
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD)
        for i, column in enumerate(columns):
            table.add_column(column, justify="left" if i == 0 else "right")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    for line in aligned(columns, rows):
        print(line)


def aligned(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> list[str]:
    """The table as lines of text: first column left, others right."""
    widths = [max(len(r[i]) for r in (columns, *rows)) for i in range(len(columns))]
    lines = []
    for row in (columns, *rows):
        cells = [
            row[0].ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
