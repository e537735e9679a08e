"""Share-managers and migration as the stand-in plays them, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.longhorn import paths
from tests.longhorn.share_managers import pod_name
from tests.unit.longhorn.stage import NAMESPACE, LonghornStage, Raw

POD = paths.pod(NAMESPACE, pod_name("v"))


class SharedStage(LonghornStage):
    """Three nodes and one volume of several nodes, `v`, which nobody uses yet. The test plays kube-scheduler."""

    def __init__(self, *, migratable: bool = False, locality: str = "best-effort", **delays: Any) -> None:
        super().__init__("a", "b", "c", share_managers=True, **delays)
        spec: Raw = {"size": "1048576", "numberOfReplicas": 1, "dataLocality": locality, "nodeID": ""}
        self.volumes.create("v", spec | {"accessMode": "rwx", "migratable": migratable})
        csi = {"driver": paths.DRIVER, "volumeHandle": "v", "volumeAttributes": {"shareManagerNodeSelector": "k:w"}}
        self.api.create(paths.PVS, {"metadata": {"name": "v"}, "spec": {"csi": csi}})
        resources = {"requests": {"storage": "1Mi"}}
        claim = {"metadata": {"name": "disk"}, "spec": {"volumeName": "v", "resources": resources}}
        self.api.create("/api/v1/namespaces/default/persistentvolumeclaims", claim)
        self.run()

    def use(self, node: str) -> None:
        """A consumer was placed there, which kube-controller-manager makes an attachment for."""
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]
        spec = {"nodeName": node, "volumes": volumes, "containers": [{"name": "main"}]}
        meta = {"name": f"user-{node}"}
        self.api.create(
            "/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
        )
        source = {"persistentVolumeName": "v"}
        attachment = {"attacher": paths.DRIVER, "nodeName": node, "source": source}
        self.api.create(paths.ATTACHMENTS, {"metadata": {"name": f"csi-{node}"}, "spec": attachment})

    def leave(self, node: str) -> None:
        self.api.delete(paths.pod("default", f"user-{node}"))
        self.api.delete(f"{paths.ATTACHMENTS}/csi-{node}")

    def place(self, node: str) -> None:
        """kube-scheduler binds the share-manager's pod."""
        self.api.patch(POD, {"spec": {"nodeName": node}, "status": {"phase": "Pending"}})

    def manager(self) -> Raw | None:
        """The share-manager's pod."""
        return self.api.get_or_none(POD)

    def uid(self) -> str:
        """Of that pod; "" without one."""
        return str((self.manager() or {"metadata": {}})["metadata"].get("uid") or "")

    def is_running(self, node: str) -> bool:
        status: Raw = self.api.get(paths.pod("default", f"user-{node}"))["status"]
        return bool(status["phase"] == "Running")

    def serving(self) -> tuple[str, str, str, str]:
        """State, the volume's node, where its engine runs, its owner."""
        volume, manager = self.get("volumes", "v"), self.get("sharemanagers", "v")
        status = volume["status"]
        assert status["shareState"] == manager["status"]["state"]
        return manager["status"]["state"], volume["spec"]["nodeID"], status["currentNodeID"], status["ownerID"]


def test_it_comes_once_a_consumer_was_placed_and_is_placed_by_somebody_else() -> None:
    stage = SharedStage(share_start=2.0)
    stage.run(10)
    assert ("", "stopped") == (stage.uid(), stage.get("sharemanagers", "v")["status"]["state"])
    stage.use("a")
    stage.run(1.9)
    assert "" == stage.uid()
    assert {"csi-a": "a"} == tickets(stage)
    stage.run(0.2)
    pod = stage.manager()
    assert pod is not None
    assert "nodeName" not in pod["spec"]
    assert {"k": "w"} == pod["spec"]["nodeSelector"]
    (owner,) = pod["metadata"]["ownerReferences"]
    assert ("ShareManager", "v", stage.get("sharemanagers", "v")["metadata"]["uid"]) == (
        owner["kind"],
        owner["name"],
        owner["uid"],
    )
    labels = pod["metadata"]["labels"]
    assert ("longhorn-manager", "share-manager", "v") == (
        labels["longhorn.io/managed-by"],
        labels["longhorn.io/component"],
        labels["longhorn.io/share-manager"],
    )
    assert "" == stage.get("volumes", "v")["spec"]["nodeID"]


def test_the_volume_follows_its_pod_and_not_the_consumer() -> None:
    stage = SharedStage(share_attach=1.0, start=1.0, share_serve=1.0)
    stage.use("a")
    stage.run()
    stage.place("b")
    stage.run(0.9)
    assert "" == stage.get("volumes", "v")["spec"]["nodeID"]
    stage.run(2)
    assert ("starting", "b", "b", "b") == stage.serving()
    assert ["b"] == stage.places("v")  # best-effort: near the engine
    assert not stage.is_running("a")
    stage.run(1)
    assert ("running", "b", "b", "b") == stage.serving()
    assert stage.is_running("a")
    assert {"csi-a": "a", "share-manager-controller-v": "b"} == tickets(stage)
    stage.use("c")
    stage.run()
    assert stage.is_running("c")


@pytest.mark.parametrize("failure", ["failed", "deleted", "node"])
def test_after_a_failure_another_one_comes_and_takes_the_volume_with_it(failure: str) -> None:
    stage = SharedStage(share_retry=3.0)
    stage.use("a")
    stage.run()
    stage.place("b")
    stage.run(1)
    first = stage.uid()
    if failure == "failed":
        stage.api.patch(POD, {"status": {"phase": "Failed"}})
    elif failure == "deleted":
        stage.api.delete(POD)
    else:
        stage.change("nodes", "b", not_ready, status=True)
    stage.run(2.9)
    assert ("", "error", "") == (stage.uid(), *stage.serving()[:2])
    stage.run(0.2)
    assert stage.uid() not in ("", first)
    stage.place("c")
    stage.run(5)
    assert ("running", "c", "c", "c") == stage.serving()
    assert ["c"] == stage.places("v")


def test_it_ends_with_its_last_consumer() -> None:
    stage = SharedStage(share_stop=1.0)
    stage.use("a")
    stage.use("c")
    stage.run()
    stage.place("b")
    stage.run(1)
    stage.leave("a")
    stage.run(2)
    assert "running" == stage.serving()[0]
    stage.leave("c")
    stage.run(0.9)
    assert stage.uid()
    stage.run(0.2)
    assert ("", ("stopped", "", "")) == (stage.uid(), stage.serving()[:3])
    assert {} == tickets(stage)
    assert not stage.api.list(paths.ATTACHMENTS)["items"]


def test_a_volume_that_can_migrate_has_none_and_is_attached_twice_for_a_while() -> None:
    stage = SharedStage(migratable=True, locality="disabled")
    stage.use("a")
    stage.run(1)
    stage.use("b")
    stage.run(1)
    assert (stage.is_running("a"), stage.is_running("b")) == (True, True)
    volume = stage.get("volumes", "v")
    assert ("a", "b") == (volume["spec"]["nodeID"], volume["spec"]["migrationNodeID"])
    stage.leave("a")
    stage.run(1)
    volume = stage.get("volumes", "v")
    assert ("b", "", "b", "") == (
        volume["spec"]["nodeID"],
        volume["spec"]["migrationNodeID"],
        volume["status"]["currentNodeID"],
        volume["status"]["currentMigrationNodeID"],
    )
    assert "" == stage.uid()
    stage.leave("b")
    stage.run(1)
    assert "detached" == stage.get("volumes", "v")["status"]["state"]


@pytest.mark.parametrize("left", ["a", "b"])
def test_a_migration_has_twins_that_are_made_with_their_place_and_one_of_each_pair_stays(left: str) -> None:
    stage = SharedStage(migratable=True, locality="disabled")
    stage.use("a")
    stage.run(1)
    (original,) = stage.replicas("v")
    where = original["spec"]["nodeID"]
    before = stage.scheduled_gib(where)
    stage.use("b")
    stage.run(1)
    (twin,) = (entry for entry in stage.replicas("v") if not entry["spec"]["active"])
    assert 2 * before == stage.scheduled_gib(where)
    for field in ("nodeID", "diskID", "dataDirectoryName"):
        assert original["spec"][field] == twin["spec"][field]
    stage.leave(left)
    stage.run(1)
    (stayed,) = stage.replicas("v")
    wanted = twin if left == "a" else original
    assert (wanted["metadata"]["name"], True) == (stayed["metadata"]["name"], stayed["spec"]["active"])
    assert before == stage.scheduled_gib(where)


def tickets(stage: SharedStage) -> dict[str, str]:
    found = stage.get("volumeattachments", "v")["spec"]["attachmentTickets"]
    return {name: ticket["nodeID"] for name, ticket in found.items()}


def not_ready(raw: Raw) -> None:
    raw["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
