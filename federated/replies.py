"""Is a client's reply what the round asked for? Whatever is not is a failure of that client."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord, Message

Shapes = tuple[tuple[str, tuple[int, ...]], ...]

NOT_FINITE = "has NaN or infinite values"


def misfits(replies: Mapping[int, Message]) -> dict[int, str]:
    """The replies that cannot be averaged or summed with the others, by partition, and why.

    Clients of one round answer with the same arrays, so what most of them sent is what was asked
    for; among equally many, what the client with the lowest number sent. All of it must be finite.
    """
    shapes = {p: _shapes(reply) for p, reply in sorted(replies.items())}
    if not shapes:
        return {}
    usual = Counter(shapes.values()).most_common(1)[0][0]
    found = {p: _difference(shape, usual) for p, shape in shapes.items()}
    for partition, reply in replies.items():
        if not found[partition]:
            found[partition] = _not_finite(reply)
    return {p: why for p, why in found.items() if why}


def _shapes(reply: Message) -> Shapes:
    """Names and shapes of the arrays to be averaged, in their order."""
    record = reply.content.array_records.get("arrays") or ArrayRecord()
    return tuple((name, tuple(array.shape)) for name, array in record.items())


def _difference(shapes: Shapes, usual: Shapes) -> str:
    if shapes == usual:
        return ""
    mine, theirs = dict(shapes), dict(usual)
    for name, shape in theirs.items():
        if name not in mine:
            return f"its answer lacks the array '{name}'"
        if mine[name] != shape:
            return f"its array '{name}' has shape {mine[name]}, not {shape} like the others'"
    return f"its answer has an array that the others' have not: {min(mine.keys() - theirs)}"


def _not_finite(reply: Message) -> str:
    record = reply.content.array_records.get("arrays") or ArrayRecord()
    for name, array in record.items():
        values = array.numpy()
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return f"its array '{name}' {NOT_FINITE}"
    return ""
