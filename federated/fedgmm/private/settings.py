"""What a run file can say about privacy, and what must be true of it before anything is sent."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from pydantic import Field, field_validator, model_validator

from cluster.config import Settings
from cluster.problems import ConfigError, did_you_mean

if TYPE_CHECKING:
    from federated.fedgmm.rows import Names


FEWEST_CLIENTS = 3
"""Clients of the smallest secure sum, as `masking.FEWEST`, without importing its ciphers here."""


class PrivacySettings(Settings):
    """How much an analysis may reveal of a row, and who sees a client's sums."""

    epsilon: float = Field(
        math.inf, gt=0, description="Budget of the whole analysis; .inf for no noise."
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="Probability that the promise fails.")
    bounds: dict[str, tuple[float, float]] = Field(
        {},
        description="Public [low, high] of every column by name, in the units of the data, from "
        "what is known of the variables and not from the rows, which are clipped to them.",
    )
    radius: float = Field(
        0.0, ge=0, description="Length that scaled rows are clipped to; 0 for no such clipping."
    )
    secure: bool = Field(
        False, description="Clients mask their sums, so that the server sees totals only."
    )

    @field_validator("bounds")
    @classmethod
    def _ordered(cls, bounds: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (low, high) in bounds.items():
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(
                    f"the bounds of '{name}' must be two finite numbers, the lower one first, got "
                    f"[{low:g}, {high:g}]"
                )
        return bounds

    @model_validator(mode="after")
    def _protects_something(self) -> Self:
        if math.isinf(self.epsilon) and not self.secure:
            raise ValueError(
                "this protects nothing: set a finite epsilon for noise, secure: true for masks, "
                "or both"
            )
        return self

    def check_clients(self, clients: int) -> None:
        """Raise ValueError if masks would not hide anything among so many clients."""
        if self.secure and clients < FEWEST_CLIENTS:
            raise ValueError(
                f"privacy.secure needs at least {FEWEST_CLIENTS} clients, there are {clients}: of "
                "two, each would learn the other's sums from the total"
            )

    def check_columns(self, studies: Sequence["Names"]) -> None:
        """Raise ConfigError naming every column without bounds, and bounds without a column."""
        columns = list(dict.fromkeys(c for names in studies for c in columns_of(names)))
        problems = [
            f"privacy.bounds.{name}: there is no column '{name}'{_nearest(name, columns)}"
            for name in self.bounds
            if name not in columns
        ]
        problems += [
            f"privacy.bounds.{name}: is required, the public [low, high] of column '{name}'"
            for name in columns
            if name not in self.bounds
        ]
        if problems:
            raise ConfigError(problems)


def _nearest(name: str, columns: Sequence[str]) -> str:
    """The column that was probably meant, also where only upper and lower case differ."""
    same = [column for column in columns if column.lower() == name.lower()]
    return did_you_mean(same[0] if same else name, columns)


def columns_of(names: "Names") -> tuple[str, ...]:
    """All columns of a study: y, x, z, w."""
    return (names.y, *names.x, *names.z, *names.w)


def bounds_of(
    names: Sequence[str], bounds: Mapping[str, tuple[float, float]]
) -> tuple[tuple[float, float], ...]:
    """Bounds in the order of the names."""
    return tuple(bounds[name] for name in names)
