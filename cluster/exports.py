"""What can be taken out of a run, and used without it? Dispatch to recipes, by name.

A recipe whose runs end in something to use has two more functions in its package:
`export(place, folder) -> {file: difference}`, which writes it and says how far each file's answers
are from the original's, and `predict(place, file, mode, infer) -> CSV text`.
"""

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cluster.catalogue import locate
from cluster.errors import UsageError
from cluster.files import write_json
from cluster.recipes import find
from cluster.run import read_record

EXPORTED = "exported.json"
"""Says where an exported folder came from, and which recipe can use it."""


def export(name: str, folder: Path | None) -> tuple[Path, dict[str, float]]:
    """Export a run into a folder, by default `export` in its directory.

    Returns
    -------
    tuple
        The folder, and of each file the largest difference from the original's answers.

    Raises
    ------
    UsageError : for a run that is not known, has not come so far, or has nothing to export.
    """
    place = locate(name)
    recipe = str(read_record(place)["recipe"])
    write = _ability(recipe, "export", f"Recipe {recipe} has nothing to export")
    target = place / "export" if folder is None else folder
    differences: dict[str, float] = write(place, target)
    origin = {"recipe": recipe, "run": place.name, "corymb": version("corymb")}
    write_json(target / EXPORTED, origin)
    return target, differences


def predict(name: str, file: Path, mode: int | None, infer: int | None) -> str:
    """Apply what a run learnt to a file and return CSV text.

    Parameters
    ----------
    name : a run, or a folder that `export` wrote.
    mode, infer : as the recipe understands them.

    Raises
    ------
    UsageError : for a run or folder that is none, or data that its recipe cannot use.
    """
    folder = Path(name)
    if (folder / EXPORTED).is_file():
        place, recipe = folder, _origin(folder / EXPORTED)
    else:
        place = locate(name)
        recipe = str(read_record(place)["recipe"])
    apply = _ability(recipe, "predict", f"Recipe {recipe} has nothing to predict with")
    text: str = apply(place, file, mode, infer)
    return text


def _ability(recipe: str, function: str, lacking: str) -> Callable[..., Any]:
    found: Callable[..., Any] | None = getattr(find(recipe).package, function, None)
    if found is None:
        raise UsageError(lacking)
    return found


def _origin(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["recipe"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path} does not say which recipe wrote it; export the run again"
        ) from None
