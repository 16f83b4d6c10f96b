"""Masked sums: exact, without meaning one by one, and refused where they would reveal too much."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import stats

from cluster.errors import CorymbError, UsageError
from federated import masking
from federated.masking import Codec, Masked, MissingClientsError, SecureSum
from federated.streams import stream

NAMES = ["north", "south", "east", "west", "mid"]
KEYS = {name: masking.client_keys(i) for i, name in enumerate(NAMES)}
PUBLIC = {name: public for name, (_, public) in KEYS.items()}
VECTORS = {name: stream(0, "vector", name).integers(-(2**59), 2**59, 50) for name in NAMES}
PLAIN = sum(VECTORS.values())


def masked(names: Sequence[str], nonce: bytes) -> dict[str, Masked]:
    keys = {name: PUBLIC[name] for name in names}
    return {n: masking.mask(VECTORS[n], KEYS[n][0], keys, n, nonce) for n in names}


def test_masked_sum_is_the_plain_sum() -> None:
    np.testing.assert_array_equal(masking.unmask_sum(masked(NAMES, b"1")), PLAIN)


def test_sum_wraps_around_as_integers_do() -> None:
    """Masks cross 2^64 all the time; sums that end within 63 bits come out whole."""
    low = {n: np.full(4, -(2**60), dtype=np.int64) for n in NAMES}
    parts = {n: masking.mask(low[n], KEYS[n][0], PUBLIC, n, b"w") for n in NAMES}
    np.testing.assert_array_equal(masking.unmask_sum(parts), np.full(4, -5 * 2**60))


def test_order_of_clients_and_lists_does_not_matter() -> None:
    one = masked(NAMES, b"1")
    backwards = {n: one[n] for n in reversed(NAMES)}
    np.testing.assert_array_equal(masking.unmask_sum(backwards), PLAIN)
    keys = {n: PUBLIC[n] for n in reversed(NAMES)}
    again = masking.mask(VECTORS["east"], KEYS["east"][0], keys, "east", b"1")
    np.testing.assert_array_equal(again, one["east"])


def test_a_masked_vector_looks_uniform() -> None:
    zeros = np.zeros(20_000, dtype=np.int64)
    alone = masking.mask(zeros, KEYS["north"][0], PUBLIC, "north", b"1")
    counts = np.bincount(alone.view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-3
    other = masking.mask(zeros, KEYS["north"][0], PUBLIC, "north", b"2")
    assert abs(np.corrcoef(alone.astype(float), other.astype(float))[0, 1]) < 0.03


def test_all_but_one_say_nothing_of_the_sum() -> None:
    parts = masked(NAMES, b"1")
    del parts["mid"]
    partial = masking.unmask_sum(parts)
    assert (np.abs(partial - (PLAIN - VECTORS["mid"])) > 2**40).all()
    assert np.abs(partial.astype(float)).max() > 2.0**61


def test_clients_that_were_told_different_lists_do_not_cancel() -> None:
    parts = masked(NAMES[:4], b"1")
    parts["west"] = masking.mask(VECTORS["west"], KEYS["west"][0], PUBLIC, "west", b"1")
    assert (masking.unmask_sum(parts) != sum(VECTORS[n] for n in NAMES[:4])).all()


def test_vectors_of_another_length_or_kind_are_named() -> None:
    parts = masked(NAMES, b"1")
    for wrong in (parts["mid"][:1], parts["mid"].astype(np.float64)):
        with pytest.raises(CorymbError, match="Client 'mid' sent"):
            masking.unmask_sum({**parts, "mid": wrong})  # type: ignore[dict-item]


def test_keys_are_fresh_unless_seeded() -> None:
    assert masking.client_keys() != masking.client_keys()
    assert masking.client_keys(3) == masking.client_keys(3)
    assert masking.client_keys(3) != masking.client_keys(4)


def test_small_groups_are_refused() -> None:
    keys = {n: PUBLIC[n] for n in NAMES[:2]}
    with pytest.raises(UsageError, match="at least 3 clients, not of 2"):
        masking.mask(VECTORS["north"], KEYS["north"][0], keys, "north", b"1")


def test_lists_without_oneself_are_refused() -> None:
    without = {n: PUBLIC[n] for n in NAMES[1:]}
    replaced = {**PUBLIC, "north": masking.client_keys(99)[1]}
    for keys in (without, replaced):
        with pytest.raises(UsageError, match="'north' is not itself on the list"):
            masking.mask(VECTORS["north"], KEYS["north"][0], keys, "north", b"1")


def test_repeated_keys_are_refused() -> None:
    keys = {**PUBLIC, "copy": PUBLIC["south"]}
    with pytest.raises(UsageError, match="have the same key"):
        masking.mask(VECTORS["north"], KEYS["north"][0], keys, "north", b"1")


@dataclass
class Transport:
    """Clients of which those named in `gone` stop answering from a given round on."""

    gone: Mapping[str, int]
    rounds: list[tuple[list[str], bytes]] = field(default_factory=list)

    def ask(self, names: Sequence[str], nonce: bytes) -> dict[str, Masked]:
        self.rounds.append((list(names), nonce))
        answers = masked(names, nonce)
        return {n: a for n, a in answers.items() if self.gone.get(n, 99) > len(self.rounds)}

    def nonce(self) -> bytes:
        return f"round {len(self.rounds)}".encode()


def test_survivors_sum_again_after_a_dropout() -> None:
    transport = Transport({"east": 1, "mid": 2})
    total, present = SecureSum(NAMES, 3).collect(transport.ask, transport.nonce)
    assert present == ["north", "south", "west"]
    np.testing.assert_array_equal(total, sum(VECTORS[n] for n in present))
    assert [len(names) for names, _ in transport.rounds] == [5, 4, 3]
    assert len({nonce for _, nonce in transport.rounds}) == 3


def test_too_few_survivors_are_named() -> None:
    transport = Transport({"east": 1, "mid": 2})
    with pytest.raises(MissingClientsError, match=r"needs 4 of its 5 .* missing: east, mid\."):
        SecureSum(NAMES, 4).collect(transport.ask, transport.nonce)


def test_a_repeated_nonce_is_refused() -> None:
    with pytest.raises(UsageError, match="used twice"):
        SecureSum(NAMES, 3).collect(Transport({"east": 1}).ask, lambda: b"same")


@pytest.mark.parametrize("quorum", [2, 6])
def test_impossible_quorums_are_refused(quorum: int) -> None:
    with pytest.raises(UsageError, match=f"between 3 and 5, got {quorum}"):
        SecureSum(NAMES, quorum)
    with pytest.raises(UsageError, match="repeated names"):
        SecureSum([*NAMES, "mid"], 3)


def test_codec_rounds_to_the_grid() -> None:
    codec = Codec(step=2.0**-20, bound=1000.0)
    values = stream(0, "values").uniform(-1000, 1000, 500)
    decoded = codec.decode(codec.encode(values, 5))
    assert np.abs(decoded - values).max() <= codec.step / 2
    assert np.abs(decoded - values).max() > codec.step / 4


def test_codec_refuses_what_it_cannot_hold() -> None:
    codec = Codec(step=1.0, bound=2.0**61)
    codec.check(3)
    with pytest.raises(UsageError, match="overflow"):
        codec.check(3, noise_sd=2.0**58)
    with pytest.raises(UsageError, match="sum of 4 clients would overflow"):
        codec.encode(np.zeros(1), 4)
    for value in (2.0, -2.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="not within the agreed bound of 1"):
            Codec(step=0.1, bound=1.0).encode(np.array([0.5, value]), 3)
    with pytest.raises(UsageError, match=r"positive step and bound, got step = 0\.0"):
        Codec(step=0.0, bound=1.0)


def test_rounding_inflates_the_sensitivity_by_no_more_than_stated() -> None:
    codec, d = Codec(step=0.5, bound=100.0), 30
    rng = stream(0, "neighbours")
    worst = 0.0
    for _ in range(300):
        a = rng.uniform(-3, 3, d)
        b = a + rng.choice([-0.26, 0.26], d)
        move = float(np.linalg.norm(codec.encode(a, 3) - codec.encode(b, 3)))
        assert move <= codec.grid_sensitivity(float(np.linalg.norm(a - b)), d)
        worst = max(worst, move)
    assert worst > np.linalg.norm(np.full(d, 0.26)) / 0.5  # rounding does inflate it


def test_shares_of_a_quorum_add_up_to_the_noise() -> None:
    shares = [masking.noise_share(50_000, 12.0, 4, stream(0, "share", i)) for i in range(4)]
    total = np.sum(shares, axis=0)
    assert total.std() == pytest.approx(12.0, rel=0.02)
    assert stats.kstest(total + stream(0, "jitter").uniform(-0.5, 0.5, 50_000), "norm",
                        args=(0, 12.0)).pvalue > 1e-3  # fmt: skip
    with pytest.raises(UsageError, match="quorum of 0"):
        masking.noise_share(3, 1.0, 0, stream(0, "share"))
