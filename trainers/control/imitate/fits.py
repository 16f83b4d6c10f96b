"""Do demonstrations fit the plant that their file names, and is every known mode among them?

Only a file that was changed after it was written does not fit; nothing downstream would notice.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cluster.errors import UsageError
from trainers.control.plants import ACTIONS, SECONDS, PlantSettings, environment, units
from trainers.control.trajectories import Trajectories

FAR = 60.0
"""Usual widths of an observation that its median may be off; kelvin for degrees C is over 130."""


def plant_of(path: Path, said: Mapping[str, Any]) -> PlantSettings:
    """The plant that a file says it is of.

    Raises
    ------
    UsageError : for one that this version cannot simulate.
    """
    try:
        return PlantSettings.model_validate_json(json.dumps(said))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise UsageError(
            f"{path} names a plant that this version of corymb does not know ({where}"
            f"{first['msg']}); record it again"
        ) from None


def check_plant(path: Path, data: Trajectories, plant: PlantSettings) -> None:
    """Hold trajectories against the plant of their file.

    Raises
    ------
    UsageError : naming all that differs: columns, sampling, actions beyond the plant's limits,
        observations in another unit.
    """
    wanted = (plant.seen, ACTIONS[plant.kind])
    problems = [
        f"its {what} are {', '.join(names)}, the plant's {', '.join(right)}"
        for what, names, right in zip(
            ("observations", "actions"), (data.observations, data.actions), wanted, strict=True
        )
        if names != right
    ]
    if data.seconds != SECONDS[plant.kind]:
        problems.append(f"samples are {data.seconds:g} apart, the plant's {SECONDS[plant.kind]:g}")
    if not problems:  # the columns are the plant's
        problems = [*_actions(data, plant), *_observations(data, plant)]
    if problems:
        raise UsageError(
            "\n".join(f"{path} does not fit the plant it names: {problem}" for problem in problems)
        )


def check_modes(mode: NDArray[np.int64], learnt: Sequence[NDArray[np.int64]], count: int) -> None:
    """Refuse known modes that nothing could be matched to.

    Parameters
    ----------
    mode : (n,), of all trajectories.
    learnt : for each seed, of those that are not held out.
    count : of the plant's modes.

    Raises
    ------
    UsageError : for a mode out of range, or one that no trajectory is left of.
    """
    beyond = sorted({*mode.tolist()} - {*range(count)})
    if beyond:
        raise UsageError(
            f"data.truth names mode {beyond[0]}, but modes are numbered from 0 to {count - 1}; "
            "correct it, or leave it out"
        )
    for part in learnt:
        lacking = sorted({*range(count)} - {*part.tolist()})
        if lacking:
            raise UsageError(
                f"Of mode {lacking[0]} there is no trajectory to learn from, {len(mode)} "
                "trajectories in all; take more (data.trajectories), or leave out a file's truth"
            )


def _actions(data: Trajectories, plant: PlantSettings) -> list[str]:
    space: Any = environment(plant, 1).single_action_space
    found = []
    for column, name in enumerate(data.actions):
        low, high = space.low[column], space.high[column]
        u = data.u[:, :, column]
        beyond = np.argwhere(data.valid & ((u < low) | (u > high)))
        if len(beyond):
            i, t = beyond[0]
            found.append(
                f"action '{name}' is outside [{low:g}, {high:g}] in {len(beyond)} sample(s); the "
                f"first is {u[i, t]:g}, sample {t + 1} of '{data.ids[i]}'"
            )
    return found


def _observations(data: Trajectories, plant: PlantSettings) -> list[str]:
    usual = units(plant)[0]
    medians = np.median(data.x[data.valid], axis=0)
    return [
        f"the median of '{name}' is {median:g}, the plant's is about {centre:g}; is it in another "
        "unit?"
        for name, median, centre, width in zip(
            data.observations, medians.tolist(), usual.centre, usual.width, strict=True
        )
        if abs(median - centre) > FAR * width
    ]
