"""What does the reward read, and on which changed plants is it tried? Held against the data."""

from dataclasses import dataclass, fields, replace
from typing import Any

from cluster.errors import UsageError
from trainers.control.imitate.data import Demonstrations
from trainers.control.irl.config import Config
from trainers.control.irl.settings import CHANGES, Change
from trainers.control.plants import PlantSettings, environment


@dataclass(frozen=True)
class Cases:
    """What a run does, once the plant of its demonstrations is known.

    Attributes
    ----------
    columns : which observations the reward reads.
    changes : of the plant.
    """

    columns: tuple[int, ...]
    changes: tuple[Change, ...]


def cases(config: Config, given: Demonstrations) -> tuple[PlantSettings, Cases]:
    """The plant to simulate, and what is done on it.

    Raises
    ------
    UsageError : for a plant that cannot be simulated, a reward that reads what is not observed, or
        a change that cannot be made.
    """
    plant = given.plant
    if plant is None:
        raise UsageError(
            "These demonstrations are of a plant that cannot be simulated, and a reward is learnt "
            "by running policies on a simulated one; use recipe 'imitate', or a file that recipe "
            "'expert' wrote"
        )
    sees = config.reward.sees or _default(plant)
    lacking = [name for name in sees if name not in plant.seen]
    if lacking:
        raise UsageError(
            f"reward.sees names {lacking[0]}, which is not observed; observed are "
            f"{', '.join(plant.seen)}"
        )
    told = plant.kind == "cstr" and "error" not in sees
    changes_ = config.transfer.changes or _changes(plant, told=told)
    for change in changes_:
        _check(plant, change, told=told)
    return plant, Cases(tuple(plant.seen.index(name) for name in sees), changes_)


def changed(plant: PlantSettings, change: Change) -> tuple[PlantSettings, dict[str, Any]]:
    """The changed plant: its modes, and keywords of the environment's settings."""
    from envs.cstr_plant import CSTRPlant

    moved = plant.model_copy(update={"modes": change.modes or plant.levels})
    if not change.factors:
        return moved, {}
    before = CSTRPlant()
    values = {name: getattr(before, name) * f for name, f in change.factors.items()}
    return moved, {"plant": replace(before, **values)}


def _default(plant: PlantSettings) -> tuple[str, ...]:
    if plant.kind == "bioreactor":
        return plant.seen
    return ("error",) if "error" in plant.seen else ("T",)


def _changes(plant: PlantSettings, *, told: bool) -> tuple[Change, ...]:
    """The default ones; a set-point that the reward cannot see cannot be changed."""
    if plant.kind != "cstr":
        return ()
    fits = [c for c in CHANGES if not (c.modes and (told or len(c.modes) != len(plant.levels)))]
    return tuple(fits)


def _check(plant: PlantSettings, change: Change, *, told: bool) -> None:
    from envs.cstr_plant import CSTRPlant

    where = f"transfer.changes, '{change.name}'"
    known = [f.name for f in fields(CSTRPlant)] if plant.kind == "cstr" else []
    for name in change.factors:
        if name not in known:
            one_of = f"; it has {', '.join(known)}" if known else ""
            raise UsageError(f"{where}: the {plant.kind} has no parameter {name} to change{one_of}")
    if change.modes and len(change.modes) != len(plant.levels):
        raise UsageError(
            f"{where}: {len(change.modes)} modes are given; the plant has {len(plant.levels)}"
        )
    if change.modes and told:
        raise UsageError(
            f"{where}: the reward reads no error, so it cannot know of another set-point; observe "
            "'error' and let reward.sees name it"
        )
    try:
        moved, keywords = changed(plant, change)
        environment(moved, 1, **keywords)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
