"""One Lease under its resource version. The only place besides `certs` that writes wall-clock time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controller.clock import Clock
from controller.errors import ConflictError
from controller.kube.api import KubeApi, find
from controller.kube.resources import LEASES
from controller.model.names import SETTLED_ANNOTATION


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The contents of the Lease. `resource_version` "" means that it does not exist, `holder` "" that nobody holds
    it."""

    holder: str
    transitions: int
    duration_seconds: int
    resource_version: str
    renewed_utc: str = ""
    is_settled: bool = False  # its last holder let go of it, and left nothing behind that is not stored


ABSENT = LeaseRecord("", 0, 0, "")


class LeaseClient:
    """Reads and writes one Lease. Threads: one at a time. I/O: one call each, within `timeout` seconds.

    `leaves_nothing` is asked when the Lease is released: whether all that this process has admitted is visible in the
    cluster by now. An annotation with the number of that term tells the next holder.
    """

    def __init__(
        self, api: KubeApi, namespace: str, name: str, clock: Clock, leaves_nothing: Callable[[], bool] = lambda: False
    ) -> None:
        self._api, self._namespace, self._name, self._clock = api, namespace, name, clock
        self._leaves_nothing = leaves_nothing
        self._raw: dict[str, Any] | None = None

    def read(self, timeout: float) -> LeaseRecord:
        self._raw = find(self._api, LEASES, self._namespace, self._name, timeout=timeout)
        return _record(self._raw) if self._raw is not None else ABSENT

    def write(
        self,
        holder: str,
        duration_seconds: int,
        transitions: int,
        *,
        is_new_term: bool,
        timeout: float,
        is_settled: bool = False,
    ) -> LeaseRecord:
        """Writes over what was read last; ConflictError when somebody else wrote meanwhile."""
        now = _micro(self._clock.now_utc())
        old = dict((self._raw or {}).get("spec") or {})
        spec = {
            **old,
            "holderIdentity": holder,
            "leaseDurationSeconds": duration_seconds,
            "leaseTransitions": transitions,
            "renewTime": now,
        }
        if is_new_term or "acquireTime" not in spec:
            spec["acquireTime"] = now
        body: dict[str, Any] = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        if self._raw is None:
            self._raw = self._api.create(LEASES, self._namespace, body, timeout=timeout)
        else:
            annotations = dict(self._raw["metadata"].get("annotations") or {})
            if is_settled:
                annotations[SETTLED_ANNOTATION] = str(transitions)
            elif is_new_term:
                annotations.pop(SETTLED_ANNOTATION, None)  # of an earlier term, which may have had this number
            body["metadata"] = {**self._raw["metadata"], "annotations": annotations}
            self._raw = self._api.replace(LEASES, self._namespace, self._name, body, timeout=timeout)
        return _record(self._raw)

    def release(self, holder: str, timeout: float) -> None:
        """Lets go of the Lease if it is still `holder`'s, so that the next one need not wait."""
        record = self.read(timeout)
        if record.holder == holder:
            try:
                is_settled = self._leaves_nothing()
                self.write("", 1, record.transitions, is_new_term=False, timeout=timeout, is_settled=is_settled)
            except ConflictError:
                return  # somebody else has it already


def _record(raw: dict[str, Any]) -> LeaseRecord:
    spec, metadata = raw.get("spec") or {}, raw.get("metadata") or {}
    settled = (metadata.get("annotations") or {}).get(SETTLED_ANNOTATION)
    return LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        transitions=int(spec.get("leaseTransitions") or 0),
        duration_seconds=int(spec.get("leaseDurationSeconds") or 0),
        resource_version=str(metadata.get("resourceVersion", "")),
        renewed_utc=str(spec.get("renewTime") or ""),
        is_settled=settled == str(spec.get("leaseTransitions") or 0),
    )


def _micro(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
