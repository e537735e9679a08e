"""How kube-apiserver reaches Services: it asks a proxy on a Unix socket for `CONNECT <ClusterIP>:<port>`.

That is its egress selector with the protocol HTTPConnect, which it uses for webhooks and aggregated APIs that name a
Service. It resolves the Service to its ClusterIP itself; what the address leads to is the Service proxy's to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster.forwarder import PIECE_BYTES, Listener, tie

logger = logging.getLogger(__name__)

SOCKET = "egress.sock"
HEAD_SECONDS = 10.0

ServiceAt = Callable[[str, int], Listener | None]  # the listener of an address and port, None where no Service has it


def configuration(folder: Path) -> dict[str, Any]:
    """The file that `--egress-selector-config-file` names. All else than the way into the cluster goes directly."""
    # A proxy on TCP without TLS settings is no way out: kube-apiserver 1.36.3 panics at start when it reads that.
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(folder / SOCKET)}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


async def serve(path: Path, service_at: ServiceAt) -> asyncio.Server:
    """Take CONNECT requests and tie each to a ready endpoint of the Service with that address."""
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(partial(_answer, service_at), path, limit=PIECE_BYTES)
    path.chmod(0o600)
    return server


async def _answer(service_at: ServiceAt, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            host, port = address_of(await reader.readuntil(b"\r\n\r\n"))
        listener = service_at(host, port)
        if listener is None or not listener.targets:
            raise LookupError(f"{host}:{port}: {'no such Service' if listener is None else 'no ready endpoint'}")
        back = await listener.connect()
    except (ValueError, LookupError, OSError, EOFError, asyncio.LimitOverrunError) as error:
        code = 503 if isinstance(error, LookupError) else 502 if isinstance(error, OSError) else 400
        logger.info("egress: %d %s", code, error)
        reason = str(error).replace("\r", " ").replace("\n", " ")
        answer = f"HTTP/1.1 {code} {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        writer.write(answer.encode("latin-1", "replace"))
        writer.close()
    else:
        writer.write(b"HTTP/1.1 200 Connection Established\r\n\r\n")
        await tie((reader, writer), back)


def address_of(head: bytes) -> tuple[str, int]:
    """Host and port of `CONNECT host:port HTTP/1.1`. Raises ValueError for every other request."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    host, _, port = rest.partition(" ")[0].rpartition(":")
    if method != "CONNECT" or not host or not port.isdecimal():
        raise ValueError(f"not a CONNECT request: {head[:80]!r}")
    return host.strip("[]"), int(port)
