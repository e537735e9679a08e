"""The webhook configurations with their real watches, on an API server in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from controller.admission.build import AdmissionWorker, configuration_informers
from controller.admission.configurations import PODS
from controller.canary.proof import Finding, Wiring
from controller.clock import SystemClock
from controller.kube.recorder import Recorder
from controller.kube.resources import MUTATING_WEBHOOKS, OUR_CONFIGURATIONS, VALIDATING_WEBHOOKS
from controller.kube.store import Store
from controller.model.versions import Support
from controller.process.worker import Group
from controller.settings import UNREAD, LiveSettings, ProcessSettings
from controller.workers.support import LonghornRelease, SupportWatch
from tests.fakes.apiserver import FakeApiServer
from tests.waiting import wait_until

NAME, FORMER_NAME = "zz-longhorn-scheduler-extender", "longhorn-scheduler-extender"  # of the mutating one
SETTINGS = ProcessSettings(scheduler_names="default-scheduler, mine", excluded_namespaces="kube-system, x")
RELEASE = LonghornRelease("v1.12.0", Support(is_supported=True))


class BuiltAdmission:
    def __init__(self) -> None:
        self.server, self.clock = FakeApiServer(), SystemClock()
        self.live = LiveSettings(enabled=True)
        self.looks = 0
        stores: dict[str, Store[Any]] = {kind: Store(kind, lambda _: None) for kind in ("pod", "claim", "pv", "class")}
        self.support = SupportWatch(self.server, Store("setting", lambda _: None))
        self.worker = AdmissionWorker(
            self.server,
            self.clock,
            Recorder(self.server, self.clock, component="t", instance="t"),
            SETTINGS,
            stores,
            live=lambda: self.live,
            support=self.support,
            findings=self._findings,
            opening=lambda: 1,
            authorities=lambda: b"PEM",
            tell=lambda *_: None,
        )

    def _findings(self) -> list[Finding]:
        self.looks += 1
        return [Finding("default-scheduler", Wiring.WIRED, "", 0.0), Finding("mine", Wiring.UNWIRED, "x", 0.0)]

    def is_pod_rule_out(self) -> bool:
        return self.worker.reconciler.is_pod_rule_out()


@pytest.fixture
def world() -> Iterator[BuiltAdmission]:
    made = BuiltAdmission()
    made.server.create(MUTATING_WEBHOOKS, None, {"metadata": {"name": "a-strangers"}, "webhooks": [{"name": PODS}]})
    for resource, name in OUR_CONFIGURATIONS.items():
        made.server.create(resource, None, {"metadata": {"name": name}, "webhooks": []})
    made.worker.start()
    yield made
    made.worker.stop()


def test_nothing_is_written_before_longhorns_settings_are_known(world: BuiltAdmission) -> None:
    wait_until(lambda: world.looks > 1)
    assert [] == world.worker.status()["entries"]
    world.support.current = RELEASE
    wait_until(lambda: len(world.worker.status()["entries"]) == 6)
    status = world.worker.status()
    assert (["default-scheduler"], {"mine": "unwired: x"}) == (status["opted_in_schedulers"], status["why_not"])
    raw = world.server.get(MUTATING_WEBHOOKS, None, NAME)
    (names, _) = raw["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert ["kube-system", "longhorn-system", "x"] == names["values"]


def test_a_change_is_noticed_by_the_watch_and_undone(world: BuiltAdmission) -> None:
    world.support.current = RELEASE
    wait_until(lambda: not world.is_pod_rule_out())
    world.server.patch(MUTATING_WEBHOOKS, None, NAME, {"webhooks": []})
    wait_until(lambda: 1 == world.worker.figures()["repairs"])
    wait_until(lambda: not world.is_pod_rule_out())
    looks, world.live = world.looks, UNREAD
    wait_until(lambda: world.looks > looks + 1)
    assert not world.is_pod_rule_out()  # it is not known whether they shall opt in
    world.live = LiveSettings(enabled=False)
    wait_until(world.is_pod_rule_out)


def test_of_all_configurations_only_ours_and_former_ones_are_kept() -> None:
    server = FakeApiServer()
    for name in (NAME, FORMER_NAME, "a-strangers"):
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            server.create(resource, None, {"metadata": {"name": name}, "webhooks": []})
    informers = configuration_informers(server, SystemClock())
    group = Group(informers)
    group.start()
    try:
        wait_until(lambda: all(one.store.synced.is_set() for one in informers))
        kept = {one.resource: one.store.items().keys() for one in informers}
        assert {MUTATING_WEBHOOKS: {NAME, FORMER_NAME}, VALIDATING_WEBHOOKS: {FORMER_NAME}} == kept
    finally:
        group.stop()
