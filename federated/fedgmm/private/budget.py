"""The report's parts on a privacy budget: what it bought, and what it does not protect."""

import math
from collections.abc import Sequence

from cluster.evidence import Section, Table
from cluster.report import format_number
from federated.fedgmm.config import Config
from federated.fedgmm.private.analyse import PrivateFindings

Row = tuple[str, str]


def budget_section(found: Sequence[PrivateFindings]) -> Section:
    """Each release with its noise, and the epsilon of its study by both accountings."""
    rows = []
    for f in found:
        ledger = f.released.ledger
        rows += [
            (f.study.name, r.name, format_number(r.sensitivity), format_number(r.sigma),
             _number(r.rho), _number(ledger.exact_epsilon), _number(ledger.zcdp_epsilon))
            for r in ledger.releases
        ]  # fmt: skip
    ledger, design = found[0].released.ledger, found[0].design
    entries = design.dimension * (design.dimension + 1) // 2
    text = [
        f"One release a study: the sum of v v' over its rows, {entries} numbers, where v holds the "
        f"{design.dimension} bounded columns of a row and is no longer than R = "
        f"{design.radius:.3f}. Replacing a row moves it by at most sqrt(2) R^2, the sensitivity. "
        "Sigma is the standard deviation of the noise on each number. Everything else in the "
        "private estimate is computed from that release and costs nothing.",
    ]
    if math.isinf(ledger.epsilon):
        text.append("Epsilon is infinite: there is no noise, and nothing is promised of the total.")
    elif found[0].released.quorum:
        quorum, clients = found[0].released.quorum, len(found[0].released.members)
        text.append(
            f"Each of {clients} clients adds a share of the noise such that {quorum} shares keep "
            f"epsilon {ledger.epsilon:g} at delta {ledger.delta:g}. The noise is discrete: for it "
            "the figure by zCDP is proven, the exact one holds up to the fineness of its grid."
        )
    columns = ("Study", "Release", "Sensitivity", "Sigma", "Rho (zCDP)",
               f"Epsilon at delta {ledger.delta:g}, exact", "Epsilon, by zCDP")  # fmt: skip
    return Section("What the budget was spent on", tuple(text), Table(columns, tuple(rows)))


def protection_section(config: Config, found: Sequence[PrivateFindings]) -> Section:
    """What a reader may and may not rely on, line by line."""
    ledger = found[0].released.ledger
    noisy = math.isfinite(ledger.epsilon)
    secure = bool(found[0].released.quorum)
    rows: list[Row] = [
        ("The values of one row", _row_promise(noisy, ledger.epsilon, ledger.delta)),
        ("All rows of one person or client together",
         "not as a whole: the promise is for one row; k rows together get k times epsilon and "
         "a larger delta"),
        ("Numbers of rows, in all and of each client", "public"),
        ("Bounds of the columns",
         "public. The scale of y and of all other columns comes from them and not from the rows, "
         "so standardising costs nothing. Bounds that were read off the rows would leak"),
        ("Each client's sums", _server(secure)),
        *([("Random seeds", _SEEDS)] if noisy else []),
        ("Further analyses of the same rows",
         "every run, seed and choice of columns spends a budget of its own; their rho add up"),
        ("Baselines in this report", _baselines(config, found)),
        ("The run directory",
         "not protected: a simulation deals the rows into clients/; `corymb clean` removes them"),
    ]  # fmt: skip
    text = (
        "This is a simulation of clients on one machine. The promises below are those of the "
        "messages between clients and server, and of the private estimate.",
    )
    return Section(
        "What is and is not protected", text, Table(("What", "Protection"), tuple(rows), True)
    )


_SEEDS = (
    "not secret here: the noise comes from the run's seed, so that the run repeats to the digit, "
    "and whoever knows the seed can take it off. A real deployment draws it from a secret source"
)


def _row_promise(noisy: bool, epsilon: float, delta: float) -> str:
    if not noisy:
        return "none once the total is known: there is no noise (epsilon is infinite)"
    return (
        f"({epsilon:g}, {delta:g})-differential privacy under substitution: replacing one row by "
        "any other changes the probability of every outcome by at most a factor e^epsilon, plus "
        "delta"
    )


def _server(secure: bool) -> str:
    if not secure:
        return (
            "not protected from the server, which is trusted: it sees every client's exact sums "
            "and adds the noise itself. `privacy.secure: true` hides them from it"
        )
    return (
        "masked: a server that keeps to the protocol sees their total alone. Not protected from "
        "one that hands out keys of its own, for keys are not authenticated here, nor from all "
        "other clients together"
    )


def _baselines(config: Config, found: Sequence[PrivateFindings]) -> str:
    secret = any(f.study.dataset.truth is None for f in found) and config.data.source == "file"
    if secret:
        return "left out for the rows of the file, since they would read them without protection"
    return (
        "not protected: they read the rows directly, and DP-2S-GD spends as much again. They exist "
        "because the rows are synthetic or published"
    )


def _number(value: float) -> str:
    return "infinite" if math.isinf(value) else format_number(value)
