"""Where replicas that may lie anywhere find room: full nodes cost next to nothing, and no other is passed over."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.judge.sets import Site, Sites
from controller.model.longhorn import Disk, LonghornNode, LonghornSettings
from controller.rules.demand import demands_of_pod
from tests.fakes.builders import LATER, TestCluster, disk, node

ROAMING = {"dataLocality": "disabled", "numberOfReplicas": "3"}
FULL_NODES = 1000
NAMES = [f"n{number}" for number in range(FULL_NODES)]


def large_cluster() -> TestCluster:
    """Many nodes that are too small, for a pod that may lie anywhere."""
    cluster = TestCluster().add_nodes(**dict.fromkeys(NAMES, 50))
    cluster.add_class("roaming", **ROAMING)
    cluster.add_pod("a", ("a", 100, "roaming"))
    return cluster


def test_the_one_node_with_room_among_many_full_ones_is_found_within_the_budget_of_a_call() -> None:
    cluster = large_cluster()
    cluster.put_node(node(NAMES[-1], free_gib=200))
    cluster.make_looks_cost(0.002)

    assert set(NAMES) == cluster.offered("a", *NAMES)


def test_a_round_of_the_wake_up_finds_it_as_well() -> None:
    cluster = large_cluster()
    assert not cluster.offered("a", *NAMES)
    cluster.put_node(node(NAMES[-1], free_gib=200))
    cluster.make_looks_cost(0.002)

    assert ["a"] == cluster.woken()


sizes = st.sampled_from([0.0, 5.0, 10.0, 50.0, 100.0])
disks = st.builds(
    lambda size, tags, flags: replace(
        disk("d", size, tags=tags), allow_scheduling=flags[0], ready=flags[1], eviction_requested=flags[2]
    ),
    sizes,
    st.sampled_from([(), ("ssd",)]),
    st.tuples(
        st.sampled_from([True, True, False]), st.sampled_from([True, True, False]), st.sampled_from([False, True])
    ),
)


@st.composite
def nodes(draw: st.DrawFn) -> list[LonghornNode]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        own: list[Disk] = [replace(entry, name=f"d{i}") for i, entry in enumerate(draw(st.lists(disks, max_size=3)))]
        facts = replace(node(f"n{number}", *own, zone=draw(st.sampled_from(["", "a", "b"]))), disks=())
        facts = replace(facts, disks=tuple(replace(entry, uuid=f"n{number}-{entry.name}") for entry in own))
        found.append(
            replace(
                facts,
                tags=draw(st.sampled_from([frozenset[str](), frozenset({"fast"})])),
                allow_scheduling=draw(st.sampled_from([True, True, False])),
                ready=draw(st.sampled_from([True, True, False])),
            )
        )
    return found


@settings(max_examples=200, deadline=None)
@given(
    nodes(),
    st.sampled_from([{}, {"diskSelector": "ssd"}, {"nodeSelector": "fast"}]),
    st.sampled_from([0.001, 5.0, 20.0, 50.0]),
    st.booleans(),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_reached_are_all_that_longhorn_may_believe_to_have_room(
    facts: list[LonghornNode], selector: dict[str, str], gib: float, is_placed: bool, soft: tuple[bool, bool, bool]
) -> None:
    node_soft, zone_soft, disk_soft = soft
    cluster = TestCluster(
        settings=LonghornSettings(
            soft_anti_affinity=node_soft, zone_soft_anti_affinity=zone_soft, disk_soft_anti_affinity=disk_soft
        )
    )
    cluster.add_class("roaming", **ROAMING, **selector)
    for entry in facts:
        cluster.put_node(entry)
    cluster.add_claim("a", gib, class_name="roaming")
    pod = cluster.add_pod("a", created=LATER)
    if is_placed:
        name = cluster.provision("a")
        cluster.attach(name, "", gib, locality="disabled", replica_count=3)
        cluster.place(name, facts[0].name, gib, disk_name="d0")
    world = cluster.allocator._world
    world.refresh()
    (demand,), _ = demands_of_pod(pod, world, world.settings)
    sites = Sites(world, demand)

    def has_room(site: Site) -> bool:
        return any(site.room.disks[disk].reach_bytes >= demand.size_bytes for disk in site.disks)

    assert list(filter(has_room, sites)) == list(filter(has_room, sites.reached()))
