"""A way to a port of a pod through the API server, as `kubectl port-forward` has it."""

from __future__ import annotations

import json
import re
import socket
from typing import Final, cast

from kubernetes import client
from kubernetes.stream import portforward

from controller.errors import ClusterError, ForbiddenError, NotFoundError, UnavailableError
from controller.kube.api import ClientKubeApi

_STATUS: Final = re.compile(r"Handshake status (\d{3})")
_MESSAGE: Final = re.compile(r'"message":("(?:[^"\\]|\\.)*")')
_KINDS: Final[dict[int, type[ClusterError]]] = {403: ForbiddenError, 404: NotFoundError}


def forwarded(api: ClientKubeApi, namespace: str, pod: str, port: int) -> socket.socket:
    """A connection to the port on the pod's loopback. ClusterError where the API server or the kubelet refuses it.

    Threads: the library has one for each connection; it ends with it. Blocks: until the API server agrees.
    """
    connection = client.CoreV1Api(client.ApiClient(api.configuration))  # of its own: the library changes it meanwhile
    connect = connection.connect_get_namespaced_pod_portforward
    try:
        forward = portforward(connect, pod, namespace, ports=str(port))
    except client.ApiException as error:
        raise _refusal(str(error.reason)) from error
    except OSError as error:
        raise UnavailableError(f"port-forward to pod {namespace}/{pod}: {error.strerror or error}") from error
    return cast("socket.socket", forward.socket(port))


def _refusal(reason: str) -> ClusterError:
    status, message = _STATUS.search(reason), _MESSAGE.search(reason.replace("\\\\", "\\"))
    text = json.loads(message[1]) if message else reason.partition(" -+-+- ")[0]
    kind = _KINDS.get(int(status[1]), UnavailableError) if status else UnavailableError
    return kind(f"{status[1]}: {text}" if status else text)
