"""Talk to a cluster's Service proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
        self._ask("map_pod", ip, port, loopback_port)

    def unmap_pod(self, ip: str) -> None:
        """New connections to any port of `ip` are reset; open ones stay."""
        self._ask("unmap_pod", ip)

    def address(self, namespace: str, name: str, port: int | str) -> tuple[str, int]:
        """Host and port where a client on the host network reaches that Service.

        Waits for nothing: the Service need not exist yet (unless `port` is a port's name), and the pair never changes.
        """
        host, number = self._ask("address", namespace, name, port)
        return host, number

    def endpoints(self, namespace: str, name: str, port: int) -> list[tuple[str, int]]:
        """Where the proxy sends new connections right now; empty means that they are refused."""
        return [(ip, number) for ip, number in self._ask("endpoints", namespace, name, port)]

    @property
    def dns(self) -> str | None:
        """`host:port` of the DNS server that knows the Services; None where the machine has only 127.0.0.1."""
        if self._dns is None:
            self._dns = call(self._socket, {"op": "info"})["dns"]
        return self._dns

    def _ask(self, op: str, *args: Any) -> Any:
        return call(self._socket, {"op": op, "args": args})["result"]
