"""What a simulated round costs beside what its clients compute, and what cohorts save of that.

Overhead: clients that send their message back as it came, so that all time is the engine's; our
Grid on Ray, Flower's stock simulation engine, and plain calls in this process, in one session on
two workers. CPU seconds are those of this process and all below it. The three take turns, so that
other work on the machine hits them alike.

Cohorts: local steps of the game per CPU second on one core, 100 clients of 200 rows with the
paper's networks 1-20-3-1 and 2-20-1, stacked in one tensor against one by one.

    python -m benchmarks.federated_rounds            # about 5 minutes
    python -m benchmarks.federated_rounds --quick    # under a minute
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import psutil
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from benchmarks.evidence import Claim, keep, print_claims
from cluster.config import ClusterSettings
from cluster.session import Session
from federated import identity
from federated.engine import in_process, simulate, stock
from federated.federation import pack
from federated.fedgmm import scenarios
from federated.fedgmm.api import HeldRows
from federated.fedgmm.client_app import game, games
from federated.fedgmm.config import GameSettings
from federated.fedgmm.train import players_of, round_settings
from tests.federated.holding import Holding

SHAPES = ((20, 1), (20,), (3, 20), (3,), (1, 3), (1,))
"""Arrays of the 1-20-3-1 network, which is what travels."""

BATCHES = (16, 64, None)
COHORT_CLIENTS = 100
COHORT_ROWS = 200
CLAIMED_BATCH = 64


@dataclass(frozen=True)
class Cost:
    """Medians over rounds, after the first."""

    seconds: float
    cpu_seconds: float


def echo() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, _: Context) -> Message:
        return Message(message.content, reply_to=message)

    return app


def measure(rounds: int, clients: int) -> Callable[[Grid], Cost]:
    """A server that plays so many rounds with empty-handed clients and takes the time."""

    def server(grid: Grid) -> Cost:
        nodes: list[int] = []
        while len(nodes) < clients:
            nodes = sorted(grid.get_node_ids())
        if hasattr(grid, "pull_interval"):
            grid.pull_interval = 0.01  # kinder than the stock engine's own 0.1 s
        arrays = ArrayRecord([np.full(shape, 0.1) for shape in SHAPES])
        spent = []
        for number in range(rounds + 1):
            content = RecordDict({"arrays": arrays, "config": ConfigRecord({"round": number})})
            messages = [Message(content, n, "train", group_id=str(number)) for n in nodes]
            began, before = time.perf_counter(), family_cpu()
            replies = list(grid.send_and_receive(messages))
            spent.append((time.perf_counter() - began, family_cpu() - before))
            if len(replies) != clients or any(r.has_error() for r in replies):
                raise RuntimeError(f"{len(replies)} of {clients} clients answered")
        seconds, cpu = np.array(spent[1:]).T
        return Cost(float(np.median(seconds)), float(cpu.mean()))

    return server


def family_cpu() -> float:
    """CPU seconds of this process and of all below it so far."""
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def overheads(session: Session, clients: int, quick: bool) -> dict[str, Cost]:
    """The three engines at one number of clients."""
    long, short = (10, 3) if quick else (40, 8 if clients < 1000 else 2)
    found = {
        "grid": simulate(measure(long, clients), echo(), clients),
        "in_process": in_process(measure(long, clients), echo(), clients),
    }
    if clients < 1000 or not quick:
        found["stock"] = stock(measure(short, clients), echo(), clients, session)
        session.ensure()
    return found


def steps_per_cpu_second(batch: int | None, quick: bool) -> tuple[float, float]:
    """Local steps of the game by CPU second: (stacked, one by one)."""
    n = COHORT_CLIENTS * COHORT_ROWS
    rows = scenarios.draw("abs", "code", n, 0).rows
    held = [rows.take(p) for p in np.array_split(np.arange(n), COHORT_CLIENTS)]
    scale = Holding(held).scale()
    settings = GameSettings(batch=batch, optimizer="sgd", lr_g=0.01, lr_f=0.05)
    players = players_of(scale, settings)
    opened = HeldRows(tuple(held))
    with identity.assumed(identity.SERVER_NODE):
        arrays = {"flat": players.init(0).numpy()}
        content = pack(arrays, round_settings(scale, players, settings, 0, 1))
        content["own"] = ArrayRecord()
        content["deal"] = ConfigRecord({"name": ""})
        messages = [Message(content, i + 2, "train.game") for i in range(COHORT_CLIENTS)]
        contexts = [
            Context(1, i + 2, {"partition-id": i}, RecordDict(), {}) for i in range(COHORT_CLIENTS)
        ]
        count = COHORT_CLIENTS * settings.local_steps

        def together() -> None:
            games(opened, messages, contexts)

        def alone() -> None:
            for message, context in zip(messages, contexts, strict=True):
                game(opened, message, context)

        return count / cpu_of(together, 3 if quick else 20), count / cpu_of(
            alone, 1 if quick else 5
        )


def cpu_of(work: Callable[[], None], times: int) -> float:
    """CPU seconds of one call, after one to warm up."""
    work()
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    quick = parser.parse_args().quick
    table: dict[str, dict[str, float]] = {}
    claims = []
    with Session(ClusterSettings(num_cpus=2)) as session:
        for clients in (10, 100, 1000):
            costs = overheads(session, clients, quick)
            for engine, cost in costs.items():
                table[f"{engine}.{clients}"] = vars(cost)
                print(
                    f"{clients:5} clients  {engine:10}  {cost.seconds:8.4f} s a round, "
                    f"{cost.cpu_seconds:8.4f} s of CPU"
                )
            if "stock" in costs:
                claims.append(_overhead_claim(clients, costs))
    for batch in BATCHES:
        stacked, alone = steps_per_cpu_second(batch, quick)
        name = "all" if batch is None else str(batch)
        table[f"cohort.{COHORT_CLIENTS}.batch_{name}"] = {"stacked": stacked, "alone": alone}
        print(
            f"{COHORT_CLIENTS} clients, batch {name:>3}: {stacked:.0f} steps per CPU second "
            f"stacked, {alone:.0f} one by one, ratio {stacked / alone:.1f}"
        )
        if batch == CLAIMED_BATCH:
            beside = {"stacked": stacked, "one_by_one": alone}
            claims.append(
                Claim(f"cohort_ratio.{COHORT_CLIENTS}", stacked / alone, 5.0, "higher", beside)
            )
    print_claims(claims)
    keep("federated_rounds", claims, [0], table, quick=quick)


def _overhead_claim(clients: int, costs: dict[str, Cost]) -> Claim:
    ours, stocks = costs["grid"], costs["stock"]
    return Claim(
        f"overhead_ratio.{clients}",
        stocks.seconds / ours.seconds,
        10.0,
        "higher",
        {
            "stock_seconds": stocks.seconds,
            "grid_seconds": ours.seconds,
            "cpu_ratio": stocks.cpu_seconds / ours.cpu_seconds,
        },
    )


if __name__ == "__main__":
    main()
