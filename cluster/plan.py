"""What a run needs before it starts, in numbers that can be held against a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """The resources and the length of a run.

    Attributes
    ----------
    bundles : each is placed whole on one node, e.g. {"CPU": 1.0}; the driver's share is one of
        them. Without any, the run needs no Ray and gets no session.
    steps, unit : estimated number of steps, e.g. 150 "rounds".
    keys : dotted configuration keys that a person can change to need less.
    """

    bundles: tuple[Mapping[str, float], ...]
    steps: int
    unit: str
    keys: tuple[str, ...]
