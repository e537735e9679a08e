"""The leader's record follows what it knows, is found again by the next one, and is undone by nobody's hand."""

from __future__ import annotations

import contextlib
import logging
from itertools import count
from typing import Any

import pytest

from controller.errors import ClusterError, ConflictError, NotReadyError, RefusedWriteError, UnavailableError
from controller.kube.resources import (
    CRDS,
    LONGHORN_NODES,
    LONGHORN_REPLICAS,
    NODE_DISK_ALLOCATIONS,
    Resource,
)
from controller.model.allocations import Allocation, Purpose
from controller.model.records import FIELD
from controller.record.backends import LonghornNodeBackend, NodeDiskAllocationBackend
from controller.record.keeper import EVERY_SECONDS, FULL_SECONDS, LOOK_SECONDS, MOST_FAILURES
from controller.settings import LiveSettings
from tests.fakes.apiserver import Key
from tests.unit.record.stage import (
    MIRROR,
    NAMESPACE,
    NODES,
    OURS,
    WRITES,
    Crash,
    RecordLeader,
    Wanted,
    add_image,
    add_replica,
    add_volume,
    check_enough,
    entry,
    image_entry,
    longhorn,
    longhorn_node,
    records_of_our_own,
    set_field,
    touch_node,
    write,
)

AUTHORITIES = pytest.mark.parametrize("live", [OURS, MIRROR], ids=["disk-scheduler", "longhorn"])
PLACES = pytest.mark.parametrize("in_nodes", [False, True], ids=["own objects", "Longhorn Nodes"])


def lying(leader: RecordLeader, *entries: Allocation) -> None:
    """Replicas, where they are to be on record."""
    for one in entries:
        add_replica(leader.api, one.name, one.size_bytes, one.node)


# What the record has


@AUTHORITIES
@PLACES
def test_what_exists_is_adopted_and_followed(live: LiveSettings, in_nodes: bool) -> None:
    leader = RecordLeader(live, in_nodes=in_nodes)
    add_replica(leader.api, "r1")
    add_replica(leader.api, "r2", 20, "n2", "d2")
    add_image(leader.api, "i1", 7, "n3-d1")
    add_image(leader.api, "i2", 8, seen_on=["n3-d2"])  # is being removed
    leader.round()
    assert {"r1": 10, "r2": 20, "i1": 7, "i2": 8} == leader.on_record()
    touch_node(leader.api, "n1")  # as Longhorn does all the time
    before = leader.api.writes()
    leader.round()
    leader.round(FULL_SECONDS)
    assert (before, 3) == (leader.api.writes(), leader.keeper.figures().writes)
    add_replica(leader.api, "r1", 15)
    add_replica(leader.api, "r2", 20, "n3", "d2")
    add_image(leader.api, "i1", 7, "n2-d1")
    leader.round(EVERY_SECONDS)
    assert [{"r1": 15}, {"i1": 7}, {"r2": 20, "i2": 8}] == [leader.node(name) for name in NODES]
    leader.api.delete(LONGHORN_REPLICAS, NAMESPACE, "r1")
    leader.round(EVERY_SECONDS)
    assert {"i1": 7, "r2": 20, "i2": 8} == leader.on_record()


def test_what_lies_on_a_disk_goes_with_it_to_another_node_and_stays_when_its_name_changes() -> None:
    leader = RecordLeader()
    add_replica(leader.api, "r1")
    leader.round()
    raw = longhorn_node("n1")
    for disks in (raw["spec"]["disks"], raw["status"]["diskStatus"]):
        disks["renamed"] = disks.pop("d1")
    leader.api.put(LONGHORN_NODES, NAMESPACE, raw)
    leader.round(EVERY_SECONDS)
    assert (entry("r1"),) == leader.backend.read("n1").record.allocations
    raw = longhorn_node("n2")
    raw["spec"]["disks"]["x1"] = {"allowScheduling": True}
    raw["status"]["diskStatus"]["x1"] = {"diskUUID": "n1-d1"}
    leader.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node("n1", "d2"))
    leader.api.put(LONGHORN_NODES, NAMESPACE, raw)
    leader.round(EVERY_SECONDS)
    moved = Allocation(Purpose.REPLICA, "r1", "n2", "n1-d1", 10)
    assert ((moved,), ()) == tuple(leader.backend.read(name).record.allocations for name in ("n2", "n1"))


@PLACES
def test_what_is_given_by_name_is_told_the_same_by_the_next_leader(in_nodes: bool) -> None:
    leader = RecordLeader(in_nodes=in_nodes)
    leader.round()
    add_volume(leader.api)
    add_replica(leader.api, "r1", node="")
    add_image(leader.api, "i1", 7)
    leader.see()
    given, record = leader.allocator.allocations, leader.keeper.known()
    assert record is not None
    (replica,), (copy,) = given.place_replica("r1", 5.0).allocations, given.place_image("i1").allocations
    record.commit({replica.node, copy.node}, leader.clock.now() + 3)
    assert ({"r1": 10, "i1": 7}, 2) == (leader.on_record(), leader.keeper.figures().unmatched)
    leader.see()
    assert ([replica], [copy]) == (record.entries(Purpose.REPLICA, "r1"), record.entries(copy.purpose, "i1"))
    latter = RecordLeader(in_nodes=in_nodes, api=leader.api)
    given = latter.allocator.allocations
    assert ((replica,), (copy,)) == (given.place_replica("r1", 5.0).allocations, given.place_image("i1").allocations)
    latter.round()
    assert {"r1": 10, "i1": 7} == latter.on_record()


@pytest.mark.parametrize("lands", [False, True], ids=["not written", "written without an answer"])
def test_what_its_caller_could_not_free_is_freed_by_the_keeper_and_then_does_not_count(lands: bool) -> None:
    leader = RecordLeader()
    leader.give("r1")
    leader.round(EVERY_SECONDS)
    leader.round(EVERY_SECONDS)  # the keeper has nothing to look at any more
    if lands:
        leader.api.stored = no_answer
    else:
        leader.api.fail_with(ClusterError("403: no"), "patch")
    with pytest.raises(RefusedWriteError):
        leader.free("r1")
    assert ({} if lands else {"r1": 10}, 1) == (leader.on_record(), leader.keeper.figures().unmatched)
    leader.api.work()
    leader.round(EVERY_SECONDS)
    assert ({}, 0) == (leader.on_record(), leader.keeper.figures().unmatched)
    assert set() == leader.allocator.record.leaving()


def no_answer(_verb: str, _key: object) -> None:
    raise ClusterError("503: the answer was lost")


# Who writes it, and when


def test_a_mirror_can_be_switched_off_and_a_record_that_counts_cannot() -> None:
    leader = RecordLeader(LiveSettings(enabled=True, allocation_record=False))
    add_replica(leader.api, "r1")
    leader.round()
    assert ({}, False) == (leader.on_record(), leader.keeper.figures().is_kept)
    leader.live = LiveSettings(enabled=True, allocation_record=False, allocation_authority="disk-scheduler")
    leader.round()
    assert ({"r1": 10}, True) == (leader.on_record(), leader.keeper.figures().is_kept)


@pytest.mark.parametrize("what", ["follows", "sees too little"])
def test_only_a_leader_that_sees_the_cluster_writes(what: str) -> None:
    leader = RecordLeader()
    leader.round()
    add_replica(leader.api, "r1")
    leader.is_open, leader.is_fresh = what != "follows", what == "follows"
    leader.round(FULL_SECONDS)
    assert ({}, 0) == (leader.on_record(), leader.failures())
    leader.is_open = leader.is_fresh = True
    leader.round(EVERY_SECONDS)
    assert {"r1": 10} == leader.on_record()


def test_it_ends_in_the_middle_of_a_round_when_another_process_leads() -> None:
    leader = RecordLeader()
    for node in NODES:
        lying(leader, entry(f"r-{node}", 10, node))

    def lose(_verb: str, _key: Key) -> None:
        leader.is_open = False

    leader.api.stored = lose
    leader.round()
    assert ({"r-n1": 10}, 0) == (leader.on_record(), leader.failures())


def test_only_nodes_of_which_something_has_changed_are_compared_until_all_are() -> None:
    wanted = Wanted()
    leader = RecordLeader(projects=wanted)

    def compared(*news: str, seconds: float = EVERY_SECONDS) -> list[str]:
        wanted.asked.clear()
        wanted.changed.update(news)
        leader.round(seconds)
        return wanted.asked

    assert list(NODES) == compared()
    assert [] == compared()
    assert ["n2"] == compared("n2")
    set_field(leader.api, leader.backend, "n3", {})  # as a watch shows
    assert ["n3"] == compared()
    leader.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node("n4"))
    assert ["n4"] == compared()
    leader.api.delete(LONGHORN_NODES, NAMESPACE, "n4")
    assert ["n4"] == compared()
    assert list(NODES) == compared("n2", seconds=FULL_SECONDS)
    leader.keeper.changed()
    assert list(NODES) == compared()
    leader.is_fresh = False
    assert [] == compared("n2")
    leader.is_fresh = True
    assert list(NODES) == compared()


def test_what_another_leader_has_sent_misses_a_process_that_leads_again() -> None:
    leader = RecordLeader()
    add_replica(leader.api, "r1")
    leader.round()
    late = leader.backend.read("n1")
    leader.keeper.load()
    leader.commit(["n1"])
    with pytest.raises(ConflictError):
        leader.backend.write(late, ())


# Others' hands


def by_an_entry_more(leader: RecordLeader) -> None:
    write(leader.backend, entry("r1"), entry("theirs", 99))


def by_another_size(leader: RecordLeader) -> None:
    write(leader.backend, entry("r1", 1))


def by_one_less(leader: RecordLeader) -> None:
    write(leader.backend)


def by_garbage(leader: RecordLeader) -> None:
    set_field(leader.api, leader.backend, "n1", {"n1-d1": {"replicas": {"r1": 10, "r2": "x"}}, "n1-d2": 5})


def by_dropping_all(leader: RecordLeader) -> None:
    if isinstance(leader.backend, NodeDiskAllocationBackend):
        leader.api.delete(NODE_DISK_ALLOCATIONS, NAMESPACE, "n1")
    else:
        leader.api.patch(LONGHORN_NODES, NAMESPACE, "n1", {"spec": {FIELD: None}})


@PLACES
@pytest.mark.parametrize("edit", [by_an_entry_more, by_another_size, by_one_less, by_garbage, by_dropping_all])
def test_what_somebody_did_to_it_by_hand_is_undone(in_nodes: bool, edit: Any) -> None:
    leader = RecordLeader(in_nodes=in_nodes)
    add_replica(leader.api, "r1")
    leader.round()
    leader.round(EVERY_SECONDS)
    edit(leader)
    leader.round(EVERY_SECONDS)
    leader.see()
    assert ({"r1": 10}, {}) == (leader.on_record(), leader.keeper.figures().unreadable)


# Writes that fail


@pytest.mark.parametrize("lands", [False, True], ids=["not sent", "no answer"])
@PLACES
def test_a_crash_in_a_round_never_leaves_too_little(in_nodes: bool, lands: bool) -> None:
    """At each call: replicas change places, others grow, and one goes."""
    before = [*(entry(f"r-{node}", 10, node) for node in NODES), entry("mover"), entry("back", node="n3")]
    after = [*(entry(f"r-{node}", 20, node) for node in NODES), entry("mover", node="n3"), entry("back")]
    for call in count():
        leader = RecordLeader(in_nodes=in_nodes)
        lying(leader, *before, entry("goes"))
        leader.round()
        leader.api.delete(LONGHORN_REPLICAS, NAMESPACE, "goes")
        lying(leader, *after)
        with leader.api.crash_at(call, lands=lands), contextlib.suppress(Crash):
            leader.round(EVERY_SECONDS)
            break
        check_enough(leader.keeper.load(), [*before, entry("goes")], after)
        latter = RecordLeader(in_nodes=in_nodes, api=leader.api)
        latter.round()
        assert set(after) == set(latter.keeper.load())
    assert 5 <= call


def test_what_cannot_be_written_on_one_node_is_not_freed_on_another_and_nothing_else_waits_for_that() -> None:
    leader = RecordLeader()
    lying(leader, entry("mover"), entry("goes"), entry("also goes", node="n3"))
    leader.round()
    lying(leader, entry("mover", node="n2"))
    for name in ("goes", "also goes"):
        leader.api.delete(LONGHORN_REPLICAS, NAMESPACE, name)
    leader.refuse("n2")
    leader.round(EVERY_SECONDS)
    figures = leader.keeper.figures()
    assert ({"mover": 10, "goes": 10}, {}, {}) == tuple(leader.node(name) for name in NODES)
    assert (1, "n2: the record of n2 cannot be written: no right to") == (figures.failures, figures.last_failure)
    leader.refuse()
    leader.round(EVERY_SECONDS)
    assert ({}, {"mover": 10}, {}) == tuple(leader.node(name) for name in NODES)


def test_an_image_whose_copy_cannot_be_written_anywhere_else_stays_and_others_go() -> None:
    """The copy that is there on the node that refuses keeps nobody waiting."""
    leader = RecordLeader()
    add_image(leader.api, "i1", 7, "n1-d1", "n2-d1")
    add_image(leader.api, "i2", 7, "n1-d1")
    leader.round()
    add_image(leader.api, "i1", 7, "n2-d1")
    add_image(leader.api, "i2", 7, "n1-d1", "n2-d1")
    leader.refuse("n2")
    leader.round(EVERY_SECONDS)
    assert {"i2": 7} == leader.node("n1")


def with_more_nodes() -> tuple[RecordLeader, list[str]]:
    """Each with a replica that is not on record yet."""
    leader, names = RecordLeader(), [f"m{number}" for number in range(5)]
    for name in names:
        leader.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node(name))
        lying(leader, entry(f"r-{name}", 10, name))
    return leader, names


def test_nodes_that_cannot_be_written_keep_no_other_waiting() -> None:
    leader, names = with_more_nodes()
    leader.refuse(*names)
    for _ in range(3):
        leader.round(EVERY_SECONDS)
    leader.refuse(*names[:MOST_FAILURES])
    for _ in names:
        leader.round(EVERY_SECONDS)
    assert {"r-m3": 10, "r-m4": 10} == leader.on_record(*names)
    leader.refuse()
    leader.round(EVERY_SECONDS)
    assert {f"r-{name}": 10 for name in names} == leader.on_record(*names)


def test_what_keeps_some_nodes_in_a_row_from_being_written_keeps_all_for_this_round() -> None:
    leader, names = with_more_nodes()
    tried = list[str]()

    def fail(verb: str, _resource: Resource) -> None:
        if verb == "create":
            tried.append(verb)
            leader.clock.advance(5.0)
            raise UnavailableError("503")

    leader.api.fail = fail
    leader.round()
    assert (MOST_FAILURES, MOST_FAILURES) == (len(tried), leader.failures())
    leader.api.work()
    leader.round(EVERY_SECONDS)
    assert names == records_of_our_own(leader.api)


def test_a_failure_is_told_once_a_node_and_again_after_another_one_or_a_write(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    leader, expected = RecordLeader(), list[str]()
    for size, error in enumerate(("no right to", "422: no", "", "422: no"), 1):
        leader.api.work()
        lying(leader, entry("r1", size), entry("r2", size, "n2"))
        if error:
            leader.api.fail_with(ClusterError(error), *WRITES)
            for node in ("n1", "n2"):
                expected.append(
                    f'record not written node={node} error="the record of {node} cannot be written: {error}"'
                )
        for _ in range(3):
            leader.round(EVERY_SECONDS)
    assert expected == caplog.messages
    assert 18 == leader.failures()


# Objects that say nothing


@AUTHORITIES
def test_the_record_of_a_node_that_is_gone_goes(live: LiveSettings) -> None:
    leader = RecordLeader(live)
    for node in NODES:
        add_replica(leader.api, f"r-{node}", node=node)
    leader.round()
    for node in ("n1", "n2"):
        leader.api.delete(LONGHORN_REPLICAS, NAMESPACE, f"r-{node}")
    leader.api.delete(LONGHORN_NODES, NAMESPACE, "n1")
    leader.round(EVERY_SECONDS)
    leader.round(EVERY_SECONDS)  # by what was written
    assert ["n2", "n3"] == records_of_our_own(leader.api)
    leader.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node("n1"))
    add_replica(leader.api, "r1")
    leader.round(EVERY_SECONDS)
    assert ({"r1": 10}, 0) == (leader.node("n1"), leader.failures())


def test_one_that_only_the_watch_shows_as_empty_stays() -> None:
    leader = RecordLeader()
    write(leader.backend, node="gone")
    leader.see()
    write(leader.backend, entry("r1", node="gone"), node="gone")
    leader.keeper.run_once()
    assert {"r1": 10} == leader.node("gone")


@pytest.mark.parametrize("where", ["own objects", "Longhorn Nodes", "moved there meanwhile"])
def test_a_place_that_was_given_on_a_node_that_is_gone_ends_when_it_is_freed(where: str) -> None:
    leader = RecordLeader(in_nodes=where == "Longhorn Nodes")
    leader.api.delete(LONGHORN_NODES, NAMESPACE, leader.give("r1"))
    leader.round(EVERY_SECONDS)
    leader.set_field(is_there=where != "own objects")
    for _ in range(2):
        leader.round(FULL_SECONDS)
    assert ([] if where == "Longhorn Nodes" else ["r1"]) == [one.name for one in leader.keeper.load()]
    assert 1 == leader.keeper.figures().unmatched
    leader.free("r1")
    for _ in range(2):
        leader.round(FULL_SECONDS)
    assert ([], [], 0) == (leader.keeper.load(), records_of_our_own(leader.api), leader.keeper.figures().unmatched)


def test_an_empty_record_that_cannot_be_removed_is_tried_again() -> None:
    leader = RecordLeader()
    for node in ("a", "b"):
        set_field(leader.api, leader.backend, node, {})
    leader.api.fail_with(ClusterError("no right to"), "delete")
    leader.round()
    assert 2 == leader.failures()
    leader.api.work()
    leader.round(EVERY_SECONDS)
    assert [] == records_of_our_own(leader.api)


# Where it stands


def moving() -> RecordLeader:
    """Its record is in our own objects, and Longhorn's Nodes have got the field; one entry is a given place."""
    leader = RecordLeader()
    lying(leader, *(entry(f"r-{node}", 10, node) for node in NODES))
    leader.give("given")
    leader.round(EVERY_SECONDS)
    leader.set_field(is_there=True)
    return leader


ALL = {"r-n1": 10, "r-n2": 10, "r-n3": 10, "given": 10}


def test_when_longhorns_nodes_get_the_field_the_record_goes_there_and_our_own_objects_go() -> None:
    leader = moving()
    leader.round(LOOK_SECONDS)
    leader.round(EVERY_SECONDS)
    assert (ALL, []) == (leader.on_record(), records_of_our_own(leader.api))
    leader.see()
    figures = leader.keeper.figures()
    assert ("longhorn-node", "", 4, 0) == (figures.place, figures.problem, figures.entries, figures.failures)
    set_field(leader.api, NodeDiskAllocationBackend(leader.api, NAMESPACE), "n1", {"n1-d1": {"replicas": {"x": 1}}})
    leader.round(EVERY_SECONDS)  # by a former leader that has not found the field
    assert (ALL, []) == (leader.on_record(), records_of_our_own(leader.api))


def test_who_leads_no_more_removes_none_of_what_the_next_leader_has_written(caplog: pytest.LogCaptureFixture) -> None:
    """That one has not found the field yet, and writes our own objects."""
    caplog.set_level(logging.WARNING)
    leader = moving()
    own = NodeDiskAllocationBackend(leader.api, NAMESPACE)

    def lose(verb: str, _key: Key) -> None:
        if verb == "DELETED":
            leader.is_open, leader.api.stored = False, lambda _verb, _key: None
            write(own, entry("told by the next leader", node="n2"), node="n2")

    leader.api.stored = lose
    leader.round(LOOK_SECONDS)
    leader.round(EVERY_SECONDS)
    assert ["n2", "n3"] == records_of_our_own(leader.api)
    assert ([], 0) == (caplog.messages, leader.failures())


@pytest.mark.parametrize("lands", [False, True], ids=["not sent", "no answer"])
def test_at_no_moment_is_less_on_record_in_both_places_together(lands: bool) -> None:
    for call in count():
        leader = moving()
        with leader.api.crash_at(call, lands=lands), contextlib.suppress(Crash):
            leader.round(LOOK_SECONDS)
            leader.round(EVERY_SECONDS)
            break
        assert set(ALL) == {one.name for one in leader.keeper.load()}
        latter = RecordLeader(in_nodes=True, api=leader.api)
        latter.round()
        latter.round(EVERY_SECONDS)
        assert (ALL, []) == (latter.on_record(), records_of_our_own(latter.api))
    assert 6 <= call


@pytest.mark.parametrize("fault", [ClusterError("no right to"), ValueError("a bug")], ids=repr)
def test_our_own_objects_stay_while_a_node_cannot_be_written_or_a_round_breaks_off(fault: Exception) -> None:
    leader = moving()

    def fail(verb: str, resource: Resource) -> None:
        if (verb, resource) == ("patch", LONGHORN_NODES):
            raise fault

    leader.api.fail = fail
    for _ in range(2):
        with contextlib.suppress(ValueError):
            leader.round(LOOK_SECONDS)
    assert list(NODES) == records_of_our_own(leader.api)
    assert ("no right to" in leader.keeper.figures().last_failure) is isinstance(fault, ClusterError)
    leader.api.work()
    leader.round(EVERY_SECONDS)
    assert ALL == leader.on_record()
    leader.round(FULL_SECONDS)
    assert (ALL, []) == (leader.on_record(), records_of_our_own(leader.api))


@pytest.mark.parametrize("what", ["follows", "keeps no record"])
def test_our_own_objects_are_not_removed_by_a_process_that(what: str) -> None:
    leader = moving()
    leader.is_open = what != "follows"
    leader.live = LiveSettings(enabled=True, allocation_record=False) if leader.is_open else OURS
    for _ in range(2):
        leader.round(LOOK_SECONDS)
    assert ({}, list(NODES)) == (leader.on_record(), records_of_our_own(leader.api))


def test_a_new_leader_reads_what_stands_at_both_places() -> None:
    api = longhorn()
    write(LonghornNodeBackend(api, NAMESPACE), entry("r1"), image_entry("i1"))
    write(NodeDiskAllocationBackend(api, NAMESPACE), entry("r2", node="n2"), node="n2")
    set_field(api, NodeDiskAllocationBackend(api, NAMESPACE), "n3", {"n3-d1": {"replicas": {"r3": 5, "r4": "x"}}})
    leader = RecordLeader(api=api)
    api.page_size = 1
    there = [entry("r1"), image_entry("i1"), entry("r2", node="n2"), entry("r3", 5, "n3")]
    assert sorted(there) == sorted(leader.keeper.load())
    api.absent.add(NODE_DISK_ALLOCATIONS.plural)
    assert sorted([entry("r1"), image_entry("i1")]) == sorted(leader.keeper.load())
    api.fail_with(UnavailableError("503"), "list")
    with pytest.raises(UnavailableError):
        leader.keeper.load()
    leader.live = MIRROR
    assert [] == leader.keeper.load()


MOST = 2**63 - 1
ABSURD: dict[str, Any] = {
    "n1-d1": {"replicas": {"r1": MOST, "placed": MOST, "x" * 10_000: MOST}, "backingImages": {"i1": MOST}},
    "n1-d2": {"replicas": {"r1": MOST, "nobody": MOST}, "backingImages": {"unsized": MOST}},
    "no disk of anybody": {"replicas": {"r1": MOST}},
}
LATER = {"n1-d1": {"replicas": {"r1": {"size": 10, "term": 99}}, "term": 99}, "term": 99}
MANY = {f"n1-d{disk}": {"replicas": {f"e-{disk}-{number}": MOST for number in range(10_000)}} for disk in range(10)}


@PLACES
@pytest.mark.parametrize("forged", [ABSURD, LATER, MANY], ids=["absurd bytes and names", "a later term", "many"])
def test_whatever_somebody_wrote_there_closes_no_node_for_the_next_leader(
    in_nodes: bool, forged: dict[str, Any]
) -> None:
    """Entries have no terms. What a leader could not have given does not count, and is written over."""
    leader = RecordLeader(in_nodes=in_nodes)
    add_volume(leader.api)
    add_volume(leader.api, "v-placed")
    add_replica(leader.api, "r1", node="")
    add_replica(leader.api, "placed", volume="v-placed")
    add_image(leader.api, "i1", 7, "n2-d1", seen_on=("n2-d1",))
    add_image(leader.api, "unsized", 0, "n2-d1")
    set_field(leader.api, leader.backend, "n1", forged)
    latter = RecordLeader(in_nodes=in_nodes, api=leader.api)
    for _ in range(2):
        latter.round(EVERY_SECONDS)
    latter.see()
    assert ({}, 0) == (latter.keeper.figures().unreadable, latter.failures())
    there = latter.keeper.load()
    assert max(one.size_bytes for one in there) <= 10
    assert {one.name for one in there} <= {"r1", "placed", "i1", "unsized"}
    assert () == tuple(latter.allocator.snapshot().disks_over)
    assert "n1" in {latter.give(f"new-{number}") for number in range(6)}


def test_without_a_place_there_is_no_record_until_a_look_finds_one() -> None:
    leader = RecordLeader()
    add_replica(leader.api, "r1")
    leader.api.absent.add(NODE_DISK_ALLOCATIONS.plural)
    leader.round()
    figures = leader.keeper.figures()
    assert (None, "", 0) == (leader.keeper.known(), figures.place, figures.failures)
    assert "nodediskallocations.scheduling.longhorn.io: install the CustomResourceDefinition" in figures.problem
    leader.live = MIRROR  # the record is optional then, and this a healthy installation
    assert "" == leader.keeper.figures().problem
    leader.live = OURS
    leader.api.absent.clear()
    leader.round(LOOK_SECONDS - 1)
    assert leader.keeper.known() is None
    leader.round(1)
    assert {"r1": 10} == leader.on_record()
    assert ("node-disk-allocation", "") == (leader.keeper.figures().place, leader.keeper.figures().problem)


def test_until_a_look_has_told_nobody_knows_whether_there_is_a_record() -> None:
    leader = RecordLeader()
    leader.api.fail_with(UnavailableError("503: away"))
    for why in ("wait", "503: away"):
        with pytest.raises(NotReadyError, match=f"not known yet where allocations are on record: {why}"):
            leader.keeper.known()
        leader.round()
    leader.api.work()
    leader.round()
    assert leader.keeper.known() is not None


def test_a_look_that_tells_nothing_leaves_it_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    leader = RecordLeader()
    leader.round()
    leader.api.fail_with(UnavailableError("503: away"), "get", about=CRDS)
    for _ in range(3):
        leader.round(LOOK_SECONDS)
    add_replica(leader.api, "r1")
    leader.round(EVERY_SECONDS)
    assert ({"r1": 10}, "503: away") == (leader.on_record(), leader.keeper.figures().problem)
    assert ["record of allocations: 503: away"] == caplog.messages
