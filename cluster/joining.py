"""Whether a Ray cluster answers at an address, and lets this process in, within bounded time."""

import socket

from cluster.errors import ClusterUnreachableError

CONNECT_SECONDS = 10.0
"""How long a cluster may take to answer before it counts as unreachable."""

RAY_DEFAULT_PORT = 6379


def reachable(address: str, seconds: float = CONNECT_SECONDS) -> None:
    """Raise ClusterUnreachableError unless a cluster answers at the address, and to this process.

    Ray itself would go on trying for minutes. "auto" is a cluster that runs on this machine, or the
    last that `ray start` began here, which need not live any more.
    """
    if address == "auto":
        reachable(_on_this_machine(), seconds)
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    target = (host or port, int(port) if host and port.isdigit() else RAY_DEFAULT_PORT)
    try:
        socket.create_connection(target, timeout=seconds).close()
        refusal = _greet(f"{target[0]}:{target[1]}", seconds, client=address.startswith("ray://"))
    except OSError as error:
        raise ClusterUnreachableError(
            f"No cluster answers at {address} ({error}); start one, or drop --address "
            "and RAY_ADDRESS to run on this machine"
        ) from None
    if refusal:
        raise ClusterUnreachableError(
            f"The cluster at {address} does not let this run join: {refusal}; set "
            "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with the cluster's token"
        )


def _on_this_machine() -> str:
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address("auto")
    except ConnectionError:
        found = None
    if found is None:
        raise ClusterUnreachableError(
            "No Ray cluster was started on this machine; start one with `ray start --head`, or "
            "drop --address and RAY_ADDRESS to run without"
        )
    return str(found)


def _greet(target: str, seconds: float, client: bool) -> str | None:
    """Ask a cluster for its id; return why it refuses to tell, None if it tells.

    `client` says that the address is one of Ray Client, which knows no ids: an answer is enough.
    Raises ConnectionError if what listens there is not Ray.
    """
    import grpc
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc
    from ray.exceptions import AuthenticationError

    channel = init_grpc_channel(target, [("grpc.enable_http_proxy", 0)])
    stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
    request = gcs_service_pb2.GetClusterIdRequest()
    try:
        stub.GetClusterId(request, timeout=seconds, wait_for_ready=True)
    except AuthenticationError:
        return "there is no token"
    except grpc.RpcError as error:
        code = error.code()
        if code == grpc.StatusCode.UNAUTHENTICATED:
            return "the token is missing or wrong"
        if not (client and code == grpc.StatusCode.UNIMPLEMENTED):
            raise ConnectionError(f"what listens there is not Ray, {code.name}") from None
    finally:
        channel.close()
    return None
