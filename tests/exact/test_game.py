"""The game of eq. 14 against finite differences, closed forms and plain implementations."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cluster.errors import InterruptedRunError
from federated.engine import in_process
from federated.federation import Federation
from federated.fedgmm import scenarios
from federated.fedgmm.api import HeldRows, NoStore
from federated.fedgmm.client_app import make_client_app, single_thread
from federated.fedgmm.config import GameSettings
from federated.fedgmm.design import Scale
from federated.fedgmm.estimators import federated_scale
from federated.fedgmm.game import Batch, Players, Steps, local_steps, payoff
from federated.fedgmm.networks import Network
from federated.fedgmm.rows import Rows
from federated.fedgmm.train import Store, Trained, train
from federated.streams import stream
from tests.federated.holding import Holding

Floats = NDArray[np.float64]

SMALL = Players(Network((1, 20, 3, 1)), Network((2, 20, 1)))


def batch_of(n: int, seed: int = 0) -> Batch:
    rng = stream(seed, "batch of")
    z = rng.normal(size=(n, 2))
    hidden = rng.normal(size=n)
    x = z[:, :1] + hidden[:, None]
    return Batch(
        torch.from_numpy(np.abs(x[:, 0]) + hidden), torch.from_numpy(x), torch.from_numpy(z)
    )


def play(
    rows: list[Rows],
    players: Players,
    settings: GameSettings,
    seed: int = 0,
    store: Store | None = None,
    stop: Callable[[int], None] = lambda _: None,
) -> Trained:
    """Train on clients that hold these rows, in this process."""

    def server(grid: Any) -> Trained:
        federation = Federation.gather(grid, len(rows))
        scale = federated_scale(federation, rows[0].x.shape[1], rows[0].z.shape[1])
        return train(
            federation, scale, players, settings, seed, lambda _: {},
            lambda number, _: stop(number), store or NoStore(),
        )  # fmt: skip

    return in_process(server, make_client_app(HeldRows(tuple(rows))), len(rows))


def options(**changed: Any) -> GameSettings:
    """A plain game: full batch, gradient steps, no decay, no averaging of iterates."""
    plain = {
        "rounds": 3, "local_steps": 1, "batch": None, "optimizer": "sgd", "lr_g": 0.05,
        "lr_f": 0.05, "decay": "none", "averaging": "none",
    }  # fmt: skip
    return GameSettings(**{**plain, **changed})


# --- the payoff ---------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["residual", "constant"])
@pytest.mark.parametrize("own_tilde", [True, False])
def test_gradient_of_the_payoff_equals_finite_differences(weights: Any, own_tilde: bool) -> None:
    batch, flat = batch_of(50), SMALL.init(1)
    tilde = SMALL.init(2)[: SMALL.g.parameters] if own_tilde else SMALL.split(flat)[0].clone()
    leaf = flat.clone().requires_grad_()
    # Passing theta~ = None must treat the current theta as a constant: same as passing a copy.
    (gradient,) = torch.autograd.grad(
        payoff(SMALL, leaf, batch, tilde if own_tilde else None, weights), leaf
    )
    step = 1e-6
    for i in range(0, len(flat), 7):
        up, down = flat.clone(), flat.clone()
        up[i] += step
        down[i] -= step
        slope = (
            payoff(SMALL, up, batch, tilde, weights) - payoff(SMALL, down, batch, tilde, weights)
        ) / (2 * step)
        assert float(gradient[i]) == pytest.approx(float(slope), rel=1e-4, abs=1e-7)


def test_payoff_is_equation_14_written_out() -> None:
    batch, flat = batch_of(40), SMALL.init(3)
    theta, tau = SMALL.split(flat)
    total = 0.0
    for y, x, z in zip(batch.y, batch.x, batch.z, strict=True):
        error = float(y - SMALL.g(theta, x[None])[0])
        critic = float(SMALL.f(tau, z[None])[0])
        total += critic * error - 0.25 * critic**2 * error**2
    assert float(payoff(SMALL, flat, batch, None, "residual")) == pytest.approx(total / 40)


def test_network_equals_torch_modules() -> None:
    network, inputs = SMALL.g, batch_of(30).x
    flat = network.init(4)
    modules = torch.nn.Sequential(
        torch.nn.Linear(1, 20), torch.nn.LeakyReLU(), torch.nn.Linear(20, 3),
        torch.nn.LeakyReLU(), torch.nn.Linear(3, 1),
    ).double()  # fmt: skip
    torch.nn.utils.vector_to_parameters(flat, modules.parameters())
    torch.testing.assert_close(network(flat, inputs), modules(inputs)[:, 0])


# --- linear players: closed forms ------------------------------------------------------------


def linear_rows(n: int, instruments: int, seed: int = 0) -> Rows:
    rng = stream(seed, "linear rows")
    z = rng.normal(size=(n, instruments))
    hidden = rng.normal(size=n)
    x = z @ np.linspace(1.0, 0.6, instruments) + hidden + 0.3 * rng.normal(size=n)
    y = 0.7 * x + hidden * (3 + 0.8 * z[:, 0]) + rng.normal(size=n)
    return Rows(y, x[:, None], z, np.empty((n, 0)))


def solved(rows: Rows, weights: Any, theta_tilde: Any = "current") -> tuple[Floats, Scale]:
    """Where a long linear game ends: [slope, intercept] in standardised units."""
    q = rows.z.shape[1]
    players = Players(Network((1, 1)), Network((q, 1)))
    settings = options(
        rounds=20, local_steps=200, lr_g=0.1, lr_f=0.3, weights=weights, theta_tilde=theta_tilde
    )
    return play([rows], players, settings).theta, Holding([rows]).scale()


def test_just_identified_linear_game_ends_at_the_iv_estimate() -> None:
    rows = linear_rows(300, 1)
    theta, scale = solved(rows, "residual")
    zc = rows.z[:, 0] - rows.z[:, 0].mean()
    iv = float(zc @ rows.y / (zc @ rows.x[:, 0]))
    assert theta[0] * scale.sd[0] / scale.sd[1] == pytest.approx(iv, abs=1e-8)


def test_over_identified_game_with_constant_weights_ends_at_two_stage_least_squares() -> None:
    rows = linear_rows(300, 3)
    theta, scale = solved(rows, "constant")
    from federated.fedgmm.baselines import pooled_2sls

    slope = theta[0] * scale.sd[0] / scale.sd[1]
    assert slope == pytest.approx(pooled_2sls(rows)[0].value, abs=1e-8)


def test_over_identified_game_with_frozen_weights_ends_at_gmm_with_the_same_theta_tilde() -> None:
    rows = linear_rows(300, 3)
    theta, scale = solved(rows, "residual", "frozen")
    s = scale.apply(rows)
    a = np.column_stack([s.x, np.ones(len(rows))])
    b = np.column_stack([s.z, np.ones(len(rows))])
    projected = b @ np.linalg.solve(b.T @ b, b.T @ a)
    first = np.linalg.solve(projected.T @ a, projected.T @ s.y)  # 2SLS, where the first half ends
    omega = (b * ((s.y - a @ first) ** 2)[:, None]).T @ b
    g = b.T @ a
    expected = np.linalg.solve(
        g.T @ np.linalg.solve(omega, g), g.T @ np.linalg.solve(omega, b.T @ s.y)
    )
    np.testing.assert_allclose(theta, expected, atol=1e-8)


# --- federation ------------------------------------------------------------------------------


def data(n: int = 400, seed: int = 11) -> Rows:
    return scenarios.draw("abs", "code", n, seed).rows


@pytest.mark.parametrize(
    "changed",
    [
        {"local_steps": 4},
        {"local_steps": 4, "batch": 64},
        {"local_steps": 4, "batch": 64, "optimizer": "momentum", "lr_g": 0.01, "lr_f": 0.01},
        {"local_steps": 4, "batch": 64, "optimizer": "oadam", "lr_g": 0.01, "lr_f": 0.03},
    ],
)
def test_one_client_equals_centralised_training_bit_for_bit(changed: dict[str, Any]) -> None:
    rows, settings = data(), options(**changed)
    scale = Holding([rows]).scale()
    s = scale.apply(rows)
    batch = Batch(torch.from_numpy(s.y.copy()), torch.from_numpy(s.x), torch.from_numpy(s.z))
    steps = Steps(
        settings.local_steps, settings.batch, settings.optimizer, settings.lr_g, settings.lr_f,
        settings.weights,
    )  # fmt: skip
    flat, state = SMALL.init(5), dict[str, torch.Tensor]()
    with single_thread():  # as the client does: threads change the order of sums
        for number in range(1, settings.rounds + 1):
            stacked, (state,), _ = local_steps(
                SMALL, flat[None], [batch], steps, None, [state], None,
                [stream(5, "batch", number, 0)],
            )  # fmt: skip
            flat = stacked[0]
    federated = play([rows], SMALL, settings, seed=5).theta
    assert np.array_equal(federated, SMALL.split(flat)[0].numpy())


@pytest.mark.parametrize("weight_by", ["rows", "clients"])
def test_one_local_step_of_equal_clients_is_one_centralised_step(weight_by: str) -> None:
    rows = data()
    settings = options(weight_by=weight_by)
    parts = np.array_split(stream(0, "split").permutation(len(rows)), 4)
    split = play([rows.take(p) for p in parts], SMALL, settings).theta
    whole = play([rows], SMALL, settings).theta
    np.testing.assert_allclose(split, whole, rtol=0, atol=1e-12)


def test_weights_by_rows_and_by_clients_differ_for_unequal_clients() -> None:
    rows = data()
    parts = np.split(np.arange(len(rows)), [30, 120])
    held = [rows.take(p) for p in parts]
    whole = play([rows], SMALL, options()).theta
    by_rows = play(held, SMALL, options()).theta
    np.testing.assert_allclose(by_rows, whole, rtol=0, atol=1e-12)
    assert np.abs(play(held, SMALL, options(weight_by="clients")).theta - whole).max() > 1e-4


def test_scaffold_without_drift_is_plain_averaging_and_with_drift_is_not() -> None:
    rows = data()
    alike, unlike = [rows, rows], [rows.take(np.arange(100)), rows.take(np.arange(100, 400))]
    for held, same in ((alike, True), (unlike, False)):
        plain = play(held, SMALL, options(local_steps=5)).theta
        corrected = play(held, SMALL, options(local_steps=5, control_variates=True)).theta
        assert (np.abs(plain - corrected).max() < 1e-12) == same


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_server_steps_follow_their_formulas(kind: Any) -> None:
    from federated.fedgmm.strategy import ADAM_BETAS, ADAM_TAU, ServerStep

    step, memory = ServerStep(kind, 0.5, 0.9), dict[str, Floats]()
    old, first, second = np.array([1.0, -2.0]), np.array([1.5, -1.0]), np.array([2.0, 0.0])
    middle = step.apply(old, first, memory)
    end = step.apply(middle, second, memory)
    d1, d2 = first - old, second - middle
    if kind == "momentum":
        np.testing.assert_allclose(middle, old + 0.5 * d1)
        np.testing.assert_allclose(end, middle + 0.5 * (0.9 * d1 + d2))
        return
    (b1, b2), tau = ADAM_BETAS, ADAM_TAU
    m, v = (1 - b1) * d1, (1 - b2) * d1**2
    np.testing.assert_allclose(middle, old + 0.5 * m / (np.sqrt(v) + tau))
    m, v = b1 * m + (1 - b1) * d2, b2 * v + (1 - b2) * d2**2
    np.testing.assert_allclose(end, middle + 0.5 * m / (np.sqrt(v) + tau))


def test_one_seed_repeats_and_two_seeds_differ() -> None:
    rows, settings = data(), options(batch=64, local_steps=3)
    held = [rows.take(np.arange(150)), rows.take(np.arange(150, 400))]
    first = play(held, SMALL, settings, seed=1).theta
    assert np.array_equal(first, play(held, SMALL, settings, seed=1).theta)
    assert not np.array_equal(first, play(held, SMALL, settings, seed=2).theta)


def test_sampled_participation_is_seeded_and_takes_the_share_asked_for() -> None:
    rows, settings = data(), options(participation=0.5, rounds=4)
    held = [rows.take(p) for p in np.array_split(np.arange(400), 6)]
    trained = play(held, SMALL, settings, seed=1)
    assert [h["clients"] for h in trained.history] == [3.0] * 4
    assert np.array_equal(trained.theta, play(held, SMALL, settings, seed=1).theta)


def test_averaging_takes_the_mean_of_the_second_half_of_the_iterates() -> None:
    rows = data()
    ends = [play([rows], SMALL, options(rounds=r)).theta for r in range(1, 6)]
    averaged = play([rows], SMALL, options(rounds=5, averaging="second_half")).theta
    np.testing.assert_allclose(averaged, np.mean(ends[2:], axis=0), rtol=1e-12)


# --- checkpoints -------------------------------------------------------------------------------


class Shelf:
    """A store in memory that keeps what a file would."""

    def __init__(self) -> None:
        self.kept: tuple[int, dict[str, Floats], dict[str, Any]] | None = None

    def save(self, step: int, arrays: Mapping[str, Floats], state: Mapping[str, Any]) -> None:
        self.kept = (step, {k: v.copy() for k, v in arrays.items()}, json.loads(json.dumps(state)))

    def load(self) -> tuple[int, dict[str, Floats], dict[str, Any]] | None:
        return self.kept


class KilledError(Exception):
    pass


@pytest.mark.parametrize("killed_in", [3, 10, 14])
@pytest.mark.parametrize(
    "changed",
    [
        {"batch": 64, "optimizer": "oadam", "lr_g": 0.01, "lr_f": 0.03},
        {"control_variates": True},
        {"theta_tilde": "frozen", "averaging": "second_half", "decay": "cosine"},
        {"server": {"kind": "adam", "lr": 0.01}, "participation": 0.6},
    ],
)
def test_a_run_killed_in_any_round_ends_bit_identical(
    changed: dict[str, Any], killed_in: int
) -> None:
    rows = data()
    held = [rows.take(p) for p in np.array_split(np.arange(400), 3)]
    settings = options(rounds=16, local_steps=2, **changed)
    unbroken = play(held, SMALL, settings, seed=3)

    def kill(number: int) -> None:
        if number == killed_in:
            raise KilledError

    shelf = Shelf()
    with pytest.raises(KilledError):
        play(held, SMALL, settings, seed=3, store=shelf, stop=kill)
    resumed = play(held, SMALL, settings, seed=3, store=shelf)
    assert np.array_equal(resumed.theta, unbroken.theta)
    assert resumed.history == unbroken.history


def test_a_run_asked_to_stop_keeps_its_last_round() -> None:
    rows = data()
    held = [rows.take(p) for p in np.array_split(np.arange(400), 3)]
    settings = options(rounds=16, local_steps=2)
    shelf, asked = Shelf(), [False]

    def server(grid: Any) -> Trained:
        def check() -> None:
            if asked[0]:
                raise InterruptedRunError("asked to stop")

        federation = Federation.gather(grid, 3, check=check)
        scale = federated_scale(federation, 1, 2)

        def stop_after_seven(number: int, _: dict[str, float]) -> None:
            asked[0] = number == 7

        return train(federation, scale, SMALL, settings, 3, lambda _: {}, stop_after_seven, shelf)

    with pytest.raises(InterruptedRunError):
        in_process(server, make_client_app(HeldRows(tuple(held))), 3)
    assert shelf.kept is not None
    assert shelf.kept[0] == 7
    unbroken = play(held, SMALL, settings, seed=3)
    assert np.array_equal(play(held, SMALL, settings, seed=3, store=shelf).theta, unbroken.theta)


def test_neural_gauss_newton_does_not_depend_on_the_partition() -> None:
    from federated.fedgmm import neural
    from federated.fedgmm.estimators import first_stage, moment_sums, total
    from tests.federated.holding import partitions

    rows = data(1500)
    thetas = []
    for part in partitions(1500)[:3]:
        clients = Holding.split(rows, part)
        stage = first_stage(clients, clients.scale(), 12, 8)
        sums = moment_sums(clients, stage.design)
        fit = neural.fit(
            lambda name, a, s, c=clients: total(c.ask(name, a, s)),  # type: ignore[misc]
            stage.design,
            np.asarray(sums.total["bb"]),
            Network((1, 5, 1)),
            seed=0,
        )
        thetas.append(fit.theta)
    for other in thetas[1:]:
        np.testing.assert_allclose(other, thetas[0], rtol=0, atol=1e-9)
