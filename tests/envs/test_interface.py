"""Both plants under Gymnasium: its own checks, autoreset, seeds, options, and one numeric truth."""

import copy
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import envs.registration  # noqa: F401  (registers the names)
from envs.bioreactor import BioreactorEnv, BioreactorVectorEnv
from envs.cstr import CSTREnv, CSTRVectorEnv
from envs.cstr_plant import CSTRPlant
from envs.cstr_settings import QUIET, CSTRSettings, Reward, Safety, StepChange
from envs.interface import ProcessEnv, ProcessVectorEnv

ENVS = {"CSTR": (CSTREnv, CSTRVectorEnv), "Bioreactor": (BioreactorEnv, BioreactorVectorEnv)}
SETTINGS: dict[str, dict[str, Any]] = {
    "CSTR": {
        "samples": 37,
        "safety": Safety(low=87.9),
        "reward": Reward(trip=3.0),
        "observe": ("T", "b", "m", "integral", "setpoint"),
    },
    "Bioreactor": {},
}


def actions_for(env: VectorEnv[Any, Any, Any], rng: np.random.Generator) -> np.ndarray:
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    return rng.uniform(space.low, space.high).astype(np.float32)


@pytest.mark.parametrize("name", ["corymb/CSTR-v0", "corymb/Bioreactor-v0"])
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space.*")
        check_env(gymnasium.make(name).unwrapped)
    many = gymnasium.make_vec(name, num_envs=3)
    assert isinstance(many, ProcessVectorEnv)
    assert many.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    obs, infos = many.reset(seed=0)
    assert many.observation_space.contains(obs)
    assert infos["mode"].shape == (3,)


@pytest.mark.parametrize("plant", ENVS)
@pytest.mark.parametrize("count", [1, 5, 70])
def test_many_are_exactly_gymnasiums_own_vector_of_ones(plant: str, count: int) -> None:
    one, several = ENVS[plant]
    settings = SETTINGS[plant]
    many = several(num_envs=count, **settings)
    make: Callable[[], ProcessEnv] = lambda: one(**settings)  # noqa: E731
    stock = SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.NEXT_STEP)
    rng = np.random.default_rng(0)
    ends, tripped = 0, 0
    for a, b in zip(many.reset(seed=11), stock.reset(seed=11), strict=True):
        np.testing.assert_equal(a, b)
    for _ in range(100):
        actions = actions_for(many, rng)
        mine = many.step(actions)
        for a, b in zip(mine, stock.step(actions), strict=True):
            np.testing.assert_equal(a, b)  # bit for bit: observation, reward, flags, infos
        ends += int((mine[2] | mine[3]).sum())
        tripped += int(mine[2].sum())
    assert ends >= 2 * count
    if count == 70 and plant == "CSTR":
        assert 0 < tripped < ends  # both ways to end were met


@pytest.mark.parametrize("plant", ENVS)
def test_rows_are_the_bare_kernel(plant: str) -> None:
    several = ENVS[plant][1]
    many = several(num_envs=40)
    many.reset(seed=2)
    bare = many.simulation.copy()
    rng = np.random.default_rng(1)
    for _ in range(45):
        actions = actions_for(many, rng)
        obs, reward, terminated, truncated, _ = many.step(actions)
        bare.actions[:] = actions
        bare.advance()
        np.testing.assert_equal(obs, bare.obs)
        np.testing.assert_equal(reward, bare.reward)
        np.testing.assert_equal(terminated | truncated, bare.terminated | bare.truncated)
    np.testing.assert_equal(many.simulation.rows, bare.rows)


def test_the_step_after_the_last_begins_the_next_episode_and_ignores_the_action() -> None:
    a, b = (CSTRVectorEnv(num_envs=4, samples=3) for _ in range(2))
    a.reset(seed=0)
    b.reset(seed=0)
    for _ in range(3):
        *_, truncated, _ = a.step(np.full((4, 1), 0.4, np.float32))
        b.step(np.full((4, 1), 0.4, np.float32))
    assert truncated.all()
    last = a.read("T")
    first, reward, terminated, truncated, infos = a.step(np.zeros((4, 1), np.float32))
    other, *_ = b.step(np.ones((4, 1), np.float32))
    assert (first == other).all()
    assert (reward == 0).all()
    assert not (terminated | truncated).any()
    assert (a.read("T") == 88.0).all()
    assert (last != 88.0).all()
    assert (infos["mode"] == a.read("mode")).all()
    assert (a.read("sample") == 0).all()


def test_what_a_step_returned_stays_as_it_was() -> None:
    one, many = CSTREnv(), CSTRVectorEnv(num_envs=2)
    for env, action in ((one, np.ones(1, np.float32)), (many, np.ones((2, 1), np.float32))):
        assert isinstance(env, ProcessEnv | ProcessVectorEnv)
        env.reset(seed=0)
        kept = env.step(action)
        before = [np.copy(part) for part in kept[:4]]
        env.step(action)
        for part, was in zip(kept, before, strict=False):
            np.testing.assert_equal(part, was)


def trace(env: ProcessVectorEnv, seed: Any, options: dict[str, Any] | None = None) -> np.ndarray:
    env.reset(seed=seed, options=options)
    actions = np.full((env.num_envs, 1), 0.3, np.float32)
    return np.array([env.step(actions)[0] for _ in range(12)])


def test_seeds_say_everything() -> None:
    env = CSTRVectorEnv(num_envs=3, samples=5)
    first = trace(env, 7)
    np.testing.assert_equal(trace(env, 7), first)
    np.testing.assert_equal(trace(CSTRVectorEnv(num_envs=3, samples=5), 7), first)
    np.testing.assert_equal(trace(env, [9, 8, 7])[:, 2], first[:, 0])
    np.testing.assert_equal(trace(env, np.array([7, 8, 9])), first)
    np.testing.assert_equal(trace(env, np.int64(7)), first)
    assert (trace(env, 8)[4] != first[4]).any()
    assert (first[:5, 0] != first[6:11, 0]).any()  # the next episode is another one
    unseeded = [trace(CSTRVectorEnv(num_envs=3, samples=5), None) for _ in range(2)]
    assert (unseeded[0] != unseeded[1]).any()
    fresh = CSTRVectorEnv(num_envs=2, samples=5)
    rows = trace(fresh, None)
    assert (rows[:, 0] != rows[:, 1]).any()
    assert (trace(fresh, None) != rows).any()  # a reset without a seed goes on, and not again


def test_modes_are_drawn_or_asked_for() -> None:
    env = CSTRVectorEnv(num_envs=400, setpoints=(90.0, 86.0, 88.5), samples=2)
    _, infos = env.reset(seed=0)
    shares = np.bincount(infos["mode"], minlength=3) / 400
    assert (abs(shares - 1 / 3) < 0.08).all()
    setpoints = np.array([90.0, 86.0, 88.5])
    np.testing.assert_equal(env.read("setpoint"), setpoints[infos["mode"]])
    wanted = np.arange(400) % 3
    env.reset(options={"mode": wanted})
    for _ in range(7):  # through two autoresets
        *_, infos = env.step(np.full((400, 1), 0.3, np.float32))
        np.testing.assert_equal(infos["mode"], wanted)
    _, infos = env.reset(options={"mode": None})
    assert (infos["mode"] != wanted).any()
    _, info = CSTREnv(mode=1).reset()
    assert info == {"mode": 1}
    assert BioreactorEnv().reset(options={"mode": 1})[1] == {"mode": 1}


def test_a_mask_resets_some_rows_only() -> None:
    env = CSTRVectorEnv(num_envs=3)
    env.reset(seed=0)
    env.step(np.ones((3, 1), np.float32))
    before = env.read("T")
    mask = np.array([False, True, False])
    obs, _ = env.reset(seed=[None, 5, None], options={"reset_mask": mask})
    np.testing.assert_equal(env.read("T"), np.where(mask, 88.0, before))
    alone = CSTREnv()
    assert (alone.reset(seed=5)[0] == obs[1]).all()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_as_the_original_and_alone(duplicate: Callable[[Any], Any]) -> None:
    one, many = CSTREnv(), CSTRVectorEnv(num_envs=3)
    for env, shape in ((one, (1,)), (many, (3, 1))):
        assert isinstance(env, ProcessEnv | ProcessVectorEnv)
        env.reset(seed=0)
        env.step(np.full(shape, 0.2, np.float32))
        other = duplicate(env)
        expected = env.step(np.full(shape, 0.8, np.float32))
        here = np.copy(env.read("T"))
        for a, b in zip(other.step(np.full(shape, 0.8, np.float32)), expected, strict=True):
            np.testing.assert_equal(a, b)
        other.step(np.full(shape, 0.1, np.float32))
        assert (env.read("T") == here).all()  # type: ignore[union-attr]
        assert (other.read("T") != here).all()


def test_parts_may_be_mappings() -> None:
    env = CSTRVectorEnv(
        {
            "num_envs": 2,
            "plant": [{"U": 3300.0}, {"tauT": 30.0}],
            "noise": {"sd": 0.0},
            "changes": [{"input": "Ti", "sample": 1, "size": 2.0}],
        }
    )
    same = CSTRVectorEnv(
        num_envs=2,
        plant=[CSTRPlant(U=3300.0), CSTRPlant(tauT=30.0)],
        noise=QUIET,
        changes=[StepChange("Ti", 1, 2.0)],
    )
    np.testing.assert_equal(trace(env, 0), trace(same, 0))


def test_a_plain_mapping_makes_them_as_rllib_hands_it_over() -> None:
    env = CSTRVectorEnv({"num_envs": 6, "samples": 5, "setpoints": [89.0]})
    assert env.num_envs == 6
    assert env.action_space.shape == (6, 1)
    env.reset(seed=0)
    assert (env.read("setpoint") == 89.0).all()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: CSTREnv(setpoint=90), "which is not known. Did you mean 'setpoints'"),
        (lambda: CSTRVectorEnv(num_envs=0), "num_envs is 0; it must be 1 or more"),
        (lambda: BioreactorVectorEnv({"k": 0.5}), "setting of BioreactorSettings is 'k'"),
        (lambda: CSTREnv(settings=3), "settings must be a CSTRSettings, not 3"),
        (lambda: CSTREnv({"samples": 5, "settings": CSTRSettings()}), "so samples cannot be given"),
        (lambda: CSTREnv(noise=0.03), r"noise must hold a Noise, not 0\.03"),
        (lambda: CSTREnv(noise={"std": 0.03}), "A setting of Noise is 'std'"),
        (lambda: CSTREnv(changes=StepChange("F", 1, 1.0)), "changes must be a list, each a StepCh"),
        (lambda: CSTREnv(changes=[{"input": "F"}]), "StepChange needs sample, size"),
    ],
)
def test_a_setting_that_is_not(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_step_that_cannot_be() -> None:
    one, many = CSTREnv(samples=1), CSTRVectorEnv(num_envs=3)
    with pytest.raises(ValueError, match="call reset"):
        one.step(np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="call reset"):
        many.step(np.zeros((3, 1), np.float32))
    one.reset()
    many.reset()
    with pytest.raises(ValueError, match=r"The action \[nan\] is not a number"):
        one.step(np.array([np.nan], np.float32))
    one.step(np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="This episode is over"):
        one.step(np.zeros(1, np.float32))
    before = many.read("T")
    with pytest.raises(ValueError, match=r"rows \[1\] are not numbers"):
        many.step(np.array([[0.1], [np.nan], [0.2]], np.float32))
    assert (many.read("T") == before).all()
    with pytest.raises(ValueError, match=r"shape \(3,\), not \(3, 1\)"):
        many.step(np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"options": {"mode": 2}}, "mode must lie between 0 and 1; it is 2"),
        ({"options": {"mode": [0, 1]}}, "mode must be one integer or 3 of them"),
        ({"options": {"mode": 0.5}}, "mode must be one integer or 3 of them"),
        ({"options": {"start": 90}}, "reset has no option 'start'"),
        ({"seed": [1, 2]}, "There are 2 seeds for 3 environments"),
        ({"options": {"reset_mask": np.array([True, False, False])}}, "The first reset must"),
        ({"options": {"reset_mask": np.array([1, 0, 0])}}, "reset_mask must be 3 truth values"),
    ],
)
def test_a_reset_that_cannot_be(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        CSTRVectorEnv(num_envs=3).reset(**arguments)


def test_numba_is_imported_by_the_first_environment_only() -> None:
    code = (
        "import sys, envs.cstr, envs.bioreactor, envs.control, envs.metrics, envs.bounds\n"
        "import envs.registration\n"
        "assert 'numba' not in sys.modules and 'casadi' not in sys.modules\n"
        "envs.cstr.CSTREnv()\n"
        "assert 'numba' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
