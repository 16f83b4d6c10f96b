"""Image scenarios on scikit-learn's digits: test MSE in units of Var(y), beside direct regression.

abs behind images of the treatment (digits_x), of the instrument (digits_z) and of both
(digits_xz), as in the authors' code, 20,000 rows, 10 clients with Dirichlet 0.3 in their sizes,
against one client that holds everything. `features` is the closed form on what networks learnt;
`fedsgda` is FedGDA with minibatches, optimistic Adam at the clients, and convolutional players,
with step sizes chosen on seed 0. The paper has no digits: its figures on FEMNIST (Table 1: best
centralised, FedGDA, FedSGDA) stand beside ours as what was published for the same functions.

    python -m benchmarks.fedgmm_digits            # about 25 minutes of CPU
    python -m benchmarks.fedgmm_digits --quick    # under a minute
"""

import argparse
import tempfile
from dataclasses import dataclass

from benchmarks.cells import Measured, errors_of, run_all
from benchmarks.evidence import Claim, keep, print_claims
from cluster.config import load
from cluster.execute import start

SEEDS = (10, 11, 12)

PAPER = {"x": (0.40, 0.21, 0.19), "xz": (0.14, 0.19, 0.20), "z": (0.10, 0.24, 0.23)}
"""FEMNIST in Table 1 of arXiv 2505.21012: best centralised, FedGDA, FedSGDA."""

STEPS = {"x": (0.0001, 0.005), "z": (0.002, 0.01), "xz": (0.002, 0.01)}
"""lr_g and lr_f of the game."""

GAME_ROUNDS = 60


@dataclass(frozen=True)
class Cell:
    """One run of the recipe."""

    images: str
    clients: int
    seeds: tuple[int, ...]
    quick: bool

    def sets(self, output: str) -> list[str]:
        """The run's settings as `--set` arguments."""
        lr_g, lr_f = STEPS[self.images]
        rounds = 2 if self.quick else GAME_ROUNDS
        few = ["images.rounds=4"] if self.quick else []
        return [
            f"data.source=images_{self.images}", f"data.rows={4000 if self.quick else 20000}",
            f"partition.clients={self.clients}", f"seeds=[{','.join(map(str, self.seeds))}]",
            f"games.fedoadam.rounds={rounds}", f"games.fedoadam.lr_g={lr_g}",
            f"games.fedoadam.lr_f={lr_f}", "engine=in_process", f"output={output}", *few,
        ]  # fmt: skip


def measure(cell: Cell) -> tuple[Cell, Measured]:
    """Run one cell and return its errors by estimator."""
    with tempfile.TemporaryDirectory() as output:
        loaded = load(None, recipe="fedgmm", preset="images", sets=cell.sets(output))
        return cell, errors_of(start(loaded).result)


def cells(quick: bool) -> list[Cell]:
    """All cells, the longest first."""
    if quick:
        return [Cell("z", 10, (10,), True)]
    return [Cell(i, n, SEEDS, False) for n in (10, 1) for i in ("xz", "x", "z")]


def claims(measured: dict[Cell, Measured]) -> list[Claim]:
    """The federated closed form against the best that was published, and against regression."""
    found = []
    for cell, errors in measured.items():
        if cell.clients == 1:
            continue
        alone = next(
            (e for c, e in measured.items() if c.images == cell.images and c.clients == 1), None
        )
        central, fedgda, fedsgda = PAPER[cell.images]
        beside = {
            "direct": errors["direct"].value,
            "fedgda_ours": errors["fedoadam"].value if "fedoadam" in errors else float("nan"),
            "paper_femnist_best_centralised": central,
            "paper_femnist_fedgda": fedgda,
            "paper_femnist_fedsgda": fedsgda,
        }
        if "floor" in errors:
            beside["floor"] = errors["floor"].value
        if alone is not None:
            beside["centralised"] = alone["features"].value
        f = errors["features"]
        name, best = f"digits_{cell.images}", min(PAPER[cell.images])
        found.append(Claim(f"mse.{name}", f.value, best, "lower", beside, f.low, f.high))
        ratio = f.value / errors["direct"].value
        found.append(Claim(f"ratio_to_direct.{name}", ratio, 1.0, "lower", beside))
    return found


def table(measured: dict[Cell, Measured]) -> list[dict[str, object]]:
    """One row a cell and estimator, as it is written to the results file."""
    return [
        {
            "images": c.images, "clients": c.clients, "estimator": name, "mse": f.value,
            "low": f.low, "high": f.high, "n": f.n,
        }
        for c, errors in measured.items()
        for name, f in errors.items()
    ]  # fmt: skip


def print_table(measured: dict[Cell, Measured]) -> None:
    """A block a cell, the smallest error first."""
    for cell, errors in measured.items():
        print(f"\ndigits_{cell.images}, {cell.clients} client{'s' if cell.clients > 1 else ''}")
        for name, f in sorted(errors.items(), key=lambda kv: kv[1].value):
            interval = "" if f.low is None else f"  ({f.low:.4f} to {f.high:.4f})"
            print(f"  {name:16} {f.value:.4f}{interval}")


def main() -> None:
    """Measure, keep what is measured after each cell, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one small cell, under a minute")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    measured: dict[Cell, Measured] = {}
    todo = cells(arguments.quick)
    for measured in run_all(measure, todo, arguments.processes):
        keep("fedgmm_digits", claims(measured), todo[0].seeds, table(measured),
             quick=arguments.quick)  # fmt: skip
    print_table(measured)
    print()
    print_claims(claims(measured))


if __name__ == "__main__":
    main()
