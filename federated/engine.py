"""What carries messages between a ServerApp's logic and the clients: the one seam to an engine.

`simulate` runs Flower's stock simulation engine on the Ray cluster of a session. `in_process` calls
the clients one after another in this process: the same apps, no Ray, for tests, benchmarks and the
plain Python interface. Both give a server function a `Grid`.
"""

import logging
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run as FlowerRun
from flwr.supercore.task_identity import TaskIdentity

from cluster.session import Session

T = TypeVar("T")

CLIENT_CPUS = 1.0
"""CPUs that one client actor holds; the engine starts as many actors as fit."""


def simulate(
    server: Callable[[Grid], T], client_app: ClientApp, clients: int, session: Session
) -> T:
    """Run `server` against `clients` simulated clients on the session's Ray cluster.

    Returns what `server` returns and raises what it raises. The stock engine ends by disconnecting
    from Ray; `session.ensure()` is called before, so that simulations can follow each other.
    """
    from flwr.simulation import run_simulation

    session.ensure()
    _quiet()
    outcome: list[T] = []
    raised: list[BaseException] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, _: Context) -> None:
        try:
            outcome.append(server(grid))
        except BaseException as error:  # carried to the caller below, whatever it is
            raised.append(error)

    run_simulation(
        server_app=app,
        client_app=client_app,
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": CLIENT_CPUS, "num_gpus": 0.0}},
    )
    if raised:
        raise raised[0]
    return outcome[0]


def in_process(server: Callable[[Grid], T], client_app: ClientApp, clients: int) -> T:
    """Run `server` against `clients` clients that are called in this process, in order."""
    _quiet()
    previous = {name: getattr(TaskIdentity, name) for name in _IDENTITY}
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    try:
        return server(InProcessGrid(client_app, clients))
    finally:
        for name, value in previous.items():
            setattr(TaskIdentity, name, value)


_IDENTITY = ("_task_id", "_run_id", "_node_id")


class InProcessGrid(Grid):
    """Flower's Grid with the clients called directly. Failures become error replies, as they do
    with an engine."""  # fmt: skip

    def __init__(self, client_app: ClientApp, clients: int) -> None:
        self._app = client_app
        self._run = FlowerRun.create_empty(run_id=1)
        self._contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config={"partition-id": node - 2, "num-partitions": clients},
                state=RecordDict(),
                run_config={},
            )
            for node in range(2, clients + 2)
        }
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
        """All nodes, connected from the start."""
        return list(self._contexts)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """All nodes."""
        return [NodeInfo(node_id=node) for node in self._contexts]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Have each client handle its message now."""
        ids = []
        for message in messages:
            self._sent += 1
            message.metadata.__dict__["_message_id"] = str(self._sent)
            try:
                reply = self._app(message, self._contexts[message.metadata.dst_node_id])
            except Exception as error:
                reply = Message(Error(code=0, reason=str(error)), reply_to=message)
            self._replies[str(self._sent)] = reply
            ids.append(str(self._sent))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages."""
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Have each client handle its message and return the replies."""
        return self.pull_messages(self.push_messages(messages))


def _quiet() -> None:
    """Keep Flower's own log and tracebacks out of the terminal; they go to the run's log.

    What a client failed at reaches the person as the one sentence of a RoundError.
    """
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    for handler in logging.getLogger("flwr").handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.CRITICAL + 1)
