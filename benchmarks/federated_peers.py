"""Cost of a simulated federated round: our engine, Flower's stock engine, pfl and nvflare.

Every peer gets the same work (`benchmarks/peers/work.py`): a perceptron 1-20-3-1 in float32, FedAvg
over all of 10 or 100 clients with 200 rows each, 10 local steps of SGD on 64 rows. Rounds 2 to the
last are timed, start-up is reported apart; CPU seconds count all processes of a peer. The same work
as a plain loop ("bare") shows what the frameworks add, and gives the loss that each must reach.

Peers run in environments of their own. One that is absent is named and passed over:

    python3.11 -m venv ENVS/pfl && ENVS/pfl/bin/pip install torch==2.13.0 psutil pfl==0.6.0
    python3.11 -m venv ENVS/nvflare && ENVS/nvflare/bin/pip install torch==2.13.0 psutil nvflare==2.9.0

    python -m benchmarks.federated_peers --envs ENVS            # about 40 minutes, of nvflare 30
    python -m benchmarks.federated_peers --envs ENVS --quick    # 10 clients, about 3 minutes

Flower runs in ENVS/flower if there is one, else in this environment, of which it is a part.
"""  # noqa: E501

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.evidence import Claim, keep, print_claims
from benchmarks.peers import work
from benchmarks.peers.corymb_rounds import ENGINES
from cluster.evidence import interval

ROOT = Path(__file__).parents[1]

OURS = "corymb"
PEERS = ("bare", OURS, "flower", "pfl", "nvflare")
HERE = ("bare", OURS, "flower")
"""Peers that run in this environment where they have none of their own."""

ROUNDS = 20
REPEATS = 3

SLOW = {("nvflare", 100): (2, 1)}
"""Rounds and repeats of a measurement that takes minutes a round."""

LOSS_GAP = 1e-3
TIMEOUT = 3600.0


@dataclass(frozen=True)
class Trial:
    """One run of one peer's script."""

    peer: str
    clients: int
    rounds: int
    repeat: int


def trials(quick: bool) -> list[Trial]:
    """All runs; peers take turns, so that what else the machine does falls on all of them.

    What is slow comes last.
    """
    found = []
    for clients in (10,) if quick else (10, 100):
        for repeat in range(1 if quick else REPEATS):
            for peer in PEERS:
                rounds, repeats = SLOW.get((peer, clients), (5 if quick else ROUNDS, REPEATS))
                if repeat < repeats:
                    found.append(Trial(peer, clients, rounds, repeat))
    return sorted(found, key=lambda t: (t.peer, t.clients) in SLOW)


def interpreter(peer: str, envs: Path) -> Path | None:
    """The Python that runs a peer's script, if there is one."""
    own = envs / peer / "bin" / "python"
    if own.exists():
        return own.absolute()  # not resolved: a virtual environment is known by its link
    return Path(sys.executable) if peer in HERE else None


def measure(trial: Trial, python: Path, engine: str) -> dict[str, Any] | None:
    """Run a script and read the last line of its output; None, with a word, if it fails."""
    command = [
        str(python), "-m", f"benchmarks.peers.{trial.peer}_rounds",
        "--clients", str(trial.clients), "--rounds", str(trial.rounds),
        *(["--engine", engine] if trial.peer == OURS else []),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        print(f"{trial.peer}: not done after {TIMEOUT:g} s", file=sys.stderr)
        return None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{trial.peer}: failed: {last}", file=sys.stderr)
        return None
    measured: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {**measured, "repeat": trial.repeat}


def run_all(todo: Sequence[Trial], envs: Path, engine: str) -> Iterator[list[dict[str, Any]]]:
    """Measure one after another; yield all that is measured so far."""
    found: list[dict[str, Any]] = []
    pythons = {peer: interpreter(peer, envs) for peer in PEERS}
    for peer, python in pythons.items():
        if python is None:
            print(f"{peer}: not installed", file=sys.stderr)
    for trial in todo:
        python = pythons[trial.peer]
        row = None if python is None else measure(trial, python, engine)
        if row is not None:
            found.append(row)
            print(json.dumps(row), file=sys.stderr)
            yield found


def values(rows: Sequence[dict[str, Any]], peer: str, clients: int, key: str) -> list[float]:
    """A measurement of every repeat, in order."""
    return [float(r[key]) for r in rows if r["peer"] == peer and r["clients"] == clients]


def ratio(peer: Sequence[float], ours: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Geometric mean of a peer's cost over ours by repeat, with its 95 % t-interval."""
    logs = [math.log(p / o) for p, o in zip(peer, ours, strict=False)]
    middle, low, high = interval(logs)
    if low is None or high is None:
        return math.exp(middle), None, None
    return math.exp(middle), math.exp(low), math.exp(high)


def claims(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    """A peer's CPU seconds a round over ours, and how far losses lie from the plain loop's."""
    found = []
    for clients in sorted({r["clients"] for r in rows}):
        ours = values(rows, OURS, clients, "cpu_seconds_per_round")
        for peer in PEERS:
            theirs = values(rows, peer, clients, "cpu_seconds_per_round")
            if peer in ("bare", OURS) or not theirs or not ours:
                continue
            value, low, high = ratio(theirs, ours)
            beside = {peer: fmean(theirs), OURS: fmean(ours)}
            name = f"cpu_seconds_per_round_ratio.{peer}.{clients}"
            found.append(Claim(name, value, 1.0, "higher", beside, low, high))
        gaps = {r["peer"]: gap(r) for r in rows if r["clients"] == clients}
        found.append(Claim(f"loss_gap.{clients}", max(gaps.values()), LOSS_GAP, "lower", gaps))
    return found


def gap(row: dict[str, Any]) -> float:
    """Relative distance of a peer's loss from that of the plain loop after as many rounds."""
    right = bare_loss(row["clients"], row["rounds"])
    return abs(float(row["final_loss"]) - right) / right


@cache
def bare_loss(clients: int, rounds: int) -> float:
    """The plain loop's loss, worked out here."""
    work.one_thread()
    return work.loss_of(work.bare(clients, rounds, lambda _: None), clients)


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Means over the repeats, a line a peer."""
    print(f"\n{'clients':>7} {'peer':8} {'version':8} {'rounds':>6} {'s/round':>9} "
          f"{'CPU s/round':>11} {'start-up s':>10} {'final loss':>11}")  # fmt: skip
    for clients in sorted({r["clients"] for r in rows}):
        for peer in PEERS:
            own = [r for r in rows if r["peer"] == peer and r["clients"] == clients]
            if not own:
                continue
            wall, cpu, start = (
                fmean(values(own, peer, clients, key))
                for key in ("seconds_per_round", "cpu_seconds_per_round", "startup_seconds")
            )
            print(f"{clients:7} {peer:8} {own[0]['version']:8} {own[0]['rounds']:6} {wall:9.3f} "
                  f"{cpu:11.3f} {start:10.1f} {own[-1]['final_loss']:11.7f}")  # fmt: skip


def main() -> None:
    """Measure, keep what is measured after each run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--envs", type=Path, required=True, help="folder of peers' environments")
    parser.add_argument("--quick", action="store_true", help="10 clients, 5 rounds, one repeat")
    parser.add_argument("--engine", choices=tuple(ENGINES), default=next(iter(ENGINES)))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for rows in run_all(trials(arguments.quick), arguments.envs, arguments.engine):
        keep("federated_peers", claims(rows), (work.SEED,), rows, quick=arguments.quick)
    print_table(rows)
    print()
    print_claims(claims(rows))


if __name__ == "__main__":
    main()
