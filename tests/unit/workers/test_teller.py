"""Events on refused pods: with numbers, from outside the filter call, and not more than one a minute a pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Decision
from controller.errors import BugError
from controller.kube.recorder import NAMESPACE_LIMIT, Recorder
from controller.kube.resources import EVENTS
from controller.workers.teller import AGAIN_SECONDS, EVERY_SECONDS, MOST_DISKS, Teller
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import GIB, node
from tests.fakes.clock import TickingClock, VirtualClock
from tests.unit.allocator.placed_cluster import PlacedCluster, add_free_volume, add_second_copy
from tests.waiting import wait_until


class TellerBench:
    """One node with 100 GiB, of which 60 are promised to the pod `a`."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.cluster, self.server = PlacedCluster(), FakeApiServer()
        self.cluster.add_node("n1", free_gib=100)
        self.cluster.add_pod("a", gib=60)
        self.cluster.filter("a", "n1")
        self.recorder = Recorder(self.server, self.cluster.clock, component="extender", instance="pod-a")
        self.teller = Teller(self.cluster.allocator, self.recorder, clock or self.cluster.clock, "longhorn-system")

    def add_stranger(self, name: str, gib: float) -> None:
        """A pod of another namespace with a claim of that name, to which the node is promised as well."""
        claim = replace(self.cluster.add_claim(name, gib), namespace="theirs")
        self.cluster.allocator.observe_claim(f"ns/{name}", None)
        self.cluster.set_claim(claim)
        self.cluster.set_pod(replace(self.cluster.add_pod(name), uid=f"of-{name}", namespace="theirs"))
        self.cluster.filter(name, "n1")

    def refuse(self, name: str, *nodes: str) -> None:
        """kube-scheduler asks about the pod, and is told that there is no room."""
        with suppress(BugError):
            assert not self.cluster.offered(name, *nodes)
        self.teller.refused(self.cluster.pods[name].uid, "ns", name)

    def tell_unplaced(self, replica: str) -> list[dict[str, Any]]:
        """What is told of a replica that no disk takes."""
        self.teller.unplaced(replica)
        return self.tell()

    def reasons(self, replica: str) -> dict[str, int]:
        return dict(self.teller.reasons_of(replica))

    def tell(self) -> list[dict[str, Any]]:
        """Everything that waits, told and written."""
        while self.teller.tell_next() == 0.0:
            pass
        while self.recorder.run_once() is not None:
            self.cluster.clock.advance(0.1)
        return self.server.list_page(EVENTS).items


@pytest.fixture
def scene() -> TellerBench:
    return TellerBench()


def test_the_event_has_the_numbers_and_whose_promise_stands_in_the_way(scene: TellerBench) -> None:
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")
    (event,) = scene.tell()
    assert (event["type"], event["reason"]) == ("Warning", "LonghornNoRoom")
    assert event["involvedObject"]["name"] == "b"
    assert event["message"] == (
        "No Longhorn room for ns/b 50 GiB: 1 node Contended (n1: 60 GiB are promised on this node: ns/a 60 GiB)"
    )


def test_of_other_namespaces_the_event_has_numbers_and_no_names(scene: TellerBench) -> None:
    scene.add_stranger("payroll", 10)
    scene.add_stranger("ledger", 5)
    for name in ("x", "y", "z"):
        scene.cluster.ask(name, 1, "n1")
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")
    (event,) = scene.tell()
    told = ": ns/a 60 GiB, ns/x 1 GiB, ns/y 1 GiB, 1 more of this namespace, 2 volumes of other namespaces 15 GiB)"
    assert event["message"].endswith(told)
    assert not [word for word in ("payroll", "ledger", "theirs") if word in event["message"]]


def test_reasons_are_counted_with_the_numbers_of_one_node_each_whichever_verb_refused(scene: TellerBench) -> None:
    """One attempt of kube-scheduler asks about some nodes by filter, and about others by preempt."""
    scene.cluster.add_node("n2", free_gib=40)
    scene.cluster.add_node("n3", free_gib=40)
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1", "n2")
    pod = scene.cluster.pods["b"]
    assert not scene.cluster.allocator.nodes_with_room(pod.uid, ["n3", "n4", "n1"])
    scene.teller.refused(pod.uid, "ns", "b")
    (event,) = scene.tell()
    assert event["count"] == 1
    assert event["message"].startswith(
        "No Longhorn room for ns/b 50 GiB: 2 nodes InsufficientStorage (n2, pvc-uid-b: d1: "
    )
    assert "50 GiB + 0 bytes scheduled exceeds the disk's limit of 40 GiB by 10 GiB)" in event["message"]
    assert "1 node Contended (n1: " in event["message"]
    assert "1 node NoLonghornNode" in event["message"]


def refused(scene: TellerBench) -> None:
    scene.refuse("b", "n1")


def concerned_by_a_fault(scene: TellerBench) -> None:
    scene.cluster.allocator._put_away("ns/b", BugError("HOLD of nothing"))
    refused(scene)


@pytest.mark.parametrize("what", [refused, concerned_by_a_fault])
def test_a_pod_is_told_of_once_a_minute(scene: TellerBench, what: Callable[[TellerBench], None]) -> None:
    scene.cluster.add_pod("b", gib=50)
    for counts in ([1], [1], [2], [2]):
        what(scene)
        assert counts == [event["count"] for event in scene.tell()]
        scene.cluster.clock.advance(EVERY_SECONDS / 2)


def test_a_replica_is_told_of_once_a_minute(scene: TellerBench) -> None:
    add_free_volume(scene.cluster, "v", 200)
    for counts in ([1], [1], [2]):
        assert counts == [event["count"] for event in scene.tell_unplaced("v-r-1")]
        scene.cluster.clock.advance(EVERY_SECONDS / 2)


def test_a_refusal_soon_after_another_is_told_when_its_minute_is_over_with_the_truth_of_then(
    scene: TellerBench,
) -> None:
    """The promise that was in the way is gone, and the node is full."""
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")
    (first,) = scene.tell()
    assert "1 node Contended (n1: 60 GiB are promised" in first["message"]
    scene.cluster.clock.advance(5)
    scene.cluster.drop_pod("a")
    scene.cluster.put_node(node("n1", free_gib=40))
    scene.refuse("b", "n1")
    assert [first] == scene.tell()
    scene.cluster.clock.advance(EVERY_SECONDS - 5)
    (second,) = [event for event in scene.tell() if event != first]
    assert "1 node InsufficientStorage (n1" in second["message"]


@pytest.mark.parametrize("change", ["has room", "is gone", "is bound", "is refused no more"])
def test_what_waited_is_not_told_if_the_pod_waits_no_more(scene: TellerBench, change: str) -> None:
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")
    scene.tell()
    scene.refuse("b", "n1")
    if change == "has room":
        scene.cluster.add_node("n1", free_gib=500)
    elif change == "is gone":
        scene.cluster.drop_pod("b")
    elif change == "is bound":
        scene.cluster.change_pod("b", node_name="n1")
    else:
        scene.cluster.add_node("n2")
        scene.cluster.filter("b", "n2")
    scene.cluster.clock.advance(EVERY_SECONDS)
    assert [1] == [event["count"] for event in scene.tell()]


def test_the_thread_rests_until_a_minute_is_over(scene: TellerBench) -> None:
    scene.cluster.add_pod("b", gib=50)
    for pauses in ([0.0, None], [EVERY_SECONDS] * 2):
        scene.refuse("b", "n1")
        assert pauses == [scene.teller.tell_next(), scene.teller.tell_next()]
    scene.cluster.clock.advance(EVERY_SECONDS - 1)
    scene.refuse("b", "n1")  # again: the time of the one that waits goes on
    assert 1.0 == scene.teller.tell_next()
    scene.cluster.clock.advance(1)
    assert [0.0, None] == [scene.teller.tell_next(), scene.teller.tell_next()]


def test_a_refused_pod_that_seemed_to_have_room_is_looked_into_again_once(scene: TellerBench) -> None:
    """What the account is made of may be older than the refusal."""
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")
    scene.cluster.put_node(node("n1", free_gib=500))
    assert [0.0, AGAIN_SECONDS] == [scene.teller.tell_next(), scene.teller.tell_next()]
    scene.cluster.put_node(node("n1", free_gib=40))
    assert [] == scene.tell()
    scene.cluster.clock.advance(AGAIN_SECONDS)
    assert ["LonghornNoRoom"] == [event["reason"] for event in scene.tell()]

    scene.cluster.clock.advance(EVERY_SECONDS)
    scene.refuse("b", "n1")
    scene.cluster.put_node(node("n1", free_gib=500))
    for pause in (0.0, AGAIN_SECONDS, 0.0, None):
        assert pause == scene.teller.tell_next()
        scene.cluster.clock.advance(pause or 0)


def test_many_pods_of_one_namespace_keep_those_of_others_neither_out_nor_waiting(scene: TellerBench) -> None:
    def let_through(namespace: str, number: int) -> None:
        scene.teller.let_through(f"{namespace}-{number}", namespace, f"p{number}", Decision.REMOTE)

    for number in range(NAMESPACE_LIMIT + 5):
        let_through("many", number)
    for number in range(3):
        let_through("few", number)
    assert 5 == scene.teller.dropped
    for _ in range(6):
        scene.teller.tell_next()
    for _ in range(6):
        scene.recorder.run_once()
    events = scene.server.list_page(EVENTS).items
    assert {"many": 3, "few": 3} == Counter(event["metadata"]["namespace"] for event in events)
    let_through("many", NAMESPACE_LIMIT)  # which was dropped, and so not told of
    while scene.teller.tell_next() is not None:
        pass
    assert (5, 0) == (scene.teller.dropped, scene.recorder.dropped)


def test_a_pod_that_is_let_through_all_the_same_is_told_why(scene: TellerBench) -> None:
    pod = scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")  # just before, and not told yet
    scene.teller.let_through(pod.uid, "ns", "b", Decision.REMOTE)
    (event,) = scene.tell()
    assert ("Normal", "LonghornRemoteFallback") == (event["type"], event["reason"])


def test_a_pod_that_a_fault_of_ours_concerns_is_told_to_report_it(scene: TellerBench) -> None:
    scene.cluster.add_pod("b")
    concerned_by_a_fault(scene)
    (event,) = scene.tell()
    assert ("Warning", "LonghornSchedulerExtenderFault") == (event["type"], event["reason"])
    assert event["message"].endswith("with the controller's log")


def test_the_thread_tells_and_ends(scene: TellerBench) -> None:
    scene.cluster.add_pod("b", gib=50)
    scene.recorder.start()
    scene.teller.start()
    scene.refuse("b", "n1")
    wait_until(lambda: bool(scene.server.list_page(EVENTS).items))
    scene.teller.stop()
    scene.recorder.stop()


# Claims


def claim_grows_beyond_its_disk(scene: TellerBench) -> Callable[[int], list[str]]:
    """A claim of 30 GiB on a disk of 100. What it gives has it ask for so many GiB, and returns all that is told."""
    scene.cluster.add_pod("b", gib=30)
    scene.cluster.filter("b", "n1")
    scene.cluster.run("b", "b", "n1", 30)

    def ask(gib: int) -> list[str]:
        scene.cluster.set_claim(replace(scene.cluster.claims["b"], requested_bytes=gib * GIB))
        scene.teller.tell_of_claims()
        return sorted(event["message"] for event in scene.tell())

    return ask


def test_a_claim_that_asks_for_another_size_within_the_minute_is_told_of_the_newest_when_it_is_over() -> None:
    scene = TellerBench()
    ask = claim_grows_beyond_its_disk(scene)
    (first,) = ask(500)
    assert first.startswith("The claim requests 500 GiB, but its volume can never be larger than 100 GiB")
    assert [first] == ask(600) == ask(700)
    scene.cluster.clock.advance(EVERY_SECONDS)
    (_, second) = sorted(event["message"] for event in scene.tell())
    assert second == first.replace("500", "700")


def test_what_waited_is_not_told_of_a_claim_whose_volume_grows_after_all() -> None:
    scene = TellerBench()
    ask = claim_grows_beyond_its_disk(scene)
    (first,) = ask(500)
    assert [first] == ask(600)
    scene.cluster.put_node(node("n1", free_gib=1_000))
    scene.cluster.clock.advance(EVERY_SECONDS)
    assert [first] == [event["message"] for event in scene.tell()]


# Replicas without a disk


def test_why_no_disk_takes_a_first_copy_is_told_of_its_claim_and_its_pods(scene: TellerBench) -> None:
    scene.cluster.add_pod("b", gib=200)
    name = scene.cluster.provision("b", locality="disabled")
    assert {} == scene.reasons(f"{name}-r-1")
    events = scene.tell_unplaced(f"{name}-r-1")
    assert [("PersistentVolumeClaim", "b"), ("Pod", "b")] == sorted(map(about, events))
    assert {("Warning", "LonghornNoPlace")} == {(event["type"], event["reason"]) for event in events}
    (text,) = {event["message"] for event in events}
    told = f"No disk takes the first replica of volume {name} of 200 GiB now: 1 disk InsufficientStorage (n1, d1: "
    assert text.startswith(told)
    assert {"InsufficientStorage": 1} == scene.reasons(f"{name}-r-1")


def test_of_a_volume_without_a_claim_the_volume_is_told(scene: TellerBench) -> None:
    (name,) = add_free_volume(scene.cluster, "v", 200, uid="uid-v")
    (event,) = scene.tell_unplaced(name)
    of_volume = {"apiVersion": "longhorn.io/v1beta2", "kind": "Volume", "namespace": "longhorn-system", "name": "v"}
    assert {**of_volume, "uid": "uid-v"} == event["involvedObject"]


def test_of_a_further_copy_it_is_known_and_nobody_is_told(scene: TellerBench) -> None:
    name = add_second_copy(scene.cluster, 90, first_on="n1")
    assert [] == scene.tell_unplaced(name)
    assert {"NodeAntiAffinity": 1} == scene.reasons(name)


def test_one_that_seemed_to_have_room_is_looked_into_again_soon(scene: TellerBench) -> None:
    (name,) = add_free_volume(scene.cluster, "v", 30)
    assert [] == scene.tell_unplaced(name)
    scene.cluster.add_node("n1", free_gib=20)
    assert [] == scene.tell_unplaced(name)
    scene.cluster.clock.advance(AGAIN_SECONDS)
    assert ["LonghornNoPlace"] == [event["reason"] for event in scene.tell_unplaced(name)]


def test_looking_into_many_replicas_leaves_most_of_the_time_to_others_and_pods_do_not_wait_for_it() -> None:
    clock = TickingClock(0.0)
    scene = TellerBench(clock)
    names = [name for volume in ("v", "w") for name in add_free_volume(scene.cluster, volume, 200)]
    for name in names:
        scene.teller.unplaced(name)
    clock.seconds = 0.1
    assert 0.0 == scene.teller.tell_next()
    clock.seconds = 0.0
    pause = scene.teller.tell_next()
    assert pause is not None
    assert [True, False] == [bool(scene.reasons(name)) for name in names]
    scene.cluster.add_pod("b", gib=50)
    scene.refuse("b", "n1")
    assert [0.0, pause] == [scene.teller.tell_next(), scene.teller.tell_next()]
    clock.advance(pause)
    assert [0.0, None] == [scene.teller.tell_next(), scene.teller.tell_next()]
    assert [True, True] == [bool(scene.reasons(name)) for name in names]


def test_disks_that_share_a_uuid_are_told_of_once_until_others_do() -> None:
    scene, told = TellerBench(), list[tuple[str, str, bool]]()

    def look() -> list[str]:
        told.clear()
        scene.teller.tell_of_disks(lambda *event: told.append(event))
        assert all((reason, is_warning) == ("DisksShareUUID", True) for reason, _, is_warning in told)
        return [text for _, text, _ in told]

    def clone(name: str) -> None:
        facts = node(name)
        scene.cluster.put_node(replace(facts, disks=(replace(facts.disks[0], uuid="same"),)))

    assert [] == look()
    clone("w1")
    clone("w2")
    (text,) = look()
    assert "the same UUID same, as of nodes that were cloned: d1 of w1, d1 of w2. Longhorn" in text
    assert [] == look()
    for number in range(3, MOST_DISKS + 3):
        clone(f"w{number}")
    (text,) = look()
    assert " and 2 more. Longhorn" in text


def about(event: dict[str, Any]) -> tuple[str, str]:
    return event["involvedObject"]["kind"], event["involvedObject"]["name"]
