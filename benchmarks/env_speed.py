"""Speed of the environments: steps per CPU-second through Gymnasium's whole interface.

What is timed is `step` of what `gymnasium.make` and `gymnasium.make_vec` return: physics, noise,
observation, reward, and the resets that ends of episodes bring. Process time is counted, so that
a busy machine costs little; each figure is the mean of several windows, with its 95 % interval.

pcgym's reactor (a simpler one of 2 states, with its faster integrator) is timed in the same run,
window by window in turn, in an interpreter of its own where pcgym is installed.

    python -m benchmarks.env_speed --pcgym /path/to/python    # about two minutes
    python -m benchmarks.env_speed --quick                    # under a minute
"""

import argparse
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import gymnasium
import numpy as np

from benchmarks.evidence import Claim, keep, print_claims
from cluster.evidence import interval
from envs.registration import BIOREACTOR, CSTR

GOAL_VECTOR, GOAL_SINGLE, GOAL_RATIO = 6e6, 1.5e5, 100.0

COUNTS = (1, 16, 128, 1024, 8192)

PCGYM = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from pcgym import make_env
n = 100
env = make_env({
    "N": n, "tsim": 26, "SP": {"Ca": [0.85] * n}, "x0": np.array([0.8, 330.0, 0.8]),
    "o_space": {"low": np.array([0.7, 300.0, 0.8]), "high": np.array([1.0, 350.0, 0.9])},
    "a_space": {"low": np.array([295.0]), "high": np.array([302.0])},
    "model": "cstr", "integration_method": "casadi", "r_scale": {"Ca": 1e3},
})
env.reset(seed=0)
action = np.zeros(1, np.float32)
for line in sys.stdin:
    steps, begun = 0, time.process_time()
    while time.process_time() - begun < float(line):
        done = env.step(action)[2]
        steps += 1
        if done:
            env.reset()
    print(steps / (time.process_time() - begun), flush=True)
"""
"""A server of windows: a line with CPU-seconds in, a line with steps per CPU-second out."""


@dataclass(frozen=True)
class Rate:
    """Steps per CPU-second, or a ratio of such: mean over windows and its 95 % interval."""

    mean: float
    low: float
    high: float
    windows: int


def rate(values: list[float]) -> Rate:
    """Summarise windows by Student's interval of their mean."""
    mean, low, high = interval(values)
    assert low is not None
    assert high is not None
    return Rate(mean, low, high, len(values))


Window = Callable[[float], float]


def single(name: str) -> Window:
    """Return what times one environment for some CPU-seconds; it answers steps per CPU-second."""
    env = gymnasium.make(name)
    env.reset(seed=0)
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    action = (space.low + 0.3 * (space.high - space.low)).astype(np.float32)

    def window(seconds: float) -> float:
        steps, begun = 0, time.process_time()
        while (spent := time.process_time() - begun) < seconds:
            for _ in range(500):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            steps += 500
        return steps / spent

    window(0.05)
    return window


def vector(name: str, count: int) -> Window:
    """Return what times a vector environment; every row of every step counts."""
    env = gymnasium.make_vec(name, num_envs=count)
    env.reset(seed=0)
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    actions = (space.low + 0.3 * (space.high - space.low)).astype(np.float32)
    chunk = max(1, 20_000 // count)

    def window(seconds: float) -> float:
        steps, begun = 0, time.process_time()
        while (spent := time.process_time() - begun) < seconds:
            for _ in range(chunk):
                env.step(actions)
            steps += chunk * count
        return steps / spent

    window(0.05)
    return window


class Pcgym:
    """pcgym's reactor in another interpreter."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), "-c", PCGYM],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, seconds: float) -> float:
        """Time a window."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("pcgym's interpreter ended; is pcgym installed there?")
        return float(answer)

    def close(self) -> None:
        """End the other interpreter."""
        self._process.communicate("")


def measure(
    python: Path | None, seconds: float, windows: int
) -> tuple[dict[str, Rate], Rate | None]:
    """Time everything, window by window in turn; rates by name, and the ratio to pcgym."""
    timed: dict[str, Window] = {}
    for short, name in (("cstr", CSTR), ("bioreactor", BIOREACTOR)):
        timed[f"{short}.single"] = single(name)
        timed |= {f"{short}.vector_{n}": vector(name, n) for n in COUNTS}
    other = None if python is None else Pcgym(python)
    if other is not None:
        timed["pcgym.single"] = other
        other(0.2)
    found: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(windows):
        for name, window in timed.items():
            found[name].append(window(seconds))
    if other is None:
        return {name: rate(values) for name, values in found.items()}, None
    other.close()
    ratios = [a / b for a, b in zip(found["cstr.single"], found["pcgym.single"], strict=True)]
    return {name: rate(values) for name, values in found.items()}, rate(ratios)


def claims(rates: dict[str, Rate], ratio: Rate | None) -> list[Claim]:
    """Hold the reactor's rates against the goals."""
    peer = {} if ratio is None else {"pcgym": rates["pcgym.single"].mean}
    found = [
        _claim("steps_per_cpu_s.vector_1024", rates["cstr.vector_1024"], GOAL_VECTOR, peer),
        _claim("steps_per_cpu_s.single", rates["cstr.single"], GOAL_SINGLE, peer),
    ]
    if ratio is not None:
        found.append(_claim("ratio_to_pcgym.single", ratio, GOAL_RATIO, peer))
    return found


def _claim(name: str, rate: Rate, goal: float, beside: dict[str, float]) -> Claim:
    return Claim(name, rate.mean, goal, "higher", beside, rate.low, rate.high)


def main() -> None:
    """Measure, keep, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="short windows, under a minute")
    parser.add_argument("--pcgym", type=Path, help="a Python that has pcgym, to compare with")
    arguments = parser.parse_args()
    seconds, windows = (0.2, 3) if arguments.quick else (1.0, 7)
    rates, ratio = measure(arguments.pcgym, seconds, windows)
    table = [{"name": name, **asdict(found)} for name, found in rates.items()]
    keep("env_speed", claims(rates, ratio), [0], table, quick=arguments.quick)
    for name, found in rates.items():
        print(f"{name:24} {found.mean:12,.0f}  ({found.low:,.0f} to {found.high:,.0f})")
    print_claims(claims(rates, ratio))


if __name__ == "__main__":
    main()
