"""Facts as the raw objects that the tests' own rules of Longhorn read, and what these rules say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from controller.model.longhorn import InstanceManager, LonghornNode, LonghornSettings, Replica, Volume
from tests.longhorn.placement import Candidate, find_candidates
from tests.longhorn.preference import choose, near
from tests.longhorn.space import Figures
from tests.longhorn.state import State

Raw = dict[str, Any]
_LIMITLESS: Final = {
    "storage-over-provisioning-percentage": "1000000",
    "storage-minimal-available-percentage": "0",
}


def _condition(kind: str, holds: bool) -> Raw:
    return {"type": kind, "status": "True" if holds else "False"}


def node_raw(facts: LonghornNode) -> Raw:
    """With the figures that the Node object shows, late as they may be."""
    return {
        "metadata": {"name": facts.name, "deletionTimestamp": ""},
        "spec": {
            "allowScheduling": facts.allow_scheduling,
            "tags": sorted(facts.tags),
            "disks": {
                disk.name: {
                    "allowScheduling": disk.allow_scheduling,
                    "evictionRequested": disk.eviction_requested,
                    "storageReserved": disk.reserved_bytes,
                    "tags": sorted(disk.tags),
                    "diskType": disk.type,
                    "path": disk.name,
                }
                for disk in facts.disks
            },
        },
        "status": {
            "zone": facts.zone,
            "region": facts.region,
            "conditions": [_condition("Ready", facts.ready), _condition("Schedulable", facts.schedulable)],
            "diskStatus": {
                disk.name: {
                    "diskUUID": disk.uuid,
                    "storageMaximum": disk.maximum_bytes,
                    "storageAvailable": disk.available_bytes,
                    "storageScheduled": disk.scheduled_bytes,
                    "scheduledReplica": dict(disk.scheduled_replicas),
                    "filesystemType": disk.filesystem,
                    "conditions": [_condition("Ready", disk.ready), _condition("Schedulable", disk.schedulable)],
                }
                for disk in facts.disks
            },
        },
    }


def volume_raw(facts: Volume) -> Raw:
    return {
        "metadata": {"name": facts.name, "deletionTimestamp": ""},
        "spec": {
            "size": str(facts.size_bytes),
            "dataLocality": facts.data_locality,
            "numberOfReplicas": facts.replica_count,
            "nodeID": facts.node_id,
            "diskSelector": list(facts.needs.disk_selector),
            "nodeSelector": list(facts.needs.node_selector),
            "replicaSoftAntiAffinity": facts.soft_anti_affinity,
            "replicaZoneSoftAntiAffinity": facts.zone_soft_anti_affinity,
            "replicaDiskSoftAntiAffinity": facts.disk_soft_anti_affinity,
            "dataEngine": "v1",
            "accessMode": facts.access_mode,
        },
        "status": {
            "state": facts.state,
            "currentNodeID": facts.node_id if facts.state == "attached" else "",
            "robustness": facts.robustness,
            "lastDegradedAt": facts.last_degraded_at,
            "actualSize": facts.actual_size_bytes,
        },
    }


def replica_raw(facts: Replica) -> Raw:
    return {
        "metadata": {"name": facts.name, "deletionTimestamp": ""},
        "spec": {
            "volumeName": facts.volume,
            "volumeSize": str(facts.size_bytes),
            "nodeID": facts.node,
            "diskID": facts.disk_uuid,
            "hardNodeAffinity": facts.hard_node_affinity,
            "healthyAt": facts.healthy_at,
            "failedAt": facts.failed_at,
            "rebuildRetryCount": facts.rebuild_retry_count,
            "evictionRequested": facts.eviction_requested,
            "dataEngine": "v1",
        },
    }


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

    def state(self, replicas: Iterable[Replica], *, has_limits: bool = True) -> State:
        return State(
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

    def preferred(
        self, volume: Volume, replicas: Iterable[Replica], found: Sequence[Candidate], pick: Callable[[int], int]
    ) -> Candidate | None:
        """The one of `found` that Longhorn takes; `pick(n)` decides ties, which are chance."""
        return choose(self.state(replicas), volume_raw(volume), found, pick)

    def limits(self) -> dict[str, int]:
        """By disk UUID, the most that may be scheduled there."""
        if not self._limits:
            state = self.state(())
            self._limits = {
                str(status["diskUUID"]): Figures.of(state, node["spec"]["disks"][name], status).limit
                for node in self._nodes.values()
                for name, status in node["status"]["diskStatus"].items()
            }
        return self._limits.copy()
