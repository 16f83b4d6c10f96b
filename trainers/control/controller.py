"""What is a learnt controller, and how is it kept? Networks, names, limits and modes in one folder.

`controller.safetensors` holds the networks, with the scaling inside them, and `controller.json` all
else: their sizes, names and limits of columns, z of each mode, and the digest of the other file.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from torch import Tensor

from cluster.config import Settings
from cluster.errors import UsageError
from cluster.files import write_bytes, write_json
from trainers.control.inference import Kind, PooledEncoder, nearest
from trainers.control.networks import GaussianPolicy, Units

TENSORS = "controller.safetensors"
DESCRIPTION = "controller.json"

FOLDER = "controller"
"""Where a run directory keeps its controller."""


@dataclass(frozen=True)
class SavedController:
    """A learnt policy with all that is needed to run it.

    Attributes
    ----------
    policy : pi(u | x, z), its units inside it.
    inference : q(z | tau) with as many numbers in z as the policy reads, or None.
    observations, actions : names of the columns, in order.
    seconds : between samples.
    low, high : (a,), the plant's limits of each action.
    pieces : samples of the pieces that q was trained on; empty without q.
    codes : (K, c), z of each mode; (1, 0) for a policy without context.

    Raises
    ------
    ValueError : for parts that do not fit each other.
    """

    policy: GaussianPolicy
    inference: PooledEncoder | None
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    seconds: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    pieces: tuple[int, ...]
    codes: NDArray[np.float32]

    def __post_init__(self) -> None:
        """Hold the parts against each other."""
        policy, q = self.policy, self.inference
        reads = len(policy.get_buffer("centre")) - policy.context
        answers = len(policy.get_buffer("action_centre"))
        if (len(self.observations), len(self.actions)) != (reads, answers):
            raise ValueError(f"The policy reads {reads} observations and has {answers} actions.")
        if not len(self.low) == len(self.high) == answers:
            raise ValueError("Every action needs a low and a high limit.")
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError("The low limit of every action must be less than its high one.")
        if self.codes.ndim != 2 or not len(self.codes) or self.codes.shape[1] != policy.context:
            raise ValueError(
                f"The codes have the shape {self.codes.shape}, not (K, {policy.context})."
            )
        if q is not None and (q.size, len(q.get_buffer("centre"))) != (policy.context, reads):
            raise ValueError("The inference network does not fit the policy.")

    def act(self, observation: Tensor, z: Tensor) -> Tensor:
        """Actions (n, a) within the limits, in the units of the plant.

        Parameters
        ----------
        observation : (n, k), in the units of the plant.
        z : (n, c).
        """
        wanted = self.policy.act(torch.cat([observation, z], dim=-1))
        return torch.clamp(wanted, torch.tensor(self.low), torch.tensor(self.high))

    def infer(self, x: Tensor, u: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters of q (logits of the modes, or a Gaussian's), and the likeliest z (n, c).

        Parameters
        ----------
        x, u : (n, T, k) and (n, T, a), pieces in the units of the plant.
        valid : (n, T), which samples are seen; at least one of each row.

        Raises
        ------
        ValueError : for a controller without inference network.
        """
        if self.inference is None:
            raise ValueError("This controller has no inference network.")
        parameters = self.inference(x, self.policy.scaled_action(u), valid)
        return parameters, self.inference.code(parameters)

    def modes(self, z: NDArray[np.float32]) -> NDArray[np.int64]:
        """The mode (n,) whose code is nearest to each z (n, c)."""
        return nearest(self.codes, z)


class _Encoder(Settings):
    kind: Kind
    hidden: tuple[int, ...] = Field(min_length=1)


class _Description(Settings):
    """`controller.json`."""

    format: Literal["corymb controller"] = "corymb controller"
    version: Literal[1] = 1
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    seconds: float = Field(gt=0)
    low: tuple[float, ...]
    high: tuple[float, ...]
    pieces: tuple[int, ...]
    context: int = Field(ge=0)
    hidden: tuple[int, ...]
    inference: _Encoder | None
    codes: tuple[tuple[float, ...], ...] = Field(min_length=1)
    sha256: str


def save(folder: Path, controller: SavedController) -> None:
    """Write a controller into a folder, in place of one that is there."""
    from safetensors.torch import save as serialise

    q = controller.inference
    parts: dict[str, Mapping[str, Tensor]] = {"policy": controller.policy.state_dict()}
    if q is not None:
        parts["inference"] = q.state_dict()
    tensors = {f"{part}.{key}": t for part, held in parts.items() for key, t in held.items()}
    data = serialise({key: t.detach().cpu().contiguous() for key, t in tensors.items()})
    described = _Description(
        observations=controller.observations,
        actions=controller.actions,
        seconds=controller.seconds,
        low=controller.low,
        high=controller.high,
        pieces=controller.pieces,
        context=controller.policy.context,
        hidden=controller.policy.hidden,
        inference=None if q is None else _Encoder(kind=q.kind, hidden=q.hidden),
        codes=tuple(tuple(code) for code in controller.codes.tolist()),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    write_bytes(folder / TENSORS, data)
    write_json(folder / DESCRIPTION, described.model_dump())


def load(folder: Path) -> SavedController:
    """Read a controller back; nothing in its files is executed.

    Raises
    ------
    UsageError : for a folder that holds none, or one that is damaged or of another version.
    """
    described = _described(folder / DESCRIPTION)
    path = folder / TENSORS
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}); save the controller again"
        ) from None
    if hashlib.sha256(data).hexdigest() != described.sha256:
        raise UsageError(
            f"{path} is damaged or belongs to another {DESCRIPTION}: its digest is not the one "
            "written there; copy both files again"
        )
    try:
        return _rebuilt(described, data)
    except (ValueError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(f"{folder} holds a controller whose parts do not fit: {reason}") from None


def load_from(place: Path) -> SavedController:
    """Read the controller of a run directory, or of a folder that holds one itself; see `load`."""
    return load(place / FOLDER if (place / FOLDER).is_dir() else place)


def _described(path: Path) -> _Description:
    try:
        return _Description.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{path.parent} holds no controller: {path.name} cannot be read ({error.strerror})"
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise UsageError(
            f"{path} does not describe a controller that this version of corymb can read "
            f"({where}{first['msg'][0].lower()}{first['msg'][1:]}); save or export it again"
        ) from None


def _rebuilt(described: _Description, data: bytes) -> SavedController:
    from safetensors import SafetensorError
    from safetensors.torch import load as parse

    try:
        tensors = parse(data)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds a value that is not a finite number")
    if described.inference is None and _part(tensors, "inference."):
        raise ValueError(f"{TENSORS} holds an inference network that {DESCRIPTION} does not name")
    with torch.device("meta"):  # takes neither memory nor random numbers before the sizes are held
        policy, q = _empty(described)
    policy.load_state_dict(_part(tensors, "policy."), assign=True)
    if q is not None:
        q.load_state_dict(_part(tensors, "inference."), assign=True)
    kept = described.model_dump(
        include={"observations", "actions", "seconds", "low", "high", "pieces"}
    )
    codes = np.array(described.codes, np.float32)
    return SavedController(policy=policy, inference=q, codes=codes, **kept)


def _empty(described: _Description) -> tuple[GaussianPolicy, PooledEncoder | None]:
    """Networks of the described sizes, whatever stands in them."""
    reads, answers = (_unit(len(names)) for names in (described.observations, described.actions))
    policy = GaussianPolicy(reads, answers, described.context, described.hidden)
    if (q := described.inference) is None:
        return policy, None
    inputs = len(described.actions)
    return policy, PooledEncoder(reads, inputs, described.context, q.kind, q.hidden)


def _unit(count: int) -> Units:
    return Units([0.0] * count, [1.0] * count)


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
