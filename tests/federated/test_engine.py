"""The stock engine on Ray and calls in this process: the same bits; failures are told by name."""

import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from flwr.serverapp import Grid

from cluster.errors import InterruptedRunError
from cluster.session import Session
from federated.deal import deal
from federated.engine import in_process, simulate, stock
from federated.federation import Federation
from federated.fedgmm import scenarios
from federated.fedgmm.api import NoStore
from federated.fedgmm.client_app import AnyRows, DealtRows, make_client_app
from federated.fedgmm.config import GameSettings
from federated.fedgmm.estimators import federated_scale, first_stage, moment_sums
from federated.fedgmm.game import Players
from federated.fedgmm.networks import Network
from federated.fedgmm.train import train
from federated.rounds import RoundError

CLIENTS = 4


@pytest.fixture(scope="module")
def dealt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of four unequal clients."""
    root = tmp_path_factory.mktemp("clients")
    data = scenarios.draw("abs", "code", 400, 0)
    parts = np.split(np.arange(400), [30, 90, 200])
    deal(data.rows, parts, asdict(data.names), ["a", "b", "c", "d"], root / "abs")
    return root


def conversation(grid: Grid) -> dict[str, Any]:
    """A few rounds of sums and a few of the game."""
    federation = Federation.gather(grid, CLIENTS, "abs")
    scale = federated_scale(federation, 1, 2)
    stage = first_stage(federation, scale, 12, 8)
    settings = GameSettings(
        rounds=3, local_steps=3, batch=32, optimizer="oadam", lr_g=0.01, lr_f=0.03
    )
    players = Players(Network((1, 20, 3, 1)), Network((2, 20, 1)))
    trained = train(
        federation, scale, players, settings, 1, lambda _: {}, lambda *_: None, NoStore()
    )
    return {
        "labels": federation.labels,
        "by": moment_sums(federation, stage.design).total["by"],
        "theta": trained.theta,
        "payoffs": [h["payoff"] for h in trained.history],
    }


def test_the_engines_give_the_bits_of_the_plain_calls(dealt: Path, ray_session: Session) -> None:
    app = make_client_app(DealtRows(str(dealt)), cohorts=False)
    here = in_process(conversation, app, CLIENTS)
    ray_session.ensure()
    ours = simulate(conversation, app, CLIENTS)
    flowers = stock(conversation, app, CLIENTS, ray_session)
    again = stock(conversation, app, CLIENTS, ray_session)  # the engine closed Ray in between
    ray_session.ensure()
    for found in (ours, flowers, again):
        assert found["labels"] == here["labels"] == ["a", "b", "c", "d"]
        assert np.array_equal(found["theta"], here["theta"])
        assert found["payoffs"] == here["payoffs"]
        # BLAS may use more threads here than in a worker, which changes the order of its sums.
        np.testing.assert_allclose(found["by"], here["by"], rtol=1e-12)


def test_a_client_that_dies_on_the_stock_engine_fails_the_run_by_name(
    dealt: Path, ray_session: Session
) -> None:
    alive = DealtRows(str(dealt))

    def deadly(context: Context, deal: str) -> tuple[AnyRows, str]:  # travels to workers by value
        if int(context.node_config["partition-id"]) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return alive(context, deal)

    app = make_client_app(deadly)
    with pytest.raises(RoundError, match=r"nothing was averaged\. Failed: .*client 1"):
        stock(conversation, app, CLIENTS, ray_session)
    ray_session.ensure()


def test_a_request_to_stop_is_heard_between_rounds(dealt: Path) -> None:
    def server(grid: Grid) -> None:
        def stop() -> None:
            raise InterruptedRunError("stop")

        federation = Federation.gather(grid, CLIENTS, "abs")
        Federation(grid, federation.members, "abs", check=stop).ask("count", {}, {})

    with pytest.raises(InterruptedRunError):
        in_process(server, make_client_app(DealtRows(str(dealt))), CLIENTS)
