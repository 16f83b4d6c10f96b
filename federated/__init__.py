"""Federated learning: clients that never share rows.

For users who want an estimate and no cluster::

    from federated import LinearIV, SieveIV, DeepGMM

    g = SieveIV().fit(z, x, y, client=hospital)
    curve, se = g.predict(grid)

Each fits in this process, with the same code that runs on Ray.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from federated.fedgmm.api import DeepGMM, LinearIV, SieveIV

__all__ = ["DeepGMM", "LinearIV", "SieveIV"]


def __getattr__(name: str) -> Any:
    """Import the estimators on first use: they bring torch and Flower."""
    if name in __all__:
        from federated.fedgmm import api

        return getattr(api, name)
    raise AttributeError(f"module 'federated' has no attribute '{name}'")
