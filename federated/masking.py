"""Sums that the server learns without learning anybody's summand: pairwise masks modulo 2^64.

Every two clients agree on a key (X25519, RFC 7748) of which the server sees only public halves,
stretch it to a stream of 64-bit numbers (HKDF-SHA256, RFC 5869; ChaCha20, RFC 8439), and one of
them adds the stream to its encoded vector, the other subtracts it. In the sum over all clients
everything cancels exactly; one masked vector alone looks uniform. This is the first half of
Bonawitz et al. (2017, section 4). Their second half, secret shares of the keys that let the server
unmask after a dropout, is left out: a sum with a client missing is useless, and the survivors mask
again under a fresh nonce.

What it protects. An honest-but-curious server, which keeps to the protocol and passes on the true
public keys, learns of the vectors nothing but their sum; a client that sees the result learns what
the sum without its own vector is. If the server conspires with k of N clients it learns the sum of
the other N - k, which for k = N - 1 is one client's vector and for k = N - 2 the sum of two.

What it does not protect against:

- an active server that hands out keys of its own; the keys are not authenticated here, the
  transport would have to do that. Clients that are told different lists get masks that do not
  cancel, which spoils the sum but reveals nothing;
- a server that runs a round again with one client fewer, after a dropout that it feigned or whose
  answer came late: the difference of the two sums is that client's vector. `check_peers` refuses
  fewer than `FEWEST` clients, which bounds how small a sum may be and not this; only noise in the
  sums helps. Draw the noise anew for every round and count every round as one more release: with
  the same noise twice, the difference would hold no more than one client's share of it;
- what the sum itself says, above all of small groups: that, too, is what noise is for;
- side information: who took part, the length of the vectors, row counts that are public;
- clients that send wrong vectors: nobody can check a masked one.

Noise for differential privacy can be spread over the clients (`noise_share`): each adds discrete
Gaussian noise of variance sigma^2 / Q, so that any Q clients together have enough. Whoever knows
some of the shares, a client its own or a server those of clients that conspire with it, is held off
by the rest alone. The noise must come from a generator whose seed stays secret.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from numpy.typing import NDArray

from cluster.errors import CorymbError, UsageError
from federated.discrete import discrete_gaussian
from federated.streams import stream

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Masked = NDArray[np.uint64]

FEWEST = 3
"""Clients in the smallest sum that anybody takes part in: of two, each would learn the other's."""

PURPOSE = b"corymb secure sum"


class MissingClientsError(CorymbError):
    """Too few clients are left for a sum; the message names those that are missing."""


@dataclass(frozen=True)
class Codec:
    """Fixed-point numbers: multiples of `step`, as integers modulo 2^64.

    Attributes
    ----------
    step : distance of neighbouring numbers, in the units of the data.
    bound : largest absolute value that a client may encode, before noise, in the same units.
    """

    step: float
    bound: float

    def __post_init__(self) -> None:
        """Refuse a grid without points or without end."""
        if not (0 < self.step < math.inf and 0 < self.bound < math.inf):
            raise UsageError(
                f"Fixed-point sums need a positive step and bound, got step = {self.step} and "
                f"bound = {self.bound}."
            )

    def check(self, clients: int, noise_sd: float = 0.0) -> None:
        """Raise UsageError unless sums over so many clients stay below 2^63 steps.

        `noise_sd` is that of a client's share of the noise, in steps; 40 times it is never
        exceeded in practice (probability below 1e-300).
        """
        if clients * (self.bound / self.step + 1 + 40 * noise_sd) >= 2.0**63:
            raise UsageError(
                f"The sum of {clients} clients would overflow 64 bits: {self.bound:g} each in "
                f"steps of {self.step:g}; take a larger step."
            )

    def encode(self, values: Floats, clients: int) -> Integers:
        """Round to the grid, (d,) int64.

        Raises UsageError for values that are not finite or beyond `bound`, and if the sum over
        `clients` could overflow.
        """
        self.check(clients)
        if not (np.abs(values) <= self.bound).all():  # also false for NaN
            raise UsageError(
                f"A value to be summed is not within the agreed bound of {self.bound:g}."
            )
        return np.asarray(np.rint(values / self.step), dtype=np.int64)

    def decode(self, integers: Integers) -> Floats:
        """Back to the units of the data."""
        return np.asarray(integers * self.step, dtype=np.float64)

    def grid_sensitivity(self, sensitivity: float, dimension: int) -> float:
        """L2 sensitivity of a client's encoded vector, in steps.

        Rounding moves each of the d coordinates by at most half a step, in both of two
        neighbouring vectors, so their distance grows by at most sqrt(d) steps (Kairouz, Liu and
        Steinke, 2021, bound the same for randomised rounding).
        """
        return sensitivity / self.step + math.sqrt(dimension)


def noise_share(dimension: int, sigma: float, quorum: int, rng: np.random.Generator) -> Integers:
    """One client's share of the noise, (d,) in steps of the grid.

    Discrete Gaussian of variance sigma^2 / quorum, so that the noise of `quorum` clients together
    has the variance sigma^2, with sigma in steps. `discrete.sum_rho` says what the sum is worth.
    """
    if quorum < 1:
        raise UsageError(f"Noise is shared by at least one client, got a quorum of {quorum}.")
    return discrete_gaussian(dimension, sigma / math.sqrt(quorum), rng)


def client_keys(seed: int | None = None) -> tuple[bytes, bytes]:
    """A client's private and public key, 32 bytes each.

    From the operating system's randomness; a `seed` makes them repeatable, for tests and
    simulations only.
    """
    if seed is None:
        key = X25519PrivateKey.generate()
    else:
        key = X25519PrivateKey.from_private_bytes(stream(seed, "x25519").bytes(32))
    private = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def check_peers(public_keys: Mapping[str, bytes], me: str, public: bytes) -> None:
    """Raise UsageError if a client must not take part in a sum over these clients."""
    if me not in public_keys or public_keys[me] != public:
        raise UsageError(f"Client '{me}' is not itself on the list of a sum it is asked to join.")
    if len(set(public_keys.values())) < len(public_keys):
        raise UsageError(f"Two clients of a sum that '{me}' is asked to join have the same key.")
    if len(public_keys) < FEWEST:
        raise UsageError(
            f"Client '{me}' takes part in sums of at least {FEWEST} clients, not of "
            f"{len(public_keys)}: the sum would reveal the others."
        )


def mask(
    integers: Integers, private: bytes, public_keys: Mapping[str, bytes], me: str, nonce: bytes
) -> Masked:
    """A client's vector under the masks that it shares with every other client, (d,).

    Parameters
    ----------
    integers : (d,) encoded vector, noise included.
    private : this client's key.
    public_keys : of all clients of the sum by name, this one included.
    nonce : of the round; a nonce that is used twice gives away the difference of two vectors.

    Raises
    ------
    UsageError
        See `check_peers`.
    """
    key = X25519PrivateKey.from_private_bytes(private)
    check_peers(public_keys, me, key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
    total = integers.astype(np.int64).view(np.uint64).copy()
    group = _fingerprint(public_keys)
    for peer, public in public_keys.items():
        if peer == me:
            continue
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
        pad = _keystream(shared, nonce, group, min(me, peer), max(me, peer), len(total))
        if me < peer:
            total += pad  # uint64 arrays wrap around, which is the arithmetic that is wanted
        else:
            total -= pad
    return total


def unmask_sum(masked: Mapping[str, Masked]) -> Integers:
    """The sum of the plain vectors, (d,), given the masked ones of every client of the round.

    Raises CorymbError if the vectors differ in length or are not 64-bit numbers.
    """
    total = np.zeros_like(next(iter(masked.values())), dtype=np.uint64)
    for name, vector in masked.items():
        if vector.shape != total.shape or vector.dtype != np.uint64:
            raise CorymbError(
                f"Client '{name}' sent {vector.dtype} numbers of shape {vector.shape} to a secure "
                f"sum of 64-bit numbers of shape {total.shape}."
            )
        total += vector
    return total.view(np.int64)


Round = Callable[[Sequence[str], bytes], Mapping[str, Masked]]


@dataclass(frozen=True)
class SecureSum:
    """The server's side: rounds until one is complete.

    Attributes
    ----------
    clients : names of all clients.
    quorum : fewest clients that a sum may have, at least `FEWEST`. With shared noise it is the
        quorum that the noise was calibrated for.
    """

    clients: Sequence[str]
    quorum: int

    def __post_init__(self) -> None:
        """Refuse repeated names and quorums that no sum may have."""
        if len(set(self.clients)) < len(self.clients):
            raise UsageError(f"The clients of a sum have repeated names: {list(self.clients)}.")
        if not FEWEST <= self.quorum <= len(self.clients):
            raise UsageError(
                f"The quorum of a sum over {len(self.clients)} clients must lie between {FEWEST} "
                f"and {len(self.clients)}, got {self.quorum}."
            )

    def collect(self, ask: Round, nonces: Callable[[], bytes]) -> tuple[Integers, list[str]]:
        """The exact sum, and the clients that are in it, in their order.

        Parameters
        ----------
        ask : sends a round to the named clients with its nonce and returns the masked vectors of
            those that answered.
        nonces : gives a fresh one a call, for instance `lambda: os.urandom(16)`.

        Raises
        ------
        MissingClientsError
            If fewer than the quorum are left.
        """
        present, used = list(self.clients), set[bytes]()
        while len(present) >= self.quorum:
            nonce = nonces()
            if nonce in used:
                raise UsageError("The nonce of a secure sum was used twice.")
            used.add(nonce)
            answers = ask(present, nonce)
            answered = [name for name in present if name in answers]
            if answered == present:
                return unmask_sum({name: answers[name] for name in present}), present
            present = answered
        missing = ", ".join(name for name in self.clients if name not in present)
        raise MissingClientsError(
            f"A secure sum needs {self.quorum} of its {len(self.clients)} clients, but only "
            f"{len(present)} answered; missing: {missing}."
        )


def _fingerprint(public_keys: Mapping[str, bytes]) -> bytes:
    """Hash of who takes part: clients that were told different lists get masks that differ."""
    digest = hashlib.sha256()
    for name in sorted(public_keys):
        digest.update(_framed(name.encode()) + _framed(public_keys[name]))
    return digest.digest()


def _keystream(
    shared: bytes, nonce: bytes, group: bytes, first: str, second: str, length: int
) -> Masked:
    parts = (PURPOSE, nonce, group, first.encode(), second.encode())
    info = b"".join(_framed(part) for part in parts)
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared)
    # The key serves this one stream, so that ChaCha20's own nonce may be constant.
    cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * length)), dtype="<u8").astype(np.uint64)


def _framed(part: bytes) -> bytes:
    """The part with its length in front, so that no two lists of parts look alike."""
    return len(part).to_bytes(4, "big") + part
