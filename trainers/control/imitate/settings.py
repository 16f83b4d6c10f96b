"""How are demonstrations cloned? Sizes of networks, steps, and what z is."""

from typing import Literal

from pydantic import Field

from cluster.config import Settings


class CloneSettings(Settings):
    """Mode-conditional behaviour cloning; pi(u | x, z) and q(z | tau) learnt together."""

    modes: int = Field(2, ge=1, description="K modes, or the length of a Gaussian z.")
    context: Literal["discrete", "gaussian"] = Field("discrete", description="What z is.")
    steps: int = Field(3000, ge=1, description="Steps of Adam.")
    batch: int = Field(64, ge=1, description="Trajectories in a step.")
    times: int = Field(48, ge=1, description="Samples of each of them whose action is predicted.")
    pieces: tuple[int, ...] = Field(
        (5, 10, 20, 50, 100000),
        min_length=1,
        description="Samples from a trajectory's begin that q reads; each step takes one of these.",
    )
    lr: float = Field(3e-3, gt=0, description="At the start; it falls to zero as a cosine.")
    regulariser: float = Field(
        1.0, ge=0, description="Weight of the mutual information of z, or of the divergence."
    )
    temperature: tuple[float, float] = Field(
        (1.0, 0.3), description="Of the Gumbel-softmax: first, and from a third of the steps on."
    )
    hidden: tuple[int, ...] = Field((64, 64), min_length=1)
    held_out: float = Field(
        0.1, gt=0, lt=1, description="Share of trajectories that are kept for judging."
    )
