"""Which Longhorn runs, and whether this product can live next to it, as settings and CRDs come and go."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from controller.errors import ClusterError, UnavailableError
from controller.kube import resources
from controller.kube.store import Store
from controller.model.longhorn_settings import setting_value
from controller.model.versions import VERSION_SETTING
from controller.workers.support import SupportWatch
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.saved import setting
from tests.waiting import wait_until

CRD = "diskschedules.longhorn.io"


class WatchedLonghorn:
    """Its settings and CRDs, and what looks at them."""

    def __init__(self, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self.server = FakeApiServer()
        self.settings: Store[str] = Store("setting", setting_value)
        self.watch = SupportWatch(self.server, self.settings)
        self.set(settings)

    def set(self, settings: Mapping[str, str]) -> None:
        """As the watch shows them, all of them."""
        self.settings.replace([setting(name, value) for name, value in settings.items()])
        self.settings.synced.set()

    def problem(self) -> str:
        """After a look at it."""
        self.watch.run_once()
        assert self.watch.current is not None
        return self.watch.current.support.problem

    @property
    def version(self) -> str | None:
        return None if self.watch.current is None else self.watch.current.version


def test_nothing_is_said_before_the_settings_are_known() -> None:
    longhorn = WatchedLonghorn({VERSION_SETTING: "v1.12.1"})
    longhorn.settings.synced.clear()
    longhorn.watch.run_once()
    assert longhorn.watch.current is None


@pytest.mark.parametrize(
    ("settings", "crds", "problem"),
    [
        ({VERSION_SETTING: "v1.8.1"}, [], "v1.8.1 is older"),
        ({VERSION_SETTING: "v1.14.0"}, [CRD], CRD),
        ({"scheduler-extender-enabled": "true"}, [], "scheduler-extender-enabled"),
    ],
    ids=["an old version", "a CRD of its own disk scheduler", "a setting of its own extender"],
)
def test_what_is_not_supported_is_noticed_and_forgotten_when_it_goes(
    settings: dict[str, str], crds: list[str], problem: str
) -> None:
    longhorn = WatchedLonghorn(settings)
    for name in crds:
        longhorn.server.create(resources.CRDS, None, {"metadata": {"name": name}})
    assert problem in longhorn.problem()
    assert settings.get(VERSION_SETTING) == longhorn.version
    for name in crds:
        longhorn.server.delete(resources.CRDS, None, name)
    longhorn.set({VERSION_SETTING: "v1.14.0"})
    assert ("", "v1.14.0") == (longhorn.problem(), longhorn.version)


@pytest.mark.parametrize("failure", [UnavailableError("503: later"), ClusterError("403: forbidden")])
def test_a_crd_that_cannot_be_read_is_as_it_was_last_seen_and_said_once(
    failure: ClusterError, caplog: pytest.LogCaptureFixture
) -> None:
    longhorn = WatchedLonghorn({VERSION_SETTING: "v1.14.0"})
    longhorn.server.create(resources.CRDS, None, {"metadata": {"name": CRD}})
    assert CRD in longhorn.problem()
    longhorn.server.fail_with(failure)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert CRD in longhorn.problem()
        assert CRD in longhorn.problem()
    assert [f"Longhorn's CRDs cannot be read: {failure}"] == [record.getMessage() for record in caplog.records]


def test_a_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    longhorn = WatchedLonghorn({VERSION_SETTING: "v1.12.1"})
    with caplog.at_level(logging.INFO):
        longhorn.problem()
        longhorn.problem()
        longhorn.set({VERSION_SETTING: "v1.8.0"})
        longhorn.problem()
    said = [record.getMessage() for record in caplog.records]
    assert "Longhorn is supported version=v1.12.1" == said[0]
    assert said[1].startswith("Longhorn is not supported version=v1.8.0 problem=") and len(said) == 2


def test_its_thread_looks_by_itself_and_at_once_when_a_setting_changes() -> None:
    longhorn = WatchedLonghorn()
    longhorn.settings.synced.clear()
    longhorn.watch.start()
    try:
        for version in ("v1.12.1", "v1.11.3"):
            longhorn.set({VERSION_SETTING: version})
            wait_until(lambda version=version: longhorn.version == version)  # type: ignore[misc]
    finally:
        longhorn.watch.stop()
