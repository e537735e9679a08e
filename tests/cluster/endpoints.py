"""Which addresses serve a Service: the rule that kube-proxy follows, as pure functions on raw objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.cluster.client import Object

SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True, order=True)
class EndpointTarget:
    """One address that a connection can go to; both parts as the EndpointSlice says them."""

    ip: str
    port: int


def tcp_ports(service: Object) -> dict[str, int]:
    """Port name (empty for the nameless one) to number. Headless and external Services have none to listen on."""
    spec = service.get("spec", {})
    if spec.get("type") == "ExternalName" or spec.get("clusterIP") in (None, "", "None"):
        return {}
    ports = spec.get("ports") or []
    return {port.get("name") or "": int(port["port"]) for port in ports if port.get("protocol", "TCP") == "TCP"}


def targets(slices: Iterable[Object], port_name: str) -> list[EndpointTarget]:
    """The ready endpoints of a port; without any, those that still serve while they terminate. Sorted, no doubles."""
    ready: set[EndpointTarget] = set()
    terminating: set[EndpointTarget] = set()
    for piece in slices:
        if piece.get("addressType") != "IPv4":
            continue
        numbers = [
            int(port["port"])
            for port in piece.get("ports") or []
            if (port.get("name") or "") == port_name and port.get("protocol", "TCP") == "TCP" and port.get("port")
        ]
        for endpoint in piece.get("endpoints") or []:
            found = {EndpointTarget(endpoint["addresses"][0], number) for number in numbers}
            conditions = endpoint.get("conditions") or {}
            # A condition that is not set means yes, by the API's own words.
            if conditions.get("ready") is not False:
                ready |= found
            elif conditions.get("serving") is not False and conditions.get("terminating"):
                terminating |= found
    return sorted(ready or terminating)
