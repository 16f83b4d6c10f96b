"""Long-lived Ray actors that host the clients of a simulation, and what happens when one dies.

Work is cut into chunks of requests. A free worker takes the next chunk, and a second one to have
at hand while the first is on its way back. A worker that dies is replaced; its chunks are sent
again, once as they were and then client by client, so that a client that kills its worker is found
and the others are not lost with it.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from flwr.clientapp import ClientApp

from cluster.errors import CorymbError, ResourcesError
from federated import identity
from federated.hosting import (
    Answer,
    Request,
    handle,
    pack_answers,
    pack_requests,
    pack_shared,
    unpack_answers,
    unpack_requests,
)

START_SECONDS = 120.0
"""How long the first worker may take to start before its place counts as taken by others."""

INLINE_BYTES = 32_000
"""Shared records above this size travel through the object store, once a machine."""

STARTS = 3
"""Workers in a row that may die before they are ready."""

TRIES = 2
"""How often a chunk is sent before its clients are tried one by one, and then given up."""


class Host:
    """A Ray actor's side: it holds the app and serves the requests that come."""

    def __init__(self, app: ClientApp, clients: int) -> None:
        identity.assume(identity.FIRST_CLIENT_NODE)
        self._app = app
        self._clients = clients

    def ready(self) -> None:
        """Return when the actor has started."""

    def serve(self, data: bytes, shared: bytes) -> bytes:
        """Let clients answer their requests."""
        return pack_answers(handle(self._app, self._clients, unpack_requests(data, shared)))


@dataclass
class Chunk:
    """Requests that one worker serves in one go."""

    requests: Sequence[Request]
    packed: bytes
    shared: Any
    tries: int = 0

    def split(self) -> "list[Chunk]":
        """One chunk a request, tried afresh."""
        return [Chunk([r], pack_requests([r], {}), pack_shared([])[1]) for r in self.requests]


@dataclass(eq=False)
class Worker:
    """The driver's side of an actor."""

    actor: Any
    starting: Any
    at_work: dict[Any, Chunk] = field(default_factory=dict)

    def takes(self, chunk: Chunk) -> bool:
        """Whether to give it this chunk now; one that lost its worker before comes alone."""
        if not self.at_work:
            return True
        fresh = [chunk, *self.at_work.values()]
        return len(self.at_work) == 1 and all(c.tries == 0 for c in fresh)


class Pool:
    """Workers for the clients of one app; close it to let the workers go.

    Parameters
    ----------
    app : serves all clients; sent to each worker once.
    clients : their number.
    places : how many workers to start, and where.

    Attributes
    ----------
    replaced : workers that died and were replaced.
    """

    def __init__(self, app: ClientApp, clients: int, places: "Places") -> None:
        self.size = places.workers
        self.replaced = 0
        self._places = places
        self._app = ray.put(app)
        self._clients = clients
        self._host = ray.remote(Host)
        self._waiting: deque[Chunk] = deque()
        self._done: list[tuple[Request, Answer]] = []
        self._failed_starts = 0
        self._none_ready_since = time.monotonic()
        self._workers = [self._start() for _ in range(self.size)]

    def submit(self, requests: Sequence[Request], size: int) -> None:
        """Queue requests in chunks of at most `size`, which begin at once if workers are free."""
        numbers, blob = pack_shared(requests)
        place = ray.put(blob) if len(blob) > INLINE_BYTES else blob
        for start in range(0, len(requests), size):
            part = requests[start : start + size]
            self._waiting.append(Chunk(part, pack_requests(part, numbers), place))
        self._hand_out()

    def collect(self, timeout: float | None) -> list[tuple[Request, Answer]]:
        """Wait until at least one request is answered, or for `timeout` seconds; return answers."""
        deadline = None if timeout is None else time.monotonic() + timeout
        left = timeout
        while not self._done and (self._waiting or any(w.at_work for w in self._workers)):
            self._wait(left)
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
        done, self._done = self._done, []
        return done

    def drop_unanswered(self) -> None:
        """Give up on all that is queued or running; workers that are busy are replaced."""
        self._waiting.clear()
        for worker in [w for w in self._workers if w.at_work]:
            worker.at_work.clear()
            self._replace(worker)

    def close(self) -> None:
        """Stop all workers."""
        for worker in self._workers:
            ray.kill(worker.actor)
        self._workers = []

    def _start(self) -> Worker:
        actor = self._host.options(**self._places.options).remote(self._app, self._clients)
        return Worker(actor, actor.ready.remote())

    def _hand_out(self) -> None:
        """Give waiting chunks to workers that are ready for one, the idle ones first."""
        ready = [w for w in self._workers if w.starting is None]
        for most in (0, 1):
            for worker in ready:
                if self._waiting and len(worker.at_work) == most:
                    if not worker.takes(self._waiting[0]):
                        continue
                    chunk = self._waiting.popleft()
                    worker.at_work[worker.actor.serve.remote(chunk.packed, chunk.shared)] = chunk

    def _wait(self, timeout: float | None) -> None:
        """Wait for one thing to happen (a worker starts, answers or dies) and deal with it."""
        refs = [r for w in self._workers for r in ([w.starting] if w.starting else w.at_work)]
        limit = timeout
        if all(w.starting is not None for w in self._workers):
            left = self._none_ready_since + START_SECONDS - time.monotonic()
            if left <= 0:
                raise ResourcesError(_no_room(self._places))
            limit = left if timeout is None else min(left, timeout)
        done, _ = ray.wait(refs, num_returns=1, timeout=limit)
        for ref in done:
            owner = next(w for w in self._workers if ref is w.starting or ref in w.at_work)
            self._take_in(owner, ref)
        self._hand_out()

    def _take_in(self, worker: Worker, ref: Any) -> None:
        try:
            value = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            self._broken(worker, ref, error)
        except ray.exceptions.RayError as error:
            if worker.starting is not None:
                self._failed_starts += 1
                if self._failed_starts >= STARTS:
                    raise CorymbError(_not_starting(error)) from error
            self._replace(worker)
        else:
            if worker.starting is not None:
                worker.starting, self._failed_starts = None, 0
                return
            chunk = worker.at_work.pop(ref)
            self._done += zip(chunk.requests, unpack_answers(value), strict=True)

    def _broken(self, worker: Worker, ref: Any, error: Exception) -> None:
        """What could not even be unpacked or sent back is the answer of its clients."""
        if worker.starting is not None:
            raise CorymbError(_not_starting(error)) from error
        chunk = worker.at_work.pop(ref)
        reason = str(error).strip().splitlines()[-1]
        self._done += [(r, Answer(None, r.state, reason, str(error))) for r in chunk.requests]

    def _replace(self, worker: Worker) -> None:
        """Start another worker in the place of one that died, and send its chunks again."""
        ray.kill(worker.actor)
        self.replaced += 1
        self._none_ready_since = time.monotonic()
        self._workers[self._workers.index(worker)] = self._start()
        for chunk in reversed(worker.at_work.values()):
            chunk.tries += 1
            if chunk.tries < TRIES:
                self._waiting.appendleft(chunk)
            elif len(chunk.requests) > 1:
                self._waiting.extendleft(reversed(chunk.split()))
            else:
                (request,) = chunk.requests
                died = f"its worker process died {TRIES} times"
                self._done.append((request, Answer(None, request.state, died)))


@dataclass(frozen=True)
class Places:
    """Where workers go: their number, and Ray's options for each."""

    workers: int
    options: dict[str, Any]

    @classmethod
    def find(cls, clients: int, cpus: float) -> "Places":
        """As many as fit the cluster's machines, and not more than there are clients.

        Inside a placement group, such as that of a Tune trial, they fit into the bundles beside
        its first, which holds the trial itself; if there are none, one worker shares the trial's
        own CPU instead of waiting forever for another.
        """
        group = ray.util.get_current_placement_group()
        if group is not None:
            spare = sum(int(bundle.get("CPU", 0.0) / cpus) for bundle in group.bundle_specs[1:])
            if spare:
                return cls(min(clients, spare), {"num_cpus": cpus})
            return cls(1, {"num_cpus": 0, "scheduling_strategy": "DEFAULT"})
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        fit = sum(int(resources.get("CPU", 0.0) / cpus) for resources in nodes)
        options = {"num_cpus": cpus, "scheduling_strategy": "SPREAD"}
        return cls(max(1, min(clients, fit)), options)


def _no_room(places: Places) -> str:
    free = ray.available_resources().get("CPU", 0.0)
    total = ray.cluster_resources().get("CPU", 0.0)
    return (
        f"None of {places.workers} client workers could start within {START_SECONDS:.0f} s: each "
        f"needs {places.options['num_cpus']:g} CPU, and {free:g} of the cluster's {total:g} are "
        "free. Stop what holds them, or use a larger cluster"
    )


def _not_starting(error: Exception) -> str:
    reason = str(error).strip().splitlines()[-1]
    return f"The workers of the simulation do not start: {reason}"
