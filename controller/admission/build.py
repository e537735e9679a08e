"""Builds what keeps the webhook configurations: their watches, the reconciler, the list of stuck pods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.admission.configurations import WebhookPlace
from controller.admission.missed import KnownObjects, MissedPods
from controller.admission.plan import AdmissionFacts, AdmissionPlan, decide
from controller.admission.reconciler import Admission, Standing, standing_of
from controller.admission.stuck import StuckPods
from controller.canary.build import LeaseEvents
from controller.canary.proof import Finding
from controller.clock import Clock
from controller.kube.api import KubeApi
from controller.kube.informer import Informer
from controller.kube.recorder import Recorder, Target
from controller.kube.resources import (
    FORMER_CONFIGURATIONS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    OUR_CONFIGURATIONS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from controller.kube.store import Store
from controller.model import parse
from controller.model.reader import Raw, mapping_at, text_at
from controller.model.workload import Namespace, Pod
from controller.process.addition import Addition
from controller.process.flags import split_names
from controller.process.worker import Group
from controller.rules.opt_in import OptInPolicy
from controller.settings import LiveSettings, ProcessSettings
from controller.workers.support import LonghornRelease


class ConfigurationWatch(Group):
    """Watches both kinds of webhook configurations, and keeps only ours.

    The process does not depend on these stores: without the right to read them, nothing is written.
    """

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self.stores: dict[Resource, Store[Standing]] = {}
        informers = []
        for resource, name in OUR_CONFIGURATIONS.items():
            kept = frozenset({name, *FORMER_CONFIGURATIONS[resource]})
            store: Store[Standing] = Store(resource.kind, functools.partial(_standing, kept))
            self.stores[resource] = store
            informers.append(Informer(api, resource, store, clock))
        super().__init__(informers)

    def is_synced(self, resource: Resource) -> bool:
        return self.stores[resource].synced.is_set()

    def standing(self, resource: Resource) -> Standing | None:
        return self.stores[resource].get(OUR_CONFIGURATIONS[resource])

    def former(self, resource: Resource) -> Mapping[str, Standing]:
        items = self.stores[resource].items()
        return {name: items[name] for name in FORMER_CONFIGURATIONS[resource] if name in items}


def _standing(kept: frozenset[str], raw: Raw) -> Standing | None:
    return standing_of(raw) if text_at(mapping_at(raw, "", "metadata"), "metadata", "name") in kept else None


class AdmissionWorker(Group):
    """The reconciler, and the reports of stuck and of missed pods in its rounds."""

    def __init__(self, admission: Admission, stuck: StuckPods, missed: MissedPods, namespaces: Informer) -> None:
        super().__init__((namespaces, admission))
        self._admission, self.stuck, self.missed = admission, stuck, missed

    def changed(self) -> None:
        """Something that matters has changed: look at once."""
        self._admission.changed()

    def is_pod_rule_out(self) -> bool:
        """Whether pods no longer opt in, as far as is known."""
        return self._admission.is_pod_rule_out()

    def figures(self) -> Mapping[str, float]:
        """For metrics."""
        counts = self._admission.counts
        return {
            "opt_in": float(not self._admission.is_pod_rule_out()),
            "stuck": float(len(self.stuck)),
            "missed": float(len(self.missed)),
            "writes": counts.writes,
            "repairs": counts.repairs,
            "failures": counts.failures,
        }


@dataclass(frozen=True, slots=True)
class AdmissionParts:
    """What the rest of the process uses."""

    worker: AdmissionWorker
    addition: Addition


def build_admission(
    api: KubeApi,
    clock: Clock,
    recorder: Recorder,
    settings: ProcessSettings,
    stores: Mapping[str, Store[Any]],
    *,
    live: Callable[[], LiveSettings],
    longhorn: Callable[[], LonghornRelease | None],
    findings: Callable[[], Sequence[Finding]],
    opening: Callable[[], int | None],
    authorities: Callable[[], bytes],
) -> AdmissionParts:
    """Subscribes to the pods of `stores`, which are keyed by kind; starts nothing. `authorities`: PEM of the
    authorities that API servers have to trust, empty while unknown."""
    pods: Store[Pod] = stores["pod"]
    schedulers = split_names(settings.scheduler_names)
    lease = LeaseEvents(api, recorder, settings.namespace, settings.lease)
    stuck = StuckPods(clock, recorder, lambda reason, text: lease.tell(reason, text, is_warning=True))
    pods.subscribe(stuck.pods_changed)
    # The process does not depend on this store: without the right to read namespaces, missed pods are not looked for.
    namespaces: Store[Namespace] = Store("namespace", parse.namespace_facts)
    missed = MissedPods(clock, recorder, KnownObjects(pods, stores["claim"], stores["pv"], stores["class"], namespaces))
    watch = ConfigurationWatch(api, clock)
    place = WebhookPlace(settings.namespace, settings.webhook_service, tuple(split_names(settings.excluded_namespaces)))

    def policy(names: frozenset[str]) -> OptInPolicy:
        return OptInPolicy(names, frozenset((*place.excluded, place.namespace)), only_marked=live().only_marked)

    def plan(standing: frozenset[str], leading_seconds: float) -> AdmissionPlan | None:
        stuck.tell()  # on the leader alone, at the reconciler's pace
        missed.look(watch.standing(MUTATING_WEBHOOKS), policy)
        release = longhorn()
        known = {finding.scheduler: finding for finding in findings()}
        facts = AdmissionFacts(live(), release, schedulers, known, standing, leading_seconds)
        # While something is unknown, the configurations stay as they are.
        is_known = facts.live.enabled is not None and (release is not None or not facts.live.enabled)
        return decide(facts) if is_known else None

    def tell(resource: Resource, uid: str, reason: str, text: str) -> None:
        target = Target(resource.kind, "", OUR_CONFIGURATIONS[resource], uid, resource.api_version)
        recorder.note(target, reason, text, is_warning=True)

    admission = Admission(api, clock, watch, place, plan, authorities, opening, tell, ended=missed.forget)
    for store in watch.stores.values():
        store.subscribe(lambda _changes: admission.changed())
    worker = AdmissionWorker(admission, stuck, missed, Informer(api, NAMESPACES, namespaces, clock))
    status = functools.partial(_status, admission, watch, stuck, missed)
    return AdmissionParts(worker, Addition("admission", worker, status))


def _status(admission: Admission, watch: ConfigurationWatch, stuck: StuckPods, missed: MissedPods) -> Mapping[str, Any]:
    """On every process, the present configurations; on the leader, also why pods do not opt in."""
    standing = {resource: watch.standing(resource) for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
    pod_rule = standing[MUTATING_WEBHOOKS]
    decision = admission.decision
    return {
        "entries": [name for found in standing.values() if found is not None for name in found.names],
        "opted_in_schedulers": split_names(pod_rule.schedulers) if pod_rule is not None else [],
        "why_not": decision.why_not if decision is not None else {},
        "problems": admission.problems,
        "repairs": admission.counts.repairs,
        "stuck_pods": stuck.status(),
        "missed_pods": missed.status(),
    }
