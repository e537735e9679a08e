"""Longhorn's raw JSON objects to facts: the only reader of their field names.

Every function raises MalformedRequestError, which names the field, for a value of the wrong type or size. What is
missing has the API's own default. Source: Longhorn's `v1beta2` types.
"""

from __future__ import annotations

from typing import Final

from controller.model.longhorn import (
    AUTO_BALANCE,
    CLONE_MODES,
    DATA_ENGINES,
    DATA_LOCALITIES,
    SOFT_ANTI_AFFINITY,
    BackingImage,
    Backup,
    Disk,
    DiskNeeds,
    EngineImage,
    InstanceManager,
    LonghornNode,
    Replica,
    TopologyTerm,
    Volume,
)
from controller.model.names import HELD_ANNOTATION, LEFT_ANNOTATION
from controller.model.reader import (
    Raw,
    byte_count_at,
    choice_at,
    condition_at,
    flag_at,
    has_condition,
    integer_at,
    list_at,
    mapping_at,
    text_at,
    texts_at,
    time_at,
    version_of,
    why_false_at,
    why_not_true_at,
)
from controller.model.records import node_record

_ACCESS_MODES: Final = ("rwo", "rwop", "rwx")
_LAYOUTS: Final = ("replicated", "sharded")
_DISK_TYPES: Final = ("filesystem", "block")


def volume_facts(raw: Raw) -> Volume:
    """A Longhorn Volume. A value outside an enum is refused, as the API server refuses it; empty means the default."""
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    status = mapping_at(raw, "", "status")
    scheduled = condition_at(status, "status", "Scheduled")
    return Volume(
        name=text_at(meta, "metadata", "name"),
        size_bytes=byte_count_at(spec, "spec", "size"),
        actual_size_bytes=integer_at(status, "status", "actualSize"),
        replica_count=integer_at(spec, "spec", "numberOfReplicas"),
        data_locality=choice_at(spec, "spec", "dataLocality", DATA_LOCALITIES, DATA_LOCALITIES[0]),
        access_mode=choice_at(spec, "spec", "accessMode", _ACCESS_MODES, "rwo"),
        migratable=flag_at(spec, "spec", "migratable"),
        node_id=text_at(spec, "spec", "nodeID"),
        state=text_at(status, "status", "state"),
        robustness=text_at(status, "status", "robustness"),
        scheduled=scheduled,
        needs=DiskNeeds(
            node_selector=texts_at(spec, "spec", "nodeSelector"),
            disk_selector=texts_at(spec, "spec", "diskSelector"),
            data_engine=choice_at(spec, "spec", "dataEngine", DATA_ENGINES, "v1"),
            topology=_topology(spec),
        ),
        soft_anti_affinity=choice_at(spec, "spec", "replicaSoftAntiAffinity", SOFT_ANTI_AFFINITY, "ignored"),
        deleting=meta.get("deletionTimestamp") is not None,
        version=version_of(meta),
        zone_soft_anti_affinity=choice_at(spec, "spec", "replicaZoneSoftAntiAffinity", SOFT_ANTI_AFFINITY, "ignored"),
        disk_soft_anti_affinity=choice_at(spec, "spec", "replicaDiskSoftAntiAffinity", SOFT_ANTI_AFFINITY, "ignored"),
        auto_balance=choice_at(spec, "spec", "replicaAutoBalance", ("ignored", *AUTO_BALANCE), "ignored"),
        clone_mode=choice_at(spec, "spec", "cloneMode", CLONE_MODES, ""),
        data_source=text_at(spec, "spec", "dataSource"),
        clone_state=text_at(mapping_at(status, "status", "cloneStatus"), "status.cloneStatus", "state"),
        backing_image=text_at(spec, "spec", "backingImage"),
        image=text_at(spec, "spec", "image"),
        frontend=_frontend(spec, status),
        from_backup=text_at(spec, "spec", "fromBackup"),
        last_degraded_at=time_at(status, "status", "lastDegradedAt"),
        data_layout=choice_at(
            mapping_at(spec, "spec", "dataLayout"), "spec.dataLayout", "type", _LAYOUTS, "replicated"
        ),
        migration_node_id=text_at(spec, "spec", "migrationNodeID"),
        restore_required=flag_at(status, "status", "restoreRequired"),
        is_standby=flag_at(status, "status", "isStandby"),
        expansion_required=flag_at(status, "status", "expansionRequired"),
        scheduling_unknown=scheduled is None and has_condition(status, "status", "Scheduled"),
        owner_id=text_at(status, "status", "ownerID"),
        wanted_frontend=text_at(spec, "spec", "frontend"),
        uid=text_at(meta, "metadata", "uid"),
    )


def _frontend(spec: Raw, status: Raw) -> str:
    """ "" for a volume without one, or attached without it for maintenance; Longhorn's default where none is named."""
    if flag_at(spec, "spec", "disableFrontend") or flag_at(status, "status", "frontendDisabled"):
        return ""
    return text_at(spec, "spec", "frontend") if spec.get("frontend") is not None else "blockdev"


def _topology(spec: Raw) -> tuple[TopologyTerm, ...]:
    terms = []
    for index, entry in enumerate(list_at(spec, "spec", "topologyRequirement")):
        path = f"spec.topologyRequirement[{index}]"
        term = mapping_at(entry, path)
        terms.append(TopologyTerm(text_at(term, path, "zone"), text_at(term, path, "region")))
    return tuple(terms)


def replica_facts(raw: Raw) -> Replica:
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    annotations = mapping_at(meta, "metadata", "annotations")
    return Replica(
        name=text_at(meta, "metadata", "name"),
        volume=text_at(spec, "spec", "volumeName"),
        size_bytes=byte_count_at(spec, "spec", "volumeSize"),
        node=text_at(spec, "spec", "nodeID"),
        disk_uuid=text_at(spec, "spec", "diskID"),
        hard_node_affinity=text_at(spec, "spec", "hardNodeAffinity"),
        active=flag_at(spec, "spec", "active", default=True),
        healthy_at=time_at(spec, "spec", "healthyAt"),
        failed_at=time_at(spec, "spec", "failedAt"),
        eviction_requested=flag_at(spec, "spec", "evictionRequested"),
        rebuild_retry_count=integer_at(spec, "spec", "rebuildRetryCount"),
        deleting=meta.get("deletionTimestamp") is not None,
        image=text_at(spec, "spec", "image"),
        data_engine=choice_at(spec, "spec", "dataEngine", DATA_ENGINES, "v1"),
        backing_image=text_at(spec, "spec", "backingImage"),
        linked_clone_source=text_at(spec, "spec", "linkedCloneSrcReplicaName"),
        uid=text_at(meta, "metadata", "uid"),
        version=version_of(meta),
        held=text_at(annotations, "metadata.annotations", HELD_ANNOTATION),
        is_left=LEFT_ANNOTATION in annotations,
    )


def backing_image_facts(raw: Raw) -> BackingImage:
    spec = mapping_at(raw, "", "spec")
    status = mapping_at(raw, "", "status")
    return BackingImage(
        name=text_at(mapping_at(raw, "", "metadata"), "metadata", "name"),
        node_selector=texts_at(spec, "spec", "nodeSelector"),
        disk_selector=texts_at(spec, "spec", "diskSelector"),
        data_engine=choice_at(spec, "spec", "dataEngine", DATA_ENGINES, "v1"),
        real_size_bytes=integer_at(status, "status", "realSize"),
        size_bytes=integer_at(status, "status", "size"),
        disk_uuids=frozenset(mapping_at(spec, "spec", "diskFileSpecMap")),
        virtual_size_bytes=integer_at(status, "status", "virtualSize"),
        status_disk_uuids=frozenset(mapping_at(status, "status", "diskFileStatusMap")),
        version=version_of(mapping_at(raw, "", "metadata")),
    )


def backup_facts(raw: Raw) -> Backup:
    status = mapping_at(raw, "", "status")
    return Backup(
        name=text_at(mapping_at(raw, "", "metadata"), "metadata", "name"),
        url=text_at(status, "status", "url"),
        volume_bytes=byte_count_at(status, "status", "volumeSize"),
    )


def engine_image_facts(raw: Raw) -> EngineImage:
    status = mapping_at(raw, "", "status")
    deployed = mapping_at(status, "status", "nodeDeploymentMap")
    return EngineImage(
        name=text_at(mapping_at(raw, "", "metadata"), "metadata", "name"),
        image=text_at(mapping_at(raw, "", "spec"), "spec", "image"),
        state=text_at(status, "status", "state"),
        nodes=frozenset(node for node in deployed if flag_at(deployed, "status.nodeDeploymentMap", node)),
    )


def instance_manager_facts(raw: Raw) -> InstanceManager:
    spec, meta = mapping_at(raw, "", "spec"), mapping_at(raw, "", "metadata")
    return InstanceManager(
        name=text_at(meta, "metadata", "name"),
        node=text_at(spec, "spec", "nodeID"),
        data_engine=choice_at(spec, "spec", "dataEngine", DATA_ENGINES, "v1"),
        image=text_at(spec, "spec", "image"),
        state=text_at(mapping_at(raw, "", "status"), "status", "currentState"),
        type=text_at(spec, "spec", "type") or "aio",
        deleting=meta.get("deletionTimestamp") is not None,
    )


def node_facts(raw: Raw) -> LonghornNode:
    """A Longhorn Node; a disk counts only if it is in the spec and in the status."""
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    status = mapping_at(raw, "", "status")
    specs = mapping_at(spec, "spec", "disks")
    statuses = mapping_at(status, "status", "diskStatus")
    for path, disks in (("spec.disks", specs), ("status.diskStatus", statuses)):
        for name in disks:
            mapping_at(disks, path, name)
    return LonghornNode(
        name=text_at(meta, "metadata", "name"),
        zone=text_at(status, "status", "zone"),
        region=text_at(status, "status", "region"),
        tags=frozenset(texts_at(spec, "spec", "tags")),
        allow_scheduling=flag_at(spec, "spec", "allowScheduling"),
        ready=condition_at(status, "status", "Ready") is True,
        schedulable=condition_at(status, "status", "Schedulable") is True,
        deleting=meta.get("deletionTimestamp") is not None,
        disks=tuple(_disk_facts(name, specs, statuses) for name in sorted(specs.keys() & statuses.keys())),
        record=node_record(raw),
        not_ready=why_not_true_at(status, "status", "Ready"),
        not_schedulable=why_not_true_at(status, "status", "Schedulable"),
        is_cordoned=why_false_at(status, "status", "Schedulable", "reason") == "KubernetesNodeCordoned",
    )


def _disk_facts(name: str, specs: Raw, statuses: Raw) -> Disk:
    spec_path, status_path = f"spec.disks.{name}", f"status.diskStatus.{name}"
    spec = mapping_at(specs, "spec.disks", name)
    status = mapping_at(statuses, "status.diskStatus", name)
    listed = mapping_at(status, status_path, "scheduledReplica")
    images = mapping_at(status, status_path, "scheduledBackingImage")
    return Disk(
        name=name,
        uuid=text_at(status, status_path, "diskUUID"),
        type=choice_at(spec, spec_path, "diskType", _DISK_TYPES, "filesystem"),
        filesystem=text_at(status, status_path, "filesystemType"),
        allow_scheduling=flag_at(spec, spec_path, "allowScheduling"),
        eviction_requested=flag_at(spec, spec_path, "evictionRequested"),
        ready=condition_at(status, status_path, "Ready") is True,
        schedulable=condition_at(status, status_path, "Schedulable") is True,
        tags=frozenset(texts_at(spec, spec_path, "tags")),
        maximum_bytes=integer_at(status, status_path, "storageMaximum"),
        available_bytes=integer_at(status, status_path, "storageAvailable"),
        reserved_bytes=integer_at(spec, spec_path, "storageReserved"),
        scheduled_bytes=integer_at(status, status_path, "storageScheduled"),
        scheduled_replicas={key: integer_at(listed, f"{status_path}.scheduledReplica", key) for key in listed},
        is_under_pressure=why_false_at(status, status_path, "Schedulable", "reason") == "DiskPressure",
        scheduled_images={key: integer_at(images, f"{status_path}.scheduledBackingImage", key) for key in images},
        path=text_at(spec, spec_path, "path"),
        not_ready=why_not_true_at(status, status_path, "Ready"),
        not_schedulable=why_not_true_at(status, status_path, "Schedulable"),
    )
