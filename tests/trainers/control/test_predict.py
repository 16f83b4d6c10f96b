"""What a controller answers to a table, from the command line too."""

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cluster import cli
from cluster.errors import UsageError
from tests.trainers.control.making import MOVED, controller, samples
from trainers.control.controller import FOLDER, SavedController, save
from trainers.control.predict import Table, predict, read_table, written

HEADER = "trajectory,T,CA,TC,m,flow"


def table(text: str, folder: Path) -> Table:
    path = folder / "rows.csv"
    path.write_text(text)
    return read_table(path)


def rows(x: torch.Tensor, u: torch.Tensor, names: list[str]) -> str:
    """A file of samples x (n, 3), u (n, 2), whose columns stand in another order."""
    lines = [HEADER]
    for name, (ca, t, tc), (m, flow) in zip(names, x.tolist(), u.tolist(), strict=True):
        lines.append(f"{name},{t!r},{ca!r},{tc!r},{m!r},{flow!r}")
    return "\n".join(lines) + "\n"


def code(made: SavedController, x: torch.Tensor, u: torch.Tensor) -> np.ndarray:
    """z of one piece, asked of the networks themselves."""
    assert made.inference is not None
    valid = torch.ones(1, len(x), dtype=torch.bool)
    scaled = made.policy.scaled_action(u)
    with torch.no_grad():
        return made.inference.code(made.inference(x[None], scaled[None], valid))[0].numpy()


def test_each_trajectory_has_the_mode_of_its_own_first_samples(tmp_path: Path) -> None:
    made = controller(3, "gaussian")
    names = ["b", "a", "b", "a", "b", "a", "b"]  # they may alternate
    x, u = samples(7, seed=3), samples(7, units=MOVED, seed=4)
    read = table(rows(x, u, names), tmp_path)
    found = predict(made, read, infer=2)
    b, a = code(made, x[[0, 2]], u[[0, 2]]), code(made, x[[1, 3]], u[[1, 3]])
    np.testing.assert_allclose(found.z[0::2], np.tile(b, (4, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.z[1::2], np.tile(a, (3, 1)), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        wanted = made.act(x, torch.from_numpy(found.z)).numpy()
    np.testing.assert_array_equal(found.actions, wanted)


def test_rows_without_actions_end_the_piece(tmp_path: Path) -> None:
    made = controller(3, "gaussian")
    x, u = samples(5), samples(5, units=MOVED, seed=1)
    lines = rows(x, u, ["a"] * 5).splitlines()
    lines[4] = lines[4].rsplit(",", 1)[0] + ","  # the fourth row lacks an action
    found = predict(made, table("\n".join(lines), tmp_path))
    np.testing.assert_allclose(found.z[0], code(made, x[:3], u[:3]), rtol=1e-5, atol=1e-6)
    assert (found.z == found.z[0]).all()


def test_a_given_mode_needs_no_actions(tmp_path: Path) -> None:
    made = replace(controller(), codes=np.array([[0, 1], [1, 0]], np.float32))
    text = "CA;T;TC\n1.1;88;50\n1.0;90;55\n"
    found = predict(made, table(text, tmp_path), mode=1)
    assert found.mode.tolist() == [1, 1]
    x, z = torch.tensor([[1.1, 88, 50], [1.0, 90, 55]]), torch.tensor([[1.0, 0], [1, 0]])
    with torch.no_grad():
        np.testing.assert_array_equal(found.actions, made.act(x, z).numpy())


def test_what_is_written_reads_back_to_the_digit(tmp_path: Path) -> None:
    made = controller()
    x, u = samples(6), samples(6, units=MOVED)
    read = table(rows(x, u, ["p", "p", "q", "q", "q", "q"]), tmp_path)
    found = predict(made, read)
    back = list(csv.DictReader(io.StringIO(written(made, read, found))))
    assert list(back[0]) == ["trajectory", "m", "flow", "mode", "z0", "z1"]
    assert [row["trajectory"] for row in back] == ["p", "p", "q", "q", "q", "q"]
    kept = np.array([[row["m"], row["flow"]] for row in back], np.float32)
    np.testing.assert_array_equal(kept, found.actions)
    assert [int(row["mode"]) for row in back] == found.z.argmax(1).tolist()


def test_a_policy_without_modes_writes_actions_alone(tmp_path: Path) -> None:
    made = controller(0, None)
    read = table("TC,T,CA\n50,88,1.1\n", tmp_path)
    assert written(made, read, predict(made, read)).splitlines()[0] == "m,flow"
    with pytest.raises(UsageError, match="no modes; leave --mode and --infer out"):
        predict(made, read, mode=0)


FULL = f"{HEADER}\na,88,1.1,50,.2,2\n"


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("CA,T,tc\n1,2,3\n", {"mode": 0}, "no column 'TC'; did you mean 'tc'?"),
        ("x,y\n1,2\n", {"mode": 0}, "no column 'CA' and no 'T' and no 'TC'; it has: x, y"),
        ("CA,T,TC\n1,2,3\n", {}, "no column 'm' and no 'flow'; it has: CA, T, TC; without actions"),
        (FULL, {"mode": 2}, "There is no mode 2; this controller's are 0 to 1"),
        (FULL, {"mode": -1}, "There is no mode -1"),
        (FULL, {"mode": 0, "infer": 5}, "use --mode or --infer, not both"),
        (FULL, {"infer": 0}, "cannot be inferred from 0 samples"),
        (FULL.replace("88", ""), {"mode": 0}, "column 'T' is empty in line 2"),
        (FULL.replace("88", "hot"), {"mode": 0}, "column 'T' has 'hot' in line 2"),
        (FULL.replace("88", "inf"), {"mode": 0}, "column 'T' has 'inf' in line 2"),
        (FULL.replace("88", "1e300"), {"mode": 0}, "column 'T' has '1e300' in line 2"),
        (FULL.replace(".2", "NaN"), {}, "trajectory 'a' cannot be inferred, since line 2"),
        (FULL.replace("50,", ""), {}, "line 2 has 5 cells where the header has 6"),
        (HEADER + "\n", {}, "holds no rows"),
        ("", {}, "holds no rows"),
        ("CA,CA\n1,2\n", {}, "names the column 'CA' more than once"),
    ],
)
def test_tables_that_cannot_be_used(
    tmp_path: Path, text: str, options: dict[str, int], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        predict(controller(), table(text, tmp_path), **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_modes_without_inference_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot infer the mode; name one from 0 to 1"):
        predict(controller(2, None), table(FULL, tmp_path))


# From the command line

Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def corymb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Called:
    """The command line in this process, in a folder with a run that has a controller."""
    monkeypatch.chdir(tmp_path)
    run = Path("runs/one")
    save(run / FOLDER, controller())
    (run / "run.json").write_text(json.dumps({"id": "one", "recipe": "imitate", "created": ""}))

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["corymb", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def test_export_then_predict_from_the_folder_alone(corymb: Called) -> None:
    status, out, err = corymb("export", "one", "--to", "out")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == [
        "out/policy.onnx",
        "out/inference.onnx",
    ]
    assert json.loads(Path("out/exported.json").read_text())["run"] == "one"
    Path("rows.csv").write_text(FULL)
    first = corymb("predict", "last", "rows.csv")
    assert first[0] == 0
    assert corymb("predict", "out", "rows.csv") == first
    status, out, _ = corymb("predict", "out", "rows.csv", "--mode", "1", "--to", "got.csv")
    assert (status, out) == (0, "got.csv\n")
    assert Path("got.csv").read_text().splitlines()[1].split(",")[3] == "1"


def test_what_cannot_be_exported_or_used(corymb: Called) -> None:
    record = {"id": "two", "recipe": "fedgmm", "created": ""}
    Path("runs/two").mkdir()
    Path("runs/two/run.json").write_text(json.dumps(record))
    Path("runs/three").mkdir()
    Path("runs/three/run.json").write_text(json.dumps(record | {"recipe": "imitate"}))
    Path("odd").mkdir()
    Path("odd/exported.json").write_text("[]")
    for arguments, said in (
        (["export", "two"], "Recipe fedgmm has nothing to export"),
        (["predict", "two", "x.csv"], "Recipe fedgmm has nothing to predict with"),
        (["export", "three"], "holds no controller"),
        (["predict", "one", "x.csv"], "x.csv cannot be read (No such file"),
        (["predict", "odd", "x.csv"], "does not say which recipe wrote it"),
        (["predict", "none", "x.csv"], "There is no run 'none'"),
    ):
        status, out, err = corymb(*arguments)
        assert (status, out) == (2, "")
        assert said in err
        assert len(err.splitlines()) == 1
