"""The canary: a pod about which kube-scheduler has to ask the extender, and that never runs.

It requests only the extender's resource, tolerates everything, and meets the `restricted` Pod Security Standard. The
extender refuses it on every node; if it were placed all the same, no image would be pulled and no container would
start. Its name follows from the scheduler's name, so that there is never more than one, whoever makes it. Its label
distinguishes it from another pod of that name.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.errors import ClusterError, ConflictError, MalformedRequestError, NotFoundError
from controller.kube.api import KubeApi, Raw, find
from controller.kube.resources import LEASES, PODS
from controller.model.names import CANARY_LABEL, EXTENDER_RESOURCE
from controller.model.reader import mapping_at, why_false_at
from controller.model.workload import Pod, pod_facts

NAME_PREFIX: Final = "longhorn-scheduler-extender-canary-"
PRIORITY_CLASS: Final = "longhorn-scheduler-extender-canary"
CALL_SECONDS: Final = 5.0
_PLAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_NEVER_PULLED: Final = "longhorn-scheduler-extender-canary:never-pulled"
# What the `restricted` Pod Security Standard asks of a pod, and of a container. No user, since nothing runs: OpenShift
# gives each namespace users of its own, and refuses others.
POD_SECURITY: Final = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def dry_run_pod(name: str, namespace: str, metadata: Raw, spec: Raw) -> Raw:
    """A pod for a dry run, which meets the `restricted` Pod Security Standard. `metadata` and `spec`: what it has
    besides."""
    container = {"name": "check", "image": f"{name}:never-pulled", "securityContext": CONTAINER_SECURITY}
    common = {"automountServiceAccountToken": False, "securityContext": POD_SECURITY, "containers": [container]}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {**common, **spec},
    }


def canary_name(scheduler: str) -> str:
    """The name of that scheduler's canary: with the scheduler's name if that is a short label, else with its digest."""
    is_plain = _PLAIN.fullmatch(scheduler) is not None
    return NAME_PREFIX + (scheduler if is_plain else hashlib.sha256(scheduler.encode()).hexdigest()[:16])


def canary_body(scheduler: str, namespace: str, owner: Mapping[str, str]) -> Raw:
    """The pod. `owner`: the ownerReference of our Lease, with which the pod is deleted."""
    asked = {EXTENDER_RESOURCE: "1"}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": canary_name(scheduler),
            "namespace": namespace,
            "labels": {CANARY_LABEL: "true"},
            "ownerReferences": [dict(owner)],
        },
        "spec": {
            "schedulerName": scheduler,
            # With this class, no pod is evicted for it, even where nodes can take few pods.
            "priorityClassName": PRIORITY_CLASS,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "securityContext": POD_SECURITY,
            "containers": [
                {
                    "name": "canary",
                    "image": _NEVER_PULLED,
                    "imagePullPolicy": "Never",
                    "resources": {"requests": asked, "limits": asked},
                    "securityContext": CONTAINER_SECURITY,
                }
            ],
        },
    }


class Canaries:
    """Canary pods at the API server. Threads: one at a time. I/O: one to four calls each; all raise ClusterError."""

    def __init__(self, api: KubeApi, namespace: str, lease: str) -> None:
        self._api, self._namespace, self._lease = api, namespace, lease

    def create(self, scheduler: str, may_write: Callable[[], bool]) -> str:
        """Create the scheduler's canary, and return its uid. One that was left behind is deleted first."""
        body = canary_body(scheduler, self._namespace, self._owner())
        try:
            return self._create(body, may_write)
        except ConflictError:
            self._remove_leftover(body["metadata"]["name"])
            return self._create(body, may_write)

    def _create(self, body: Raw, may_write: Callable[[], bool]) -> str:
        if not may_write():  # the fence: nothing is written outside a term
            raise ClusterError("this process no longer leads")
        return _uid(self._api.create(PODS, self._namespace, body, timeout=CALL_SECONDS))

    def _owner(self) -> dict[str, str]:
        lease = self._api.get(LEASES, self._namespace, self._lease, timeout=CALL_SECONDS)
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "name": self._lease, "uid": _uid(lease)}

    def _remove_leftover(self, name: str) -> None:
        raw = find(self._api, PODS, self._namespace, name, timeout=CALL_SECONDS)
        if raw is None:
            return
        if not _is_canary(raw):
            raise ClusterError(f"pod {self._namespace}/{name} exists, but is not a canary of this leader; delete it")
        self.remove(name, _uid(raw))

    def read(self, scheduler: str) -> tuple[Pod | None, str]:
        """The scheduler's canary, None if it does not exist, and kube-scheduler's message about it."""
        raw = find(self._api, PODS, self._namespace, canary_name(scheduler), timeout=CALL_SECONDS)
        if raw is None:
            return None, ""
        try:
            status = mapping_at(raw, "", "status")
            return pod_facts(raw), why_false_at(status, "status", "PodScheduled", "message")
        except MalformedRequestError as error:
            raise ClusterError(f"the canary pod cannot be read: {error}") from error

    def remove(self, name: str, uid: str) -> None:
        """Delete the pod at once if it still has that uid. Like every unbound pod, it has no grace period."""
        with contextlib.suppress(NotFoundError, ConflictError):
            self._api.delete(PODS, self._namespace, name, uid=uid)

    def leftovers(self) -> list[tuple[str, str]]:
        """Name and uid of every canary that exists, including those of former leaders and of schedulers that are no
        longer named."""
        page = self._api.list_page(PODS, self._namespace, labelSelector=f"{CANARY_LABEL}=true")
        return [(str(raw["metadata"]["name"]), _uid(raw)) for raw in page.items if _is_canary(raw)]


def _uid(raw: Mapping[str, Any]) -> str:
    return str(raw["metadata"].get("uid", ""))


def _is_canary(raw: Mapping[str, Any]) -> bool:
    metadata = raw["metadata"]
    labelled = (metadata.get("labels") or {}).get(CANARY_LABEL) == "true"
    return labelled and str(metadata.get("name", "")).startswith(NAME_PREFIX)
