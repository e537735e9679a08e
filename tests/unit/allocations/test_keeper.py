"""The leader's record follows Longhorn's objects, and what may be on its way stays on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, repeat
from math import inf
from typing import Any

import pytest

from controller.allocations.backends import LonghornNodeBackend, NodeDiskAllocationBackend, StoredRecord
from controller.allocations.expected import LonghornObjects, expected_among
from controller.allocations.holder import LOOK_EVERY_SECONDS, RETRY_SECONDS, RecordHolder
from controller.allocations.keeper import (
    EVERY_SECONDS,
    FULL_SECONDS,
    MOST_FAILURES,
    MOST_NEWS,
    WRITE_SECONDS,
    RecordKeeper,
    Scope,
    status_of,
)
from controller.errors import ClusterError, NotFoundError, NotLeaderError, NotReadyError, UnavailableError
from controller.kube.resources import (
    CRDS,
    LONGHORN_BACKING_IMAGES,
    LONGHORN_NODES,
    LONGHORN_REPLICAS,
    LONGHORN_VOLUMES,
    NODE_DISK_ALLOCATIONS,
    Resource,
)
from controller.model.allocations import Allocation, Change, Drop, NodeRecord, Purpose, Put
from controller.model.parse import backing_image_facts, node_facts, replica_facts, volume_facts
from controller.settings import LiveSettings
from tests.fakes.builders import replica, volume
from tests.fakes.clock import VirtualClock
from tests.unit.allocations.stage import (
    NAMESPACE,
    NODES,
    Answered,
    add_image,
    add_replica,
    entry,
    longhorn,
    longhorn_node,
    nodes_crd,
    on_record,
    put,
)

OURS = LiveSettings(allocation_authority="disk-scheduler", allocation_grace_seconds=60)
MIRROR = LiveSettings(allocation_grace_seconds=60)
UNPLACED = {"volumeName": "v", "volumeSize": "10", "nodeID": "", "diskID": "", "active": True}
AUTHORITIES = pytest.mark.parametrize("live", [OURS, MIRROR], ids=["disk-scheduler", "longhorn"])


class KeeperStage:
    """A leader over a cluster in memory, whose stores never lag unless `frozen`."""

    def __init__(self, live: LiveSettings = OURS, *, in_nodes: bool = False) -> None:
        self.api, self.clock, self.live = longhorn(), VirtualClock(), live
        self.term, self.is_leading, self.is_fresh, self.looks = 5, True, True, 0
        self.frozen: tuple[NodeRecord, ...] | None = None
        self.answers = Answered()
        self.api.put(CRDS, None, nodes_crd(has_field=in_nodes))
        self.backend = (LonghornNodeBackend if in_nodes else NodeDiskAllocationBackend)(self.api, NAMESPACE)
        self.holder = RecordHolder(self.api, NAMESPACE, self._term, self.clock, lambda _problem: None)
        self.holder.look()
        self.keeper = RecordKeeper(
            self.holder,
            self.records,
            self.objects,
            lambda: self.live,
            self.clock,
            is_leading=lambda: self.is_leading,
            is_fresh=lambda: self.is_fresh,
            answers=self.answers,
        )

    def _term(self) -> int:
        if not self.is_leading:
            raise NotLeaderError("this process does not lead")
        return self.term

    def records(self) -> list[NodeRecord]:
        return list(self.frozen or (one.record for one in self.backend.records()))

    def objects(self) -> LonghornObjects:
        self.looks += 1

        def listed(kind: Resource) -> list[dict[str, object]]:
            return self.api.list_page(kind, NAMESPACE).items

        volumes = [volume_facts(raw) for raw in listed(LONGHORN_VOLUMES)]
        return LonghornObjects(
            [node_facts(raw) for raw in listed(LONGHORN_NODES)],
            [replica_facts(raw) for raw in listed(LONGHORN_REPLICAS)],
            {one.name: one for one in volumes},
            [backing_image_facts(raw) for raw in listed(LONGHORN_BACKING_IMAGES)],
        )

    def commit(self, *changes: Change) -> None:
        writer = self.holder.writer()
        assert writer is not None
        writer.commit(changes, self.clock.now() + 5)

    def show_unplaced(self, name: str) -> None:
        """A Replica that waits for a disk."""
        self.api.put(LONGHORN_REPLICAS, NAMESPACE, {"metadata": {"name": name}, "spec": UNPLACED})

    def round(self, after_seconds: float = 0.0, nodes: Iterable[str] | None = NODES) -> None:
        self.clock.advance(after_seconds)
        self.keeper.changed(None if nodes is None else Scope(frozenset(nodes), whole=frozenset(nodes)))
        self.keeper.run_once()

    def on_record(self) -> dict[str, int]:
        return {name: size for node in NODES for name, size in on_record(self.backend, node).items()}

    @property
    def repairs(self) -> dict[str, int]:
        return {reason: count for reason, count in self.keeper.figures().repairs.items() if count}


@AUTHORITIES
@pytest.mark.parametrize("in_nodes", [False, True], ids=["own objects", "Longhorn Nodes"])
def test_what_exists_is_adopted(live: LiveSettings, in_nodes: bool) -> None:
    leader = KeeperStage(live, in_nodes=in_nodes)
    add_replica(leader.api, "r1")
    add_replica(leader.api, "r2", 20, "n2", "d2")
    add_image(leader.api, "i1", 7, "n3-d1")
    leader.round()
    assert ({"r1": 10, "r2": 20, "i1": 7}, {"no-entry": 3}) == (leader.on_record(), leader.repairs)
    leader.round()
    assert (3, {"no-entry": 3}) == (leader.keeper.figures().writes, leader.repairs)


def test_a_mirror_can_be_switched_off_and_a_record_that_counts_cannot() -> None:
    leader = KeeperStage(LiveSettings(allocation_record=False))
    add_replica(leader.api, "r1")
    leader.round()
    assert ({}, False) == (leader.on_record(), leader.keeper.figures().is_kept)
    leader.live = replace(OURS, allocation_record=False)
    leader.round()
    assert ({"r1": 10}, True) == (leader.on_record(), leader.keeper.figures().is_kept)


@pytest.mark.parametrize("what", ["follows", "sees too little"])
def test_only_a_leader_that_sees_the_cluster_writes(what: str) -> None:
    leader = KeeperStage()
    add_replica(leader.api, "r1")
    leader.is_leading, leader.is_fresh = what != "follows", what == "follows"
    leader.round()
    assert {} == leader.on_record()
    leader.is_leading = leader.is_fresh = True
    assert EVERY_SECONDS == leader.keeper.run_once()
    assert {"r1": 10} == leader.on_record()


@AUTHORITIES
def test_an_entry_without_an_object_stays_for_the_grace(live: LiveSettings) -> None:
    leader = KeeperStage(live)
    leader.commit(put("r1"))
    leader.round()
    leader.round(59)
    assert ({"r1": 10}, 1) == (leader.on_record(), leader.keeper.figures().waiting)
    leader.round(2)
    assert ({}, {"object-gone": 1}) == (leader.on_record(), leader.repairs)


def test_the_grace_begins_anew_when_the_object_was_there() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.round()
    leader.round(59)
    add_replica(leader.api, "r1")
    leader.round()
    leader.api.delete(LONGHORN_REPLICAS, NAMESPACE, "r1")
    leader.round(1)
    leader.round(59)
    assert {"r1": 10} == leader.on_record()
    leader.round(2)
    assert {} == leader.on_record()


def test_a_new_leader_gives_the_grace_anew() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.round()
    leader.is_leading = False
    leader.round(100)
    leader.is_leading = True
    leader.round()
    assert {"r1": 10} == leader.on_record()


def test_the_grace_begins_anew_when_the_same_is_given_once_more() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.round()
    leader.round(60)
    assert {} == leader.on_record()
    leader.commit(put("r1"))  # before the next round
    leader.round(2)
    assert {"r1": 10} == leader.on_record()


def test_an_entry_of_a_replica_without_a_disk_stays_as_long_as_that() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.show_unplaced("r1")
    leader.round()
    leader.round(1000)
    assert {"r1": 10} == leader.on_record()
    leader.api.delete(LONGHORN_REPLICAS, NAMESPACE, "r1")
    leader.round()
    assert {} == leader.on_record()


def test_an_entry_of_a_replica_without_a_disk_becomes_as_small_as_its_volume_after_the_grace() -> None:
    """It was to grow, and nobody made it."""
    leader = KeeperStage()
    leader.commit(put("r1", 60))
    leader.show_unplaced("r1")
    with_a_volume(leader, 10)
    leader.round()
    leader.round(59)
    assert {"r1": 60} == leader.on_record()
    leader.round(1)
    assert ({"r1": 10}, {"expansion-unfinished": 1}) == (leader.on_record(), leader.repairs)


def test_an_entry_on_a_disk_that_no_node_shows_any_more_goes_after_the_grace() -> None:
    """The replica waits for another one."""
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.show_unplaced("r1")
    with_a_volume(leader, 10)
    leader.round()
    leader.round(120)
    node = leader.api.get(LONGHORN_NODES, NAMESPACE, "n1")
    leader.api.delete(LONGHORN_NODES, NAMESPACE, "n1")
    leader.round()
    leader.round(59)
    leader.api.put(LONGHORN_NODES, NAMESPACE, {**node, "metadata": {"name": "n1"}})
    leader.round()
    leader.api.delete(LONGHORN_NODES, NAMESPACE, "n1")
    leader.round()
    leader.is_fresh = False  # it may be back meanwhile
    leader.round(59)
    leader.is_fresh = True
    leader.round(1)
    assert {"r1": 10} == leader.on_record()
    leader.round(30, nodes=["n2"])
    leader.round(29)
    assert {"r1": 10} == leader.on_record()
    leader.clock.advance(1)
    leader.keeper.run_once()
    assert ({}, {"disk-gone": 1}) == (leader.on_record(), leader.repairs)


def test_what_a_caller_was_told_of_a_disk_that_is_gone_stays_for_the_grace() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.show_unplaced("r1")
    with_a_volume(leader, 10)
    leader.api.delete(LONGHORN_NODES, NAMESPACE, "n1")
    leader.round()
    told_at = leader.clock.now() + 30
    leader.answers.told = lambda: {entry("r1"): told_at}
    leader.round(89)
    assert {"r1": 10} == leader.on_record()
    leader.round(1)
    assert {} == leader.on_record()


def test_an_entry_of_a_replica_that_failed_without_a_disk_goes_after_the_grace() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    spec = {**UNPLACED, "failedAt": "2026-01-01T00:00:00Z"}
    leader.api.put(LONGHORN_REPLICAS, NAMESPACE, {"metadata": {"name": "r1"}, "spec": spec})
    leader.round()
    leader.round(59)
    assert {"r1": 10} == leader.on_record()
    leader.round(1)
    assert ({}, {"object-gone": 1}) == (leader.on_record(), leader.repairs)


def test_an_unfinished_expansion_is_lowered_after_the_grace() -> None:
    leader = KeeperStage()
    add_replica(leader.api, "r1", 10)
    leader.commit(put("r1", 20))
    leader.round()
    leader.round(59)
    assert {"r1": 20} == leader.on_record()
    leader.round(2)
    assert ({"r1": 10}, {"expansion-unfinished": 1}) == (leader.on_record(), leader.repairs)


def test_an_unfinished_expansion_is_not_lowered_below_what_its_volume_wants() -> None:
    """A larger one was given and is not wanted any more."""
    leader = KeeperStage()
    add_replica(leader.api, "r1", 10)
    name = leader.objects().replicas[0].volume
    leader.api.put(LONGHORN_VOLUMES, NAMESPACE, {"metadata": {"name": name}, "spec": {"size": "20"}})
    leader.commit(put("r1", 40))
    leader.round()
    leader.round(61)
    assert {"r1": 20} == leader.on_record()


def test_the_grace_begins_anew_when_its_caller_is_told_once_more() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.round()
    told = {put("r1").allocation: leader.clock.now() + 50}
    leader.answers.told = lambda: told
    leader.round(61)
    leader.answers.told = dict  # longer ago than is kept
    leader.round(48)
    assert {"r1": 10} == leader.on_record()
    leader.round(2)
    assert {} == leader.on_record()


def test_what_is_told_once_more_between_the_plan_and_the_write_is_left_as_it_is() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.round()
    for before, at in (({}, 1.0), ({put("r1").allocation: 0.5}, inf)):
        answers = chain([before], repeat({put("r1").allocation: at}))
        leader.answers.told = answers.__next__
        leader.round(61)
        assert {"r1": 10} == leader.on_record()


def test_what_is_being_written_for_somebody_is_left_as_it_is_without_any_grace() -> None:
    leader = KeeperStage(replace(OURS, allocation_grace_seconds=0))
    leader.commit(put("r1"))
    leader.answers.told = lambda: {put("r1").allocation: inf}
    leader.round()
    assert {"r1": 10} == leader.on_record()
    leader.answers.told = dict
    leader.round()
    assert {} == leader.on_record()


def test_the_grace_of_what_is_being_written_begins_when_that_is_done() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.answers.told = lambda: {put("r1").allocation: inf}
    leader.round()
    leader.round(100)
    told = {put("r1").allocation: leader.clock.now()}
    leader.answers.told = lambda: told
    leader.round(59)
    assert {"r1": 10} == leader.on_record()
    leader.round(2)
    assert {} == leader.on_record()


def test_a_replica_that_was_told_its_disk_lately_does_not_lose_it_by_an_object_that_lags() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    told = {put("r1").allocation: leader.clock.now()}
    leader.answers.told = lambda: told
    add_replica(leader.api, "r1", 10, "n2", "d1")
    leader.round()
    assert {"r1": 10} == on_record(leader.backend, "n1")
    leader.answers.told = dict
    leader.round()
    assert ({}, {"r1": 10}) == (on_record(leader.backend, "n1"), on_record(leader.backend, "n2"))


def test_an_expansion_that_is_under_way_is_not_lowered() -> None:
    waits = entry("r1", 20)
    mine = replace(replica("r1", "v", on="n1"), size_bytes=10)
    for size, shown, expected in (
        (20, entry("r1"), {waits}),
        (19, entry("r1"), set()),
        (20, entry("r1", disk="d2"), set()),
        (20, entry("r1", node="n2"), set()),
    ):
        objects = LonghornObjects((), [mine], {"v": replace(volume("v"), size_bytes=size)}, ())
        assert expected == expected_among({waits}, objects, [shown])


@AUTHORITIES
def test_a_replica_on_another_disk_takes_its_entry_along_at_once(live: LiveSettings) -> None:
    leader = KeeperStage(live)
    leader.commit(put("r1"))
    add_replica(leader.api, "r1", 10, "n2", "d1")
    leader.round()
    assert ({}, {"r1": 10}) == (on_record(leader.backend, "n1"), on_record(leader.backend, "n2"))
    assert {"disk-moved": 2} == leader.repairs


def with_a_volume(leader: KeeperStage, size: int = 10) -> None:
    """Of the replicas that `add_replica` adds."""
    leader.api.put(LONGHORN_VOLUMES, NAMESPACE, {"metadata": {"name": "v"}, "spec": {"size": str(size)}})


def test_a_disk_with_another_name_keeps_its_entries() -> None:
    leader = KeeperStage()
    with_a_volume(leader)
    add_replica(leader.api, "r1")
    leader.round()
    raw = longhorn_node("n1", "d1", "d2")
    for disks in (raw["spec"]["disks"], raw["status"]["diskStatus"]):
        disks["renamed"] = disks.pop("d1")
    leader.api.put(LONGHORN_NODES, NAMESPACE, raw)
    leader.round(2)
    leader.round(60)
    assert [entry("r1")] == list(leader.backend.read("n1").record.allocations)
    assert {"no-entry": 1} == leader.repairs


def test_a_disk_on_another_node_takes_its_entries_along_at_once() -> None:
    leader = KeeperStage()
    with_a_volume(leader)
    add_replica(leader.api, "r1")
    leader.round()
    leader.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node("n1", "d2"))
    raw = longhorn_node("n2")
    raw["spec"]["disks"]["x1"] = {"allowScheduling": True}
    raw["status"]["diskStatus"]["x1"] = {"diskUUID": "n1-d1"}
    leader.api.put(LONGHORN_NODES, NAMESPACE, raw)
    leader.round(2)
    moved = Allocation(Purpose.REPLICA, "r1", "n2", "n1-d1", 10)
    assert ((moved,), ()) == tuple(leader.backend.read(name).record.allocations for name in ("n2", "n1"))
    assert {"no-entry": 1, "disk-moved": 2} == leader.repairs


def test_a_new_disk_is_free_of_what_lay_on_a_former_one_of_its_name() -> None:
    """The replica with the former disk's UUID is there yet."""
    leader = KeeperStage()
    with_a_volume(leader)
    add_replica(leader.api, "r1")
    leader.round()
    raw = longhorn_node("n1")
    raw["status"]["diskStatus"]["d1"]["diskUUID"] = "new"
    leader.api.put(LONGHORN_NODES, NAMESPACE, raw)
    leader.round(2)
    assert {"r1": 10} == leader.on_record()
    leader.round(60)
    assert ({}, {"no-entry": 1, "object-gone": 1}) == (leader.on_record(), leader.repairs)


def test_a_copy_of_an_image_elsewhere_takes_no_entry_along() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    image = Allocation(Purpose.BACKING_IMAGE, "i1", "n1", "n1-d1", 7)
    leader.commit(Put(image))
    add_image(leader.api, "i1", 7, "n2-d1")
    leader.round()
    assert ({"r1": 10, "i1": 7}, {"i1": 7}) == (on_record(leader.backend, "n1"), on_record(leader.backend, "n2"))


def test_a_copy_of_an_image_that_is_being_removed_stays_on_record_until_its_status_names_the_disk_no_more() -> None:
    leader = KeeperStage()
    add_image(leader.api, "i1", 7, "n1-d1", seen_on=["n1-d1"])
    leader.round()
    add_image(leader.api, "i1", 7, seen_on=["n1-d1"])
    leader.round()
    leader.round(120)
    assert ({"i1": 7}, 0) == (leader.on_record(), leader.keeper.figures().waiting)
    add_image(leader.api, "i1", 7)
    leader.round()
    leader.round(61)
    assert ({}, {"no-entry": 1, "object-gone": 1}) == (leader.on_record(), leader.repairs)


def test_what_a_call_changed_since_is_left_as_it_is() -> None:
    """The watch lags: the repair is planned by a record of before the calls."""
    leader = KeeperStage(replace(OURS, allocation_grace_seconds=0))
    add_replica(leader.api, "r1", 15)
    leader.commit(put("r1", 10), put("r2", 10), put("r3", 10))
    leader.frozen = tuple(leader.records())
    leader.commit(put("r1", 20), put("r2", 30), Drop(Purpose.REPLICA, "r3", "n1", "n1-d1"))
    leader.round()
    assert ({"r1": 20, "r2": 30}, {}) == (leader.on_record(), leader.repairs)


def test_what_a_call_has_freed_lately_is_not_adopted_by_an_object_that_lags() -> None:
    leader = KeeperStage()
    add_replica(leader.api, "r1")
    add_replica(leader.api, "r2")
    leader.answers.freed = {entry("r1")}
    leader.round()
    assert ({"r2": 10}, {"no-entry": 1}) == (leader.on_record(), leader.repairs)
    leader.answers.freed.clear()
    leader.round(EVERY_SECONDS, nodes=())  # it is there after all
    assert {"r1": 10, "r2": 10} == leader.on_record()


def test_what_was_given_again_after_it_was_freed_is_raised_with_its_object() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    add_replica(leader.api, "r1", 20)
    leader.answers.freed = {entry("r1", 20)}
    leader.round()
    assert ({"r1": 20}, {"size-differs": 1}) == (leader.on_record(), leader.repairs)


def test_what_was_planned_in_one_term_is_not_written_in_the_next() -> None:
    leader = KeeperStage()
    add_replica(leader.api, "r1")

    def begin_term() -> dict[Allocation, float]:
        leader.term += 1
        return {}

    leader.answers.told = begin_term  # asked while the round plans
    leader.round()
    assert {} == leader.on_record()
    leader.answers.told = dict
    leader.round()
    assert {"r1": 10} == leader.on_record()


def test_what_was_told_lately_is_raised_with_its_object_at_once() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    told = {put("r1").allocation: leader.clock.now()}
    leader.answers.told = lambda: told
    add_replica(leader.api, "r1", 20)
    leader.round()
    assert ({"r1": 20}, {"size-differs": 1}) == (leader.on_record(), leader.repairs)


@pytest.mark.parametrize("before", [0, 20], ids=["adopted", "lowered"])
def test_what_it_wrote_without_an_answer_stays(before: int) -> None:
    leader = KeeperStage()
    if before:
        leader.commit(put("r1", before))
    leader.round()
    add_replica(leader.api, "r1")
    writer = leader.holder.writer()
    assert writer is not None
    backend: Any = writer._backend
    write = backend.write

    def lose(*arguments: Any) -> None:
        backend.write = write
        write(*arguments)
        leader.clock.advance(WRITE_SECONDS)
        raise UnavailableError("no answer")

    backend.write = lose
    leader.round(61)
    assert 1 == leader.keeper.figures().failures
    leader.commit(put("r2"))
    assert {"r1": 10, "r2": 10} == leader.on_record()


@pytest.mark.parametrize(
    "spec",
    [{"term": 5, "diskAllocations": {"d1": []}}, {"term": "x"}, {"term": 99, "diskAllocations": {}}],
    ids=["garbage", "no term", "a later term"],
)
def test_a_record_that_cannot_be_read_is_written_anew_only_while_it_counts_nothing(spec: dict[str, object]) -> None:
    leader = KeeperStage()
    add_replica(leader.api, "r1")
    leader.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, {"metadata": {"name": "n1"}, "spec": spec})
    leader.round()
    assert spec == leader.api.get(NODE_DISK_ALLOCATIONS, NAMESPACE, "n1")["spec"]
    assert {} == leader.repairs
    leader.live = MIRROR
    leader.round()
    assert ({"r1": 10}, 5) == (leader.on_record(), leader.backend.read("n1").record.term)
    assert {"unreadable": 1} == leader.repairs


def test_what_the_schema_keeps_from_being_rewritten_is_made_anew() -> None:
    leader = KeeperStage(MIRROR)
    body = {"metadata": {"name": "n1"}, "spec": {"term": 99, "diskAllocations": {}}}
    leader.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, body)
    leader.api.fail_with(ClusterError("written by a leader of an earlier term"), "replace")
    leader.round()
    assert (5, {"unreadable": 1}) == (leader.backend.read("n1").record.term, leader.repairs)


def test_nothing_is_freed_while_its_other_place_cannot_be_written() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    add_replica(leader.api, "r1", 10, "n2", "d1")
    leader.api.fail_with(ClusterError("no right to"), "create")
    leader.round()
    assert {"r1": 10} == leader.on_record()
    figures = leader.keeper.figures()
    assert (1, "the record of n2 cannot be written: no right to") == (figures.failures, figures.last_failure)


def test_what_keeps_some_nodes_from_being_written_keeps_all_for_this_round() -> None:
    leader = KeeperStage()
    for number in range(5):
        add_replica(leader.api, f"r{number}", 10, "n1", "d1")
        leader.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node(f"m{number}"))
        add_replica(leader.api, f"s{number}", 10, f"m{number}", "d1")
    leader.api.fail_with(ClusterError("no right to"), "create")
    leader.round()
    assert MOST_FAILURES == leader.keeper.figures().failures
    leader.api.work()
    leader.round(nodes=())
    assert {"no-entry": 10} == leader.repairs


def test_a_node_that_nothing_can_be_written_for_is_left_out() -> None:
    leader = KeeperStage()
    for name in NODES:
        leader.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, {"metadata": {"name": name}, "spec": {"term": 99}})
    for name in (*NODES, "n4"):
        leader.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node(name))
        add_replica(leader.api, f"r-{name}", node=name)
    leader.round(nodes=None)
    assert ({"r-n4": 10}, 0) == (on_record(leader.backend, "n4"), leader.keeper.figures().failures)
    assert list(NODES) == list(leader.keeper.figures().unreadable)


def test_nodes_that_cannot_be_written_keep_no_other_waiting_for_long() -> None:
    """Those in the middle, by their names; what is freed waits for what grows."""
    leader, names = KeeperStage(), [f"m{number}" for number in range(9)]
    for name in names:
        leader.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node(name))
        add_replica(leader.api, f"r-{name}", node=name)
        leader.commit(put(f"gone-{name}", node=name))
    leader.commit(put("r-m0", node="m8"), put("r-m4", node="m8"))
    backend = leader.holder.backend
    assert backend is not None
    write = backend.write

    def refuse(stored: StoredRecord, *rest: Any) -> StoredRecord:
        if stored.record.node in names[2:7]:
            raise ClusterError("no right to")
        return write(stored, *rest)

    backend.write = refuse  # type: ignore[method-assign, assignment]
    leader.round(nodes=None)
    assert {"r-m0": 10, "gone-m0": 10} == on_record(leader.backend, "m0")
    for _ in range(4):
        leader.round(61, nodes=None)
    wanted = {name: {f"r-{name}": 10} for name in ("m0", "m1", "m7", "m8")}
    wanted["m8"]["r-m4"] = 10  # it could not be put where it lies
    assert wanted == {name: on_record(leader.backend, name) for name in wanted}


def objects_of_records(leader: KeeperStage) -> list[str]:
    return [raw["metadata"]["name"] for raw in leader.api.list_page(NODE_DISK_ALLOCATIONS, NAMESPACE).items]


@AUTHORITIES
def test_the_record_of_a_node_that_is_gone_goes_when_nothing_is_left_in_it(live: LiveSettings) -> None:
    leader = KeeperStage(live)
    for node in ("n1", "n2"):
        add_replica(leader.api, f"r-{node}", node=node)
    leader.round()
    leader.api.delete(LONGHORN_NODES, NAMESPACE, "n1")
    for node in ("n1", "n2"):
        leader.api.delete(LONGHORN_REPLICAS, NAMESPACE, f"r-{node}")
    leader.round()
    leader.round(59)
    assert {"r-n1": 10, "r-n2": 10} == leader.on_record()
    leader.round(1)
    leader.round(EVERY_SECONDS, nodes=())  # by what was repaired
    assert ["n2"] == objects_of_records(leader)
    leader.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node("n1"))
    leader.commit(put("r1"))
    leader.round()
    assert ({"r1": 10}, 0) == (leader.on_record(), leader.keeper.figures().failures)


def test_a_record_of_a_node_that_is_gone_stays_where_it_is_not_as_it_was_seen() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.frozen = (NodeRecord("n1"), NodeRecord("n2"))
    for node in ("n1", "n2"):
        leader.api.delete(LONGHORN_NODES, NAMESPACE, node)
    leader.round()
    assert (["n1"], 0) == (objects_of_records(leader), leader.keeper.figures().failures)


@pytest.mark.parametrize("spec", [{"term": "x"}, {"term": 99}], ids=["garbage", "a later term"])
def test_an_unreadable_record_of_a_node_that_is_gone_stays_for_a_person(spec: dict[str, object]) -> None:
    leader = KeeperStage()
    leader.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, {"metadata": {"name": "gone"}, "spec": spec})
    for expected in (["gone"], []):
        leader.round(nodes=None)
        leader.round(nodes=None)
        assert (expected, 0) == (objects_of_records(leader), leader.keeper.figures().failures)
        leader.live = MIRROR


def test_an_empty_record_that_cannot_be_removed_is_tried_again() -> None:
    leader = KeeperStage()
    for node in ("a", "b"):
        leader.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, {"metadata": {"name": node}, "spec": {"term": 1}})
    leader.api.fail_with(ClusterError("no right to"), "delete")
    leader.round(nodes=None)
    assert 1 == leader.keeper.figures().failures
    leader.api.work()
    leader.round(EVERY_SECONDS, nodes=())
    assert [] == objects_of_records(leader)


def test_the_status_says_what_is_wrong() -> None:
    leader = KeeperStage()
    leader.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, {"metadata": {"name": "n1"}, "spec": {"term": "x"}})
    leader.commit(put("r2", node="n2"))
    leader.round()
    status = status_of(leader.keeper.figures())
    assert ["n1"] == list(status["unreadable"])
    assert (2, 1, 1, True) == (status["records"], status["entries"], status["waiting"], status["is_kept"])


@pytest.mark.parametrize(("term", "why"), [(99, "later than 5"), (2**63 - 1, "spec.term: is more than")])
def test_a_term_that_somebody_has_set_shows_as_unreadable(term: int, why: str) -> None:
    leader = KeeperStage()
    leader.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, {"metadata": {"name": "n1"}, "spec": {"term": term}})
    leader.round()
    assert why in status_of(leader.keeper.figures())["unreadable"]["n1"]
    leader.live = MIRROR
    leader.round()
    assert (5, {"unreadable": 1}) == (leader.backend.read("n1").record.term, leader.repairs)
    assert {} == status_of(leader.keeper.figures())["unreadable"]


def test_a_change_of_an_image_makes_a_look_at_its_copies_alone() -> None:
    leader = KeeperStage()
    add_image(leader.api, "i1", 7, "n1-d1")
    for name, node in (("r1", "n1"), ("r2", "n2")):
        add_replica(leader.api, name, node=node)
    leader.round(nodes=None)
    add_image(leader.api, "i1", 7, "n2-d1")
    add_replica(leader.api, "r3")
    scope = Scope(images=frozenset({"i1"}))
    leader.keeper.changed(scope)
    leader.keeper.run_once()
    assert {"r1", "i1"} == on_record(leader.backend, "n1").keys()
    assert {"r2", "i1"} == on_record(leader.backend, "n2").keys()
    assert 1 == leader.keeper.figures().waiting  # of n1, beside what replicas wait for
    add_image(leader.api, "i1", 7, "n1-d1", "n2-d1")
    leader.keeper.changed(scope)
    leader.keeper.run_once()
    assert 0 == leader.keeper.figures().waiting
    add_image(leader.api, "i1", 7, "n2-d1")
    for seconds in (0, 59):
        leader.clock.advance(seconds)
        leader.keeper.changed(scope)
        leader.keeper.run_once()
    assert "i1" in on_record(leader.backend, "n1")
    leader.clock.advance(1)
    leader.keeper.run_once()
    assert "i1" not in on_record(leader.backend, "n1")


def test_no_more_news_are_kept_than_a_round_could_look_at() -> None:
    """As while there is no place for the record, or what is seen is too old."""
    leader = KeeperStage()
    leader.round(nodes=None)
    leader.is_fresh = False
    add_replica(leader.api, "r1")
    for number in range(MOST_NEWS + 10):
        leader.keeper.changed(Scope.of([entry(f"r{number}", node="n2")]))
    leader.keeper.run_once()
    assert not leader.keeper._news
    leader.is_fresh = True
    leader.keeper.run_once()
    assert {"r1": 10} == leader.on_record()


def test_one_node_that_cannot_be_written_makes_no_round_look_at_all() -> None:
    leader = KeeperStage(MIRROR)
    for node in NODES:
        add_replica(leader.api, f"r-{node}", node=node)
    leader.round(nodes=None)
    leader.keeper.run_once()
    add_replica(leader.api, "new", node="n1")
    leader.api.fail_with(ClusterError("403"), "patch", "replace")
    leader.clock.advance(FULL_SECONDS)
    looks = leader.looks
    scopes, scope_of = list[Scope | None](), leader.keeper._scope

    def noted(live: LiveSettings) -> Scope | None:
        scopes.append(scope_of(live))
        return scopes[-1]

    leader.keeper._scope = noted  # type: ignore[method-assign]
    for _ in range(4):
        leader.keeper.run_once()
        leader.clock.advance(EVERY_SECONDS)
    assert (looks + 4, [True, False, False, False]) == (leader.looks, [one is None for one in scopes])
    leader.api.work()
    leader.keeper.run_once()
    assert "new" in leader.on_record()


@pytest.mark.parametrize("kind", ["unreadable", "gone"])
def test_what_could_not_be_written_anew_or_removed_is_tried_again(kind: str) -> None:
    leader = KeeperStage(MIRROR)
    if kind == "gone":
        leader.commit(put("r1"))
        leader.api.delete(LONGHORN_NODES, NAMESPACE, "n1")
        leader.commit(Drop(Purpose.REPLICA, "r1", "n1", "n1-d1"))
    else:
        body = {"metadata": {"name": "n1"}, "spec": {"term": 1, "diskAllocations": "x"}}
        leader.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, body)
    leader.api.fail_with(UnavailableError("503"), "patch", "replace", "delete")
    leader.round(nodes=None)
    assert leader.keeper.figures().last_failure
    leader.api.work()
    leader.clock.advance(EVERY_SECONDS)
    leader.keeper.run_once()
    if kind == "gone":
        assert leader.backend.read("n1").raw is None
    else:
        assert {"unreadable": 1} == leader.repairs


def test_without_the_kind_its_place_is_looked_for_once_a_minute_until_there_was_one() -> None:
    api = longhorn()
    api.put(CRDS, None, nodes_crd(has_field=False))
    api.absent.add(NODE_DISK_ALLOCATIONS.plural)
    holder = RecordHolder(api, NAMESPACE, lambda: 1, VirtualClock(), lambda _problem: None)
    assert LOOK_EVERY_SECONDS == holder._steps.run_once()
    assert holder.problem
    api.absent.clear()
    assert (LOOK_EVERY_SECONDS, "") == (holder._steps.run_once(), holder.problem)
    api.absent.add(NODE_DISK_ALLOCATIONS.plural)
    assert RETRY_SECONDS == holder._steps.run_once()


def test_until_the_api_server_has_told_nobody_knows_whether_there_is_a_record() -> None:
    api = longhorn()
    holder = RecordHolder(api, NAMESPACE, lambda: 1, VirtualClock(), lambda _problem: None)
    api.fail_with(UnavailableError("503"))
    for _ in range(2):
        with pytest.raises(NotReadyError, match="not known yet where allocations are on record"):
            holder.known_writer()
        with pytest.raises(UnavailableError):
            holder.look()
    api.work()
    api.absent.add(NODE_DISK_ALLOCATIONS.plural)
    holder.look()
    assert holder.problem
    assert holder.known_writer() is None


def test_without_a_place_there_is_no_record() -> None:
    leader = KeeperStage()
    add_replica(leader.api, "r1")
    leader.api.fail_with(UnavailableError("away"), "get", "list")
    with pytest.raises(UnavailableError):
        leader.holder.look()
    assert leader.holder.writer() is not None  # it may be back in a moment
    leader.api.work()
    leader.api.absent.add(NODE_DISK_ALLOCATIONS.plural)
    with pytest.raises(NotFoundError, match=r"nodediskallocations\.scheduling\.longhorn\.io: install the Custom"):
        leader.holder.look()
    assert (None, None) == (leader.holder.writer(), leader.holder.backend)
    leader.frozen = (NodeRecord("n1"),)
    leader.round()
    assert (False, 0) == (leader.keeper.figures().has_place, leader.keeper.figures().failures)


def test_only_nodes_with_news_are_looked_at_until_all_are() -> None:
    leader = KeeperStage()
    leader.round()
    add_replica(leader.api, "r1")
    add_replica(leader.api, "r2", node="n2")
    leader.round(nodes=["n2"])
    assert {"r2": 10} == leader.on_record()
    leader.round(FULL_SECONDS, nodes=())
    assert {"r1": 10, "r2": 10} == leader.on_record()


def test_an_entry_of_a_replica_on_a_node_without_news_is_told_from_one_without_a_replica() -> None:
    leader = KeeperStage()
    add_replica(leader.api, "r2", node="n2")
    leader.round()
    leader.round(nodes=())  # what was repaired is looked at once more
    leader.commit(put("r2"))
    leader.round(nodes=["n1"])
    assert ({}, {"r2": 10}) == (on_record(leader.backend, "n1"), on_record(leader.backend, "n2"))
    assert {"no-entry": 1, "disk-moved": 1} == leader.repairs


def test_another_authority_has_all_nodes_looked_at() -> None:
    leader = KeeperStage()
    leader.round()
    leader.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, {"metadata": {"name": "n1"}, "spec": {"term": "x"}})
    leader.round()
    leader.live = MIRROR
    leader.round(nodes=())
    assert {"unreadable": 1} == leader.repairs


def test_what_waits_is_looked_at_without_news_once_its_grace_is_over() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.round()
    looks = leader.looks
    leader.round(59, nodes=())
    assert (looks, 1) == (leader.looks, leader.keeper.figures().waiting)
    leader.round(1, nodes=())
    assert ({}, 0) == (leader.on_record(), leader.keeper.figures().waiting)


def test_what_waits_on_one_node_goes_on_waiting_when_another_has_news() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.round()
    leader.round(59, nodes=["n2"])
    assert ({"r1": 10}, 1) == (leader.on_record(), leader.keeper.figures().waiting)
    leader.round(1, nodes=["n2"])
    assert {} == leader.on_record()


def test_a_replica_that_shows_up_elsewhere_is_news_of_the_node_where_it_is_waited_for() -> None:
    leader = KeeperStage()
    leader.commit(put("r1"))
    leader.round()
    add_replica(leader.api, "r1", 10, "n2", "d1")
    leader.keeper.changed(Scope(frozenset({"n2"}), frozenset({"r1"})))
    leader.keeper.run_once()
    assert ({}, {"r1": 10}) == (on_record(leader.backend, "n1"), on_record(leader.backend, "n2"))


def test_of_a_node_only_what_has_changed_is_looked_at() -> None:
    leader = KeeperStage()
    for name in ("r1", "r2"):
        add_replica(leader.api, name, 10)
    add_image(leader.api, "i", 5, "n1-d1")
    leader.commit(put("waits"))
    leader.round()
    leader.keeper.run_once()  # what was repaired is looked at once more
    assert ({"r1": 10, "r2": 10, "i": 5, "waits": 10}, 1) == (leader.on_record(), leader.keeper.figures().waiting)
    leader.backend.write(leader.backend.read("n1"), [entry("waits")], 1)  # by hand
    leader.keeper.changed(Scope(frozenset({"n1"}), frozenset({"r2"})))
    leader.keeper.run_once()
    assert ({"r2": 10, "waits": 10}, 1) == (leader.on_record(), leader.keeper.figures().waiting)
    leader.round(60, nodes=())
    assert {"r2": 10} == leader.on_record()
    leader.round(nodes=["n1"])
    assert {"r1": 10, "r2": 10, "i": 5} == leader.on_record()
