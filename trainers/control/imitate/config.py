"""Configuration of recipe `imitate`: which demonstrations, how they are cloned and judged."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from cluster.config import RunConfig
from cluster.plan import Plan
from trainers.control.demonstrations.settings import DemonstrationSettings
from trainers.control.imitate.settings import CloneSettings
from trainers.control.plants import PlantSettings


class DataSettings(DemonstrationSettings):
    """Which demonstrations are cloned; without a path, PI is recorded on the spot."""

    trajectories: int = Field(
        512, ge=2, description="Demonstrations to record, or at most to take from the file."
    )

    @model_validator(mode="after")
    def _truth_goes_with_a_file(self) -> Self:
        if self.truth is not None and self.path is None:
            raise ValueError("truth goes with a path; what is recorded on the spot is known")
        return self


class Config(RunConfig):
    """Cloning of demonstrations, conditional on modes that are inferred, and without modes."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "smoke": {"data": {"trajectories": 24}, "clone": {"steps": 20}, "rows": 2},
        "small": {},
        "paper": {"seeds": [0, 1, 2, 3, 4], "data": {"trajectories": 2112}},
    }

    data: DataSettings = DataSettings()
    plant: PlantSettings = Field(
        PlantSettings(), description="Recorded where no file is given; a file says its own plant."
    )
    clone: CloneSettings = CloneSettings()
    rows: int = Field(64, ge=1, description="Noisy episodes in each mode to judge by.")

    @model_validator(mode="after")
    def _can_be_recorded(self) -> Self:
        if self.data.path is None and self.plant.kind != "cstr":
            raise ValueError(
                "PI runs plant.kind 'cstr' alone; for another plant give data.path, a file that "
                "recipe expert wrote"
            )
        return self

    @property
    def recorded(self) -> PlantSettings:
        """What is recorded on the spot."""
        return self.plant

    def plan(self) -> Plan:
        """All is done in this process."""
        return Plan((), 2 * len(self.seeds) * self.clone.steps, "steps", ())
