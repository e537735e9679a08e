"""Talk to a cluster's Service proxy."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.control import call
from tests.cluster.service_proxy import SOCKET


class ServiceProxy:
    """How Services are reached from this machine, and where made-up pod addresses really lead.

    Threads: any. Every call is one short exchange with the proxy's process; ControlError when it is gone.
    """

    def __init__(self, folder: Path) -> None:
        self._socket = folder / SOCKET
        self._dns: str | None = None

    def map_pod(self, ip: str, port: int, loopback_port: int) -> None:
        """From now on connections to endpoint `ip`:`port` go to 127.0.0.1:`loopback_port`."""
        call(self._socket, {"op": "map_pod", "ip": ip, "port": port, "loopback_port": loopback_port})

    def unmap_pod(self, ip: str) -> None:
        """New connections to any port of `ip` are reset; open ones stay."""
        call(self._socket, {"op": "unmap_pod", "ip": ip})

    def address(self, namespace: str, name: str, port: int | str) -> tuple[str, int]:
        """Host and port where a client on the host network reaches that Service.

        Waits for nothing: the Service need not exist yet (unless `port` is a port's name), and the pair never changes.
        """
        answer = call(self._socket, {"op": "address", "namespace": namespace, "name": name, "port": port})
        return str(answer["host"]), int(answer["port"])

    def endpoints(self, namespace: str, name: str, port: int) -> list[tuple[str, int]]:
        """Where the proxy sends new connections right now; empty means that they are refused."""
        answer = call(self._socket, {"op": "endpoints", "namespace": namespace, "name": name, "port": port})
        return [(str(ip), int(number)) for ip, number in answer["endpoints"]]

    @property
    def dns(self) -> str | None:
        """`host:port` of the DNS server that knows the Services; None where the machine has only 127.0.0.1."""
        if self._dns is None:
            self._dns = call(self._socket, {"op": "info"})["dns"]
        return self._dns

    @property
    def synced(self) -> bool:
        """True while the proxy's view of Services and EndpointSlices is live."""
        return bool(call(self._socket, {"op": "info"})["ready"])
