"""Asking the control service (GCS) of a Ray cluster whether it lives and lets us in.

`ray.init` goes on trying for minutes where nothing, or something other than Ray, answers. This asks
once, with a time limit and with the token that Ray itself would send.
"""

from importlib import import_module

from cluster.errors import ClusterUnreachableError, UsageError

ANSWER_SECONDS = 10.0
"""How long a cluster may take to answer before it counts as unreachable."""

_START = "start one, or drop --address and RAY_ADDRESS to run on this machine"
_TOKEN = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the cluster's token file"


def forget_authentication() -> None:
    """Have Ray read the authentication variables again.

    Ray keeps what it first read, so a session after another one, or after an `import ray`, would
    otherwise use a mode and a token that are no longer meant.
    """
    raylet = import_module("ray._raylet")  # its type stub lacks both of these
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    raylet.Config.initialize("")


def knock(address: str, seconds: float | None = None) -> str:
    """Return HOST:PORT of the cluster at `address` once it has answered.

    Parameters
    ----------
    address : HOST:PORT, or "auto" for the cluster that `ray start` began on this machine.
    seconds : time limit of the answer, ANSWER_SECONDS without it; looking up a host's name comes
        on top.

    Raises
    ------
    ClusterUnreachableError
        Nothing answers in time, or the cluster refuses the token (or the lack of one).
    UsageError
        The address is not of this form.
    """
    import grpc
    from ray._private.gcs_utils import create_gcs_channel
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc
    from ray.exceptions import AuthenticationError

    target = _target(address)
    limit = ANSWER_SECONDS if seconds is None else seconds
    forget_authentication()
    try:
        with create_gcs_channel(target) as channel:
            nodes = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
            nodes.GetClusterId(gcs_service_pb2.GetClusterIdRequest(), timeout=limit)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            raise ClusterUnreachableError(
                f"The cluster at {address} refuses this run's token, or the lack of one; {_TOKEN}"
            ) from None
        raise ClusterUnreachableError(
            f"No cluster answers at {address} within {limit:g} s "
            f"({error.code().name.lower().replace('_', ' ')}); {_START}"
        ) from None
    except AuthenticationError:
        raise ClusterUnreachableError(
            f"RAY_AUTH_MODE asks for a token to join {address}, but there is none; {_TOKEN}"
        ) from None
    return target


def _target(address: str) -> str:
    from ray._private.services import canonicalize_bootstrap_address

    if "://" in address:
        raise UsageError(
            f"cluster.address {address}: expected HOST:PORT of the cluster's head (port 6379 "
            "unless it was started with another), on a machine of the cluster"
        )
    if address != "auto" and not address.rpartition(":")[2].isdigit():
        raise UsageError(f"cluster.address {address}: expected HOST:PORT, such as 10.0.0.1:6379")
    try:
        found: str | None = canonicalize_bootstrap_address(address)
    except OSError as error:
        raise ClusterUnreachableError(
            f"No cluster answers at {address} ({error.strerror or error}); {_START}"
        ) from None
    if found is None:
        raise ClusterUnreachableError(f"No Ray cluster runs on this machine; {_START}")
    return found
