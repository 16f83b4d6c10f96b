"""The clients of one analysis as the server sees them, over Flower's Grid.

Everything a server asks goes through `Federation.exchange`: the replies come back in a fixed order,
no fewer than the quorum, and what a client could not do is said with its name. Averages and sums
over the replies are then the same whatever engine carried the messages, and in whatever order they
arrived.
"""

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from federated.replies import NOT_FINITE, misfits
from federated.rounds import EVERYONE, Exchange, LostClientsError, RoundError, Rules

Arrays = Mapping[str, NDArray[np.float64]]

JOIN_TIMEOUT = 120.0
"""Seconds to wait for all clients to connect."""

ATTEMPTS = 2
"""How often a request is sent to a client that fails to answer it."""

SHOWN = 5
"""Failed clients that an error names one by one."""


@dataclass(frozen=True)
class Member:
    """One client: its place in the order, Flower's number for it, its name and size."""

    partition: int
    node_id: int
    label: str
    rows: int


def pack(arrays: Arrays, settings: Mapping[str, Any]) -> RecordDict:
    """Put arrays and JSON settings into the records of a message."""
    return RecordDict(
        {
            "arrays": ArrayRecord({k: FlowerArray(np.asarray(v)) for k, v in arrays.items()}),
            "settings": ConfigRecord({"json": json.dumps(settings)}),
        }
    )


def unpack(content: RecordDict) -> tuple[dict[str, NDArray[np.float64]], dict[str, Any]]:
    """Read arrays and settings back."""
    arrays = {k: v.numpy() for k, v in content.array_records["arrays"].items()}
    return arrays, json.loads(str(content.config_records["settings"]["json"]))


class Federation:
    """The clients of one analysis, all of which are asked in every sum.

    Attributes
    ----------
    members : the clients in the order of their partition numbers.
    exchanges : requests made so far, the number of communication rounds.
    """

    def __init__(
        self,
        grid: Grid,
        members: Sequence[Member],
        deal: str = "",
        *,
        rules: Rules = EVERYONE,
        check: Callable[[], None] = lambda: None,
        observe: Callable[[Exchange], None] = lambda _: None,
    ) -> None:
        self.grid = grid
        self.members = sorted(members, key=lambda m: m.partition)
        self.deal = deal
        self.rules = rules
        self.exchanges = 0
        self._check = check
        self._observe = observe

    @classmethod
    def gather(
        cls,
        grid: Grid,
        clients: int,
        deal: str = "",
        *,
        rules: Rules = EVERYONE,
        check: Callable[[], None] = lambda: None,
        observe: Callable[[Exchange], None] = lambda _: None,
    ) -> "Federation":
        """Wait for the first `clients` partitions to connect and ask each who it is.

        Parameters
        ----------
        deal : which of its data sets each client is to use; simulations hold several.
        rules : what a round needs to count.
        check : called before each exchange; raises to stop the run.
        observe : told of each exchange.

        Raises
        ------
        RoundError
            If fewer than the quorum connect within `JOIN_TIMEOUT`, or say who they are.
        """
        nodes = _connected(grid, clients, check)
        if hasattr(grid, "pull_interval"):
            grid.pull_interval = 0.01  # the stock engine's 0.1 s would dominate short rounds
        strangers = [Member(i, node, f"node {node}", 0) for i, node in enumerate(nodes)]

        def among(members: Sequence[Member]) -> Federation:
            return cls(grid, members, deal, rules=rules, check=check, observe=observe)

        places = among(strangers)._introduce("query.place")
        wanted = [
            Member(said["partition"], stranger.node_id, stranger.label, 0)
            for stranger, said in places
            if said["partition"] < clients
        ]
        found = sorted(m.partition for m in wanted)
        if len(set(found)) < rules.needed(clients):
            raise RoundError(f"Expected clients 0 to {clients - 1}, found {found}.")
        members = [
            Member(m.partition, m.node_id, said["label"], said["rows"])
            for m, said in among(wanted)._introduce("query.hello")
        ]
        return among(members)

    def without(self, lost: Collection[int]) -> "Federation":
        """The same clients without those partitions."""
        members = [m for m in self.members if m.partition not in lost]
        return Federation(
            self.grid, members, self.deal, rules=self.rules, check=self._check,
            observe=self._observe,
        )  # fmt: skip

    def _introduce(self, message_type: str) -> list[tuple[Member, dict[str, Any]]]:
        """What each member that answers says of itself, in their order."""
        empty = RecordDict()
        replies = self.exchange(
            message_type, {m.partition: empty for m in self.members}, message_type
        )
        return [
            (m, unpack(replies[m.partition].content)[1])
            for m in self.members
            if m.partition in replies
        ]

    @property
    def labels(self) -> list[str]:
        """Names of the clients in their order."""
        return [m.label for m in self.members]

    def ask(
        self,
        statistic: str,
        arrays: Arrays,
        settings: Mapping[str, Any],
        message_type: str = "query.statistic",
    ) -> list[dict[str, NDArray[np.float64]]]:
        """Ask every client for one statistic of its rows; answers in the order of `labels`.

        Raises
        ------
        LostClientsError
            If some fail where the quorum does not need them: a sum over other clients than an
            earlier one does not fit it, so the analysis must begin again without those.
        """
        content = pack(arrays, {**settings, "statistic": statistic})
        replies = self.exchange(
            message_type, {m.partition: content for m in self.members}, statistic
        )
        lost = {m.partition: m.label for m in self.members if m.partition not in replies}
        if lost:
            names = ", ".join(f"client {p} ({label})" for p, label in lost.items())
            raise LostClientsError(f"Round '{statistic}' is without {names}", lost)
        return [unpack(replies[m.partition].content)[0] for m in self.members]

    def exchange(
        self, message_type: str, contents: Mapping[int, RecordDict], what: str
    ) -> dict[int, Message]:
        """Send each named partition its content and return the replies by partition.

        Clients that fail (no answer, an error, arrays unlike the others' or not finite) are asked
        `ATTEMPTS` times. Raises RoundError naming each that still failed, with its reason, if the
        others are fewer than the quorum.
        """
        self._check()
        self.exchanges += 1
        began = time.monotonic()
        replies: dict[int, Message] = {}
        reasons: dict[int, str] = {}
        attempts = 0
        while attempts < ATTEMPTS and (attempts == 0 or reasons):
            attempts += 1
            missing = [p for p in sorted(contents) if p not in replies]
            answered, reasons = self._attempt(message_type, contents, missing, what)
            replies |= answered
            bad = misfits(replies)
            reasons |= bad
            replies = {p: reply for p, reply in replies.items() if p not in bad}
        seconds = time.monotonic() - began
        asked, present = sorted(contents), sorted(replies)
        self._observe(Exchange(self.exchanges, what, asked, present, reasons, attempts, seconds))
        needed = self.rules.needed(len(contents))
        if len(replies) < needed:
            raise self._failure(what, len(contents), needed, len(replies), reasons)
        return replies

    def _attempt(
        self,
        message_type: str,
        contents: Mapping[int, RecordDict],
        partitions: Sequence[int],
        what: str,
    ) -> tuple[dict[int, Message], dict[int, str]]:
        """Ask these clients once; their replies, and why each of the others has none."""
        nodes = {m.partition: m.node_id for m in self.members}
        by_node = {m.node_id: m.partition for m in self.members}
        address = ConfigRecord({"name": self.deal})
        # Contents that are one object stay one, so that an engine can send them once.
        addressed = {
            id(contents[p]): RecordDict({**contents[p], "deal": address}) for p in partitions
        }
        messages = [
            Message(addressed[id(contents[p])], nodes[p], message_type, group_id=what)
            for p in partitions
        ]
        replies: dict[int, Message] = {}
        reasons = dict.fromkeys(partitions, f"no answer within {self.rules.timeout:g} s")
        for reply in self.grid.send_and_receive(messages, timeout=self.rules.timeout):
            partition = by_node[reply.metadata.src_node_id]
            if reply.has_error():
                reasons[partition] = _reason(reply.error.reason)
            else:
                replies[partition] = reply
                reasons.pop(partition, None)
        return replies, reasons

    def _failure(
        self, what: str, asked: int, needed: int, answered: int, reasons: Mapping[int, str]
    ) -> RoundError:
        labels = {m.partition: m.label for m in self.members if m.partition in reasons}
        said = [f"client {p} ({labels[p]}): {why}" for p, why in sorted(reasons.items())]
        more = f"; and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
        least = "" if needed == asked else f" and needs {needed}"
        return RoundError(
            f"Round '{what}' got {answered} of {asked} answers{least}, so nothing was averaged. "
            f"Failed: {'; '.join(said[:SHOWN])}{more}",
            labels,
            all(NOT_FINITE in why for why in reasons.values()),
        )


def _connected(grid: Grid, clients: int, check: Callable[[], None]) -> list[int]:
    """Numbers of the connected nodes, once they are at least as many as the clients."""
    deadline = time.monotonic() + JOIN_TIMEOUT
    while len(nodes := sorted(grid.get_node_ids())) < clients:
        if time.monotonic() > deadline:
            raise RoundError(
                f"Only {len(nodes)} of {clients} clients connected within {JOIN_TIMEOUT:.0f} s."
            )
        check()
        time.sleep(0.05)
    return nodes


def _reason(text: str | None) -> str:
    """Return the sentence inside the wrapping that Flower puts around a client's exception."""
    if not text:
        return "no reason given"
    inner = text.rsplit("Message: ", 1)[-1]
    return inner.strip().rstrip("'>").strip() or text
