"""What people are told of a pod: the one true cause, whatever keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import GrowthRequest
from controller.model.longhorn import BackingImage, DiskNeeds, EngineImage, LonghornSettings, TopologyTerm
from controller.model.workload import KubeNode
from controller.rules.reasons import Reason
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, ONE_LOCAL, TestCluster, disk, node, pod, replica, storage_class
from tests.unit.views.asking import add_twin, explained

HUGE: Final = 64 * 1024 * GIB
Scene = Callable[[], TestCluster]


def asks(cluster: TestCluster, gib: float = 50, class_name: str = "longhorn", on: tuple[str, ...] = ()) -> TestCluster:
    """Pod "a" is refused on these nodes, else on all."""
    names = on or tuple(cluster.allocator._world.nodes)
    cluster.add_pod("a", ("a", gib, class_name))
    assert not cluster.filter("a", *names).passed
    return cluster


def one_node(of_node: dict[str, Any] | None = None, of_disk: dict[str, Any] | None = None) -> TestCluster:
    cluster, facts = TestCluster(), node("n1")
    cluster.add_node("n1")
    cluster.put_node(replace(facts, disks=(replace(facts.disks[0], **(of_disk or {})),), **(of_node or {})))
    return cluster


def with_class(cluster: TestCluster, gib: float = 50, **parameters: str) -> TestCluster:
    cluster.allocator.observe_class("other", storage_class("other", {**ONE_LOCAL, **parameters}))
    return asks(cluster, gib, "other")


def copies(settings: LonghornSettings, zones: str = "aa", **parameters: str) -> TestCluster:
    """Two copies are wanted at once."""
    cluster = TestCluster(settings=replace(settings, degraded_availability=False))
    for number, zone in enumerate(zones, 1):
        cluster.add_node(f"n{number}")
        cluster.put_node(replace(node(f"n{number}"), zone=zone))
    cluster.add_class("two", **{"dataLocality": "disabled", "numberOfReplicas": "2", **parameters})
    return asks(cluster, 50, "two")


def elsewhere() -> TestCluster:
    """A strict-local volume has its data on another node."""
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    cluster.add_claim("a", 50, class_name="strict")
    name = cluster.provision("a", locality="strict-local")
    cluster.place(name, "n1", 50)
    return asks(cluster, on=("n2",))


def in_use() -> TestCluster:
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    cluster.add_volume("a", 50)
    cluster.add_pod("user", "a")
    cluster.run("user", "a", "n1", 50)
    return asks(cluster, on=("n2",))


def with_image(image: BackingImage, gib: float = 50) -> TestCluster:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.allocator.observe_backing_image(image.name, image)
    return with_class(cluster, gib, backingImage="image")


def engine_gap() -> TestCluster:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.allocator.observe_engine_image("e", EngineImage("e", "image", "deployed", frozenset({"other"})))
    return asks(cluster)


def contended() -> TestCluster:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.ask("other", 80, "n1")
    return asks(cluster)


def by_growth() -> TestCluster:
    """The bytes are held for growth that was admitted."""
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_volume("stored", 20)
    cluster.let_figures_follow()
    cluster.allocator.expansions.hold(GrowthRequest("pvc-uid-stored", 60 * GIB, "ns", "stored"))
    return asks(cluster)


def kept() -> TestCluster:
    live = LiveSettings(enabled=True, starvation_after_seconds=10)
    cluster = TestCluster(live=live).add_nodes(n1=100, n2=100, n3=100)
    leaving = cluster.add_volume("leaving", 60, on="n1")
    for name in ("n2", "n3"):
        cluster.add_volume(f"on-{name}", 90, on=name)
    cluster.add_pod("starving", gib=80)
    cluster.filter("starving", "n1", "n2", "n3")
    cluster.allocator.observe_replica(f"{leaving}-r-1", replica(f"{leaving}-r-1", leaving, 60, on="n1", deleting=True))
    cluster.clock.advance(20)
    cluster.filter("starving", "n1", "n2", "n3")
    cluster.woken()
    return asks(cluster, 30)


def linked_clone() -> TestCluster:
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    source = cluster.add_volume("source", 50, on="n1")
    cluster.add_claim("a", 50)
    cluster.provision("a", clone_mode="linked-clone", data_source=f"vol://{source}")
    return asks(cluster, on=("n2",))


def repeated() -> TestCluster:
    cluster, twin = TestCluster(), disk("d2", node="n1")
    cluster.add_node("n1")
    facts = node("n1", disk("d1"), twin)
    cluster.put_node(replace(facts, disks=tuple(replace(one, uuid="same") for one in facts.disks)))
    return asks(cluster)


def topology() -> TestCluster:
    cluster = TestCluster()
    for name, zone in (("n1", "a"), ("n2", "b")):
        cluster.add_node(name)
        cluster.put_node(replace(node(name), zone=zone))
    cluster.add_claim("a", 50)
    cluster.provision("a", needs=DiskNeeds(topology=(TopologyTerm("b"),)))
    return asks(cluster, on=("n1",))


def v2_disabled() -> TestCluster:
    cluster = one_node(of_disk={"type": "block"})
    cluster.allocator.observe_kube_node("n1", KubeNode("n1", unschedulable=False, disables_v2=True))
    return with_class(cluster, dataEngine="v2")


def same_disk() -> TestCluster:
    """A second copy may share the node and not the disk."""
    hard = LonghornSettings(disk_soft_anti_affinity=False, soft_anti_affinity=True)
    return copies(hard, "a")


CAUSES: Final[dict[Reason, Scene]] = {
    Reason.NO_LONGHORN_NODE: lambda: asks(TestCluster().add_nodes(n1=100), on=("n9",)),
    Reason.NODE_DELETING: lambda: asks(one_node({"deleting": True})),
    Reason.NODE_NOT_READY: lambda: asks(one_node({"ready": False})),
    Reason.NODE_UNSCHEDULABLE: lambda: asks(one_node({"schedulable": False, "is_cordoned": True})),
    Reason.V2_DISABLED: v2_disabled,
    Reason.TOPOLOGY: topology,
    Reason.LINKED_CLONE: linked_clone,
    Reason.ENGINE_NOT_READY: engine_gap,
    Reason.NODE_TAGS: lambda: with_class(one_node(), nodeSelector="fast"),
    Reason.NODE_ANTI_AFFINITY: lambda: copies(LonghornSettings(), "a"),
    Reason.ZONE_ANTI_AFFINITY: lambda: copies(LonghornSettings(zone_soft_anti_affinity=False)),
    Reason.DISK_ANTI_AFFINITY: same_disk,
    Reason.DISK_NOT_FOUND: repeated,
    Reason.DISK_UNSCHEDULABLE: lambda: asks(one_node(of_disk={"eviction_requested": True})),
    Reason.DISK_TYPE: lambda: with_class(one_node(), dataEngine="v2"),
    Reason.DISK_TAGS: lambda: with_class(one_node(), diskSelector="ssd"),
    Reason.REPLICA_ELSEWHERE: elsewhere,
    Reason.IN_USE_ELSEWHERE: in_use,
    Reason.INCOMPATIBLE_SIZE: lambda: asks(
        one_node(of_disk={"maximum_bytes": HUGE, "available_bytes": HUGE}), 17 * 1024
    ),
    Reason.TOO_FULL: lambda: asks(one_node(of_disk={"available_bytes": GIB})),
    Reason.INSUFFICIENT_STORAGE: lambda: asks(TestCluster().add_nodes(n1=10)),
    Reason.BACKING_IMAGE: lambda: with_image(BackingImage("image", real_size_bytes=60 * GIB)),
    Reason.BACKING_IMAGE_NOT_FOUND: lambda: with_class(one_node(), dataLocality="disabled", backingImage="gone"),
    Reason.BACKING_IMAGE_SIZE_UNKNOWN: lambda: with_image(BackingImage("image")),
    Reason.CONTENDED: contended,
    Reason.KEPT: kept,
    Reason.NEVER_PLACED: lambda: with_class(one_node(), numberOfReplicas="99"),
}


@pytest.mark.parametrize("reason", CAUSES)
def test_the_cause_is_the_rule_that_refuses(reason: Reason) -> None:
    found = explained(CAUSES[reason](), "a")
    assert ("waits", reason) == (found.state, found.cause), found.text
    assert found.text.endswith(".")
    assert all(one.verdict in ("contended", "full", "unsuitable") for one in found.nodes)


# Of Replicas, growth and disks given by name; of no pod.
OF_OTHERS: Final = {
    Reason.HARD_AFFINITY,
    Reason.PHYSICAL_SPACE,
    Reason.ALREADY_SCHEDULED,
    Reason.UNUSED_FAILED_REPLICA,
    Reason.DEGRADED_SINCE_UNKNOWN,
    Reason.NOT_REUSABLE,
    Reason.RESTORING,
    Reason.CLONING,
    Reason.CLONE_FAILED,
    Reason.FAULTED,
    Reason.IN_TRANSITION,
    Reason.MIGRATING,
    Reason.NOT_SCHEDULED,
    Reason.ENGINE_NOT_EXPANDABLE,
    Reason.DISK_NOT_READY,
    Reason.RECORD_UNWRITABLE,
    Reason.LEADER_CHANGED,
}
# Told more precisely, or not for long: of the disks that are too small, or have other tags; a search without time; the
# extender's own, of pods that follow their share-manager.
COVERED: Final = {Reason.NO_ROOM_IN_CLUSTER, Reason.NO_USABLE_DISK, Reason.NOT_EVALUATED, Reason.SERVED_ELSEWHERE}


def test_every_reason_is_a_cause_or_none_of_a_pod() -> None:
    assert set(Reason) == CAUSES.keys() | OF_OTHERS | COVERED


def test_a_node_without_disks_has_no_usable_one() -> None:
    cluster = TestCluster()
    cluster.add_node("n1")
    cluster.put_node(replace(node("n1"), disks=()))
    assert Reason.NO_USABLE_DISK == explained(asks(cluster), "a").cause


@pytest.mark.parametrize(
    ("of_disk", "reason"),
    [({}, Reason.INSUFFICIENT_STORAGE), ({"schedulable": False, "is_under_pressure": True}, Reason.TOO_FULL)],
)
def test_a_volume_that_may_lie_anywhere_is_told_of_the_nearest_disk(of_disk: dict[str, Any], reason: Reason) -> None:
    shown = {**of_disk, **({"available_bytes": GIB} if of_disk else {})}
    found = explained(asks(one_node(of_disk=shown), 500, "roaming"), "a")
    assert reason == found.cause
    assert [reason.value] == [one.reason for one in found.volumes]


def test_bytes_that_are_held_for_growth_are_contended_and_end() -> None:
    found = explained(by_growth(), "a")
    assert Reason.CONTENDED == found.cause
    assert found.change.startswith("Wait: ")
    assert ("growth", "ns/stored", 40 * GIB) in [(one.kind, one.name, one.size_bytes) for one in found.nodes[0].holders]


def test_nodes_that_other_users_of_a_claim_bar_are_told_beside_the_one_that_is_left() -> None:
    cluster = TestCluster().add_nodes(n1=40, n2=100)
    cluster.add_volume("a", 50, on="n2")
    cluster.add_pod("user", "a")
    cluster.bind("user", "n1")
    found = explained(asks(cluster), "a")
    assert [("n1", "InsufficientStorage"), ("n2", "VolumeInUseElsewhere")] == [
        (one.node, one.reason) for one in found.nodes
    ]
    assert Reason.INSUFFICIENT_STORAGE == found.cause


def filled_by_its_twin() -> TestCluster:
    """The disk of n2 has the UUID of n1's, on which the bytes lie."""
    cluster = TestCluster().add_nodes(n1=100)
    add_twin(cluster, 100)
    cluster.add_volume("stored", 80, on="n1")
    return asks(cluster, on=("n2",))


def test_a_disk_that_its_twin_fills_says_so() -> None:
    found = explained(filled_by_its_twin(), "a")
    assert "DisksShareUUID" == found.cause
    assert "same UUID as one of n1" in found.text
    assert found.change.startswith("Give disk d1 of node n2 a UUID of its own")


def test_the_text_has_the_figures_of_the_nearest_miss_and_its_node() -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=100, n3=100)
    cluster.put_node(replace(node("n3", free_gib=100), ready=False))
    cluster.add_volume("on-1", 90, on="n1")
    cluster.add_volume("on-2", 30, on="n2")
    cluster.ask("other", 40, "n2")
    found = explained(asks(cluster), "a")
    assert found.text == (
        "Claim ns/a (50 GiB) lacks 20 GiB on disk d1 of node n2, the nearest one: 30 GiB of its 100 GiB are free, "
        "30 GiB used and 40 GiB promised to others. All 3 nodes, by reason: space is promised to other pods (1), "
        "not enough space on the node's disks (1), node is not ready (1)."
    )
    assert [("n2", "contended"), ("n1", "full"), ("n3", "unsuitable")] == [
        (one.node, one.verdict) for one in found.nodes
    ]
    nearest = found.nodes[0]
    figures = nearest.limit_bytes, nearest.used_bytes, nearest.taken_bytes, nearest.free_bytes, nearest.missing_bytes
    assert [100, 30, 40, 30, 20] == [figure // GIB for figure in figures]


def test_what_the_caller_may_not_see_is_summed_up() -> None:
    cluster = contended()
    ((holder,),) = [one.holders for one in explained(cluster, "a", lambda _namespace: False).nodes]
    assert ("answer", "", 1, 80 * GIB) == (holder.kind, holder.name, holder.count, holder.size_bytes)


def test_a_volume_that_fits_no_disk_can_never_fit() -> None:
    found = explained(asks(TestCluster().add_nodes(n1=10)), "a")
    assert "It can never fit: claim ns/a requests 50 GiB, and the largest disk takes 10 GiB." in found.text


def test_how_many_copies_find_a_disk_is_told_where_all_have_to() -> None:
    found = explained(copies(LonghornSettings(), "a"), "a")
    assert "Only 1 of 2 copies find a disk, and all have to, since allow-volume-creation" in found.text
    assert "allow-volume-creation-with-degraded-availability to true" in found.change


# Pods of which no node is asked


@pytest.mark.parametrize(
    ("facts", "state", "cause"),
    [
        ({"is_finished": True}, "gone", "finished"),
        ({"is_deleting": True}, "gone", "deleted"),
        ({"node_name": "n1"}, "runs", "bound"),
        ({"is_opted_in": False}, "not-ours", "not-opted-in"),
        ({"is_gated": True}, "not-ours", "gated"),
        ({"lacks_extender": True}, "not-ours", "not-wired"),
        ({"volumes": pod("x", "no-such-claim").volumes}, "waits", "missing-claim"),
        ({}, "waits", "has-room"),
    ],
)
def test_a_pod_that_nobody_asks_about_says_why(facts: dict[str, Any], state: str, cause: str) -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("a")
    cluster.change_pod("a", **facts)
    found = explained(cluster, "a")
    assert (state, cause) == (found.state, found.cause)
    assert found.text


@pytest.mark.parametrize(
    ("mode", "state", "cause"), [(Mode.BYPASS, "not-ours", "bypass"), (Mode.CLOSED, "not-ours", "closed")]
)
def test_while_it_is_switched_off_nobody_is_asked(mode: Mode, state: str, cause: str) -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("a")
    cluster.allocator.set_mode(mode)
    found = explained(cluster, "a")
    assert (state, cause) == (found.state, found.cause)


def test_a_pod_of_another_scheduler_or_in_quarantine_gets_no_answer() -> None:
    cluster = TestCluster(make_allocator=lambda clock: Allocator(clock, {"ours"})).add_nodes(n1=100)
    cluster.set_pod(pod("other", scheduler_name="theirs"))
    cluster.set_pod(pod("broken", scheduler_name="ours"))
    cluster.allocator._quarantine.put("ns/broken", "a fault", cluster.clock.now())
    assert [("not-ours", "other-scheduler"), ("waits", "quarantined")] == [
        ((found := explained(cluster, name)).state, found.cause) for name in ("other", "broken")
    ]


def test_a_pod_without_longhorns_volumes_is_none_of_our_business() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_claim("a", class_name="")
    cluster.set_pod(pod("a", "a", is_opted_in=False))
    assert ("not-ours", "no-longhorn-volume") == ((found := explained(cluster, "a")).state, found.cause)


def test_what_makes_somebody_answer_is_told() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("a")
    assert "not refused it: its volumes find room on 1 of 1 nodes, among them n1." in explained(cluster, "a").text
    changes = list[str]()
    for facts in ({"is_gated": True}, {"is_gated": False, "lacks_extender": True}, {"is_opted_in": False}):
        cluster.change_pod("a", **facts)
        changes.append(explained(cluster, "a").change.split()[0])
    assert ["Remove", "Give", "Make"] == changes


def test_a_pod_that_is_not_known_is_gone() -> None:
    assert ("gone", "unknown") == ((found := explained(TestCluster(), "a")).state, found.cause)


# Pods that were let through


def test_a_pod_that_was_let_through_shows_where_its_volumes_go_and_why() -> None:
    cluster = TestCluster().add_nodes(n1=[100, 60], n2=100)
    cluster.add_pod("a", ("local", 50), ("anywhere", 20, "roaming"))
    assert cluster.filter("a", "n1", "n2").passed
    found = explained(cluster, "a")
    assert "let-through" == found.state
    places = {one.claim: [(place.node, place.kind) for place in one.places] for one in found.volumes}
    assert [("n1", "hold"), ("n2", "hold")] == sorted(places["ns/local"])
    assert 1 == len(places["ns/anywhere"])
    assert all(place.why.endswith(".") for one in found.volumes for place in one.places)


def test_the_chosen_node_has_the_plan() -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    cluster.ask("a", 50, "n1", "n2")
    cluster.select_node("a", "n2")
    ((place,),) = [one.places for one in explained(cluster, "a").volumes]
    assert ("n2", "plan") == (place.node, place.kind)


def test_a_pod_for_which_there_is_room_by_now_is_told_so() -> None:
    cluster = contended()
    cluster.drop_pod("other")
    assert "room-now" == explained(cluster, "a").cause


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason.NODE_TAGS, "Claim ns/a (50 GiB) cannot use node n1: has no tags; the volume asks for fast."),
        (Reason.DISK_NOT_FOUND, "cannot use disk d1 of node n1: another disk of the node has the same UUID same."),
        (Reason.BACKING_IMAGE, "No room for backing image image besides the volumes."),
        (Reason.KEPT, "80 GiB are kept there for a pod that has waited a long time."),
        (Reason.NODE_ANTI_AFFINITY, "A further copy of claim ns/a (50 GiB) finds no place: the only node, n1, has one"),
    ],
)
def test_a_sentence_names_node_and_disk_once(reason: Reason, text: str) -> None:
    assert text in explained(CAUSES[reason](), "a").text


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        (Reason.DISK_NOT_FOUND, "Give disk d1 of node n1 a UUID of its own"),
        (Reason.INCOMPATIBLE_SIZE, "Make claim ns/a anew, and request at most 16 TiB"),
        (Reason.IN_USE_ELSEWHERE, "End or delete user."),
        (Reason.NODE_UNSCHEDULABLE, "Uncordon node n1, unless it is being serviced."),
    ],
)
def test_what_helps_is_told(reason: Reason, change: str) -> None:
    assert explained(CAUSES[reason](), "a").change.startswith(change)


# All nodes at once


def on_four(gib: float = 50, of_disk: dict[str, Any] | None = None, **parameters: str) -> TestCluster:
    cluster = TestCluster()
    for name in ("n1", "n2", "n3", "n4"):
        facts = node(name)
        cluster.add_node(name)
        cluster.put_node(replace(facts, disks=(replace(facts.disks[0], **(of_disk or {})),)))
    return with_class(cluster, gib, **parameters)


ONE_ZONE: Final = LonghornSettings(zone_soft_anti_affinity=False)
OF_ALL: Final[dict[str, Scene]] = {
    "finds no place: no disk of the 4 nodes has the tag nvme that StorageClass other asks for.": lambda: on_four(
        diskSelector="nvme"
    ),
    "finds no place: none of the 4 nodes has the tags a, b that StorageClass other asks for.": lambda: on_four(
        nodeSelector="a,b"
    ),
    "can use none of the 4 nodes, all for one reason: 1 GiB available is not above the required minimum": lambda: (
        on_four(of_disk={"available_bytes": GIB})
    ),
    "By Longhorn's count 400 GiB are free: snapshots or other data fill it.": lambda: on_four(
        of_disk={"available_bytes": GIB}
    ),
    "lacks 20 GiB on disk d1 of node n1, as on all 4 nodes: all of its 400 GiB are free.": lambda: on_four(420),
    "A further copy of claim ns/a (50 GiB) finds no place: each of the 2 nodes has one already, and copies may not "
    "share a node.": lambda: copies(LonghornSettings(), "aa", numberOfReplicas="3"),
    "the only zone, a, has one already, and copies may not share a zone.": lambda: copies(ONE_ZONE),
    "each of the 2 zones has one already": lambda: copies(ONE_ZONE, "abb", numberOfReplicas="3"),
}


@pytest.mark.parametrize("text", OF_ALL)
def test_what_holds_for_all_nodes_is_said_of_all(text: str) -> None:
    assert text in explained(OF_ALL[text](), "a").text


def test_a_tag_that_one_disk_has_is_not_said_to_be_nowhere() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_node(
        "n2", disk("d1", node="n2"), replace(disk("d2", node="n2", tags=("nvme",)), allow_scheduling=False)
    )
    assert "no disk of" not in explained(with_class(cluster, diskSelector="nvme"), "a").text


def test_a_node_of_its_own_for_each_copy_is_told_to_be_added() -> None:
    change = "Add a node; or set Longhorn's setting allow-volume-creation-with-degraded-availability to true (volumes "
    assert explained(copies(LonghornSettings(), "aa", numberOfReplicas="3"), "a").change == (
        f"{change}may then lack copies from the start); or make claim ns/a anew, with a StorageClass of 2 copies."
    )
    found = explained(copies(ONE_ZONE), "a").change
    assert found.startswith("Add a node in another zone (label topology.kubernetes.io/zone); or set")
    assert found.endswith("with a StorageClass of 1 copy, which is lost with its disk.")


def test_names_that_stand_beside_it_are_not_repeated() -> None:
    tags = explained(on_four(diskSelector="nvme"), "a").nodes
    assert {"has no tags; the volume asks for nvme"} == {one.text for one in tags}
    found = explained(copies(ONE_ZONE), "a")
    assert ["its zone 'a' already has a replica of it", "already has a replica of it"] == [
        one.text for one in found.nodes
    ]
    assert ["n2: its zone 'a' already has a replica of it"] == [one.text for one in found.volumes]


def test_volumes_that_do_not_fit_together_are_told_by_their_claims() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("a", ("x", 60), ("y", 60))
    assert not cluster.filter("a", "n1").passed
    found = explained(cluster, "a")
    assert "Its 2 volumes (120 GiB on the pod's node) lack 20 GiB" in found.text
    (answer,) = found.nodes
    assert "the node's disks cannot take these together: ns/x 60 GiB, ns/y 60 GiB" == answer.text


def test_nodes_that_kube_scheduler_did_not_ask_about_are_told() -> None:
    cluster = TestCluster().add_nodes(n1=10, n2=10, n3=10)
    assert "kube-scheduler asked about 1 of the 3 nodes: " in explained(asks(cluster, on=("n2",)), "a").text
    assert "kube-scheduler" not in explained(asks(TestCluster().add_nodes(n1=10, n2=10)), "a").text


def test_what_a_twin_fills_is_not_told_to_be_freed_there() -> None:
    assert "moving or deleting" not in explained(filled_by_its_twin(), "a").change
