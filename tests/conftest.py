"""What tests share: one embedded Ray for all that need one, and no messages home."""

import os
from collections.abc import Iterator

import pytest

from cluster.config import ClusterSettings
from cluster.session import Session

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"


@pytest.fixture(scope="session")
def ray_session() -> Iterator[Session]:
    """An embedded Ray of two CPUs, started once, when the first test asks for it.

    A process has one connection to Ray: a test that opens and leaves another session, or calls
    something that ends in `ray.shutdown()`, closes this one too. Tests that use it after such a
    test begin with `ray_session.ensure()`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        with Session(ClusterSettings(num_cpus=2)) as session:
            yield session
