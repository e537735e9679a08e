"""The rules for one node and one disk, on both sides of every limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.model.longhorn import (
    Disk,
    DiskNeeds,
    EngineImage,
    ImageNeeds,
    InstanceManager,
    LonghornNode,
    SpacePolicy,
    TopologyTerm,
)
from controller.model.workload import KubeNode
from controller.rules.eligibility import (
    EXT_LIMIT_BYTES,
    XFS_LIMIT_BYTES,
    Engines,
    check_disk_for,
    check_disk_space,
    check_engine,
    check_node_for,
    check_node_tags,
    disk_takes,
    is_under_balancing_pressure,
    minimal_available,
    observed_scheduled,
    provisioning_limit,
    room_of_disk,
    wrapped,
)
from controller.rules.reasons import Reason, Rejection
from tests.fakes import builders
from tests.oracle.reasons import longhorn_reason

GIB = 1024**3
DEFAULT = SpacePolicy()


def disk(maximum: int = 0, available: int = 0, *, reserved: int = 0, scheduled: int = 0, **other: object) -> Disk:
    made = replace(
        builders.disk(),
        maximum_bytes=maximum,
        available_bytes=available,
        reserved_bytes=reserved,
        scheduled_bytes=scheduled,
    )
    return replace(made, **other)  # type: ignore[arg-type]


def space(over: int = 100, least: int = 0) -> SpacePolicy:
    return SpacePolicy(over_provisioning_pct=over, minimal_available_pct=least)


def reason_of(rejection: Rejection | None) -> Reason | None:
    return None if rejection is None else rejection.reason


# Space


@pytest.mark.parametrize(
    ("facts", "policy", "size", "required", "expected"),
    [
        pytest.param(disk(0, 5), space(), 0, 0, Reason.TOO_FULL, id="nothing at all"),
        pytest.param(disk(10, 0), space(), 0, 0, Reason.TOO_FULL, id="nothing available"),
        pytest.param(disk(1, 1), space(), 1, 0, None, id="a disk of one byte"),
        pytest.param(disk(-1, 5), space(), 0, 0, Reason.TOO_FULL, id="a negative maximum"),
        pytest.param(disk(10, -5), space(), 0, 0, Reason.TOO_FULL, id="negative available"),
        pytest.param(disk(100, 25), space(least=25), 0, 0, Reason.TOO_FULL, id="minimum reached"),
        pytest.param(disk(100, 26), space(least=25), 0, 0, None, id="a byte above the minimum"),
        pytest.param(disk(100, 60), space(least=25), 0, 35, Reason.TOO_FULL, id="copying down to the minimum"),
        pytest.param(disk(100, 60), space(least=25), 0, 34, None, id="copying to a byte above it"),
        pytest.param(disk(103, 25), space(least=25), 0, 0, Reason.TOO_FULL, id="25.75 is cut to 25"),
        pytest.param(disk(103, 26), space(least=25), 0, 0, None, id="so 26 is more than the minimum"),
        pytest.param(disk(100, 100, scheduled=60), space(), 40, 0, None, id="filled exactly"),
        pytest.param(disk(100, 100, scheduled=60), space(), 41, 0, Reason.INSUFFICIENT_STORAGE, id="a byte too many"),
        pytest.param(disk(100, 100, reserved=30), space(), 70, 0, None, id="reserved leaves the rest"),
        pytest.param(disk(100, 100, reserved=30), space(), 71, 0, Reason.INSUFFICIENT_STORAGE, id="and no more"),
        pytest.param(disk(100, 100, reserved=101), space(), 0, 0, Reason.INSUFFICIENT_STORAGE, id="negative limit"),
        pytest.param(disk(100, 100, reserved=-20), space(), 120, 0, None, id="negative reserved adds"),
        pytest.param(disk(100, 100, scheduled=-20), space(), 120, 0, None, id="negative scheduled adds"),
        pytest.param(disk(101, 101), space(over=150), 151, 0, None, id="151.5 is cut to 151"),
        pytest.param(disk(101, 101), space(over=150), 152, 0, Reason.INSUFFICIENT_STORAGE, id="152 is above it"),
        pytest.param(
            disk(100, 1, scheduled=0), space(), 100, 0, None, id="available is no matter of over-provisioning"
        ),
        pytest.param(disk(100, 100), space(over=0), 1, 0, Reason.INSUFFICIENT_STORAGE, id="no provisioning"),
        pytest.param(disk(100, 100), space(over=0), 0, 0, None, id="nothing fits into nothing"),
    ],
)
def test_space(facts: Disk, policy: SpacePolicy, size: int, required: int, expected: Reason | None) -> None:
    rejection = check_disk_space(facts, size, required, facts.scheduled_bytes, policy)
    assert expected == reason_of(rejection)


def test_a_negative_limit_is_cut_toward_zero() -> None:
    assert -1 == provisioning_limit(disk(100, 100, reserved=103), space(over=50))


def test_beyond_53_bits_the_last_bits_of_limits_blur() -> None:
    odd = 2**53 + 1
    assert 2**53 == provisioning_limit(disk(odd, odd), space())
    assert check_disk_space(disk(odd, odd), odd, 0, 0, space()) is not None
    assert check_disk_space(disk(odd, odd), 2**53, 0, 0, space()) is None
    assert 2**53 == minimal_available(disk(odd, odd), space(least=100))
    assert check_disk_space(disk(odd, odd), 0, 0, 0, space(least=100)) is None  # one byte above the blurred minimum
    assert check_disk_space(disk(odd, odd - 1), 0, 0, 0, space(least=100)) is not None


def test_sums_wrap_around_as_64_bit_integers_do() -> None:
    most = 2**63 - 1
    assert (most, -(2**63), 0, -1) == (wrapped(most), wrapped(most + 1), wrapped(2**64), wrapped(2**64 - 1))
    facts = disk(100, 100)
    assert check_disk_space(facts, 2, 0, most, space()) is None  # the sum is negative, and Longhorn takes it
    assert check_disk_space(facts, 1, 0, most - 1, space()) is not None


def test_the_largest_files_of_the_file_systems() -> None:
    assert (17592186044416, 9223372036854775807) == (EXT_LIMIT_BYTES, XFS_LIMIT_BYTES)  # 16 TiB, 8 EiB less a byte


def test_a_negative_limit_is_as_far_below_nothing_as_64_bits_go() -> None:
    assert -1000 == provisioning_limit(disk(0, 0, reserved=1000), space())
    assert -(2**62) == provisioning_limit(disk(0, 0, reserved=2**62), space())
    assert -(2**63) == provisioning_limit(disk(0, 0, reserved=2**62), space(over=300))


def test_replicas_count_for_what_the_disks_figure_lacks_of_them() -> None:
    facts = disk(scheduled=60, scheduled_replicas={"same": 20, "smaller": 30, "larger": 10})
    made = [builders.replica("same", "v"), builders.replica("smaller", "v"), builders.replica("larger", "v")]
    sized = [replace(replica, size_bytes=size) for replica, size in zip(made, (20, 25, 11), strict=True)]
    assert 60 == observed_scheduled(facts, sized[:2])
    assert 61 == observed_scheduled(facts, sized)
    assert 68 == observed_scheduled(facts, [*sized, replace(made[0], name="unlisted", size_bytes=7)])


def test_a_limit_beyond_64_bits_takes_nothing() -> None:
    facts = disk(2**62, 2**62)
    assert provisioning_limit(facts, space(over=199)) > 2**62
    assert -(2**63) == provisioning_limit(facts, space(over=200))
    assert 2**63 - 1 == minimal_available(disk(2**63 - 1, 1), space(least=100))


def test_the_message_names_the_numbers() -> None:
    rejection = check_disk_space(disk(100, 90, reserved=10, scheduled=60), 31, 5, 60, space())
    assert rejection is not None
    assert "d1: 31 bytes + 60 scheduled is more than 90, 100 % of 100 - 10 reserved" == rejection.message
    assert "insufficient storage" == longhorn_reason(rejection.reason)
    empty = check_disk_space(disk(10, 0), 1, 0, 0, space())
    assert empty is not None
    assert "d1: 0 bytes available of 10" == empty.message


def test_the_two_disks_of_the_policy_document() -> None:
    gb = 1000**3
    disk_x, disk_y = disk(4 * gb, 1 * gb), disk(8 * gb, 2 * gb, reserved=1 * gb, scheduled=2 * gb)

    assert Reason.TOO_FULL == reason_of(check_disk_space(disk_x, 0, 0, 0, space(least=25)))
    assert check_disk_space(disk_x, 0, 0, 0, space(least=0)) is None
    assert 800_000_000 == minimal_available(disk_y, space(least=10))
    assert 7 * gb == provisioning_limit(disk_y, space())
    assert check_disk_space(disk_y, 5 * gb, 0, 2 * gb, space(least=10)) is None
    assert check_disk_space(disk_y, 5 * gb + 1, 0, 2 * gb, space(least=10)) is not None
    assert Reason.TOO_FULL == reason_of(check_disk_space(disk_y, 0, 0, 2 * gb, space(least=25)))  # 2 GB of 8 GB


# State, type, file system, tags

V1 = DiskNeeds()
V2 = DiskNeeds(data_engine="v2")
BIG = 2**62


@pytest.mark.parametrize(
    ("facts", "needs", "size", "expected"),
    [
        pytest.param(disk(9, 9), V1, 1, None, id="plain"),
        pytest.param(disk(9, 9, allow_scheduling=False), V1, 1, Reason.DISK_UNSCHEDULABLE, id="not allowed"),
        pytest.param(disk(9, 9, eviction_requested=True), V1, 1, Reason.DISK_UNSCHEDULABLE, id="evicting"),
        pytest.param(disk(9, 9, schedulable=False), V1, 1, Reason.DISK_UNSCHEDULABLE, id="condition"),
        pytest.param(disk(9, 9, ready=False), V1, 1, None, id="Ready is not asked"),
        pytest.param(disk(9, 9, uuid=""), V1, 1, Reason.DISK_UNSCHEDULABLE, id="no UUID yet"),
        pytest.param(disk(9, 9, type="block"), V1, 1, Reason.DISK_TYPE, id="v1 on block"),
        pytest.param(disk(9, 9), V2, 1, Reason.DISK_TYPE, id="v2 on a file system"),
        pytest.param(disk(9, 9, type="block", filesystem=""), V2, 1, None, id="v2 on block"),
        pytest.param(disk(BIG, BIG), V1, EXT_LIMIT_BYTES - 1, None, id="below ext4's limit"),
        pytest.param(disk(BIG, BIG), V1, EXT_LIMIT_BYTES, Reason.INCOMPATIBLE_SIZE, id="at ext4's limit"),
        pytest.param(disk(BIG, BIG, filesystem="ext3"), V1, EXT_LIMIT_BYTES, Reason.INCOMPATIBLE_SIZE, id="any ext"),
        pytest.param(disk(BIG, BIG, filesystem="xfs"), V1, EXT_LIMIT_BYTES, None, id="xfs takes more"),
        pytest.param(disk(BIG * 2 - 1, BIG, filesystem="xfs"), V1, XFS_LIMIT_BYTES, Reason.INCOMPATIBLE_SIZE, id="xfs"),
        pytest.param(disk(BIG, BIG, filesystem="xfs"), V1, XFS_LIMIT_BYTES - 1, Reason.INSUFFICIENT_STORAGE, id="xfs-"),
        pytest.param(disk(BIG, BIG, filesystem="btrfs"), V1, BIG, None, id="no known limit"),
        pytest.param(disk(BIG, BIG, type="block", filesystem="ext4"), V2, BIG, None, id="v2 has no limit"),
        pytest.param(disk(9, 9, tags=frozenset({"ssd"})), V1, 1, None, id="no selector takes tagged disks"),
        pytest.param(disk(9, 9), DiskNeeds(disk_selector=("ssd",)), 1, Reason.DISK_TAGS, id="tag missing"),
    ],
)
def test_disks(facts: Disk, needs: DiskNeeds, size: int, expected: Reason | None) -> None:
    policy = space()
    rejection = check_disk_for(facts, needs, size, 0, 0, policy)

    assert expected == reason_of(rejection)
    if expected is not Reason.DISK_UNSCHEDULABLE:  # a room is made of usable disks only
        room = room_of_disk(facts, (), policy)
        takes = disk_takes(room, needs, size, 0, policy) and size <= room.free_bytes
        assert takes == (expected is None)


@pytest.mark.parametrize(
    ("tags", "selector", "image", "allow_empty", "expected"),
    [
        ((), (), None, True, True),
        ((), (), None, False, True),
        (("a",), (), None, True, True),
        (("a",), (), None, False, False),
        (("a",), ("a",), None, False, True),
        (("a", "b"), ("a",), None, False, True),
        (("a",), ("a", "b"), None, True, False),
        (("a",), ("A",), None, True, False),
        (("a",), (" a",), None, True, False),
        (("a",), ("",), None, True, False),
        (("a",), ("a",), (), True, True),
        (("a",), ("a",), (), False, False),  # the image's empty selector counts by itself
        (("a",), ("a",), ("a",), False, True),
        (("a",), ("a",), ("b",), True, False),
        (("a", "b"), (), ("b",), True, True),
        (("a", "b"), (), ("b",), False, False),
    ],
)
def test_tags(
    tags: tuple[str, ...],
    selector: tuple[str, ...],
    image: tuple[str, ...] | None,
    allow_empty: bool,
    expected: bool,
) -> None:
    """The same for nodes and disks, each by its own setting."""
    policy = SpacePolicy(
        minimal_available_pct=0, allow_empty_node_selector=allow_empty, allow_empty_disk_selector=not allow_empty
    )
    for_node = DiskNeeds(node_selector=selector, image=None if image is None else ImageNeeds(node_selector=image))
    assert expected == check_node_tags(frozenset(tags), for_node, policy)
    node = replace(builders.node(), tags=frozenset(tags))
    assert (None if expected else Reason.NODE_TAGS) == reason_of(check_node_for(node, for_node, policy))
    assert check_node_for(node, for_node, policy, with_tags=False) is None

    policy = replace(policy, allow_empty_node_selector=not allow_empty, allow_empty_disk_selector=allow_empty)
    for_disk = DiskNeeds(disk_selector=selector, image=None if image is None else ImageNeeds(disk_selector=image))
    rejection = check_disk_for(disk(9, 9, tags=frozenset(tags)), for_disk, 1, 0, 0, policy)
    assert (None if expected else Reason.DISK_TAGS) == reason_of(rejection)


# Nodes


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, None),
        ({"deleting": True}, Reason.NODE_DELETING),
        ({"ready": False}, Reason.NODE_NOT_READY),
        ({"schedulable": False}, Reason.NODE_UNSCHEDULABLE),
        ({"allow_scheduling": False}, Reason.NODE_UNSCHEDULABLE),
    ],
)
def test_nodes(change: dict[str, bool], expected: Reason | None) -> None:
    node = replace(builders.node(), **change)  # type: ignore[arg-type]
    rejection = check_node_for(node, V1, DEFAULT)
    assert expected == reason_of(rejection)
    assert rejection is None or longhorn_reason(rejection.reason) == "nodes are unavailable"


@pytest.mark.parametrize(
    ("needs", "kube_nodes", "expected"),
    [
        (V2, None, None),
        (V2, {"n1": KubeNode("n1", unschedulable=False)}, None),
        (V2, {"n1": KubeNode("n1", unschedulable=False, disables_v2=True)}, Reason.V2_DISABLED),
        (V2, {}, Reason.V2_DISABLED),
        (V1, {"n1": KubeNode("n1", unschedulable=False, disables_v2=True)}, None),
        (V1, {}, None),
    ],
)
def test_v2_nodes(needs: DiskNeeds, kube_nodes: dict[str, KubeNode] | None, expected: Reason | None) -> None:
    assert expected == reason_of(check_node_for(builders.node(), needs, DEFAULT, kube_nodes=kube_nodes))


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        ((), True),
        ((TopologyTerm("z1", ""),), True),
        ((TopologyTerm("z2", ""),), False),
        ((TopologyTerm("", "r1"),), True),
        ((TopologyTerm("", "r2"),), False),
        ((TopologyTerm("z1", "r1"),), True),
        ((TopologyTerm("z1", "r2"),), False),
        ((TopologyTerm("z2", "r1"),), False),
        ((TopologyTerm("z2", ""), TopologyTerm("", "r1")), True),
        ((TopologyTerm("", ""),), True),
    ],
)
def test_topology(terms: tuple[TopologyTerm, ...], matches: bool) -> None:
    node: LonghornNode = replace(builders.node(), zone="z1", region="r1")
    expected = None if matches else Reason.TOPOLOGY
    assert expected == reason_of(check_node_for(node, DiskNeeds(topology=terms), DEFAULT))


def test_the_first_rule_that_refuses_names_the_reason() -> None:
    node = replace(builders.node("n1"), zone="z1", ready=False)
    needs = DiskNeeds(data_engine="v2", topology=(TopologyTerm("z2", ""),), node_selector=("a",))
    others: dict[str, Any] = {"kube_nodes": {}, "source_nodes": (), "hard_node_affinity": "n2"}
    engines = Engines.of(None, [])

    found = []
    for _ in range(7):
        rejection = check_node_for(node, needs, DEFAULT, engines=engines, **others)
        assert rejection is not None
        found.append(rejection.reason)
        if found[-1] is Reason.NODE_NOT_READY:
            node = replace(node, ready=True)
        elif found[-1] is Reason.TOPOLOGY:
            needs = replace(needs, topology=())
        elif found[-1] is Reason.ENGINE_NOT_READY:
            engines = Engines()
        elif others:
            del others[next(iter(others))]
    assert [
        Reason.NODE_NOT_READY,
        Reason.V2_DISABLED,
        Reason.LINKED_CLONE,
        Reason.HARD_AFFINITY,
        Reason.TOPOLOGY,
        Reason.ENGINE_NOT_READY,
        Reason.NODE_TAGS,
    ] == found


def test_messages_of_tags_name_both_selectors() -> None:
    needs = DiskNeeds(
        node_selector=("a",),
        disk_selector=("b",),
        image=ImageNeeds(node_selector=("c",), disk_selector=("d",)),
    )
    node = replace(builders.node("n1"), tags=frozenset({"x", "a"}))
    for_node = check_node_for(node, needs, DEFAULT)
    assert for_node is not None
    assert "n1: tags ['a', 'x'], selector ['a'], the backing image's ['c']" == for_node.message
    for_disk = check_disk_for(disk(9, 9, tags=frozenset({"y"})), needs, 1, 0, 0, DEFAULT)
    assert for_disk is not None
    assert "d1: tags ['y'], selector ['b'], the backing image's ['d']" == for_disk.message


@pytest.mark.parametrize(
    ("facts", "needs", "message"),
    [
        (disk(9, 9), V2, "d1: a filesystem disk, v2 needs block"),
        (disk(9, 9, filesystem="ext4"), V1, "d1: 17592186044416 bytes are not below 17592186044416, the limit of ext4"),
    ],
)
def test_messages_of_the_kind_of_disk(facts: Disk, needs: DiskNeeds, message: str) -> None:
    rejection = check_disk_for(facts, needs, EXT_LIMIT_BYTES, 0, 0, DEFAULT)
    assert rejection is not None
    assert message == rejection.message


def test_hard_affinity_is_exactly_one_node() -> None:
    node = builders.node("n1")
    assert check_node_for(node, V1, DEFAULT, hard_node_affinity="n1") is None
    rejection = check_node_for(node, V1, DEFAULT, hard_node_affinity="n2")
    assert rejection is not None
    assert Reason.HARD_AFFINITY is rejection.reason
    assert "hard affinity cannot be satisfied" == longhorn_reason(rejection.reason)


def image(reference: str = "e:1", state: str = "deployed", nodes: tuple[str, ...] = ("n1",)) -> EngineImage:
    return EngineImage("ei-1", reference, state, frozenset(nodes))


def manager(engine: str = "v1", image: str = "im:1", state: str = "running", **other: str) -> InstanceManager:
    return replace(InstanceManager("im", "n1", engine, image, state), **other)


@pytest.mark.parametrize(
    ("needs", "engines", "is_ready"),
    [
        (DiskNeeds(), Engines(), True),
        (DiskNeeds(engine_image="e:1"), Engines.of([image()], None), True),
        (DiskNeeds(engine_image="e:1"), Engines.of([image(state="deploying")], None), True),
        (DiskNeeds(engine_image="e:1"), Engines.of([image(state="incompatible")], None), False),
        (DiskNeeds(engine_image="e:1"), Engines.of([image(nodes=())], None), False),
        (DiskNeeds(engine_image="e:2"), Engines.of([image()], None), False),
        (DiskNeeds(engine_image="e:1"), Engines.of([], None), False),
        (DiskNeeds(), Engines.of([image()], None), True),
        (DiskNeeds(), Engines.of([image(nodes=())], None), False),
        (DiskNeeds(data_engine="v2", engine_image="e:2"), Engines.of([image()], None), True),
        (DiskNeeds(), Engines.of(None, [manager()]), True),
        (DiskNeeds(), Engines.of(None, [manager()], "im:1"), True),
        (DiskNeeds(), Engines.of(None, [manager()], "im:2"), False),
        (DiskNeeds(), Engines.of(None, [manager(image="im:2"), manager()], "im:2"), True),
        (DiskNeeds(), Engines.of(None, [manager(state="starting")]), False),
        (DiskNeeds(), Engines.of(None, [manager(type="engine")]), False),
        (DiskNeeds(), Engines.of(None, [manager(node="n2")]), False),
        (DiskNeeds(), Engines.of(None, [manager("v2")]), False),
        (DiskNeeds(), Engines.of(None, []), False),
        (DiskNeeds(data_engine="v2"), Engines.of(None, [manager("v2")], "im:2"), True),
        (DiskNeeds(data_engine="v2"), Engines.of(None, [manager()]), False),
        (DiskNeeds(data_engine="v2"), Engines.of(None, [manager("v2", state="error")]), False),
    ],
)
def test_engines(needs: DiskNeeds, engines: Engines, is_ready: bool) -> None:
    expected = None if is_ready else Reason.ENGINE_NOT_READY
    assert expected == reason_of(check_engine("n1", needs, engines))
    assert expected == reason_of(check_node_for(builders.node("n1"), needs, DEFAULT, engines=engines))


@pytest.mark.parametrize(
    ("facts", "percentage", "expected"),
    [
        (disk(100, 10), 90, False),
        (disk(100, 9), 90, True),
        (disk(1000, 99), 90, True),  # 9.9 counts as 9
        (disk(1000, 100), 90, False),
        (disk(100, 20, reserved=11), 90, True),
        (disk(100, 20, reserved=10), 90, False),
        (disk(100, 0, reserved=50), 90, True),
        (disk(100, 0, reserved=50), 100, False),
        (disk(100, 0), 99, True),
        (disk(100, 0), 0, False),
        (disk(100, 0), -1, False),
        (disk(0, 0), 90, True),
        (disk(0, 0), 99, True),
        (disk(100, 0, reserved=50), 99, True),  # a negative rest is none
        (disk(1, 1), 50, False),
        (disk(99, 98), 1, True),  # 98.98 % are 98
        (disk(100, 0), 1, True),
    ],
)
def test_balancing_pressure(facts: Disk, percentage: int, expected: bool) -> None:
    assert expected == is_under_balancing_pressure(facts, percentage)


def test_a_replica_is_copied_to_a_disk_only_where_a_byte_more_is_left() -> None:
    room = room_of_disk(disk(100, 60), (), space(least=25))
    assert 35 == room.written_limit_bytes
    assert disk_takes(room, V1, 50, 34, space(least=25))
    assert not disk_takes(room, V1, 50, 35, space(least=25))
