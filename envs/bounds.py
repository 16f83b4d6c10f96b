"""What is the best that can be reached, as tested numbers? No solver is needed to look it up.

`bounds.json` beside this file says how each was computed, and `python -m envs.bounds` computes them
anew; a test does so wherever casadi is installed.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TABLE = Path(__file__).with_name("bounds.json")

HOW = {
    "method": "direct multiple shooting, solved by IPOPT (tolerance 1e-9) through casadi",
    "cstr": "default plant at rest at 88 C, no noise, m in [0, 1], 150 samples of 10 s by two "
    "Runge-Kutta steps of order 4; smallest sum of |set-point - T| after each sample, times 10 s. "
    "It is settled well before the end, so more samples leave the value as it is.",
    "bioreactor": "default plant, 20 intervals solved exactly, u in [0, 5]^2; largest "
    "y2(1) - move * sum of |du1| + |du2|, the first controls being no move; best of five random "
    "starts, which agree",
}


@dataclass(frozen=True)
class Bound:
    """A best attainable figure.

    Attributes
    ----------
    value : IAE in C s, the smallest; or return, the largest.
    actions : (samples, a), the controls that attain it.
    y2 : the bioreactor's y2(1) under them; NaN for the reactor.
    """

    value: float
    actions: NDArray[np.float64]
    y2: float = float("nan")


def cstr_bound(setpoint: float) -> Bound:
    """Return the smallest IAE, C s, of the default reactor's step from 88 C.

    Raises
    ------
    ValueError : for a set-point that is not in the table; `envs.optimal.cstr_optimum` solves it.
    """
    return _find("cstr", "set-point", {"setpoint": setpoint})


def bioreactor_bound(k: float, move: float = 0.01) -> Bound:
    """Return the largest return of the default bioreactor under equation 32.

    Parameters
    ----------
    k : the mode's parameter.
    move : weight of the moves; 0 makes the value the largest y2(1).

    Raises
    ------
    ValueError : for what is not in the table; `envs.optimal.bioreactor_optimum` solves it.
    """
    return _find("bioreactor", "k and weight of moves", {"k": k, "move": move})


def _find(plant: str, what: str, key: dict[str, float]) -> Bound:
    rows = json.loads(TABLE.read_text(encoding="utf-8"))[plant]
    for row in rows:
        if all(row[name] == value for name, value in key.items()):
            return Bound(row["value"], np.array(row["actions"]), row.get("y2", float("nan")))
    known = "; ".join(", ".join(f"{row[name]:g}" for name in key) for row in rows)
    raise ValueError(
        f"No bound is kept for {what} {', '.join(f'{v:g}' for v in key.values())}; there is one "
        f"for {known}."
    )


def compute() -> dict[str, Any]:
    """Solve for all bounds that are kept, as the table's content.

    Raises
    ------
    ImportError : without casadi.
    """
    from envs.bioreactor_plant import BioreactorPlant
    from envs.cstr_plant import CSTRPlant
    from envs.optimal import bioreactor_optimum, cstr_optimum

    tracked, grown = [], []
    for setpoint in (90.0, 86.0):
        best = cstr_optimum(CSTRPlant(), setpoint)
        actions = (best.actions.round(6) + 0.0).tolist()
        tracked.append({"setpoint": setpoint, "value": round(best.value, 4), "actions": actions})
    for k in (0.5, 0.7):
        for move in (0.01, 0.0):
            best = bioreactor_optimum(BioreactorPlant(), k, move)
            y2, actions = float(best.states[-1, 1]), (best.actions.round(6) + 0.0).tolist()
            row = {"k": k, "move": move, "value": round(best.value, 6), "y2": round(y2, 6)}
            grown.append({**row, "actions": actions})
    return {"how": HOW, "cstr": tracked, "bioreactor": grown}


if __name__ == "__main__":
    TABLE.write_text(json.dumps(compute()) + "\n", encoding="utf-8")
