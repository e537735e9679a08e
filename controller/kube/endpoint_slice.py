"""Points a Service without a selector at this pod, by one EndpointSlice of ours.

No write of a former leader can take the Service from its successor, and no term number is needed for that: the slice is
read first, then the gate is asked, then the slice is written under the version that was read. A successor that has
written since then makes the write fail; one that has not will write after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from controller.errors import ClusterError, ConflictError, NotFoundError, NotLeaderError, SchedulerError
from controller.kube.api import KubeApi, find
from controller.kube.resources import ENDPOINT_SLICES
from controller.settings import ProcessSettings

MANAGED_BY: Final = "longhorn-scheduler-extender"
_TRIES: Final = 5
_CLEAR_TRIES: Final = 3
_CLEAR_SECONDS: Final = 1.0  # for each call: a process that ends has ten seconds for everything

log = logging.getLogger(__name__)


class Endpoint(Protocol):
    """Whom callers of a Service reach. Both raise ClusterError, `point_here` also NotLeaderError."""

    def point_here(self) -> None: ...
    def clear(self) -> None: ...


def clear_at_end(endpoint: Endpoint) -> None:
    """Clears it; a failure does not keep the process from its end. It is no warning: in an uninstallation the rights go
    before the process, and otherwise the next leader writes the slice."""
    try:
        endpoint.clear()
    except SchedulerError as error:
        log.info("EndpointSlice: %s", error)


class EndpointSlices:
    """Writes the slice `<service>` in one namespace, under its resource version. Threads: one at a time. I/O: yes."""

    def __init__(self, api: KubeApi, namespace: str, *, is_leading: Callable[[], bool]) -> None:
        self._api, self._namespace, self._is_leading = api, namespace, is_leading

    def point_at(
        self, service: str, address: str, ports: Mapping[str, int], *, node_name: str = "", pod_name: str = ""
    ) -> None:
        """Makes `address` the Service's only endpoint, ready. ClusterError when it cannot be written, NotLeaderError
        when the term has ended meanwhile."""
        endpoint: dict[str, Any] = {"addresses": [address], "conditions": {"ready": True}}
        if node_name:
            endpoint["nodeName"] = node_name
        if pod_name:
            endpoint["targetRef"] = {"kind": "Pod", "namespace": self._namespace, "name": pod_name}
        listed = [{"name": name, "port": port, "protocol": "TCP"} for name, port in sorted(ports.items())]
        labels = {"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": MANAGED_BY}
        family = "IPv6" if ":" in address else "IPv4"
        new: dict[str, Any] = {
            "apiVersion": ENDPOINT_SLICES.api_version,
            "kind": ENDPOINT_SLICES.kind,
            "addressType": family,
        }

        def write() -> None:
            raw = find(self._api, ENDPOINT_SLICES, self._namespace, service)
            if not self._is_leading():
                raise NotLeaderError(f"this process no longer leads: Service {service} stays as it is")
            if raw is not None and raw.get("addressType") != family:
                uid = raw["metadata"].get("uid", "")
                self._api.delete(ENDPOINT_SLICES, self._namespace, service, uid=uid)  # the family cannot be changed
                raw = None
            known: dict[str, Any] = (raw or {}).get("metadata") or {"name": service, "namespace": self._namespace}
            meta = {**known, "labels": {**(known.get("labels") or {}), **labels}}
            body = {**(raw or new), "metadata": meta, "endpoints": [endpoint], "ports": listed}
            if raw is None:
                self._api.create(ENDPOINT_SLICES, self._namespace, body)
            else:
                self._api.replace(ENDPOINT_SLICES, self._namespace, service, body)

        _retry_conflicts(write)

    def clear(self, service: str, address: str) -> None:
        """Takes all endpoints away if `address` is among them: a new leader's is left alone. Tries more than once,
        since a process that ends has no later round for it. ClusterError when it cannot be written."""

        def write() -> None:
            raw = find(self._api, ENDPOINT_SLICES, self._namespace, service, timeout=_CLEAR_SECONDS)
            if raw is not None and address in _addresses(raw):
                body = {**raw, "endpoints": []}
                self._api.replace(ENDPOINT_SLICES, self._namespace, service, body, timeout=_CLEAR_SECONDS)

        for tries_left in reversed(range(_CLEAR_TRIES)):
            try:
                _retry_conflicts(write)
                return
            except ClusterError:
                if not tries_left:
                    raise


class PodEndpoint:
    """One Service, which points at this pod or at none."""

    def __init__(
        self, slices: EndpointSlices, settings: ProcessSettings, service: str, ports: Mapping[str, int]
    ) -> None:
        """`settings` say which pod this is. `ports`: those of the Service by name, as the pod listens."""
        self._slices, self._settings, self._service, self._ports = slices, settings, service, ports

    def point_here(self) -> None:
        settings = self._settings
        self._slices.point_at(
            self._service, settings.pod_ip, self._ports, node_name=settings.node_name, pod_name=settings.pod_name
        )

    def clear(self) -> None:
        self._slices.clear(self._service, self._settings.pod_ip)


def _addresses(raw: Mapping[str, Any]) -> list[str]:
    return [address for endpoint in raw.get("endpoints") or [] for address in endpoint.get("addresses") or []]


def _retry_conflicts(write: Callable[[], None]) -> None:
    """Calls `write`, which reads first, again if somebody else has written in between."""
    for attempt in range(_TRIES):
        try:
            write()
        except (ConflictError, NotFoundError):
            if attempt == _TRIES - 1:
                raise
        else:
            return
