"""Our Grid on Ray: Flower's results to the bit, and what happens when clients or workers fail."""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, FedProx, Krum
from flwr.supercore.task_identity import TaskIdentity

from cluster.errors import CorymbError, ResourcesError
from cluster.session import Session
from federated import identity, pool
from federated.engine import in_process, simulate, stock
from federated.grid import RayGrid
from federated.hosting import Request, pack_requests, pack_shared, unpack_requests

# Workers cannot import a test module; what it holds travels with the app instead.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

CLIENTS = 7


def partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def learning_app() -> ClientApp:
    """Clients whose steps differ, with numbers that round differently in another order."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        weights = message.content.array_records["arrays"].to_numpy_ndarrays()
        rng = np.random.default_rng([partition(context), len(context.state)])
        context.state[f"round {len(context.state)}"] = ConfigRecord({"seen": True})
        moved = [w * 0.9 + rng.normal(size=w.shape) for w in weights]
        metrics = MetricRecord({"num-examples": 10 + partition(context), "loss": rng.random()})
        content = RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def echo_app(act: Callable[[int, Message], Any] = lambda *_: None) -> ClientApp:
    """Clients that send back what they got after `act(partition, message)`."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        act(partition(context), message)
        said = MetricRecord({"partition": partition(context), "process": os.getpid()})
        return Message(RecordDict({"said": said}), reply_to=message)

    return app


def send(grid: Grid, count: int, what: str = "r", timeout: float | None = None) -> list[Message]:
    content = RecordDict({"config": ConfigRecord({"values": [1, 2]})})
    nodes = list(grid.get_node_ids())[:count]
    messages = [Message(content, node, "train", group_id=what) for node in nodes]
    return list(grid.send_and_receive(messages, timeout=timeout))


def partitions(replies: Iterable[Message]) -> list[int]:
    return [int(str(r.content.metric_records["said"]["partition"])) for r in replies]


class Ordered:
    """A grid whose replies stand in the order of the partitions, whatever number a node has."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Iterable[Message], **options: Any) -> list[Message]:
        replies = self._grid.send_and_receive(list(messages), **options)
        return sorted(replies, key=lambda r: r.content.metric_records["metrics"]["num-examples"])


def strategies() -> dict[str, FedAvg]:
    all_of_them: dict[str, Any] = {"fraction_evaluate": 0.0, "min_train_nodes": CLIENTS}
    return {
        "fedavg": FedAvg(**all_of_them),
        "fedadam": FedAdam(**all_of_them),
        "fedprox": FedProx(proximal_mu=0.1, **all_of_them),
        "fedmedian": FedMedian(**all_of_them),
        "krum": Krum(num_malicious_nodes=1, **all_of_them),
    }


def run_strategies(grid: Grid) -> dict[str, tuple[list[bytes], list[dict[str, Any]]]]:
    """Arrays and metrics that each strategy ends with."""
    deadline = time.monotonic() + 60
    while len(list(grid.get_node_ids())) < CLIENTS and time.monotonic() < deadline:
        time.sleep(0.05)
    found = {}
    for name, strategy in strategies().items():
        start = ArrayRecord([np.linspace(0, 1, 12).reshape(3, 4), np.ones(5)])
        result = strategy.start(Ordered(grid), start, num_rounds=3)  # type: ignore[arg-type]
        metrics = [dict(m) for m in result.train_metrics_clientapp.values()]
        found[name] = ([a.data for a in result.arrays.values()], metrics)
    return found


def test_strategies_of_flower_end_with_the_bits_of_the_stock_engine(ray_session: Session) -> None:
    ray_session.ensure()

    ours = simulate(run_strategies, learning_app(), CLIENTS)
    here = in_process(run_strategies, learning_app(), CLIENTS)
    flowers = stock(run_strategies, learning_app(), CLIENTS, ray_session)
    ray_session.ensure()
    assert list(ours) == list(strategies())
    for name in ours:
        assert ours[name] == flowers[name], name
        assert here[name] == flowers[name], name
    assert ours["fedavg"] != ours["fedmedian"] != ours["krum"]


def test_a_killed_worker_is_replaced_and_the_result_is_that_of_an_undisturbed_run(
    ray_session: Session, tmp_path: Path
) -> None:
    ray_session.ensure()
    undisturbed = simulate(run_strategies, learning_app(), CLIENTS)
    killed = tmp_path / "killed"
    app = learning_app()
    disturbed = ClientApp()

    @disturbed.train()
    def deadly(message: Message, context: Context) -> Message:
        if partition(context) == 3 and not killed.exists() and len(context.state) == 1:
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return app(message, context)

    replaced = []

    def server(grid: Grid) -> Any:
        assert isinstance(grid, RayGrid)
        found = run_strategies(grid)
        replaced.append(grid.pool.replaced)
        return found

    assert simulate(server, disturbed, CLIENTS) == undisturbed
    assert killed.exists()
    assert replaced == [1]


def test_a_client_that_always_kills_its_worker_is_found_and_the_others_answer(
    ray_session: Session,
) -> None:
    ray_session.ensure()

    def act(number: int, _: Message) -> None:
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def server(grid: Grid) -> list[Message]:
        return send(grid, 20)

    replies = simulate(server, echo_app(act), 20)
    failed = [r for r in replies if r.has_error()]
    assert [r.metadata.src_node_id - identity.FIRST_CLIENT_NODE for r in failed] == [2]
    assert "died" in str(failed[0].error.reason)
    assert partitions(r for r in replies if r.has_content()) == [0, 1, *range(3, 20)]


def test_a_client_that_hangs_is_left_behind_and_the_next_round_is_served(
    ray_session: Session,
) -> None:
    ray_session.ensure()

    def act(number: int, message: Message) -> None:
        if number == 1 and message.metadata.group_id == "hang":
            time.sleep(600)

    def server(grid: Grid) -> tuple[list[int], list[int], list[int]]:
        warm = partitions(send(grid, 4, "first"))
        began = time.monotonic()
        hung = partitions(send(grid, 4, "hang", timeout=2.0))
        assert time.monotonic() - began < 20
        return warm, hung, partitions(send(grid, 4, "after"))

    warm, hung, after = simulate(server, echo_app(act), 4)
    assert warm == after == [0, 1, 2, 3]
    assert 1 not in hung


def test_what_a_client_raised_comes_back_with_its_place_and_goes_to_the_log(
    ray_session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    ray_session.ensure()

    def act(number: int, _: Message) -> None:
        if number == 3:
            raise ZeroDivisionError("no rows of class 4")

    with caplog.at_level(logging.ERROR, "corymb"):
        replies = simulate(lambda grid: send(grid, 5, "round 7"), echo_app(act), 5)
    reasons = [r.error.reason for r in replies if r.has_error()]
    assert len(reasons) == 1
    assert str(reasons[0]).startswith("ZeroDivisionError: no rows of class 4 (test_grid.py:")
    assert "client 3 failed in round 'round 7'" in caplog.text
    assert "Traceback" in caplog.text


def test_a_client_that_returns_nothing_is_a_failure_of_that_client() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, _: Context) -> Any:
        return None

    replies = in_process(lambda grid: send(grid, 2), app, 2)
    assert [r.error.reason for r in replies] == [
        "the client app returned NoneType, not a Message"
    ] * 2


def test_clients_do_not_see_what_others_do_to_their_messages(ray_session: Session) -> None:
    ray_session.ensure()
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        values = message.content.config_records["config"]["values"]
        assert isinstance(values, list)
        found = len(values)
        values.clear()
        message.content["more"] = ConfigRecord()
        said = MetricRecord({"partition": found})
        return Message(RecordDict({"said": said}), reply_to=message)

    for run in (simulate, in_process):
        assert partitions(run(lambda grid: send(grid, 6), app, 6)) == [2] * 6


def test_records_that_clients_share_are_serialised_once() -> None:
    big = ArrayRecord({"w": Array(np.zeros(10_000))})
    requests = [
        Request(n, str(n), "train", "1", 9.0,
                RecordDict({"arrays": big, "own": ConfigRecord({"n": n})}), RecordDict())
        for n in range(50)
    ]  # fmt: skip
    numbers, shared = pack_shared(requests)
    packed = pack_requests(requests, numbers)
    assert len(shared) < 90_000
    assert len(packed) < 20_000
    back = unpack_requests(packed, shared)
    assert [r.content.config_records["own"]["n"] for r in back] == list(range(50))
    arrays = [r.content.array_records["arrays"]["w"].numpy() for r in back]
    assert all(np.array_equal(a, np.zeros(10_000)) for a in arrays)


def test_ray_is_neither_started_nor_stopped(ray_session: Session) -> None:
    ray_session.ensure()
    before = ray.get_runtime_context().get_job_id()
    simulate(lambda grid: send(grid, 2), echo_app(), 2)
    assert ray.is_initialized()
    assert ray.get_runtime_context().get_job_id() == before


def test_messages_can_be_pushed_and_pulled_apart(ray_session: Session) -> None:
    ray_session.ensure()

    def server(grid: Grid) -> list[int]:
        content = RecordDict({"config": ConfigRecord({"values": [1]})})
        messages = [Message(content, node, "train") for node in grid.get_node_ids()]
        ids = list(grid.push_messages(messages))
        found: dict[str, Message] = {}
        while len(found) < len(ids):
            found |= {r.metadata.reply_to_message_id: r for r in grid.pull_messages(ids)}
        return partitions(found[i] for i in ids)

    assert simulate(server, echo_app(), 5) == [0, 1, 2, 3, 4]


def test_samples_of_flowers_strategies_are_seeded(ray_session: Session) -> None:
    ray_session.ensure()
    app = learning_app()

    def server(grid: Grid) -> list[bytes]:
        strategy = FedAvg(fraction_train=0.3, fraction_evaluate=0.0)
        result = strategy.start(grid, ArrayRecord([np.zeros(3)]), num_rounds=2)
        return [a.data for a in result.arrays.values()]

    first = simulate(server, app, 20, seed=1)
    assert first == simulate(server, app, 20, seed=1) == in_process(server, app, 20, seed=1)
    assert first != simulate(server, app, 20, seed=2)


def test_no_room_for_a_worker_ends_with_both_numbers(
    ray_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray_session.ensure()
    monkeypatch.setattr(pool, "START_SECONDS", 2.0)
    holder = ray.remote(num_cpus=2)(type("Holder", (), {"hold": lambda _: None})).remote()
    ray.get(holder.hold.remote())
    try:
        with pytest.raises(ResourcesError, match=r"each needs 1 CPU, and 0 of the cluster's 2"):
            simulate(lambda grid: send(grid, 2), echo_app(), 2)
    finally:
        ray.kill(holder)


def test_an_app_that_workers_cannot_load_is_said_at_once(ray_session: Session) -> None:
    ray_session.ensure()

    class Unloadable(ClientApp):
        def __reduce__(self) -> Any:
            return (int, ("not a number",))

    with pytest.raises(CorymbError, match="do not start"):
        simulate(lambda grid: send(grid, 2), Unloadable(), 2)


@pytest.mark.parametrize("bundles", [[{"CPU": 1}], [{"CPU": 1}, {"CPU": 1}]])
def test_a_simulation_runs_inside_a_tune_trial(
    ray_session: Session, tmp_path: Path, bundles: list[dict[str, float]]
) -> None:
    from ray import tune

    ray_session.ensure()

    def trial(config: dict[str, Any]) -> None:
        replies = simulate(lambda grid: send(grid, 6), echo_app(), 6)
        tune.report({"served": len(partitions(replies)), "alive": ray.is_initialized()})

    tuner = tune.Tuner(
        tune.with_resources(trial, tune.PlacementGroupFactory(bundles)),
        param_space={"x": tune.grid_search([1, 2])},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    assert not results.errors
    assert [r.metrics and r.metrics["served"] for r in results] == [6, 6]
    assert all(r.metrics and r.metrics["alive"] for r in results)


def test_a_thousand_clients_fit_into_four_gigabytes(ray_session: Session) -> None:
    ray_session.ensure()

    def server(grid: Grid) -> tuple[int, float]:
        answered = sum(len(send(grid, 1000)) for _ in range(3))
        me = psutil.Process()
        family = [me, *me.children(recursive=True)]
        return answered, sum(p.memory_full_info().pss for p in family) / 2**30

    answered, gigabytes = simulate(server, echo_app(), 1000)
    assert answered == 3000
    assert gigabytes < 4.0


def test_a_message_needs_the_identity_that_we_assume(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tells when Flower changes the internal state that `identity` sets."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, None)
    with identity.assumed(5):
        message = Message(RecordDict(), 9, "train")
        assert (message.metadata.run_id, message.metadata.src_node_id) == (identity.RUN_ID, 5)
        reply = Message(RecordDict(), reply_to=message)
        assert (reply.metadata.src_node_id, reply.metadata.dst_node_id) == (9, 5)
    with pytest.raises(RuntimeError, match="is not set"):
        Message(RecordDict(), 9, "train")
