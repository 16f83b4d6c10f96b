"""The rounds of the game on the server: one loop for every variant, with round checkpoints.

A checkpoint holds all that the next round depends on: the global parameters, the average of the
iterates, the server's memory, and each client's state. A run killed in any round therefore resumes
and ends bit-identical.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Message, RecordDict
from numpy.typing import NDArray

from cluster.errors import CorymbError, InterruptedRunError
from federated.federation import Federation, pack
from federated.fedgmm.config import GameSettings
from federated.fedgmm.design import Scale
from federated.fedgmm.game import Players, Steps
from federated.fedgmm.networks import Network
from federated.fedgmm.strategy import FedGDA, ServerStep
from federated.rounds import RoundError
from federated.streams import stream

Floats = NDArray[np.float64]

CHECKPOINT_EVERY = 10


class Store(Protocol):
    """Where checkpoints go; `None` results mean that there is none."""

    def save(self, step: int, arrays: Mapping[str, Floats], state: Mapping[str, Any]) -> None:
        """Keep the state after round `step`."""
        ...

    def load(self) -> tuple[int, dict[str, Floats], dict[str, Any]] | None:
        """Return the newest state."""
        ...


class DivergedError(CorymbError):
    """The game left the finite numbers; the message names the round and the clients."""


@dataclass
class Progress:
    """Everything that the next round depends on."""

    flat: Floats
    round: int = 0
    total: Floats | None = None
    counted: int = 0
    tilde: Floats | None = None
    server_variate: Floats | None = None
    memory: dict[str, Floats] = field(default_factory=dict)
    clients: dict[int, dict[str, Floats]] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)

    def pack(self) -> tuple[dict[str, Floats], dict[str, Any]]:
        """Arrays and JSON state of a checkpoint."""
        arrays = {"flat": self.flat}
        for name in ("total", "tilde", "server_variate"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        arrays |= {f"memory/{k}": v for k, v in self.memory.items()}
        for partition, state in self.clients.items():
            arrays |= {f"clients/{partition}/{k}": v for k, v in state.items()}
        return arrays, {"round": self.round, "counted": self.counted, "history": self.history}

    @classmethod
    def unpack(cls, arrays: Mapping[str, Floats], state: Mapping[str, Any]) -> "Progress":
        """Read a checkpoint back."""
        progress = cls(arrays["flat"], state["round"], counted=state["counted"])
        progress.history = list(state["history"])
        for name in ("total", "tilde", "server_variate"):
            setattr(progress, name, arrays.get(name))
        for key, value in arrays.items():
            kind, _, rest = key.partition("/")
            if kind == "memory":
                progress.memory[rest] = value
            elif kind == "clients":
                partition, _, name = rest.partition("/")
                progress.clients.setdefault(int(partition), {})[name] = value
        return progress


def players_of(scale: Scale, settings: GameSettings) -> Players:
    """The two networks for data of this shape: g sees [x, w], f sees [z, w]."""
    return Players(
        Network((scale.treatments + scale.controls, *settings.hidden_g, 1)),
        Network((scale.instruments + scale.controls, *settings.hidden_f, 1)),
    )


@dataclass(frozen=True)
class Trained:
    """The end of a game: parameters of g, and what was measured after each round."""

    theta: Floats
    history: list[dict[str, float]]


def train(
    federation: Federation,
    scale: Scale,
    players: Players,
    settings: GameSettings,
    seed: int,
    evaluate: Callable[[Floats], dict[str, float]],
    report: Callable[[int, dict[str, float]], None],
    store: Store,
) -> Trained:
    """Play all rounds, or those that a checkpoint leaves.

    Parameters
    ----------
    evaluate : measures parameters of g after each round (the average of iterates, once it exists).
    report : told of each round's measurements.
    store : keeps checkpoints.
    """
    saved = store.load()
    if saved is None:
        progress = Progress(players.init(seed).numpy())
        if settings.control_variates:
            progress.server_variate = np.zeros_like(progress.flat)
    else:
        progress = Progress.unpack(saved[1], saved[2])
    strategy = FedGDA(ServerStep(**settings.server.model_dump()), progress.flat, progress.memory)
    split = players.g.parameters
    while progress.round < settings.rounds:
        progress.round += 1
        try:
            metrics = _play_round(federation, scale, players, settings, seed, progress, strategy)
        except InterruptedRunError:
            progress.round -= 1  # asked to stop before anything of this round was taken in
            if progress.round > 0:
                store.save(progress.round, *progress.pack())
            raise
        metrics |= evaluate(_current(progress)[:split])
        progress.history.append(metrics)
        report(progress.round, metrics)
        if progress.round % CHECKPOINT_EVERY == 0 or progress.round == settings.rounds:
            store.save(progress.round, *progress.pack())
    return Trained(_current(progress)[:split], progress.history)


def _play_round(
    federation: Federation,
    scale: Scale,
    players: Players,
    settings: GameSettings,
    seed: int,
    progress: Progress,
    strategy: FedGDA,
) -> dict[str, float]:
    """One round: send, wait for the quorum, average, and take in the clients' states."""
    chosen = _participants(federation, settings, seed, progress.round)
    common = pack(_shared(progress), round_settings(scale, players, settings, seed, progress.round))
    contents = {p: _request(progress, common, p) for p in chosen}
    try:
        replies = federation.exchange("train.game", contents, f"game {progress.round}")
    except RoundError as error:
        if error.not_finite:
            raise _diverged(progress, settings, ", ".join(error.failed.values())) from error
        raise
    ordered = [replies[p] for p in sorted(replies)]
    _take_states(progress, settings, sorted(replies), ordered, len(federation.members))
    _, averaged = strategy.aggregate_train(progress.round, ordered)
    progress.flat = strategy.flat
    if averaged is None or not np.isfinite(progress.flat).all():
        raise _diverged(progress, settings, "the server")
    if settings.theta_tilde == "frozen" and progress.round == settings.rounds // 2:
        progress.tilde = progress.flat[: players.g.parameters].copy()
    if settings.averaging == "second_half" and progress.round > settings.rounds // 2:
        progress.total = progress.flat + (0.0 if progress.total is None else progress.total)
        progress.counted += 1
    payoff = averaged["payoff"]
    assert isinstance(payoff, int | float)
    return {"payoff": float(payoff), "clients": float(len(ordered))}


def _diverged(progress: Progress, settings: GameSettings, where: str) -> DivergedError:
    return DivergedError(
        f"The game diverged in round {progress.round} of {settings.rounds}: parameters became "
        f"NaN or infinite at {where}; lower lr_g and lr_f"
    )


def _current(progress: Progress) -> Floats:
    """The estimate so far: the average of the iterates once there is one."""
    if progress.total is None:
        return progress.flat
    return np.asarray(progress.total / progress.counted)


def round_settings(
    scale: Scale, players: Players, settings: GameSettings, seed: int, number: int
) -> dict[str, Any]:
    """What all clients are told in a round, beside the arrays."""
    factor = 1.0
    if settings.decay == "cosine":
        factor = 0.5 * (1 + math.cos(math.pi * (number - 1) / settings.rounds))
    frozen = settings.theta_tilde == "frozen"
    first_half = number <= settings.rounds // 2
    steps = Steps(
        count=settings.local_steps,
        batch=settings.batch,
        optimizer=settings.optimizer,
        lr_g=settings.lr_g * factor,
        lr_f=settings.lr_f * factor,
        weights="constant" if frozen and first_half else settings.weights,
    )
    return {
        "g": players.g.describe(),
        "f": players.f.describe(),
        "scale": scale.to_json(),
        "steps": asdict(steps),
        "theta_tilde": "current" if frozen and first_half else settings.theta_tilde,
        "keep_state": settings.keep_state and settings.optimizer != "sgd",
        "weight_by": settings.weight_by,
        "seed": seed,
        "round": number,
    }


def _participants(
    federation: Federation, settings: GameSettings, seed: int, number: int
) -> list[int]:
    """All clients, or a seeded sample of them without replacement."""
    everyone = [m.partition for m in federation.members]
    count = max(1, round(settings.participation * len(everyone)))
    if count == len(everyone):
        return everyone
    rng = stream(seed, "participants", number)
    return sorted(int(p) for p in rng.choice(everyone, count, replace=False))


def _shared(progress: Progress) -> dict[str, Floats]:
    """The arrays that all clients are sent."""
    arrays = {"flat": progress.flat}
    if progress.tilde is not None:
        arrays["tilde"] = progress.tilde
    if progress.server_variate is not None:
        arrays["server_variate"] = progress.server_variate
    return arrays


def _request(progress: Progress, common: RecordDict, partition: int) -> RecordDict:
    """What all are sent and, beside it, the client's own state."""
    own = progress.clients.get(partition, {})
    arrays = {k: v for k, v in own.items() if k.startswith("state.")}
    if progress.server_variate is not None:
        arrays["own_variate"] = own.get("own_variate", np.zeros_like(progress.flat))
    record = ArrayRecord({k: FlowerArray(v) for k, v in arrays.items()})
    return RecordDict({**common, "own": record})


def _take_states(
    progress: Progress,
    settings: GameSettings,
    partitions: list[int],
    replies: list[Message],
    clients: int,
) -> None:
    """Keep each client's state, take it out of the reply, and move the server's control variate."""
    changes: list[Floats] = []
    for partition, reply in zip(partitions, replies, strict=True):
        names = json.loads(str(reply.content.config_records["kept"]["names"]))
        record = reply.content.array_records["state"]
        state = {name: record[name].numpy() for name in names}
        del reply.content["state"], reply.content["kept"]
        if progress.server_variate is not None:
            before = progress.clients.get(partition, {}).get("own_variate", 0.0)
            changes.append(state["own_variate"] - before)
        progress.clients[partition] = state
    if progress.server_variate is not None:
        progress.server_variate = progress.server_variate + np.sum(changes, axis=0) / clients
