"""Image pools: each file format as published, damaged files, and a split without overlap."""

import gzip
import json
import re
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from cluster.errors import UsageError
from federated.fedgmm.images.files import Labels, Pixels
from federated.fedgmm.images.pools import ImagePool, digits, open_pool, read_folder, split

TEN = np.arange(10)


def images(labels: Labels, shape: tuple[int, int, int] = (1, 28, 28)) -> Pixels:
    """Random images, a different one for each label."""
    return np.random.default_rng(0).integers(0, 256, (len(labels), *shape), dtype=np.uint8)


def idx_bytes(array: Pixels) -> bytes:
    magic = 2048 + array.ndim
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


def write_idx(
    folder: Path, labels: Labels, prefix: str = "train", mark: str = "-", packed: bool = False
) -> Pixels:
    pixels = images(labels)
    for name, array in (("images{}idx3", pixels[:, 0]), ("labels{}idx1", labels.astype(np.uint8))):
        path = folder / f"{prefix}-{name.format(mark)}-ubyte{'.gz' if packed else ''}"
        content = idx_bytes(array)
        path.write_bytes(gzip.compress(content) if packed else content)
    return pixels


def write_leaf(path: Path, users: dict[str, tuple[Any, Any]]) -> None:
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"users": list(users), "user_data": data}), encoding="utf-8")


def cifar_bytes(pixels: Pixels, labels: Labels) -> bytes:
    return np.column_stack([labels.astype(np.uint8), pixels.reshape(len(labels), -1)]).tobytes()


def test_the_bundled_digits_keep_their_ink_exactly() -> None:
    pool = open_pool(None)
    assert pool.pixels.shape == (1797, 1, 8, 8)
    assert pool.pixels.min() == 0
    assert pool.pixels.max() == 255
    ink = (16 * pool.pixels[:, 0].astype(int) + 127) // 255
    np.testing.assert_array_equal(ink, load_digits().images)
    np.testing.assert_array_equal(pool.labels, load_digits().target)


@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_in_either_style_packed_or_not(tmp_path: Path, mark: str, packed: bool) -> None:
    first = write_idx(tmp_path, TEN, "train", mark, packed)
    second = write_idx(tmp_path, TEN[::-1][:4], "t10k", mark, packed)
    (tmp_path / "notes.json").write_text("{}")  # no image file; other formats ignore it

    pool = read_folder(tmp_path)

    np.testing.assert_array_equal(pool.pixels, np.concatenate([second, first]))
    np.testing.assert_array_equal(pool.labels, [9, 8, 7, 6, *TEN])


def test_a_file_and_its_gz_are_read_once(tmp_path: Path) -> None:
    write_idx(tmp_path, TEN, packed=False)
    write_idx(tmp_path, TEN, packed=True)
    assert len(read_folder(tmp_path)) == 10


def test_cifar_binary_batches(tmp_path: Path) -> None:
    pixels = images(TEN, (3, 32, 32))
    (tmp_path / "data_batch_1.bin").write_bytes(cifar_bytes(pixels, TEN))
    (tmp_path / "test_batch.bin").write_bytes(cifar_bytes(pixels[:2], TEN[:2]))

    pool = read_folder(tmp_path)

    np.testing.assert_array_equal(pool.pixels, np.concatenate([pixels, pixels[:2]]))
    np.testing.assert_array_equal(pool.labels, [*TEN, 0, 1])


def test_leaf_keeps_the_digits_of_every_user(tmp_path: Path) -> None:
    labels = np.array([*TEN, 10, 61])
    pixels = images(labels)
    grey = pixels.reshape(12, -1) / 255.0
    train, test = tmp_path / "train" / "all_data_0.json", tmp_path / "test" / "all_data_0.json"
    write_leaf(train, {"a": (grey[:4].tolist(), labels[:4].tolist()), "none": ([], [])})
    write_leaf(test, {"b": (grey[4:].tolist(), labels[4:].tolist())})

    pool = read_folder(tmp_path)

    np.testing.assert_array_equal(pool.pixels, pixels[:10])
    np.testing.assert_array_equal(pool.labels, TEN)


def damage(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Write good IDX files, then change one."""

    def apply(folder: Path) -> None:
        write_idx(folder, TEN)
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return apply


def packed_damage(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        write_idx(folder, TEN, packed=True)
        path = folder / "train-images-idx3-ubyte.gz"
        path.write_bytes(change(path.read_bytes()))

    return apply


def header(*words: int) -> bytes:
    return struct.pack(f">{len(words)}I", *words)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
GREY = [[0.5] * 784]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: None, r"no images that are known.*train-images-idx3-ubyte"),
        (lambda folder: (folder / "data_batch_1").write_bytes(b"\x80"), "binary version"),
        (lambda folder: write_idx(folder, TEN[:8]), "no image of class 8, 9"),
        (damage(IMAGES, lambda b: header(2049) + b[4:]), "starts with 2049.*magic number 2051"),
        (damage(IMAGES, lambda b: b[:10]), "its header ends after 10 bytes"),
        (damage(IMAGES, lambda b: b""), "its header ends after 0 bytes"),
        (damage(IMAGES, lambda b: b[:-1]), "ends early"),
        (damage(IMAGES, lambda b: b + b"\0"), "goes on after its last entry"),
        (damage(IMAGES, lambda b: header(2051, 2**32 - 1, 28, 28) + b[16:]), "4294967295 entries"),
        (damage(IMAGES, lambda b: header(2051, 10**6, 28, 28) + b[16:]), "ends early"),
        (damage(IMAGES, lambda b: header(2051, 10, 2**31, 1) + b[16:]), "2147483648 x 1 pixels"),
        (damage(IMAGES, lambda b: header(2051, 0, 28, 28)), "says that it has 0 entries"),
        (damage(LABELS, lambda b: header(2049, 9) + b[8:-1]), "10 images but .* 9"),
        (damage(LABELS, lambda b: b[:-1] + b"\x0a"), "has the label 10"),
        (lambda folder: (folder / IMAGES).write_bytes(b""), "has no label file beside it"),
        (packed_damage(lambda b: b[: len(b) // 2]), "cannot be read"),
        (packed_damage(lambda b: b"no gzip"), "cannot be read"),
        (packed_damage(lambda b: b[:-200] + bytes(20) + b[-180:]), "cannot be read"),
        (lambda folder: (folder / "test_batch.bin").write_bytes(bytes(3072)), "whole CIFAR-10"),
        (lambda folder: (folder / "test_batch.bin").write_bytes(b""), "whole CIFAR-10"),
        (
            lambda folder: (folder / "test_batch.bin").write_bytes(b"\x0a" + bytes(3072)),
            "has the label 10",
        ),
        (lambda folder: (folder / "a.json").write_text("{"), "cannot be read as JSON"),
        (lambda folder: (folder / "a.json").write_text("[" * 10**5), "cannot be read as JSON"),
        (lambda folder: (folder / "a.json").write_text("[]"), "no LEAF file"),
        (lambda folder: (folder / "a.json").write_bytes(b"\xff"), "cannot be read as JSON"),
        (
            lambda folder: (folder / "a.json").write_text('{"users": ["u"], "user_data": {}}'),
            "user 'u'.*no 'x' and 'y'",
        ),
        (lambda folder: write_leaf(folder / "a.json", {"u": (GREY, [1, 2])}), "y \\(2,\\)"),
        (lambda folder: write_leaf(folder / "a.json", {"u": ([[0.5]], [1])}), "784 grey values"),
        (
            lambda folder: write_leaf(folder / "a.json", {"u": ([[0.5], [1, 2]], [1, 2])}),
            "not numbers",
        ),
        (lambda folder: write_leaf(folder / "a.json", {"u": ([[1.5] * 784], [1])}), "0 to 1"),
        (
            lambda folder: write_leaf(folder / "a.json", {"u": ([[float("nan")] * 784], [1])}),
            "0 to 1",
        ),
        (lambda folder: write_leaf(folder / "a.json", {"u": (GREY, [62])}), "has the label 62"),
        (lambda folder: write_leaf(folder / "a.json", {"u": (GREY, [0.5])}), "has the label 0.5"),
    ],
)
def test_a_folder_that_cannot_be_used_is_named_with_the_reason(
    tmp_path: Path, write: Callable[[Path], object], message: str
) -> None:
    write(tmp_path)
    with pytest.raises(UsageError, match=message) as caught:
        read_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_header_is_not_believed_before_the_bytes_are_there(tmp_path: Path) -> None:
    write_idx(tmp_path, TEN, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(header(2051, 10**6, 64, 64) + bytes(100)))  # promises 4 GB
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="ends early"):
            read_folder(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_no_folder_two_formats_and_two_shapes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no image folder.*name a folder"):
        read_folder(tmp_path / "absent")
    write_idx(tmp_path, TEN)
    (tmp_path / "data_batch_1.bin").write_bytes(cifar_bytes(images(TEN, (3, 32, 32)), TEN))
    with pytest.raises(UsageError, match=r"both train-images-idx3-ubyte and data_batch_1\.bin"):
        read_folder(tmp_path)
    (tmp_path / "data_batch_1.bin").unlink()
    small = images(TEN, (1, 8, 8))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx_bytes(small[:, 0]))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(TEN.astype(np.uint8)))
    with pytest.raises(UsageError, match=re.escape("(1, 8, 8), train-images")):
        read_folder(tmp_path)


def keys(pool: ImagePool) -> set[bytes]:
    return {image.tobytes() for image in pool.pixels}


def test_split_is_disjoint_in_pixels_even_with_copies_and_wrong_labels() -> None:
    labels = np.repeat(TEN, 20)
    pixels = images(labels, (1, 8, 8))
    everything = np.concatenate([pixels, pixels, pixels[:50]])
    relabelled = np.concatenate([labels, labels, (labels[:50] + 1) % 10])
    pool = ImagePool(everything, relabelled, "test")

    train, test = split(pool, seed=0, test_share=0.25)

    assert not keys(train) & keys(test)
    assert keys(train) | keys(test) == keys(pool)
    assert len(train) + len(test) == len(pool)
    assert len(keys(test)) == 10 * 5  # a quarter of the 20 distinct images of each class


def test_split_is_by_class_and_by_seed() -> None:
    pool = digits()
    train, test = split(pool, seed=3, test_share=0.2)

    share = np.bincount(test.labels) / np.bincount(pool.labels)
    np.testing.assert_allclose(share, 0.2, atol=0.005)
    np.testing.assert_array_equal(split(pool, 3, 0.2)[1].pixels, test.pixels)
    assert keys(split(pool, 4, 0.2)[1]) != keys(test)
    assert not keys(train) & keys(test)


def test_split_leaves_each_class_on_both_sides_or_says_why_not() -> None:
    labels = np.repeat(TEN, 2)
    pool = ImagePool(images(labels, (1, 8, 8)), labels, "twenty images")
    for share in (0.01, 0.99):
        for part in split(pool, 0, share):
            np.testing.assert_array_equal(np.sort(part.labels), TEN)

    pool.pixels[7] = pool.pixels[6]  # class 3 has one distinct image now
    with pytest.raises(UsageError, match=r"Class 3 of twenty images has 1 distinct"):
        split(pool, 0, 0.5)
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(UsageError, match="above 0 and below 1"):
            split(pool, 0, share)


@pytest.mark.parametrize(
    ("pixels", "labels"),
    [
        (np.zeros((2, 8, 8), np.uint8), np.zeros(2, np.int64)),
        (np.zeros((2, 1, 8, 8)), np.zeros(2, np.int64)),
        (np.zeros((2, 1, 8, 8), np.uint8), np.zeros(3, np.int64)),
        (np.zeros((2, 1, 8, 8), np.uint8), np.array([0, 10])),
        (np.zeros((2, 1, 8, 8), np.uint8), np.array([-1, 0])),
    ],
)
def test_a_pool_that_does_not_fit_is_refused(pixels: Any, labels: Any) -> None:
    with pytest.raises(ValueError, match=r"pixels|images|labels"):
        ImagePool(pixels, labels, "wrong")
