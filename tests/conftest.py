"""In what order tests run, where, and the build of the control plane before the first that needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# A machine that stalls for a moment is no fault of the code: how long an example takes is never judged.
hypothesis.settings.register_profile("no deadline", deadline=None)
# For runs that only ask whether a test fails (tests/mutation): the smallest example would cost most of their time.
hypothesis.settings.register_profile(
    "any failure", deadline=None, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate)
)
hypothesis.settings.load_profile("no deadline")

build_failure = pytest.StashKey[Exception]()

# Files that one process runs one after the other, because they share what takes long to start.
TOGETHER: Final = {
    "a control plane": (
        "test_admission_config",
        "test_allocation_record",
        "test_cluster",
        "test_judged_history",
        "test_longhorn",
        "test_plan_objects",
        "test_refused_places",
        "test_stolen_keys",
    ),
    "kube-schedulers of their own": ("test_admission_leader", "test_opt_in", "test_rotation", "test_wiring"),
    "a control plane with policies": ("test_gate", "test_gate_keeper", "test_image", "test_record_keeper"),
}


class FilesTogether(LoadFileScheduling):  # type: ignore[misc]
    """Gives each process a file at a time, or those that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((unit for unit, names in TOGETHER.items() if _name(file) in names), file)


def _name(file: str) -> str:
    """Of an end-to-end test's file; "" for others."""
    path = PurePath(file)
    return path.stem if path.parent.name == "e2e" else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FilesTogether | None:
    return FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the cluster carries its mark. It comes after all that is quick; in a run of several processes
    before that, the slowest first, since it mostly waits."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        if any(one.scope == "package" for one in fixtures.get("cluster", ())[-1:]):  # and none of a test's own
            item.add_marker("cluster")
    items.sort(key=_waiting, reverse="PYTEST_XDIST_WORKER" in os.environ)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the control plane before the first test, because a first build outlasts every test's time limit."""
    if session.config.option.collectonly or not any(map(_uses_cluster, session.items)):
        return
    from tests.cluster import build

    try:
        build.binaries(progress_of(session.config))
    except Exception as error:  # the other tests still run; those that need it fail with this
        session.config.stash[build_failure] = error


def _waiting(item: pytest.Item) -> int:
    """How much of its time a test waits, roughly."""
    is_long = item.get_closest_marker("slow") or any(
        _name(item.nodeid.partition("::")[0]) in one for one in TOGETHER.values()
    )
    return _uses_cluster(item) * (2 if is_long else 1)


def _uses_cluster(item: pytest.Item) -> bool:
    return item.get_closest_marker("cluster") is not None


def progress_of(config: pytest.Config) -> Callable[[str], None]:
    """Print a line past pytest's capturing, so that somebody who waits sees what for."""
    capture = config.pluginmanager.getplugin("capturemanager")

    def show(line: str) -> None:
        if capture is None:
            print(line, file=sys.stderr, flush=True)
            return
        with capture.global_and_fixture_disabled():
            print(line, file=sys.stderr, flush=True)

    return show
