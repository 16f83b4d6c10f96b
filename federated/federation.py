"""The clients of one analysis as the server sees them, over Flower's Grid.

Everything a server asks goes through `Federation.exchange`: the replies come back in a fixed order,
none is missing, and what a client could not do is said with its name. Averages and sums over the
replies are then the same whatever engine carried the messages, and in whatever order they arrived.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from cluster.errors import CorymbError

Arrays = Mapping[str, NDArray[np.float64]]

ROUND_TIMEOUT = 600.0
"""Seconds to wait for the replies of a round before the missing clients count as failed."""

JOIN_TIMEOUT = 120.0
"""Seconds to wait for all clients to connect."""

ATTEMPTS = 2
"""How often a request is sent to a client that fails to answer it."""


SHOWN = 5
"""Failed clients that an error names one by one."""


class RoundError(CorymbError):
    """A round ended without the answers of all its clients; the message names them."""


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
    """A fixed set of clients that all take part in every exchange.

    Attributes
    ----------
    members : the clients in the order of their partition numbers.
    exchanges : requests made so far, the number of communication rounds.
    """

    def __init__(
        self, grid: Grid, members: Sequence[Member], deal: str, check: Callable[[], None]
    ) -> None:
        self.grid = grid
        self.members = sorted(members, key=lambda m: m.partition)
        self.deal = deal
        self.exchanges = 0
        self._check = check

    @classmethod
    def gather(
        cls, grid: Grid, clients: int, deal: str = "", check: Callable[[], None] = lambda: None
    ) -> "Federation":
        """Wait for the first `clients` partitions to connect and ask each who it is.

        Parameters
        ----------
        deal : which of its data sets each client is to use; simulations hold several.
        check : called before each exchange; raises to stop the run.

        Raises
        ------
        RoundError
            If they do not all connect within `JOIN_TIMEOUT`.
        """
        deadline = time.monotonic() + JOIN_TIMEOUT
        while len(nodes := sorted(grid.get_node_ids())) < clients:
            if time.monotonic() > deadline:
                raise RoundError(
                    f"Only {len(nodes)} of {clients} clients connected within {JOIN_TIMEOUT:.0f} s."
                )
            check()
            time.sleep(0.05)
        if hasattr(grid, "pull_interval"):
            grid.pull_interval = 0.01  # the stock engine's 0.1 s would dominate short rounds
        strangers = [Member(i, node, f"node {node}", 0) for i, node in enumerate(nodes)]
        places = cls(grid, strangers, deal, check)._introduce("query.place")
        wanted = [
            Member(said["partition"], stranger.node_id, stranger.label, 0)
            for stranger, said in zip(strangers, places, strict=True)
            if said["partition"] < clients
        ]
        federation = cls(grid, wanted, deal, check)
        found = [m.partition for m in federation.members]
        if found != list(range(clients)):
            raise RoundError(f"Expected clients 0 to {clients - 1}, found {found}.")
        members = [
            Member(m.partition, m.node_id, said["label"], said["rows"])
            for m, said in zip(
                federation.members, federation._introduce("query.hello"), strict=True
            )
        ]
        return cls(grid, members, deal, check)

    def _introduce(self, message_type: str) -> list[dict[str, Any]]:
        """What each member says of itself, in their order."""
        empty = {m.partition: RecordDict() for m in self.members}
        replies = self.exchange(message_type, empty, message_type)
        return [unpack(replies[m.partition].content)[1] for m in self.members]

    @property
    def labels(self) -> list[str]:
        """Names of the clients in their order."""
        return [m.label for m in self.members]

    def ask(
        self, statistic: str, arrays: Arrays, settings: Mapping[str, Any]
    ) -> list[dict[str, NDArray[np.float64]]]:
        """Ask every client for one statistic of its rows; answers in the order of `labels`."""
        content = pack(arrays, {**settings, "statistic": statistic})
        replies = self.exchange(
            "query.statistic", {m.partition: content for m in self.members}, statistic
        )
        return [unpack(replies[m.partition].content)[0] for m in self.members]

    def exchange(
        self, message_type: str, contents: Mapping[int, RecordDict], what: str
    ) -> dict[int, Message]:
        """Send each named partition its content and return every reply by partition.

        Clients that fail are asked `ATTEMPTS` times. Raises RoundError naming each that still has
        not answered, with its reason; a partial set of replies is never returned.
        """
        self._check()
        self.exchanges += 1
        nodes = {m.partition: m for m in self.members}
        by_node = {m.node_id: m.partition for m in self.members}
        replies: dict[int, Message] = {}
        reasons: dict[int, str] = {}
        for _ in range(ATTEMPTS):
            missing = [p for p in sorted(contents) if p not in replies]
            messages = [
                Message(self._addressed(contents[p]), nodes[p].node_id, message_type, group_id=what)
                for p in missing
            ]
            reasons = dict.fromkeys(missing, "no answer in time")
            for reply in self.grid.send_and_receive(messages, timeout=ROUND_TIMEOUT):
                partition = by_node[reply.metadata.src_node_id]
                if reply.has_error():
                    reasons[partition] = _reason(reply.error.reason)
                else:
                    replies[partition] = reply
                    reasons.pop(partition, None)
            if not reasons:
                return replies
        said = [f"client {p} ({nodes[p].label}): {why}" for p, why in sorted(reasons.items())]
        more = f"; and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
        raise RoundError(
            f"Round '{what}' got {len(replies)} of {len(contents)} answers, so nothing was "
            f"averaged. Failed: {'; '.join(said[:SHOWN])}{more}"
        )

    def _addressed(self, content: RecordDict) -> RecordDict:
        """Return the content with the name of the deal; arrays are shared, not copied."""
        addressed = RecordDict(dict(content.items()))
        addressed["deal"] = ConfigRecord({"name": self.deal})
        return addressed


def _reason(text: str | None) -> str:
    """Return the sentence inside the wrapping that Flower puts around a client's exception."""
    if not text:
        return "no reason given"
    inner = text.rsplit("Message: ", 1)[-1]
    return inner.strip().rstrip("'>").strip() or text
