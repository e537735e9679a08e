"""What KubeVirt's Containerized Data Importer does with a claim whose data is imported, played by the test.

It waits until a node is chosen for the claim's first pod, has a claim of its own provisioned for that node
(`prime-<uid>`), fills that volume in a pod, and hands it on: the PersistentVolume then names the first claim.
"""

from __future__ import annotations

from tests.cluster.client import Object
from tests.e2e import workloads
from tests.e2e.harness import Cell, has_condition
from tests.e2e.history_facts import SELECTED_NODE
from tests.e2e.view import CLAIMS, PODS
from tests.e2e.virtual_machines import controlled_by
from tests.longhorn.paths import PVS
from tests.waiting import wait_until

WAIT_SECONDS = 60.0
IMMEDIATE = "cdi.kubevirt.io/storage.bind.immediate.requested"
EPHEMERAL_PROVISIONING = "kubevirt.io/ephemeral-provisioning"


def imported_claim(name: str, class_name: str, gib: int) -> Object:
    """The claim of a DataVolume, whose data a populator brings."""
    made = workloads.claim(name, class_name, gib)
    source = {"apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": f"{name}-source"}
    made["spec"]["dataSourceRef"] = source
    return made


class Importer:
    """One claim that is being filled."""

    def __init__(self, cell: Cell, claim: Object) -> None:
        self._cell, self._api, self._target = cell, cell.scene.api, claim
        self.prime = f"prime-{claim['metadata']['uid']}"
        self.pod = f"importer-{self.prime}"

    def begin(self) -> str:
        """The node that was chosen for the first pod; the importer's pod is created then."""
        node = wait_until(self._selected_node, "a node for the first pod", WAIT_SECONDS)
        copied = ("accessModes", "resources", "storageClassName", "volumeMode")
        prime = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": self.prime,
                "labels": {"app": "containerized-data-importer"},
                "annotations": {SELECTED_NODE: node, IMMEDIATE: ""},
                "ownerReferences": [controlled_by(self._target, "v1", "PersistentVolumeClaim")],
            },
            "spec": {name: self._target["spec"][name] for name in copied if name in self._target["spec"]},
        }
        made = self._cell.create("persistentvolumeclaims", prime)
        pod = workloads.pod(self.pod, self.prime, opted_in=False, selector=self._cell.selector)
        pod["metadata"] |= {
            "labels": {"app": "containerized-data-importer", "cdi.kubevirt.io": "importer"},
            "ownerReferences": [controlled_by(made, "v1", "PersistentVolumeClaim")],
        }
        pod["spec"]["restartPolicy"] = "OnFailure"
        self._cell.create("pods", pod)
        return node

    def _selected_node(self) -> str:
        claim = self._claim(self._target["metadata"]["name"])
        return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE) or "")

    def _claim(self, name: str) -> Object:
        return self._cell.scene.view.get(CLAIMS, f"{self._cell.namespace}/{name}") or {"metadata": {}, "spec": {}}

    def fill(self) -> Object:
        """The importer's pod, which has written the data where it ran, and is gone."""

        def running() -> Object | None:
            pod = self._cell.scene.view.get(PODS, f"{self._cell.namespace}/{self.pod}")
            return pod if pod is not None and has_condition(pod, "Ready", "True") else None

        pod = wait_until(running, f"a running {self.pod}", WAIT_SECONDS)
        assert pod is not None
        self._cell.delete("pods", self.pod)
        self._cell.wait_gone(self.pod)
        return pod

    def hand_on(self) -> None:
        """The volume is the first claim's, and the importer's own claim goes."""
        name, meta = str(self._claim(self.prime)["spec"]["volumeName"]), self._target["metadata"]
        reference = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"], "resourceVersion": None}
        self._api.patch(f"{PVS}/{name}", {"spec": {"claimRef": reference}})
        path = self._cell.path("persistentvolumeclaims", meta["name"])
        wait_until(
            lambda: (self._api.get(path).get("status") or {}).get("phase") == "Bound", "a bound claim", WAIT_SECONDS
        )
        assert name == self._api.get(path)["spec"]["volumeName"]
        self._cell.delete("persistentvolumeclaims", self.prime)
