"""Two Flower simulations in one session, as test_session.py starts it; prints JSON.

Flower's stock engine attaches to the Ray that the process is connected to, and ends by
disconnecting from it.
"""

import json
import os
import time
from typing import Any

import ray
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from cluster.config import ClusterSettings
from cluster.session import Session

CLIENTS = 4

client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    found = MetricRecord()
    found["client"] = int(context.node_config["partition-id"])
    found["process"] = os.getpid()
    return Message(RecordDict({"found": found}), reply_to=message)


def address() -> str:
    return str(ray.get_runtime_context().gcs_address)


def simulate() -> dict[str, Any]:
    """Two rounds of four clients on the two CPUs of the session."""
    seen: dict[str, Any] = {"clients": [], "actors": []}
    ours = address()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, _: Context) -> None:
        seen["same"] = address() == ours
        while len(nodes := list(grid.get_node_ids())) < CLIENTS:  # they connect one by one
            time.sleep(0.1)
        for _round in range(2):
            messages = [Message(RecordDict(), node, "train") for node in nodes]
            replies: list[Any] = [
                reply.content["found"] for reply in grid.send_and_receive(messages, timeout=60)
            ]
            seen["clients"].append(sorted(reply["client"] for reply in replies))
            seen["actors"].append(len({reply["process"] for reply in replies}))

    run_simulation(
        server,
        client,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}},
    )
    seen["connected"] = ray.is_initialized()
    return seen


if __name__ == "__main__":
    found = []
    with Session(ClusterSettings(num_cpus=2)) as session:
        for _turn in range(2):
            session.ensure()
            found.append(simulate())
    print(json.dumps(found))
