"""Pools of labelled images of ten classes, which stand in for a scalar in image scenarios.

scikit-learn carries 1797 handwritten digits of 8 x 8 pixels with its package, so a run needs no
download; a folder of MNIST, FEMNIST (LEAF) or CIFAR-10 files is read when the user names one.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster.errors import UsageError
from federated.fedgmm.images.files import (
    CLASSES,
    Labels,
    Pixels,
    cifar_batches,
    idx_images,
    leaf_files,
    pickled_batches,
    read_cifar,
    read_idx,
    read_leaf,
)
from federated.fedgmm.rows import Index
from federated.streams import stream

_LOOKED_FOR = (
    "MNIST's train-images-idx3-ubyte (or .gz), CIFAR-10's data_batch_1.bin, LEAF's FEMNIST *.json"
)
_INK = 16  # largest value in scikit-learn's digits


@dataclass(frozen=True, eq=False)
class ImagePool:
    """Images to draw from.

    Attributes
    ----------
    pixels
        Brightness 0 to 255, uint8 of shape (n, channels, height, width).
    labels
        Class of each image, 0 to 9, shape (n,).
    name
        Where they come from, for reports and errors.

    Raises ValueError when the arrays do not fit each other.
    """

    pixels: Pixels
    labels: Labels
    name: str

    def __post_init__(self) -> None:
        """Hold the arrays against what the class promises."""
        if self.pixels.ndim != 4 or self.pixels.dtype != np.uint8:
            raise ValueError(
                f"pixels are {self.pixels.dtype} of shape {self.pixels.shape}; "
                "expected uint8 (n, channels, height, width)"
            )
        if self.labels.shape != (len(self.pixels),):
            raise ValueError(f"{len(self.pixels)} images but labels of shape {self.labels.shape}")
        if not np.isin(self.labels, np.arange(CLASSES)).all():
            raise ValueError(f"labels must be 0 to {CLASSES - 1}")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)

    def take(self, index: Index) -> "ImagePool":
        """Return the images at `index` (positions, shape (m,)), as copies."""
        return ImagePool(self.pixels[index], self.labels[index], self.name)


def open_pool(folder: Path | None) -> ImagePool:
    """Return the images of a folder, or scikit-learn's digits without one.

    Raises UsageError as `read_folder` does.
    """
    return digits() if folder is None else read_folder(folder)


def digits() -> ImagePool:
    """Return scikit-learn's handwritten digits (UCI, Alpaydin and Kaynak, 1998).

    1797 images of 8 x 8 pixels. Their ink of 0 to 16 is spread over 0 to 255 by
    v -> floor((255 v + 8) / 16), which p -> floor((16 p + 127) / 255) undoes exactly.
    """
    from sklearn.datasets import load_digits  # takes a second to import

    bunch = load_digits()
    ink = bunch.images.astype(np.int64)
    pixels = ((255 * ink + _INK // 2) // _INK).astype(np.uint8)
    return ImagePool(pixels[:, None], bunch.target.astype(np.int64), "scikit-learn's digits")


def read_folder(folder: Path) -> ImagePool:
    """Read all labelled images in a folder; the names of its files tell the format.

    Published training and test files are put together, since `split` makes its own test pool.

    Raises
    ------
    UsageError
        When the folder is not there, holds no images, images of two formats, or only pickled CIFAR
        batches, when a file is damaged, and when one of the ten classes has no image.
    """
    files, reader = _recognise(folder)
    parts = [reader(path) for path in files]
    shapes = {path.name: pixels.shape[1:] for path, (pixels, _) in zip(files, parts, strict=True)}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UsageError(
            f"{folder} holds images of different shapes ({listed}); give each data set a folder."
        )
    pixels = np.concatenate([pixels for pixels, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    missing = sorted(set(range(CLASSES)) - set(labels.tolist()))
    if missing:
        raise UsageError(
            f"{folder} has no image of class {', '.join(map(str, missing))} in "
            f"{', '.join(path.name for path in files[:3])}{' and others' if len(files) > 3 else ''}"
            f"; all classes 0 to {CLASSES - 1} are needed, so add the files that are missing."
        )
    return ImagePool(pixels, labels, str(folder))


def _recognise(folder: Path) -> tuple[list[Path], Callable[[Path], tuple[Pixels, Labels]]]:
    """Image files of a folder and what reads them; other JSON files disturb no other format."""
    if not folder.is_dir():
        raise UsageError(
            f"There is no image folder {folder}; name a folder that holds {_LOOKED_FOR}."
        )
    try:
        idx, cifar, pickled = idx_images(folder), cifar_batches(folder), pickled_batches(folder)
        leaf = leaf_files(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be listed ({error}); check its permissions.") from error
    if idx and cifar:
        raise UsageError(
            f"{folder} holds both {idx[0].name} and {cifar[0].name}; give each data set a folder."
        )
    if idx:
        return idx, read_idx
    if cifar:
        return cifar, read_cifar
    if pickled:
        raise UsageError(
            f"{folder} holds CIFAR-10 as Python pickles ({pickled[0].name}), which are not read "
            "because loading one can run any program; use the binary version "
            "(cifar-10-binary.tar.gz, files data_batch_1.bin to test_batch.bin)."
        )
    if leaf:
        return leaf, read_leaf
    raise UsageError(
        f"{folder} holds no images that are known; it was searched for {_LOOKED_FOR}: "
        "put one of these data sets there, unpacked, or leave the folder out to use "
        "scikit-learn's digits."
    )


def split(pool: ImagePool, seed: int, test_share: float) -> tuple[ImagePool, ImagePool]:
    """Split a pool into training and test images, class by class, at random.

    Images with the same pixels stay together, so no test image is also a training image.
    A class keeps at least one distinct image on either side.

    Parameters
    ----------
    pool
        Images of all ten classes.
    seed
        The split comes from its stream ("pool",).
    test_share
        Share of distinct images of each class in the test pool, above 0 and below 1.

    Returns
    -------
    train, test : the two pools, each in the order of `pool`.

    Raises
    ------
    UsageError
        When the share is not between 0 and 1 or a class has fewer than two distinct images.
    """
    if not 0.0 < test_share < 1.0:
        raise UsageError(f"The share of test images is {test_share}; set it above 0 and below 1.")
    group, first = _groups(pool.pixels)
    classes = pool.labels[first]  # of each group; copies with other labels follow the first
    in_test = np.zeros(len(first), dtype=bool)
    rng = stream(seed, "pool")
    for label in range(CLASSES):
        members = np.flatnonzero(classes == label)
        if len(members) < 2:
            raise UsageError(
                f"Class {label} of {pool.name} has {len(members)} distinct image(s); at least two "
                "are needed, one to train with and one to test on, so use a larger data set."
            )
        count = min(max(1, round(test_share * len(members))), len(members) - 1)
        in_test[rng.choice(members, count, replace=False)] = True
    chosen = in_test[group]
    return pool.take(np.flatnonzero(~chosen)), pool.take(np.flatnonzero(chosen))


def _groups(pixels: Pixels) -> tuple[Index, Index]:
    """Number the distinct images: the group of each image (n,), the first image of each group."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    group = np.empty(len(pixels), dtype=np.int64)
    for position, image in enumerate(pixels):
        key = hashlib.sha256(image.tobytes()).digest()
        group[position] = seen.setdefault(key, len(seen))
        if len(seen) > len(first):
            first.append(position)
    return group, np.array(first, dtype=np.int64)
