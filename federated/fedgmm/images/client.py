"""What a client with images does: learn to predict views, and sum moments of what it learnt."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from federated.federation import pack, unpack
from federated.fedgmm import bases
from federated.fedgmm.client_app import OpenRows, deal_of, make_client_app, partition_of, player
from federated.fedgmm.design import Arrays, Scale
from federated.fedgmm.images.convnet import ConvNetwork
from federated.fedgmm.images.files import Pixels
from federated.fedgmm.images.rows import ImageRows
from federated.fedgmm.images.supervised import local_fit, one_thread
from federated.fedgmm.images.views import View, raw_columns
from federated.fedgmm.rows import Floats
from federated.hosting import CohortApp
from federated.streams import stream

AT_ONCE = 2048
"""Images that pass through a network together."""

Settings = Mapping[str, Any]


def make_image_app(open_rows: OpenRows, cohorts: bool = True) -> CohortApp:
    """Return the app of a client whose rows hold images."""
    app = make_client_app(open_rows, cohorts)
    app.train("views")(partial(learn, open_rows))
    app.query("images")(partial(image_statistic, open_rows))
    return app


def learn(open_rows: OpenRows, message: Message, context: Context) -> Message:
    """Fit the network to this client's rows for some epochs, from the global parameters."""
    arrays, settings = unpack(message.content)
    rows, _ = open_rows(context, deal_of(message))
    assert isinstance(rows, ImageRows)
    images, targets = _task(rows, settings)
    network = player(settings["network"])
    assert isinstance(network, ConvNetwork)
    flat = local_fit(
        network,
        torch.from_numpy(arrays["flat"].copy()).to(torch.float32),
        images,
        targets,
        settings["epochs"],
        settings["batch"],
        settings["lr"],
        stream(
            settings["seed"], "views", settings["role"], settings["round"], partition_of(context)
        ),
        settings["weight_decay"],
    )
    reached = ArrayRecord({"flat": Array(flat.numpy().astype(np.float64))})
    metrics = MetricRecord({"num-examples": float(len(rows))})
    return Message(RecordDict({"arrays": reached, "metrics": metrics}), reply_to=message)


def _task(rows: ImageRows, settings: Settings) -> tuple[Pixels, Floats]:
    """Images of one variable, and as targets the outcome and the view of the other one."""
    numbers = Scale.from_json(settings["scale"]).apply(rows.scalars)
    shown, other = (rows.x, rows.z) if settings["role"] == "x" else (rows.z, rows.x)
    scalars = numbers.z if settings["role"] == "x" else numbers.x
    view = View.from_json(settings["view"])
    seen = other if other.dtype == np.uint8 else scalars
    return np.asarray(shown, np.uint8), np.column_stack([numbers.y, view.columns(seen)])


def image_statistic(open_rows: OpenRows, message: Message, context: Context) -> Message:
    """Compute one sum over the client's rows."""
    arrays, settings = unpack(message.content)
    rows, _ = open_rows(context, deal_of(message))
    assert isinstance(rows, ImageRows)
    with one_thread():
        sums = STATISTICS[settings["statistic"]](rows, arrays, settings)
    return Message(pack(sums, {}), reply_to=message)


def view_moments(rows: ImageRows, _: Arrays, settings: Settings) -> dict[str, Floats]:
    """Total (d,) and second moments (d, d) of the raw columns of one variable's view."""
    numbers = Scale.from_json(settings["scale"]).apply(rows.scalars)
    shown = getattr(rows, settings["variable"])
    seen = shown if shown.dtype == np.uint8 else getattr(numbers, settings["variable"])
    raw = raw_columns(seen)
    return {"n": np.array([float(len(rows))]), "total": raw.sum(axis=0), "squares": raw.T @ raw}


def image_moments(rows: ImageRows, arrays: Arrays, settings: Settings) -> dict[str, Floats]:
    """Second moments of y, A and B, as `statistics.moments` for tables."""
    y, a, b = image_columns(rows, arrays, settings)
    return {
        "n": np.array([float(len(y))]),
        "yy": np.array([y @ y]),
        "ay": a.T @ y,
        "aa": a.T @ a,
        "by": b.T @ y,
        "ba": b.T @ a,
        "bb": b.T @ b,
    }


def image_scores(rows: ImageRows, arrays: Arrays, settings: Settings) -> dict[str, Floats]:
    """Sum of b b' e^2 at the coefficients `theta`, and of e^2."""
    y, a, b = image_columns(rows, arrays, settings)
    residual = y - a @ arrays["theta"]
    scores = b * residual[:, None]
    return {"omega": scores.T @ scores, "ee": np.array([residual @ residual])}


Statistic = Callable[[ImageRows, Arrays, Settings], dict[str, Floats]]

STATISTICS: Mapping[str, Statistic] = {
    "view_moments": view_moments,
    "image_moments": image_moments,
    "image_scores": image_scores,
}


def image_columns(
    rows: ImageRows, arrays: Arrays, settings: Settings
) -> tuple[Floats, Floats, Floats]:
    """y (n,), A (n, k) and B (n, m): of images, what the networks predict; of numbers, splines."""
    numbers = Scale.from_json(settings["scale"]).apply(rows.scalars)
    a = treatment_columns(rows.x, numbers.x, arrays, settings)
    if rows.z.dtype == np.uint8:
        return numbers.y, a, predicted("z", np.asarray(rows.z, np.uint8), arrays, settings)
    first, *rest = (bases.spline(column, settings["splines_z"]) for column in numbers.z.T)
    return numbers.y, a, np.column_stack([first, *(other[:, 1:] for other in rest)])


def treatment_columns(
    shown: Floats | Pixels, standardised: Floats, arrays: Arrays, settings: Settings
) -> Floats:
    """The columns A of treatments: images, or standardised numbers (n, 1)."""
    if shown.dtype == np.uint8:
        return predicted("x", np.asarray(shown, np.uint8), arrays, settings)
    return bases.spline(standardised[:, 0], settings["splines_x"])


def predicted(role: str, images: Pixels, arrays: Arrays, settings: Settings) -> Floats:
    """A constant and the outputs of the network of this role, (n, 1 + outputs)."""
    network = player(settings["networks"][role])
    flat = torch.from_numpy(np.array(arrays[f"flat_{role}"])).to(torch.float32)
    with torch.no_grad():
        outputs = [
            network(flat, torch.from_numpy(images[i : i + AT_ONCE])).double().numpy()
            for i in range(0, len(images), AT_ONCE)
        ]
    return np.column_stack([np.ones(len(images)), np.concatenate(outputs)])
