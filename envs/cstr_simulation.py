"""How do the reactor's settings become the arrays that its compiled sample reads?"""

from collections.abc import Mapping

import numpy as np

from envs import cstr_kernel as kernel
from envs.checks import need
from envs.cstr_plant import GAS, SAMPLE, CSTRPlant, operating_point
from envs.cstr_settings import OBSERVABLES, CSTRSettings, StepChange
from envs.layout import MODE, TIME, Flags, Floats
from envs.simulation import Port, Simulation, one_each

_OBSERVED = {
    "CA": kernel.CA, "T": kernel.T, "TC": kernel.TC, "b": kernel.B, "m": kernel.M,
    "setpoint": kernel.SETPOINT, "error": kernel.ERROR, "integral": kernel.INTEGRAL,
}  # fmt: skip


class CSTRSimulation(Simulation):
    """`count` reactors with the same settings, and the same plant or one each.

    Besides the observables, `read` knows moved (m's last change), sample, mode, the inputs in
    force Ti, Tci, F and CAi, and drift, the noise that comes on top of CAi.

    Raises
    ------
    ValueError : where a plant cannot rest at the temperature from which episodes start, or step
        changes would make its feed or the feed's concentration negative.
    """

    names: Mapping[str, int] = {
        **_OBSERVED, "moved": kernel.MOVED, "sample": TIME, "mode": MODE, "drift": kernel.DRIFT,
        "CAi": kernel.CAI, "Ti": kernel.TI, "Tci": kernel.TCI, "F": kernel.F,
    }  # fmt: skip

    def __init__(self, settings: CSTRSettings, count: int) -> None:
        super().__init__(
            count, len(settings.setpoints), kernel.FIELDS, 1, len(tuple(settings.observe))
        )
        self.settings = settings
        for field, values in _constants(settings, count).items():
            self.put(field, values)
        self._plan = _plan(settings)
        self._setpoints = np.array(settings.setpoints, np.float64)
        self._changes = np.array(
            [(self.names[c.input], c.sample, c.size) for c in settings.changes], np.float64
        ).reshape(-1, 3)
        self._select, self.obs_port = _view(settings)
        reach = settings.increment
        increments = settings.action == "increment"
        low, high = (-reach, reach) if increments else (0.0, 1.0)
        self.action_port = Port(np.array([low]), np.array([high]))
        self.ask(settings.mode)
        self._arguments = (
            self.actions, self.rows, self.words, self._plan, self._setpoints, self._changes,
            self._select, self.obs, self.reward, self.terminated, self.truncated,
        )  # fmt: skip

    def advance(self) -> int:
        """Take one sample; see the base class."""
        return kernel.cstr_advance(*self._arguments)

    def restart(self, chosen: Flags) -> None:
        """Begin episodes; see the base class."""
        kernel.cstr_reset(
            chosen, self.rows, self.words, self._plan, self._setpoints, self._select, self.obs
        )

    def inputs(self) -> Floats:
        """Return CAi with its noise, Ti, Tci and F as they were in the last sample, (n, 4)."""
        concentration = self.read("CAi") + self.read("drift")
        return np.column_stack([concentration, *(self.read(name) for name in ("Ti", "Tci", "F"))])

    def foresee(self, samples: int) -> Floats:
        """Return what `inputs` will be in each of the coming samples, (n, samples, 4).

        Beyond the end of a row's episode they stay what they were last.
        """
        future = self.copy()
        future.actions[:] = 0.0
        seen = np.empty((self.count, samples, 4))
        going = np.ones(self.count, np.bool_)
        now = self.inputs()
        for t in range(samples):
            future.advance()
            now = np.where(going[:, None], future.inputs(), now)
            seen[:, t] = now
            going &= future.read("sample") < self.settings.samples
        return seen


def _constants(settings: CSTRSettings, count: int) -> dict[int, Floats]:
    """Inputs, start and coefficients of each row, by field; each (count,)."""
    plants = one_each(settings.plant, count)
    by_plant = {p: _constants_of(p, settings) for p in set(plants)}
    return {k: np.array([by_plant[p][k] for p in plants]) for k in by_plant[plants[0]]}


def _constants_of(plant: CSTRPlant, settings: CSTRSettings) -> dict[int, float]:
    rest = operating_point(plant, settings.start)
    for name, value in (("CAi", plant.CAi), ("F", plant.F)):
        sizes = [c.size for c in sorted(settings.changes, key=_sample) if c.input == name]
        lowest = value + np.cumsum(sizes).min(initial=0.0)
        need(lowest >= 0, f"The step changes of {name} would bring it to {lowest:.4g}.")
    second = float(plant.reaction_order == 2)
    return {
        kernel.CAI0: plant.CAi, kernel.TI0: plant.Ti, kernel.TCI0: plant.Tci, kernel.F0: plant.F,
        kernel.CA0: rest.CA, kernel.T0: rest.T, kernel.TC0: rest.TC, kernel.B0: rest.b,
        kernel.M0: rest.m, kernel.PER_V: 1 / plant.V, kernel.K0: plant.k0,
        kernel.E_R: -plant.E / GAS, kernel.SECOND: second, kernel.FIRST: 1 - second,
        kernel.HEAT: -plant.dHr / (plant.rho * plant.cp),
        kernel.WARM: plant.U * plant.A / plant.tank_heat,
        kernel.COOL: plant.U * plant.A / plant.jacket_heat, kernel.PER_VC: 1 / plant.Vc,
        kernel.PER_TAU: 1 / plant.tauT, kernel.FC_MAX: plant.Fcmax,
        kernel.LN_ALPHA: float(np.log(plant.alpha)),
    }  # fmt: skip


def _sample(change: StepChange) -> int:
    return change.sample


def _plan(settings: CSTRSettings) -> Floats:
    """Scalars that all rows share, (PLAN,)."""
    reward, safety, noise = settings.reward, settings.safety, settings.noise
    plan = np.zeros(kernel.PLAN)
    entries = {
        kernel.STEP: SAMPLE, kernel.SAMPLES: settings.samples,
        kernel.INCREMENT: settings.action == "increment", kernel.RATE: safety.rate,
        kernel.LOW: safety.low, kernel.HIGH: safety.high, kernel.TRIP: reward.trip,
        kernel.ABSOLUTE: reward.absolute, kernel.SQUARE: reward.square, kernel.MOVE: reward.move,
        kernel.BONUS: reward.bonus, kernel.BAND: reward.band, kernel.NOISE_SD: noise.sd,
        kernel.NOISE_AR: noise.correlation,
    }  # fmt: skip
    for entry, value in entries.items():
        plan[entry] = value
    return plan


def _view(settings: CSTRSettings) -> tuple[Floats, Port]:
    """Field, centre and scale of each observed column, (k, 3), and the columns' bounds."""
    known = np.array([OBSERVABLES[name] for name in settings.observe])
    low, high, centre, width = known.T
    if not settings.scaled:
        centre, width = np.zeros_like(centre), np.ones_like(width)
    fields = [_OBSERVED[name] for name in settings.observe]
    select = np.column_stack([fields, centre, 1 / width]).astype(np.float64)
    return select, Port((low - centre) / width, (high - centre) / width)
