"""What a judge says beside its verdicts: what is robust, what is at Longhorn's discretion, what is worth a wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.judge.node import Judge
from controller.allocator.judge.verdict import Verdict
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import Verb
from controller.allocator.verbs.fit import GivenPromise, fit_pod
from controller.model.longhorn import BackingImage, DiskNeeds
from controller.rules.demand import VolumeDemand
from controller.rules.reasons import Reason
from tests.fakes.builders import node, promise
from tests.unit.allocator.test_fit import local, roaming, room, world_of


@pytest.mark.parametrize(("age", "waitable"), [(0.5, True), (1.5, False)])
def test_a_set_that_only_young_holds_contend_is_worth_a_wait(age: float, waitable: bool) -> None:
    world = world_of(room("d1", 100))
    ledger = Ledger()
    ledger.put(Verb.HOLD, promise("other", size=60, since=10.0 - age))
    judge = Judge(world, ledger, (roaming(60),), 10.0)
    ((_, judgement),) = judge.judge_sets(["n1"])
    assert (Verdict.CONTENDED, waitable) == (judgement.verdict, judgement.is_waitable)


def test_what_has_no_place_in_the_cluster_is_told_from_what_has_none_on_the_node() -> None:
    world = world_of(room("d1", 100))
    anywhere = fit_pod(world, (roaming(60, "a"), roaming(101, "b")), ["n1"])["n1"]
    here = fit_pod(world, (local(60, "a"), roaming(60, "b")), ["n1"])["n1"]

    assert (Verdict.CONTENDED, Verdict.FULL) == (here.verdict, anywhere.verdict)
    assert Reason.NO_ROOM_IN_CLUSTER in {entry.rejection.reason for entry in anywhere.refusals}
    assert {Reason.OWN_VOLUMES} == {entry.rejection.reason for entry in here.refusals}


def test_a_judge_says_whether_a_summary_of_each_node_is_enough() -> None:
    world = world_of(room("d1", 100))
    assert Judge(world, Ledger(), (local(60),), 0.0).is_plain
    assert not Judge(world, Ledger(), (local(60, required_bytes=1),), 0.0).is_plain


# Volumes that are not plain: each node's disks are looked at


def written(size: int, name: str = "v") -> VolumeDemand:
    """A volume of which a byte is written already."""
    return local(size, name, required_bytes=1)


@pytest.mark.parametrize(
    ("holds", "waitable"),
    [([(60, 0.5)], True), ([(60, 1.5)], False), ([(50, 0.5), (50, 1.5)], False), ([(50, 0.5), (20, 1.5)], True)],
)
def test_a_node_that_only_young_holds_contend_is_worth_a_wait(holds: list[tuple[int, float]], waitable: bool) -> None:
    ledger = Ledger()
    for size, age in holds:
        ledger.put(Verb.HOLD, promise(f"other-{age}", size=size, since=10.0 - age))
    judgement = Judge(world_of(room("d1", 100)), ledger, (written(60),), 10.0).judge("n1")
    assert (Verdict.CONTENDED, waitable) == (judgement.verdict, judgement.is_waitable)


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


@pytest.mark.parametrize(("promised", "expected"), [(10, Verdict.SURE), (11, Verdict.CONTENDED)])
def test_a_backing_image_goes_with_its_volume_into_the_sums(promised: int, expected: Verdict) -> None:
    world = world_of(room("d1", 50))
    pod = local(30, image=BackingImage("i", real_size_bytes=10))
    assert expected is fit_pod(world, (pod,), ["n1"], [GivenPromise("n1", "x", promised)])["n1"].verdict


def test_a_node_on_which_nothing_is_placed_is_robust() -> None:
    found = fit_pod(world_of(room("d1", 0)), (local(60, home_nodes=frozenset({"n1"})),), ["n1"])["n1"]
    assert (Verdict.SURE, True) == (found.verdict, found.is_robust)


def test_what_cannot_lie_on_a_node_is_not_robust_there() -> None:
    world = world_of(room("d1", 10))
    assert not Judge(world, Ledger(), (written(60),), 0.0).is_robust("unknown")
    assert not Judge(world, Ledger(), (written(60, "a"), written(60, "b")), 0.0).is_robust("n1")
    pinned = replace(written(5), is_pinned=True)
    assert not Judge(world, Ledger(), (pinned,), 0.0).is_robust("n1")
    at_home = local(60, home_nodes=frozenset({"n1"}))
    assert Judge(world, Ledger(), (at_home,), 0.0).is_robust("n1")


def test_a_plain_volume_is_not_robust_on_a_node_without_a_summary() -> None:
    judge = Judge(world_of(room("d1", 100)), Ledger(), (local(60),), 0.0)
    assert [False, True] == [judge.is_robust("unknown"), judge.is_robust("n1")]


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
    judge = Judge(world, Ledger(), (replace(roaming(60, "a"), follows=follows),), 0.0)
    ((names, judgement),) = judge.judge_sets(["n1"])
    assert (["n1"], is_sure) == (names, judgement.verdict is Verdict.SURE)


def test_a_volume_beside_one_that_is_bound_to_a_place_is_not() -> None:
    world = world_of(room("d1", 10), zone="a", region="r")
    world.put_node("n2", replace(node("n2", room("d2", 100)), zone="b", region="s"))
    pod = (replace(roaming(5, "bound"), follows="zone"), roaming(60, "free"))
    ((_, judgement),) = Judge(world, Ledger(), pod, 0.0).judge_sets(["n1"])
    assert Verdict.SURE is judgement.verdict
