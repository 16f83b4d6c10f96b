"""When a round counts, what it says when it does not, and what is kept of it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import CorymbError


class RoundError(CorymbError):
    """A round ended with fewer answers than its quorum; the message names who failed, and why.

    Attributes
    ----------
    failed : label of each client that failed, by partition.
    not_finite : whether all of them failed by numbers that are not finite.
    """

    def __init__(
        self, message: str, failed: Mapping[int, str] | None = None, not_finite: bool = False
    ) -> None:
        super().__init__(message)
        self.failed = dict(failed or {})
        self.not_finite = not_finite


class LostClientsError(RoundError):
    """Clients stayed away from a sum, but enough others answered to go on without them."""


@dataclass(frozen=True)
class Rules:
    """What a round needs to count.

    Attributes
    ----------
    quorum : share of the clients asked whose answers a round needs.
    timeout : seconds to wait for answers before the missing clients count as failed.
    """

    quorum: float = 1.0
    timeout: float = 600.0

    def needed(self, asked: int) -> int:
        """Answers that a round with so many clients needs."""
        return max(1, math.ceil(self.quorum * asked - 1e-9))


@dataclass(frozen=True)
class Exchange:
    """What happened in one round, for the log.

    Attributes
    ----------
    number, what : of the round.
    asked, answered : partitions, in order.
    failures : why each of the others failed.
    attempts : times that the round was tried.
    seconds : wall time of all attempts.
    """

    number: int
    what: str
    asked: list[int]
    answered: list[int]
    failures: dict[int, str]
    attempts: int
    seconds: float


EVERYONE = Rules()
"""Every round needs all the clients that it asks."""


@dataclass(frozen=True)
class RoundLog:
    """Appends a line for each round to `path`: who was asked, who answered, why others did not."""

    path: Path
    study: str

    def __call__(self, exchange: Exchange) -> None:
        """Append what happened; partitions as ranges, such as "0-41,43"."""
        line = {
            "study": self.study,
            "round": exchange.number,
            "what": exchange.what,
            "asked": ranges(exchange.asked),
            "answered": ranges(exchange.answered),
            "failures": exchange.failures,
            "attempts": exchange.attempts,
            "seconds": round(exchange.seconds, 6),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges: [0, 1, 2, 5] is "0-2,5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(str(n) for n in part) for part in parts)
