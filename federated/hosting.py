"""A ClientApp's clients, called wherever they are hosted: in this process or in a Ray actor.

Requests and answers are small tuples around Flower's records instead of whole messages. Many
clients usually get the same records (the global parameters, the round's settings), which are
serialised once and handed to each client as a copy of its own.
"""

import pickle
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.identity import FIRST_CLIENT_NODE, RUN_ID

FAILED = 2
"""Code of an error reply, as the stock engine's for a client that raised."""

Cohort = Callable[[Sequence[Message], Sequence[Context]], Sequence[Message]]
"""Handles the messages of several clients at once; returns their replies in the same order."""


class CohortApp(ClientApp):
    """A ClientApp that can also serve many clients in one call, for message types that say so."""

    def __init__(self) -> None:
        super().__init__()
        self.cohorts: dict[str, Cohort] = {}

    def cohort(self, message_type: str, handler: Cohort) -> None:
        """Register what serves several clients with a message of this type."""
        self.cohorts[message_type] = handler


class Request(NamedTuple):
    """What one client is asked: a message without what the engine can fill in itself."""

    node_id: int
    message_id: str
    message_type: str
    group_id: str
    ttl: float
    content: RecordDict
    state: RecordDict


class Answer(NamedTuple):
    """What one client said: content, or the reason and the traceback of its failure."""

    content: RecordDict | None
    state: RecordDict
    reason: str = ""
    trace: str = ""

    def reply(self, message: Message) -> Message:
        """The reply to the message that was asked."""
        if self.content is None:
            return Message(Error(code=FAILED, reason=self.reason), reply_to=message)
        return Message(self.content, reply_to=message)


def handle(app: ClientApp, clients: int, requests: Sequence[Request]) -> list[Answer]:
    """Let each client answer its request, those of a cohort together.

    Parameters
    ----------
    app : serves all clients.
    clients : their number, which each client is told.
    requests : in any order; answers come back in the same one.
    """
    answers: dict[int, Answer] = {}
    cohorts = app.cohorts if isinstance(app, CohortApp) else {}
    for message_type, handler in cohorts.items():
        chosen = [i for i, r in enumerate(requests) if r.message_type == message_type]
        if len(chosen) > 1:
            together = _together(handler, clients, [requests[i] for i in chosen])
            answers |= zip(chosen, together, strict=False)
    for i, request in enumerate(requests):
        if i not in answers:
            answers[i] = _alone(app, clients, request)
    return [answers[i] for i in range(len(requests))]


def _alone(app: ClientApp, clients: int, request: Request) -> Answer:
    message, context = _message(request), _context(request, clients)
    try:
        reply = app(message, context)
    except Exception as error:
        return Answer(None, context.state, _sentence(error), traceback.format_exc())
    return _answer(reply, context)


def _together(handler: Cohort, clients: int, requests: Sequence[Request]) -> list[Answer]:
    """Answers of a cohort; none if it failed, so that the clients, one by one, show whose fault."""
    messages = [_message(r) for r in requests]
    contexts = [_context(r, clients) for r in requests]
    try:
        replies = handler(messages, contexts)
    except Exception:
        return []
    return [_answer(reply, context) for reply, context in zip(replies, contexts, strict=True)]


def _message(request: Request) -> Message:
    message = Message(
        RecordDict({key: _copy(record) for key, record in request.content.items()}),
        request.node_id,
        request.message_type,
        ttl=request.ttl,
        group_id=request.group_id,
    )
    message.metadata.__dict__["_message_id"] = request.message_id
    return message


def _copy(record: Any) -> Any:
    """A record that a client may change without another client's noticing."""
    if isinstance(record, ArrayRecord):
        return record.copy()  # arrays are bytes, which nobody can change
    return type(record)({k: list(v) if isinstance(v, list) else v for k, v in record.items()})


def _context(request: Request, clients: int) -> Context:
    return Context(
        run_id=RUN_ID,
        node_id=request.node_id,
        node_config={
            "partition-id": request.node_id - FIRST_CLIENT_NODE,
            "num-partitions": clients,
        },
        state=request.state,
        run_config={},
    )


def _answer(reply: object, context: Context) -> Answer:
    if not isinstance(reply, Message):
        said = f"the client app returned {type(reply).__name__}, not a Message"
        return Answer(None, context.state, said)
    if reply.has_error():
        return Answer(None, context.state, reply.error.reason or "no reason given")
    return Answer(reply.content, context.state)


def _sentence(error: Exception) -> str:
    """What was raised, and where: the last line of the traceback that a person looks for."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def pack_shared(requests: Sequence[Request]) -> tuple[dict[int, int], bytes]:
    """Serialise the records that more than one request holds; also their numbers, by id."""
    times = Counter(id(record) for r in requests for record in r.content.values())
    held = {id(record): record for r in requests for record in r.content.values()}
    shared = [key for key, count in times.items() if count > 1]
    numbers = {key: i for i, key in enumerate(shared)}
    return numbers, pickle.dumps([held[key] for key in shared], protocol=5)


def pack_requests(requests: Sequence[Request], shared: dict[int, int]) -> bytes:
    """Serialise requests; records whose id is in `shared` become their number there."""
    rows = [
        (
            *request[:5],
            {key: shared.get(id(record), record) for key, record in request.content.items()},
            request.state or None,
        )
        for request in requests
    ]
    return pickle.dumps(rows, protocol=5)


def unpack_requests(data: bytes, shared: bytes) -> list[Request]:
    """Read requests back, with the records they share."""
    records = pickle.loads(shared)
    requests = []
    for node_id, message_id, message_type, group_id, ttl, keyed, state in pickle.loads(data):
        content = {key: records[v] if isinstance(v, int) else v for key, v in keyed.items()}
        requests.append(
            Request(
                node_id,
                message_id,
                message_type,
                group_id,
                ttl,
                RecordDict(content),
                RecordDict() if state is None else state,
            )
        )
    return requests


def pack_answers(answers: Sequence[Answer]) -> bytes:
    """Serialise answers."""
    return pickle.dumps([(a.content, a.state or None, *a[2:]) for a in answers], protocol=5)


def unpack_answers(data: bytes) -> list[Answer]:
    """Read answers back."""
    return [
        Answer(content, RecordDict() if state is None else state, *rest)
        for content, state, *rest in pickle.loads(data)
    ]
