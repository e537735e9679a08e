"""What stands around the allocator in a process: the leader's gate, live reads, what binds pods, and who is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controller.allocator.allocator import Allocator
from controller.errors import ClusterError, NotLeaderError
from extender.coschedule import Narrowed
from extender.wire import PodRef
from tests.fakes.builders import observe


class FakeGate:
    """Open; with `checks_left`, only for so many checks more."""

    def __init__(self) -> None:
        self.openings = 1
        self.checks_left: int | None = None

    def check(self) -> None:
        if self.checks_left is None:
            return
        if self.checks_left == 0:
            raise NotLeaderError("not leading")
        self.checks_left -= 1


class FakeReads:
    """Live reads, each of which hands the allocator what `objects` has under its kind and key, or that it is gone.

    Without an allocator nothing is handed on, and everything exists but what is `absent`. At the read of a kind, of a
    key, or ("") of anything, `fails` is raised and `shows` is called.
    """

    def __init__(self, allocator: Allocator | None = None) -> None:
        self.allocator = allocator
        self.objects: dict[tuple[str, str], Any] = {}
        self.absent: set[tuple[str, str]] = set()
        self.fails: dict[str, ClusterError] = {}
        self.shows: dict[str, Callable[[], object]] = {}
        self.reads: list[tuple[str, str]] = []
        self.timeouts: list[float] = []

    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        key = f"{namespace}/{name}" if namespace else name
        self.reads.append((kind, key))
        self.timeouts.append(timeout_seconds)
        for one in (kind, key, ""):
            if one in self.fails:
                raise self.fails[one]
            self.shows.get(one, lambda: None)()
        if self.allocator is None:
            return (kind, key) not in self.absent
        facts = self.objects.get((kind, key))
        observe(self.allocator, kind, key, facts)
        return facts is not None


class FakeBinder:
    """Remembers what was posted; `then` plays what else happens to this pod and node, and may raise."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str, str, str]] = []
        self.then: Callable[[str, str], object] = lambda _name, _node: None
        self.failure: ClusterError | None = None

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        self.then(name, node)
        self.posted.append((namespace, name, uid, node))
        if self.failure is not None:
            raise self.failure


class FakeObserver:
    """Remembers what kinds of failure were answered; hears of all else, as any verb's observer and listener."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def failed(self, kind: str) -> None:
        self.failures.append(kind)

    def decided(self, *_: object) -> None:
        return

    contention_waited = filter_answered = preempted = refused = let_through = broken = decided


class Anywhere:
    """Every pod runs wherever it likes, whatever shared volumes it has."""

    def narrow(self, _pod: PodRef, candidates: Sequence[str]) -> Narrowed:
        return Narrowed(candidates, {})

    def ended(self, _pod: PodRef, _narrowed: Narrowed, *, passed: bool) -> None:
        """Nothing follows from it."""

    def scores(self, _pod: PodRef, _candidates: Sequence[str]) -> Mapping[str, int] | None:
        return None
