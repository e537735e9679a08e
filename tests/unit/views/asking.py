"""Questions of people about a made-up cluster, and the changes that they are told to make, made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from controller.model.longhorn import LonghornNode
from controller.model.longhorn_settings import longhorn_settings
from controller.model.times import utc_time
from controller.views.documents import Explanation
from controller.views.explain.case import PodCase
from controller.views.explain.changes import Remedy, proven_changes
from controller.views.explain.nodes import barriers
from controller.views.explain.pod import explain_pod
from tests.fakes.builders import TestCluster, disk, node


def everything(_namespace: str) -> bool:
    return True


def add_twin(cluster: TestCluster, gib: float = 400) -> None:
    """n2, whose disk of that size has the UUID of n1's."""
    cluster.add_node("n2")
    cluster.put_node(replace(node("n2"), disks=(disk("d1", gib, node="n1"),)))


def explained(cluster: TestCluster, pod: str, may_see: Any = everything) -> Explanation:
    """With all that has happened before."""
    cluster.clock.advance(2)
    return explain_pod(cluster.allocator.look(), "ns", pod, may_see)


def changes_for(cluster: TestCluster, pod: str, most: int = 10) -> tuple[Remedy, ...]:
    cluster.clock.advance(2)
    case = PodCase.of(cluster.allocator.look(), cluster.pods[pod])
    fit = case.fit()
    judgements = case.judge(fit)
    if not judgements or any(judgement.is_sure for judgement in judgements.values()):
        return ()
    return proven_changes(case, barriers(case, fit, judgements), most)


def make(cluster: TestCluster, change: Remedy, values: Mapping[str, str]) -> None:
    """Do as the change says, to the objects that the cluster shows. `values`: of Longhorn's settings."""
    nodes = cluster.allocator._world.nodes
    if change.kind == "wait":
        cluster.pass_time(int((utc_time(change.value) - cluster.clock.now_utc()).total_seconds()) + 3)
    elif change.kind == "setting":
        settings, problems = longhorn_settings({**values, change.what: change.value})
        assert not problems
        cluster.allocator.configure(cluster.live, settings)
    elif change.kind == "request":
        claim = cluster.claims[change.what.partition("/")[2]]
        cluster.set_claim(replace(claim, requested_bytes=int(change.value)))
    elif change.kind == "copies":
        claim = cluster.claims[change.what.partition("/")[2]]
        facts = cluster.allocator._world.classes[claim.class_name or ""]
        fewer = replace(facts, parameters={**facts.parameters, "numberOfReplicas": change.value})
        cluster.allocator.observe_class(facts.name, fewer)
    else:
        cluster.put_node(_changed(nodes[change.node], change))


def _changed(node: LonghornNode, change: Remedy) -> LonghornNode:
    tags = frozenset(change.value.split(","))
    if change.kind == "open-node":
        return replace(node, allow_scheduling=True, schedulable=True, ready=True)
    if change.kind == "tag-node":
        return replace(node, tags=node.tags | tags)
    disk = next(one for one in node.disks if one.name == change.disk)
    if change.kind == "open-disk":
        disk = replace(disk, allow_scheduling=True, eviction_requested=False, schedulable=True)
    elif change.kind == "tag-disk":
        disk = replace(disk, tags=disk.tags | tags)
    elif change.kind == "own-uuid":
        disk = replace(disk, uuid=f"{disk.uuid}-own", scheduled_bytes=0, scheduled_replicas={})
    elif change.what == "available":
        disk = replace(disk, available_bytes=disk.available_bytes + int(change.value), schedulable=True)
    elif change.what == "maximum":
        more = int(change.value)
        disk = replace(disk, maximum_bytes=disk.maximum_bytes + more, available_bytes=disk.available_bytes + more)
    else:
        assert "scheduled" == change.what, change
        disk = replace(disk, scheduled_bytes=disk.scheduled_bytes - int(change.value))
    return replace(node, disks=tuple(disk if one.name == change.disk else one for one in node.disks))
