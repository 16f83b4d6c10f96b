"""No round passes with missing replies; what a client failed at is said with its name."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from federated.engine import in_process
from federated.federation import Federation, pack, unpack
from federated.fedgmm.api import HeldRows
from federated.fedgmm.client_app import make_client_app, partition_of, place
from federated.fedgmm.rows import Rows
from federated.grid import InProcessGrid
from federated.rounds import LostClientsError, RoundError, RoundLog, Rules, ranges


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
        def send_and_receive(
            self, messages: Iterable[Message], *, timeout: float | None = None
        ) -> list[Message]:
            return list(super().send_and_receive(messages, timeout=timeout))[::-1]

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
        def send_and_receive(
            self, messages: Iterable[Message], *, timeout: float | None = None
        ) -> list[Message]:
            replies = super().send_and_receive(messages, timeout=timeout)
            return [r for r in replies if r.metadata.src_node_id != 3]  # node of partition 1

    def server(_: Grid) -> None:
        Federation.gather(Deaf(app_of(5, 6, 7), 3), 3)

    with pytest.raises(RoundError, match=r"client 1 \(node 3\): no answer within 600 s"):
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


# --- replies that cannot be used, and quorums ---------------------------------------------------


def answering(wrong: dict[int, Any], good: Any = None) -> ClientApp:
    """Clients that answer a statistic with the same array, but for some; None returns nothing."""
    app = make_client_app(HeldRows(tuple(rows(9) for _ in range(4))))
    sane = np.ones((2, 3)) if good is None else good

    def statistic(message: Message, context: Context) -> Any:
        said = wrong.get(partition_of(context), sane)
        if said is None:
            return None
        if isinstance(said, Exception):
            raise said
        arrays = said if isinstance(said, dict) else {"sum": said}
        return Message(pack(arrays, {}), reply_to=message)

    plain = ClientApp()
    plain.query("statistic")(statistic)
    plain.query("place")(place)
    plain.query("hello")(lambda message, context: app(message, context))
    return plain


NAN = np.full((2, 3), np.nan)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (NAN, "its array 'sum' has NaN or infinite values"),
        (np.ones((3, 2)), r"its array 'sum' has shape \(3, 2\), not \(2, 3\) like the others'"),
        ({}, "its answer lacks the array 'sum'"),
        (
            {"sum": np.ones((2, 3)), "b": np.ones(1)},
            "its answer has an array that the others' have not: b",
        ),
        (None, "the client app returned NoneType, not a Message"),
        (ValueError("out of rows"), r"ValueError: out of rows \(test_federation.py:\d+\)"),
    ],
)
def test_an_unusable_reply_ends_the_round_with_the_name_of_its_client(
    wrong: Any, said: str
) -> None:
    def server(grid: Grid) -> None:
        Federation.gather(grid, 4).ask("moments", {}, {})

    expected = rf"Round 'moments' got 3 of 4 answers, so nothing .* client 2 \(client 2\): {said}"
    with pytest.raises(RoundError, match=expected):
        in_process(server, answering({2: wrong}), 4)


@pytest.mark.parametrize("wrong", [NAN, None, np.ones(7)])
def test_a_sum_without_a_client_that_the_quorum_spares_must_begin_again(wrong: Any) -> None:
    def server(grid: Grid) -> int:
        federation = Federation.gather(grid, 4, rules=Rules(quorum=0.75))
        with pytest.raises(LostClientsError, match=r"without client 2") as lost:
            federation.ask("moments", {}, {})
        rest = federation.without(lost.value.failed)
        return len(rest.ask("moments", {}, {}))

    assert in_process(server, answering({2: wrong}), 4) == 3


def test_below_the_quorum_a_round_says_how_many_it_needs() -> None:
    def server(grid: Grid) -> None:
        Federation.gather(grid, 4, rules=Rules(quorum=0.75)).ask("moments", {}, {})

    with pytest.raises(RoundError, match=r"got 2 of 4 answers and needs 3, so nothing"):
        in_process(server, answering({1: NAN, 2: None}), 4)


def test_every_round_is_logged_with_its_participants(tmp_path: Path) -> None:
    log = tmp_path / "rounds.jsonl"

    def server(grid: Grid) -> None:
        federation = Federation.gather(grid, 4, rules=Rules(0.5), observe=RoundLog(log, "abs-0"))
        with pytest.raises(LostClientsError):
            federation.ask("moments", {}, {})

    in_process(server, answering({2: NAN}), 4)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["what"] for line in lines] == ["query.place", "query.hello", "moments"]
    assert lines[0]["asked"] == lines[0]["answered"] == "0-3"
    assert lines[2] | {"seconds": 0} == {
        "study": "abs-0", "round": 1, "what": "moments", "asked": "0-3", "answered": "0-1,3",
        "failures": {"2": "its array 'sum' has NaN or infinite values"}, "attempts": 2,
        "seconds": 0,
    }  # fmt: skip


def test_ranges() -> None:
    assert ranges([]) == ""
    assert ranges([4]) == "4"
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


@pytest.mark.parametrize(
    ("quorum", "asked", "needed"),
    [(1.0, 7, 7), (0.5, 7, 4), (0.75, 4, 3), (0.1, 10, 1), (0.001, 3, 1), (0.7, 10, 7)],
)
def test_answers_that_a_quorum_needs(quorum: float, asked: int, needed: int) -> None:
    assert Rules(quorum).needed(asked) == needed
