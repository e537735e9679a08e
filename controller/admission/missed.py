"""Pods that the webhook has missed: by its rules they would have opted in, but they do not request the extender.

While the webhook cannot be reached, pods are created without it (`failurePolicy: Ignore`). Such a pod is placed
unchecked, and only a new pod corrects that. All pods are checked from time to time, so nothing has to be remembered
about any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.admission.reconciler import Contents
from controller.admission.stuck import EventNotes
from controller.clock import Clock
from controller.kube.recorder import Target
from controller.kube.store import Store
from controller.model.names import EXTENDER_RESOURCE
from controller.model.workload import Claim, Namespace, PersistentVolume, Pod, StorageClass, default_class
from controller.rules.opt_in import OptInPolicy, uses_longhorn

LOOK_SECONDS: Final = 10.0
LISTED: Final = 100  # workloads that the status page names
NAMED: Final = 5  # pods that an Event names
TOLD_AT_ONCE: Final = 100  # Events of one look; the others come with the next
REASON: Final = "LonghornPodsNotOptedIn"
TEXT: Final = (
    f"{{count}} with Longhorn volumes bypassed the webhook and {{do}} not request {EXTENDER_RESOURCE}, so no room is "
    "checked or held for {them}: {names}. Recreate the pods to have them opt in"
)


class MissedPods:
    """The missed pods found at the last look, by workload.

    Threads: `look` from one, the rest from any. Blocks: never. I/O: none; Events are the recorder's.
    """

    def __init__(self, clock: Clock, notes: EventNotes, stores: Mapping[str, Store[Any]]) -> None:
        """`stores` are those of the process, by kind, and that of namespaces."""
        self._clock, self._notes = clock, notes
        self._pods: Store[Pod] = stores["pod"]
        self._claims: Store[Claim] = stores["claim"]
        self._pvs: Store[PersistentVolume] = stores["pv"]
        self._classes: Store[StorageClass] = stores["class"]
        self._namespaces: Store[Namespace] = stores["namespace"]
        self._look_at = float("-inf")
        self._missed: Mapping[Target, list[str]] = {}  # pods' names; replaced as a whole
        self._told: frozenset[Target] = frozenset()

    def look(self, rule: Contents | None, policy: Callable[[frozenset[str]], OptInPolicy]) -> None:
        """Looks for missed pods every LOOK_SECONDS, and reports workloads that were not reported yet; for the leader.

        `rule`: our present mutating configuration; `policy` takes the schedulers whose pods opt in by it. Costs: a
        quick check of every known pod, and a closer one of pods with claims that did not opt in.
        """
        if self._clock.now() < self._look_at:
            return
        self._look_at = self._clock.now() + LOOK_SECONDS
        missed: dict[Target, list[str]] = {}
        if rule is not None and rule.schedulers and self._namespaces.synced.is_set():
            rules, default = policy(frozenset(rule.schedulers)), default_class(self._classes.values())
            for pod in self._pods.values():
                if not pod.is_opted_in and pod.created_utc > rule.created_utc and self._is_missed(pod, rules, default):
                    missed.setdefault(_workload_of(pod), []).append(pod.name)
        self._missed = missed
        self._told &= missed.keys()
        for workload in [one for one in missed if one not in self._told][:TOLD_AT_ONCE]:
            self._told |= {workload}
            self._notes.note(workload, REASON, _text(missed[workload]), is_warning=True)

    def forget(self) -> None:
        """The term has ended: another process looks for them."""
        self._look_at, self._missed = float("-inf"), {}

    def __len__(self) -> int:
        """The number of missed pods at the last look."""
        return sum(map(len, self._missed.values()))

    def status(self) -> Mapping[str, Any]:
        missed = self._missed
        workloads = {f"{one.kind} {one.namespace}/{one.name}": len(pods) for one, pods in missed.items()}
        return {"count": sum(workloads.values()), "workloads": dict(sorted(workloads.items())[:LISTED])}

    def _is_missed(self, pod: Pod, policy: OptInPolicy, default: StorageClass | None) -> bool:
        if pod.is_finished or pod.is_deleting or policy.leaves_alone(pod.namespace, pod.scheduler_name):
            return False
        namespace = self._namespaces.get(pod.namespace)
        if policy.refuses(pod.opt_in_mark or (namespace.opt_in_mark if namespace is not None else "")):
            return False
        return any(self._uses_longhorn(f"{pod.namespace}/{volume.claim}", default) for volume in pod.volumes)

    def _uses_longhorn(self, key: str, default: StorageClass | None) -> bool:
        claim = self._claims.get(key)
        if claim is None:
            return False
        pv = self._pvs.get(claim.volume_name) if claim.volume_name else None
        made_by = default if claim.class_name is None else self._classes.get(claim.class_name)
        return uses_longhorn(claim, pv, made_by) is True


def _workload_of(pod: Pod) -> Target:
    """What made the pod, or the pod itself."""
    owner = pod.owner
    if owner is None:
        return Target("Pod", pod.namespace, pod.name, pod.uid)
    return Target(owner.kind, pod.namespace, owner.name, owner.uid, owner.api_version)


def _text(pods: list[str]) -> str:
    count, named = len(pods), sorted(pods)[:NAMED]
    listed = ", ".join(named) + (f" and {count - len(named)} more" if count > len(named) else "")
    one = count == 1
    what, do, them = ("1 pod", "does", "it") if one else (f"{count} pods", "do", "them")
    return TEXT.format(count=what, do=do, them=them, names=listed)
