"""The leader's loop: it looks at each Replica without a node, and what it decides is written, late, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from controller.allocator.outcome import PlaceWrite, ReplicaTurn, TurnStep
from controller.model.longhorn import Replica
from tests.fakes.leading import MARKS, marked, placed
from tests.race.limits import Limits
from tests.race.world import Action, RaceWorld

ARRIVES_SECONDS: Final = 10.0  # after which a write does not arrive any more
YOUNG_SECONDS: Final = 30.0  # for which the gate keeps Longhorn from a Replica without a mark, under one leader
MOST_YOUNG_SECONDS: Final = 120.0  # the same under several


@dataclass
class _Sent:
    """A write under way. `is_answered`: the API server has decided it, and the leader has not heard of that."""

    write: PlaceWrite
    is_answered: bool = False


class RacePlacer:
    """What the leader decides counts under its term alone: the former one's writes arrive before the next begins.
    `watcher` hears of every decision, and of every place before it is stored."""

    def __init__(self, world: RaceWorld, watcher: Limits | None = None) -> None:
        self._world, self._watcher = world, watcher
        self._sent: dict[str, _Sent] = {}  # by replica
        self._is_turning = False
        world.before_time.append(self._end_old_writes)
        world.before_leader.append(self._end_writes)
        world.after_events.append(self.turn)

    @property
    def is_idle(self) -> bool:
        return not self._sent

    def actions(self) -> list[Action]:
        found: list[Action] = []
        for name, sent in self._sent.items():
            where = sent.write.place.disk_uuid
            if sent.is_answered:
                found.append((f"the leader hears what became of {name}", partial(self._hear, name)))
                continue
            found.append((f"the place of {name} on {where} is stored", partial(self._arrive, name)))
            found.append((f"the place of {name} on {where} is not stored", partial(self._lose, name)))
        return found + [(f"the leader looks at {name}", partial(self.look_at, name)) for name in self._unplaced()]

    def _unplaced(self) -> list[str]:
        return [one.name for one in self._world.replicas.values() if not one.node and one.name not in self._sent]

    def turn(self) -> None:
        """One turn of the loop; with a quick leader what it decides is stored at once."""
        if self._is_turning or self._world.record is not None:
            return
        self._is_turning = True
        for name in self._unplaced():
            self.look_at(name)
        if self._world.shape.is_quick:
            self.finish()
        self._is_turning = False

    def finish(self) -> None:
        """All that is under way is stored, and the leader hears of it."""
        for name in list(self._sent):
            if not self._sent[name].is_answered:
                self._arrive(name)
            self._hear(name)
        if self._world.shape.is_quick:
            self._world.store()

    def look_at(self, name: str) -> None:
        if name not in self._world.replicas or name in self._sent:
            return
        turn = self._world.driver.turn_of(name)
        if turn.step is not TurnStep.NOTHING:
            self._world.log.append(f"  {name}: {_told(turn)}")
        if self._watcher is not None:
            self._watcher.decided(turn)
        if turn.write is not None:
            self._sent[name] = _Sent(turn.write)
            self._world.writing[name] = turn.volume
            return
        facts = self._world.replicas[name]
        if turn.step in MARKS and facts.uid == turn.uid and not facts.node:
            self._world.write("replica", name, marked(turn.step, facts, self._world.now_utc()))

    # Writes

    def _arrive(self, name: str) -> None:
        """The write comes to the API server, whose patch tests that the Replica is the same, and has no node."""
        sent, facts = self._sent[name], self._world.replicas.get(name)
        sent.is_answered = True
        write = sent.write
        if facts is None or facts.uid != write.uid or facts.node:
            return
        if self._watcher is not None:
            self._watcher.arrives(write, facts)
        self._world.write_place(placed(write, facts), by=write.how)

    def _lose(self, name: str) -> None:
        self._sent[name].is_answered = True

    def _hear(self, name: str) -> None:
        sent = self._sent.pop(name, None)
        self._world.writing.pop(name, None)
        if sent is not None:
            self._world.driver.written(sent.write, self._world.replicas.get(name))

    def _end_old_writes(self, seconds: float) -> None:
        if seconds >= ARRIVES_SECONDS:
            self._end_writes(self._world.serial)
            self.turn()
            self.finish()

    def _end_writes(self, choice: int) -> None:
        """Each write under way arrives now, or never, as the bits of `choice` say."""
        for number, name in enumerate(list(self._sent)):
            if name in self._sent and not self._sent[name].is_answered and choice >> number & 1:
                self._arrive(name)
            self._hear(name)

    # The gate

    def is_open(self, facts: Replica) -> bool:
        """Whether Longhorn may place that Replica."""
        world = self._world
        if facts.is_left or world.record is not None:
            return True
        made_at = world.made_at[facts.name]
        is_old = world.now - max(made_at, world.term_at) >= YOUNG_SECONDS or world.now - made_at > MOST_YOUNG_SECONDS
        return is_old and not facts.held


def _told(turn: ReplicaTurn) -> str:
    if turn.write is not None:
        return f"{turn.write.how} on {turn.write.place.disk_uuid}"
    return f"{turn.step} {turn.reason} {turn.fault}"
