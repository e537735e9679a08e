"""The same cluster while the record decides where replicas go: whoever places asks, and writes what it is told later.

Writes of the record fail, arrive although they failed, and are seen late; callers write the Replica object at any later
time or never, and free what is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from controller.allocator.outcome import Allotment
from controller.errors import NotFoundError, NotReadyError
from controller.model.allocations import Allocation, Change, NodeRecord, changed
from controller.model.longhorn import Replica
from controller.settings import DISK_SCHEDULER
from tests.fakes.builders import observe
from tests.unit.allocator.race_machine import KINDS, RaceMachine

SECONDS = 1.0
MOSTLY = st.sampled_from([True, True, True, False])


class AllocatingMachine(RaceMachine):
    kinds = (*KINDS, "record")

    def __init__(self) -> None:
        super().__init__()
        live = replace(self.allocator._live, allocation_authority=DISK_SCHEDULER)
        self.allocator.configure(live, self.allocator._world.settings)

    # The record

    def entries(self) -> list[Allocation]:
        records = (facts for facts in self.truth["record"].values() if isinstance(facts, NodeRecord))
        return [one for record in records for one in record.allocations]

    def record(self, changes: Iterable[Change]) -> None:
        for change in changes:
            found = self.truth["record"].get(change.node)
            known = found if isinstance(found, NodeRecord) else NodeRecord(change.node, version="0")
            facts = replace(
                known, allocations=changed(known.allocations, [change]), version=str(int(known.version) + 1)
            )
            self.write("record", change.node, facts)

    def finish(self, given: Allotment, *, arrives: bool, is_told: bool) -> None:
        """As the service does with the writer's answer."""
        if arrives:
            self.record(given.changes)
        if not (arrives and is_told):
            self.allocator.allocations.failed(given)
            return
        for node in {change.node for change in given.changes}:
            record = self.truth["record"][node]
            assert isinstance(record, NodeRecord)
            self.allocator.allocations.learn(record)
        self.allocator.allocations.written(given)

    # Who places: in place of Longhorn's own search

    @precondition(lambda self: self.unplaced())
    @rule(
        data=st.data(), arrives=st.sampled_from([True, True, True, False]), is_told=st.sampled_from([True, True, False])
    )
    def place(self, data: st.DataObject, arrives: bool, is_told: bool) -> None:
        self.schedule(data.draw(st.sampled_from(self.unplaced())), arrives=arrives, is_told=is_told)

    @precondition(lambda self: self.unplaced())
    @rule()
    def place_all(self) -> None:
        for name in self.unplaced():
            self.schedule(name, arrives=True, is_told=True)

    def unplaced(self) -> list[str]:
        return [facts.name for facts in self.replicas() if not facts.node]

    def schedule(self, name: str, *, arrives: bool, is_told: bool) -> None:
        try:
            given = self.allocator.allocations.place_replica(name, SECONDS)
        except NotFoundError:  # the service reads what the stores lack
            owner = self.shown(name).volume
            observe(self.allocator, "volume", owner, self.truth["volume"][owner])
            observe(self.allocator, "replica", name, self.truth["replica"][name])
            given = self.allocator.allocations.place_replica(name, SECONDS)
        except NotReadyError:  # a leader before gave it, and answers of that one may have no room beside it
            assert self.allocator._world.allocated.has_former
            return
        assert given.allocations or given.obstacles
        self.finish(given, arrives=arrives, is_told=is_told)
        again = self.allocator.allocations.place_replica(name, SECONDS)
        assert given.allocations in ((), again.allocations)
        assert not (given.allocations and again.is_new)

    @precondition(lambda self: self.told())
    @rule(data=st.data())
    def write_object(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.told()))
        facts = replace(self.shown(one.name), node=one.node, disk_uuid=f"{one.node}-d1")
        self.write("replica", one.name, facts)

    def shown(self, name: str) -> Replica:
        return next(facts for facts in self.replicas() if facts.name == name)

    def told(self) -> list[Allocation]:
        unplaced = set(self.unplaced())
        return [one for one in self.entries() if one.name in unplaced]

    @precondition(lambda self: self.orphans())
    @rule(data=st.data(), arrives=st.booleans())
    def free(self, data: st.DataObject, arrives: bool) -> None:
        name = data.draw(st.sampled_from(self.orphans()))
        freed = self.allocator.allocations.release_replica(name, is_gone=True)
        self.finish(freed, arrives=arrives, is_told=True)

    def orphans(self) -> list[str]:
        return sorted({one.name for one in self.entries()} - self.truth["replica"].keys())

    # Safety

    def promised(self, name: str) -> int:
        """What is on record there and shows nowhere yet counts, too, and stands for what was chosen."""
        shown = {facts.name for facts in self.replicas() if facts.node == name}
        hidden = [one for one in self.entries() if one.node == name and one.name not in shown]
        here = {one.name.removesuffix("-r") for one in hidden}
        double = 0
        for claim in self.claims_chosen_for(name):
            if claim.volume_name in here:
                double += claim.requested_bytes
        return super().promised(name) + sum(one.size_bytes for one in hidden) - double
