"""Pods with Longhorn volumes that nobody checks: they do not request the extender.

By the webhook's rules some would have opted in: while it cannot be reached, pods are created without it
(`failurePolicy: Ignore`), and only a new pod corrects that. The others name a scheduler that `--scheduler-names` does
not list, such as another profile. All pods are checked from time to time, so nothing is remembered of any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from controller.admission.reconciler import Contents
from controller.admission.stuck import EventNotes
from controller.clock import Clock
from controller.kube.recorder import Target
from controller.kube.store import Store
from controller.model.names import DEFAULT_SCHEDULER, EXTENDER_RESOURCE
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
NOT_LISTED: Final = "LonghornSchedulerNotListed"
NOT_LISTED_TEXT: Final = (
    "{count} with Longhorn volumes and the scheduler {scheduler!r}, which --scheduler-names (chart: schedulerNames) "
    "does not list, so no room is checked or held for {them}: {names}. List it once it asks the extender"
)
MOST_SCHEDULERS: Final = 20  # that metrics and status name; pods may name any
OTHERS: Final = "(others)"


class MissedPods:
    """The missed pods found at the last look, by scheduler and workload.

    Threads: `look` from one, the rest from any. Blocks: never. I/O: none; Events are the recorder's.
    """

    def __init__(
        self, clock: Clock, notes: EventNotes, stores: Mapping[str, Store[Any]], listed: Iterable[str]
    ) -> None:
        """`stores` are those of the process, by kind, and that of namespaces. `listed`: in `--scheduler-names`."""
        self._clock, self._notes, self._listed = clock, notes, frozenset(listed)
        self._pods: Store[Pod] = stores["pod"]
        self._claims: Store[Claim] = stores["claim"]
        self._pvs: Store[PersistentVolume] = stores["pv"]
        self._classes: Store[StorageClass] = stores["class"]
        self._namespaces: Store[Namespace] = stores["namespace"]
        self._look_at = float("-inf")
        self._missed: Mapping[tuple[str, Target], list[str]] = {}  # pods' names; replaced as a whole
        self._told: frozenset[Target | str] = frozenset()  # workloads, and schedulers that are not listed

    def look(self, rule: Contents | None, policy: Callable[[frozenset[str]], OptInPolicy]) -> None:
        """Looks for missed pods every LOOK_SECONDS, and reports workloads that were not reported yet; for the leader.

        `rule`: our present mutating configuration; `policy` takes the schedulers whose pods opt in by it. Costs: a
        quick check of every known pod, and a closer one of pods with claims that did not opt in. Pods of schedulers
        that are not listed count whenever they were created, as what is made in their place is not checked either.
        """
        if self._clock.now() < self._look_at:
            return
        self._look_at = self._clock.now() + LOOK_SECONDS
        missed: dict[tuple[str, Target], list[str]] = {}
        if rule is not None and rule.schedulers and self._namespaces.synced.is_set():
            default, rules = default_class(self._classes.values()), policy(frozenset(rule.schedulers))
            for pod in self._pods.values():
                scheduler = pod.scheduler_name or DEFAULT_SCHEDULER
                is_in_rule = scheduler in rule.schedulers
                is_known = pod.created_utc <= rule.created_utc if is_in_rule else scheduler in self._listed
                if pod.is_opted_in or is_known or not pod.volumes:
                    continue
                if self._is_missed(pod, rules if is_in_rule else policy(frozenset({scheduler})), default):
                    missed.setdefault((scheduler, _workload_of(pod)), []).append(pod.name)
        self._missed = missed
        self._tell(missed)

    def _tell(self, missed: Mapping[tuple[str, Target], list[str]]) -> None:
        """Each workload once, and the first workload of each scheduler that is not listed."""
        due: dict[Target | str, tuple[Target, list[str]]] = {}
        for scheduler, workload in sorted(missed, key=lambda one: (one[1].namespace, one[1].name)):
            key = workload if scheduler in self._listed else scheduler
            due.setdefault(key, (workload, []))[1].extend(missed[scheduler, workload])
        self._told &= due.keys()
        for key in [one for one in due if one not in self._told][:TOLD_AT_ONCE]:
            self._told |= {key}
            (workload, pods), is_listed = due[key], isinstance(key, Target)
            text = _text(TEXT if is_listed else NOT_LISTED_TEXT, pods, scheduler=key)
            self._notes.note(workload, REASON if is_listed else NOT_LISTED, text, is_warning=True)

    def forget(self) -> None:
        """The term has ended: another process looks for them."""
        self._look_at, self._missed = float("-inf"), {}

    def __len__(self) -> int:
        return sum(self.by_scheduler().values())

    def by_scheduler(self) -> Mapping[str, int]:
        """How many at the last look: of each listed scheduler, and of those others that have most."""
        counts, found = Counter[str](), dict.fromkeys(sorted(self._listed), 0)
        for (scheduler, _), pods in self._missed.items():
            counts[scheduler] += len(pods)
        for scheduler, count in counts.most_common():
            is_named = scheduler in self._listed or len(found) < len(self._listed) + MOST_SCHEDULERS
            name = scheduler[:63] if is_named else OTHERS
            found[name] = found.get(name, 0) + count
        return found

    def status(self) -> Mapping[str, Any]:
        workloads = Counter[str]()
        for (_, one), pods in self._missed.items():
            workloads[f"{one.kind} {one.namespace}/{one.name}"] += len(pods)
        by_scheduler = {scheduler: count for scheduler, count in self.by_scheduler().items() if count}
        return {"count": len(self), "schedulers": by_scheduler, "workloads": dict(sorted(workloads.items())[:LISTED])}

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


def _text(form: str, pods: list[str], **more: object) -> str:
    count, named = len(pods), sorted(pods)[:NAMED]
    listed = ", ".join(named) + (f" and {count - len(named)} more" if count > len(named) else "")
    one = count == 1
    what, do, them = ("1 pod", "does", "it") if one else (f"{count} pods", "do", "them")
    return form.format(count=what, do=do, them=them, names=listed, **more)
