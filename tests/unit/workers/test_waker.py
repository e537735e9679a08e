"""The wake-up: whom it patches, how, and when it keeps still."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from controller.allocator.outcome import Wakeup
from controller.clock import Clock, SystemClock
from controller.errors import NotFoundError, UnavailableError
from controller.kube.api import Raw
from controller.kube.resources import PODS, Resource
from controller.settings import LiveSettings
from controller.views.decisions import DecisionLog, NoteDecision, log_decision
from controller.workers.waker import Waker
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.waiting import wait_until

WAKE = [Wakeup("u1", "ns", "a", 1), Wakeup("u2", "ns", "b", 3)]


class Source:
    """An allocator that has news once."""

    def __init__(self, wakeups: Sequence[Wakeup] = ()) -> None:
        self.version = 1
        self.wakeups = list(wakeups)
        self.planned = 0

    def wait_for_change(self, version: int, timeout: float) -> bool:
        return version != self.version

    def wake_slices(self) -> Iterator[list[Wakeup]]:
        self.planned += 1
        wakeups, self.wakeups = self.wakeups, []
        return ([wakeup] for wakeup in wakeups)

    def next_wakeup_due(self) -> float | None:
        return None


class Patcher(FakeApiServer):
    def __init__(self, **failing: Exception) -> None:
        super().__init__()
        self.failing = failing
        self.sent: list[tuple[str, str, Any, str]] = []

    @property
    def names(self) -> list[str]:
        return [name for _, name, _, _ in self.sent]

    def patch(self, resource: Resource, namespace: str | None, name: str, body: Any, **options: Any) -> Raw:
        if name in self.failing:
            raise self.failing[name]
        assert (PODS, "strategic") == (resource, options["kind"])
        self.sent.append((str(namespace), name, body, options["subresource"]))
        return {}


def waker(
    source: Source,
    patcher: Patcher,
    *,
    annotation: bool = False,
    leading: bool = True,
    clock: Clock | None = None,
    note: NoteDecision = log_decision,
) -> Waker:
    live = LiveSettings(wake_with_annotation=annotation)
    return Waker(source, patcher, clock or VirtualClock(), live=lambda: live, is_leading=lambda: leading, note=note)


def test_a_refused_pod_gets_a_condition_of_ours_or_an_annotation_and_each_is_a_change() -> None:
    """The latter is for a scheduler without queueing hints."""
    patcher = Patcher()
    waker(Source(), patcher).wake(WAKE)
    assert [("ns", "a", "status"), ("ns", "b", "status")] == [(ns, name, sub) for ns, name, _, sub in patcher.sent]
    conditions = [body["status"]["conditions"] for _, _, body, _ in patcher.sent]
    assert {("scheduling.longhorn.io/RoomAvailable", "True")} == {(one["type"], one["status"]) for (one,) in conditions}
    assert conditions[0] != conditions[1]
    patcher.sent.clear()
    waker(Source(), patcher, annotation=True).wake(WAKE)
    assert [""] * 2 == [subresource for *_, subresource in patcher.sent]
    first, second = (body["metadata"]["annotations"] for _, _, body, _ in patcher.sent)
    assert first != second


def test_a_pod_that_is_gone_or_cannot_be_patched_does_not_keep_the_others_asleep() -> None:
    for error, failed in ((NotFoundError("404"), 0), (UnavailableError("503"), 1)):
        patcher = Patcher(a=error)
        noted = DecisionLog(VirtualClock())
        made = waker(Source(), patcher, note=noted.note)
        made.wake(WAKE)
        assert (["b"], 1, failed) == (patcher.names, made.woken, made.failed)
        assert [("wake", "Pod ns/b", "woken")] == [(one.kind, one.about, one.decision) for one in noted.after()]


def test_a_follower_wakes_nobody() -> None:
    patcher, source = Patcher(), Source(WAKE)
    made = waker(source, patcher, leading=False)
    made.wake(WAKE)
    made.run_once()
    assert ([], 0) == (patcher.sent, source.planned)


def test_the_thread_plans_after_a_change_and_ends_when_told() -> None:
    patcher = Patcher()
    made = waker(Source(WAKE), patcher, clock=SystemClock())
    made.start()
    try:
        wait_until(lambda: len(patcher.sent) == 2)
    finally:
        made.stop()
    assert 2 == made.woken


def test_a_patch_that_failed_is_sent_again_in_the_next_round() -> None:
    patcher, source = Patcher(a=UnavailableError("503")), Source(WAKE[:1])
    made = waker(source, patcher)
    made.run_once()
    assert ([], 1) == (patcher.sent, made.failed)
    patcher.failing = {}
    for version in (2, 3):
        source.version = version
        made.run_once()
    assert (["a"], 1) == (patcher.names, made.woken)
