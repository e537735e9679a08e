"""What the product says of one node and one disk: codes, numbers, and rooms beside rules.

On which side of every limit Longhorn places is tried with tests/longhorn_rules.
"""

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
    SpacePolicy,
    TopologyTerm,
)
from controller.rules.eligibility import (
    Engines,
    check_disk_for,
    check_disk_space,
    check_node_for,
    disk_takes,
    minimal_available,
    observed_scheduled,
    provisioning_limit,
    room_of_disk,
    wrapped,
)
from controller.rules.reasons import Reason, Rejection
from tests.fakes import builders

EXT_LIMIT_BYTES = 16 * 1024**4
ODD = 2**53 + 1  # beyond 53 bits the last bits of limits blur
MOST = 2**63 - 1
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
        pytest.param(disk(10, 0), space(), 0, 0, Reason.TOO_FULL, id="nothing available"),
        pytest.param(disk(100, 60), space(least=25), 0, 35, Reason.TOO_FULL, id="copying down to the minimum"),
        pytest.param(disk(100, 100, scheduled=60), space(), 41, 0, Reason.INSUFFICIENT_STORAGE, id="a byte too many"),
        pytest.param(disk(ODD, ODD), space(least=100), 0, 0, None, id="a byte above the blurred minimum"),
        pytest.param(disk(ODD, ODD - 1), space(least=100), 0, 0, Reason.TOO_FULL, id="at the blurred minimum"),
    ],
)
def test_space(facts: Disk, policy: SpacePolicy, size: int, required: int, expected: Reason | None) -> None:
    rejection = check_disk_space(facts, size, required, facts.scheduled_bytes, policy)
    assert expected == reason_of(rejection)


@pytest.mark.parametrize(
    ("reserved", "over", "limit"),
    [(1000, 100, -1000), (2**62, 100, -(2**62)), (2**62, 300, -(2**63))],
)
def test_a_negative_limit_is_as_far_below_nothing_as_64_bits_go(reserved: int, over: int, limit: int) -> None:
    assert limit == provisioning_limit(disk(0, 1, reserved=reserved), space(over=over))


def test_sums_wrap_around_as_64_bit_integers_do() -> None:
    assert (MOST, -(2**63), 0, -1) == (wrapped(MOST), wrapped(MOST + 1), wrapped(2**64), wrapped(2**64 - 1))


def test_a_minimum_keeps_to_64_bits() -> None:
    assert MOST == minimal_available(disk(MOST, 1), space(least=100))


def test_replicas_count_for_what_the_disks_figure_lacks_of_them() -> None:
    facts = disk(scheduled=60, scheduled_replicas={"same": 20, "smaller": 30, "larger": 10})
    sizes = {"same": 20, "smaller": 25, "larger": 11, "unlisted": 7}
    made = [replace(builders.replica(name, "v"), size_bytes=size) for name, size in sizes.items()]
    assert [60, 61, 68] == [observed_scheduled(facts, made[:count]) for count in (2, 3, 4)]


def test_so_do_backing_images() -> None:
    facts = disk(scheduled=60, scheduled_images={"same": 20, "smaller": 30, "larger": 10})
    sizes = {"same": 20, "smaller": 25, "larger": 11, "unlisted": 7}
    assert [60, 61, 68] == [observed_scheduled(facts, (), dict(list(sizes.items())[:count])) for count in (2, 3, 4)]


# State, type, file system, tags

V1 = DiskNeeds()
V2 = DiskNeeds(data_engine="v2")
BIG = 2**62


@pytest.mark.parametrize(
    ("facts", "needs", "size", "expected"),
    [
        pytest.param(disk(9, 9), V1, 1, None, id="plain"),
        pytest.param(disk(9, 9, schedulable=False), V1, 1, Reason.DISK_UNSCHEDULABLE, id="condition"),
        pytest.param(disk(9, 9, uuid=""), V1, 1, Reason.DISK_UNSCHEDULABLE, id="no UUID yet"),
        pytest.param(disk(9, 9, type="block"), V1, 1, Reason.DISK_TYPE, id="v1 on block"),
        pytest.param(disk(9, 9), V2, 1, Reason.DISK_TYPE, id="v2 on a file system"),
        pytest.param(disk(9, 9, type="block", filesystem=""), V2, 1, None, id="v2 on block"),
        pytest.param(disk(BIG, BIG), V1, EXT_LIMIT_BYTES - 1, None, id="below ext4's limit"),
        pytest.param(disk(BIG, BIG), V1, EXT_LIMIT_BYTES, Reason.INCOMPATIBLE_SIZE, id="at ext4's limit"),
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


PRESSURE = "condition Schedulable is False: DiskPressure: the disk d1 has 60 available"


@pytest.mark.parametrize(
    ("figures", "because"),
    [
        ((1000, 240, 60), "240 bytes available - 20 bytes to copy is not above the required minimum of 250 bytes "),
        ((1000, 900, 960), "50 bytes + 960 bytes scheduled exceeds the disk's limit of 1000 bytes by 10 bytes"),
        ((1000, 900, 60), ""),
    ],
    ids=["too little available", "too much scheduled", "not by these figures"],
)  # fmt: skip
def test_a_disk_under_pressure_is_refused_with_the_limit_and_with_longhorns_words(
    figures: tuple[int, int, int], because: str
) -> None:
    maximum, available, scheduled = figures
    facts = disk(maximum, available, schedulable=False, is_under_pressure=True, not_schedulable=PRESSURE)
    rejection = check_disk_for(facts, V1, 50, 20, scheduled, SpacePolicy())
    assert rejection is not None
    assert Reason.DISK_UNSCHEDULABLE is rejection.reason
    assert rejection.message.startswith(f"d1: {because}")
    assert rejection.message.endswith(f"; {PRESSURE}" if because else f": {PRESSURE}")
    closed = replace(facts, allow_scheduling=False)
    rejection = check_disk_for(closed, V1, 50, 20, scheduled, SpacePolicy())
    assert Rejection(Reason.DISK_UNSCHEDULABLE, "d1: spec.allowScheduling is false") == rejection


@pytest.mark.parametrize(
    ("fields", "reason", "said"),
    [
        ({"ready": False, "not_ready": "said of Ready"}, Reason.NODE_NOT_READY, "said of Ready"),
        ({"schedulable": False, "not_schedulable": "of Schedulable"}, Reason.NODE_UNSCHEDULABLE, "of Schedulable"),
    ],
)
def test_a_node_is_refused_with_longhorns_words(fields: dict[str, Any], reason: Reason, said: str) -> None:
    facts = replace(builders.node("n1"), **fields)
    assert Rejection(reason, f"n1: {said}") == check_node_for(facts, V1, SpacePolicy())


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
    assert expected == reason_of(check_node_for(node, V1, DEFAULT))


def test_the_first_rule_that_refuses_names_the_reason() -> None:
    node = replace(builders.node("n1"), zone="z1")
    needs = DiskNeeds(data_engine="v2", topology=(TopologyTerm("z2", ""),), node_selector=("a",))
    asked: dict[str, Any] = {
        "node": replace(node, ready=False),
        "needs": needs,
        "kube_nodes": {},
        "source_nodes": (),
        "hard_node_affinity": "n2",
        "engines": Engines.of(None, []),
    }
    mended: list[tuple[Reason, dict[str, Any]]] = [
        (Reason.NODE_NOT_READY, {"node": node}),
        (Reason.V2_DISABLED, {"kube_nodes": None}),
        (Reason.LINKED_CLONE, {"source_nodes": None}),
        (Reason.HARD_AFFINITY, {"hard_node_affinity": "n1"}),
        (Reason.TOPOLOGY, {"needs": replace(needs, topology=())}),
        (Reason.ENGINE_NOT_READY, {"engines": Engines()}),
        (Reason.NODE_TAGS, {"needs": DiskNeeds()}),
    ]
    for reason, mend in mended:
        assert reason is reason_of(check_node_for(space=DEFAULT, **asked))
        asked |= mend
    assert check_node_for(space=DEFAULT, **asked) is None


TAGGED = DiskNeeds(("a",), ("b",), image=ImageNeeds(node_selector=("c",), disk_selector=("d",)))


@pytest.mark.parametrize(
    ("facts", "needs", "message"),
    [
        (disk(9, 9), V2, "d1: is a filesystem disk; v2 volumes need a block disk"),
        (disk(9, 9), V1, "d1: 16 TiB is not below 16 TiB, the limit of ext4"),
        (
            disk(9, 9, filesystem="", tags=frozenset("y")),
            TAGGED,
            "d1: has the tags y; the volume asks for b; its backing image asks for d",
        ),
        (disk(9, 0, filesystem=""), V1, "d1: 0 bytes available of 9 bytes"),
        (
            disk(100, 90, reserved=10, filesystem=""),
            V1,
            (
                "d1: 16 TiB + 60 bytes scheduled exceeds the disk's limit of 90 bytes by 16 TiB "
                "(limit: 100 bytes - 10 bytes reserved)"
            ),
        ),
    ],
)
def test_a_disks_message_names_the_numbers(facts: Disk, needs: DiskNeeds, message: str) -> None:
    rejection = check_disk_for(facts, needs, EXT_LIMIT_BYTES, 5, 60, space())
    assert rejection is not None
    assert message == rejection.message


def test_a_nodes_message_of_tags_names_both_selectors() -> None:
    rejection = check_node_for(replace(builders.node("n1"), tags=frozenset("xa")), TAGGED, DEFAULT)
    assert rejection is not None
    assert "n1: has the tags a, x; the volume asks for a; its backing image asks for c" == rejection.message


def image(reference: str = "e:1", state: str = "deployed", nodes: tuple[str, ...] = ("n1",)) -> EngineImage:
    return EngineImage("ei-1", reference, state, frozenset(nodes))


def manager(engine: str = "v1", image: str = "im:1", state: str = "running", **other: Any) -> InstanceManager:
    return replace(InstanceManager("im", "n1", engine, image, state), **other)


@pytest.mark.parametrize(
    ("needs", "engines", "is_ready"),
    [
        pytest.param(DiskNeeds(), Engines.of([image()], None), True, id="any image, while its own is unknown"),
        pytest.param(DiskNeeds(), Engines.of([image(nodes=())], None), False, id="no image is there"),
        pytest.param(DiskNeeds(engine_image="e:1"), Engines.of([], None), False, id="its image is unknown"),
        pytest.param(DiskNeeds(), Engines.of(None, [manager(type="engine")]), False, id="one for engines alone"),
    ],
)
def test_engines(needs: DiskNeeds, engines: Engines, is_ready: bool) -> None:
    expected = None if is_ready else Reason.ENGINE_NOT_READY
    assert expected == reason_of(check_node_for(builders.node("n1"), needs, DEFAULT, engines=engines))


def test_a_replica_is_copied_to_a_disk_only_where_a_byte_more_is_left() -> None:
    room = room_of_disk(disk(100, 60), (), space(least=25))
    assert 35 == room.written_limit_bytes
    assert disk_takes(room, V1, 50, 34, space(least=25))
    assert not disk_takes(room, V1, 50, 35, space(least=25))
