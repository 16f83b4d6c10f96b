"""Labelled images from the files that data sets are published as: IDX, CIFAR-10 binary, LEAF JSON.

Plain parsing into numpy arrays. Nothing is unpickled, and no size that a header states is believed
before the bytes are there.
"""

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

CLASSES = 10
MIN_SIDE, MAX_SIDE = 8, 64
"""Sides of images that are taken, in pixels: what the convolutional networks are sized for."""
LIMIT = 1 << 32
"""Most bytes that are taken from one file, unpacked (4 GiB)."""

_IDX = re.compile(r"(?P<prefix>.+)-images[-.]idx3-ubyte(?P<gz>\.gz)?")
_CIFAR_NAMES = re.compile(r"(data_batch_\d+|test_batch)\.bin")
_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_RECORD = 1 + 3 * 32 * 32
_LEAF_SIDE = 28
_LEAF_CLASSES = 62  # digits, capitals, small letters
_CHUNK = 1 << 20


def idx_images(folder: Path) -> list[Path]:
    """Image files of the IDX format in `folder` (MNIST and its kin), one a name without .gz."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        match = _IDX.fullmatch(path.name)
        if match is not None:  # sorted, so the plain file comes before the packed one
            found.setdefault(match["prefix"], path)
    return list(found.values())


def cifar_batches(folder: Path) -> list[Path]:
    """Files of CIFAR-10's binary version in `folder`."""
    return sorted(p for p in folder.iterdir() if _CIFAR_NAMES.fullmatch(p.name))


def pickled_batches(folder: Path) -> list[Path]:
    """Files of CIFAR-10's pickled version in `folder`, which is never read."""
    return sorted(p for p in folder.iterdir() if _CIFAR_NAMES.fullmatch(p.name + ".bin"))


def leaf_files(folder: Path) -> list[Path]:
    """JSON files in `folder` and in its subfolders train and test, where LEAF writes them."""
    return [p for part in (".", "train", "test") for p in sorted((folder / part).glob("*.json"))]


def read_idx(images: Path) -> tuple[Pixels, Labels]:
    """Read an IDX image file and the label file that belongs to it, packed by gzip or not.

    The format is that of yann.lecun.com/exdb/mnist: big-endian 32-bit words, magic number 2051,
    count, rows, columns, then one byte a pixel; labels have magic number 2049, count, then one byte
    each.

    Returns
    -------
    pixels, labels : (n, 1, rows, columns) and (n,).

    Raises
    ------
    UsageError
        When the label file is missing, a magic number is another, a file is cut short or too long,
        the sides are outside 8 to 64, or a label is outside 0 to 9.
    """
    labels = _labels_beside(images)
    (count, height, width), body = _read_idx_file(images, magic=2051, dims=3)
    (label_count,), label_bytes = _read_idx_file(labels, magic=2049, dims=1)
    if count != label_count:
        raise UsageError(
            f"{images} holds {count} images but {labels.name} {label_count} labels; "
            "take both files from the same data set."
        )
    values = np.frombuffer(label_bytes, dtype=np.uint8).astype(np.int64)
    _check_labels(values, CLASSES, labels)
    pixels = np.frombuffer(body, dtype=np.uint8).reshape(count, 1, height, width)
    return pixels, values


def _labels_beside(images: Path) -> Path:
    """The label file of an image file, in either style of name, packed or not."""
    match = _IDX.fullmatch(images.name)
    assert match is not None
    for mark in "-.":
        for packed in ("", ".gz"):
            path = images.with_name(f"{match['prefix']}-labels{mark}idx1-ubyte{packed}")
            if path.is_file():
                return path
    raise UsageError(
        f"{images} has no label file beside it; "
        f"put {match['prefix']}-labels-idx1-ubyte (or its .gz) into the same folder."
    )


def _read_idx_file(path: Path, magic: int, dims: int) -> tuple[tuple[int, ...], bytes]:
    """Sizes and body of an IDX file whose length fits its header exactly."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            header = _read(file, 4 * (1 + dims))
            if len(header) < 4 * (1 + dims):
                raise EOFError(f"its header ends after {len(header)} bytes")
            found, *sizes = (int(word) for word in np.frombuffer(header, dtype=">u4"))
            _check_idx_header(path, found, sizes, magic, dims)
            expected = 1
            for size in sizes:
                expected *= size
            body = _read(file, expected + 1)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); download it again.") from error
    if len(body) != expected:
        problem = "ends early" if len(body) < expected else "goes on after its last entry"
        raise UsageError(
            f"{path} {problem}: its header promises {expected} bytes; download it again."
        )
    return tuple(sizes), body


def _check_idx_header(path: Path, found: int, sizes: list[int], magic: int, dims: int) -> None:
    """Refuse another magic number and sizes that no usable file has."""
    if found != magic:
        raise UsageError(
            f"{path} is no IDX file of {'images' if dims == 3 else 'labels'}: it starts with "
            f"{found} instead of the magic number {magic}; download it again."
        )
    if any(not MIN_SIDE <= side <= MAX_SIDE for side in sizes[1:]):
        raise UsageError(
            f"{path} says that its images are {' x '.join(map(str, sizes[1:]))} pixels; "
            f"use images with sides of {MIN_SIDE} to {MAX_SIDE} pixels."
        )
    if sizes[0] == 0 or sizes[0] * MAX_SIDE**2 > LIMIT:
        raise UsageError(
            f"{path} says that it has {sizes[0]} entries; use a file with 1 to "
            f"{LIMIT // MAX_SIDE**2} of them."
        )


def _read(file: BinaryIO | gzip.GzipFile, size: int) -> bytes:
    """At most `size` bytes, in steps: memory grows with what is there, not with what is asked."""
    parts: list[bytes] = []
    while size > 0 and (part := file.read(min(size, _CHUNK))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_cifar(path: Path) -> tuple[Pixels, Labels]:
    """Read a file of CIFAR-10's binary version: records of a label and 3 x 32 x 32 bytes.

    Returns pixels (n, 3, 32, 32) and labels (n,). Raises UsageError when the length is no multiple
    of 3073 bytes or a label is outside 0 to 9.
    """
    try:
        size = path.stat().st_size
        if size == 0 or size % _CIFAR_RECORD or size > LIMIT:
            raise UsageError(
                f"{path} has {size} bytes, which is no number of whole CIFAR-10 records of "
                f"{_CIFAR_RECORD} bytes; download cifar-10-binary.tar.gz again."
            )
        records = np.fromfile(path, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error}); download it again.") from error
    labels = records[:, 0].astype(np.int64)
    _check_labels(labels, CLASSES, path)
    return np.ascontiguousarray(records[:, 1:]).reshape(-1, *_CIFAR_SHAPE), labels


def read_leaf(path: Path) -> tuple[Pixels, Labels]:
    """Read the digits of a LEAF FEMNIST file; its letters (classes 10 to 61) are left out.

    The file holds {"users": [..], "user_data": {user: {"x": [[784 grey values]], "y": [class]}}}
    with grey values of 0 to 1, which become the nearest of 0 to 255 (Caldas et al., LEAF, 2018).

    Returns pixels (n, 1, 28, 28), n may be 0, and labels (n,). Raises UsageError when the file says
    something else.
    """
    try:
        if path.stat().st_size > LIMIT:
            raise UsageError(f"{path} is larger than {LIMIT >> 30} GiB; split it by users.")
        with path.open(encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as JSON ({error}); write it again.") from error
    data = content.get("user_data") if isinstance(content, dict) else None
    users = content.get("users") if isinstance(content, dict) else None
    if not isinstance(data, dict) or not isinstance(users, list):
        raise UsageError(
            f"{path} is no LEAF file: it lacks 'users' or 'user_data'; "
            "name a folder that holds LEAF's FEMNIST files and no other JSON."
        )
    pixels = [np.empty((0, 1, _LEAF_SIDE, _LEAF_SIDE), dtype=np.uint8)]
    labels = [np.empty(0, dtype=np.int64)]
    for user in users:
        entry = data.get(user) if isinstance(user, str) else None
        own_pixels, own_labels = _leaf_user(path, user, entry)
        digits = own_labels < CLASSES
        pixels.append(own_pixels[digits])
        labels.append(own_labels[digits])
    return np.concatenate(pixels), np.concatenate(labels)


def _leaf_user(path: Path, user: object, entry: Any) -> tuple[Pixels, Labels]:
    """Images and classes of one LEAF user."""
    where = f"{path}, user {user!r:.40}"
    if not isinstance(entry, dict) or not {"x", "y"} <= entry.keys():
        raise UsageError(f"{where}: there is no 'x' and 'y' in user_data; write the file again.")
    try:
        grey = np.array(entry["x"] or np.empty((0, _LEAF_SIDE**2)), dtype=np.float64)
        classes = np.array(entry["y"], dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"{where}: values are not numbers ({error}).") from error
    if classes.ndim != 1 or grey.shape != (len(classes), _LEAF_SIDE**2):
        raise UsageError(
            f"{where}: x has shape {grey.shape} and y {classes.shape}; FEMNIST has one class and "
            f"{_LEAF_SIDE**2} grey values an image. Name a folder of FEMNIST files."
        )
    if not ((grey >= 0.0) & (grey <= 1.0)).all():  # NaN fails both
        raise UsageError(f"{where}: grey values are outside 0 to 1; write the file as LEAF does.")
    _check_labels(classes, _LEAF_CLASSES, path)
    pixels = np.rint(grey * 255.0).astype(np.uint8)
    return pixels.reshape(-1, 1, _LEAF_SIDE, _LEAF_SIDE), classes.astype(np.int64)


def _check_labels(labels: NDArray[Any], classes: int, path: Path) -> None:
    """Refuse labels that are no whole number of 0 to classes - 1."""
    wrong = labels[~((labels >= 0) & (labels < classes) & (labels == np.floor(labels)))]
    if len(wrong):
        raise UsageError(
            f"{path} has the label {wrong[0]}; use a data set whose classes are 0 to {classes - 1}."
        )
