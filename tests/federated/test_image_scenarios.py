"""Image scenarios: the formula of the classes, whose images are drawn, and the rounding floor."""

import numpy as np
import pytest
from scipy.stats import norm

from cluster.errors import UsageError
from federated.fedgmm.images.pools import ImagePool, digits, split
from federated.fedgmm.images.scenarios import (
    TEST_SHARE,
    ImageData,
    ImageScenario,
    class_of,
    draw_images,
    rounding_floor,
)
from federated.fedgmm.rows import Floats
from federated.fedgmm.scenarios import draw

ROWS = 3000
WHICH: tuple[ImageScenario, ...] = ("images_x", "images_z", "images_xz")


def numbered(copies: int) -> ImagePool:
    """Images that say their own class (pixel 0) and number (pixel 1)."""
    labels = np.repeat(np.arange(10), copies)
    pixels = np.zeros((10 * copies, 1, 8, 8), dtype=np.uint8)
    pixels[:, 0, 0, 0] = labels
    pixels[:, 0, 0, 1] = np.tile(np.arange(copies), 10)
    return ImagePool(pixels, labels, "numbered")


def shown_class(images: np.ndarray) -> np.ndarray:
    assert images.dtype == np.uint8
    return np.asarray(images[:, 0, 0, 0].astype(int))


def pictures(images: np.ndarray) -> set[bytes]:
    return {image.tobytes() for image in images}


def test_classes_at_the_ends_and_at_the_steps() -> None:
    values = np.array(
        [-99.0, -3.4, -3.05, -2.9, -0.34, -0.32, 0.0, 0.32, 0.34, 2.3, 2.4, 3.0, 99.0]
    )
    # 1.5 v + 5 is 9 from v = 8/3 on and 0 up to v = -10/3; steps lie at (k - 4.5) / 1.5
    expected = [0, 0, 0, 1, 4, 5, 5, 5, 6, 8, 9, 9, 9]
    np.testing.assert_array_equal(class_of(values), expected)


@pytest.mark.parametrize("process", ["code", "paper"])
@pytest.mark.parametrize("which", WHICH)
def test_images_show_the_class_of_the_scalar_that_they_replace(
    which: ImageScenario, process: str
) -> None:
    data = draw_images(which, "sin", process, ROWS, numbered(40), seed=5)
    plain = draw("sin", process, ROWS, seed=5)
    assert plain.truth is not None

    np.testing.assert_array_equal(data.y, plain.rows.y)
    np.testing.assert_array_equal(data.hidden_x, plain.rows.x[:, 0])
    np.testing.assert_array_equal(data.test_hidden_x, plain.truth.test_x)
    np.testing.assert_allclose(data.test_g0, np.sin(data.test_hidden_x))
    if which == "images_z":
        np.testing.assert_array_equal(data.x[:, 0], data.hidden_x)
        np.testing.assert_array_equal(data.test_x[:, 0], data.test_hidden_x)
    else:
        np.testing.assert_array_equal(shown_class(data.x), class_of(data.hidden_x))
        np.testing.assert_array_equal(shown_class(data.test_x), class_of(data.test_hidden_x))
    if which == "images_x":
        np.testing.assert_array_equal(data.z, plain.rows.z)
    else:
        np.testing.assert_array_equal(shown_class(data.z), class_of(plain.rows.z[:, 0]))
    assert len(data) == ROWS


def test_rows_and_test_treatments_share_no_image_and_use_their_pools_whole() -> None:
    pool = numbered(40)
    train, test = split(pool, 7, TEST_SHARE)
    data = draw_images("images_xz", "abs", "code", 20_000, pool, seed=7)

    assert pictures(data.x) == pictures(train.pixels)
    # z1 lies within +-3, where 1.5 z1 + 5 is at least 0.5: class 0 does not occur
    assert pictures(data.z) == pictures(train.pixels[train.labels > 0])
    assert pictures(data.test_x) == pictures(test.pixels)
    assert not pictures(data.x) & pictures(data.test_x)
    # the image of x and that of z1 come from separate draws: number against number
    both = shown_class(data.x) == shown_class(data.z)
    same = data.x[both, 0, 0, 1] == data.z[both, 0, 0, 1]
    assert same.mean() == pytest.approx(1 / 30, abs=5 * np.sqrt(1 / 30 / both.sum()))


def test_seeds_and_digests() -> None:
    pool = digits()

    def digest(which: ImageScenario = "images_x", seed: int = 0, rows: int = 50) -> str:
        return draw_images(which, "abs", "code", rows, pool, seed).digest()

    assert digest() == digest()
    assert len({digest(), digest("images_z"), digest("images_xz"), digest(seed=1)}) == 4
    first = draw_images("images_x", "abs", "code", 50, pool, 0)
    before = first.digest()
    first.x[3, 0, 2, 2] += 1
    assert first.digest() != before


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match=r"image scenario 'images_y'; .*images_x, images_z"):
        draw_images("images_y", "abs", "code", 5, digits(), 0)
    with pytest.raises(UsageError, match=r"no scenario 'ab'"):
        draw_images("images_x", "ab", "code", 5, digits(), 0)
    with pytest.raises(UsageError, match=r"at least one row"):
        draw_images("images_x", "abs", "code", 0, digits(), 0)


def exact_floor(function: Floats, grid: Floats, pdf: Floats) -> float:
    """E[Var(function | class)] by summing over the classes on a grid."""
    weights = pdf / pdf.sum()
    floor = 0.0
    for label in range(10):
        at = class_of(grid) == label
        mean = np.average(function[at], weights=weights[at])
        floor += float(np.sum(weights[at] * (function[at] - mean) ** 2))
    return floor


@pytest.mark.parametrize(("scenario", "g0"), [("abs", np.abs), ("linear", np.positive)])
def test_the_floor_is_the_variance_within_classes(scenario: str, g0: np.ufunc) -> None:
    data = draw_images("images_x", scenario, "code", 100_000, numbered(2), seed=1)
    grid = np.linspace(-9.0, 9.0, 180_001)
    sd = np.sqrt(1.01)  # X is U[-3, 3] plus a normal of this deviation
    pdf = norm.cdf((grid + 3) / sd) - norm.cdf((grid - 3) / sd)

    assert rounding_floor(data) == pytest.approx(exact_floor(g0(grid), grid, pdf), rel=0.03)


def test_no_function_of_the_class_beats_the_floor() -> None:
    data = draw_images("images_xz", "abs", "paper", 50_000, numbered(2), seed=2)
    classes = class_of(data.test_hidden_x)
    own = np.bincount(classes, weights=data.test_g0) / np.bincount(classes)
    best_on_these = float(np.mean((data.test_g0 - own[classes]) ** 2))

    assert best_on_these <= rounding_floor(data) < 1.01 * best_on_these


def test_there_is_no_floor_where_x_is_seen() -> None:
    data: ImageData = draw_images("images_z", "abs", "code", 10, numbered(2), seed=0)
    assert rounding_floor(data) == 0.0
