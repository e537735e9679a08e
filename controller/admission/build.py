"""Builds what keeps the webhook configurations: their watches, the reconciler, the list of stuck pods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controller.admission.configurations import GROWTH_CHECK, WebhookPlace
from controller.admission.growth_path import GrowthPath
from controller.admission.missed import MissedPods
from controller.admission.plan import AdmissionFacts, AdmissionPlan, decide
from controller.admission.reconciler import Contents, Reconciler, contents_of
from controller.admission.stuck import StuckPods
from controller.canary.proof import Finding
from controller.clock import Clock
from controller.kube.api import KubeApi
from controller.kube.informer import Informer
from controller.kube.recorder import Recorder
from controller.kube.resources import (
    FORMER_CONFIGURATIONS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    OUR_CONFIGURATIONS,
    VALIDATING_WEBHOOKS,
)
from controller.kube.store import Store
from controller.model.reader import Raw, mapping_at, text_at
from controller.model.workload import Namespace, namespace_facts
from controller.process.flags import split_names
from controller.process.worker import Group
from controller.rules.opt_in import OptInPolicy
from controller.settings import LiveSettings, ProcessSettings
from controller.workers.support import SupportWatch


def configuration_informers(api: KubeApi, clock: Clock) -> list[Informer]:
    """Informers of both kinds of webhook configurations, whose stores keep only ours; not started yet.

    The process does not depend on their stores: without the right to read them, nothing is written.
    """
    informers = []
    for resource, name in OUR_CONFIGURATIONS.items():
        kept = frozenset({name, *FORMER_CONFIGURATIONS[resource]})
        store: Store[Contents] = Store(resource.kind, functools.partial(_our_contents, kept))
        informers.append(Informer(api, resource, store, clock))
    return informers


def _our_contents(kept: frozenset[str], raw: Raw) -> Contents | None:
    return contents_of(raw) if text_at(mapping_at(raw, "", "metadata"), "metadata", "name") in kept else None


class AdmissionWorker(Group):
    """The reconciler with its watches, and the reports of stuck and of missed pods in its rounds.

    `stores` are those of the process by kind, before their informers start. `authorities`: PEM of the authorities that
    API servers have to trust, empty while unknown. `opening`: as for `Reconciler`. `tell` takes a reason, a text, and
    whether it is a warning. Starts nothing.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        recorder: Recorder,
        settings: ProcessSettings,
        stores: Mapping[str, Store[Any]],
        *,
        live: Callable[[], LiveSettings],
        support: SupportWatch,
        findings: Callable[[], Sequence[Finding]],
        opening: Callable[[], int | None],
        authorities: Callable[[], bytes],
        tell: Callable[[str, str, bool], None],
    ) -> None:
        self._live, self._support, self._findings = live, support, findings
        self._schedulers = split_names(settings.scheduler_names)
        excluded = tuple(split_names(settings.excluded_namespaces))
        self._place = WebhookPlace(settings.namespace, settings.webhook_service, excluded)
        self.stuck = StuckPods(clock, recorder, tell)
        stores["pod"].subscribe(self.stuck.pods_changed)
        # The process does not depend on it: without the right to read namespaces, missed pods are not looked for.
        namespaces: Store[Namespace] = Store("namespace", namespace_facts)
        self.missed = MissedPods(clock, recorder, {**stores, "namespace": namespaces}, self._schedulers)
        watches = configuration_informers(api, clock)
        self.reconciler = Reconciler(
            api,
            clock,
            {watch.resource: watch.store for watch in watches},
            self._place,
            recorder,
            decide=self._decide,
            authorities=authorities,
            opening=opening,
            ended=self.missed.forget,
        )
        for watch in watches:
            watch.store.subscribe(lambda _changes: self.reconciler.worker.wake())
        self._opening = opening
        self.growth_path = GrowthPath(api, settings.namespace, self._is_growth_checked, tell)
        super().__init__((Informer(api, NAMESPACES, namespaces, clock), *watches, self.reconciler, self.growth_path))

    def _is_growth_checked(self) -> bool:
        found = self.reconciler.present(VALIDATING_WEBHOOKS)
        return self._opening() is not None and found is not None and GROWTH_CHECK in found.names

    def _decide(self, opted_in: frozenset[str], leading_seconds: float) -> AdmissionPlan | None:
        self.stuck.tell()  # on the leader alone, at the reconciler's pace
        self.missed.look(self.reconciler.present(MUTATING_WEBHOOKS), self._policy)
        findings = {finding.scheduler: finding for finding in self._findings()}
        release = self._support.current
        return decide(AdmissionFacts(self._live(), release, self._schedulers, findings, opted_in, leading_seconds))

    def _policy(self, schedulers: frozenset[str]) -> OptInPolicy:
        left_alone = frozenset((*self._place.excluded, self._place.namespace))
        return OptInPolicy(schedulers, left_alone, only_marked=self._live().only_marked)

    def figures(self) -> Mapping[str, float]:
        """For metrics."""
        return {
            "opt_in": float(not self.reconciler.is_pod_rule_out()),
            "stuck_pods": float(len(self.stuck)),
            "growth_unchecked": float(bool(self.growth_path.problem)),
            "writes": self.reconciler.writes,
            "repairs": self.reconciler.repairs,
            "failures": self.reconciler.failures,
        }

    def status(self) -> Mapping[str, Any]:
        """On every process, the present configurations; on the leader, also why pods do not opt in."""
        pod_rule, growth_rule = map(self.reconciler.present, (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS))
        decision = self.reconciler.decision
        return {
            "entries": [name for found in (pod_rule, growth_rule) if found is not None for name in found.names],
            "opted_in_schedulers": split_names(pod_rule.annotation) if pod_rule is not None else [],
            "why_not": decision.why_not if decision is not None else {},
            "problems": (*self.reconciler.problems, *filter(None, (self.growth_path.problem,))),
            "repairs": self.reconciler.repairs,
            "stuck_pods": self.stuck.status(),
            "missed_pods": self.missed.status(),
        }
