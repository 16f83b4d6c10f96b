"""What can end a command, and the exit code it ends with.

Every error that a person can cause or meet is one of these classes. The message is one clear
sentence: what is wrong, where, and what to do about it. The command line prints it without a
traceback and exits with `exit_code`; anything else that escapes is a bug and keeps its traceback
in the run's log.
"""

from typing import ClassVar


class CorymbError(Exception):
    """A run failed (exit code 1), or the base of a more precise reason."""

    exit_code: ClassVar[int] = 1


class UsageError(CorymbError):
    """The command, the configuration or the data it names cannot be used as given (2)."""

    exit_code = 2


class MissingDependencyError(CorymbError):
    """An optional package that this run needs is not installed (3)."""

    exit_code = 3


class ResourcesError(CorymbError):
    """The cluster cannot place what the run needs (4)."""

    exit_code = 4


class ClusterUnreachableError(CorymbError):
    """The cluster at the given address does not answer (5)."""

    exit_code = 5


class ThresholdError(CorymbError):
    """The run finished, but an acceptance threshold (`--require`) was missed (6)."""

    exit_code = 6


class InterruptedRunError(CorymbError):
    """The run was asked to stop and left a checkpoint to resume from (130)."""

    exit_code = 130
