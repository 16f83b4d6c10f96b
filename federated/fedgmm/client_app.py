"""The client: answers requests about its own rows; rows never leave it.

It keeps nothing between messages. What an optimiser must remember travels with the round, so that
any worker can serve any client and a checkpoint of the server is a checkpoint of the run.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from federated.deal import open_client
from federated.federation import pack, unpack
from federated.fedgmm.design import Scale
from federated.fedgmm.game import Batch, Players, Steps, control_variate, local_steps
from federated.fedgmm.networks import Network
from federated.fedgmm.rows import Rows
from federated.fedgmm.statistics import answer
from federated.streams import stream

OpenRows = Callable[[Context, str], tuple[Rows, str]]
"""Gives a client its own rows and its label, from its context and the name of the deal."""


@dataclass(frozen=True)
class DealtRows:
    """Rows of a simulated client: the file of its partition under `root`/deal."""

    root: str

    def __call__(self, context: Context, deal: str) -> tuple[Rows, str]:
        """Open the file; a node without a part in this deal has no rows."""
        return open_client(Path(self.root) / deal, int(context.node_config["partition-id"]))


def make_client_app(open_rows: OpenRows) -> ClientApp:
    """Return the app of a client whose rows `open_rows` opens."""
    app = ClientApp()
    app.query("place")(place)
    app.query("hello")(partial(hello, open_rows))
    app.query("statistic")(partial(statistic, open_rows))
    app.train("game")(partial(game, open_rows))
    return app


def place(message: Message, context: Context) -> Message:
    """Say which partition this node stands for; a simulation may have more nodes than clients."""
    said = {"partition": int(context.node_config["partition-id"])}
    return Message(pack({}, said), reply_to=message)


def hello(open_rows: OpenRows, message: Message, context: Context) -> Message:
    """Say what this client is called and how many rows it holds."""
    rows, label = open_rows(context, _deal(message))
    return Message(pack({}, {"label": label, "rows": len(rows)}), reply_to=message)


def statistic(open_rows: OpenRows, message: Message, context: Context) -> Message:
    """Compute one sum over the client's rows."""
    arrays, settings = unpack(message.content)
    rows, _ = open_rows(context, _deal(message))
    return Message(
        pack(answer(settings["statistic"], rows, arrays, settings), {}), reply_to=message
    )


def game(open_rows: OpenRows, message: Message, context: Context) -> Message:
    """Play the local steps of a round (Algorithm 1) and return the parameters reached.

    The message's settings are those of `train.round_settings`; its arrays hold the global
    parameters `flat`, optionally `tilde`, the control variates, and this client's optimiser state.
    """
    arrays, settings = unpack(message.content)
    rows, _ = open_rows(context, _deal(message))
    tensors = {k: torch.from_numpy(v.copy()) for k, v in arrays.items()}
    players = Players(Network(tuple(settings["g"])), Network(tuple(settings["f"])))
    steps = Steps(**settings["steps"])
    start = tensors["flat"]
    own, server = tensors.get("own_variate"), tensors.get("server_variate")
    partition = int(context.node_config["partition-id"])
    with single_thread():
        flat, state, payoff = local_steps(
            players,
            start,
            standardised_batch(rows, settings["scale"]),
            steps,
            _tilde(settings["theta_tilde"], tensors, players),
            {k[6:]: v for k, v in tensors.items() if k.startswith("state.")},
            None if own is None or server is None else server - own,
            stream(settings["seed"], "batch", settings["round"], partition),
        )
        kept = {f"state.{k}": v.numpy() for k, v in state.items()} if settings["keep_state"] else {}
        if own is not None and server is not None:
            kept["own_variate"] = control_variate(own, server, start, flat, steps, players).numpy()
    weight = float(len(rows)) if settings["weight_by"] == "rows" else 1.0
    return Message(
        RecordDict(
            {
                "arrays": ArrayRecord({"flat": Array(flat.numpy())}),
                "metrics": MetricRecord({"num-examples": weight, "payoff": payoff}),
                "kept": ConfigRecord({"names": json.dumps(list(kept))}),
                "state": ArrayRecord({k: Array(v) for k, v in kept.items()}),
            }
        ),
        reply_to=message,
    )


def standardised_batch(rows: Rows, scale: dict[str, Any]) -> Batch:
    """Standardised rows as tensors: y, inputs [x, w] of g and [z, w] of f."""
    s = Scale.from_json(scale).apply(rows)
    y, x, z, w = (torch.from_numpy(a) for a in (s.y.copy(), s.x, s.z, s.w))
    return Batch(y, torch.cat([x, w], 1), torch.cat([z, w], 1))


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


def _deal(message: Message) -> str:
    return str(message.content.config_records["deal"]["name"])
