"""Settings out of their stores, and how a change of the running Longhorn's version reaches a decision and is shown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from controller.allocator.outcome import Mode
from controller.assembly.assemble import Controller
from controller.assembly.configuration import SettingsReader, mode_of
from controller.kube import resources
from controller.kube.store import Store
from controller.model.longhorn_settings import setting_value
from controller.model.versions import NEWEST, VERSION_SETTING, behaviour_of
from controller.model.workload import ConfigMapFacts, config_map_named
from controller.settings import LiveSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import TestCluster
from tests.unit.assembly.processes import running, settings_of
from tests.waiting import wait_until


def test_a_line_that_does_nothing_is_noted_for_as_long_as_it_is_there_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config_maps: Store[ConfigMapFacts] = Store("config_map", config_map_named("settings"))
    read, name = (
        SettingsReader(config_maps, Store("setting", setting_value)),
        "scheduler-extender-namespace-cap-percent",
    )
    raw = {"metadata": {"name": "settings"}, "data": {"scheduler-extender-enabled": "true", name: "10"}}
    config_maps.apply("ADDED", raw)
    configured, again = read(), read()
    assert ({}, [name]) == (configured.problems, list(configured.notes))
    assert configured == again
    assert [f"setting {name}: {configured.notes[name]}"] == [record.getMessage() for record in caplog.records]
    del raw["data"][name]
    config_maps.apply("MODIFIED", raw)
    assert {} == read().notes


@pytest.mark.parametrize(
    ("enabled", "bypass", "pods", "mode"),
    [
        (True, False, True, Mode.ACTIVE),
        (None, False, True, Mode.UNKNOWN),
        (None, True, True, Mode.BYPASS),
        (True, True, True, Mode.BYPASS),
        (False, True, False, Mode.BYPASS),
        (False, False, True, Mode.BYPASS),
        (False, False, False, Mode.CLOSED),
    ],
)
def test_the_mode_follows_settings_and_pods(enabled: bool | None, bypass: bool, pods: bool, mode: Mode) -> None:
    cluster, live = TestCluster(), LiveSettings(enabled=enabled, bypass=bypass)
    if pods:
        cluster.add_pod("a")
    assert mode_of(live, cluster.allocator.pending_opted_in, lambda: True) is mode


# The whole process, on an API server in memory


NAMESPACE = "longhorn-system"


@pytest.fixture
def server() -> FakeApiServer:
    made = FakeApiServer()
    made.create(resources.LONGHORN_SETTINGS, NAMESPACE, {"metadata": {"name": VERSION_SETTING}, "value": "v1.10.1"})
    return made


@pytest.fixture
def controller(server: FakeApiServer) -> Iterator[Controller]:
    with running(server) as made:
        yield made


@pytest.mark.parametrize(
    ("mode", "knows_callers"), [("insecure-plain-http", False), ("self", True), ("provided", True)]
)
def test_whoever_calls_is_known_by_his_certificate_or_not_at_all(
    server: FakeApiServer, mode: str, knows_callers: bool
) -> None:
    assert knows_callers is Controller(settings_of(tls_mode=mode), "identity", server).preconditions.knows_callers


def behaves_as(controller: Controller, version_text: str) -> bool:
    configured = controller.lifecycle.configured
    return configured is not None and configured.longhorn.behaviour == behaviour_of(version_text)


def shows(controller: Controller, version: str | None, is_supported: bool) -> bool:
    found = msgspec.json.decode(msgspec.json.encode(controller.status()))["longhorn"]
    return found is not None and (found["version"], found["support"]["is_supported"]) == (version, is_supported)


def test_a_new_version_decides_and_is_shown_at_once_and_one_that_goes_is_not_known(
    controller: Controller, server: FakeApiServer
) -> None:
    assert behaviour_of("v1.10.1") != NEWEST
    wait_until(lambda: behaves_as(controller, "v1.10.1") and shows(controller, "v1.10.1", True))
    for version, is_supported in (("v1.12.1", True), ("v1.8.2", False), ("v1.12.1", True)):
        server.patch(resources.LONGHORN_SETTINGS, NAMESPACE, VERSION_SETTING, {"value": version})
        wait_until(partial(behaves_as, controller, version))
        wait_until(partial(shows, controller, version, is_supported))
    server.delete(resources.LONGHORN_SETTINGS, NAMESPACE, VERSION_SETTING)
    wait_until(lambda: behaves_as(controller, "unknown") and shows(controller, None, True))


def test_a_setting_that_is_not_used_is_counted(controller: Controller, server: FakeApiServer) -> None:
    name, registry = "longhorn_scheduler_extender_settings_problems", controller.metrics.registry
    wait_until(lambda: behaves_as(controller, "v1.10.1"))
    raw = {"metadata": {"name": controller.settings.config_map}, "data": {"scheduler-extender-bypass": "perhaps"}}
    server.create(resources.CONFIG_MAPS, NAMESPACE, raw)
    wait_until(lambda: registry.get_sample_value(name) == 1)


def test_the_wiring_is_proven_only_while_kube_scheduler_should_ask_this_process(
    controller: Controller, server: FakeApiServer
) -> None:
    wait_until(lambda: controller.lifecycle.points_here)
    rounds = controller.prover.worker.state().rounds
    wait_until(lambda: controller.prover.worker.state().rounds > rounds + 1)
    assert {} == controller.status()["wiring"]  # it is not known whether the extender is on
    raw = {"metadata": {"name": controller.settings.config_map}, "data": {"scheduler-extender-enabled": "true"}}
    server.create(resources.CONFIG_MAPS, NAMESPACE, raw)
    wait_until(lambda: bool(controller.status()["wiring"]))
