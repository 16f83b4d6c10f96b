"""The rounds in Flower's stock simulation engine: messages through it to actors on Ray.

`client_app` and `serve` are plain Flower; other engines are given the same two.
"""

import logging
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from benchmarks.peers import work

client_app = ClientApp()


@client_app.train()
def _train(message: Message, context: Context) -> Message:
    work.one_thread()
    network = work.Network()
    received: ArrayRecord = message.content.array_records["arrays"]
    network.take(received.to_numpy_ndarrays())
    number = message.content.config_records["config"]["server-round"]
    client = context.node_config["partition-id"]
    assert isinstance(number, int)
    work.train(network, number, int(client))
    content = RecordDict(
        {
            "arrays": ArrayRecord(network.arrays()),
            "metrics": MetricRecord({"num-examples": work.ROWS}),
        }
    )
    return Message(content=content, reply_to=message)


def serve(grid: Grid, clients: int, clock: work.Clock, rounds: int) -> work.Network:
    """Flower's FedAvg over all clients; returns the network with the last global parameters."""
    network = work.Network()
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)

    def ended(number: int, _: ArrayRecord) -> MetricRecord | None:
        clock.ended(number)
        return None

    result = strategy.start(
        grid, ArrayRecord(network.arrays()), num_rounds=rounds, evaluate_fn=ended
    )
    network.take(result.arrays.to_numpy_ndarrays())
    return network


def run(clients: int, rounds: int) -> dict[str, Any]:
    """Play the rounds with as many actors as there are CPUs."""
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.WARNING)
    clock = work.Clock(rounds, work.born())
    reached: list[work.Network] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, _: Context) -> None:
        reached.append(serve(grid, clients, clock, rounds))

    run_simulation(
        server_app=app,
        client_app=client_app,
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}},
    )
    return work.outcome("flower", "flwr", clients, rounds, clock, reached[0])


if __name__ == "__main__":
    work.command(run)
