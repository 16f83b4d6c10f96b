"""How do the bioreactor's settings become the arrays that its compiled interval reads?"""

from collections.abc import Mapping

import numpy as np

from envs import bioreactor_kernel as kernel
from envs.bioreactor_plant import INTERVALS, U_MAX, WIDTH, Y_START
from envs.bioreactor_settings import OBSERVABLES, BioreactorSettings
from envs.layout import MODE, TIME, Flags
from envs.simulation import Port, Simulation, one_each


class BioreactorSimulation(Simulation):
    """`count` bioreactors with the same settings, and the same plant or one each.

    `read` knows the observables, sample, mode, and moved, the last |du1| + |du2|.

    Raises
    ------
    ValueError : where there are plants of another number than rows.
    """

    names: Mapping[str, int] = {
        "y1": kernel.Y1, "y2": kernel.Y2, "to_go": kernel.TO_GO, "u1": kernel.U1,
        "u2": kernel.U2, "k": kernel.K, "moved": kernel.MOVED, "sample": TIME, "mode": MODE,
    }  # fmt: skip

    def __init__(self, settings: BioreactorSettings, count: int) -> None:
        observed = list(settings.observe)
        super().__init__(count, len(settings.ks), kernel.FIELDS, 2, len(observed))
        self.settings = settings
        plants = one_each(settings.plant, count)
        self.put(kernel.A, [p.a for p in plants])
        self.put(kernel.B, [p.b for p in plants])
        self.put(kernel.D, [p.d for p in plants])
        self._plan = np.zeros(kernel.PLAN)
        self._plan[[kernel.STEP, kernel.INTERVALS, kernel.HIGHEST]] = WIDTH, INTERVALS, U_MAX
        self._plan[[kernel.MOVE, kernel.Y1_START, kernel.Y2_START]] = settings.move, *Y_START
        self._ks = np.array(settings.ks, np.float64)
        self._select = np.array([(self.names[name], 0.0, 1.0) for name in observed])
        low, high = np.array([OBSERVABLES[name] for name in observed]).T
        self.obs_port = Port(low, high)
        self.action_port = Port(np.zeros(2), np.full(2, U_MAX))
        self.ask(settings.mode)
        self._arguments = (
            self.actions, self.rows, self.words, self._plan, self._ks, self._select, self.obs,
            self.reward, self.terminated,
        )  # fmt: skip

    def advance(self) -> int:
        """Take one interval; see the base class."""
        return kernel.bioreactor_advance(*self._arguments)

    def restart(self, chosen: Flags) -> None:
        """Begin episodes; see the base class."""
        kernel.bioreactor_reset(
            chosen, self.rows, self.words, self._plan, self._ks, self._select, self.obs
        )
