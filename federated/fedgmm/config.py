"""Configuration of recipe `fedgmm`: data, clients, estimators, and the game's options."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cluster.config import RunConfig, RunPath, Settings
from cluster.plan import Plan
from federated.fedgmm.private.settings import PrivacySettings

Scenario = Literal["abs", "step", "linear", "sin"]
Source = Literal[
    "abs", "step", "linear", "sin", "card", "mroz", "file", "images_x", "images_z", "images_xz"
]

SYNTHETIC = ("abs", "step", "linear", "sin")
IMAGES = ("images_x", "images_z", "images_xz")

MOMENT_ROUNDS = 12
NEURAL_ROUNDS = 52
PRIVATE_ROUNDS = 2


class DataSettings(Settings):
    """Which rows are analysed."""

    source: Source = Field(
        "abs",
        description="A synthetic process, a shipped data set, `file`, or a synthetic process whose "
        "treatment, instrument or both are shown as images.",
    )
    process: Literal["code", "paper"] = Field(
        "code", description="Synthetic processes: as in the authors' code, or in the paper's text."
    )
    rows: int = Field(20000, ge=50, description="Rows to draw from a synthetic process.")
    scenario: Scenario = Field("abs", description="Hidden g0 behind the sources `images_*`.")
    path: RunPath | None = Field(
        None,
        description="CSV or Parquet file for source `file`; for `images_*` a folder with MNIST, "
        "FEMNIST or CIFAR-10 (default: scikit-learn's digits).",
    )
    outcome: str | None = Field(None, description="Column y.")
    treatments: tuple[str, ...] = Field((), description="Columns x, endogenous.")
    instruments: tuple[str, ...] = Field((), description="Columns z, excluded instruments.")
    controls: tuple[str, ...] = Field((), description="Columns w, exogenous controls.")
    client: str | None = Field(None, description="Column that says which client holds a row.")

    @model_validator(mode="after")
    def _file_needs_columns(self) -> Self:
        if self.source != "file":
            return self
        given = {
            "path": self.path, "outcome": self.outcome,
            "treatments": self.treatments, "instruments": self.instruments,
        }  # fmt: skip
        missing = [name for name, value in given.items() if not value]
        if missing:
            raise ValueError(f"source 'file' also needs {', '.join(missing)}")
        return self


class PartitionSettings(Settings):
    """Which client holds which rows, where the data do not say."""

    by: Literal["column", "quantity", "instrument", "treatment"] | None = Field(
        None,
        description="The data's client column, Dirichlet skew in the number of rows, or Dirichlet "
        "skew on quantiles of the first instrument or treatment. Default: the column if there is "
        "one, else quantity.",
    )
    clients: int = Field(10, ge=1, description="Number of clients; not used with `column`.")
    alpha: float = Field(0.3, gt=0, description="Dirichlet concentration; smaller is more uneven.")
    minimum: int = Field(5, ge=1, description="Rows that every client gets at least.")


class FederationSettings(Settings):
    """What a round needs to count, and how simulated clients are trained."""

    quorum: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the clients asked whose answers a round needs. Sums go on without "
        "clients that stay away, but begin again, since all sums must be over the same clients.",
    )
    timeout: float = Field(600.0, gt=0, description="Seconds to wait for the answers of a round.")
    cohorts: bool = Field(
        True, description="Train the simulated clients of a worker at once, stacked in one tensor."
    )


class ServerSettings(Settings):
    """What the server does with the average of the clients' players."""

    kind: Literal["average", "momentum", "adam"] = "average"
    lr: float = Field(1.0, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)


class GameSettings(Settings):
    """One variant of FedGDA (Algorithm 1 of arXiv 2505.21012)."""

    rounds: int = Field(100, ge=1, description="T, communication rounds.")
    local_steps: int = Field(10, ge=1, description="R, steps of a client in a round.")
    batch: int | None = Field(None, ge=1, description="Minibatch size; none for all rows.")
    optimizer: Literal["sgd", "momentum", "oadam"] = "sgd"
    lr_g: float = Field(0.05, gt=0, description="Step size of g.")
    lr_f: float = Field(0.05, gt=0, description="Step size of the critic f.")
    theta_tilde: Literal["current", "global", "frozen"] = Field(
        "current",
        description="theta~ in the weights: the current step's, the round's global one, or the "
        "one reached halfway, after a first half with constant weights.",
    )
    weights: Literal["residual", "constant"] = "residual"
    control_variates: bool = Field(False, description="SCAFFOLD's correction of client drift.")
    keep_state: bool = Field(True, description="Carry optimiser state from round to round.")
    decay: Literal["none", "cosine"] = "cosine"
    averaging: Literal["none", "second_half"] = "second_half"
    weight_by: Literal["rows", "clients"] = Field(
        "rows", description="Average weighted by rows, or 1/N as in the paper's text."
    )
    participation: float = Field(1.0, gt=0, le=1, description="Share of clients in a round.")
    server: ServerSettings = ServerSettings()
    hidden_g: tuple[int, ...] = (20, 3)
    hidden_f: tuple[int, ...] = (20,)

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.control_variates and self.optimizer != "sgd":
            raise ValueError(
                "control_variates needs optimizer 'sgd', whose steps are its gradients"
            )
        if self.theta_tilde == "frozen" and self.rounds < 2:
            raise ValueError("theta_tilde 'frozen' needs at least 2 rounds")
        return self


class CurveSettings(Settings):
    """The penalised sieve. Fixed defaults; criteria on held-out moments choose badly here."""

    splines: int = Field(25, ge=5, description="Splines of x.")
    index_splines: int = Field(12, ge=5, description="Splines of the fitted first stage.")
    smoothing: float = Field(2e-4, gt=0, description="Weight of the roughness of g.")


class ImageSettings(Settings):
    """How networks learn to predict from images, before the last layer is solved from sums."""

    rounds: int = Field(20, ge=1, description="Communication rounds of a network.")
    epochs: int = Field(1, ge=1, description="Passes of a client over its rows in a round.")
    batch: int = Field(64, ge=1)
    lr: float = Field(3e-3, gt=0, description="Of the first round; it falls to zero as a cosine.")
    weight_decay: float = Field(0.0, ge=0)
    hidden: int = Field(32, ge=1, description="Width of the last hidden layer.")
    ridge: float = Field(0.1, gt=0, description="Penalty on coefficients of what was predicted.")


class CheckSettings(Settings):
    """A synthetic process with a known truth, analysed beside the data with the same methods."""

    source: Scenario = "abs"
    process: Literal["code", "paper"] = "code"
    rows: int = Field(20000, ge=50)
    clients: int = Field(10, ge=1)


# The critic moves five times as fast as g, as in the reference implementations.
FEDGDA: dict[str, Any] = {"batch": None, "optimizer": "sgd", "lr_g": 0.03, "lr_f": 0.15}
FEDSGDA: dict[str, Any] = {**FEDGDA, "batch": 256}
FEDOADAM: dict[str, Any] = {"batch": 256, "optimizer": "oadam", "lr_g": 0.005, "lr_f": 0.025}


class Config(RunConfig):
    """A federated instrumental-variable analysis."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "smoke": {
            "data": {"rows": 2000},
            "partition": {"clients": 4},
            "estimators": ["sieve"],
            "games": {"fedoadam": {**FEDOADAM, "rounds": 4}},
            "images": {"rounds": 3},
        },
        "small": {"games": {"fedoadam": {**FEDOADAM, "rounds": 60}}},
        "paper": {
            "seeds": [0, 1, 2, 3, 4],
            "games": {"fedgda": FEDGDA, "fedsgda": FEDSGDA, "fedoadam": FEDOADAM},
        },
        # Convolutional players take smaller steps of g, or the game blows up.
        "images": {
            "data": {"source": "images_x"},
            "games": {"fedoadam": {**FEDOADAM, "lr_g": 0.0001, "lr_f": 0.005, "rounds": 60}},
        },
        "demo": {
            "data": {"source": "card"},
            "check": {"source": "abs"},
            "games": {"fedoadam": {**FEDOADAM, "rounds": 60}},
        },
    }

    data: DataSettings = DataSettings()
    partition: PartitionSettings = PartitionSettings()
    model: Literal["linear", "curve"] | None = Field(
        None, description="A coefficient a treatment, or one curve. Default: curve if synthetic."
    )
    estimators: tuple[Literal["sieve", "control", "neural", "polynomial"], ...] = Field(
        ("sieve", "control", "neural"), description="Curve estimators that need only sums."
    )
    games: dict[str, GameSettings] = Field(
        {}, description="Named variants of the game; those of a preset can be changed or added to."
    )
    curve: CurveSettings = CurveSettings()
    images: ImageSettings = ImageSettings()
    check: CheckSettings | None = None
    federation: FederationSettings = FederationSettings()
    privacy: PrivacySettings | None = Field(
        None, description="Analyse by one private release alone, instead of estimators and games."
    )
    engine: Literal["simulation", "in_process", "flower"] = Field(
        "simulation",
        description="Clients on Ray workers, all in this process, or on Flower's own engine.",
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.kind == "curve" and len(self.data.treatments) > 1:
            raise ValueError("model 'curve' takes one treatment; use model 'linear' for several")
        if self.data.source in IMAGES:
            self._images_fit()
        by_column = self.partition.by == "column"
        if by_column and self.data.source == "file" and self.data.client is None:
            raise ValueError("partition.by 'column' needs data.client, the column's name")
        if by_column and self.data.source in (*SYNTHETIC, "mroz"):
            raise ValueError(f"source '{self.data.source}' has no client column to partition by")
        return self

    @model_validator(mode="after")
    def _enough_clients_to_mask(self) -> Self:
        named = self.data.source == "card" or self.data.client is not None
        dealt = self.partition.by not in (None, "column") or not (named or self.partition.by)
        if self.privacy is not None and dealt:
            self.privacy.check_clients(self.partition.clients)
        if self.privacy is not None and self.check is not None:
            self.privacy.check_clients(self.check.clients)
        return self

    def _images_fit(self) -> None:
        if self.partition.by not in (None, "quantity"):
            raise ValueError("images have no columns to partition by; use partition.by 'quantity'")
        if self.model == "linear":
            raise ValueError("images need model 'curve'")
        if self.check is not None:
            raise ValueError("a check goes with real data; images are drawn with a known truth")
        if self.privacy is not None:
            raise ValueError("privacy covers columns with bounds, not images; leave it out")

    @property
    def kind(self) -> Literal["linear", "curve"]:
        """The model, with its default filled in."""
        if self.model is not None:
            return self.model
        return "curve" if self.data.source in (*SYNTHETIC, *IMAGES) else "linear"

    def plan(self) -> Plan:
        """One client actor at least, unless all stay in process; rounds of all estimators."""
        curves = self.kind == "curve" or self.check is not None
        games = sum(g.rounds for g in self.games.values()) if curves else 0
        neural = NEURAL_ROUNDS if curves and "neural" in self.estimators else 0
        if self.data.source in IMAGES:
            neural = self.images.rounds * (2 if self.data.source == "images_xz" else 1)
        per_seed = MOMENT_ROUNDS + neural + games if self.privacy is None else PRIVATE_ROUNDS
        return Plan(
            () if self.engine == "in_process" else ({"CPU": 1.0},),
            len(self.seeds) * per_seed,
            "rounds",
            ("cluster.num_cpus",),
        )
