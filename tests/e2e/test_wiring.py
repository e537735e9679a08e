"""Whether kube-scheduler asks the extender, found out on the real one: wired, not wired, and taken over by another.

When there was evidence is read from the API server's recorded history: a pod's condition, or a Lease's new holder. When
it was found out is when the status page said so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from controller.model.names import CANARY_LABEL, SECOND_SCHEDULER
from tests.cluster.client import Object
from tests.cluster.history import read_history
from tests.e2e import workloads
from tests.e2e.harness import Scene
from tests.e2e.schedulers import ELECTION, Schedulers, lacks_resource
from tests.e2e.scheduling import NAMESPACE, RESOURCE
from tests.e2e.second_scheduler import second
from tests.e2e.view import PODS
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

FOUND_SECONDS = 5.0
LEASE = "kube-scheduler"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OUR_LEASE = f"{LEASES}/longhorn-manager-disk-scheduler-lock"
REASONS = {"wired": "SchedulerWired", "unwired": "SchedulerNotWired", "unknown": "SchedulerWiringUnknown"}
Entry = dict[str, Any]


class Wired(Schedulers):
    """A scene with two nodes and no kube-scheduler yet."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        for name in ("w1", "w2"):
            scene.cluster.add_node(name)
        scene.cluster.create_namespace("apps")
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.api.patch(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": restricted}})

    def finding(self) -> dict[str, Any]:
        found: dict[str, Any] = self.scene.controllers[-1].status()["wiring"].get("default-scheduler", {})
        return found

    def wait_found(self, state: str, timeout: float = 60.0) -> None:
        try:
            wait_until(lambda: self.finding().get("state") == state, f"{state} scheduler", timeout)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.finding()}; {self.scene.controllers[-1].log}") from None
        assert 1 == self.scene.controllers[-1].counted(f'wiring{{scheduler="default-scheduler",state="{state}"}}')

    def wait_no_canary(self) -> None:
        self.scene.view.wait_for(lambda: not canaries_of(self.scene), "end of the canaries", 20)

    def history(self) -> list[Entry]:
        self.scene.cluster.history_caught_up()
        return [entry for entry in read_history(self.scene.cluster.history) if entry["object"] is not None]

    def mark(self) -> float:
        """From here on."""
        self.scene.cluster.history_caught_up()
        return time.time()

    def seconds_to_find(self, state: str, since: float, *evidence_of: Callable[[Entry], bool]) -> float:
        """Wait until the state is found; the seconds from the first evidence after `since` until then."""
        self.wait_found(state)
        found = time.time()
        entries = [entry for entry in self.history() if entry["at"] > since]
        evidence = [entry["at"] for entry in entries if any(is_it(entry) for is_it in evidence_of)]
        assert evidence
        print(f"{state}: found {found - evidence[0]:.3f} s after the first evidence")
        return float(found - evidence[0])

    def wait_told(self, state: str) -> None:
        """Our Event about it stands on the leader's Lease."""
        lease = self.api.get(OUR_LEASE)["metadata"]["uid"]

        def is_told() -> bool:
            return lease in {event["involvedObject"].get("uid") for event in self.scene.events(REASONS[state])}

        wait_until(is_told, f"Event {REASONS[state]}", 20)

    def pod(self, name: str) -> Object:
        """An opted-in pod without any volume."""
        return self.api.create("/api/v1/namespaces/apps/pods", workloads.pod(name))


def is_canary(pod: Object) -> bool:
    return CANARY_LABEL in (pod["metadata"].get("labels") or {})


def canaries_of(scene: Scene) -> list[Object]:
    return [pod for pod in scene.view.all(PODS, NAMESPACE) if is_canary(pod)]


def is_canary_created(entry: Entry) -> bool:
    return entry["kind"] == "Pod" and entry["type"] == "ADDED" and is_canary(entry["object"])


def is_takeover(entry: Entry) -> bool:
    """A Lease of kube-scheduler that was just taken; renewals keep the time of that."""
    if entry["kind"] != "Lease" or entry["object"]["metadata"]["name"] != LEASE:
        return False
    spec = entry["object"]["spec"]
    return bool(spec.get("holderIdentity")) and spec.get("acquireTime") == spec.get("renewTime")


@pytest.fixture(scope="module")
def world(unscheduled_scene: Scene) -> Wired:
    return Wired(unscheduled_scene)


@pytest.fixture
def wired(world: Wired) -> Iterator[Wired]:
    """No kube-scheduler and no copy of the product yet. Whatever the test does, nothing of ours is ever bound."""
    yield world
    world.scene.stop_controllers()
    world.scene.set_settings(bypass="false", wiring_check_every="300")
    world.stop_schedulers()
    world.api.delete("/api/v1/namespaces/apps/pods", gracePeriodSeconds=0)
    for pod in canaries_of(world.scene):
        world.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)
    world.wait_no_canary()


@pytest.fixture
def nothing_bound(wired: Wired) -> Iterator[None]:
    since = wired.mark()
    yield
    pods = [e["object"] for e in wired.history() if e["at"] > since and e["kind"] == "Pod" and is_canary(e["object"])]
    assert pods
    assert [] == [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]


@pytest.mark.usefixtures("nothing_bound")
@pytest.mark.parametrize(
    ("state", "bypass"),
    [
        pytest.param("unwired", "false", marks=pytest.mark.long),
        ("wired", "false"),
        pytest.param("wired", "true", marks=pytest.mark.long),
    ],
    ids=["stock", "ours", "bypass"],
)
def test_a_new_leader_finds_out_how_the_scheduler_is_configured(wired: Wired, state: str, bypass: str) -> None:
    """Bypass, which lets all others pass, lets no canary pass."""
    is_wired = state == "wired"
    wired.scene.set_settings(bypass=bypass)
    since = wired.mark()
    wired.scheduler(wired=is_wired)
    wired.scene.start_controller()
    # Of a filter call nothing stands in the history.
    seconds = wired.seconds_to_find(state, since, is_canary_created if is_wired else lacks_resource)
    wired.wait_told(state)
    wired.wait_no_canary()
    assert 0 <= seconds <= FOUND_SECONDS


@pytest.mark.long
@pytest.mark.usefixtures("nothing_bound")
def test_a_scheduler_that_takes_over_is_found_out_within_seconds_of_its_lease(wired: Wired) -> None:
    first = wired.scheduler(wired=True)
    wired.scene.start_controller()
    wired.wait_found("wired", 20)
    wired.wait_no_canary()

    for state in ("unwired", "wired"):
        since = wired.mark()
        second = wired.scheduler(wired=state == "wired")
        wired.kill(first)
        assert 0 <= wired.seconds_to_find(state, since, is_takeover, lacks_resource) <= FOUND_SECONDS
        wired.wait_no_canary()
        first = second


def test_a_second_scheduler_that_is_removed_is_looked_for_no_more_and_its_lease_goes(wired: Wired) -> None:
    wired.scene.start_controller()
    config = yaml.safe_load(second(wired.scene, SECOND_SCHEDULER))
    config["leaderElection"] |= {key: ELECTION[key] for key in ("leaseDuration", "renewDeadline", "retryPeriod")}
    wired.scene.cluster.start_scheduler(config, name="second")

    def wiring() -> object:
        return wired.scene.controllers[-1].status()["wiring"].get(SECOND_SCHEDULER, {}).get("state")

    try:
        wait_until(lambda: wiring() == "wired", "wired second scheduler", 30)
    finally:
        # Beside it, its right to let the Lease go is taken away.
        wired.scene.cluster.stop_scheduler("second", kill=True)
    left = wired.api.get(f"{LEASES}/{SECOND_SCHEDULER}")
    assert left["spec"]["holderIdentity"]
    wait_until(lambda: wiring() is None, "end of the second scheduler", 30)
    wait_until(lambda: SECOND_SCHEDULER not in {one["metadata"]["name"] for one in wired.api.get(LEASES)["items"]})
    # Another leader finds it no more, although somebody has put the Lease back.
    wired.scene.stop_controllers()
    kept = {"name": SECOND_SCHEDULER, "namespace": NAMESPACE}
    wired.api.create(
        LEASES, {"apiVersion": left["apiVersion"], "kind": "Lease", "metadata": kept, "spec": left["spec"]}
    )
    wired.scene.start_controller()
    wait_until(
        lambda: SECOND_SCHEDULER not in {one["metadata"]["name"] for one in wired.api.get(LEASES)["items"]}, "", 60
    )
    assert wiring() is None
    assert not [event for event in wired.scene.events(REASONS["unknown"]) if SECOND_SCHEDULER in event["message"]]


@pytest.mark.long
def test_real_pods_are_evidence_without_any_canary(wired: Wired) -> None:
    wired.scene.set_settings(wiring_check_every="0")
    first = wired.scheduler(wired=False)
    wired.scene.start_controller()
    since = wired.mark()
    wired.pod("opted-in")
    assert 0 <= wired.seconds_to_find("unwired", since, lacks_resource) <= FOUND_SECONDS

    since = wired.mark()
    wired.scheduler(wired=True)
    wired.kill(first)
    assert 0 <= wired.seconds_to_find("wired", since, is_takeover) <= FOUND_SECONDS
    pods = wired.scene.view
    pods.wait_for(lambda: (pods.get(PODS, "apps/opted-in") or {"spec": {}})["spec"].get("nodeName"), "bound pod", 20)
    assert [] == [e for e in wired.history() if e["at"] > since and is_canary(e["object"])]


@pytest.mark.long
@pytest.mark.usefixtures("nothing_bound")
def test_the_canary_of_a_leader_that_was_killed_is_removed_by_the_next(wired: Wired) -> None:
    """No kube-scheduler runs, so that the canary stays."""
    since = wired.mark()
    wired.scene.start_controller()
    left = wired.scene.view.wait_for(lambda: canaries_of(wired.scene), "canary", 20)[0]["metadata"]["uid"]
    wired.scene.stop_controllers(kill=True)
    wired.scene.start_controller()

    def is_another() -> bool:
        return any(pod["metadata"]["uid"] != left for pod in canaries_of(wired.scene))

    wired.scene.view.wait_for(is_another, "canary of the second leader", 60)
    wired.scheduler(wired=True)
    wired.wait_found("wired")
    wired.wait_no_canary()

    alive: set[str] = set()
    most = 0
    for entry in wired.history():
        if entry["at"] > since and entry["kind"] == "Pod" and is_canary(entry["object"]):
            uid = entry["object"]["metadata"]["uid"]
            alive = alive - {uid} if entry["type"] == "DELETED" else alive | {uid}
            most = max(most, len(alive))
    assert (set(), 1) == (alive, most)


@pytest.mark.long
@pytest.mark.usefixtures("nothing_bound")
def test_nothing_is_known_of_a_scheduler_that_cannot_reach_the_extender_and_its_own_words_are_told(
    wired: Wired,
) -> None:
    config = wired.scene.extender_config()
    config["extenders"][0]["urlPrefix"] = "http://127.0.0.1:9"
    wired.scene.cluster.start_scheduler(config, name="deaf")
    try:
        wired.scene.start_controller()
        wait_until(lambda: "connection refused" in wired.finding().get("cause", ""), "the scheduler's words", 60)
        assert "unknown" == wired.finding()["state"]
    finally:
        wired.scene.cluster.stop_scheduler("deaf")


def test_a_canary_that_is_placed_all_the_same_is_deleted_and_told(wired: Wired) -> None:
    """A node that offers the resource itself is all that a stock scheduler asks for."""
    path = "/api/v1/nodes/w1/status"
    wired.api.patch(path, {"status": {"allocatable": {RESOURCE: "1"}, "capacity": {RESOURCE: "1"}}})
    try:
        wired.scheduler(wired=False)
        wired.scene.start_controller()
        wired.wait_found("unwired", 20)
        assert "placed a pod" in wired.finding()["cause"]
        wired.wait_no_canary()
    finally:
        wired.api.patch(path, {"status": {"allocatable": {RESOURCE: None}, "capacity": {RESOURCE: None}}})
