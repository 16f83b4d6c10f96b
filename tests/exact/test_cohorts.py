"""Clients trained together end where each ends alone."""

from typing import Any

import numpy as np
import pytest

from federated.engine import in_process, simulate
from federated.federation import Federation
from federated.fedgmm import scenarios
from federated.fedgmm.api import HeldRows, NoStore
from federated.fedgmm.client_app import alike, make_client_app
from federated.fedgmm.config import GameSettings
from federated.fedgmm.estimators import federated_scale
from federated.fedgmm.train import Trained, players_of, train

SIZES = [40, 64, 64, 70, 200, 33, 512]


def play(settings: GameSettings, cohorts: bool, engine: Any = in_process) -> Trained:
    rows = scenarios.draw("abs", "code", sum(SIZES), 3).rows
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    app = make_client_app(HeldRows(tuple(rows.take(p) for p in parts)), cohorts)

    def server(grid: Any) -> Trained:
        federation = Federation.gather(grid, len(SIZES))
        scale = federated_scale(federation, 1, 2)
        return train(
            federation, scale, players_of(scale, settings), settings, 1, lambda _: {},
            lambda *_: None, NoStore(),
        )  # fmt: skip

    return engine(server, app, len(SIZES))  # type: ignore[no-any-return]


VARIANTS: list[dict[str, Any]] = [
    {"batch": None, "optimizer": "sgd", "lr_g": 0.03, "lr_f": 0.1},
    {"batch": 64, "optimizer": "momentum", "lr_g": 0.01, "lr_f": 0.02},
    {"batch": 64, "optimizer": "oadam", "lr_g": 0.005, "lr_f": 0.025},
    {"batch": 64, "control_variates": True, "lr_g": 0.03, "lr_f": 0.1},
    {"batch": 64, "weights": "constant", "theta_tilde": "frozen", "lr_g": 0.03, "lr_f": 0.1},
    {"batch": None, "theta_tilde": "global", "hidden_g": (), "hidden_f": ()},
]


@pytest.mark.parametrize("changed", VARIANTS)
def test_a_cohort_ends_where_its_clients_end_one_by_one(changed: dict[str, Any]) -> None:
    settings = GameSettings(rounds=6, local_steps=4, **changed)
    together, alone = play(settings, True), play(settings, False)
    np.testing.assert_allclose(together.theta, alone.theta, rtol=0, atol=1e-10)
    for a, b in zip(together.history, alone.history, strict=True):
        assert a["payoff"] == pytest.approx(b["payoff"], abs=1e-10)


def test_a_cohort_on_ray_workers_ends_there_too(ray_session: Any) -> None:
    ray_session.ensure()
    settings = GameSettings(rounds=4, local_steps=4, batch=64, optimizer="oadam", lr_g=0.005)
    np.testing.assert_allclose(
        play(settings, True, simulate).theta, play(settings, False).theta, rtol=0, atol=1e-10
    )


def test_clients_are_stacked_with_others_whose_batches_are_about_as_long() -> None:
    groups = alike([100, 10, 90, 64, 256, 81, 9])
    assert sorted(i for group in groups for i in group) == list(range(7))
    assert groups == [[4], [0, 2, 5], [3], [1, 6]]
