"""No round passes with missing replies; what a client failed at is said with its name."""

from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from federated.engine import InProcessGrid, in_process
from federated.federation import Federation, RoundError, pack, unpack
from federated.fedgmm.api import HeldRows
from federated.fedgmm.client_app import make_client_app, place
from federated.fedgmm.rows import Rows


def rows(n: int, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows(
        rng.normal(size=n), rng.normal(size=(n, 1)), rng.normal(size=(n, 2)), np.empty((n, 0))
    )


def app_of(*sizes: int) -> ClientApp:
    return make_client_app(HeldRows(tuple(rows(n, i) for i, n in enumerate(sizes))))


def failing_app(partition: int, failures: int) -> ClientApp:
    """Clients of 10, 20, 30 rows, of which one fails so many times before it answers."""
    held = HeldRows(tuple(rows(n) for n in (10, 20, 30)))
    left = [failures]

    def open_rows(context: Context, deal: str) -> tuple[Rows, str]:
        if int(context.node_config["partition-id"]) == partition and left[0] > 0:
            left[0] -= 1
            raise ValueError("the disk is full")
        return held(context, deal)

    return make_client_app(open_rows)


def test_messages_carry_arrays_and_settings_unchanged() -> None:
    arrays = {"a": np.array([[1.0, np.pi], [-0.0, 1e-300]]), "b": np.array([2.0])}
    found, settings = unpack(pack(arrays, {"x": [1, 2.5, "c"], "y": None}))
    assert settings == {"x": [1, 2.5, "c"], "y": None}
    for name, value in arrays.items():
        assert np.array_equal(found[name], value)


def test_answers_come_in_the_order_of_the_partitions_however_they_arrive() -> None:
    class Backwards(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            return list(super().pull_messages(message_ids))[::-1]

        def get_node_ids(self) -> list[int]:
            return list(super().get_node_ids())[::-1]

    def server(_: Grid) -> list[float]:
        federation = Federation.gather(Backwards(app_of(5, 6, 7), 3), 3)
        return [a["n"][0] for a in federation.ask("count", {}, {})]

    assert in_process(server, app_of(5, 6, 7), 3) == [5, 6, 7]


def test_more_nodes_than_clients_are_left_out() -> None:
    def server(grid: Grid) -> list[int]:
        return [m.rows for m in Federation.gather(grid, 2).members]

    assert in_process(server, app_of(5, 6, 7), 3) == [5, 6]


def test_a_client_that_fails_once_is_asked_again() -> None:
    def server(grid: Grid) -> int:
        return sum(m.rows for m in Federation.gather(grid, 3).members)

    assert in_process(server, failing_app(1, failures=1), 3) == 60


def test_a_client_that_goes_on_failing_ends_the_round_by_name() -> None:
    with pytest.raises(RoundError) as error:
        in_process(lambda grid: Federation.gather(grid, 3), failing_app(1, failures=99), 3)
    text = str(error.value)
    assert "2 of 3 answers" in text
    assert "client 1" in text
    assert "the disk is full" in text
    assert "client 2" not in text


def test_silent_clients_are_named_and_never_averaged_away() -> None:
    class Deaf(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            replies = list(super().pull_messages(message_ids))
            return [r for r in replies if r.metadata.src_node_id != 3]  # node of partition 1

    def server(_: Grid) -> None:
        Federation.gather(Deaf(app_of(5, 6, 7), 3), 3)

    with pytest.raises(RoundError, match=r"client 1 \(node 3\): no answer in time"):
        in_process(server, app_of(5, 6, 7), 3)


def test_long_lists_of_failed_clients_are_cut() -> None:
    def broken(_: Context, __: str) -> tuple[Rows, str]:
        raise ValueError("no rows here")

    with pytest.raises(RoundError, match="and 4 more"):
        in_process(lambda grid: Federation.gather(grid, 9), make_client_app(broken), 9)


def test_a_statistic_that_is_not_finite_is_refused_at_the_client() -> None:
    bad = rows(20)
    bad.y[3] = np.inf
    app = make_client_app(HeldRows((rows(20), bad)))
    with pytest.raises(RoundError, match=r"client 1 .*'total'.*is not finite"):
        in_process(lambda grid: Federation.gather(grid, 2).ask("count", {}, {}), app, 2)


def test_a_node_needs_no_rows_to_say_its_place() -> None:
    app = ClientApp()
    app.query("place")(place)

    def server(grid: Grid) -> list[int]:
        nodes = list(grid.get_node_ids())
        messages = [Message(pack({}, {}), node, "query.place") for node in nodes]
        return [unpack(r.content)[1]["partition"] for r in grid.send_and_receive(messages)]

    assert in_process(server, app, 2) == [0, 1]
