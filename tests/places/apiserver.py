"""The API server of a world: objects with versions, watches that lag, the gate, the fence of the term, and all that was
stored, in its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from controller.allocator.outcome import ReplicaTurn
from controller.allocator.plans.plan import Hold, Plan
from controller.errors import ConflictError, ForbiddenError, NotFoundError
from controller.model.longhorn import Replica
from tests.fakes.leading import marked, placed
from tests.places.timeline import Timeline

LONGHORN: Final = "longhorn"
LEADER: Final = "leader-"  # and its term
SHARDS: Final = 16
_UNVERSIONED: Final = ("node", "kube_node", "class")


class Ages(StrEnum):
    """For how long the gate keeps a Replica that has no mark."""

    RENEWED = "30 s under a living leader"  # as the product
    CLOCK = "30 s by the clock"
    NEVER = "not at all"
    ALWAYS = "for as long as somebody leads"


class Answer(StrEnum):
    """What came of Longhorn's look for a disk where it gave a Replica none."""

    REFUSED = "refused"
    NO_DISK = "no disk"


@dataclass(frozen=True, slots=True)
class GateStamps:
    """What stands in the gate's account."""

    term: int = 0
    since: float = 0.0
    renewed: float = -1000.0


@dataclass(frozen=True, slots=True)
class StoredChange:
    """One write: `before` and `after` are facts, or None."""

    at: float
    kind: str
    key: str
    before: Any
    after: Any
    by: str


class WorldApi:
    """Whoever watches is called with each change, at its moment; the lag is the watcher's own. `has_gate`, `has_fence`
    False: that policy is not enforced."""

    def __init__(
        self, timeline: Timeline, *, has_gate: bool = True, has_fence: bool = True, ages: Ages = Ages.RENEWED
    ) -> None:
        self._timeline, self._has_gate, self._has_fence, self._ages = timeline, has_gate, has_fence, ages
        self.history: list[StoredChange] = []
        self.watchers: list[Callable[[StoredChange], None]] = []
        self.gate = GateStamps()
        self.plans: dict[str, Plan] = {}
        self.holds: dict[str, Hold] = {}
        self.made_at: dict[str, float] = {}  # when each Replica was created
        self._objects: dict[str, dict[str, Any]] = {}

    def get(self, kind: str, key: str) -> Any:
        return self._objects.get(kind, {}).get(key)

    def all(self, kind: str) -> list[Any]:
        return list(self._objects.get(kind, {}).values())

    def items(self, kind: str) -> list[tuple[str, Any]]:
        return list(self._objects.get(kind, {}).items())

    def keys(self, kind: str) -> list[str]:
        return list(self._objects.get(kind, {}))

    def replicas_of(self, volume: str) -> list[Replica]:
        return [one for one in self.all("replica") if one.volume == volume]

    def write(self, kind: str, key: str, facts: Any, by: str = "somebody") -> None:
        """Store the object, or take it away (None)."""
        objects = self._objects.setdefault(kind, {})
        before = objects.pop(key, None)
        if before is None and facts is None:
            return
        if facts is not None:
            objects[key] = facts if kind in _UNVERSIONED else replace(facts, version=len(self.history) + 1)
        if kind == "replica" and before is None:
            self.made_at[key] = self._timeline.now
        change = self._note(kind, key, before, objects.get(key), by)
        for watcher in self.watchers:
            watcher(change)

    def _note(self, kind: str, key: str, before: Any, after: Any, by: str) -> StoredChange:
        change = StoredChange(self._timeline.now, kind, key, before, after, by)
        self.history.append(change)
        return change

    # The gate and the leader

    def begin_term(self) -> int:
        """A new term; writes of former ones are refused from now on."""
        now = self._timeline.now
        self._stamp(GateStamps(self.gate.term + 1, now, now))
        return self.gate.term

    def renew(self, term: int) -> None:
        if term == self.gate.term:
            self._stamp(replace(self.gate, renewed=self._timeline.now))

    def _stamp(self, stamps: GateStamps) -> None:
        before, self.gate = self.gate, stamps
        self._note("gate", "", before, stamps, f"{LEADER}{stamps.term}")

    def patch_as_leader(self, name: str, turn: ReplicaTurn, term: int) -> Replica:
        """Store what the leader decided. Raises where the patch's tests fail, or the term is over."""
        facts: Replica | None = self.get("replica", name)
        if facts is None:
            raise NotFoundError(name)
        if self._has_fence and term != self.gate.term:
            raise ForbiddenError("the term is over")
        if facts.uid != turn.uid or facts.node:
            raise ConflictError(name)
        now_utc = self._timeline.clock.stamp()
        patched = placed(turn.write, facts) if turn.write is not None else marked(turn.step, facts, now_utc)
        self.write("replica", name, patched, f"{LEADER}{term}")
        stored: Replica = self.get("replica", name)
        return stored

    def place_as_longhorn(self, seen: Replica, node: str, disk_uuid: str) -> None:
        """Store a place that Longhorn chose. Raises where another version is stored, or the gate is closed."""
        facts: Replica | None = self.get("replica", seen.name)
        if facts is None or facts.version != seen.version:
            raise ConflictError(seen.name)
        if self._has_gate and self._is_closed(facts):
            self.note_look(facts.name, Answer.REFUSED)
            raise ForbiddenError("the leader places this replica")
        affinity = node if facts.hard_node_affinity else ""
        placed = replace(facts, node=node, disk_uuid=disk_uuid, hard_node_affinity=affinity)
        self.write("replica", facts.name, placed, LONGHORN)

    def note_look(self, name: str, answer: Answer) -> None:
        """Longhorn looked for a disk for that Replica, and stored nothing."""
        self._note("look", name, None, answer, LONGHORN)

    def _is_closed(self, facts: Replica) -> bool:
        if self._timeline.now - self.gate.renewed > 45 or facts.is_left:
            return False
        return bool(facts.held) or self._is_young(self.made_at[facts.name])

    def _is_young(self, made: float) -> bool:
        now, stamps = self._timeline.now, self.gate
        if self._ages is Ages.RENEWED:
            return stamps.renewed - max(made, stamps.since) < 30 and now - made <= 120
        return self._ages is Ages.ALWAYS or (self._ages is Ages.CLOCK and now - made < 30)

    # Plans

    def store_plans(
        self, plans: dict[str, Plan | None], term: int, holds: Mapping[str, Hold | None] = MappingProxyType({})
    ) -> bool:
        """Store what a leader committed, if it is of the present term; whether it is."""
        if term != self.gate.term:
            return False
        for pod, hold in holds.items():
            self.holds.pop(pod, None)
            if hold is not None:
                self.holds[pod] = hold
        for volume, plan in plans.items():
            self._set_plan(volume, plan, f"{LEADER}{term}")
        return True

    def _set_plan(self, volume: str, plan: Plan | None, by: str) -> None:
        before = self.plans.pop(volume, None)
        if plan is not None:
            self.plans[volume] = plan
        if before != plan:
            self._note("plan", volume, before, plan, by)

    def lose_shard(self, index: int) -> None:
        """Somebody deletes one of the objects that hold the plans."""
        for volume in [name for name in self.plans if sum(name.encode()) % SHARDS == index % SHARDS]:
            self._set_plan(volume, None, "vandal")
        for pod in [uid for uid in self.holds if sum(uid.encode()) % SHARDS == index % SHARDS]:
            del self.holds[pod]
