"""Every figure in docs/fedgmm.md is one that the committed benchmark measured."""

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "fedgmm_accuracy.json").read_text())
PAGE = (ROOT / "docs" / "fedgmm.md").read_text()


def measured(scenario: str, process: str, skew: str, clients: int) -> dict[str, str]:
    """Errors of one cell by estimator, rounded as the page rounds them."""
    return {
        row["estimator"]: f"{row['mse']:.4f}" if row["mse"] >= 0.001 else f"{row['mse']:.5f}"
        for row in RESULTS["table"]
        if (row["scenario"], row["process"], row["skew"], row["clients"])
        == (scenario, process, skew, clients)
    }


def rows_of(header: str) -> list[list[str]]:
    """Cells of the table that starts with this header."""
    text = PAGE[PAGE.index(header) :]
    lines = text[: text.index("\n\n")].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


COLUMNS = (
    "control", "neural", "sieve", "fedoadam", "fedsgda", "fedgda", "direct",
    "pooled_polynomial_2sls", "average_of_local",
)  # fmt: skip


def test_federated_table() -> None:
    rows = rows_of("| g0, process | `control` | `neural`")
    assert len(rows) == 8
    for where, *cells in rows:
        scenario, process = where.split(", ")
        found = measured(scenario, process, "quantity", 10)
        assert cells == [found[name] for name in COLUMNS]


def test_centralised_table() -> None:
    for where, *cells in rows_of("| g0, process | centralised GDA"):
        scenario, process = where.split(", ")
        found = measured(scenario, process, "quantity", 1)
        assert cells[:3] == [found.get(n, "") for n in ("fedgda", "fedsgda", "fedoadam")]


def test_skew_table() -> None:
    for where, skew, *cells in rows_of("| g0, process | skew on"):
        scenario, process = where.split(", ")
        found = measured(scenario, process, skew, 10)
        names = ("control", "sieve", "fedoadam", "fedsgda", "average_of_local")
        assert cells == [found[name] for name in names]


def test_command_seeds_and_commit_are_named() -> None:
    assert f"`{RESULTS['command']}`" in PAGE
    assert RESULTS["commit"]["commit"][:9] in PAGE
    assert f"seeds {RESULTS['seed'][0]} to {RESULTS['seed'][-1]}" in PAGE


@pytest.mark.parametrize("claim", RESULTS["claims"], ids=lambda c: c["name"])
def test_claims_are_judged_by_their_own_numbers(claim: dict[str, Any]) -> None:
    assert claim["holds"] == (claim["value"] <= claim["goal"])


def test_readme_quotes_the_claims() -> None:
    readme = (ROOT / "README.md").read_text()
    for name in ("mse.abs", "mse.step", "mse.linear"):
        (value,) = [c["value"] for c in RESULTS["claims"] if c["name"] == name]
        assert re.search(rf"{name.split('.')[1]} {value:.2g}\b", readme), (name, value)


PRIVATE = json.loads((ROOT / "benchmarks" / "results" / "fedgmm_privacy.json").read_text())


def shown(value: float) -> str:
    """As the page rounds errors."""
    return f"{value:.4f}" if value >= 0.001 else f"{value:.5f}"


def test_privacy_tables() -> None:
    rows = rows_of("| g0, epsilon | private")
    assert len(rows) == 15
    for where, private, *cells in rows:
        found = {
            r["estimator"]: r
            for r in PRIVATE["table"]["curves"]
            if f"{r['scenario']}, {r['epsilon']}" == where
        }
        ends = [shown(found["private"][k]) for k in ("mse", "low", "high")]
        assert private == f"{ends[0]} ({ends[1]} to {ends[2]})"
        names = ("without_noise", "sieve", "direct", "pooled_2sls")
        assert cells == [shown(found[name]["mse"]) for name in names]
    rows = rows_of("| data, epsilon | private linear form")
    assert len(rows) == 8
    for where, *cells in rows:
        found = {
            r["estimator"]: r
            for r in PRIVATE["table"]["coefficients"]
            if f"{r['data']}, {r['epsilon']}" == where
        }
        assert cells[:2] == [shown(found[name]["rmse"]) for name in ("private", "dp_2s_gd")]
        assert cells[2] == shown(abs(found["private"]["target"]))


def test_privacy_command_and_commit_are_named() -> None:
    part = PAGE[PAGE.index("### What it costs") :]
    assert f"`{PRIVATE['command']}`" in part
    assert PRIVATE["commit"]["commit"][:9] in part
    assert f"seeds {PRIVATE['seed'][0]} to {PRIVATE['seed'][-1]}" in part


@pytest.mark.parametrize("claim", PRIVATE["claims"], ids=lambda c: c["name"])
def test_privacy_claims_are_judged_by_their_own_numbers(claim: dict[str, Any]) -> None:
    assert claim["holds"] == (claim["value"] <= claim["goal"])


DIGITS = json.loads((ROOT / "benchmarks" / "results" / "fedgmm_digits.json").read_text())


def test_image_table() -> None:
    rows = rows_of("| images, clients | `features`")
    assert len(rows) == 6
    for where, features, *cells in rows:
        found = {
            r["estimator"]: r for r in DIGITS["table"] if f"{r['images']}, {r['clients']}" == where
        }
        ends = [shown(found["features"][k]) for k in ("mse", "low", "high")]
        assert features == f"{ends[0]} ({ends[1]} to {ends[2]})"
        names = ("fedoadam", "direct", "direct_network", "floor")
        assert cells == [shown(found[n]["mse"]) if n in found else "" for n in names]
    part = PAGE[PAGE.index("## Images") :]
    assert f"`{DIGITS['command']}`" in part
    assert DIGITS["commit"]["commit"][:9] in part


ROUNDS = json.loads((ROOT / "benchmarks" / "results" / "federated_rounds.json").read_text())


def test_tables_of_simulated_rounds() -> None:
    page = (ROOT / "docs" / "federated.md").read_text()
    assert f"`{ROUNDS['command']}`" in page
    assert ROUNDS["commit"]["commit"][:9] in page
    table = ROUNDS["table"]
    for clients in (10, 100, 1000):
        grid, stock, here = (table[f"{e}.{clients}"] for e in ("grid", "stock", "in_process"))
        assert (
            f"| {clients} | {grid['seconds']:.4f} ({grid['cpu_seconds']:.4f}) | "
            f"{stock['seconds']:.4f} ({stock['cpu_seconds']:.4f}) | "
            f"{stock['seconds'] / grid['seconds']:.1f} | {here['seconds']:.4f} |"
        ) in page
    for batch in ("16", "64", "all"):
        cohort = table[f"cohort.100.batch_{batch}"]
        ratio = cohort["stacked"] / cohort["alone"]
        line = f"| {batch} | {cohort['stacked']:.0f} | {cohort['alone']:.0f} | {ratio:.1f} |"
        assert line in page


PEERS = json.loads((ROOT / "benchmarks" / "results" / "federated_peers.json").read_text())
FRAMEWORKS = {
    "bare": "a plain loop, no framework",
    "corymb": "corymb, Grid on Ray 0.1.0",
    "flower": "Flower's engine 1.42.0",
    "pfl": "pfl 0.6.0",
    "nvflare": "nvflare 2.9.0",
}


def test_table_of_other_frameworks() -> None:
    page = (ROOT / "docs" / "federated.md").read_text()
    assert f"`{PEERS['command']}`" in page
    assert PEERS["commit"]["commit"][:9] in page
    keys = ("seconds_per_round", "cpu_seconds_per_round", "startup_seconds")
    for clients, peer in {(r["clients"], r["peer"]) for r in PEERS["table"]}:
        own = [r for r in PEERS["table"] if (r["clients"], r["peer"]) == (clients, peer)]
        wall, cpu, start = (fmean(r[key] for r in own) for key in keys)
        line = f"| {clients} | {FRAMEWORKS[peer]} | {wall:.3f} | {cpu:.3f} | {start:.1f} |"
        assert line in page


SPEED = json.loads((ROOT / "benchmarks" / "results" / "env_speed.json").read_text())


def test_speed_of_the_plants() -> None:
    page = (ROOT / "docs" / "control.md").read_text()
    part = page[page.index("## The two plants") : page.index("## Experts")]
    rates = {row["name"]: row for row in SPEED["table"]}
    for start, name in (
        ("1024 reactors in a vector environment take", "cstr.vector_1024"),
        ("1024 bioreactors", "bioreactor.vector_1024"),
        ("one reactor takes", "cstr.single"),
    ):
        mean, low, high = (f"{rates[name][key] / 1e6:#.3g}" for key in ("mean", "low", "high"))
        assert re.search(rf"{start} {mean} million[^(]*\({low} to {high}\)", part), name
        assert rates[name]["windows"] == 7
    (ratio,) = [c for c in SPEED["claims"] if c["name"] == "ratio_to_pcgym.single"]
    mean, low, high = (f"{ratio[key]:.0f}" for key in ("value", "low", "high"))
    assert f"That is {mean} times as many ({low} to {high})" in part
    assert f"`{SPEED['command']}`" in part
    assert f"`{SPEED['commit']['commit'][:7]}`; means of 7 windows" in part


COMMITTED = [*DIGITS["claims"], *ROUNDS["claims"], *PEERS["claims"], *SPEED["claims"]]


@pytest.mark.parametrize("claim", COMMITTED, ids=lambda c: c["name"])
def test_other_claims_are_judged_by_their_own_numbers(claim: dict[str, Any]) -> None:
    lower = claim["better"] == "lower"
    reached = claim["value"] <= claim["goal"] if lower else claim["value"] >= claim["goal"]
    assert claim["holds"] == reached


def test_control_table() -> None:
    """Rows of the page stand in the order of these claims."""
    order = (
        "expert_ratio_to_bound.90", "expert_ratio_to_bound.86", "bioreactor.ratio_to_optimum.k05",
        "bioreactor.ratio_to_optimum.k07", "iae_ratio_to_pi.90", "iae_ratio_to_pi.86", "offset.90",
        "offset.86", "mode_accuracy_20", "bioreactor.clone_ratio_to_expert.k05",
        "bioreactor.clone_ratio_to_expert.k07",
    )  # fmt: skip
    kept = json.loads((ROOT / "benchmarks" / "results" / "irl_quality.json").read_text())
    claims = {claim["name"]: claim for claim in kept["claims"]}
    page = (ROOT / "docs" / "control.md").read_text()
    text = page[page.index("| figure | mean of five seeds") :]
    rows = [line.split(" | ") for line in text[: text.index("\n\n")].splitlines()[2:]]
    assert len(rows) == len(order)
    for name, (_, mean, ends, _, verdict) in zip(order, rows, strict=True):
        claim = claims[name]
        assert mean == f"{claim['beside']['mean']:.3f}"
        assert ends == f"{claim['low']:.3f} to {claim['high']:.3f}"
        assert verdict.startswith("holds" if claim["holds"] else "missed")
