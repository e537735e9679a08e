"""The same cluster while places are given by name: whoever places asks, and writes what it is told later.

Writes of the record fail, arrive although they failed, and are read by the next leader alone; callers write the Replica
object at any later time or never, and free what is gone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from controller.allocator.outcome import Allotment
from controller.errors import NotFoundError, NotReadyError, RefusedWriteError
from controller.model.allocations import Allocation
from controller.model.longhorn import Replica
from controller.settings import DISK_SCHEDULER
from tests.fakes.builders import observe
from tests.unit.allocator.race_machine import NODES, RaceMachine

SECONDS = 1.0
MOSTLY = st.sampled_from([True, True, True, False])


class AllocatingMachine(RaceMachine):
    def __init__(self) -> None:
        super().__init__()
        live = replace(self.allocator._live, allocation_authority=DISK_SCHEDULER)
        self.allocator.configure(live, self.allocator._world.settings)
        self.on_record: dict[str, tuple[Allocation, ...]] = {}  # by node
        self.told: dict[str, Allocation] = {}  # by replica, what its caller may still act on

    # The record

    def entries(self) -> list[Allocation]:
        return [one for entries in self.on_record.values() for one in entries]

    def write_record(self, nodes: Collection[str], *, arrives: bool = True, is_told: bool = True) -> None:
        """As the writer does."""
        record = self.allocator.record
        for node in sorted(nodes):
            wanted = record.of_nodes([node])[node]
            if arrives:
                self.on_record[node] = wanted
            if not (arrives and is_told):
                raise NotReadyError("no answer")
            record.written(node, wanted)

    def finish(self, given: Allotment, *, arrives: bool, is_told: bool) -> bool:
        """As the service does; whether the caller hears of it."""
        try:
            self.write_record(given.nodes, arrives=arrives, is_told=is_told)
        except NotReadyError as error:
            self.allocator.allocations.failed(given, error)
            return False
        if not given.freed:
            self.allocator.allocations.told(given)
        return True

    @rule()
    def keep_the_record(self) -> None:
        self.write_record(self.allocator.record.take_changed() & set(NODES))

    # Who places: in place of Longhorn's own search

    @precondition(lambda self: self.unplaced())
    @rule(data=st.data(), arrives=MOSTLY, is_told=st.sampled_from([True, True, False]))
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
        given = self.ask_for(name)
        assert given.allocations or given.obstacles
        before = self.told.get(name)
        assert before is None or (before,) == given.allocations
        if self.finish(given, arrives=arrives, is_told=is_told):
            self.told.update({one.name: one for one in given.allocations})
        again = self.ask_for(name)
        assert given.allocations in ((), again.allocations)
        assert not (given.allocations and again.is_new)

    def ask_for(self, name: str) -> Allotment:
        try:
            return self.allocator.allocations.place_replica(name, SECONDS)
        except NotFoundError:  # the service reads what the stores lack
            owner = self.shown(name).volume
            observe(self.allocator, "volume", owner, self.truth["volume"][owner])
            observe(self.allocator, "replica", name, self.truth["replica"][name])
            return self.allocator.allocations.place_replica(name, SECONDS)

    @precondition(lambda self: self.unplaced())
    @rule(data=st.data())
    def the_record_refuses(self, data: st.DataObject) -> None:
        """What was given is taken back, unless it was given before."""
        name = data.draw(st.sampled_from(self.unplaced()))
        try:
            given = self.ask_for(name)
        except NotReadyError:  # no node is left that took a write of late
            return
        for node in sorted(given.nodes):
            self.allocator.allocations.failed(given, RefusedWriteError("it is not accepted", node))
        self.advance(61)

    @precondition(lambda self: self.to_write())
    @rule(data=st.data())
    def write_object(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.to_write()))
        one = self.told.pop(name)
        self.write("replica", one.name, replace(self.shown(one.name), node=one.node, disk_uuid=one.disk_uuid))

    def to_write(self) -> list[str]:
        self.told = {name: one for name, one in self.told.items() if name in self.truth["replica"]}
        return sorted(self.told)

    def shown(self, name: str) -> Replica:
        return next(facts for facts in self.replicas() if facts.name == name)

    @precondition(lambda self: self.orphans())
    @rule(data=st.data(), arrives=MOSTLY, is_told=MOSTLY)
    def free(self, data: st.DataObject, arrives: bool, is_told: bool) -> None:
        """What is gone, or waits for a disk."""
        name = data.draw(st.sampled_from(self.orphans()))
        self.told.pop(name, None)
        is_gone = name not in self.truth["replica"]
        freed = self.allocator.allocations.release_replica(name, is_gone=is_gone)
        nodes = freed.nodes.union(one.node for one in self.entries() if one.name == name)
        if self.finish(Allotment(freed=freed.freed, nodes=nodes), arrives=arrives, is_told=is_told):
            assert name not in {one.name for one in self.entries()}

    def orphans(self) -> list[str]:
        waiting, there = set(self.unplaced()), self.truth["replica"].keys()
        return sorted({one.name for one in self.entries() if one.name in waiting or one.name not in there})

    def change_leader(self) -> None:
        """The next one has stores that are caught up, and reads the record then."""
        for kind in self.kinds:
            while self.queues[kind]:
                self.deliver(kind)
        table = self.allocator._table
        self.allocator.begin_term(plans=table.plans(), holds=table.holds(), record=self.entries())

    # Safety

    def promised(self, name: str) -> int:
        """What callers were told and shows nowhere yet counts, too, and stands for what was chosen."""
        hidden = [self.told[one] for one in self.to_write() if self.told[one].node == name]
        here = {one.name.removesuffix("-r") for one in hidden}
        double = sum(claim.requested_bytes for claim in self.claims_chosen_for(name) if claim.volume_name in here)
        return super().promised(name) + sum(one.size_bytes for one in hidden) - double
