"""Adversarial inverse RL on RLlib's stack: what is shown, what moves, what is kept."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import ray
import torch
from scipy.stats import norm

from cluster.errors import UsageError
from cluster.session import Session
from envs.cstr_settings import Safety
from trainers.control.imitate.data import Demonstrations
from trainers.control.inference import PooledEncoder
from trainers.control.irl.algorithm import AdversarialImitation, Start, adversarial
from trainers.control.irl.bank import Demonstrated, disturbed_rollout, pushes, rollout_steps
from trainers.control.irl.cases import cases, changed
from trainers.control.irl.config import SEEN, Config
from trainers.control.irl.discriminator import Discriminator, Steps
from trainers.control.irl.modules import INFERENCE, REWARD
from trainers.control.irl.settings import CHANGES, Change, RewardSettings, TransferSettings
from trainers.control.irl.simulator import replayed_modes
from trainers.control.irl.train import settled
from trainers.control.irl.transfer import FrozenReward, transfer
from trainers.control.networks import GaussianPolicy, Units
from trainers.control.plants import PlantSettings, environment, units
from trainers.control.record import controller, record
from trainers.control.rl.algorithm import optimise
from trainers.control.rl.rollout import Contexts, roll_out
from trainers.control.rl.settings import PolicySettings
from trainers.control.trajectories import Trajectories

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

PLANT = PlantSettings(observe=SEEN)
REWARD_SETTINGS = RewardSettings(steps=3, batch=32, trajectories=4, hidden=(8,))
POLICY = PolicySettings(iterations=4, rows=6, samples=12, minibatch=36, epochs=2)


def demonstrated(count: int = 8, plant: PlantSettings = PLANT) -> tuple[Trajectories, np.ndarray]:
    data, mode, _ = record(plant, controller(plant, None), count, 7)
    return data, mode


def start() -> Start:
    data, mode = demonstrated()
    torch.manual_seed(1)
    policy = GaussianPolicy(*units(PLANT), 2, (8,))
    return Start(policy, PooledEncoder(units(PLANT)[0], 1, 2, hidden=(8,)), PLANT, data, mode, (4,))


def made(
    reward: RewardSettings = REWARD_SETTINGS, policy: PolicySettings = POLICY
) -> AdversarialImitation:
    return adversarial(start(), reward, policy, seed=5)


@pytest.fixture
def algorithm(ray_session: Session) -> Iterator[AdversarialImitation]:
    ray_session.ensure()
    found = made()
    yield found
    found.stop()


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_a_replay_finds_the_mode_of_a_demonstration(noise: float) -> None:
    plant = PLANT.model_copy(update={"noise": noise})
    data, mode = demonstrated(10, plant)
    assert sorted(mode.tolist()) == [0] * 5 + [1] * 5
    np.testing.assert_array_equal(replayed_modes(plant, data), mode)


def test_a_replay_tells_the_bioreactors_modes_by_what_they_do() -> None:
    plant = PlantSettings(kind="bioreactor")
    policy = GaussianPolicy(*units(plant), log_sd=0.0)
    data, mode, _ = record(plant, controller(plant, policy, 1.0), 6, 3)
    np.testing.assert_array_equal(replayed_modes(plant, data), mode)


def test_training_begins_with_the_clone(algorithm: AdversarialImitation) -> None:
    began = start()
    policy, q = algorithm.networks().policy, algorithm.q()
    for name, value in began.policy.state_dict().items():
        wanted = torch.full_like(value, POLICY.log_sd) if name == "log_sd" else value
        torch.testing.assert_close(policy.state_dict()[name], wanted)
    for name, value in began.q.state_dict().items():
        torch.testing.assert_close(q.state_dict()[name], value)


def test_all_three_modules_learn(algorithm: AdversarialImitation) -> None:
    before = algorithm.snapshot()
    figures = next(optimise(algorithm))
    after = algorithm.snapshot()
    for module in ("default_policy", REWARD, INFERENCE):
        names = [n for n in before if n.startswith(f"module/{module}/") and n.endswith("weight")]
        assert names
        assert any((before[n] != after[n]).any() for n in names), module
    assert 0 <= figures["told_apart"] <= 1
    assert figures["information"] <= 0


def test_without_the_information_term_q_stays_as_it_was(ray_session: Session) -> None:
    ray_session.ensure()
    algorithm = made(REWARD_SETTINGS.model_copy(update={"information": 0.0}))
    before = algorithm.snapshot()
    next(optimise(algorithm))
    after = algorithm.snapshot()
    algorithm.stop()
    for name in before:
        if name.startswith(f"module/{INFERENCE}/"):
            np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.parametrize("kind", ["ppo", "trpo"])
def test_a_training_taken_up_again_ends_in_the_same_digits(ray_session: Session, kind: str) -> None:
    ray_session.ensure()
    policy = POLICY.model_copy(update={"algorithm": kind})
    unbroken = made(policy=policy)
    steps = optimise(unbroken)
    next(steps)
    next(steps)
    kept = unbroken.snapshot()
    for _ in steps:
        pass
    resumed = made(policy=policy)
    resumed.restore_snapshot(kept)
    for _ in optimise(resumed):
        pass
    one, other = unbroken.snapshot(), resumed.snapshot()
    unbroken.stop()
    resumed.stop()
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_rollouts_of_one_z_come_in_pairs_and_run_in_its_demonstrations_mode(
    algorithm: AdversarialImitation,
) -> None:
    found = algorithm.contexts()
    assert found.z.shape == (6, 2)
    assert (found.z.sum(1) == 1).all()
    np.testing.assert_array_equal(found.z[0::2], found.z[1::2])
    np.testing.assert_array_equal(found.mode[0::2], found.mode[1::2])
    again = algorithm.contexts()
    np.testing.assert_array_equal(found.z, again.z)  # of this iteration, whoever asks


def test_nothing_beyond_a_trip_is_shown_or_rewarded() -> None:
    env = environment(PLANT, 8, safety=Safety(low=87.9, high=1000.0))
    policy = GaussianPolicy(*units(PLANT), 2, (8,), log_sd=0.5)
    contexts = Contexts(np.eye(2, dtype=np.float32)[[0, 1] * 4], np.array([0, 1] * 4))
    found = roll_out(env, policy, contexts, 100, seed=1)
    assert found.terminated.any()
    steps = rollout_steps(found, 2)
    assert len(steps) == found.steps < 800
    length, at = found.valid.sum(1), 0
    for row, n in enumerate(length):
        np.testing.assert_array_equal(steps.x[at : at + n], found.obs[row, :n, :6])
        np.testing.assert_array_equal(steps.next_x[at : at + n], found.obs[row, 1 : n + 1, :6])
        assert (steps.z[at : at + n].argmax(1) == row % 2).all()
        at += n


def test_demonstrated_steps_join_neighbours_of_one_trajectory() -> None:
    data, _ = demonstrated(3)
    short = Trajectories(
        data.observations, data.actions, data.seconds, data.ids, data.x[:, :5], data.u[:, :5],
        np.array([5, 2, 1]),
    )  # fmt: skip
    policy = start().policy
    steps = Demonstrated.of(short, policy).steps(torch.eye(3, 2), policy)
    assert len(steps) == 4 + 1 + 0
    np.testing.assert_array_equal(steps.x[:4], short.x[0, :4])
    np.testing.assert_array_equal(steps.next_x[4], short.x[1, 1])
    u = policy.unscaled(steps.a)[:4]
    np.testing.assert_allclose(u, short.u[0, :4], rtol=1e-6)


def test_pushes_are_as_strong_as_they_say_and_move_the_plant_alone() -> None:
    found = pushes(4000, 60, 1, largest=3.0, seed=0)
    # a row's deviation is uniform up to 3: variance 3
    np.testing.assert_allclose(found.var(0).mean(), 3.0, rtol=0.1)
    np.testing.assert_allclose(found[:, 0].var(), found[:, -1].var(), rtol=0.1)
    policy = start().policy
    contexts = Contexts(np.zeros((16, 2), np.float32), np.zeros(16, np.int64))
    pushed = disturbed_rollout(environment(PLANT, 16), policy, contexts, 40, 3.0, seed=0)
    calm = disturbed_rollout(environment(PLANT, 16), policy, contexts, 40, 0.0, seed=0)
    np.testing.assert_allclose(calm.actions, calm.taken, atol=1e-4)
    assert np.abs(pushed.actions - pushed.taken).max() > 1
    assert pushed.obs[:, -1, 4].std() > 2 * calm.obs[:, -1, 4].std()


def test_a_settled_reward_is_the_logarithm_of_the_densities_ratio() -> None:
    """Experts N(1, 0.3^2) against others N(0, 2^2): g(x) is known, whatever the network."""
    generator = torch.Generator().manual_seed(0)

    def steps(mean: float, sd: float) -> Steps:
        x = mean + sd * torch.randn((20000, 1), generator=generator)
        none = torch.zeros(len(x), 1)
        return Steps(x, x, none, none, none[:, 0])

    torch.manual_seed(0)
    d = Discriminator("state", Units([0.0], [1.0]), (0,), 1, 1, (32, 32))
    settings = RewardSettings(batch=1024, lr=5e-3, settle=500, penalty=0.0)
    found = settled(d, steps(1.0, 0.3), steps(0.0, 2.0), settings, generator)
    x = torch.linspace(0.3, 1.7, 29)[:, None]
    at = x.numpy()[:, 0]
    wanted = torch.from_numpy(norm(1.0, 0.3).logpdf(at) - norm(0.0, 2.0).logpdf(at))
    with torch.no_grad():
        apart = found.reward(x, torch.zeros(29, 1)) - wanted
    assert apart.abs().max() < 0.25
    assert float(found.reward(x, torch.zeros(29, 1)).argmax()) == pytest.approx(14, abs=1)
    assert all(
        (a == b).all() for a, b in zip(d.parameters(), d.parameters(), strict=True)
    )  # the one that was given is left alone


def frozen(form: str = "state") -> FrozenReward:
    torch.manual_seed(2)
    read = units(PLANT)[0]
    d = Discriminator(form, Units([read.centre[4]], [read.width[4]]), (4,), 2, 1, (8,))  # type: ignore[arg-type]
    began = start()
    steps = Demonstrated.of(began.data, began.policy).steps(torch.eye(2)[[0, 1] * 4], began.policy)
    some = steps.take(torch.arange(0, len(steps), 3))
    return FrozenReward(
        d.reward, d.form, Units([0.25], [0.1]), np.eye(2, dtype=np.float32), steps, some
    )


@pytest.mark.parametrize("form", ["state", "action"])
def test_a_frozen_reward_reads_what_the_plant_was_given(form: str) -> None:
    """A policy with other units of actions gets the same reward for the same valve."""
    reward = frozen(form)
    policy = GaussianPolicy(units(PLANT)[0], Units([0.5], [0.5]), 2, (8,), log_sd=1.0)
    contexts = Contexts(np.eye(2, dtype=np.float32), np.arange(2))
    rollout = roll_out(environment(PLANT, 2), policy, contexts, 5, seed=0)
    found = reward.of(rollout, policy)
    for row in range(2):
        for t in range(5):
            u = np.clip(0.5 + 0.5 * rollout.actions[row, t], 0, 1)
            x, after = (torch.from_numpy(rollout.obs[row, i, :6]) for i in (t, t + 1))
            z = torch.eye(2)[row]
            a = torch.from_numpy((u - 0.25) / 0.1)
            with torch.no_grad():
                wanted = reward(x, after, z, a)
            assert float(found[row, t]) == pytest.approx(float(wanted), abs=1e-4)


def test_a_fresh_policy_learns_from_the_frozen_reward_alone(ray_session: Session) -> None:
    """The changed plant is run, each mode gets its code, the reward stays as it was."""
    ray_session.ensure()
    reward = frozen()
    before = {k: v.clone() for k, v in reward.state_dict().items()}
    change = Change(name="hot", factors={"U": 0.9}, modes=(91.0, 87.0))
    algorithm = transfer(reward, PLANT, change, POLICY, seed=0)
    contexts = algorithm.contexts()
    np.testing.assert_array_equal(contexts.z.argmax(1), contexts.mode)
    rollout = algorithm.rollout(contexts)
    assert rollout.obs[0, 0, 4] == pytest.approx(3.0, abs=1e-4)  # 91 C from 88 C
    for _ in optimise(algorithm):
        pass
    algorithm.stop()
    for name, value in reward.state_dict().items():
        torch.testing.assert_close(value, before[name])
    moved, keywords = changed(PLANT, change)
    assert moved.levels == (91.0, 87.0)
    assert pytest.approx(3195.0) == keywords["plant"].U


def given(plant: PlantSettings | None = PLANT) -> Demonstrations:
    data, mode = demonstrated(4, plant or PLANT)
    return Demonstrations(data, plant, mode)


def test_a_reward_reads_the_error_where_it_can_and_all_changes_are_tried() -> None:
    _, planned = cases(Config(recipe="irl"), given())
    assert planned.columns == (4,)
    assert planned.changes == CHANGES


def test_where_the_set_point_is_hidden_it_cannot_be_changed() -> None:
    hidden = PlantSettings()
    _, planned = cases(Config(recipe="irl"), given(hidden))
    assert planned.columns == (1,)  # T
    assert [c.name for c in planned.changes] == [c.name for c in CHANGES if not c.modes]


@pytest.mark.parametrize(
    ("plant", "values", "words"),
    [
        (None, {}, "cannot be simulated"),
        (PLANT, {"reward": RewardSettings(sees=("pH",))}, "pH, which is not observed"),
        (PLANT, {"change": Change(name="x", factors={"k9": 2.0})}, "no parameter k9"),
        (PLANT, {"change": Change(name="x", modes=(91.0,))}, "1 modes are given; the plant has 2"),
        (PLANT, {"change": Change(name="x", factors={"U": -1.0})}, "transfer.changes, 'x': U"),
        (PLANT, {"change": Change(name="x", factors={"U": 0.5})}, "No valve position holds"),
        (PlantSettings(), {"change": Change(name="x", modes=(91.0, 87.0))}, "reads no error"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    plant: PlantSettings | None, values: dict[str, object], words: str
) -> None:
    updates = dict(values)
    if "change" in updates:
        updates["transfer"] = TransferSettings(changes=(updates.pop("change"),))  # type: ignore[arg-type]
    config = Config(recipe="irl").model_copy(update=updates)
    with pytest.raises(UsageError, match=words):
        cases(config, given(plant))


def test_densities_of_actions_and_disturbed_ones_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="set disturbed to 0, or form to 'state'"):
        RewardSettings(form="action")
