"""Plots in one style, as SVG files that come out the same each time. matplotlib loads on use."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4d4d4d")
"""Okabe and Ito's colours, told apart by colour-blind readers too."""

TRUTH = "#1c2430"

GREY = "#8a94a1"

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "corymb",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a94a1",
    "axes.labelcolor": "#3a4350",
    "xtick.color": "#5b6675",
    "ytick.color": "#5b6675",
    "axes.grid": True,
    "grid.color": "#e6eaef",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.9,
}


@dataclass(frozen=True)
class Line:
    """A curve, optionally with a band, drawn solid, or dashed as a reference.

    Without a `colour` it gets the next one of the palette.
    """

    label: str
    x: "np.ndarray"
    y: "np.ndarray"
    low: "np.ndarray | None" = None
    high: "np.ndarray | None" = None
    reference: bool = False
    colour: str = ""


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, one row of a forest plot."""

    label: str
    value: float
    low: float
    high: float
    emphasis: bool = False


@contextlib.contextmanager
def drawing(path: Path, width: float = 7.6, height: float = 4.1) -> Iterator[Any]:
    """Yield axes in the common style and save them as SVG, without a date."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(rc=STYLE):  # type: ignore[arg-type]  # a plain dict is what it takes
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.set_axisbelow(True)
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None}, transparent=True)


def lines(
    path: Path,
    curves: Sequence[Line],
    xlabel: str,
    ylabel: str,
    *,
    log: bool = False,
    ylim: tuple[float, float] | None = None,
) -> None:
    """Draw curves with their bands; references are dark and dashed."""
    with drawing(path) as axes:
        colours = iter(PALETTE * 3)
        for curve in curves:
            if curve.reference:
                axes.plot(curve.x, curve.y, color=TRUTH, ls=(0, (5, 2)), lw=1.4, label=curve.label)
                continue
            colour = curve.colour or next(colours)
            if curve.low is not None and curve.high is not None:
                axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, lw=0)
            axes.plot(curve.x, curve.y, color=colour, label=curve.label)
        if log:
            axes.set_yscale("log")
        if ylim is not None:
            axes.set_ylim(*ylim)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        columns = 2 if len(curves) > 1 else 1
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.6)


def forest(
    path: Path,
    rows: Sequence[Interval],
    xlabel: str,
    *,
    reference: float | None = None,
    xlim: tuple[float, float] | None = None,
) -> None:
    """Draw estimates with intervals from top to bottom, pooled ones emphasised as diamonds."""
    with drawing(path, height=0.9 + 0.33 * len(rows)) as axes:
        for position, row in enumerate(reversed(rows)):
            colour = PALETTE[1] if row.emphasis else PALETTE[0]
            axes.plot([row.low, row.high], [position, position], color=colour, lw=2)
            axes.plot(row.value, position, "D" if row.emphasis else "o", color=colour, ms=6.5)
        if reference is not None:
            axes.axvline(reference, color=TRUTH, ls=(0, (5, 2)), lw=1)
        if xlim is not None:
            axes.set_xlim(*xlim)
        axes.set_yticks(range(len(rows)), [row.label for row in reversed(rows)])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel(xlabel)
