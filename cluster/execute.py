"""The one door to a run: plan, directory, session, recipe, result, report, thresholds.

`run`, `resume`, `rerun` and `demo` all go through `execute`.
"""

import contextlib
import json
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import config as configuration
from cluster import recipes, report
from cluster.config import Loaded, RunConfig
from cluster.errors import CorymbError, ThresholdError, UsageError
from cluster.evidence import Result
from cluster.run import Run
from cluster.session import Session

_REQUIREMENT = re.compile(r"\s*([\w./-]+)\s*(<=|>=|<|>)\s*([-+\w.]+)\s*")

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip


@dataclass(frozen=True)
class Requirement:
    """An acceptance threshold on a figure: NAME<=VALUE."""

    name: str
    sign: str
    value: float

    @classmethod
    def parse(cls, text: str) -> "Requirement":
        """Read "mse.abs<=0.01"; raises UsageError."""
        match = _REQUIREMENT.fullmatch(text)
        try:
            if match:
                return cls(match[1], match[2], float(match[3]))
        except ValueError:
            pass
        raise UsageError(f"--require {text}: expected NAME<=VALUE or NAME>=VALUE")

    def miss(self, result: Result) -> str | None:
        """Say how the result misses the threshold, or None."""
        if self.name not in result.figures:
            known = ", ".join(result.figures)
            return f"{self.name} was not measured (figures: {known})"
        value = result.figures[self.name].value
        if _COMPARE[self.sign](value, self.value):
            return None
        return f"{self.name} is {value:g}, required {self.sign} {self.value:g}"


@dataclass(frozen=True)
class Outcome:
    """A finished run: its directory, what it found, its report, and the requirements it missed."""

    path: Path
    result: Result
    report: Path
    misses: tuple[str, ...]

    def check(self) -> None:
        """Raise ThresholdError, with all misses, if there are any."""
        if self.misses:
            raise ThresholdError("; ".join(self.misses) + f" (run {self.path.name})")


def start(
    loaded: Loaded, *, requirements: Sequence[Requirement] = (), repeats: str | None = None
) -> Outcome:
    """Run a configuration in a new run directory.

    `repeats` is the id of the run that this one repeats. Raises what `execute` raises.
    """
    config = loaded.config
    run = Run.open(
        recipe=config.recipe,
        config_yaml=configuration.dump(config),
        origins=loaded.origins,
        output=Path(config.output),
        lineage={} if repeats is None else {"rerun_of": repeats},
    )
    return execute(config, run, requirements)


def resume(path: Path, *, requirements: Sequence[Requirement] = ()) -> Outcome:
    """Take up a stopped run where its last checkpoint is."""
    config = stored_config(path)
    return execute(config, Run.reopen(path), requirements)


def stored_config(path: Path) -> RunConfig:
    """The configuration in a run directory, as it was resolved when the run began."""
    return configuration.load(path / "config.yaml").config


def stored(path: Path, sets: Sequence[str] = ()) -> Loaded:
    """A run's configuration with `sets` (texts "a.b=1") on top, to repeat it.

    Values that are kept have the origins that they had then, not their line in the stored copy.
    """
    loaded = configuration.load(path / "config.yaml", sets=sets)
    try:
        first: dict[str, str] = json.loads((path / "origins.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        raise UsageError(f"{path} has no readable origins.json; was it copied whole?") from None
    origins = {
        key: first.get(key, origin) if origin.startswith("config.yaml:") else origin
        for key, origin in loaded.origins.items()
    }
    return Loaded(loaded.config, origins)


def execute(config: RunConfig, run: Run, requirements: Sequence[Requirement] = ()) -> Outcome:
    """Run a recipe inside a Ray session and leave result and report in its directory.

    Raises
    ------
    CorymbError
        What stopped the run; the directory then says "failed" or "interrupted" and has a report
        of what there is. An unexpected exception becomes one that names the log.
    """
    recipe = recipes.find(config.recipe)
    with run, contextlib.redirect_stdout(sys.stderr):  # stdout is for the result alone
        try:
            with _session(config, run) as session:
                run.session = session
                result = recipe.run(config, run)
            run.close(result)
        except (CorymbError, KeyboardInterrupt) as error:
            run.fail(error)
            report.write(run.path)
            raise
        except Exception as error:
            run.fail(error)
            report.write(run.path)
            raise CorymbError(
                f"{type(error).__name__}: {error} (details in {run.path / 'log.txt'})"
            ) from error
    misses = tuple(miss for r in requirements if (miss := r.miss(result)) is not None)
    return Outcome(run.path, result, report.write(run.path), misses)


@contextlib.contextmanager
def _session(config: RunConfig, run: Run) -> Iterator[Session | None]:
    """The Ray session that the plan asks for; none where it needs no bundle."""
    plan = config.plan()
    if not plan.bundles:
        yield None
        return

    def say(text: str) -> None:
        run.say(text)
        run.check_stop()  # waiting for a cluster to grow can take long

    say(f"{run.id}: starting Ray")
    with Session(config.cluster, say=say) as session:
        session.preflight(plan)
        yield session
