"""The webhook configurations with their real watches, on an API server in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from controller.admission.build import AdmissionParts, ConfigurationWatch, build_admission
from controller.admission.configurations import PODS
from controller.canary.proof import Finding, Wiring
from controller.clock import SystemClock
from controller.kube.recorder import Recorder
from controller.kube.resources import MUTATING_WEBHOOKS, OUR_CONFIGURATIONS, VALIDATING_WEBHOOKS
from controller.kube.store import Store
from controller.model.versions import Support
from controller.settings import UNREAD, LiveSettings, ProcessSettings
from controller.workers.support import LonghornRelease
from tests.fakes.apiserver import FakeApiServer
from tests.waiting import wait_until

NAME, FORMER_NAME = "zz-longhorn-scheduler-extender", "longhorn-scheduler-extender"  # of the mutating one
SETTINGS = ProcessSettings(
    pod_name="p", scheduler_names="default-scheduler, mine", excluded_namespaces="kube-system, x"
)


class BuiltAdmission:
    def __init__(self) -> None:
        self.server, self.clock = FakeApiServer(), SystemClock()
        self.live = LiveSettings(enabled=True)
        self.release: LonghornRelease | None = None
        self.looks = 0
        self.findings = [Finding("default-scheduler", Wiring.WIRED, "", 0.0), Finding("mine", Wiring.UNWIRED, "x", 0.0)]
        self.parts = self._build()

    def _build(self) -> AdmissionParts:
        stores: dict[str, Store[Any]] = {kind: Store(kind, lambda _: None) for kind in ("pod", "claim", "pv", "class")}
        recorder = Recorder(self.server, self.clock, component="t", instance="t")
        return build_admission(
            self.server,
            self.clock,
            recorder,
            SETTINGS,
            stores,
            live=lambda: self.live,
            longhorn=self._longhorn,
            findings=lambda: self.findings,
            opening=lambda: 1,
            authorities=lambda: b"PEM",
        )

    def _longhorn(self) -> LonghornRelease | None:
        self.looks += 1
        return self.release

    def entries(self) -> list[str]:
        return list(self.parts.addition.status()["entries"])

    def status(self) -> dict[str, object]:
        return dict(self.parts.addition.status())


@pytest.fixture
def world() -> Iterator[BuiltAdmission]:
    made = BuiltAdmission()
    made.server.create(MUTATING_WEBHOOKS, None, {"metadata": {"name": "a-strangers"}, "webhooks": [{"name": PODS}]})
    for resource, name in OUR_CONFIGURATIONS.items():
        made.server.create(resource, None, {"metadata": {"name": name}, "webhooks": []})
    made.parts.worker.start()
    yield made
    made.parts.worker.stop()


def test_nothing_is_written_before_longhorns_settings_are_known(world: BuiltAdmission) -> None:
    wait_until(lambda: world.looks > 2)
    assert [] == world.entries()
    world.release = LonghornRelease("v1.12.0", Support(is_supported=True))
    wait_until(lambda: len(world.entries()) == 5)
    assert ["default-scheduler"] == world.status()["opted_in_schedulers"]
    assert {"mine": "unwired: x"} == world.status()["why_not"]
    raw = world.server.get(MUTATING_WEBHOOKS, None, NAME)
    (names, _) = raw["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert ["kube-system", "longhorn-system", "x"] == names["values"]


def test_a_change_is_noticed_by_the_watch_and_undone(world: BuiltAdmission) -> None:
    world.release = LonghornRelease("v1.12.0", Support(is_supported=True))
    wait_until(lambda: not world.parts.worker.is_pod_rule_out())
    world.server.patch(MUTATING_WEBHOOKS, None, NAME, {"webhooks": []})
    wait_until(lambda: 1 == world.parts.worker.figures()["repairs"])
    wait_until(lambda: not world.parts.worker.is_pod_rule_out())
    looks, world.live = world.looks, UNREAD
    wait_until(lambda: world.looks > looks + 2)
    assert not world.parts.worker.is_pod_rule_out()  # it is not known whether they shall opt in
    world.live = LiveSettings(enabled=False)
    wait_until(world.parts.worker.is_pod_rule_out)


def test_of_all_configurations_only_ours_and_former_ones_are_kept() -> None:
    server = FakeApiServer()
    for name in (NAME, FORMER_NAME, "a-strangers"):
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            server.create(resource, None, {"metadata": {"name": name}, "webhooks": []})
    watch = ConfigurationWatch(server, SystemClock())
    watch.start()
    try:
        wait_until(lambda: watch.is_synced(MUTATING_WEBHOOKS))
        wait_until(lambda: watch.is_synced(VALIDATING_WEBHOOKS))
        assert {NAME, FORMER_NAME} == watch.stores[MUTATING_WEBHOOKS].items().keys()
        assert {FORMER_NAME} == watch.stores[VALIDATING_WEBHOOKS].items().keys()
        assert [FORMER_NAME] == list(watch.former(MUTATING_WEBHOOKS))
        assert {} == watch.former(VALIDATING_WEBHOOKS)
        assert None not in (watch.standing(MUTATING_WEBHOOKS), watch.standing(VALIDATING_WEBHOOKS))
    finally:
        watch.stop()
