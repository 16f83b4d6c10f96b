"""Configuration of recipe `expert`: the plant, who runs it, and how much of it is recorded."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cluster.config import RunConfig
from cluster.plan import Plan
from trainers.control.plants import PlantSettings, task
from trainers.control.rl.settings import PolicySettings, over

SEES: Mapping[str, tuple[str, ...]] = {
    "cstr": ("CA", "T", "TC", "b", "error"),
    "bioreactor": ("y1", "y2", "to_go", "k", "u1", "u2"),
}
"""What an expert sees by default: the mode too, and what the bioreactor's reward depends on."""

REACTOR: Mapping[str, Any] = {
    "algorithm": "trpo", "rows": 128, "samples": 100, "iterations": 180, "epochs": 4,
    "divergence": 0.02, "entropy": 0.03,
}  # fmt: skip
"""How the reactor's expert is learnt, where a run file says nothing else. With PPO a mode that
begins badly is still far from the bound after 300 iterations; without the entropy the policy's
deviation becomes small before the valve's first move is learnt."""

BIOREACTOR: Mapping[str, Any] = {
    "algorithm": "ppo", "rows": 256, "samples": 20, "iterations": 200, "gamma": 1.0, "trace": 0.97,
    "lr": 2e-3, "epochs": 8, "minibatch": 1280, "divergence": 0.03, "entropy": 0.0,
    "reward_scale": 10.0,
}  # fmt: skip


class Config(RunConfig):
    """An expert and its demonstrations."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "smoke": {"trajectories": 32, "rows": 4, "policy": {"iterations": 2, "rows": 8}},
        "small": {},
        "paper": {"seeds": [0, 1, 2, 3, 4]},
        "bioreactor": {
            "plant": {"kind": "bioreactor"},
            "expert": "learnt",
            "exploration": 1.0,
            "policy": BIOREACTOR,
        },
    }

    plant: PlantSettings = PlantSettings()
    expert: Literal["pi", "learnt"] = Field(
        "pi", description="PI on the transmitter (cstr only), or a policy learnt on RLlib."
    )
    sees: tuple[str, ...] = Field(
        (), description="What a learnt expert sees. Default: what is observed, and the mode."
    )
    policy: Annotated[PolicySettings, over(REACTOR)] = PolicySettings(**REACTOR)
    trajectories: int = Field(
        2112, ge=2, description="Demonstrations to record, by the first seed's expert."
    )
    exploration: float = Field(
        0.0, ge=0, description="Of a learnt expert's own noise in them; 1 is as it was trained."
    )
    rows: int = Field(64, ge=1, description="Noisy episodes in each mode to judge by.")

    @model_validator(mode="after")
    def _fits_the_plant(self) -> Self:
        if self.expert == "pi" and self.plant.kind != "cstr":
            raise ValueError("expert 'pi' is for plant.kind 'cstr'; use expert 'learnt'")
        if self.trajectories < len(self.plant.levels):
            raise ValueError(
                f"trajectories is {self.trajectories}, fewer than the plant's "
                f"{len(self.plant.levels)} modes"
            )
        task(self.full_plant)
        return self

    @property
    def full_plant(self) -> PlantSettings:
        """The plant as the expert sees it."""
        return self.plant.model_copy(update={"observe": self.sees or SEES[self.plant.kind]})

    def plan(self) -> Plan:
        """A learnt expert takes the driver, and its env runners and learners."""
        if self.expert == "pi":
            return Plan((), len(self.seeds), "seeds", ())
        actors = self.policy.runners + self.policy.learners
        return Plan(
            ({"CPU": 1.0},) * (1 + actors),
            len(self.seeds) * self.policy.iterations,
            "iterations",
            ("policy.runners", "policy.learners", "cluster.num_cpus"),
        )
