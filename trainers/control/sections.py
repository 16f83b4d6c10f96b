"""What is shown of controllers in closed loop, whichever recipe they are of?"""

from pathlib import Path

from cluster.evidence import Figure, Result, Section
from trainers.control.pictures import response_pictures
from trainers.control.plants import PlantSettings
from trainers.control.scores import Scores, figures, table


def add_closed_loop(
    result: Result, plant: PlantSettings, scores: Scores, rows: int, folder: Path, own: str
) -> None:
    """Add figures, tables and pictures of every controller to a run's result.

    Parameters
    ----------
    rows : noisy episodes in each mode.
    folder : where the pictures go: `plots` of the run.
    own : the controller whose figures are the result; the others' are baselines.
    """
    for name, value in figures(plant, scores).items():
        of: dict[str, Figure] = result.figures if name.startswith(f"{own}.") else result.baselines
        of[name] = value
    if plant.kind == "cstr" and plant.noise > 0:
        noisy = (
            f"{rows} episodes in each mode, with the plant's noise; every controller meets the "
            "same. Means over seeds with 95 % intervals.",
        )
        result.sections.append(Section("Under noise", noisy, table(plant, scores, quiet=False)))
    quiet = ("One episode in each mode. The bound knows the plant and the future.",)
    result.sections.append(Section("Without noise", quiet, table(plant, scores, quiet=True)))
    for title, file, caption in response_pictures(plant, scores, folder):
        result.sections.append(Section(title, svg=f"plots/{file}", caption=caption))
