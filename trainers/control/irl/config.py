"""Configuration of recipe `irl`: demonstrations, clones, the reward, and plants that change."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import model_validator

from cluster.plan import Plan
from trainers.control.imitate import config as imitate
from trainers.control.irl.settings import RewardSettings, TransferSettings
from trainers.control.plants import PlantSettings
from trainers.control.rl.settings import PolicySettings, over

SEEN = ("CA", "T", "TC", "b", "error", "integral")
"""Of the reactor: the set-point too, since new ones must be told; the integral keeps clones from
resting beside it."""

BESIDE: Mapping[str, Any] = {
    "iterations": 40, "rows": 64, "epochs": 4, "lr": 3e-4, "log_sd": -1.0,
}  # fmt: skip
"""How the policy beside the reward learns: it begins as a clone and need not go far."""


class Config(imitate.Config):
    """A reward from demonstrations, and what a fresh policy makes of it on a changed plant."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "smoke": {
            "data": {"trajectories": 24},
            "clone": {"steps": 20},
            "rows": 2,
            "reward": {"steps": 4, "settle": 4},
            "policy": {"iterations": 2, "rows": 8, "samples": 40},
            "transfer": {"policy": {"iterations": 2, "rows": 8, "samples": 20}},
        },
        "small": {},
        "paper": {
            "seeds": [0, 1, 2, 3, 4],
            "data": {"trajectories": 2112},
            "reward": {"form": "action", "disturbed": 0.0},
            "policy": {"algorithm": "trpo"},
        },
        "bioreactor": {
            "plant": {"kind": "bioreactor"},
            "policy": {"rows": 256, "gamma": 1.0, "minibatch": 1280},
            "transfer": {"policy": {"rows": 256, "samples": 20, "gamma": 1.0, "minibatch": 1280}},
        },
    }

    reward: RewardSettings = RewardSettings()
    policy: Annotated[PolicySettings, over(BESIDE)] = PolicySettings(**BESIDE)
    transfer: TransferSettings = TransferSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        labelled = self.data.path is None or self.data.truth is not None
        if self.reward.simulator == "truth" and not labelled:
            raise ValueError("reward.simulator is 'truth', but data.truth is not given")
        names = [change.name for change in self.transfer.changes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"transfer.changes: two are called '{name}'")
        return self

    @property
    def recorded(self) -> PlantSettings:
        """What is recorded on the spot; what is seen is more than `imitate` sees by default."""
        if self.plant.observe or self.plant.kind != "cstr":
            return self.plant
        return self.plant.model_copy(update={"observe": SEEN})

    def plan(self) -> Plan:
        """The driver, and the env runners and learners of whichever training has more."""
        each = (self.policy, self.transfer.policy)
        actors = max(policy.runners + policy.learners for policy in each)
        return Plan(
            ({"CPU": 1.0},) * (1 + actors),
            len(self.seeds) * self.policy.iterations,
            "iterations",
            ("policy.runners", "policy.learners", "cluster.num_cpus"),
        )
