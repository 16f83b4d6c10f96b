"""Scenarios whose treatment, instrument or both are images (arXiv 2505.21012, after DeepGMM).

A scalar v becomes a random image of class round(min(max(1.5 v + 5, 0), 9)) (Bennett, Kallus and
Schnabel, 2019, section 5): of x in images_x, of z1 in images_z, of each in images_xz. Rows are
those of `scenarios.draw` of the same seed; only what the analyst sees of x and z is replaced.

In images_z and images_xz the image of z1 is the only instrument. Process "code" loses nothing by
that, since z2 does not act there; in process "paper" z2 joins the unobserved causes of x, which
leaves z1 a valid but weaker instrument. Class 0 occurs for x alone: 1.5 z1 + 5 is at least 0.5.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np

from cluster.errors import UsageError
from federated.fedgmm.images.files import CLASSES, Pixels
from federated.fedgmm.images.pools import ImagePool, split
from federated.fedgmm.images.rows import ImageRows
from federated.fedgmm.rows import Floats, Index
from federated.fedgmm.scenarios import draw, structural
from federated.streams import stream

ImageScenario = Literal["images_x", "images_z", "images_xz"]

TEST_SHARE = 0.25
"""Share of the distinct images of each class that only test treatments are drawn from."""
_FLOOR_SAMPLE = 500_000


@dataclass(frozen=True, eq=False)
class ImageData:
    """Rows whose x, z or both are images, with the truth behind them.

    Images are uint8 of shape (n, channels, height, width), scalars float64 of shape (n, d).

    Attributes
    ----------
    which, scenario, process, seed
        What was drawn.
    y
        Outcome, shape (n,).
    x
        Treatment: images, or scalars (n, 1) in images_z.
    z
        Instrument: images of z1, or the scalars (z1, z2), shape (n, 2), in images_x.
    hidden_x
        The scalar behind each treatment, shape (n,); never shown to an estimator.
    test_x
        Test treatments in the form of x, m of them, from images that are in no row.
    test_hidden_x
        The scalars behind them, shape (m,).
    test_g0
        The truth g0(test_hidden_x), shape (m,).
    """

    which: ImageScenario
    scenario: str
    process: str
    seed: int
    y: Floats
    x: Floats | Pixels
    z: Floats | Pixels
    hidden_x: Floats
    test_x: Floats | Pixels
    test_hidden_x: Floats
    test_g0: Floats

    def __len__(self) -> int:
        """Return the number of rows, n."""
        return len(self.y)

    @property
    def rows(self) -> ImageRows:
        """What is dealt to clients."""
        return ImageRows(self.y, self.x, self.z)

    def digest(self) -> str:
        """SHA-256 of the rows and test treatments, their shapes and types, in hexadecimal."""
        result = hashlib.sha256()
        for array in (self.y, self.x, self.z, self.test_x, self.test_g0):
            result.update(f"{array.dtype.str}{array.shape}".encode())
            result.update(np.ascontiguousarray(array).tobytes())
        return result.hexdigest()


def class_of(values: Floats) -> Index:
    """Return the class that stands for each scalar: round(min(max(1.5 v + 5, 0), 9))."""
    return np.rint(np.clip(1.5 * values + 5.0, 0.0, CLASSES - 1)).astype(np.int64)


def draw_images(
    which: str, scenario: str, process: str, rows: int, pool: ImagePool, seed: int
) -> ImageData:
    """Draw `rows` rows and as many test treatments, and show scalars as images of `pool`.

    The pool is split into training and test images by `seed`. Images are drawn with replacement
    from the streams ("images", "x"), ("images", "z") and ("images", "test").

    Raises
    ------
    UsageError
        For an unknown scenario or process, fewer than one row, or a pool that cannot be split.
    """
    if which not in get_args(ImageScenario):
        known = ", ".join(get_args(ImageScenario))
        raise UsageError(f"There is no image scenario '{which}'; choose one of {known}.")
    data = draw(scenario, process, rows, seed)
    assert data.truth is not None
    train, test = split(pool, seed, TEST_SHARE)
    hidden_x, test_hidden_x = data.rows.x[:, 0], data.truth.test_x
    x, z, test_x = data.rows.x, data.rows.z, test_hidden_x[:, None]
    shown = {
        "x": x if which == "images_z" else _images(hidden_x, train, seed, "x"),
        "z": z if which == "images_x" else _images(z[:, 0], train, seed, "z"),
        "test_x": test_x if which == "images_z" else _images(test_hidden_x, test, seed, "test"),
    }
    return ImageData(
        which=cast(ImageScenario, which),
        scenario=scenario,
        process=process,
        seed=seed,
        y=data.rows.y,
        hidden_x=hidden_x,
        test_hidden_x=test_hidden_x,
        test_g0=data.truth.function(test_hidden_x),
        **shown,
    )


def rounding_floor(data: ImageData) -> float:
    """Mean squared error on the test treatments of the best function of an image.

    An image tells its class and no more of x, so the best a function of it can do is
    E[g0(x) | class], with the error E[Var(g0(x) | class)]. The class means come from a sample of
    500 000 fresh treatments, the error is taken over the test treatments. It is 0 in images_z,
    where x itself is seen.
    """
    if data.which == "images_z":
        return 0.0
    fresh = int(stream(data.seed, "floor").integers(2**31))
    sample = draw(data.scenario, data.process, _FLOOR_SAMPLE, fresh).rows.x[:, 0]
    g0 = structural(data.scenario, data.process)
    classes = class_of(sample)
    counts = np.bincount(classes, minlength=CLASSES)
    means = np.bincount(classes, weights=g0(sample), minlength=CLASSES) / np.maximum(counts, 1)
    errors = data.test_g0 - means[class_of(data.test_hidden_x)]
    return float(np.mean(errors**2))


def _images(values: Floats, pool: ImagePool, seed: int, purpose: str) -> Pixels:
    """A random image of the class of each value, shape (n, channels, height, width)."""
    rng = stream(seed, "images", purpose)
    wanted = class_of(values)
    chosen = np.empty(len(values), dtype=np.int64)
    for label in range(CLASSES):
        rows = np.flatnonzero(wanted == label)
        chosen[rows] = rng.choice(np.flatnonzero(pool.labels == label), len(rows))
    return pool.pixels[chosen]
