"""How is a reward learnt, and how is it tried on a plant that has changed?"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cluster.config import Settings
from trainers.control.rl.settings import PolicySettings, over

Form = Literal["state", "shaped", "action"]


class RewardSettings(Settings):
    """Adversarial inverse reinforcement learning with an inferred mode (arXiv 2505.21026)."""

    form: Form = Field(
        "state",
        description="What the discriminator compares. action: D = exp r(x, u, z) / (exp r + pi), "
        "the paper's; shaped: r is g(x', z) and a difference of potentials, against pi; state: "
        "D = sigmoid g(x', z), which sees states alone.",
    )
    sees: tuple[str, ...] = Field(
        (),
        description="Observations that the reward reads. Default: error where it is observed, else "
        "T (cstr); all (bioreactor).",
    )
    settle: int = Field(
        600,
        ge=0,
        description="Steps in which the reward that is kept is fitted to disturbed rollouts alone. "
        "Against a policy that does as well as the experts, a reward grows flat around them.",
    )
    steps: int = Field(40, ge=1, description="Of the discriminator's Adam, an iteration.")
    batch: int = Field(512, ge=2, description="Samples of either side in such a step.")
    trajectories: int = Field(128, ge=1, description="Demonstrations that an iteration draws.")
    lr: float = Field(1e-3, gt=0, description="Of the discriminator and of q.")
    penalty: float = Field(
        0.1, ge=0, description="Weight of the squared gradient between both sides' samples."
    )
    information: float = Field(
        0.1, ge=0, description="Weight of what a rollout tells of its z, for q and for the reward."
    )
    disturbed: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the discriminator's negatives from rollouts whose actions were "
        "disturbed. Without them nothing is said of states that the policy avoids.",
    )
    disturbance: float = Field(
        3.0, ge=0, description="Largest deviation of those disturbances, in scaled actions."
    )
    hidden: tuple[int, ...] = Field((64, 64), min_length=1)
    simulator: Literal["replay", "truth"] = Field(
        "replay",
        description="Which mode is simulated for a demonstration's z. replay: the one in which its "
        "actions lead to its observations; truth: the file's, which needs data.truth.",
    )

    @model_validator(mode="after")
    def _negatives_fit_the_form(self) -> Self:
        if self.form != "state" and self.disturbed > 0:
            raise ValueError(
                f"form '{self.form}' weighs samples by the policy's density, which disturbed "
                "actions do not have; set disturbed to 0, or form to 'state'"
            )
        return self


class Change(Settings):
    """One way in which the plant differs from the one that was demonstrated."""

    name: str = Field(min_length=1, description="What tables call it.")
    factors: Mapping[str, float] = Field(
        {}, description="Parameters of the plant and what each is multiplied by (cstr)."
    )
    modes: tuple[float, ...] = Field(
        (), description="Set-points, or k, in place of the plant's, one for each mode."
    )


CHANGES = (
    Change(name="feed 5 % stronger", factors={"CAi": 1.05}),
    Change(name="feed 5 % weaker", factors={"CAi": 0.95}),
    Change(name="heat transfer 15 % less", factors={"U": 0.85}),
    Change(name="heat transfer 15 % more", factors={"U": 1.15}),
    Change(name="transmitter 3 times slower", factors={"tauT": 3.0}),
    Change(name="set-points 91 and 87", modes=(91.0, 87.0)),
)
"""Of the reactor; the last one's modes are in the order of 90 and 86."""

FRESH: Mapping[str, Any] = {"rows": 64, "samples": 100, "iterations": 150, "epochs": 6}
"""How a policy that knows nothing learns from a reward."""


class TransferSettings(Settings):
    """A fresh policy learns from the frozen reward alone, on a plant that has changed."""

    changes: tuple[Change, ...] = Field(
        (), description="One training each. Default: six changes (cstr), none (bioreactor)."
    )
    policy: Annotated[PolicySettings, over(FRESH)] = PolicySettings(**FRESH)
