"""The judge of places on what a real API server stored: owners of places, limits, plans and terms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.client import ApiClient
from tests.cluster.cluster import Cluster
from tests.judge.gate_seen import OPEN
from tests.judge.judge import Found, judge
from tests.judge.reading import stored_places
from tests.longhorn import paths
from tests.longhorn.install import install
from tests.longhorn.longhorn import add_node
from tests.longhorn.options import GIB, DiskOptions

pytestmark = pytest.mark.cluster

NAMESPACE = "judged"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
LEADER = "longhorn-scheduler-extender-one"


class Writers:
    """A leader and others who place copies of `judged-…` volumes on nodes whose disk has their name."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api

    def make(self, kind: str, plural: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": f"{paths.GROUP}/{paths.VERSION}", "kind": kind, "spec": spec, "metadata": {"name": name}}
        return self.api.create(paths.longhorn(plural, NAMESPACE), body)

    def volume(self, name: str, gib: int, copies: int = 1) -> dict[str, Any]:
        made = self.make("Volume", "volumes", name, {"size": str(gib * GIB), "numberOfReplicas": copies})
        for number in range(copies):
            spec = {"volumeName": name, "volumeSize": str(gib * GIB), "active": True}
            self.make("Replica", "replicas", f"{name}-{number}", spec)
        return made

    def place(self, copy: str, node: str, manager: str = LEADER) -> None:
        change = {"spec": {"nodeID": node, "diskID": f"{node}-d1-uuid"}}
        self.api.patch(paths.longhorn("replicas", NAMESPACE, copy), change, fieldManager=manager)


def test_a_recorded_history_is_judged(cluster: Cluster) -> None:
    api = cluster.api()
    writers = Writers(api)
    install(api, NAMESPACE, {}, capacity_tracking=False)
    for node in ("judged-a", "judged-b"):
        add_node(api, NAMESPACE, node, {"d1": DiskOptions(maximum_bytes=100 * GIB)})
    term = {"scheduling.longhorn.io/term": "one"}
    account = {"metadata": {"name": "longhorn-scheduler-extender-gate", "annotations": term}}
    api.create(f"{CORE}/serviceaccounts", account)
    owner = writers.volume("judged-owner", 40)["metadata"]
    plan = {"volume": "judged-owner", "uid": owner["uid"], "places": [["judged-a", "judged-a-d1-uuid", 40 * GIB, ""]]}
    plans = {"metadata": {"name": "longhorn-scheduler-extender-plans-3"}, "data": {"judged-owner": json.dumps(plan)}}
    api.create(f"{CORE}/configmaps", plans)

    for name, gib in (("fits", 60), ("thief", 10), ("over", 40), ("late", 1), ("foreign", 1), ("moves", 1)):
        writers.volume(f"judged-{name}", gib, 2 if name == "late" else 1)
    writers.place("judged-fits-0", "judged-a")
    writers.place("judged-thief-0", "judged-a")
    writers.place("judged-over-0", "judged-a")
    writers.place("judged-late-0", "judged-b", "longhorn-scheduler-extender-zero")
    writers.place("judged-late-1", "judged-b")
    writers.place("judged-foreign-0", "judged-b", "longhorn-manager")
    writers.place("judged-moves-0", "judged-b")
    writers.place("judged-moves-0", "judged-a")

    findings = judge(stored_places(cluster.history, cluster.history_caught_up()))
    assert [
        (Found.PLANNED, "judged-thief-0", LEADER, ""),
        (Found.OVER, "judged-over-0", LEADER, ""),
        (Found.TERM, "judged-late-0", "longhorn-scheduler-extender-zero", ""),
        (Found.AFFINITY, "judged-late-1", LEADER, ""),
        (Found.FOREIGN, "judged-foreign-0", "longhorn-manager", OPEN),
        (Found.MOVED, "judged-moves-0", LEADER, ""),
    ] == [(one.what, one.copy, one.by, one.explained) for one in findings if one.copy.startswith("judged-")]
