"""Facts as the raw objects that the tests' own rules of Longhorn read, and what these rules say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from controller.model.longhorn import InstanceManager, LonghornNode, LonghornSettings, Replica, Volume
from tests.longhorn.placement import Candidate, find_candidates
from tests.longhorn.preference import near
from tests.longhorn.space import DiskFigures
from tests.longhorn.state import SearchState
from tests.longhorn_rules.objects import Raw, disk, node, replica, volume

_LIMITLESS: Final = {
    "storage-over-provisioning-percentage": "1000000",
    "storage-minimal-available-percentage": "0",
}


def _holds(flag: bool) -> str:
    return "True" if flag else "False"


def node_raw(facts: LonghornNode) -> Raw:
    """The Node with the figures that its object shows, however late."""
    disks = {
        found.name: disk(
            found.maximum_bytes,
            available=found.available_bytes,
            reserved=found.reserved_bytes,
            scheduled=found.scheduled_bytes,
            listed=found.scheduled_replicas,
            ready=_holds(found.ready),
            schedulable=_holds(found.schedulable),
            tags=sorted(found.tags),
            filesystem=found.filesystem,
            uuid=found.uuid,
            allowScheduling=found.allow_scheduling,
            evictionRequested=found.eviction_requested,
            diskType=found.type,
            path=found.name,
        )
        for found in facts.disks
    }
    return node(
        facts.name,
        named=disks,
        zone=facts.zone,
        region=facts.region,
        tags=sorted(facts.tags),
        ready=_holds(facts.ready),
        schedulable=_holds(facts.schedulable),
        allow=facts.allow_scheduling,
    )


def volume_raw(facts: Volume) -> Raw:
    return volume(
        facts.size_bytes,
        name=facts.name,
        actual=facts.actual_size_bytes,
        status={
            "state": facts.state,
            "currentNodeID": facts.node_id if facts.state == "attached" else "",
            "robustness": facts.robustness,
            "lastDegradedAt": facts.last_degraded_at,
        },
        dataLocality=facts.data_locality,
        numberOfReplicas=facts.replica_count,
        nodeID=facts.node_id,
        diskSelector=list(facts.needs.disk_selector),
        nodeSelector=list(facts.needs.node_selector),
        replicaSoftAntiAffinity=facts.soft_anti_affinity,
        replicaZoneSoftAntiAffinity=facts.zone_soft_anti_affinity,
        replicaDiskSoftAntiAffinity=facts.disk_soft_anti_affinity,
        dataEngine="v1",
        accessMode=facts.access_mode,
    )


def replica_raw(facts: Replica) -> Raw:
    return replica(
        facts.name,
        size=facts.size_bytes,
        of=facts.volume,
        nodeID=facts.node,
        diskID=facts.disk_uuid,
        hardNodeAffinity=facts.hard_node_affinity,
        healthyAt=facts.healthy_at,
        failedAt=facts.failed_at,
        rebuildRetryCount=facts.rebuild_retry_count,
        evictionRequested=facts.eviction_requested,
        dataEngine="v1",
    )


def manager_raw(facts: InstanceManager) -> Raw:
    return {
        "spec": {"nodeID": facts.node, "dataEngine": facts.data_engine, "image": facts.image},
        "status": {"currentState": facts.state},
    }


def settings_raw(settings: LonghornSettings) -> dict[str, str]:
    def text(flag: bool) -> str:
        return "true" if flag else "false"

    return {
        "replica-soft-anti-affinity": text(settings.soft_anti_affinity),
        "replica-zone-soft-anti-affinity": text(settings.zone_soft_anti_affinity),
        "replica-disk-soft-anti-affinity": text(settings.disk_soft_anti_affinity),
        "allow-empty-node-selector-volume": text(settings.space.allow_empty_node_selector),
        "allow-empty-disk-selector-volume": text(settings.space.allow_empty_disk_selector),
        "storage-over-provisioning-percentage": str(settings.space.over_provisioning_pct),
        "storage-minimal-available-percentage": str(settings.space.minimal_available_pct),
        "replica-replenishment-wait-interval": str(settings.replenishment_wait_seconds),
    }


class Rules:
    """Longhorn's rules over the nodes, managers and settings as they stand; made anew for each question."""

    def __init__(
        self,
        nodes: Mapping[str, LonghornNode],
        managers: Iterable[InstanceManager],
        settings: LonghornSettings,
        now: datetime,
    ) -> None:
        self._nodes = {name: node_raw(facts) for name, facts in nodes.items()}
        self._managers = [manager_raw(facts) for facts in managers]
        self._settings = settings_raw(settings)
        self._now = now
        self._limits: dict[str, int] = {}

    def state(self, replicas: Iterable[Replica], *, has_limits: bool = True) -> SearchState:
        return SearchState(
            nodes=self._nodes,
            replicas=[replica_raw(facts) for facts in replicas],
            settings=self._settings if has_limits else {**self._settings, **_LIMITLESS},
            instance_managers=self._managers,
            now=self._now,
        )

    def candidates(self, volume: Volume, replicas: Iterable[Replica], replica: Replica) -> list[Candidate]:
        """The disks that Longhorn chooses among for that unplaced replica of the volume."""
        state, raw = self.state(replicas), volume_raw(volume)
        if volume.data_locality == "strict-local":
            replica = replace(replica, hard_node_affinity=volume.node_id)
        found = find_candidates(state, raw, replica_raw(replica)).candidates
        return list(near(state, raw, found)) if not replica.hard_node_affinity else found

    def reach(
        self, volume: Volume, replicas: Iterable[Replica], node: str = "", *, has_limits: bool = True
    ) -> list[Candidate]:
        """The disks, of that node alone if it is named, that might take one more copy. Without limits: whatever is on
        them."""
        copy = {"metadata": {"name": "one-more"}, "spec": {"hardNodeAffinity": node}}
        return find_candidates(self.state(replicas, has_limits=has_limits), volume_raw(volume), copy).candidates

    def limits(self) -> dict[str, int]:
        """By disk UUID, the most that may be scheduled there."""
        if not self._limits:
            state = self.state(())
            self._limits = {
                str(status["diskUUID"]): DiskFigures.of(state, node["spec"]["disks"][name], status).limit
                for node in self._nodes.values()
                for name, status in node["status"]["diskStatus"].items()
            }
        return self._limits.copy()
