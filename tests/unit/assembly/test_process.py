"""The whole controller on an API server in memory: what it reads and follows, and that no fault ends a thread of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from werkzeug.test import Client

from controller.assembly.assemble import Controller
from controller.clock import SystemClock
from controller.errors import ForbiddenError
from controller.kube import resources
from controller.kube.resources import Resource
from controller.model.times import rfc3339
from controller.model.versions import NEWEST, VERSION_SETTING, behaviour_of
from controller.process.status_app import StatusApp
from controller.process.worker import Part, Worker, health_problem
from controller.serving.connection import RequestDeadlines
from controller.settings import ENABLED
from tests.fakes import saved
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fakes.saved import GIB, Raw
from tests.unit.assembly.processes import LOOPBACK, running, settings_of
from tests.waiting import wait_until
from webhook.assemble import Webhook
from webhook.settings import WebhookSettings

LONGHORN: Final = "longhorn-system"
CONFIG_MAP: Final = "longhorn-scheduler-extender"
NODES: Final = ["n1", "n2", "n3"]
VM: Final[Raw] = saved.core(
    "Pod",
    "vm",
    "ns",
    metadata={"annotations": {"kubevirt-scheduler/co-schedule": "true"}, "creationTimestamp": saved.NOW},
    spec={
        "schedulerName": "default-scheduler",
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "disk"}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "new"}},
        ],
    },
)


def claim(name: str, mode: str, **spec: object) -> Raw:
    amounts = {"requests": {"storage": "10Gi"}}
    whole = {"storageClassName": "longhorn", "accessModes": [mode], "resources": amounts, **spec}
    return saved.core("PersistentVolumeClaim", name, "ns", spec=whole)


def fill(server: FakeApiServer) -> None:
    """A pod of a virtual machine with a shared volume, which n2 serves, and with a new one."""

    def put(resource: Resource, raw: Raw) -> None:
        namespace = (raw["metadata"].get("namespace") or LONGHORN) if resource.is_namespaced else None
        server.create(resource, namespace, raw)

    # Else a call that a busy machine interrupts for 50 ms leaves nodes unevaluated.
    data = {ENABLED: "true", "scheduler-extender-filter-budget-milliseconds": "2000"}
    put(resources.CONFIG_MAPS, saved.core("ConfigMap", CONFIG_MAP, LONGHORN, data=data))
    for name in NODES:
        put(resources.NODES, saved.core("Node", name))
        put(resources.LONGHORN_NODES, saved.node(name))
    local = saved.storage_class("longhorn", dataLocality="best-effort", numberOfReplicas="1")
    put(resources.STORAGE_CLASSES, local)
    put(resources.CLAIMS, claim("disk", "ReadWriteMany", volumeName="v"))
    put(resources.CLAIMS, claim("new", "ReadWriteOnce"))
    source = {"driver": "driver.longhorn.io", "volumeHandle": "v"}
    of = {"namespace": "ns", "name": "disk", "uid": "uid-disk"}
    spec = {"csi": source, "claimRef": of, "capacity": {"storage": 10 * GIB}}
    put(resources.VOLUMES, saved.core("PersistentVolume", "v", spec=spec))
    put(resources.LONGHORN_VOLUMES, saved.volume(accessMode="rwx", migratable=False, numberOfReplicas=1))
    put(resources.LONGHORN_REPLICAS, saved.replica("v-r-1", "n3"))
    labels = {"longhorn.io/component": "share-manager", "longhorn.io/share-manager": "v"}
    manager = saved.core("Pod", "share-manager-v", LONGHORN, metadata={"labels": labels}, spec={"nodeName": "n2"})
    put(resources.PODS, manager)
    put(resources.PODS, VM)


@pytest.fixture
def server() -> FakeApiServer:
    made = FakeApiServer()
    made.create(resources.LONGHORN_SETTINGS, LONGHORN, saved.setting(VERSION_SETTING, "v1.10.1"))
    return made


@pytest.fixture
def controller(server: FakeApiServer) -> Iterator[Controller]:
    with running(server) as made:
        yield made


def document(of: Controller, path: str) -> tuple[int, Any]:
    """The HTTP status, and the document or the text."""
    answer = Client(StatusApp(of.documents.answers())).get(path)
    return answer.status_code, answer.json if answer.is_json else answer.text


def overview(of: Controller) -> Any:
    return document(of, "/overview")[1]


def test_a_follower_tells_what_it_knows_and_who_leads(server: FakeApiServer) -> None:
    fill(server)
    with running(server) as leader, running(server, "follower") as follower:
        wait_until(lambda: overview(leader)["is_leading"], "a leader")
        wait_until(lambda: overview(follower)["holder"] == "identity", "word of the leader")
        seen = overview(follower)
        assert (False, None, "", "follower") == (seen["is_leading"], seen["term"], seen["since"], seen["identity"])
        assert [] == [one for one in seen["problems"] if one["what"] == "leader"]
        assert NODES == [one["node"] for one in seen["disks"]]
        for path in ("/capacity", "/explain/pods/ns/vm", "/explain/claims/ns/new", "/explain/volumes/v"):
            assert (503, "this copy does not lead; the leader is identity\n") == document(follower, path)
            assert 200 == document(leader, path)[0]
        assert 404 == document(follower, "/explain/nodes/n1")[0]
        assert overview(leader)["since"].startswith(str(datetime.now(UTC).year))


def test_what_costs_most_of_an_overview_is_made_once_a_second_whoever_asks(server: FakeApiServer) -> None:
    clock = VirtualClock()
    documents = Controller(settings_of(), "identity", server, clock).documents
    first = documents.overview()
    clock.advance(0.9)
    assert documents.overview().totals is first.totals
    clock.advance(0.1)
    again = documents.overview()
    assert (False, rfc3339(clock.now_utc())) == (again.totals is first.totals, again.time)


def test_where_nobody_leads_that_is_the_first_problem(server: FakeApiServer) -> None:
    fill(server)
    server.fail_with(ForbiddenError("403: no"), "create", about=resources.LEASES)
    with running(server) as made:
        wait_until(made.stores.is_synced, "stores")
        told = overview(made)["problems"][0]
        assert ("failure", "leader") == (told["severity"], told["what"])
        assert (503, "this copy does not lead; nobody leads at the moment\n") == document(made, "/capacity")


def set_live(server: FakeApiServer, **data: str) -> None:
    settings = {f"scheduler-extender-{name}": text for name, text in data.items()}
    server.put(resources.CONFIG_MAPS, LONGHORN, {"metadata": {"name": CONFIG_MAP}, "data": settings})


# What it reads, counted


def test_with_warm_stores_no_verb_reads_anything(server: FakeApiServer) -> None:
    fill(server)
    with running(server) as controller:
        client = Client(controller.app)
        wait_until(lambda: client.get("/healthz").status_code == 200, "a leader")
        here, calls = threading.current_thread(), list[tuple[str, str]]()  # of the thread that answers

        def note(verb: str, resource: Resource) -> None:
            if threading.current_thread() is here and verb in ("get", "list"):
                calls.append((verb, resource.plural))

        server.fail = note
        asked = {"Pod": VM, "Nodes": None, "NodeNames": NODES}
        victims = {name: {"Pods": [{"UID": f"low-{name}"}], "NumPDBViolations": 0} for name in NODES}
        for _ in range(10):
            answer = client.post("/filter", json=asked).json
            assert answer is not None and ["n2"] == answer["NodeNames"] and "" == answer["Error"]
            assert [0, 10, 0] == [one["Score"] for one in client.post("/prioritize", json=asked).json or ()]
            kept = client.post("/preempt", json={"Pod": VM, "NodeNameToMetaVictims": victims}).json
            assert kept is not None and ["n2"] == list(kept["NodeNameToMetaVictims"])
        assert [] == calls
        server.delete(resources.PODS, "ns", "vm")
        gone = {**VM, "metadata": {**VM["metadata"], "uid": "uid-another"}}
        client.post("/filter", json={**asked, "Pod": gone})
        assert [("get", "pods")] == calls  # what is not known is looked for, and this is how it would be seen


@pytest.mark.parametrize(("enabled", "problem"), [("false", "is disabled"), ("maybe", "is not known whether")])
def test_health_says_why_no_call_is_answered(server: FakeApiServer, enabled: str, problem: str) -> None:
    set_live(server, enabled=enabled)
    with running(server) as controller:
        client = Client(controller.app)
        wait_until(lambda: problem in client.get("/healthz").text, problem)
        assert 503 == client.get("/healthz").status_code


# What it follows


@pytest.mark.parametrize(
    ("mode", "knows_callers"), [("insecure-plain-http", False), ("self", True), ("provided", True)]
)
def test_whoever_calls_is_known_by_his_certificate_or_not_at_all(
    server: FakeApiServer, mode: str, knows_callers: bool
) -> None:
    assert knows_callers is Controller(settings_of(tls_mode=mode), "identity", server).preconditions.knows_callers


def behaves_as(controller: Controller, version_text: str) -> bool:
    configured = controller.lifecycle.configured
    return configured is not None and configured.longhorn.behaviour == behaviour_of(version_text)


def shows(controller: Controller, version: str | None, is_supported: bool) -> bool:
    found = msgspec.json.decode(msgspec.json.encode(controller.documents.status()))["longhorn"]
    return found is not None and (found["version"], found["support"]["is_supported"]) == (version, is_supported)


def test_a_new_version_decides_and_is_shown_at_once_and_one_that_goes_is_not_known(
    controller: Controller, server: FakeApiServer
) -> None:
    assert behaviour_of("v1.10.1") != NEWEST
    wait_until(lambda: behaves_as(controller, "v1.10.1") and shows(controller, "v1.10.1", True))
    for version, is_supported in (("v1.12.1", True), ("v1.8.2", False), ("v1.12.1", True)):
        server.patch(resources.LONGHORN_SETTINGS, LONGHORN, VERSION_SETTING, {"value": version})
        wait_until(partial(behaves_as, controller, version))
        wait_until(partial(shows, controller, version, is_supported))
    server.delete(resources.LONGHORN_SETTINGS, LONGHORN, VERSION_SETTING)
    wait_until(lambda: behaves_as(controller, "unknown") and shows(controller, None, True))


def test_a_setting_that_is_not_used_is_counted(controller: Controller, server: FakeApiServer) -> None:
    name, registry = "longhorn_scheduler_extender_settings_problems", controller.metrics.registry
    wait_until(lambda: behaves_as(controller, "v1.10.1"))
    set_live(server, bypass="perhaps")
    wait_until(lambda: registry.get_sample_value(name) == 1)


def test_the_wiring_is_proven_only_while_kube_scheduler_should_ask_this_process(
    controller: Controller, server: FakeApiServer
) -> None:
    wait_until(lambda: controller.lifecycle.points_here)
    rounds = controller.prover.worker.state().rounds
    wait_until(lambda: controller.prover.worker.state().rounds > rounds + 1)
    assert {} == controller.documents.status()["wiring"]  # it is not known whether the extender is on
    set_live(server, enabled="true")
    wait_until(lambda: bool(controller.documents.status()["wiring"]))


# Every thread of both processes


Made = tuple[Controller | Webhook, CollectorRegistry, str]


def controller_process(api: FakeApiServer, serving: Part) -> Made:
    made = Controller(settings_of(), "identity", api, serving=serving.workers)
    return made, made.metrics.registry, "longhorn_scheduler_extender"


def webhook_process(api: FakeApiServer, serving: Part) -> Made:
    settings = WebhookSettings(tls_mode="off", metrics_address=LOOPBACK, metrics_port=0, status_port=0)
    made = Webhook(settings, api, serving=serving.workers)
    return made, made.metrics.registry, "longhorn_scheduler_webhook"


def fail_once(worker: Worker) -> threading.Event:
    """Set when the round after the fault begins."""
    run, failures, again = worker._run, [ValueError("odd")], threading.Event()

    def failing() -> float | None:
        if failures:
            raise failures.pop()
        again.set()
        return run()

    worker._run = failing
    worker._retry_seconds = (0.01, 0.01)
    return again


@pytest.mark.parametrize("make", [controller_process, webhook_process])
def test_a_fault_in_every_worker_ends_none_and_each_tells_of_its_own(
    make: Callable[[FakeApiServer, Part], Made],
) -> None:
    serving = RequestDeadlines(SystemClock(), 10.0)
    process, registry, prefix = make(FakeApiServer(), serving)
    before = set(threading.enumerate())
    rounds_after = [fail_once(worker) for worker in process.workers]
    process.start()
    serving.start()  # as the server does
    try:
        wait_until(lambda: all(again.is_set() for again in rounds_after), "second round of each", 30)
        assert {1} == {worker.state().failures for worker in process.workers}
        assert "" == health_problem(process.workers)
        told = process.documents if isinstance(process, Controller) else process
        entries = told.status()["workers"]
        names = {worker.name for worker in process.workers}
        assert names == set(entries) and len(names) == len(process.workers)
        assert {"ValueError: odd"} == {entry["last_failure"] for entry in entries.values()}
        for name in names:
            assert 1 == registry.get_sample_value(f"{prefix}_worker_failures_total", {"worker": name})
        ours = {thread.name for thread in set(threading.enumerate()) - before if thread.name != "MainThread"}
        helpers = {name for name in ours if name.startswith(("catch-up", "ThreadPool", "Thread-", "rpc_"))}
        assert names == ours - helpers
    finally:
        serving.stop()
        process.stop()
    assert not [thread for thread in threading.enumerate() if thread.name in names]
