"""The whole process, on an API server in memory: the running Longhorn's version is followed and shown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from controller.assembly.assemble import Controller
from controller.kube import resources
from controller.model.versions import NEWEST, VERSION_SETTING, behaviour_of
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.waiting import wait_until

NAMESPACE = "longhorn-system"


@pytest.fixture
def server() -> FakeApiServer:
    made = FakeApiServer()
    made.create(resources.LONGHORN_SETTINGS, NAMESPACE, {"metadata": {"name": VERSION_SETTING}, "value": "v1.10.1"})
    return made


@pytest.fixture
def controller(server: FakeApiServer) -> Iterator[Controller]:
    settings = ProcessSettings(pod_name="p", pod_ip="127.0.0.1", metrics_address="127.0.0.1", metrics_port=0)
    made = Controller(settings, "identity", server)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def behaves_as(controller: Controller, version: str) -> bool:
    configured = controller.lifecycle.configured
    return configured is not None and configured.longhorn.behaviour == behaviour_of(version)


def shows(controller: Controller, version: str | None, is_supported: bool) -> bool:
    found = msgspec.json.decode(msgspec.json.encode(controller.status()))["longhorn"]
    return found is not None and (found["version"], found["support"]["is_supported"]) == (version, is_supported)


def test_a_new_version_decides_and_is_shown_at_once(controller: Controller, server: FakeApiServer) -> None:
    assert behaviour_of("v1.10.1") != NEWEST
    wait_until(lambda: behaves_as(controller, "v1.10.1") and shows(controller, "v1.10.1", True))
    for version, is_supported in (("v1.12.1", True), ("v1.8.2", False), ("v1.12.1", True)):
        server.patch(resources.LONGHORN_SETTINGS, NAMESPACE, VERSION_SETTING, {"value": version})
        wait_until(partial(behaves_as, controller, version))
        wait_until(partial(shows, controller, version, is_supported))


def test_a_version_that_goes_is_not_known(controller: Controller, server: FakeApiServer) -> None:
    wait_until(lambda: behaves_as(controller, "v1.10.1"))
    server.delete(resources.LONGHORN_SETTINGS, NAMESPACE, VERSION_SETTING)
    wait_until(lambda: behaves_as(controller, "unknown") and shows(controller, None, True))
