"""What Longhorn's stand-in makes of an API server that refuses every first place of a Replica for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.cluster.client import ApiClient, ApiError, ignored_when_gone
from tests.cluster.cluster import Cluster
from tests.e2e.longhorn_cell import OPTIONS, LonghornCell
from tests.e2e.manager_writes import made_object
from tests.e2e.view import CLAIMS
from tests.longhorn import paths
from tests.longhorn.longhorn import Longhorn
from tests.longhorn.options import GIB, DiskOptions
from tests.longhorn.quantity import quantity_bytes
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

MakeCell = Callable[..., LonghornCell]

POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
REPLICAS: Final = paths.longhorn("replicas", OPTIONS.namespace)
NAME: Final = "no-first-place"
SECONDS: Final = 20.0


class ClosedGate:
    """Refuses every update that gives a Replica its first node, from `close` to `open`. Threads: one at a time."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        rule = {"apiGroups": [paths.GROUP], "apiVersions": ["*"], "resources": ["replicas"], "operations": ["UPDATE"]}
        is_first = "object.spec.nodeID != '' && oldObject.spec.nodeID == ''"
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": f"!({is_first})", "message": "nobody places"}],
        }
        api.create(POLICIES, _admission("ValidatingAdmissionPolicy", spec))
        probe = made_object("Replica", "probe", {"volumeName": "none", "volumeSize": str(GIB), "nodeID": ""})
        api.create(REPLICAS, probe)

    def close(self) -> None:
        spec = {"policyName": NAME, "validationActions": ["Deny"]}
        self._api.create(BINDINGS, _admission("ValidatingAdmissionPolicyBinding", spec))
        wait_until(self._is_closed, "a policy that refuses", SECONDS)

    def open(self) -> None:
        with ignored_when_gone():
            self._api.delete(f"{BINDINGS}/{NAME}")
        wait_until(lambda: not self._is_closed(), "a policy that refuses nothing", SECONDS)

    def end(self) -> None:
        self.open()
        for path in (f"{POLICIES}/{NAME}", f"{REPLICAS}/probe"):
            self._api.delete(path)

    def _is_closed(self) -> bool:
        try:
            self._api.patch(f"{REPLICAS}/probe", {"spec": {"nodeID": "n"}}, dryRun="All")
        except ApiError as error:
            if error.status not in (403, 422):
                raise
            return True
        return False


def _admission(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    version = "admissionregistration.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": NAME}, "spec": spec}


@pytest.fixture
def gate(cluster: Cluster, longhorn: Longhorn) -> Iterator[ClosedGate]:
    """Open at first; it needs Longhorn's definitions."""
    found = ClosedGate(cluster.api())
    yield found
    found.end()


def wait_refused(cell: LonghornCell, volume: str) -> None:
    """Four more times: three tries, and one after an event or a while."""
    before = cell.longhorn.refusals(volume)
    wait_until(lambda: cell.longhorn.refusals(volume) >= before + 4, "further refusals", SECONDS)


def test_a_volume_without_a_placed_copy_loses_nothing(longhorn_cells: MakeCell, gate: ClosedGate) -> None:
    cell = longhorn_cells(nodes=1)
    gate.close()
    cell.claim()
    cell.pod("p", "data")
    volume = cell.wait_volume()
    wait_refused(cell, volume)
    assert ([""], "detached") == (cell.places(volume), cell.volume(volume)["status"]["state"])
    gate.open()
    cell.wait_ready("p")
    cell.wait(lambda: cell.volume(volume)["status"]["robustness"] == "healthy", "a healthy volume")
    assert cell.nodes == cell.places(volume)


def test_a_volume_in_use_freezes_and_recovers(longhorn_cells: MakeCell, gate: ClosedGate) -> None:
    """Its disk is to be emptied: it is not detached, and nothing shows that it grew."""
    cell = longhorn_cells(nodes=2, locality="disabled")
    cell.claim()
    cell.pod("p", "data")
    cell.wait_ready("p")
    volume = cell.wait_volume()
    (here,) = cell.places(volume)
    (there,) = set(cell.nodes) - {here}
    cell.wait(lambda: cell.volume(volume)["status"]["robustness"] == "healthy", "a healthy volume")
    gate.close()
    leaving = DiskOptions(maximum_bytes=100 * GIB, allow_scheduling=False, eviction_requested=True)
    cell.longhorn.set_disk(here, "disk1", leaving)
    wait_refused(cell, volume)
    cell.api.patch(
        cell.path("persistentvolumeclaims", "data"), {"spec": {"resources": {"requests": {"storage": "20Gi"}}}}
    )
    cell.wait(lambda: cell.volume(volume)["spec"]["size"] == str(20 * GIB), "growth that is asked for")
    cell.delete_pod("p")
    cell.wait(lambda: not cell.volume(volume)["spec"].get("nodeID"), "a volume that is to be detached")
    wait_refused(cell, volume)
    assert "attached" == cell.volume(volume)["status"]["state"]
    assert [volume] == [one["spec"]["source"]["persistentVolumeName"] for one in attachments(cell)]
    assert 10 * GIB == capacity(cell)
    gate.open()
    cell.wait(lambda: not attachments(cell), "its detachment")
    cell.wait(lambda: capacity(cell) == 20 * GIB, "its growth")
    cell.wait(lambda: cell.places(volume) == [there], "the end of the eviction")
    cell.pod("q", "data")
    cell.wait_ready("q")


def attachments(cell: LonghornCell) -> list[dict[str, Any]]:
    return [one for node in cell.nodes for one in cell.attachments(node)]


def capacity(cell: LonghornCell) -> int:
    claim = cell.view.get(CLAIMS, f"{cell.name}/data") or {"status": {}}
    return quantity_bytes((claim["status"].get("capacity") or {}).get("storage", "0"))
