"""What a leader's process does around its allocator, for worlds without threads: live reads, and writes of Replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Due, PlaceWrite, PodKnowledge, TurnStep, UnknownObjectError
from controller.model.longhorn import Replica
from controller.model.workload import Pod
from controller.rules.demand import Missing
from tests.fakes.builders import observe

MOST_READS: Final = 64
MARKS: Final = (TurnStep.HOLD, TurnStep.RELEASE, TurnStep.LEAVE)
Read = Callable[[str, str], object | None]  # kind and key: the object as the API server has it
T = TypeVar("T")


class LiveReads:
    """Single objects, read from the API server and handed to the allocator."""

    def __init__(self, allocator: Allocator, read: Read) -> None:
        self._allocator, self._read = allocator, read

    def refresh(self, kind: str, key: str) -> bool:
        """Whether the object is there; the allocator knows it then."""
        facts = self._read(kind, key)
        if facts is not None:
            observe(self._allocator, kind, key, facts)
        return facts is not None

    def confirm(self, missing: Missing) -> None:
        """The allocator knows the object then, or that there is none."""
        key = f"{missing.namespace}/{missing.name}" if missing.namespace else missing.name
        if not self.refresh(missing.kind, key):
            self._allocator.confirm_absent(missing)

    def is_pending(self, pod: Pod) -> bool:
        """Whether the allocator knows the pod, and that it has no node."""
        known = self._allocator.knows_pod(pod.uid, pod.key)
        if known.may_be_old:
            self.refresh("pod", pod.key)
            known = self._allocator.knows_pod(pod.uid, pod.key)
        return known is PodKnowledge.PENDING

    def answer(self, question: Callable[[], T]) -> T:
        """Its answer once all has been read that the question refers to; raises as the question does."""
        last: Missing | None = None
        for _ in range(MOST_READS):
            try:
                return question()
            except UnknownObjectError as error:
                if error.missing == last:
                    raise
                last = error.missing
            self.confirm(last)
        return question()

    def due(self) -> Iterator[Due]:
        """What time is to end, each after a live read of all that could keep it."""
        for due in self._allocator.due():
            for kind, key in due.reads:
                namespace, _, name = key.rpartition("/")
                self.confirm(Missing(kind, namespace, name))
            yield due


def placed(write: PlaceWrite, facts: Replica) -> Replica:
    """The Replica with the place that the leader gave it."""
    place, affinity = write.place, write.hard_node_affinity or facts.hard_node_affinity
    return replace(facts, node=place.node, disk_uuid=place.disk_uuid, held="", hard_node_affinity=affinity)


def marked(step: TurnStep, facts: Replica, now_utc: str) -> Replica:
    """The Replica after a step that only marks it, one of `MARKS`."""
    if step is TurnStep.LEAVE:
        return replace(facts, is_left=True)
    return replace(facts, held=now_utc if step is TurnStep.HOLD else "")
