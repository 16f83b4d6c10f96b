"""How is a policy optimised? Rollouts, the surrogate's options, sizes of networks."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from cluster.config import Settings


class PolicySettings(Settings):
    """Proximal policy optimisation (arXiv 1707.06347), or TRPO (arXiv 1502.05477)."""

    algorithm: Literal["ppo", "trpo"] = Field("ppo", description="How the policy is moved.")
    iterations: int = Field(150, ge=1, description="Rollouts, each followed by an update.")
    rows: int = Field(64, ge=1, description="Episodes of a rollout, over all env runners.")
    samples: int | None = Field(
        None, ge=1, description="Samples of each of them; by default the plant's whole episode."
    )
    runners: int = Field(
        0, ge=0, description="Env runners as actors of their own; 0 samples in the driver."
    )
    learners: int = Field(
        0, ge=0, description="Learners as actors of their own; 0 learns in the driver."
    )
    gamma: float = Field(0.97, ge=0, le=1, description="Discount a sample.")
    trace: float = Field(0.95, ge=0, le=1, description="Lambda of the advantages (GAE).")
    lr: float = Field(1e-3, gt=0, description="Of Adam at the start; it falls linearly to zero.")
    epochs: int = Field(8, ge=1, description="Passes over a rollout.")
    minibatch: int = Field(1600, ge=1, description="Samples of one step of Adam.")
    clip: float = Field(0.2, gt=0, description="PPO: how far a probability ratio may move.")
    divergence: float = Field(
        0.03,
        gt=0,
        description="Mean KL divergence of a rollout's policy from the new one: PPO ends its "
        "epochs there, TRPO steps as far.",
    )
    reward_scale: float = Field(0.1, gt=0, description="Rewards are multiplied by this.")
    value_weight: float = Field(0.5, ge=0, description="PPO: of the value's loss.")
    entropy: float = Field(0.0, ge=0, description="Weight of the policy's entropy.")
    grad_clip: float = Field(0.5, gt=0, description="Largest norm of a gradient.")
    hidden: tuple[int, ...] = Field((64, 64), min_length=1, description="Of policy and value.")
    log_sd: float = Field(-0.5, description="Of the policy at the start, in scaled actions.")

    @model_validator(mode="after")
    def _can_be_shared_out(self) -> Self:
        if self.algorithm == "trpo" and self.learners > 1:
            raise ValueError(
                "algorithm 'trpo' solves for one step over all samples, by one learner; set "
                "learners to 0 or 1, or use 'ppo'"
            )
        return self


def over(defaults: Mapping[str, Any]) -> BeforeValidator:
    """Lay what a file gives over a recipe's own defaults instead of over those of the class."""

    def laid(given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        # What passed through here is held to Python's types, where a list is no tuple.
        fixed = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
        return {**defaults, **fixed}

    return BeforeValidator(laid)
