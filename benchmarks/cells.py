"""Cells of a benchmark, each a run of its own, measured side by side."""

import multiprocessing
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from cluster.evidence import Figure, Result

C = TypeVar("C", bound=Hashable)

Measured = dict[str, Figure]
"""Figures of one cell, by estimator."""


def errors_of(result: Result) -> Measured:
    """The figures `mse.NAME` of a run, baselines among them, by NAME."""
    named = {**result.figures, **result.baselines}
    return {k.removeprefix("mse."): f for k, f in named.items() if k.startswith("mse.")}


def run_all(
    measure: Callable[[C], tuple[C, Measured]], todo: Sequence[C], processes: int
) -> Iterator[dict[C, Measured]]:
    """Measure cells in parallel; yield all that is measured so far, in the order of `todo`."""
    found: dict[C, Measured] = {}
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        for cell, measured in pool.imap_unordered(measure, todo):
            found[cell] = measured
            print(f"{len(found)}/{len(todo)} {cell}", file=sys.stderr)
            yield {c: found[c] for c in todo if c in found}
