"""The private conversation: bounded moments, noise, and the one estimate that comes of them.

All that is ever released of the rows is one noisy sum of second moments (`private`). Without masks
the server is trusted: it sees every client's exact sums and adds the noise. With them the clients
add noise and masks, and the server sees their noisy total alone (`masking`).
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import RecordDict

from cluster.errors import UsageError
from cluster.run import Run
from federated.federation import Federation, Member, pack, unpack
from federated.fedgmm.design import Array
from federated.fedgmm.estimators import total
from federated.fedgmm.private.design import PrivateDesign, release, unsvec
from federated.fedgmm.private.fit import PrivateCurve, PrivateLinear, private_curve, private_linear
from federated.fedgmm.private.settings import PrivacySettings, bounds_of
from federated.fedgmm.studies import Study
from federated.masking import FEWEST, Codec, Masked, MissingClientsError, SecureSum
from federated.privacy import Budget, Ledger, Release, gaussian_epsilon
from federated.streams import stream

RELEASE = "moments"
"""Name of the one release that a study spends its budget on."""

GRID = 2.0**-20
"""Step of the fixed-point grid in units of the noise, or of the sensitivity if that is less."""

FINE_GRID = 2.0**-40
"""The same in units of a client's largest sum, where there is no noise."""


@dataclass(frozen=True)
class Released:
    """What the server has after the conversation.

    Attributes
    ----------
    moments : (d, d) noisy sum of v v'.
    noise_sd : standard deviation of the noise on each entry of its `svec`.
    members : the clients whose rows are in the sum.
    ledger : what was spent; the noise that was there, which is more than was promised where more
        clients than the quorum added their shares.
    quorum : clients that the noise was calibrated for; 0 without masks.
    rounds : secure sums that were tried, each under fresh masks and noise.
    """

    moments: Array
    noise_sd: float
    members: Sequence[Member]
    ledger: Ledger
    quorum: int = 0
    rounds: int = 1

    @property
    def n(self) -> int:
        """Rows in the sum."""
        return sum(m.rows for m in self.members)

    @property
    def worst_epsilon(self) -> float:
        """Epsilon if every round's total became known, also of those that were given up.

        Each round then has at least the quorum's noise, of its own.
        """
        (spent,) = self.ledger.releases
        spare = math.sqrt(len(self.members) / self.quorum) if self.quorum else 1.0
        return gaussian_epsilon(spent.mu * spare * math.sqrt(self.rounds), self.ledger.delta)


@dataclass(frozen=True)
class PrivateFindings:
    """What was found in one study from its one private release."""

    study: Study
    design: PrivateDesign
    released: Released
    estimate: PrivateCurve | PrivateLinear

    def error(self, g: Array) -> float:
        """Mean squared error of g at the test treatments, (m,), in units of Var(y)."""
        truth = self.study.dataset.truth
        if truth is None:
            raise ValueError(f"study '{self.study.name}' has no truth to compare with")
        return float(np.mean((g - truth.function(truth.test_x)) ** 2)) / self.study.variance


def analyse_privately(
    federation: Federation, study: Study, privacy: PrivacySettings, run: Run
) -> PrivateFindings:
    """Collect the one release of a study and estimate from it.

    Raises
    ------
    LostClientsError
        Without masks, if clients stay away from the sum but not too many.
    RoundError, MissingClientsError
        If fewer clients than the quorum are left; both name those that are missing.
    """
    run.say(f"{study.name}: {study.describe_clients()}")
    design = design_of(study, privacy)
    if privacy.secure:
        released = secure_release(federation, study, design, privacy, run)
    else:
        released = trusted_release(federation, study, design, privacy)
    fit = private_curve if study.kind == "curve" else private_linear
    rng = stream(study.seed, "privacy errors", study.name)
    estimate = fit(released.moments, released.noise_sd, design, released.n, rng)
    return PrivateFindings(study, design, released, estimate)


def design_of(study: Study, privacy: PrivacySettings) -> PrivateDesign:
    """The public design of a study; its bounds must have been checked."""
    names, known = study.dataset.names, privacy.bounds
    return PrivateDesign(
        study.kind, known[names.y], bounds_of(names.x, known), bounds_of(names.z, known),
        bounds_of(names.w, known), radius=privacy.radius,
    )  # fmt: skip


def trusted_release(
    federation: Federation, study: Study, design: PrivateDesign, privacy: PrivacySettings
) -> Released:
    """Add up the clients' exact sums at the server, which adds the noise (one round)."""
    ledger = Budget(privacy.epsilon, privacy.delta).split({RELEASE: design.sensitivity})
    sigma = ledger[RELEASE].sigma
    exact = total(federation.ask("private_moments", *design.pack()))["moments"]
    noisy = release(exact, sigma, stream(study.seed, "privacy noise", study.name, "server"))
    return Released(noisy, sigma, federation.members, ledger)


def secure_release(
    federation: Federation,
    study: Study,
    design: PrivateDesign,
    privacy: PrivacySettings,
    run: Run,
) -> Released:
    """Let the clients add noise and masks, and read their total (two rounds without dropouts)."""
    everyone = {_called(m): m for m in federation.members}
    quorum = max(FEWEST, federation.rules.needed(len(study.parts)))
    publics = _public_keys(federation, everyone, run)
    missing = [name for name in everyone if name not in publics]
    if len(publics) < quorum:
        raise MissingClientsError(
            f"A secure sum needs {quorum} of {len(study.parts)} clients, but only {len(publics)} "
            f"have sent a key; missing: {', '.join(missing) or 'those that did not connect'}."
        )
    most = max(everyone[name].rows for name in publics)
    codec, ledger = grid_of(design, privacy, most, len(publics), quorum)
    sigma = ledger[RELEASE].sigma
    settings = {
        **design.pack()[1],
        "codec": {"step": codec.step, "bound": codec.bound},
        "noise": {"seed": study.seed, "sigma": sigma / codec.step, "quorum": quorum},
    }
    rounds = MaskedRounds(federation, everyone, publics, settings, run)
    encoded, names = SecureSum(list(publics), quorum).collect(rounds, lambda: os.urandom(16))
    spent = sigma * math.sqrt(len(names) / quorum)
    releases = (Release(RELEASE, ledger[RELEASE].sensitivity, spent),)
    return Released(
        unsvec(codec.decode(encoded)), spent, [everyone[name] for name in names],
        Ledger(privacy.epsilon, privacy.delta, releases), quorum, rounds.done,
    )  # fmt: skip


def grid_of(
    design: PrivateDesign, privacy: PrivacySettings, most_rows: int, clients: int, quorum: int
) -> tuple[Codec, Ledger]:
    """The fixed-point grid of a secure sum, and the noise for the sensitivity on that grid.

    Parameters
    ----------
    most_rows : rows of the largest client; an entry of its sum is at most that times R^2.
    clients, quorum : clients in the sum, and those whose shares of the noise must suffice.

    Raises
    ------
    UsageError
        If sums of so many rows do not fit into 64 bits.
    """
    budget = Budget(privacy.epsilon, privacy.delta)
    sigma = budget.split({RELEASE: design.sensitivity})[RELEASE].sigma
    bound = most_rows * design.radius**2 * (1 + 1e-9)
    step = FINE_GRID * bound if sigma == 0 else GRID * min(sigma, design.sensitivity)
    codec = Codec(step, bound)
    entries = design.dimension * (design.dimension + 1) // 2
    on_grid = codec.step * codec.grid_sensitivity(design.sensitivity, entries)
    ledger = budget.split({RELEASE: on_grid})
    codec.check(clients, ledger[RELEASE].sigma / codec.step / math.sqrt(quorum))
    return codec, ledger


@dataclass
class MaskedRounds:
    """Sends the rounds of a secure sum, each with a noise of its own, and says who is missing.

    Attributes
    ----------
    publics : public keys by client.
    done : rounds sent so far.
    """

    federation: Federation
    everyone: Mapping[str, Member]
    publics: Mapping[str, bytes]
    settings: Mapping[str, Any]
    run: Run
    done: int = 0

    def __call__(self, present: Sequence[str], nonce: bytes) -> dict[str, Masked]:
        """Masked vectors of those that answer, by name."""
        noise = {**self.settings["noise"], "attempt": self.done}
        peers = {name: self.publics[name].hex() for name in present}
        said = {**self.settings, "noise": noise, "peers": peers, "nonce": nonce.hex()}
        self.done += 1
        content = pack({}, said)
        replies = self.federation.exchange(
            "query.masked", {self.everyone[name].partition: content for name in present}, "masked"
        )
        answers: dict[str, Masked] = {}
        for name in present:
            reply = replies.get(self.everyone[name].partition)
            if reply is not None:
                answers[name] = np.asarray(unpack(reply.content)[0]["masked"], dtype=np.uint64)
        missing = [name for name in present if name not in answers]
        if missing:
            self.run.warn(
                f"Round {self.done} of the secure sum is without {', '.join(missing)}; its masks "
                "do not cancel, and the others mask again with fresh noise"
            )
        return answers


def _public_keys(
    federation: Federation, everyone: Mapping[str, Member], run: Run
) -> dict[str, bytes]:
    """Ask all clients for a public key; those that fail within the quorum are left out."""
    empty = RecordDict()
    replies = federation.exchange(
        "query.keys", {m.partition: empty for m in everyone.values()}, "keys"
    )
    found = {
        name: bytes.fromhex(unpack(replies[m.partition].content)[1]["public"])
        for name, m in everyone.items()
        if m.partition in replies
    }
    missing = [name for name in everyone if name not in found]
    if missing:
        run.warn(f"The secure sum is without {', '.join(missing)}, which sent no key")
    if len(set(found.values())) < len(found):
        raise UsageError("Two clients have sent the same public key.")
    return found


def _called(member: Member) -> str:
    number = f"client {member.partition}"
    return number if member.label == number else f"{number} ({member.label})"
