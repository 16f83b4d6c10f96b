"""One shape of evidence: what a run found, as numbers with intervals, tables and plots.

A recipe returns a `Result`; the run directory stores it as `result.json`; reports, comparisons and
benchmarks read that file and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Figure:
    """A measured number.

    Attributes
    ----------
    value : float
        The estimate (a mean over seeds, or one estimate).
    low, high : float or None
        Ends of its 95 % interval; None where no interval exists.
    n : int
        What the interval rests on: number of seeds, or of rows.
    unit : str
        Unit of `value` (empty for a pure number).
    label : str
        What a person calls it; the report falls back on the figure's name.
    better : str
        "lower", "higher", or empty where neither is better.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 1
    unit: str = ""
    label: str = ""
    better: str = ""


def interval(
    values: "Sequence[float] | NDArray[Any]",
) -> tuple[float, float | None, float | None]:
    """Mean of independent values (n,) and the ends of its 95 % interval (Student's t).

    A single value has no ends.
    """
    import numpy as np
    from scipy import stats  # on use: whoever only reads evidence waits for neither

    x = np.asarray(values, np.float64)
    mean = float(x.mean())
    if len(x) < 2:
        return mean, None, None
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(x) - 1) * x.std(ddof=1) / len(x) ** 0.5)
    return mean, mean - half, mean + half


@dataclass(frozen=True)
class Table:
    """A table of text cells for the report and, unless its cells are prose, the terminal."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    prose: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the report: text paragraphs, then a table, then a plot.

    `svg` is the path of a plot inside the run directory, for instance ``plots/curve.svg``.
    """

    title: str
    text: tuple[str, ...] = ()
    table: Table | None = None
    svg: str | None = None
    caption: str = ""


@dataclass
class Result:
    """What a recipe hands back.

    `figures` and `baselines` have the same form, so that each method stands beside what a user
    would otherwise pick. `headline` names the figures shown first. `warnings` are findings that a
    reader must know before believing the figures (weak instruments, few clients).
    """

    figures: dict[str, Figure]
    baselines: dict[str, Figure]
    seeds: list[int]
    headline: list[str] = field(default_factory=list)
    summary: str = ""
    warnings: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the plain form written to `result.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Result":
        """Read the plain form back; raises KeyError or TypeError if it is not one."""
        fields = dict(data)
        fields["figures"] = {k: Figure(**v) for k, v in data["figures"].items()}
        fields["baselines"] = {k: Figure(**v) for k, v in data["baselines"].items()}
        fields["sections"] = [_section(s) for s in data["sections"]]
        return cls(**fields)


def _section(data: Mapping[str, Any]) -> Section:
    table = data["table"]
    if table is not None:
        rows = tuple(tuple(row) for row in table["rows"])
        table = Table(tuple(table["columns"]), rows, table.get("prose", False))
    return Section(data["title"], tuple(data["text"]), table, data["svg"], data["caption"])
