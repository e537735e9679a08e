"""What a judge says beside its verdicts: what is robust, when to be lenient, what is worth a wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.judge.node import Judge
from controller.allocator.judge.verdict import Verdict
from controller.allocator.promises.ledger import Ledger, Verb
from controller.allocator.verbs.fit import GivenPromise, fit_pod, ledger_of
from controller.model.demand import VolumeDemand
from controller.model.longhorn import BackingImage, DiskNeeds
from controller.rules.reasons import Reason
from tests.fakes.builders import node, promise
from tests.unit.allocator.test_fit import local, roaming, room, world_of

OTHERS = [GivenPromise("n1", "x", 10)]


@pytest.mark.parametrize(
    ("demands", "promises", "expected"),
    [
        ((local(60), roaming(60)), (), True),
        ((local(60),), (), False),
        ((roaming(60),), (), False),
        ((local(60), roaming(60)), OTHERS, False),
    ],
)
def test_only_a_pods_own_roaming_volumes_are_a_reason_to_be_lenient(
    demands: tuple[VolumeDemand, ...], promises: list[GivenPromise], expected: bool
) -> None:
    world = world_of(room("d1", 100))
    judge = Judge(world, ledger_of(world, demands, promises), demands, 0.0)
    judge.judge_sets(["n1"])
    assert expected == judge.may_be_lenient


def test_once_not_robust_in_a_zone_the_sets_are_not_robust() -> None:
    world = world_of(room("d1", 100), zone="a")
    world.put_node("n2", replace(node("n2", room("d2", 200, size=200)), zone="b"))
    follows = replace(roaming(60, "follows"), follows="zone")

    def are_robust(*names: str) -> bool:
        judge = Judge(world, Ledger(), (follows, roaming(60, "other")), 0.0)
        assert all(judgement.verdict is Verdict.SURE for _, judgement in judge.judge_sets(names))
        return judge.are_sets_robust

    assert are_robust("n2")
    assert not are_robust("n1")
    assert not are_robust("n1", "n2")
    assert not are_robust("n2", "n1")


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
    anywhere = fit_pod(world, (roaming(60, "a"), roaming(60, "b")), ["n1"])["n1"]
    here = fit_pod(world, (local(60, "a"), roaming(60, "b")), ["n1"])["n1"]

    assert (Verdict.FULL, Verdict.FULL) == (anywhere.verdict, here.verdict)
    assert Reason.NO_ROOM_IN_CLUSTER in {entry.rejection.reason for entry in anywhere.refusals}
    assert Reason.NO_ROOM_IN_CLUSTER not in {entry.rejection.reason for entry in here.refusals}


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


def test_a_judge_is_lenient_only_where_no_node_is_sure() -> None:
    world = world_of(room("d1", 100), room("d2", 100))
    world.put_node("n2", node("n2", room("d3", 100)))
    pod = (written(60), roaming(60))

    both = fit_pod(world, pod, ["n1", "n2"])
    assert {"n1": Verdict.SURE, "n2": Verdict.CONTENDED} == {name: found.verdict for name, found in both.items()}
    assert Verdict.SURE is fit_pod(world, pod, ["n2"])["n2"].verdict


def test_being_lenient_makes_no_room_for_a_backing_image() -> None:
    world = world_of(room("d1", 50))
    pod = (local(30, image=BackingImage("i", real_size_bytes=30)), roaming(5))
    found = fit_pod(world, pod, ["n1"])["n1"]
    assert Verdict.CONTENDED is found.verdict
    assert {Reason.BACKING_IMAGE} == {entry.rejection.reason for entry in found.refusals}


@pytest.mark.parametrize(("promised", "reason"), [(15, Reason.BACKING_IMAGE), (25, Reason.CONTENDED)])
def test_a_backing_image_is_named_where_the_volumes_alone_are_sure(promised: int, reason: Reason) -> None:
    world = world_of(room("d1", 50))
    pod = local(30, image=BackingImage("i", real_size_bytes=10))
    found = fit_pod(world, (pod,), ["n1"], [GivenPromise("n1", "x", promised)])["n1"]
    assert (Verdict.CONTENDED, {reason}) == (found.verdict, {entry.rejection.reason for entry in found.refusals})


def test_a_node_on_which_nothing_is_placed_is_robust() -> None:
    found = fit_pod(world_of(room("d1", 0)), (local(60, home_nodes=frozenset({"n1"})),), ["n1"])["n1"]
    assert (Verdict.SURE, True) == (found.verdict, found.is_robust)


def test_what_cannot_lie_on_a_node_is_not_robust_there() -> None:
    world = world_of(room("d1", 10))
    assert (False, False) == Judge(world, Ledger(), (written(60),), 0.0).is_robust("unknown")
    assert (False, False) == Judge(world, Ledger(), (written(60, "a"), written(60, "b")), 0.0).is_robust("n1")
    pinned = replace(written(5), is_pinned=True)
    assert (False, False) == Judge(world, Ledger(), (pinned,), 0.0).is_robust("n1")
    at_home = local(60, home_nodes=frozenset({"n1"}))
    assert (True, False) == Judge(world, Ledger(), (at_home,), 0.0).is_robust("n1")


def test_a_plain_volume_is_not_robust_on_a_node_without_a_summary() -> None:
    judge = Judge(world_of(room("d1", 100)), Ledger(), (local(60),), 0.0)
    assert [(False, False), (True, False)] == [judge.is_robust("unknown"), judge.is_robust("n1")]


def test_a_roaming_volume_that_no_disk_of_the_node_takes_leaves_a_plain_one_robust() -> None:
    def is_robust(*tags: str) -> tuple[bool, bool]:
        loose = replace(roaming(50), needs=DiskNeeds(disk_selector=tags))
        return Judge(world_of(room("d1", 100)), Ledger(), (local(60), loose), 0.0).is_robust("n1")

    assert [(True, False), (False, False)] == [is_robust("ssd"), is_robust()]


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
