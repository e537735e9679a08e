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
        consumer = {"metadata": {"name": f"user-{node}"}, "spec": spec, "status": {"phase": "Pending"}}
        self.api.create("/api/v1/namespaces/default/pods", consumer)
        self.pod("v", node)

    def leave(self, node: str) -> None:
        self.api.delete(paths.pod("default", f"user-{node}"))
        self.no_pod("v", node)

    def place(self, node: str) -> None:
        """kube-scheduler binds the share-manager's pod."""
        self.api.patch(POD, {"spec": {"nodeName": node}, "status": {"phase": "Pending"}})

    def manager(self) -> Raw | None:
        """The share-manager's pod."""
        return self.api.get_or_none(POD)

    def uid(self) -> str:
        """Of that pod; "" without one."""
        return str((self.manager() or {"metadata": {}})["metadata"].get("uid") or "")

    def tickets(self) -> dict[str, str]:
        found = self.get("volumeattachments", "v")["spec"]["attachmentTickets"]
        return {name: ticket["nodeID"] for name, ticket in found.items()}

    # Checks

    def runs(self, *nodes: str) -> None:
        """The consumers that run, of all."""
        pods = self.api.list("/api/v1/namespaces/default/pods")["items"]
        running = [str(pod["spec"]["nodeName"]) for pod in pods if pod["status"]["phase"] == "Running"]
        assert [*nodes] == sorted(running)

    def serves(self, *expected: str) -> None:
        """State, the volume's node, where its engine runs, its owner: as many of these as are given."""
        volume, manager = self.get("volumes", "v"), self.get("sharemanagers", "v")
        status = volume["status"]
        assert status["shareState"] == manager["status"]["state"]
        found = manager["status"]["state"], volume["spec"]["nodeID"], status["currentNodeID"], status["ownerID"]
        assert expected == found[: len(expected)]

    def migrates(self, *expected: str) -> None:
        """The volume's node and the one that it migrates to, by its spec and by its status."""
        volume = self.get("volumes", "v")
        spec, status = volume["spec"], volume["status"]
        assert expected == (
            spec["nodeID"],
            spec["migrationNodeID"],
            status["currentNodeID"],
            status["currentMigrationNodeID"],
        )


def test_it_comes_once_a_consumer_was_placed_and_is_placed_by_somebody_else() -> None:
    stage = SharedStage(share_start=2.0)
    stage.run(10)
    assert ("", "stopped") == (stage.uid(), stage.get("sharemanagers", "v")["status"]["state"])
    stage.play("use a; run 1.9")
    assert ("", {"v-a": "a"}) == (stage.uid(), stage.tickets())
    stage.play("run 0.2; = v * on:")
    pod = stage.manager()
    assert pod is not None
    assert "nodeName" not in pod["spec"]
    assert {"k": "w"} == pod["spec"]["nodeSelector"]
    (owner,) = pod["metadata"]["ownerReferences"]
    uid = stage.get("sharemanagers", "v")["metadata"]["uid"]
    assert ("ShareManager", "v", uid) == (owner["kind"], owner["name"], owner["uid"])
    expected = {"managed-by": "longhorn-manager", "component": "share-manager", "share-manager": "v"}
    assert {f"longhorn.io/{name}": value for name, value in expected.items()}.items() <= pod["metadata"][
        "labels"
    ].items()


def test_the_volume_follows_its_pod_and_not_the_consumer() -> None:
    stage = SharedStage(share_attach=1.0, start=1.0, share_serve=1.0)
    stage.play("use a; run; place b; run 0.9; = v * on:; run 2; serves starting b b b; runs")
    stage.play("= v b; run 1; serves running b b b; runs a; use c; run; runs a c")  # best-effort: near the engine
    assert {"v-a": "a", "v-c": "c", "share-manager-controller-v": "b"} == stage.tickets()


@pytest.mark.parametrize("failure", ["failed", "deleted", "node"])
def test_after_a_failure_another_one_comes_and_takes_the_volume_with_it(failure: str) -> None:
    stage = SharedStage(share_retry=3.0)
    stage.play("use a; run; place b; run 1")
    first = stage.uid()
    if failure == "failed":
        stage.api.patch(POD, {"status": {"phase": "Failed"}})
    elif failure == "deleted":
        stage.api.delete(POD)
    else:
        stage.change("nodes", "b", not_ready, status=True)
    stage.play("run 2.9; serves error -")
    assert "" == stage.uid()
    stage.run(0.2)
    assert stage.uid() not in ("", first)
    stage.play("place c; run 5; serves running c c c; = v c")


def test_it_ends_with_its_last_consumer() -> None:
    stage = SharedStage(share_stop=1.0)
    stage.play("use a; use c; run; place b; run 1; leave a; run 2; serves running; leave c; run 0.9")
    assert stage.uid()
    stage.play("run 0.2; serves stopped - -; = v * attachments:")
    assert ("", {}) == (stage.uid(), stage.tickets())


def test_a_volume_that_can_migrate_has_none_and_is_attached_twice_for_a_while() -> None:
    stage = SharedStage(migratable=True, locality="disabled")
    stage.play("use a; run 1; use b; run 1; runs a b; migrates a b a b; leave a; run 1; migrates b - b -")
    assert "" == stage.uid()
    stage.play("leave b; run 1; = v * detached")


@pytest.mark.parametrize("left", ["a", "b"])
def test_a_migration_has_twins_that_are_made_with_their_place_and_one_of_each_pair_stays(left: str) -> None:
    stage = SharedStage(migratable=True, locality="disabled")
    stage.play("use a; run 1")
    (original,) = stage.replicas("v")
    where = original["spec"]["nodeID"]
    before = stage.scheduled_gib(where)
    stage.play("use b; run 1")
    (twin,) = (entry for entry in stage.replicas("v") if not entry["spec"]["active"])
    assert 2 * before == stage.scheduled_gib(where)
    for field in ("nodeID", "diskID", "dataDirectoryName"):
        assert original["spec"][field] == twin["spec"][field]
    stage.play(f"leave {left}; run 1")
    (stayed,) = stage.replicas("v")
    wanted = twin if left == "a" else original
    assert (wanted["metadata"]["name"], True) == (stayed["metadata"]["name"], stayed["spec"]["active"])
    assert before == stage.scheduled_gib(where)


def not_ready(raw: Raw) -> None:
    raw["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
