"""What nature deals is what the client opens, and damage is noticed."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from cluster.errors import UsageError
from federated.deal import deal, open_client
from federated.fedgmm.rows import Names, Rows
from federated.fedgmm.scenarios import draw
from federated.partition import quantity
from federated.streams import stream

LABELS = ("Nord", "Süd", "Ost")


@pytest.fixture
def rows() -> Rows:
    rng = stream(0)
    return Rows(
        rng.normal(size=40),
        rng.normal(size=(40, 2)),
        rng.normal(size=(40, 3)),
        rng.normal(size=(40, 1)),
    )


@pytest.fixture
def dealt(rows: Rows, tmp_path: Path) -> Path:
    folder = tmp_path / "deep" / "clients"
    names = Names("wage", ("educ", "age"), ("a", "b", "c"), ("d",))
    deal(rows, quantity(40, 3, 0.3, stream(0)), asdict(names), LABELS, folder)
    return folder


def test_each_client_opens_its_own_rows_to_the_bit(rows: Rows, dealt: Path) -> None:
    for partition_id, part in enumerate(quantity(40, 3, 0.3, stream(0))):
        own, label = open_client(dealt, partition_id, Rows)
        assert label == LABELS[partition_id]
        for name in ("y", "x", "z", "w"):
            assert np.array_equal(getattr(own, name), getattr(rows, name)[part])


def test_files_are_named_and_nothing_else_is_left(dealt: Path) -> None:
    assert sorted(path.name for path in dealt.iterdir()) == [
        "client-0000.npz",
        "client-0001.npz",
        "client-0002.npz",
        "clients.json",
    ]


def test_index_holds_labels_sizes_and_names_but_no_row(rows: Rows, dealt: Path) -> None:
    text = (dealt / "clients.json").read_text(encoding="utf-8")
    index = json.loads(text)
    assert set(index) == {"names", "clients"}
    assert [set(client) for client in index["clients"]] == [{"label", "rows"}] * 3
    assert sum(client["rows"] for client in index["clients"]) == 40
    assert index["names"] == {"y": "wage", "x": ["educ", "age"], "z": ["a", "b", "c"], "w": ["d"]}
    assert "Süd" in text
    assert not any(str(value) in text for value in rows.y)


def test_rows_without_controls(tmp_path: Path) -> None:
    data = draw("abs", "code", 10, seed=0)
    deal(data.rows, [np.arange(10)], asdict(data.names), ["all"], tmp_path)
    own, _ = open_client(tmp_path, 0, Rows)
    assert own.w.shape == (10, 0)


def test_same_deal_gives_the_same_bytes(rows: Rows, dealt: Path, tmp_path: Path) -> None:
    names = Names("wage", ("educ", "age"), ("a", "b", "c"), ("d",))
    deal(rows, quantity(40, 3, 0.3, stream(0)), asdict(names), LABELS, tmp_path / "again")
    for path in dealt.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_a_new_deal_replaces_the_old_one(rows: Rows, dealt: Path) -> None:
    deal(rows, [np.arange(40)], asdict(Names("y", ("x",), ("z",))), ["all"], dealt)
    assert sorted(path.name for path in dealt.iterdir()) == ["client-0000.npz", "clients.json"]


def test_a_broken_off_deal_cannot_be_opened(
    rows: Rows, dealt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        deal(rows, [np.arange(40)], asdict(Names("y", ("x",), ("z",))), ["all"], dealt)
    assert list(dealt.iterdir()) == []
    with pytest.raises(UsageError, match="No rows were dealt"):
        open_client(dealt, 0, Rows)


def test_number_of_labels_must_match(rows: Rows, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 clients have 2 labels"):
        deal(rows, [np.arange(40)], asdict(Names("y", ("x",), ("z",))), ["a", "b"], tmp_path)


@pytest.mark.parametrize("partition_id", [-1, 3])
def test_unknown_client(dealt: Path, partition_id: int) -> None:
    with pytest.raises(UsageError, match=f"no client {partition_id} .* has clients 0 to 2"):
        open_client(dealt, partition_id, Rows)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No rows were dealt to .*there is no clients\.json"):
        open_client(tmp_path / "nowhere", 0, Rows)


def test_missing_client_file(dealt: Path) -> None:
    (dealt / "client-0001.npz").unlink()
    with pytest.raises(UsageError, match=r"rows of client 1 are missing: no file .*client-0001"):
        open_client(dealt, 1, Rows)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"clients": [{"label": "a"}]}'])
def test_damaged_index(dealt: Path, text: str) -> None:
    (dealt / "clients.json").write_text(text)
    with pytest.raises(UsageError, match=r"clients\.json is damaged"):
        open_client(dealt, 0, Rows)


def test_truncated_file(dealt: Path) -> None:
    path = dealt / "client-0000.npz"
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(UsageError, match=r"client-0000\.npz is damaged"):
            open_client(dealt, 0, Rows)


def test_one_flipped_bit_of_a_value_is_noticed(dealt: Path, rows: Rows) -> None:
    part = quantity(40, 3, 0.3, stream(0))[0]
    path = dealt / "client-0000.npz"
    whole = bytearray(path.read_bytes())
    whole[whole.index(rows.y[part].tobytes()) + 3] ^= 0x10
    path.write_bytes(whole)
    with pytest.raises(UsageError, match=r"client-0000\.npz is damaged"):
        open_client(dealt, 0, Rows)


def test_pickled_objects_are_refused(dealt: Path) -> None:
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(dealt / "client-0000.npz", y=objects, x=objects, z=objects, w=objects)
    with pytest.raises(UsageError, match=r"damaged .*allow_pickle"):
        open_client(dealt, 0, Rows)


def test_file_of_another_deal(dealt: Path) -> None:
    data = draw("abs", "code", 9, seed=0)
    deal(data.rows, [np.arange(9)], asdict(data.names), ["all"], dealt / "other")
    (dealt / "other" / "client-0000.npz").replace(dealt / "client-0000.npz")
    with pytest.raises(UsageError, match=r"holds 9 rows where clients\.json says"):
        open_client(dealt, 0, Rows)


def test_rows_refuse_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"z has shape \(2, 1\); expected 2 dimension"):
        Rows(np.zeros(3), np.zeros((3, 1)), np.zeros((2, 1)), np.zeros((3, 0)))


def test_rows_take_copies_in_the_order_asked(rows: Rows) -> None:
    taken = rows.take(np.array([5, 2]))
    taken.x[:] = 0.0
    assert taken.y.tolist() == [rows.y[5], rows.y[2]]
    assert rows.x.all()
