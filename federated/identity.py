"""Who a process is to Flower: the one place that touches `TaskIdentity`.

A `Message` takes its run and its sender from this class-level state of Flower's, which its own
runtimes set. It is internal to Flower; a test tells when it changes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from flwr.supercore.task_identity import TaskIdentity

RUN_ID = 1
SERVER_NODE = 1
"""Flower's number for the server of a simulation; clients are numbered from 2."""

FIRST_CLIENT_NODE = 2


def assume(node_id: int) -> None:
    """Let this process speak as one node of the simulated run, for the rest of its life."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN_ID, node_id


@contextmanager
def assumed(node_id: int) -> Iterator[None]:
    """Let this process speak as one node, and be afterwards who it was before."""
    names = ("_task_id", "_run_id", "_node_id")
    previous = {name: getattr(TaskIdentity, name) for name in names}
    assume(node_id)
    try:
        yield
    finally:
        for name, value in previous.items():
            setattr(TaskIdentity, name, value)
