"""A study: one data set on its clients, ready for the server to ask."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cluster.errors import UsageError
from cluster.problems import ConfigError
from federated.deal import Dealable, deal
from federated.fedgmm import scenarios, sources
from federated.fedgmm.config import SYNTHETIC, CheckSettings, Config, DataSettings
from federated.fedgmm.private.settings import PrivacySettings
from federated.fedgmm.rows import Dataset, Names
from federated.partition import Parts, by_column, describe, quantile_skew, quantity
from federated.streams import stream


@dataclass(frozen=True)
class Study:
    """One data set, dealt to clients, under one seed.

    Attributes
    ----------
    name : of the deal and of its checkpoints, such as "abs-0".
    kind : "linear" or "curve".
    dataset : all rows; only baselines and the truth are read from it once it is dealt.
    parts, labels : row numbers and name of each client.
    skewed_on_treatment : whether clients differ by an endogenous variable.
    """

    name: str
    kind: Literal["linear", "curve"]
    dataset: Dataset
    parts: Parts
    labels: list[str]
    seed: int
    skewed_on_treatment: bool

    @property
    def variance(self) -> float:
        """Variance of the outcome over all rows, the unit of reported errors."""
        return float(self.dataset.rows.y.var())

    def describe_clients(self) -> str:
        """One sentence on who holds how much."""
        return str(describe(self.parts))


def studies(config: Config) -> list[Study]:
    """The studies of a run: the data once a seed if they are drawn, then the check.

    Real rows do not change with the seed, so with `by: column` one study is enough; with a random
    partition each seed deals them anew. A private analysis of real rows is made once, since each
    more would spend the budget again.

    Raises ConfigError if a private analysis lacks bounds, or clients to mask among.
    """
    again = config.privacy is None and _by(config, None) != "column"
    random = config.data.source in SYNTHETIC or again
    seeds = config.seeds if random else config.seeds[:1]
    found = [main_study(config, seed) for seed in seeds]
    if config.check is not None:
        found += [check_study(config.check, seed) for seed in config.seeds]
    if config.privacy is not None:
        _check_private(config.privacy, found)
    return found


def _check_private(privacy: PrivacySettings, found: list[Study]) -> None:
    privacy.check_columns([study.dataset.names for study in found])
    for study in found:
        try:
            privacy.check_clients(len(study.parts))
        except ValueError as error:
            raise ConfigError([f"{study.name}: {error}"]) from None


def main_study(config: Config, seed: int) -> Study:
    """The configured data on the configured clients."""
    dataset = read(config.data, seed)
    by = _by(config, dataset)
    rng = stream(seed, "partition")
    p = config.partition
    n = len(dataset.rows)
    if by == "column":
        if dataset.client is None:
            raise UsageError("partition.by 'column': the data have no client column")
        parts = by_column(dataset.client)
        labels = [str(dataset.client[part[0]]) for part in parts]
    else:
        if by == "quantity":
            parts = quantity(n, p.clients, p.alpha, rng, p.minimum)
        else:
            column = dataset.rows.z[:, 0] if by == "instrument" else dataset.rows.x[:, 0]
            parts = quantile_skew(column, p.clients, p.alpha, rng, p.minimum)
        labels = [f"client {i}" for i in range(len(parts))]
    name = f"{config.data.source}-{seed}"
    return Study(name, config.kind, dataset, parts, labels, seed, by == "treatment")


def check_study(check: CheckSettings, seed: int) -> Study:
    """The synthetic process that shows what the methods recover when the truth is known."""
    dataset = scenarios.draw(check.source, check.process, check.rows, seed)
    parts = quantity(check.rows, check.clients, 0.3, stream(seed, "partition"))
    labels = [f"client {i}" for i in range(len(parts))]
    return Study(f"check-{check.source}-{seed}", "curve", dataset, parts, labels, seed, False)


def read(data: DataSettings, seed: int) -> Dataset:
    """Draw or read the rows; raises UsageError for a file that cannot be used."""
    if data.source == "card":
        return sources.card()
    if data.source == "mroz":
        return sources.mroz()
    if data.source != "file":
        return scenarios.draw(data.source, data.process, data.rows, seed)
    assert data.path is not None
    assert data.outcome is not None
    return sources.read_table(
        Path(data.path), data.outcome, data.treatments, data.instruments, data.controls, data.client
    )


def deal_all(found: list[Study], folder: Path) -> None:
    """Give every client of every study its rows."""
    for study in found:
        names = study.dataset.names
        deal_once(study.name, study.dataset.rows, study.parts, names, study.labels, folder)


def deal_once(
    name: str, rows: Dealable, parts: Parts, names: Names, labels: list[str], folder: Path
) -> None:
    """Give clients their rows; refuse to go on with other rows than a run began with."""
    home = folder / name
    mark, digest = home / "rows.sha256", _digest(rows, parts)
    if mark.is_file() and mark.read_text().strip() != digest:
        raise UsageError(
            f"The data of study '{name}' changed since this run began; "
            "start a new run instead of resuming it"
        )
    deal(rows, parts, asdict(names), labels, home)
    mark.write_text(digest + "\n")


def _digest(rows: Dealable, parts: Parts) -> str:
    digest = hashlib.sha256()
    for array in (*(getattr(rows, name) for name in rows.ARRAYS), *parts):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _by(config: Config, dataset: Dataset | None) -> str:
    if config.partition.by is not None:
        return config.partition.by
    if dataset is not None:
        return "quantity" if dataset.client is None else "column"
    has_column = config.data.source == "card" or config.data.client is not None
    return "column" if has_column else "quantity"
