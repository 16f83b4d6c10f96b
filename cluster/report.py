"""report.html: one self-contained file made from what is in the run directory, nothing else."""

import json
import re
from pathlib import Path
from typing import Any

from cluster.evidence import Figure, Result
from cluster.files import write_text
from cluster.run import read_record

TEMPLATE = "report.html.j2"


def write(path: Path) -> Path:
    """Render the report of a run, finished or not, and return its path.

    Raises UsageError if `path` is not a run directory.
    """
    record = read_record(path)
    result = read_result(path)
    html = _template().render(
        record=record,
        result=result,
        headline=[] if result is None else _headline(result),
        sections=[] if result is None else _sections(path, result),
        config=_text(path / "config.yaml"),
        origins=_json(path / "origins.json"),
        environment=_json(path / "environment.json"),
        format_figure=format_figure,
        format_number=format_number,
        format_interval=format_interval,
    )
    target = path / "report.html"
    write_text(target, html)
    return target


def read_result(path: Path) -> Result | None:
    """The result stored in a run directory, or None if the run has none yet."""
    data = _json(path / "result.json")
    return Result.from_json(_restore(data)) if data else None


def format_figure(figure: Figure) -> str:
    """Value with as many digits as mean something, and its unit."""
    unit = f" {figure.unit}" if figure.unit else ""
    return format_number(figure.value) + unit


def format_interval(figure: Figure) -> str:
    """The 95 % interval, or nothing where there is none."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{format_number(figure.low)} to {format_number(figure.high)}"


def format_number(value: float | None) -> str:
    """Four decimals for ordinary numbers, three significant digits for small and large ones."""
    if value is None or value != value:
        return "n/a"
    size = abs(value)
    if size == 0 or 0.01 <= size < 1000:
        return f"{value:.4f}" if size < 10 else f"{value:.2f}"
    return f"{value:.5f}" if 0.0001 <= size < 0.01 else f"{value:.3g}"


def _restore(data: dict[str, Any]) -> dict[str, Any]:
    """Turn the nulls that JSON has for missing values back into NaN."""
    for group in ("figures", "baselines"):
        for figure in data[group].values():
            if figure["value"] is None:
                figure["value"] = float("nan")
    return data


def _headline(result: Result) -> list[tuple[str, Figure]]:
    names = result.headline or list(result.figures)[:4]
    return [(name, result.figures[name]) for name in names if name in result.figures]


def _sections(path: Path, result: Result) -> list[dict[str, Any]]:
    return [
        {"section": s, "svg": _inline_svg(path / s.svg, f"p{i}-") if s.svg else None}
        for i, s in enumerate(result.sections)
    ]


def _inline_svg(path: Path, prefix: str) -> str | None:
    """The SVG element alone, with ids that do not meet those of other plots in the page."""
    text = _text(path)
    start = text.find("<svg")
    if start < 0:
        return None
    text = re.sub(r"<metadata>.*?</metadata>", "", text[start:], flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r"url\(#", f"url(#{prefix}", text)
    return re.sub(r'href="#', f'href="#{prefix}', text)


def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _json(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(_text(path) or "{}")
    return data
