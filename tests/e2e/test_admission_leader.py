"""The leader's webhook configurations through the life of a cluster: schedulers wired and not, strangers, removal."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.client import Object
from tests.cluster.history import read_history
from tests.cluster.watch import Reflector
from tests.e2e import workloads
from tests.e2e.harness import NOT_APPLIED, Cell, Scene, manifests
from tests.e2e.schedulers import Schedulers, lacks_resource
from tests.e2e.scheduling import NAMESPACE, RESOURCE, SERVICE, SERVICE_PORT
from tests.e2e.webhooks import CONFIGURATION, MUTATING, OURS, WEBHOOK_SERVICE, Webhook
from tests.waiting import wait_equal, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

PODS = ["pods.scheduling.longhorn.io", "marked-pods.scheduling.longhorn.io"]
MUTATIONS = [*PODS, "share-managers.scheduling.longhorn.io"]
VALIDATIONS = [f"{name}.scheduling.longhorn.io" for name in ("claims", "volumes", "growth-check")]
LEAVES_SECONDS = 5.0
MakeCell = Callable[..., Cell]


class WatchedAdmission(Schedulers):
    """A scene with one copy of the webhook, and a watch on our mutating configuration."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.cell_numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.seen: list[tuple[float, list[str]]] = []  # when which entries stood
        self.watch = Reflector(scene.api, MUTATING, self._on_event)
        self.watch.wait_synced()
        self.webhook = Webhook(scene.cluster)
        scene.cluster.add_node("any")  # a kube-scheduler without nodes asks nobody

    def _on_event(self, kind: str, obj: Object) -> None:
        if obj["metadata"]["name"] == CONFIGURATION:
            names = [] if kind == "DELETED" else [entry["name"] for entry in obj.get("webhooks") or []]
            with self._lock:
                self.seen.append((time.time(), names))

    def entries(self, path: str = OURS[0]) -> list[str]:
        found = self.api.get_or_none(path)
        return [entry["name"] for entry in found.get("webhooks") or []] if found else []

    def wait_entries(self, mutations: list[str], validations: list[str], timeout: float = 60.0) -> None:
        wanted = (mutations, validations)
        try:
            wait_until(lambda: (self.entries(), self.entries(OURS[1])) == wanted, f"entries {wanted}", timeout)
        except TimeoutError as error:
            controller = self.scene.controllers[-1]
            raise TimeoutError(f"{error}: {self.status()}; {controller.log}") from None

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.scene.controllers[-1].status()["admission"]
        return found

    def gone_at(self, since: float) -> float:
        """When the pod rule was first seen to be away."""
        with self._lock:
            return next(at for at, names in self.seen if at > since and PODS[0] not in names)

    def asked_of(self, cell: Cell) -> bool:
        """Whether a pod of that cell that is created now opts in."""
        made = workloads.pod("probe", "unknown", opted_in=False)
        return bool(requests_of(self.api.create(cell.path("pods"), made, dryRun="All")))


@pytest.fixture(scope="module")
def world(unscheduled_scene: Scene) -> Iterator[WatchedAdmission]:
    made = WatchedAdmission(unscheduled_scene)
    yield made
    made.watch.stop()
    made.webhook.stop(kill=True)
    unscheduled_scene.cluster.delete_node("any")


@pytest.fixture
def led(world: WatchedAdmission) -> Iterator[WatchedAdmission]:
    """One copy of the product leads, the webhook is ready, no kube-scheduler runs yet."""
    world.scene.set_settings(enabled="true", opt_in="auto", expansion_policy="allow")
    world.scene.start_controller()
    world.webhook.wait_ready()
    yield world
    world.stop_schedulers()
    world.scene.stop_controllers()
    for path in OURS:
        world.api.patch(path, {"webhooks": []})


@pytest.fixture
def make_cell(world: WatchedAdmission) -> Iterator[MakeCell]:
    cells: list[Cell] = []

    def make(**options: Any) -> Cell:
        cells.append(world.scene.cell(f"adm{next(world.cell_numbers)}", fillers=0, **options))
        return cells[-1]

    yield make
    for cell in cells:
        cell.end()


def requests_of(pod: Object) -> list[str]:
    """What its containers say of the resource, requests and limits."""
    stated = [container.get("resources") or {} for container in pod["spec"]["containers"]]
    amounts = [each.get(part) or {} for each in stated for part in ("requests", "limits")]
    return [amount[RESOURCE] for amount in amounts if RESOURCE in amount]


def test_pods_opt_in_only_while_the_scheduler_is_wired(led: WatchedAdmission, make_cell: MakeCell) -> None:
    cell = make_cell(nodes=4)
    led.scheduler(wired=False)
    led.wait_entries(MUTATIONS[2:], VALIDATIONS)
    cell.stateful_set("before", replicas=5, gib=1, opted_in=False)
    cell.wait_ready(5)
    assert [] == [request for pod in cell.pods() for request in requests_of(pod)]
    assert "unwired" in led.status()["why_not"]["default-scheduler"]

    led.stop_schedulers()
    led.scheduler(wired=True)
    led.wait_entries(MUTATIONS, VALIDATIONS)
    cell.stateful_set("wired", replicas=5, gib=1, opted_in=False)
    cell.wait_ready(10)
    assert [["1", "1"]] * 5 == [requests_of(pod) for pod in named(cell, "wired")]

    # Pods that opted in, and whose scheduler is replaced by one that was not told of the extender.
    led.stop_schedulers(kill=True)
    cell.stateful_set("stuck", replicas=5, gib=1, opted_in=False)
    wait_until(lambda: len(named(cell, "stuck")) == 5, "five pods", 60)
    led.scene.cluster.history_caught_up()
    since = time.time()
    led.scheduler(wired=False)
    led.wait_entries(MUTATIONS[2:], VALIDATIONS)
    first = first_lack(led, cell, since)
    print(f"the rule left {led.gone_at(since) - first:.3f} s after the first condition")
    assert led.gone_at(since) - first <= LEAVES_SECONDS
    keys = [f"{cell.namespace}/stuck-{number}" for number in range(5)]
    wait_until(lambda: led.status()["stuck_pods"] == {"count": 5, "pods": keys}, "list of stuck pods", 60)
    wait_until(lambda: len(cell.events("LonghornSchedulerNotWired")) >= 5, "Event on each stuck pod", 60)
    wait_until(lambda: led.scene.events("LonghornPodsStuck"), "Event about all", 60)
    cell.stateful_set("after", replicas=5, gib=1, opted_in=False)
    cell.wait_ready(15)
    assert [[]] * 5 == [requests_of(pod) for pod in named(cell, "after")]

    # Wired again, they run.
    led.stop_schedulers()
    led.scheduler(wired=True)
    cell.wait_ready(20)
    wait_until(lambda: not led.status()["stuck_pods"]["count"], "end of the stuck pods", 60)


def named(cell: Cell, prefix: str) -> list[Object]:
    return [pod for pod in cell.pods() if pod["metadata"]["name"].startswith(f"{prefix}-")]


def first_lack(world: WatchedAdmission, cell: Cell, since: float) -> float:
    """When the history first shows a condition that names the resource as insufficient."""
    world.scene.cluster.history_caught_up()
    for entry in read_history(world.scene.cluster.history):
        if entry["at"] > since and lacks_resource(entry):
            return float(entry["at"])
    raise AssertionError("no such condition")


def test_a_new_leader_leaves_no_gap(led: WatchedAdmission) -> None:
    led.scheduler(wired=True)
    led.wait_entries(MUTATIONS, VALIDATIONS)
    since = time.time()
    led.scene.stop_controllers()
    led.scene.start_controller()
    wait_until(lambda: led.status()["opted_in_schedulers"] == ["default-scheduler"], "rule of the new leader", 60)
    wait_until(
        lambda: led.scene.controllers[-1].status()["wiring"].get("default-scheduler", {}).get("state") == "wired",
        "wiring proven again",
        60,
    )
    led.scene.cluster.history_caught_up()
    assert [] == [names for at, names in led.seen if at > since and PODS[0] not in names]


@pytest.mark.long
def test_strangers_changes_are_undone(led: WatchedAdmission) -> None:
    led.scheduler(wired=True)
    led.wait_entries(MUTATIONS, VALIDATIONS)
    path = OURS[0]
    ours = led.api.get(path)["webhooks"]

    theirs = [{**ours[0], "name": "old.scheduling.longhorn.io"}, {**ours[0], "failurePolicy": "Fail"}]
    led.api.patch(path, {"webhooks": theirs, "metadata": {"labels": {"theirs": "1"}}})
    wait_until(lambda: led.api.get(path)["webhooks"] == ours, "undone change", 30)
    assert "1" == led.api.get(path)["metadata"]["labels"]["theirs"]

    led.api.delete(OURS[1])  # the leader may not make it
    wait_until(lambda: "does not exist" in str(led.status()["problems"]), "problem that is told", 30)
    apply_again(led)
    led.wait_entries(MUTATIONS, VALIDATIONS)

    for _ in range(2):
        led.api.patch(path, {"webhooks": []})
        led.wait_entries(MUTATIONS, VALIDATIONS)
    wait_until(lambda: contested(led), "Event about the quarrel", 30)
    (event, *_) = contested(led)
    assert ("MutatingWebhookConfiguration", CONFIGURATION) == (
        event["involvedObject"]["kind"],
        event["involvedObject"]["name"],
    )


def contested(led: WatchedAdmission) -> list[Object]:
    return led.scene.events("WebhookConfigurationContested", "default")  # the configurations are in no namespace


def apply_again(led: WatchedAdmission, *flags: str, verb: str = "apply") -> None:
    """The manifests, as users apply them."""
    documents = [document for document in manifests() if document["kind"] not in NOT_APPLIED]
    if verb == "replace":
        documents = [document for document in documents if document["kind"].endswith("WebhookConfiguration")]
    done = led.scene.cluster.kubectl(verb, *flags, "-f", "-", input=yaml.safe_dump_all(documents))
    assert 0 == done.returncode, done.stderr


@pytest.mark.long
def test_applying_the_manifests_again_takes_nothing_away(led: WatchedAdmission) -> None:
    led.scheduler(wired=True)
    led.wait_entries(MUTATIONS, VALIDATIONS)
    since = time.time()
    for flags in ((), ("--server-side", "--force-conflicts"), ("--server-side", "--force-conflicts"), ()):
        apply_again(led, *flags)
        assert (MUTATIONS, VALIDATIONS) == (led.entries(), led.entries(OURS[1]))
    led.scene.cluster.history_caught_up()
    assert [] == [names for at, names in led.seen if at > since and names != MUTATIONS]
    assert "active" == led.scene.controllers[-1].status()["mode"]

    apply_again(led, verb="replace")  # which empties them
    led.wait_entries(MUTATIONS, VALIDATIONS, 10.0)


def test_switched_off_the_rule_leaves_first_and_nobody_is_stranded(led: WatchedAdmission, make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1)
    led.scheduler(wired=True)
    led.wait_entries(MUTATIONS, VALIDATIONS)
    led.stop_schedulers()
    cell.stateful_set("web", replicas=3, gib=1, opted_in=False)
    wait_until(lambda: sum(map(len, map(requests_of, cell.pods()))) == 6, "three pods that opted in", 60)

    led.scene.set_settings(enabled="false")
    led.wait_entries([], [])
    wait_until(lambda: led.scene.controllers[-1].status()["mode"] == "bypass", "bypass", 30)
    led.scheduler(wired=True)
    cell.wait_ready(3)
    wait_until(lambda: led.scene.controllers[-1].status()["mode"] == "closed", "the end of bypass", 30)
    wait_until(lambda: not led.scene.cluster.services.endpoints(NAMESPACE, SERVICE, SERVICE_PORT), "closed Service", 30)


@pytest.mark.long
def test_the_configurations_are_removed_for_good(led: WatchedAdmission) -> None:
    led.scheduler(wired=True)
    led.wait_entries(MUTATIONS, VALIDATIONS)
    done = led.scene.run("controller", "remove-webhooks", "--namespace", NAMESPACE)
    assert (0, "") == (done.returncode, done.stderr)
    assert 3 == len(done.stdout.splitlines())  # the same whether the command or the leader was first
    for path in OURS:
        assert not led.api.get(path).get("webhooks")
    again = led.scene.run("controller", "remove-webhooks", "--namespace", NAMESPACE)
    assert (0, done.stdout) == (again.returncode, again.stdout)
    admin = led.scene.cluster.kubeconfig
    elsewhere = led.scene.run("controller", "remove-webhooks", "--namespace", "nope", kubeconfig=admin)
    assert (2, "") == (elsewhere.returncode, elsewhere.stdout)
    assert "there is no ConfigMap nope/longhorn-scheduler-extender" in elsewhere.stderr


@pytest.mark.long
def test_pods_that_were_made_while_the_webhook_was_away_are_counted_and_told(
    led: WatchedAdmission, make_cell: MakeCell
) -> None:
    cell = make_cell(nodes=1)
    led.scheduler(wired=True)
    led.wait_entries(MUTATIONS, VALIDATIONS)
    wait_until(lambda: led.asked_of(cell), "an API server that asks the webhook", 60)
    led.webhook.stop(kill=True)
    services = led.scene.cluster.services
    try:
        wait_until(lambda: not services.endpoints(NAMESPACE, WEBHOOK_SERVICE, 443), "Service without an endpoint", 30)
        cell.stateful_set("web", replicas=3, gib=1, opted_in=False)
        cell.claim("c", gib=1)
        cell.pod("out", "c", opted_in=False, labels={"scheduling.longhorn.io/opt-in": "false"})
        cell.pod("asks", "c")
        cell.wait_bound(5)
        schedulers, workloads = {"default-scheduler": 3}, {f"StatefulSet {cell.namespace}/web": 3}
        missed = {"count": 3, "schedulers": schedulers, "workloads": workloads}
        wait_until(lambda: led.status()["missed_pods"] == missed, "three missed pods", 60)
        assert 3 == led.scene.controllers[-1].counted('missed_pods{scheduler="default-scheduler"}')
    finally:
        led.webhook = Webhook(led.scene.cluster)
    wait_until(lambda: cell.events("LonghornPodsNotOptedIn"), "an Event about them", 30)
    (event,) = cell.events("LonghornPodsNotOptedIn")
    assert ("StatefulSet", "web", 1) == (
        event["involvedObject"]["kind"],
        event["involvedObject"]["name"],
        event["count"],
    )
    assert "web-0" in event["message"]

    # Made anew they opt in, and nothing is left to tell.
    led.webhook.wait_ready()
    wait_until(lambda: led.asked_of(cell), "an API server that asks the webhook again", 60)
    led.api.delete(cell.path("pods"), gracePeriodSeconds=0)
    wait_until(lambda: len(requests_of_all(named(cell, "web"))) == 6, "three pods that opted in", 60)
    wait_until(lambda: led.status()["missed_pods"]["count"] == 0, "no missed pod", 60)


def test_pods_of_a_profile_that_is_not_listed_are_counted_and_told_until_it_is_listed(
    led: WatchedAdmission, make_cell: MakeCell
) -> None:
    cell, other = make_cell(nodes=1), "gpu-binpack"
    led.scheduler(wired=True, profiles=[other])
    led.wait_entries(MUTATIONS, VALIDATIONS)
    cell.stateful_set("web", replicas=2, gib=1, opted_in=False, scheduler=other)
    cell.claim("c", gib=1)
    cell.pod("nobodys", "c", opted_in=False, schedulerName="not-there")
    cell.wait_bound(2)
    wait_equal({other: 2, "not-there": 1}, lambda: led.status()["missed_pods"]["schedulers"], 60)
    assert 2 == led.scene.controllers[-1].counted(f'missed_pods{{scheduler="{other}"}}')
    wait_until(lambda: len(cell.events("LonghornSchedulerNotListed")) == 2, "an Event about each scheduler", 30)
    about = {event["involvedObject"]["kind"]: event for event in cell.events("LonghornSchedulerNotListed")}
    assert {"StatefulSet", "Pod"} == about.keys()
    assert ("web", 1) == (about["StatefulSet"]["involvedObject"]["name"], about["StatefulSet"]["count"])
    assert f"2 pods with Longhorn volumes and the scheduler '{other}'" in about["StatefulSet"]["message"]

    led.scene.stop_controllers()
    led.scene.start_controller(flags=("--scheduler-names", f"default-scheduler,{other}"))
    wait_until(lambda: led.status()["opted_in_schedulers"] == ["default-scheduler", other], "the profile", 60)
    assert {"not-there": 1} == led.status()["missed_pods"]["schedulers"]


def requests_of_all(pods: list[Object]) -> list[str]:
    return [request for pod in pods for request in requests_of(pod)]


@pytest.mark.parametrize("policy", [pytest.param("allow", marks=pytest.mark.long), "deny"])
def test_with_all_our_pods_down_the_api_server_goes_on_and_our_deployments_can_start(
    led: WatchedAdmission, policy: str
) -> None:
    led.scene.set_settings(expansion_policy=policy)
    led.scheduler(wired=True)
    led.wait_entries(MUTATIONS, VALIDATIONS)
    led.scene.stop_controllers()
    led.webhook.stop(kill=True)
    services = led.scene.cluster.services
    wait_until(lambda: not services.endpoints(NAMESPACE, WEBHOOK_SERVICE, 443), "Service without an endpoint", 30)
    try:
        for claims in ((), ("c",)):
            made = workloads.pod(f"down-{policy}-{len(claims)}", *claims, opted_in=False)
            led.api.create("/api/v1/namespaces/default/pods", made)
        led.api.create("/api/v1/namespaces/kube-system/pods", workloads.pod(f"down-{policy}", "c", opted_in=False))
        for deployment in our_deployments():
            start_deployment(led, deployment)
    finally:
        led.webhook = Webhook(led.scene.cluster)


def our_deployments() -> list[Object]:
    found = [document for document in manifests() if document["kind"] == "Deployment"]
    assert {SERVICE, WEBHOOK_SERVICE} == {document["metadata"]["name"] for document in found}
    return found


def start_deployment(world: WatchedAdmission, deployment: Object) -> None:
    """Its pods are created by the controllers of Kubernetes, and given back."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{deployment['metadata']['name']}"
    replicas = deployment["spec"]["replicas"]
    world.api.create(path.rpartition("/")[0], deployment)
    try:
        wait_until(lambda: world.api.get(path)["status"].get("updatedReplicas") == replicas, f"{replicas} pods", 30)
    finally:
        world.api.delete(path, propagationPolicy="Background")
