"""The client: answers requests about its own rows; rows never leave it.

It keeps nothing between messages but the keys of a secure sum (`private.client`). What an optimiser
must remember travels with the round, so that any worker can serve any client and a checkpoint of
the server is a checkpoint of the run.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from federated.deal import open_client
from federated.federation import pack, unpack
from federated.fedgmm.design import Scale
from federated.fedgmm.game import Batch, Player, Players, Steps, control_variate, local_steps
from federated.fedgmm.images.convnet import ConvNetwork
from federated.fedgmm.images.rows import ImageRows
from federated.fedgmm.networks import Network
from federated.fedgmm.private.client import keys, masked
from federated.fedgmm.rows import Rows
from federated.fedgmm.statistics import answer
from federated.hosting import CohortApp
from federated.streams import stream

PADDING = 0.8
"""Smallest batch, relative to the largest one, of clients that are trained as one stack."""

AnyRows = Rows | ImageRows

OpenRows = Callable[[Context, str], tuple[AnyRows, str]]
"""Gives a client its own rows and its label, from its context and the name of the deal."""


@dataclass(frozen=True)
class DealtRows:
    """Rows of a simulated client: the file of its partition under `root`/deal."""

    root: str
    kind: type[Rows] | type[ImageRows] = Rows

    def __call__(self, context: Context, deal: str) -> tuple[AnyRows, str]:
        """Open the file; a node without a part in this deal has no rows."""
        return open_client(Path(self.root) / deal, partition_of(context), self.kind)


def make_client_app(open_rows: OpenRows, cohorts: bool = True) -> CohortApp:
    """Return the app of a client whose rows `open_rows` opens.

    With `cohorts`, a simulation trains all clients of a worker at once.
    """
    app = CohortApp()
    app.query("place")(place)
    app.query("hello")(partial(hello, open_rows))
    app.query("statistic")(partial(statistic, open_rows))
    app.query("keys")(keys)
    app.query("masked")(partial(masked, open_rows))
    app.train("game")(partial(game, open_rows))
    if cohorts:
        app.cohort("train.game", partial(games, open_rows))
    return app


def place(message: Message, context: Context) -> Message:
    """Say which partition this node stands for; a simulation may have more nodes than clients."""
    said = {"partition": partition_of(context)}
    return Message(pack({}, said), reply_to=message)


def hello(open_rows: OpenRows, message: Message, context: Context) -> Message:
    """Say what this client is called and how many rows it holds."""
    rows, label = open_rows(context, deal_of(message))
    return Message(pack({}, {"label": label, "rows": len(rows)}), reply_to=message)


def statistic(open_rows: OpenRows, message: Message, context: Context) -> Message:
    """Compute one sum over the client's rows."""
    arrays, settings = unpack(message.content)
    rows, _ = open_rows(context, deal_of(message))
    return Message(
        pack(answer(settings["statistic"], rows.scalars, arrays, settings), {}), reply_to=message
    )


def games(
    open_rows: OpenRows, messages: Sequence[Message], contexts: Sequence[Context]
) -> list[Message]:
    """Play the local steps of a round (Algorithm 1) for several clients at once.

    The messages are of one round, and their settings those of `train.round_settings`. Their arrays
    hold the global parameters `flat` and optionally `tilde` and `server_variate`, which are the
    same for all; each client's own are its optimiser state and its control variate.
    """
    arrays, settings = unpack(messages[0].content)
    shared = {k: torch.from_numpy(v.copy()) for k, v in arrays.items()}
    rows = [open_rows(c, deal_of(m))[0] for m, c in zip(messages, contexts, strict=True)]
    replies: dict[int, Message] = {}
    with single_thread():
        for group in alike([_drawn(settings, len(r)) for r in rows]):
            own = [_own(messages[i]) for i in group]
            rngs = [
                stream(settings["seed"], "batch", settings["round"], partition_of(contexts[i]))
                for i in group
            ]
            played = _play(settings, shared, [rows[i] for i in group], own, rngs)
            for i, content in zip(group, played, strict=True):
                replies[i] = Message(content, reply_to=messages[i])
    return [replies[i] for i in range(len(messages))]


def game(open_rows: OpenRows, message: Message, context: Context) -> Message:
    """Play the local steps of a round for one client."""
    return games(open_rows, [message], [context])[0]


def _play(
    settings: dict[str, Any],
    shared: dict[str, torch.Tensor],
    rows: Sequence[AnyRows],
    own: Sequence[dict[str, torch.Tensor]],
    rngs: Sequence[np.random.Generator],
) -> list[RecordDict]:
    """The steps of clients that are stacked, and what each sends back."""
    players = Players(player(settings["g"]), player(settings["f"]))
    steps = Steps(**settings["steps"])
    start = shared["flat"].expand(len(rows), -1)
    server = shared.get("server_variate")
    variates = None if server is None else torch.stack([o["own_variate"] for o in own])
    tilde = _tilde(settings["theta_tilde"], shared, players)
    flat, states, payoffs = local_steps(
        players,
        start,
        [standardised_batch(r, settings["scale"]) for r in rows],
        steps,
        None if tilde is None else tilde.expand(len(rows), -1),
        [{k[6:]: v for k, v in o.items() if k.startswith("state.")} for o in own],
        None if variates is None or server is None else server - variates,
        rngs,
    )
    kept: list[dict[str, torch.Tensor]] = [{} for _ in rows]
    if settings["keep_state"]:
        kept = [{f"state.{k}": v for k, v in state.items()} for state in states]
    if variates is not None and server is not None:
        moved = control_variate(variates, server, start, flat, steps, players)
        for held, variate in zip(kept, moved, strict=True):
            held["own_variate"] = variate
    weights = [float(len(r)) if settings["weight_by"] == "rows" else 1.0 for r in rows]
    return [
        RecordDict(
            {
                "arrays": ArrayRecord({"flat": Array(flat[i].numpy())}),
                "metrics": MetricRecord({"num-examples": weights[i], "payoff": float(payoffs[i])}),
                "kept": ConfigRecord({"names": json.dumps(list(kept[i]))}),
                "state": ArrayRecord({k: Array(v.numpy()) for k, v in kept[i].items()}),
            }
        )
        for i in range(len(rows))
    ]


def alike(sizes: Sequence[int]) -> list[list[int]]:
    """Group clients by the size of their batches, so that filling up costs at most a quarter."""
    groups: list[list[int]] = []
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if groups and sizes[i] >= PADDING * sizes[groups[-1][0]]:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _drawn(settings: dict[str, Any], rows: int) -> int:
    """Rows in a client's batch."""
    batch = settings["steps"]["batch"]
    return rows if batch is None else min(batch, rows)


def _own(message: Message) -> dict[str, torch.Tensor]:
    """The arrays that only this client is sent."""
    record = message.content.array_records["own"]
    return {k: torch.from_numpy(v.numpy().copy()) for k, v in record.items()}


def partition_of(context: Context) -> int:
    """The partition that a node stands for."""
    return int(context.node_config["partition-id"])


def standardised_batch(rows: AnyRows, scale: dict[str, Any]) -> Batch:
    """Standardised rows as tensors: y, inputs [x, w] of g and [z, w] of f; images as they are."""
    s = Scale.from_json(scale).apply(rows.scalars)
    y, w = torch.from_numpy(s.y.copy()), torch.from_numpy(s.w)
    x, z = (
        torch.from_numpy(shown)
        if shown.dtype == np.uint8
        else torch.cat([torch.from_numpy(standardised), w], 1)
        for shown, standardised in ((rows.x, s.x), (rows.z, s.z))
    )
    return Batch(y, x, z)


def player(description: dict[str, Any]) -> Player:
    """The network of a message."""
    if "widths" in description:
        return Network(tuple(description["widths"]))
    return ConvNetwork(tuple(description["shape"]), description["outputs"], description["hidden"])


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread: faster for small networks, and the same sums everywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _tilde(kind: str, tensors: dict[str, torch.Tensor], players: Players) -> torch.Tensor | None:
    if kind == "current":
        return None
    if kind == "global":
        return players.split(tensors["flat"])[0]
    return tensors["tilde"]


def deal_of(message: Message) -> str:
    """The name of the deal that a message is about."""
    return str(message.content.config_records["deal"]["name"])
