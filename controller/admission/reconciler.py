"""Keeps the webhook configurations as they should be, on the leader alone.

The wanted contents follow from settings, wiring and the version of Longhorn (plan.py, configurations.py). The present
contents are watched. A difference is written at once, under the resource version that was read for it. Changes by
others are undone, each time after a longer pause, so that two writers that disagree never loop quickly. The manifest
creates the objects: a right to create them could not be limited to their names.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from controller.admission.configurations import (
    PODS,
    Raw,
    WebhookPlace,
    mutating,
    validating,
    with_authorities,
)
from controller.admission.plan import AdmissionPlan
from controller.admission.stuck import EventNotes
from controller.clock import Clock
from controller.errors import ClusterError, ConflictError, NotFoundError
from controller.kube.api import KubeApi, find
from controller.kube.recorder import Target
from controller.kube.resources import (
    FORMER_CONFIGURATIONS,
    MUTATING_WEBHOOKS,
    OUR_CONFIGURATIONS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from controller.kube.store import Store
from controller.log_line import say
from controller.process.worker import Part, Worker, backoff_seconds

PRODUCT: Final = "longhorn-scheduler-extender"
TICK_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 5.0  # a live read said that all is well, and the watch says otherwise: it lags
TRIES: Final = 3  # of a write that finds another version
RETRY_SECONDS: Final = (1.0, 30.0)  # after a call that failed: first, and at most; doubled in between
REPAIR_SECONDS: Final = (1.0, 300.0)  # between repairs of the same thing, from the second on
PEACE_SECONDS: Final = 600.0  # after so long without a repair they count from the first again
CONTESTED: Final = 3  # repairs in a row that are worth an Event
CONTESTED_REASON: Final = "WebhookConfigurationContested"
SCHEDULERS_ANNOTATION: Final = "scheduling.longhorn.io/opted-in-schedulers"
LABELS: Final = {
    "app.kubernetes.io/name": PRODUCT,
    # AKS adds a selector to every webhook configuration that does not say this, and adds it again after each repair.
    "admissions.enforcer/disabled": "true",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Contents:
    """What one of our configurations holds, as far as it is ours: its entries, our labels, and the annotation."""

    webhooks: Sequence[Mapping[str, Any]]
    labels: Mapping[str, str]
    annotation: str = ""  # the schedulers whose pods opt in, with commas
    created_utc: str = field(default="", compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(entry.get("name", "")) for entry in self.webhooks)

    @property
    def schedulers(self) -> tuple[str, ...]:
        return tuple(self.annotation.split(",")) if self.annotation else ()


@dataclass(slots=True)
class _Track:
    """What the reconciler remembers of one of the two configurations. Threads: the worker's."""

    resource: Resource
    wanted: Contents | None = None  # the contents that were last in place: seen, or written
    seen: tuple[Contents | None, Contents] | None = None  # the present and the wanted contents at the last call
    look_at: float = float("-inf")  # while both are the same, there is no further call before
    failures: int = 0  # in a row
    repairs: int = 0  # in a row
    repaired_at: float = float("-inf")
    problem: str = ""


def contents_of(raw: Mapping[str, Any]) -> Contents:
    meta = raw.get("metadata") or {}
    labels = meta.get("labels") or {}
    return Contents(
        tuple(raw.get("webhooks") or ()),
        {name: labels[name] for name in LABELS if name in labels},
        str((meta.get("annotations") or {}).get(SCHEDULERS_ANNOTATION, "")),
        str(meta.get("creationTimestamp") or ""),
    )


class Reconciler(Part):
    """Writes the wanted contents into both configurations, again and again, while this process leads.

    `stores` show the configurations by their names. `decide` returns what is wanted, from the scheduler names in the
    present pod rule and the seconds of this term, or None while that is not known. `opening` returns a number that
    differs in each term, or None while this process does not lead; it is called again right before a write. `ended` is
    called in the worker's thread when a term has ended.
    Threads: `worker`'s; the views from any. Blocks: `stop` joins it. I/O: reads and writes of its objects.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        stores: Mapping[Resource, Store[Contents]],
        place: WebhookPlace,
        notes: EventNotes,
        *,
        decide: Callable[[frozenset[str], float], AdmissionPlan | None],
        authorities: Callable[[], bytes],
        opening: Callable[[], int | None],
        ended: Callable[[], None],
    ) -> None:
        self._api, self._clock, self._stores, self._place, self._notes = api, clock, stores, place, notes
        self._decide, self._authorities, self._current_opening, self._ended = decide, authorities, opening, ended
        self.writes = self.repairs = self.failures = 0  # read by metrics and status
        self.decision: AdmissionPlan | None = None  # the last one, for the status page
        self._tracks: tuple[_Track, ...] = (_Track(MUTATING_WEBHOOKS), _Track(VALIDATING_WEBHOOKS))
        self._opening: int | None = None
        self._since = 0.0
        self.worker = Worker("admission", self.run_once, retry_seconds=RETRY_SECONDS)

    # Views

    def present(self, resource: Resource) -> Contents | None:
        """Our configuration of that kind, as the watch shows it; None where there is none."""
        return self._stores[resource].get(OUR_CONFIGURATIONS[resource])

    def is_pod_rule_out(self) -> bool:
        """Whether pods no longer opt in, as far as is known; what was never seen counts as absent."""
        return all(PODS not in found.names for found in self._all_present(MUTATING_WEBHOOKS))

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(track.problem for track in self._tracks if track.problem)

    # The worker

    def run_once(self) -> float:
        self.step()
        return TICK_SECONDS

    def step(self) -> None:
        """Brings both configurations to what is wanted now."""
        opening = self._current_opening()
        if opening != self._opening:
            self._begin_term(opening)
        if opening is None or not all(store.synced.is_set() for store in self._stores.values()):
            return
        rules = [found for found in self._all_present(MUTATING_WEBHOOKS) if PODS in found.names]
        names = frozenset(name for rule in rules for name in rule.schedulers)
        decision = self._decide(names, self._clock.now() - self._since)
        if decision is None:
            return
        self.decision = decision
        for track in self._tracks:
            self._reconcile(track, decision)

    def _all_present(self, resource: Resource) -> list[Contents]:
        """Ours, and those of former names."""
        ours = self.present(resource)
        return [*(() if ours is None else (ours,)), *self._former(resource).values()]

    def _former(self, resource: Resource) -> Mapping[str, Contents]:
        """The configurations under the names that earlier releases gave them."""
        items = self._stores[resource].items()
        return {name: items[name] for name in FORMER_CONFIGURATIONS[resource] if name in items}

    def _begin_term(self, opening: int | None) -> None:
        self._opening, self._since, self.decision = opening, self._clock.now(), None
        if opening is None:
            self._ended()
        self._tracks = tuple(_Track(track.resource) for track in self._tracks)

    def _reconcile(self, track: _Track, decision: AdmissionPlan) -> None:
        now, present = self._clock.now(), self.present(track.resource)
        wanted = self._wanted(track, decision, present)
        if track.seen == (present, wanted) and now < track.look_at:
            return
        try:
            # The new one first, then the removal of the former one, so that pods are covered in between.
            if self._is_as_wanted(present, wanted):
                track.wanted, track.seen = present or track.wanted, None
                self._delete_former(track)
            else:
                track.seen, track.look_at = (present, wanted), now + LOOK_SECONDS
                if self._put_in_place(track, decision, now):
                    self._delete_former(track)
        except ClusterError as error:
            track.failures += 1
            self.failures += 1
            track.seen, track.look_at = (present, wanted), now + backoff_seconds(track.failures, RETRY_SECONDS)
            if str(error) != track.problem:
                say(log, "webhook configuration not written", logging.WARNING, kind=track.resource.kind, error=error)
            track.problem = str(error)
            return
        track.failures, track.problem = 0, ""

    def _delete_former(self, track: _Track) -> None:
        for name in self._former(track.resource):
            if self._current_opening() == self._opening:
                with contextlib.suppress(NotFoundError):
                    self._api.delete(track.resource, None, name)
                    say(log, "former webhook configuration removed", kind=track.resource.kind, name=name)

    def _put_in_place(self, track: _Track, decision: AdmissionPlan, now: float) -> bool:
        """Writes the wanted contents, unless they are there. Returns false while a repair waits for its time."""
        for attempt in range(TRIES):
            raw = find(self._api, track.resource, None, OUR_CONFIGURATIONS[track.resource])
            present = contents_of(raw) if raw is not None else None
            wanted = self._wanted(track, decision, present)
            if self._is_as_wanted(present, wanted):
                return True  # the watch lags
            if raw is None:
                name = OUR_CONFIGURATIONS[track.resource]
                raise ClusterError(
                    f"{track.resource.kind} {name} does not exist: apply the manifest or upgrade the release again"
                )
            is_repair = wanted == track.wanted
            if is_repair and now < (repair_from := self._repair_from(track, now)):
                track.look_at = repair_from
                return False
            try:
                self._write(track, raw, wanted)
            except (ConflictError, NotFoundError):
                if attempt == TRIES - 1:
                    raise
                continue
            if is_repair:
                self._count_repair(track, raw, now)
            track.wanted, track.seen = wanted, None
            return True
        return False

    def _wanted(self, track: _Track, decision: AdmissionPlan, present: Contents | None) -> Contents:
        build = mutating if track.resource is MUTATING_WEBHOOKS else validating
        former = self._former(track.resource).values()
        old = [entry for each in (present, *former) if each is not None for entry in each.webhooks]
        entries = with_authorities(build(decision.wanted, self._place), self._authorities(), old)
        has_pods = any(entry["name"] == PODS for entry in entries)
        return Contents(tuple(entries), LABELS, ",".join(decision.wanted.schedulers) if has_pods else "")

    def _is_as_wanted(self, present: Contents | None, wanted: Contents) -> bool:
        """An absent configuration is as good as an empty one."""
        return present == wanted if present is not None else not wanted.webhooks

    def _write(self, track: _Track, raw: Raw, wanted: Contents) -> None:
        if self._current_opening() != self._opening:
            raise ConflictError("the term has ended")
        meta: Raw = {**raw["metadata"]}
        meta["labels"] = {**(meta.get("labels") or {}), **LABELS}
        annotations = {**(meta.get("annotations") or {}), SCHEDULERS_ANNOTATION: wanted.annotation}
        meta["annotations"] = {
            key: value for key, value in annotations.items() if value or key != SCHEDULERS_ANNOTATION
        }
        resource = track.resource
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": meta,
            "webhooks": [dict(entry) for entry in wanted.webhooks],
        }
        self._api.replace(resource, None, OUR_CONFIGURATIONS[resource], body)
        self.writes += 1
        what = {"kind": resource.kind, "entries": wanted.names, "schedulers": wanted.annotation}
        say(log, "webhook configuration written", **what)

    def _repair_from(self, track: _Track, now: float) -> float:
        """When the next repair may be made; the first of a series comes at once."""
        if now >= track.repaired_at + PEACE_SECONDS:
            track.repairs = 0
        return track.repaired_at + backoff_seconds(track.repairs, REPAIR_SECONDS) if track.repairs else now

    def _count_repair(self, track: _Track, raw: Raw, now: float) -> None:
        track.repairs += 1
        track.repaired_at = now
        self.repairs += 1
        writer = _other_writer(raw)
        say(log, "webhook configuration repaired", logging.WARNING, kind=track.resource.kind, changed_by=writer)
        if track.repairs >= CONTESTED:
            text = (
                f"Changed by {writer} and repaired {track.repairs} times in a row; the next repair comes after "
                f"{backoff_seconds(track.repairs, REPAIR_SECONDS):.0f} s. Stop {writer} from changing this object"
            )
            resource, uid = track.resource, str(raw["metadata"].get("uid", ""))
            target = Target(resource.kind, "", OUR_CONFIGURATIONS[resource], uid, resource.api_version)
            self._notes.note(target, CONTESTED_REASON, text, is_warning=True)


def _other_writer(raw: Raw) -> str:
    """Who else wrote the object last, by its managedFields."""
    entries = [entry for entry in raw["metadata"].get("managedFields") or [] if entry.get("manager") != PRODUCT]
    if not entries:
        return "somebody"
    return repr(max(entries, key=lambda entry: str(entry.get("time", ""))).get("manager", ""))
