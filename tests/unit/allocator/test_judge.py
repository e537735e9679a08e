"""What a judge says beside its verdicts: what is robust, what is at Longhorn's discretion, what is worth a wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.judge.node import Judge
from controller.allocator.judge.verdict import Verdict
from controller.allocator.promises.ledger import Ledger
from controller.allocator.verbs.fit import fit_pod
from controller.model.longhorn import BackingImage, DiskNeeds
from controller.rules.demand import VolumeDemand
from controller.rules.reasons import Reason
from tests.fakes.builders import node, promise
from tests.fakes.rooms import local, roaming, room, world_of


@pytest.mark.parametrize(("age", "waitable"), [(0.5, True), (1.5, False)])
def test_a_set_that_only_young_holds_contend_is_worth_a_wait(age: float, waitable: bool) -> None:
    world = world_of(room("d1", 100))
    ledger = Ledger.of([promise("other", size=60, since=10.0 - age)])
    judge = Judge(world, ledger, (roaming(60),), 10.0)
    ((_, judgement),) = judge.judge_sets(["n1"])
    assert (Verdict.CONTENDED, waitable) == (judgement.verdict, judgement.is_waitable)


# Volumes that are not plain: each node's disks are looked at


def written(size: int, name: str = "v") -> VolumeDemand:
    """A volume of which a byte is written already."""
    return local(size, name, required_bytes=1)


@pytest.mark.parametrize(
    ("holds", "waitable"),
    [([(60, 0.5)], True), ([(60, 1.5)], False), ([(50, 0.5), (50, 1.5)], False), ([(50, 0.5), (20, 1.5)], True)],
)
def test_a_node_that_only_young_holds_contend_is_worth_a_wait(holds: list[tuple[int, float]], waitable: bool) -> None:
    ledger = Ledger.of(promise(f"other-{age}", size=size, since=10.0 - age) for size, age in holds)
    judgement = Judge(world_of(room("d1", 100)), ledger, (written(60),), 10.0).judge("n1")
    assert (Verdict.CONTENDED, waitable) == (judgement.verdict, judgement.is_waitable)


@pytest.mark.parametrize(
    ("size", "reason"), [(60, Reason.OWN_VOLUMES), (59, Reason.OWN_VOLUMES), (61, Reason.INSUFFICIENT_STORAGE)]
)
def test_volumes_that_may_meet_on_a_disk_are_in_their_own_way(size: int, reason: Reason) -> None:
    """Each fits on a disk of its own, to the last byte as well."""
    world = world_of(room("d1", 60), room("d2", 60))
    judgement = Judge(world, Ledger(), (written(size, "a"), written(size, "b")), 10.0).judge("n1")
    assert reason is judgement.reason


@pytest.mark.parametrize("follows", ["zone", "region"])
def test_a_volume_that_follows_its_node_goes_anywhere_from_one_without_labels(follows: str) -> None:
    judge = Judge(world_of(room("d1", 100)), Ledger(), (local(60, follows=follows),), 10.0)
    assert Verdict.SURE is judge.judge("n1").verdict


def test_no_node_is_offered_at_discretion_beside_one_that_is_sure() -> None:
    world = world_of(room("d1", 150, size=150), room("d2", 150, size=150))
    pod = (written(100, "a"), written(100, "b"))
    assert Verdict.SURE is fit_pod(world, pod, ["n1"])["n1"].verdict

    world.put_node("n2", node("n2", room("d3", 200, size=200)))
    both = fit_pod(world, pod, ["n1", "n2"])
    assert {"n1": Verdict.CONTENDED, "n2": Verdict.SURE} == {name: found.verdict for name, found in both.items()}


def test_discretion_makes_no_room_for_a_backing_image() -> None:
    world = world_of(room("d1", 50))
    pod = (local(30, image=BackingImage("i", real_size_bytes=30)), roaming(5))
    found = fit_pod(world, pod, ["n1"])["n1"]
    assert Verdict.CONTENDED is found.verdict
    assert {Reason.BACKING_IMAGE} == {entry.rejection.reason for entry in found.refusals}


def test_a_node_on_which_nothing_is_placed_is_robust() -> None:
    found = fit_pod(world_of(room("d1", 0)), (local(60, home_nodes=frozenset({"n1"})),), ["n1"])["n1"]
    assert (Verdict.SURE, True) == (found.verdict, found.is_robust)


def test_what_cannot_lie_on_a_node_is_not_robust_there() -> None:
    world = world_of(room("d1", 10))
    for volume in (written(60), local(60)):
        assert not Judge(world, Ledger(), (volume,), 0.0).is_robust("unknown")
    assert not Judge(world, Ledger(), (local(60),), 0.0).is_robust("n1")
    assert not Judge(world, Ledger(), (written(60, "a"), written(60, "b")), 0.0).is_robust("n1")
    pinned = replace(written(5), is_pinned=True)
    assert not Judge(world, Ledger(), (pinned,), 0.0).is_robust("n1")
    at_home = local(60, home_nodes=frozenset({"n1"}))
    assert Judge(world, Ledger(), (at_home,), 0.0).is_robust("n1")


def test_a_roaming_volume_that_no_disk_of_the_node_takes_leaves_a_plain_one_robust() -> None:
    def is_robust(*tags: str) -> bool:
        loose = replace(roaming(50), needs=DiskNeeds(disk_selector=tags))
        return Judge(world_of(room("d1", 100)), Ledger(), (local(60), loose), 0.0).is_robust("n1")

    assert [True, False] == [is_robust("ssd"), is_robust()]


# Volumes that will be bound to the zone or region of the pod's node


@pytest.mark.parametrize(
    ("follows", "zone", "region", "is_sure"),
    [
        ("zone", "a", "r", False),  # only n1 itself
        ("zone", "", "r", False),  # without a zone its region
        ("region", "a", "r", False),
        ("region", "a", "s", True),  # where n2 is
        ("zone", "b", "r", False),  # zones of that name in two regions are two
        ("zone", "b", "s", True),
        ("zone", "", "", True),  # nothing to be bound to
        ("", "a", "r", True),
    ],
)
def test_a_new_volume_is_bound_to_the_place_of_the_pods_node(
    follows: str, zone: str, region: str, is_sure: bool
) -> None:
    world = world_of(room("d1", 10), zone=zone, region=region)
    world.put_node("n2", replace(node("n2", room("d2", 100)), zone="b", region="s"))
    follower = replace(roaming(60, "a"), follows=follows)
    ((names, judgement),) = Judge(world, Ledger(), (follower,), 0.0).judge_sets(["n1"])
    assert (["n1"], is_sure) == (names, judgement.verdict is Verdict.SURE)

    beside = (replace(roaming(5, "b"), follows=follows), roaming(60, "free"))  # which is not bound to it
    ((_, judgement),) = Judge(world, Ledger(), beside, 0.0).judge_sets(["n1"])
    assert Verdict.SURE is judgement.verdict
