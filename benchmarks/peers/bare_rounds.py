"""The rounds as a plain loop without any framework: what the work itself costs, the floor."""

from typing import Any

from benchmarks.peers import work


def run(clients: int, rounds: int) -> dict[str, Any]:
    """Play the rounds."""
    clock = work.Clock(rounds, work.born())
    network = work.bare(clients, rounds, clock.ended)
    return work.outcome("bare", "torch", clients, rounds, clock, network)


if __name__ == "__main__":
    work.command(run)
