"""What runs inside nvflare's simulator: its FedAvg with a clock on the server, a trainer on each
client. They are found by module path, in the server's process and in each client's."""  # fmt: skip

import json
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import (
    FLModel,
    ParamsType,
)
from nvflare.app_common.utils.fl_model_utils import (
    FLModelUtils,
)
from nvflare.app_common.workflows.fedavg import FedAvg

from benchmarks.peers import work


def _named(network: work.Network) -> dict[str, work.Floats]:
    return {str(i): array for i, array in enumerate(network.arrays())}


def _arrays(params: dict[str, Any]) -> list[work.Floats]:
    return [np.asarray(params[str(i)]) for i in range(len(params))]


class TimedFedAvg(FedAvg):  # type: ignore[misc]
    """nvflare's FedAvg from the common parameters, with a clock; the measurement goes to a file."""

    def __init__(self, num_clients: int, num_rounds: int, since: float, report: str) -> None:
        super().__init__(num_clients=num_clients, num_rounds=num_rounds, persistor_id="")
        self.since = since
        self.report = report
        self.model = FLModel(params=_named(work.Network()), params_type=ParamsType.FULL)
        self._clock = work.Clock(num_rounds, since)

    def save_model(self, model: Any) -> None:
        """Tell the clock; no model is written, which spares nvflare that cost."""
        self._clock.ended(self.current_round + 1)
        if self.current_round + 1 < self.num_rounds:
            return
        network = work.Network()
        network.take(_arrays(model.params))
        measured = work.outcome(
            "nvflare", "nvflare", self.num_clients, self.num_rounds, self._clock, network
        )
        Path(self.report).write_text(json.dumps(measured))


class Trainer(Executor):  # type: ignore[misc]
    """A client: trains from what it receives and returns all parameters."""

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Handle one task, which can only be to train."""
        work.one_thread()
        received = FLModelUtils.from_shareable(shareable)
        client = int(fl_ctx.get_identity_name().removeprefix("site-")) - 1
        network = work.Network()
        network.take(_arrays(received.params))
        work.train(network, int(received.current_round) + 1, client)
        reply = FLModel(
            params=_named(network),
            params_type=ParamsType.FULL,
            meta={FLMetaKey.NUM_STEPS_CURRENT_ROUND: work.STEPS},
        )
        return FLModelUtils.to_shareable(reply)
