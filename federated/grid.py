"""Flower's Grid for simulations: the same apps, with the clients here or in Ray actors.

`InProcessGrid` calls the clients one after another in this process. `RayGrid` has long-lived Ray
actors call them, waits for answers instead of polling for them, and survives the death of an actor.
Both return replies in the order of the messages, whichever came first, so that averages over them
are the same to the last bit; and neither ever starts or stops Ray.
"""

import logging
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Self

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run as FlowerRun

from federated import identity
from federated.hosting import Answer, CohortApp, Request, handle
from federated.pool import Places, Pool

CHUNKS = 4
"""Chunks a worker gets in a round, so that an uneven one does not keep the others waiting."""


class SimulatedGrid(Grid):
    """What both grids share: nodes, their states, and messages to and from them.

    Parameters
    ----------
    clients : number of nodes; partition i is node `identity.FIRST_CLIENT_NODE` + i.
    """

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self._run = FlowerRun.create_empty(run_id=identity.RUN_ID)
        self._states: dict[int, RecordDict] = {}
        self._asked: dict[str, Message] = {}
        self._replies: dict[str, Message] = {}
        self._sent = 0

    def set_run(self, run: FlowerRun) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> FlowerRun:
        """The run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes, connected from the start, in the order of their partitions."""
        first = identity.FIRST_CLIENT_NODE
        return list(range(first, first + self.clients))

    def get_nodes(self) -> Iterable[NodeInfo]:
        """All nodes."""
        return [NodeInfo(node_id=node) for node in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send each client its message."""
        requests = [self._request(message) for message in messages]
        self._send(requests)
        return [request.message_id for request in requests]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there, in the order of the messages."""
        wanted = list(message_ids)
        self._receive(set(wanted), 0.0)
        return [self._replies.pop(i) for i in wanted if i in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send each client its message, and return the replies in the order of the messages.

        Replies that do not come within `timeout` seconds are left out, and their clients' work
        is ended.
        """
        wanted = list(self.push_messages(messages))
        self._receive(set(wanted), timeout)
        if any(i not in self._replies for i in wanted):
            self._give_up()
        return [self._replies.pop(i) for i in wanted if i in self._replies]

    @abstractmethod
    def _send(self, requests: Sequence[Request]) -> None:
        """Begin to have requests answered."""

    @abstractmethod
    def _receive(self, wanted: set[str], timeout: float | None) -> None:
        """Wait for the answers to the wanted messages and `_take` them."""

    def _give_up(self) -> None:
        """End the work on messages that were not answered."""

    def _request(self, message: Message) -> Request:
        self._sent += 1
        said = message.metadata
        said.__dict__["_message_id"] = str(self._sent)
        self._asked[said.message_id] = message
        state = self._states.get(said.dst_node_id, RecordDict())
        return Request(
            said.dst_node_id, said.message_id, said.message_type, said.group_id, said.ttl,
            message.content, state,
        )  # fmt: skip

    def _take(self, request: Request, answer: Answer) -> None:
        """Keep a client's reply and, if it succeeded, its state."""
        message = self._asked.pop(request.message_id)
        if answer.content is not None:
            self._states[request.node_id] = answer.state
        else:
            partition = request.node_id - identity.FIRST_CLIENT_NODE
            logging.getLogger("corymb").error(
                "client %d failed in round '%s' (%s): %s\n%s", partition, request.group_id,
                request.message_type, answer.reason, answer.trace,
            )  # fmt: skip
        reply = answer.reply(message)
        reply.metadata.__dict__["_message_id"] = f"{request.message_id}-reply"
        self._replies[request.message_id] = reply


class InProcessGrid(SimulatedGrid):
    """Calls the clients in this process when their messages are sent."""

    def __init__(self, app: ClientApp, clients: int) -> None:
        super().__init__(clients)
        self._app = app

    def _send(self, requests: Sequence[Request]) -> None:
        for request, answer in zip(
            requests, handle(self._app, self.clients, requests), strict=True
        ):
            self._take(request, answer)

    def _receive(self, wanted: set[str], timeout: float | None) -> None:
        """Everything was answered as it was sent."""


class RayGrid(SimulatedGrid):
    """Has Ray actors call the clients; use as a context manager, which lets the actors go.

    Ray must be connected: embedded, a cluster, or inside a task, an actor or a Tune trial.

    Parameters
    ----------
    app : serves all clients.
    clients : number of nodes.
    cpus : CPUs that each worker holds; as many workers start as fit.

    Raises
    ------
    ResourcesError
        From the first round, if no worker finds a place.
    CorymbError
        If the workers do not start, with the reason.
    """

    def __init__(self, app: ClientApp, clients: int, cpus: float = 1.0) -> None:
        super().__init__(clients)
        self._cohorts = app.cohorts if isinstance(app, CohortApp) else {}
        self.pool = Pool(app, clients, Places.find(clients, cpus))
        self._slow: set[int] = set()

    def __enter__(self) -> Self:
        """Workers start when the grid is made."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the workers go."""
        self.pool.close()

    def _send(self, requests: Sequence[Request]) -> None:
        together = any(r.message_type in self._cohorts for r in requests)
        parts = self.pool.size * (1 if together else CHUNKS)
        slow = [r for r in requests if r.node_id in self._slow]
        rest = [r for r in requests if r.node_id not in self._slow]
        self.pool.submit(rest, max(1, -(-len(rest) // parts)))
        self.pool.submit(slow, 1)  # alone, so that no other client waits behind them

    def _receive(self, wanted: set[str], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        missing = {i for i in wanted if i not in self._replies}
        while missing:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            answered = self.pool.collect(left)
            for request, answer in answered:
                self._take(request, answer)
                missing.discard(request.message_id)
            if not answered:
                return

    def _give_up(self) -> None:
        self.pool.drop_unanswered()
        self._slow |= {message.metadata.dst_node_id for message in self._asked.values()}
        self._asked.clear()
