"""Whether a volume may grow: codes, texts, and what is not in tests/longhorn_rules, which tries both sides of each
limit, and each state."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from controller.model.longhorn import Disk, LonghornNode, SpacePolicy
from controller.model.versions import Behaviour
from controller.rules.growth import GRANULE_BYTES, LARGEST_BYTES, ExpansionPlan, check_growth, plan_expansion
from controller.rules.reasons import Reason
from tests.unit.allocator.placing import disk, node, replica, volume

GIB = 1024**3
OLD = Behaviour(expansion_checks_physical_space=False)


def space(over: int = 100, least: int = 0) -> SpacePolicy:
    return SpacePolicy(over_provisioning_pct=over, minimal_available_pct=least)


def facts(maximum: int, available: int, *, reserved: int = 0, scheduled: int = 0) -> Disk:
    return disk(size=maximum, available_bytes=available, reserved_bytes=reserved, scheduled_bytes=scheduled)


@pytest.mark.parametrize(
    ("found", "policy", "growth", "expected"),
    [
        pytest.param(facts(100, 90, reserved=30), space(over=200), 120, None, id="used -20, room by the maximum 120"),
        pytest.param(facts(100, 90, reserved=30), space(over=200), 121, Reason.PHYSICAL_SPACE, id="121 is too much"),
        pytest.param(facts(100, 90, scheduled=60), space(), 41, Reason.INSUFFICIENT_STORAGE, id="scheduled over"),
        pytest.param(facts(1, 1), space(), 1, None, id="one byte of one"),
        pytest.param(facts(0, 10), space(), 1, Reason.TOO_FULL, id="no maximum"),
        pytest.param(facts(100, 25), space(least=25), 0, Reason.TOO_FULL, id="no growth, under pressure"),
        pytest.param(facts(100, 26, scheduled=111), space(), -10, Reason.INSUFFICIENT_STORAGE, id="less, and not"),
    ],
)
def test_growth_of_a_disk(found: Disk, policy: SpacePolicy, growth: int, expected: Reason | None) -> None:
    rejection = check_growth(found, growth, policy)
    assert expected == (None if rejection is None else rejection.reason)


TOO_LITTLE = "leaves less than the required minimum of 25 bytes (25 % of 100 bytes)"
TOO_MUCH = "exceeds the disk's limit of 50 bytes by {} bytes (limit: 50 % of (100 bytes - 0 bytes reserved))"


@pytest.mark.parametrize(
    ("found", "policy", "growth", "text"),
    [
        (facts(100, 60), space(over=200, least=25), 36, f"= 76 bytes, which {TOO_LITTLE}"),
        (facts(100, 60), space(over=50), 20, f"= 60 bytes, which {TOO_MUCH.format(10)}"),
        (facts(100, 60), space(over=50, least=25), 60, f"= 100 bytes, which {TOO_LITTLE} and {TOO_MUCH.format(50)}"),
    ],
)
def test_of_the_two_physical_bounds_the_one_that_is_in_the_way_is_told(
    found: Disk, policy: SpacePolicy, growth: int, text: str
) -> None:
    rejection = check_growth(found, growth, policy)
    assert rejection is not None
    assert rejection.message.endswith(text)


# The volume


def plan(new: int, found: LonghornNode, *, policy: SpacePolicy | None = None, **other: Any) -> ExpansionPlan:
    """Of a volume of 1 GiB with a replica on n1, unless others are given."""
    of, replicas = other.get("of", volume(size=GIB)), other.get("replicas", (replica("a", "n1"),))
    return plan_expansion({"n1": found}, of, replicas, new, policy or space(), other.get("behaviour", Behaviour()))


@pytest.mark.parametrize("behaviour", [Behaviour(), OLD])
@pytest.mark.parametrize(
    "found",
    [
        disk(size=4 * GIB, available_bytes=GIB),  # at its minimum
        disk(size=4 * GIB, available_bytes=2 * GIB, scheduled_bytes=4 * GIB),
        disk("d9", 4 * GIB),  # not the replica's
    ],
)
def test_a_disk_without_any_room_leaves_the_present_size_to_the_byte(found: Disk, behaviour: Behaviour) -> None:
    odd = volume(size=GIB - 1)
    assert GIB - 1 == plan(GIB, node("n1", found), of=odd, policy=space(least=25), behaviour=behaviour).largest_bytes


def test_a_disk_without_a_size_takes_no_growth_whatever_its_other_figures() -> None:
    odd = disk(size=0, available_bytes=9 * GIB, scheduled_bytes=-9 * GIB)
    assert (False, GIB) == (plan(2 * GIB, node("n1", odd)).admitted, plan(2 * GIB, node("n1", odd)).largest_bytes)


def test_disks_that_share_a_uuid_fail_the_check() -> None:
    twins = node("n1", disk("d1", 9 * GIB), disk("d1", 9 * GIB))
    assert not plan(2 * GIB, twins).admitted


def test_what_is_admitted_is_exactly_what_is_not_above_the_largest_size() -> None:
    """In multiples of the granule, on random disks, both releases, sizes up to the limit of 64 bits."""
    dice = random.Random(7)
    for _ in range(1000):
        scale = 2 ** dice.randrange(30, 63)
        count, behaviour = dice.randrange(1, 4), dice.choice([Behaviour(), OLD])
        size, available, scheduled = (dice.randrange(scale) for _ in range(3))
        found = node("n1", facts(size, available, reserved=dice.randrange(scale // 4), scheduled=scheduled))
        policy = space(dice.choice([50, 100, 150, 200]), dice.choice([0, 10, 25]))
        of = volume(size=dice.randrange(scale) // GRANULE_BYTES * GRANULE_BYTES)
        own = tuple(replica(f"r{index}", "n1") for index in range(count))
        plan_of = partial(plan, found=found, policy=policy, of=of, replicas=own, behaviour=behaviour)

        largest = plan_of(of.size_bytes).largest_bytes
        assert 0 == largest % GRANULE_BYTES
        assert largest >= of.size_bytes
        assert largest == of.size_bytes or plan_of(largest).admitted
        assert largest >= LARGEST_BYTES or not plan_of(largest + GRANULE_BYTES).admitted
