"""Files and settings of demonstrations that cannot be used, and what is said of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from cluster.errors import UsageError
from tests.trainers.control.logged import ROLES, complaint, log
from trainers.control.demonstrations import parquet
from trainers.control.demonstrations.open import open_demonstrations
from trainers.control.demonstrations.settings import Conversion, DemonstrationSettings
from trainers.control.trajectories import Trajectories, padded


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.csv"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("\n1,2\n", "begins with an empty line"),
        ("batch,t,T,CA,m\n", "has a header but no rows"),
        ("batch,t,T,CA,m\n\n\n", "has a header but no rows"),
        ("batch,t,T,CA,m\na,0,1\n", "cannot be read as UTF-8 text in columns"),
        ("batch,t,temp,CA,m\na,0,1,1,1\n", "there is no column 'T'"),
        ("batch,t,T,CA,m,m\na,0,1,1,1,1\n", "two columns are named 'm'"),
        ("batch,t,T,Ca,m\na,0,1,1,1\n", "no column 'CA'; did you mean 'Ca'"),
        ("batch,t,T,CA,m\na,0,1,1,1\na,1,hot,1,1\n", "column 'T': row 3 holds 'hot', which is not"),
        ("batch;t;T;CA;m\na;0;1,5;1;1\n", "write decimals with a point"),
        ("batch,t,T,CA,m\na,0,1_0,1,1\n", "'1_0', which is not a number"),
        ("batch,t,T,CA,m\na,noon,1,1,1\n", "column 't': row 2 holds 'noon', which is neither"),
        ("batch,t,T,CA,m\na,01/02/2026 10:00,1,1,1\n", "write all moments alike"),
        (
            "batch,t,T,CA,m\na,2026-01-01 10:00:00,1,1,1\na,2026-01-01T10:01:00Z,1,1,1\n",
            "row 3 holds '2026-01-01T10:01:00Z'",
        ),
    ],
)
def test_text_that_cannot_be_used(file: Path, content: str, said: str) -> None:
    file.write_text(content)
    text = complaint(file)
    assert str(file) in text
    assert said in text


def test_all_columns_at_fault_are_named_at_once(file: Path) -> None:
    file.write_text("batch,t,T,CA,m\na,noon,hot,1,open\n")
    text = complaint(file)
    assert ["'T'" in text, "'m'" in text, "'t'" in text, "'CA'" in text] == [True] * 3 + [False]
    file.write_text("batch,t,TT,CA,mm\n")
    text = complaint(file)
    assert "no column 'T'; did you mean" in text
    assert "'m'; did you mean 'mm'?" in text


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_text("x")
    assert "the ending '.xlsx' is unknown" in complaint(tmp_path / "a.xlsx")
    assert "there is no such file" in complaint(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes("batch,t,T,CA,m\nä,0,1,1,1\n".encode("latin-1"))
    assert "CSV UTF-8" in complaint(tmp_path / "a.csv")
    (tmp_path / "a.pq").write_text("batch,t\n")
    assert "cannot be read as Parquet" in complaint(tmp_path / "a.pq")
    table = pa.table({**log(), "m": [{"a": 1}] * 80})
    pq.write_table(table, tmp_path / "b.pq")
    assert "column 'm': is of type struct" in complaint(tmp_path / "b.pq")


def test_our_own_file_needs_only_its_path(tmp_path: Path) -> None:
    x, length = padded([np.ones((t, 1), np.float32) * t for t in (12, 4, 30)])
    data = Trajectories(("T",), ("m",), 10.0, np.array(["a", "b", "c"]), x, x, length)
    path = tmp_path / "own.parquet"
    parquet.write(path, data)
    found, account = open_demonstrations(DemonstrationSettings(path=str(path)))
    assert found.ids.tolist() == ["a", "c"]
    assert (account.rows, account.kept, account.dropped[0].rows) == (46, 42, 4)
    assert account.dropped[0].first == "the first is 'b'"
    assert len(open_demonstrations(DemonstrationSettings(path=str(path), shortest=30))[0]) == 1
    with pytest.raises(UsageError, match="no demonstrations are left"):
        open_demonstrations(DemonstrationSettings(path=str(path), shortest=31))
    assert "leave out observations, actions" in complaint(path)


def test_another_parquet_needs_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table(log()), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="also needs observations, actions, time, seconds, traj"):
        open_demonstrations(DemonstrationSettings(path=str(tmp_path / "a.parquet")))
    with pytest.raises(UsageError, match="name one as path"):
        open_demonstrations(DemonstrationSettings())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "a.csv"}, "needs observations, actions, time, seconds, trajectory .* or gap"),
        ({"path": "a.csv", **ROLES, "seconds": None, "trajectory": None}, "seconds, trajectory"),
        ({"path": "a.parquet", "observations": ("T",)}, "needs actions, time, seconds"),
        ({"observations": ("T",)}, "but path is not given"),
        ({"path": "a.csv", **ROLES, "actions": ("T",)}, "'T' is named more than once"),
        ({"path": "a.csv", **ROLES, "limits": {"mm": (0.0, 1.0)}}, "did you mean 'm'"),
        ({"path": "a.csv", **ROLES, "limits": {"m": (1.0, 0.0)}}, "the lower one first"),
        ({"path": "a.csv", **ROLES, "units": {"batch": Conversion()}}, "'batch' is not among"),
        ({"path": "a.csv", **ROLES, "frozen": 4}, r"at least missing \+ 2"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DemonstrationSettings(**given)
