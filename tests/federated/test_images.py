"""Image scenarios from views to evidence: exact sums, and the recipe in this process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cluster.config import ConfigError, load
from cluster.errors import CorymbError, UsageError
from cluster.evidence import Result
from cluster.execute import resume, start
from federated.fedgmm.design import Scale
from federated.fedgmm.estimators import total
from federated.fedgmm.images import analyse
from federated.fedgmm.images.client import image_moments, image_scores, view_moments
from federated.fedgmm.images.convnet import ConvNetwork
from federated.fedgmm.images.pools import digits
from federated.fedgmm.images.rows import ImageRows
from federated.fedgmm.images.scenarios import ImageData, draw_images
from federated.fedgmm.images.views import View, raw_columns
from federated.fedgmm.sieve import sieve_gmm

ROWS = 300


def drawn(which: str) -> ImageData:
    return draw_images(which, "abs", "code", ROWS, digits(), 0)


def scale_of(rows: ImageRows) -> Scale:
    block = np.column_stack([rows.scalars.y, rows.scalars.x, rows.scalars.z])
    p, q = rows.scalars.x.shape[1], rows.scalars.z.shape[1]
    return Scale(len(rows), block.mean(axis=0), block.std(axis=0), p, q)


def parts() -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    return np.split(np.random.default_rng(0).permutation(ROWS), [20, 150])


@pytest.mark.parametrize(
    ("which", "variable"), [("images_x", "z"), ("images_x", "x"), ("images_z", "x")]
)
def test_a_view_is_standardised_and_the_same_for_every_partition(which: str, variable: str) -> None:
    rows = drawn(which).rows
    settings = {"scale": scale_of(rows).to_json(), "variable": variable}
    whole = view_moments(rows, {}, settings)
    split = total([view_moments(rows.take(p), {}, settings) for p in parts()])
    for key in whole:
        np.testing.assert_allclose(split[key], whole[key], rtol=1e-12, atol=1e-9)
    image = getattr(rows, variable).dtype == np.uint8
    view = View.of_moments(
        "components" if image else "splines", ROWS, whole["total"], whole["squares"]
    )
    scaled = scale_of(rows).apply(rows.scalars)
    columns = view.columns(getattr(rows if image else scaled, variable))
    np.testing.assert_allclose(columns.mean(axis=0), 0, atol=1e-9)
    if image:
        deviations = columns.std(axis=0)
        assert deviations[0] == pytest.approx(1)
        assert (np.diff(deviations) < 1e-9).all()
        crossed = columns.T @ columns / ROWS
        np.testing.assert_allclose(crossed - np.diag(np.diag(crossed)), 0, atol=1e-9)
    else:
        np.testing.assert_allclose(columns.std(axis=0), 1, atol=1e-6)
    again = View.from_json(json.loads(json.dumps(view.to_json())))
    assert np.array_equal(again.columns(getattr(rows if image else scaled, variable)), columns)


def test_large_images_are_averaged_down_in_blocks() -> None:
    image = np.zeros((1, 3, 32, 32), dtype=np.uint8)
    image[0, :, 4:8, 8:12] = 255  # one block of 4 x 4
    small = raw_columns(image).reshape(8, 8)
    assert small[1, 2] == pytest.approx(1.0)
    assert small.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("which", ["images_x", "images_z", "images_xz"])
def test_the_closed_form_does_not_depend_on_the_partition(which: str) -> None:
    rows = drawn(which).rows
    network = ConvNetwork((1, 8, 8), 5)
    learnt = analyse.Learnt(
        dict.fromkeys(analyse.ROLES[which], network),
        {r: network.init(i).double().numpy() for i, r in enumerate(analyse.ROLES[which])},
    )
    settings, arrays = learnt.settings(scale_of(rows)), learnt.arrays()
    thetas = []
    for held in ([rows], [rows.take(p) for p in parts()]):
        sums = total([image_moments(r, arrays, settings) for r in held])
        penalty = analyse.ridge(sums, 0.1) + 1e-4 * np.eye(len(sums["aa"]))
        first = sieve_gmm(sums, penalty)
        asked = {**arrays, "theta": first.theta}
        scores = total([image_scores(r, asked, settings) for r in held])
        thetas.append(sieve_gmm(sums, penalty, scores).theta)
    np.testing.assert_allclose(thetas[1], thetas[0], rtol=1e-6, atol=1e-8)


def test_stacked_images_meet_their_own_parameters() -> None:
    network = ConvNetwork((1, 8, 8))
    flats = torch.stack([network.init(0).double(), network.init(1).double()])
    images = torch.from_numpy(digits().pixels[:8].reshape(2, 4, 1, 8, 8))
    stacked = network(flats, images)
    for i in range(2):
        assert torch.equal(stacked[i], network(flats[i], images[i]))


def run(tmp_path: Path, *sets: str) -> tuple[Path, Result]:
    quick = [
        "engine=in_process", f"output={tmp_path}", "data.rows=500", "partition.clients=3",
        "images.rounds=7", "games.fedoadam.rounds=2",
    ]  # fmt: skip
    done = start(load(None, recipe="fedgmm", preset="images", sets=[*quick, *sets]))
    return done.path, done.result


@pytest.mark.parametrize("which", ["images_x", "images_z", "images_xz"])
def test_the_recipe_has_figures_baselines_and_plots(tmp_path: Path, which: str) -> None:
    path, result = run(tmp_path, f"data.source={which}", "seeds=[0,1]")
    assert set(result.figures) == {"mse.features", "mse.fedoadam"}
    assert {"mse.direct"} < set(result.baselines) | {"mse.direct_network"}
    assert ("mse.floor" in result.baselines) == (which != "images_z")
    assert all(np.isfinite(f.value) and f.n == 2 for f in result.figures.values())
    assert (path / f"plots/curve-{which}-0.svg").is_file()
    assert (path / f"plots/rounds-{which}-0.svg").is_file()
    said = [json.loads(line)["what"] for line in (path / "rounds.jsonl").read_text().splitlines()]
    assert {"count", "view_moments", "image_moments", "image_scores", "game 2"} < set(said)


def test_enough_rows_beat_direct_regression(tmp_path: Path) -> None:
    _, result = run(
        tmp_path, "data.source=images_z", "data.rows=4000", "images.rounds=10",
        "games.fedoadam.rounds=1",
    )  # fmt: skip
    assert result.figures["mse.features"].value < 0.5 * result.baselines["mse.direct"].value


class KilledError(Exception):
    pass


def test_a_run_killed_while_networks_learn_resumes_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, unbroken = run(tmp_path / "a")
    averaged = analyse._averaged

    def dying(number: int, *rest: Any) -> Any:
        if number == 7:
            raise KilledError("killed in round 7")
        return averaged(number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(analyse, "_averaged", dying)
        with pytest.raises(CorymbError, match="killed in round 7"):
            run(tmp_path / "b")
    (path,) = (tmp_path / "b").iterdir()
    resumed = resume(path).result
    for name, figure in unbroken.figures.items():
        assert resumed.figures[name].value == figure.value


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("partition.by=instrument", "images have no columns to partition by"),
        ("model=linear", "images need model 'curve'"),
        ("check.source=abs", "a check goes with real data"),
        ("privacy.secure=true", "privacy covers columns with bounds, not images"),
    ],
)
def test_settings_that_images_do_not_have_are_refused(changed: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(None, recipe="fedgmm", preset="images", sets=[changed])


def test_a_folder_without_images_says_what_it_looked_for(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="train-images-idx3-ubyte"):
        run(tmp_path / "runs", f"data.path={empty}")
