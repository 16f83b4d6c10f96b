"""The compiled exponential, quantile and random streams against what numpy and scipy say."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

import envs
from envs import bioreactor_kernel, cstr_kernel
from envs.compiled import exponential, mix, quantile
from envs.cstr import CSTRVectorEnv
from envs.cstr_settings import Noise


@pytest.mark.parametrize(("low", "high"), [(-5.0, 0.0), (-700.0, 700.0)])
def test_exponential(low: float, high: float) -> None:
    x = np.linspace(low, high, 20001)
    mine = np.array([exponential(v) for v in x])
    np.testing.assert_allclose(mine, np.exp(x), rtol=5e-16)
    assert exponential(0.0) == 1.0
    assert 0 < exponential(-1e9) < 1e-300
    assert 1e300 < exponential(1e9) < math.inf


def test_quantile() -> None:
    p = np.concatenate([np.logspace(-300, -1, 600), np.linspace(0.07, 0.93, 2001)])
    np.testing.assert_allclose([quantile(v) for v in p], special.ndtri(p), rtol=2e-14, atol=1e-16)
    assert quantile(1 - 1e-9) == pytest.approx(-quantile(1e-9), rel=1e-7)


def test_mix_is_splitmix64() -> None:
    golden = 0x9E3779B97F4A7C15  # the first outputs from seed 0, as published with the generator
    states = [np.uint64(golden * i % 2**64) for i in (1, 2, 3)]
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(mix(s)) for s in states] == expected


def drift(noise: Noise, samples: int, rows: int = 400) -> NDArray[np.float64]:
    env = CSTRVectorEnv(num_envs=rows, noise=noise, samples=samples)
    env.reset(seed=3)
    actions = np.full((rows, 1), 0.25, np.float32)
    kept = []
    for _ in range(samples):
        env.step(actions)
        kept.append(env.read("drift"))
    return np.array(kept)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_noise_has_its_law_from_the_first_sample_on(correlation: float) -> None:
    d = drift(Noise(0.03, correlation), 100)
    for t in (0, 50, 99):
        assert stats.kstest(d[t], stats.norm(0, 0.03).cdf).pvalue > 1e-3
    assert np.corrcoef(d[:-1].ravel(), d[1:].ravel())[0, 1] == pytest.approx(correlation, abs=0.01)
    across = np.corrcoef(d[:, :-1].ravel(), d[:, 1:].ravel())[0, 1]
    assert across == pytest.approx(0.0, abs=0.03)  # neighbouring seeds have unlike noise


@pytest.mark.parametrize(
    "function",
    [cstr_kernel.cstr_advance, cstr_kernel.cstr_reset, bioreactor_kernel.bioreactor_advance],
)
def test_compiled_code_is_kept_beside_the_source(function: Any) -> None:
    assert Path(function.stats.cache_path) == Path(envs.__file__).parent / "__pycache__"
