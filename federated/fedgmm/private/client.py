"""A client's part in a secure sum: a pair of keys, then its bounded moments under masks.

The private key stays in the client's own state, which Flower keeps between messages and never
sends. Only a total over all clients of the round can be read by the server.
"""

from collections.abc import Callable
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from cluster.errors import UsageError
from federated.federation import pack, unpack
from federated.fedgmm.images.rows import ImageRows
from federated.fedgmm.private.design import PrivateDesign, second_moments
from federated.fedgmm.rows import Rows
from federated.masking import Codec, client_keys, mask, noise_share
from federated.streams import stream

OpenRows = Callable[[Context, str], tuple[Rows | ImageRows, str]]

STATE = "secure_sum"
"""Record of the client's state that holds its keys."""


def keys(message: Message, context: Context) -> Message:
    """Make a fresh pair of keys, keep the private one and return the public one, in hex."""
    private, public = client_keys()
    context.state[STATE] = ConfigRecord({"private": private, "public": public})
    return Message(pack({}, {"public": public.hex()}), reply_to=message)


def masked(
    open_rows: Callable[[Context, str], tuple[Rows | ImageRows, str]],
    message: Message,
    context: Context,
) -> Message:
    """Return the client's encoded moments with its share of the noise, masked, (d (d + 1) / 2,).

    Settings: `private_design`; `codec`; `peers`, public keys in hex by name, this client's among
    them; `nonce` in hex; `noise` with `seed`, `attempt`, `sigma` (in steps) and `quorum`.
    """
    _, settings = unpack(message.content)
    deal = str(message.content.config_records["deal"]["name"])
    if STATE not in context.state:
        raise UsageError("This client has no keys; the server must ask for them first.")
    own = context.state.config_records[STATE]
    public, private = bytes(own["public"]), bytes(own["private"])  # type: ignore[arg-type]
    peers = {name: bytes.fromhex(key) for name, key in settings["peers"].items()}
    me = next((name for name, key in peers.items() if key == public), "unknown")
    rows, _ = open_rows(context, deal)
    design = PrivateDesign.unpack({}, settings)
    encoded = Codec(**settings["codec"]).encode(second_moments(rows.scalars, design), len(peers))
    encoded += _noise(settings["noise"], len(encoded), deal, context)
    vector = mask(encoded, private, peers, me, bytes.fromhex(settings["nonce"]))
    arrays, said = ArrayRecord({"masked": Array(vector)}), ConfigRecord({"json": "{}"})
    content = RecordDict({"arrays": arrays, "settings": said})
    return Message(content, reply_to=message)


def _noise(noise: dict[str, Any], size: int, deal: str, context: Context) -> Any:
    """This client's share; of a stream of its own for each round, so that a run can repeat."""
    partition = int(context.node_config["partition-id"])
    rng = stream(noise["seed"], "privacy noise", deal, partition, noise["attempt"])
    return noise_share(size, noise["sigma"], noise["quorum"], rng)
