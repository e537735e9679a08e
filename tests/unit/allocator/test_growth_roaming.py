"""Growth of volumes whose replicas are still to be placed on any node: no larger than every copy surely finds room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.allocator.world.reach import REPORT_GRACE_SECONDS
from controller.model.longhorn import LonghornSettings
from controller.model.quantity import bytes_text
from controller.rules.reasons import Reason
from tests.fakes.builders import GIB, TestCluster, disk, node, replica
from tests.fakes.rooms import OPEN
from tests.unit.allocator.growing import Growing

NODES = ("n1", "n2", "n3")


def roaming(*rooms_gib: float, copies: int = 3, gib: float = 10) -> Growing:
    """Nodes n1... with one disk of that room each; the volume of claim `a` has none of its copies placed, and its pod
    has chosen n1."""
    world = Growing(OPEN, d1=rooms_gib[0])
    cluster = world.cluster
    for number, room in enumerate(rooms_gib[1:], 2):
        cluster.add_node(f"n{number}", disk("d1", room))
    cluster.add_class("roaming", numberOfReplicas=str(copies), dataLocality="disabled")
    cluster.add_claim("a", gib, class_name="roaming")
    name = cluster.provision("a")
    world.grow_volume(name, gib, locality="disabled", replica_count=copies)
    for number in range(2, copies + 1):
        world.allocator.observe_replica(f"{name}-r-{number}", replica(f"{name}-r-{number}", name, gib))
    cluster.add_pod("a", "a")
    assert {"n1"} == cluster.offered("a", "n1")
    cluster.bind("a", "n1")
    assert {"*": int(gib)} == cluster.pending()
    return world


@pytest.mark.parametrize("gib", [401, 5000])
def test_no_roaming_volume_grows_beyond_every_disk(gib: int) -> None:
    world = roaming(400, 400, 400)
    refused = world.ask("a", gib)
    assert GrowthVerdict.REFUSED is refused.verdict
    assert [(Reason.NO_ROOM_IN_CLUSTER, "", "")] == [
        (entry.rejection.reason, entry.node, entry.disk) for entry in refused.obstacles
    ]
    assert f"{bytes_text(gib * GIB)}" in refused.obstacles[0].rejection.message
    assert 400 * GIB == refused.largest_bytes
    assert GrowthVerdict.ADMITTED is world.ask("a", 400).verdict


def test_as_many_copies_have_to_find_room_as_found_it_before() -> None:
    world = roaming(1000, 400, 400)
    assert 400 * GIB == world.ask("a", 500).largest_bytes


def test_copies_that_have_no_place_as_it_is_keep_no_others_from_growing() -> None:
    world = roaming(400, 300, copies=2)
    world.cluster.add_node("n2", disk("d1", 5))
    world.cluster.clock.advance(REPORT_GRACE_SECONDS)
    assert 400 * GIB == world.ask("a", 500).largest_bytes


def test_a_kind_of_disk_that_takes_no_file_of_that_size_is_no_way_round() -> None:
    """The one disk's file system takes no such file, the other is of a kind that takes none of the volume at all."""
    world = Growing(OPEN, d1=40_000)
    world.cluster.put_node(node("n1", disk("d1", 40_000), replace(disk("d2", 40_000), type="block")))
    world.cluster.add_claim("p", 100)
    world.cluster.provision("p")
    world.cluster.add_pod("p", "p")
    assert {"n1"} == world.cluster.offered("p", "n1")
    refused = world.ask("p", 20_000)
    assert GrowthVerdict.REFUSED is refused.verdict
    assert refused.largest_bytes < 16 * 1024 * GIB


ROOM = st.integers(20, 500)
SIZES = st.lists(st.integers(11, 1200), min_size=2, max_size=8, unique=True)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rooms=st.lists(ROOM, min_size=1, max_size=4),
    copies=st.integers(1, 3),
    others=st.lists(st.tuples(st.integers(1, 120), st.booleans()), max_size=4),
    sizes=SIZES,
)
def test_the_largest_size_that_would_fit_is_admitted_itself(
    rooms: list[int], copies: int, others: list[tuple[int, bool]], sizes: list[int]
) -> None:
    """Among pods whose volumes are promised, some on one node and some on any. A larger size than a refused one may
    well be admitted: it comes to fewer disks."""
    rooms = [max(rooms), *rooms] + [max(rooms)] * (copies - 1)  # so that the copies find room as it is
    world = roaming(*rooms, copies=copies)
    names = tuple(f"n{number}" for number in range(1, len(rooms) + 1))
    for number, (gib, is_local) in enumerate(others):
        pod, class_name = f"p{number}", "longhorn" if is_local else "roaming"
        world.cluster.add_claim(pod, gib, class_name=class_name)
        world.cluster.add_pod(pod, pod)
        world.cluster.offered(pod, *names)

    for size in sizes:
        outcome = world.ask("a", size, dry_run=True)
        if outcome.verdict is GrowthVerdict.ADMITTED:
            continue
        assert 10 * GIB <= outcome.largest_bytes < size * GIB
        assert GrowthVerdict.ADMITTED is world.ask("a", outcome.largest_bytes / GIB, dry_run=True).verdict


@pytest.mark.parametrize("disk_soft", [True, False])
def test_a_volume_grows_beside_its_own_replica_that_may_come_to_the_same_disk(disk_soft: bool) -> None:
    """One of two replicas lies on the only disk of n1, of 100 GiB; the other may come there as well."""
    cluster = TestCluster(settings=LonghornSettings(soft_anti_affinity=True, disk_soft_anti_affinity=disk_soft))
    cluster.add_class("two", dataLocality="disabled", numberOfReplicas="2")
    for name in ("n1", "n2"):
        cluster.add_node(name, disk("d1", 100, node=name))
    cluster.add_claim("v", 30, class_name="two")
    cluster.add_pod("v")
    assert cluster.offered("v", "n1")
    cluster.select_node("v", "n1")
    name = cluster.provision("v", copies=2, locality="disabled")
    cluster.bind("v", "n1")
    cluster.attach(name, "n1", 30, locality="disabled", replica_count=2)
    cluster.place(name, "n1", 30)
    cluster.let_figures_follow()

    def grow(gib: int) -> GrowthVerdict:
        return cluster.allocator.expansions.hold(GrowthRequest(name, gib * GIB, "ns", "v", is_dry_run=True)).verdict

    assert GrowthVerdict.ADMITTED is grow(50)
    assert (GrowthVerdict.REFUSED if disk_soft else GrowthVerdict.ADMITTED) is grow(60)
