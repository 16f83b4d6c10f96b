"""Our own files: bit for bit there and back, no mode in them, and what is said of damaged ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import UsageError
from trainers.control.demonstrations import parquet
from trainers.control.demonstrations.truth import read_truth, write_truth
from trainers.control.trajectories import Trajectories, padded

LENGTHS = (5, 1, 7, 3)


@pytest.fixture
def data() -> Trajectories:
    rng = np.random.default_rng(0)
    x, length = padded([rng.normal(size=(t, 2)).astype(np.float32) for t in LENGTHS])
    u, _ = padded([rng.normal(size=(t, 1)).astype(np.float32) for t in LENGTHS])
    ids = np.array(["b", "a", "long name", "d"])
    return Trajectories(("T", "CA"), ("m",), 0.1, ids, x, u, length)


@pytest.fixture
def file(tmp_path: Path, data: Trajectories) -> Path:
    path = tmp_path / "demonstrations.parquet"
    parquet.write(path, data, plant={"kind": "cstr"})
    return path


def assert_same(found: Trajectories, data: Trajectories) -> None:
    for name in ("observations", "actions", "seconds"):
        assert getattr(found, name) == getattr(data, name)
    for name in ("ids", "x", "u", "length"):
        left, right = getattr(found, name), getattr(data, name)
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()


def complaint(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        parquet.read(path)
    return str(caught.value)


def test_there_and_back_bit_for_bit(file: Path, data: Trajectories) -> None:
    assert_same(parquet.read(file), data)


def test_extreme_singles_survive(tmp_path: Path, data: Trajectories) -> None:
    x = data.x.copy()
    x[0, 0], x[0, 1] = (-0.0, np.finfo(np.float32).max), (1e-45, np.float32(0.1))
    parquet.write(tmp_path / "a.parquet", replace(data, x=x))
    assert_same(parquet.read(tmp_path / "a.parquet"), replace(data, x=x))


def test_an_action_that_is_observed_keeps_both_columns(tmp_path: Path, data: Trajectories) -> None:
    both = replace(data, observations=("T", "m"))
    parquet.write(tmp_path / "a.parquet", both)
    assert_same(parquet.read(tmp_path / "a.parquet"), both)
    assert pq.read_schema(tmp_path / "a.parquet").names[2:] == ["T", "m", "m.action"]


def test_columns_are_what_the_page_says(file: Path) -> None:
    schema = pq.read_schema(file)
    assert schema.names == ["trajectory", "time", "T", "CA", "m"]
    assert [str(t) for t in schema.types] == ["string", "double", "float", "float", "float"]
    assert json.loads(schema.metadata[b"corymb"]) == {
        "format": "demonstrations", "version": 1, "observations": ["T", "CA"], "actions": ["m"],
        "seconds": 0.1, "plant": {"kind": "cstr"},
    }  # fmt: skip
    times = pq.read_table(file).column("time").to_pylist()
    assert times == [t * 0.1 for length in LENGTHS for t in range(length)]


def test_no_mode_is_in_the_file(file: Path, tmp_path: Path, data: Trajectories) -> None:
    write_truth(tmp_path / "truth.parquet", data.ids.tolist(), [0, 1, 1, 0])
    assert read_truth(tmp_path / "truth.parquet") == {"b": 0, "a": 1, "long name": 1, "d": 0}
    assert not {"mode", "label", "modes"} & set(pq.read_schema(file).names)
    assert b"mode" not in pq.read_schema(file).metadata[b"corymb"]
    other = tmp_path / "other.parquet"
    parquet.write(other, data, plant={"kind": "cstr"})
    assert other.read_bytes() == file.read_bytes()  # nothing but the trajectories decides it


def test_a_file_of_others_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"trajectory": ["a"]}), path)
    assert parquet.header(path) is None
    assert "is not a demonstrations file of corymb" in complaint(path)


def test_names_that_cannot_be_told_apart_are_refused(tmp_path: Path, data: Trajectories) -> None:
    with pytest.raises(ValueError, match="same name"):
        parquet.write(tmp_path / "a", replace(data, observations=("T", "time")))
    with pytest.raises(ValueError, match="same id"):
        parquet.write(tmp_path / "a", replace(data, ids=np.array(["a", "b", "a", "c"])))
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.slice(0, 0), "holds no samples"),
        (lambda t: t.drop_columns("CA"), "lacks the column(s) CA"),
        (lambda t: t.take([0, 5, 1]), "do not stand together"),
        (lambda t: t.take([0, 2, 3]), "row 2 is not 0.1 s after the one before"),
        (lambda t: t.set_column(3, "CA", pa.array(["x"] * 16)), "'CA' is of type string"),
        (lambda t: t.set_column(3, "CA", pa.array([np.nan] * 16)), "column 'CA' has 16 cell(s)"),
        (lambda t: t.set_column(0, "trajectory", pa.nulls(16, pa.string())), "'trajectory' has 16"),
    ],
)
def test_a_changed_file_is_refused(file: Path, change: Any, said: str) -> None:
    pq.write_table(change(pq.read_table(file)), file)
    assert said in complaint(file)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (b"{", "damaged header"),
        (b"[]", "damaged header"),
        (b'{"format": "demonstrations", "version": 2}', "reads demonstrations, version 1"),
        (b'{"format": "demonstrations", "version": 1}', "damaged header"),
    ],
)
def test_a_header_that_cannot_be_used(file: Path, metadata: bytes, said: str) -> None:
    table = pq.read_table(file).replace_schema_metadata({b"corymb": metadata})
    pq.write_table(table, file)
    assert said in complaint(file)


def test_no_file_and_no_parquet(tmp_path: Path) -> None:
    assert "there is no such file" in complaint(tmp_path / "absent.parquet")
    (tmp_path / "text.parquet").write_text("T,CA\n1,2\n")
    assert "cannot be read as Parquet" in complaint(tmp_path / "text.parquet")


@pytest.mark.parametrize(
    "table",
    [
        {"trajectory": ["a", "a"], "mode": [0, 1]},
        {"trajectory": ["a", "b"], "mode": [0.5, 1.0]},
        {"trajectory": ["a", None], "mode": [0, 1]},
        {"trajectory": ["a"]},
    ],
)
def test_truth_that_is_none(tmp_path: Path, table: dict[str, list[Any]]) -> None:
    pq.write_table(pa.table(table), tmp_path / "truth.parquet")
    with pytest.raises(UsageError, match=r"truth\.parquet"):
        read_truth(tmp_path / "truth.parquet")
