"""Which plant is simulated, what is seen of it, and in which modes does it run?"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from cluster.config import Settings

if TYPE_CHECKING:
    from envs.interface import ProcessVectorEnv
    from trainers.control.networks import Units

Kind = Literal["cstr", "bioreactor"]

SEEN: Mapping[str, tuple[str, ...]] = {
    "cstr": ("CA", "T", "TC", "b"),
    "bioreactor": ("y1", "y2", "to_go"),
}
"""What is seen by default. The reactor's set-point is not, so that its mode is hidden."""

MODES: Mapping[str, tuple[float, ...]] = {"cstr": (90.0, 86.0), "bioreactor": (0.5, 0.7)}

ACTIONS: Mapping[str, tuple[str, ...]] = {"cstr": ("m",), "bioreactor": ("u1", "u2")}

SAMPLES: Mapping[str, int] = {"cstr": 300, "bioreactor": 20}

SECONDS: Mapping[str, float] = {"cstr": 10.0, "bioreactor": 0.05}
"""Between samples. The bioreactor's time has no unit; its batch lasts 1."""

_BIOREACTOR_UNITS: Mapping[str, tuple[float, float]] = {
    "y1": (0.5, 0.5), "y2": (0.4, 0.4), "to_go": (0.5, 0.5),
    "u1": (2.5, 2.5), "u2": (2.5, 2.5), "k": (0.6, 0.1),
}  # fmt: skip

_VALVE = (0.25, 0.1)
"""Centre and width of the valve's position as it is scaled for networks."""


class PlantSettings(Settings):
    """A simulated plant as a task."""

    kind: Kind = Field("cstr", description="The stirred-tank reactor, or the fed-batch bioreactor.")
    observe: tuple[str, ...] = Field(
        (),
        description="What a controller sees, in order. Default: CA, T, TC, b without the set-point "
        "(cstr), y1, y2, to_go (bioreactor).",
    )
    modes: tuple[float, ...] = Field(
        (),
        description="Set-points in C (cstr; default 90 and 86) or k (bioreactor; default .5, .7).",
    )
    noise: float = Field(
        0.03, ge=0, description="Standard deviation of the noise on CAi, kmol/m3 (cstr)."
    )
    correlation: float = Field(
        0.9, ge=0, lt=1, description="Of that noise between neighbouring samples."
    )

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        task(self)
        return self

    @property
    def seen(self) -> tuple[str, ...]:
        """Names of what is seen, with the default filled in."""
        return self.observe or SEEN[self.kind]

    @property
    def levels(self) -> tuple[float, ...]:
        """Set-point or k of each mode, with the default filled in."""
        return self.modes or MODES[self.kind]

    @property
    def samples(self) -> int:
        """Samples of an episode."""
        return SAMPLES[self.kind]


def task(plant: PlantSettings, /, **changes: Any) -> dict[str, Any]:
    """Return the keywords of the plant's environment, checked.

    Parameters
    ----------
    changes : keywords of `CSTRSettings` or `BioreactorSettings` that replace these.

    Raises
    ------
    ValueError : for settings that the environment refuses.
    """
    from envs.bioreactor_settings import BioreactorSettings
    from envs.cstr_settings import CSTRSettings, Noise

    keywords: dict[str, Any]
    if plant.kind == "cstr":
        noise = Noise(plant.noise, plant.correlation)
        keywords = {"observe": plant.seen, "setpoints": plant.levels, "noise": noise, **changes}
        CSTRSettings(**keywords)
    else:
        keywords = {"observe": plant.seen, "ks": plant.levels, **changes}
        BioreactorSettings(**keywords)
    return keywords


def environment(plant: PlantSettings, count: int, /, **changes: Any) -> "ProcessVectorEnv":
    """Return `count` plants as a vector environment; `changes` as in `task`."""
    from envs.bioreactor import BioreactorVectorEnv
    from envs.cstr import CSTRVectorEnv

    kind = CSTRVectorEnv if plant.kind == "cstr" else BioreactorVectorEnv
    return kind(num_envs=count, **task(plant, **changes))


def units(plant: PlantSettings) -> "tuple[Units, Units]":
    """How networks scale the plant's observations and actions."""
    from envs.cstr_settings import OBSERVABLES
    from trainers.control.networks import Units

    if plant.kind == "cstr":
        pairs = [OBSERVABLES[name][2:] for name in plant.seen]
        actions = [_VALVE]
    else:
        pairs = [_BIOREACTOR_UNITS[name] for name in plant.seen]
        actions = [_BIOREACTOR_UNITS[name] for name in ACTIONS["bioreactor"]]
    return Units(*zip(*pairs, strict=True)), Units(*zip(*actions, strict=True))


def explored(plant: PlantSettings) -> "Units":
    """How a policy that knows nothing yet scales actions, to try them over about their range."""
    from trainers.control.networks import Units

    return Units([0.3], [0.25]) if plant.kind == "cstr" else Units([2.5, 2.5], [1.5, 1.5])
