"""The process that plays kube-proxy and cluster DNS for one cluster.

`python -m tests.cluster.service_proxy STATE_FOLDER KUBECONFIG` follows Services and EndpointSlices and gives every
Service a loopback address of its own; kube-apiserver reaches their ClusterIPs through `egress.py`. `services.py` is how
to talk to it. It runs apart, so that a busy test never slows the connections that it measures.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.cluster import dns, egress
from tests.cluster.client import ApiClient, Object
from tests.cluster.control import ControlServer
from tests.cluster.endpoints import SERVICE_LABEL, EndpointTarget, targets, tcp_ports
from tests.cluster.forwarder import Listener
from tests.cluster.watch import Reflector, key_of

logger = logging.getLogger("service-proxy")

SOCKET = "services.sock"
DNS_PORT = 10053
FIRST_NET, NETS = 64, 128  # 127.64.0.0/16 to 127.191.0.0/16: one for each cluster
FALLBACK_HOST = "127.0.0.1"
T = TypeVar("T")
Key = tuple[str, str]  # namespace, name


def claim_net() -> tuple[str, socket.socket] | None:
    """A /16 of 127.0.0.0/8 for this cluster alone, as its first two numbers, and the DNS socket in it.

    The bound socket is the claim: the kernel gives it to one process and takes it back at its end. None where only
    127.0.0.1 can be used.
    """
    for number in range(FIRST_NET, FIRST_NET + NETS):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.bind((f"127.{number}.0.2", DNS_PORT))
        except OSError as error:
            sock.close()
            if isinstance(error, PermissionError) or error.errno != 98:  # 98: in use, the next one may be free
                return None
        else:
            sock.setblocking(False)
            return f"127.{number}", sock
    return None


class Table:
    """Services, their slices and where pods really listen. Threads: the event loop's alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, net: str | None) -> None:
        self._loop, self._net = loop, net
        self._services: dict[Key, Object] = {}
        self._slices: dict[Key, dict[str, Object]] = {}
        self._pods: dict[EndpointTarget, int] = {}
        self._hosts: dict[Key, str] = {}
        self._listeners: dict[tuple[Key, int], Listener] = {}

    def on_service(self, kind: str, service: Object) -> None:
        key = (service["metadata"]["namespace"], service["metadata"]["name"])
        if kind == "DELETED":
            self._services.pop(key, None)
        else:
            self._services[key] = service
        self._apply(key)

    def on_slice(self, kind: str, piece: Object) -> None:
        meta = piece["metadata"]
        service = (meta.get("labels") or {}).get(SERVICE_LABEL)
        if service is None:
            return
        pieces = self._slices.setdefault((meta["namespace"], service), {})
        if kind == "DELETED":
            pieces.pop(key_of(piece), None)
        else:
            pieces[key_of(piece)] = piece
        self._apply((meta["namespace"], service))

    def map_pod(self, ip: str, port: int, loopback_port: int) -> None:
        self._pods[EndpointTarget(ip, port)] = loopback_port

    def unmap_pod(self, ip: str) -> None:
        for target in [target for target in self._pods if target.ip == ip]:
            del self._pods[target]

    def host(self, key: Key) -> str:
        """The loopback address of a Service, for ever the same, whether the Service exists yet or not."""
        if self._net is None:
            return FALLBACK_HOST
        if key not in self._hosts:
            number = len(self._hosts) + 256
            self._hosts[key] = f"{self._net}.{number // 256}.{number % 256}"
        return self._hosts[key]

    def address(self, namespace: str, name: str, port: int | str) -> tuple[str, int]:
        """Where a port, by number or by name, is reached. Raises ValueError for a name that the Service lacks."""
        if isinstance(port, str):
            ports = tcp_ports(self._services.get((namespace, name), {}))
            if port not in ports:
                raise ValueError(f"Service {namespace}/{name} has no TCP port {port!r}, or does not exist yet")
            port = ports[port]
        return self._listener((namespace, name), port).address

    def endpoints(self, namespace: str, name: str, port: int) -> list[tuple[str, int]]:
        listener = self._listeners.get(((namespace, name), port))
        return [(target.ip, target.port) for target in listener.targets] if listener is not None else []

    def at_cluster_ip(self, ip: str, port: int) -> Listener | None:
        """The Service with that ClusterIP, if it has that port."""
        for key, service in self._services.items():
            if service.get("spec", {}).get("clusterIP") == ip and port in tcp_ports(service).values():
                return self._listener(key, port)
        return None

    def resolve(self, namespace: str, name: str) -> str | None:
        return self.host((namespace, name)) if (namespace, name) in self._services else None

    def _apply(self, key: Key) -> None:
        service = self._services.get(key)
        ports = tcp_ports(service) if service is not None else {}
        wanted = {number: targets(self._slices.get(key, {}).values(), name) for name, number in ports.items()}
        for number, found in wanted.items():
            listener = self._listener(key, number)
            if listener.targets != found:
                listener.set_targets(found)
        for (other, number), listener in self._listeners.items():
            if other == key and number not in wanted:
                listener.set_targets([])

    def _listener(self, key: Key, port: int) -> Listener:
        if (key, port) not in self._listeners:
            host = self.host(key)
            try:
                listener = Listener(self._loop, host, port if self._net else 0, self._pods.get)
            except PermissionError:  # a port below 1024, and we are not root
                listener = Listener(self._loop, host, 0, self._pods.get)
            self._listeners[key, port] = listener
        return self._listeners[key, port]


class DnsProtocol(asyncio.DatagramProtocol):
    def __init__(self, resolve: dns.Resolve) -> None:
        self._resolve = resolve
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own transport for datagrams is no subclass of the class it documents.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        reply = dns.answer(data, self._resolve)
        if reply is not None and self._transport is not None:
            self._transport.sendto(reply, addr)


class Proxy:
    """Ties the table to the API server on one side and to its callers on the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, table: Table, dns_address: str | None) -> None:
        self._loop, self._table, self._dns_address = loop, table, dns_address
        self._reflectors: list[Reflector] = []

    def follow(self, api: ApiClient) -> None:
        for path, listener in (
            ("/api/v1/services", self._table.on_service),
            ("/apis/discovery.k8s.io/v1/endpointslices", self._table.on_slice),
        ):
            self._reflectors.append(Reflector(api, path, self._in_loop(listener)))

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """One control request, to the table but for `info`; runs in the caller's thread and works in the loop's."""
        if request["op"] == "info":
            synced = all(reflector.synced.is_set() for reflector in self._reflectors)
            return {"dns": self._dns_address, "ready": synced}
        return {"result": self._call(lambda: getattr(self._table, request["op"])(*request["args"]))}

    def _in_loop(self, listener: Callable[[str, Object], None]) -> Callable[[str, Object], None]:
        return lambda kind, obj: self._call(lambda: listener(kind, obj))

    def _call(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)


async def serve(folder: Path, kubeconfig: Path) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    claim = claim_net()
    table = Table(loop, claim[0] if claim else None)
    dns_address = None
    if claim is not None:
        await loop.create_datagram_endpoint(lambda: DnsProtocol(table.resolve), sock=claim[1])
        dns_address = f"{claim[0]}.0.2:{DNS_PORT}"
    way_in = await egress.serve(folder / egress.SOCKET, table.at_cluster_ip)
    proxy = Proxy(loop, table, dns_address)
    proxy.follow(ApiClient.from_kubeconfig(kubeconfig, user_agent="service-proxy"))
    ControlServer(folder / SOCKET, proxy.handle).start()
    logger.info("serving; dns %s", dns_address)
    await stop.wait()
    way_in.close()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    threading.current_thread().name = "loop"
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))


if __name__ == "__main__":
    main()
