"""Which Longhorn runs, and whether this product can live next to it, as settings and CRDs come and go."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controller.errors import ClusterError, UnavailableError
from controller.kube import resources
from controller.workers.support import LonghornRelease, SupportWatch
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.waiting import wait_until

CRD = "diskschedules.longhorn.io"


class Longhorn:
    """Its settings and CRDs, and what looks at them."""

    def __init__(self, **settings: str) -> None:
        self.settings: dict[str, str] | None = {name.replace("_", "-"): value for name, value in settings.items()}
        self.server = FakeApiServer()
        self.watch = SupportWatch(lambda: self.settings, lambda name: self.server.get(resources.CRDS, None, name))

    def look(self) -> LonghornRelease | None:
        self.watch.run_once()
        return self.watch.current

    def problem(self) -> str:
        found = self.look()
        assert found is not None
        return found.support.problem


@contextmanager
def running(watch: SupportWatch) -> Iterator[None]:
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def test_nothing_is_said_before_the_settings_are_known() -> None:
    longhorn = Longhorn()
    longhorn.settings = None
    assert longhorn.look() is None


def test_the_version_is_the_settings_and_follows_it() -> None:
    longhorn = Longhorn(current_longhorn_version="v1.8.1")
    assert "v1.8.1 is older" in longhorn.problem()
    longhorn.settings = {"current-longhorn-version": "v1.12.1"}
    assert (longhorn.problem(), "v1.12.1") == ("", longhorn.watch.current and longhorn.watch.current.version)
    longhorn.settings = {}
    assert (longhorn.problem(), None) == ("", longhorn.watch.current and longhorn.watch.current.version)


def test_a_crd_of_longhorns_own_disk_scheduler_is_noticed_and_forgotten() -> None:
    longhorn = Longhorn(current_longhorn_version="v1.14.0")
    assert not longhorn.problem()
    longhorn.server.create(resources.CRDS, None, {"metadata": {"name": CRD}})
    assert CRD in longhorn.problem()
    longhorn.server.delete(resources.CRDS, None, CRD)
    assert not longhorn.problem()


def test_a_setting_of_longhorns_own_extender_is_noticed() -> None:
    assert "scheduler-extender-enabled" in Longhorn(scheduler_extender_enabled="true").problem()


@pytest.mark.parametrize("failure", [UnavailableError("503: later"), ClusterError("403: forbidden")])
def test_a_crd_that_cannot_be_read_is_as_it_was_last_seen_and_said_once(
    failure: ClusterError, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(verb: str, resource: resources.Resource) -> None:
        raise failure

    longhorn = Longhorn(current_longhorn_version="v1.14.0")
    longhorn.server.create(resources.CRDS, None, {"metadata": {"name": CRD}})
    assert CRD in longhorn.problem()
    longhorn.server.fail = fail
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert CRD in longhorn.problem()
        assert CRD in longhorn.problem()
    assert [f"Longhorn's CRDs cannot be read: {failure}"] == [record.getMessage() for record in caplog.records]


def test_a_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    longhorn = Longhorn(current_longhorn_version="v1.12.1")
    with caplog.at_level(logging.INFO):
        longhorn.look()
        longhorn.look()
        longhorn.settings = {"current-longhorn-version": "v1.8.0"}
        longhorn.look()
    said = [record.getMessage() for record in caplog.records]
    assert "Longhorn version=v1.12.1 supported" == said[0]
    assert said[1].startswith("Longhorn version=v1.8.0 not supported: ") and len(said) == 2


def test_its_thread_looks_by_itself_and_at_once_when_told() -> None:
    longhorn = Longhorn()
    longhorn.settings = None
    with running(longhorn.watch):
        longhorn.settings = {"current-longhorn-version": "v1.12.1"}
        wait_until(lambda: longhorn.watch.current is not None)
        longhorn.settings = {"current-longhorn-version": "v1.11.3"}
        longhorn.watch.worker.wake()
        wait_until(lambda: longhorn.watch.current is not None and longhorn.watch.current.version == "v1.11.3")
