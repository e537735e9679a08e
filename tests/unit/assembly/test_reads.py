"""What the whole process reads from the API server while it answers kube-scheduler, counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import pytest
from werkzeug.test import Client

from controller.assembly.assemble import Controller
from controller.kube import resources
from controller.kube.resources import Resource
from controller.settings import ENABLED
from tests.fakes import saved
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.saved import GIB, Raw
from tests.unit.assembly.processes import running
from tests.waiting import wait_until

LONGHORN: Final = "longhorn-system"
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


def objects() -> Iterator[tuple[Resource, Raw]]:
    """A pod of a virtual machine with a shared volume, which n2 serves, and with a new one."""
    settings = saved.core("ConfigMap", "longhorn-scheduler-extender", LONGHORN, data={ENABLED: "true"})
    yield resources.CONFIG_MAPS, settings
    for name in NODES:
        yield resources.NODES, saved.core("Node", name)
        yield resources.LONGHORN_NODES, saved.node(name)
    local = saved.storage_class("longhorn", dataLocality="best-effort", numberOfReplicas="1")
    yield resources.STORAGE_CLASSES, local
    yield resources.CLAIMS, claim("disk", "ReadWriteMany", volumeName="v")
    yield resources.CLAIMS, claim("new", "ReadWriteOnce")
    source = {"driver": "driver.longhorn.io", "volumeHandle": "v"}
    of = {"namespace": "ns", "name": "disk", "uid": "uid-disk"}
    spec = {"csi": source, "claimRef": of, "capacity": {"storage": 10 * GIB}}
    yield resources.VOLUMES, saved.core("PersistentVolume", "v", spec=spec)
    yield resources.LONGHORN_VOLUMES, saved.volume(accessMode="rwx", migratable=False, numberOfReplicas=1)
    yield resources.LONGHORN_REPLICAS, saved.replica("v-r-1", "n3")
    labels = {"longhorn.io/component": "share-manager", "longhorn.io/share-manager": "v"}
    manager = saved.core("Pod", "share-manager-v", LONGHORN, metadata={"labels": labels}, spec={"nodeName": "n2"})
    yield resources.PODS, manager
    yield resources.PODS, VM


@pytest.fixture
def server() -> FakeApiServer:
    made = FakeApiServer()
    for resource, raw in objects():
        namespace = (raw["metadata"].get("namespace") or LONGHORN) if resource.is_namespaced else None
        made.create(resource, namespace, raw)
    return made


@pytest.fixture
def controller(server: FakeApiServer) -> Iterator[Controller]:
    with running(server) as made:
        yield made


def test_with_warm_stores_no_verb_reads_anything(controller: Controller, server: FakeApiServer) -> None:
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
