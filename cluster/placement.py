"""Whether bundles of resources fit on nodes, and if not, what is lacking."""

from collections.abc import Mapping, Sequence


def unplaceable(
    bundles: Sequence[Mapping[str, float]], nodes: Sequence[Mapping[str, float]]
) -> str | None:
    """Say why the bundles cannot all be placed, each whole on one node; None if they can.

    The most demanding go first, each where it leaves least of what few nodes have. That finds a
    placement in all but contrived cases, and never claims one that does not exist.
    """
    free = [dict(node) for node in nodes]
    for bundle in sorted(bundles, key=_demand, reverse=True):
        room = [node for node in free if _fits(bundle, node)]
        if not room:
            return _lack(bundle, bundles, nodes)
        tightest = min(room, key=lambda node: _demand(_rest(node, bundle)))
        tightest.update(_rest(tightest, bundle))
    return None


def _demand(resources: Mapping[str, float]) -> tuple[float, float]:
    """Order by what few nodes have (GPUs, custom resources), then by CPUs."""
    common = ("CPU", "memory", "object_store_memory")
    rare = sum(
        amount
        for name, amount in resources.items()
        if name not in common and not name.startswith("node:")
    )
    return rare, resources.get("CPU", 0.0)


def _fits(bundle: Mapping[str, float], node: Mapping[str, float]) -> bool:
    # The margin covers sums of fractions; Ray itself counts in ten-thousandths.
    return all(node.get(name, 0.0) >= amount - 1e-6 for name, amount in bundle.items())


def _rest(node: Mapping[str, float], bundle: Mapping[str, float]) -> dict[str, float]:
    return {name: amount - bundle.get(name, 0.0) for name, amount in node.items()}


def _lack(
    bundle: Mapping[str, float],
    bundles: Sequence[Mapping[str, float]],
    nodes: Sequence[Mapping[str, float]],
) -> str:
    """Name what no node could hold even if empty, else the sum of all against the cluster's."""
    for name, amount in bundle.items():
        largest = max((node.get(name, 0.0) for node in nodes), default=0.0)
        if largest < amount:
            return f"The run needs {amount:g} {name} on one node; the largest node has {largest:g}"
    if not any(_fits(bundle, node) for node in nodes):
        different = (_amounts({name: node.get(name, 0.0) for name in bundle}) for node in nodes)
        have = ", or ".join(dict.fromkeys(different))
        return f"The run needs {_amounts(bundle)} on one node; the nodes have {have}"
    count = f"{len(nodes)} node" + "s" * (len(nodes) > 1)
    parts = []
    for name in sorted({key for b in bundles for key in b}):
        need = sum(b.get(name, 0.0) for b in bundles)
        have_all = sum(node.get(name, 0.0) for node in nodes)
        parts.append(f"{need:g} {name} (there are {have_all:g} on {count})")
    return "The run needs at the same time " + " and ".join(parts)


def _amounts(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in resources.items())
