"""Where do demonstrations come from, and what do the columns of a user's file mean?"""

import math
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from cluster.config import RunPath, Settings
from cluster.problems import did_you_mean

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")


class Conversion(Settings):
    """Of a column's unit into the one it is used in: used = scale * written + offset."""

    scale: float = Field(1.0, description="Of what is written; 0.01 makes percent a share.")
    offset: float = Field(0.0, description="Added afterwards; -273.15 makes kelvin degrees C.")

    @field_validator("scale", "offset")
    @classmethod
    def _finite(cls, value: float) -> float:
        if not math.isfinite(value):
            raise ValueError(f"must be a finite number, got {value}")
        return value

    @model_validator(mode="after")
    def _keeps_something(self) -> Self:
        if self.scale == 0:
            raise ValueError("scale 0 would make every value the same")
        return self


class DemonstrationSettings(Settings):
    """A file of demonstrations: one of ours, which needs only `path`, or a historian's export."""

    path: RunPath | None = Field(None, description="Parquet of corymb, or any CSV or Parquet.")
    truth: RunPath | None = Field(
        None, description="File with the mode of each trajectory, to judge by and never to learn."
    )
    observations: tuple[str, ...] = Field((), description="Columns that a controller sees.")
    actions: tuple[str, ...] = Field((), description="Columns that it sets.")
    time: str | None = Field(None, description="Column of seconds, or of ISO 8601 timestamps.")
    trajectory: str | None = Field(None, description="Column that says which episode a row is of.")
    seconds: float | None = Field(None, gt=0, description="Between samples, after resampling.")
    gap: float | None = Field(
        None, gt=0, description="Seconds without a row after which another episode begins."
    )
    units: dict[str, Conversion] = Field(
        {}, description="Conversion of columns, also of a numeric time column, by name."
    )
    limits: dict[str, tuple[float, float]] = Field(
        {},
        description="Lowest and highest value of columns, by name, after conversion. A sensor "
        "beyond them is read as missing; an action beyond them cuts the episode.",
    )
    shortest: int = Field(10, ge=1, description="Samples of the shortest trajectory that is kept.")
    frozen: int = Field(
        30,
        ge=2,
        description="Samples that an observation may stand still while others move; a longer "
        "stretch is a frozen sensor.",
    )
    missing: int = Field(3, ge=0, description="Missing samples that interpolation may bridge.")

    @field_validator("limits")
    @classmethod
    def _ordered(cls, limits: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (low, high) in limits.items():
            if not low < high:  # also where one is no number
                raise ValueError(
                    f"the limits of '{name}' must be two numbers, the lower one first, got "
                    f"[{low:g}, {high:g}]"
                )
        return limits

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._role_problems(), *self._name_problems()]
        if self.path is None and self.described:
            problems.append(f"{', '.join(self.described)} describe a file, but path is not given")
        if self.path is not None and (self.described or _is_text(self.path)):
            problems += self.lacking()
        if self.frozen < self.missing + 2:
            problems.append(
                f"frozen ({self.frozen}) must be at least missing + 2 ({self.missing + 2}), or "
                "frozen sensors would be bridged"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def described(self) -> list[str]:
        """Keys that were given to say what the columns of a file mean."""
        names = (
            "observations",
            "actions",
            "time",
            "trajectory",
            "seconds",
            "gap",
            "units",
            "limits",
        )
        return [name for name in names if getattr(self, name)]

    def lacking(self) -> list[str]:
        """All that is missing to read a file that is not one of ours, as sentences; often none."""
        needed = ("observations", "actions", "time", "seconds")
        missing = [name for name in needed if not getattr(self, name)]
        if self.trajectory is None and self.gap is None:
            missing.append("trajectory (a column) or gap (seconds), where an episode ends")
        return [f"this file also needs {', '.join(missing)}"] if missing else []

    def _role_problems(self) -> list[str]:
        roles = [*self.observations, *self.actions, self.time, self.trajectory]
        names = [name for name in roles if name is not None]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        return [f"column '{name}' is named more than once; it has one role" for name in twice]

    def _name_problems(self) -> list[str]:
        columns = [*self.observations, *self.actions]
        known = {"units": [*columns, *([self.time] if self.time else [])], "limits": columns}
        return [
            f"{key}: '{name}' is not among the columns that are read{did_you_mean(name, words)}"
            for key, words in known.items()
            for name in getattr(self, key)
            if name not in words
        ]


def _is_text(path: str) -> bool:
    return Path(path).suffix.lower() in TEXT_SUFFIXES
