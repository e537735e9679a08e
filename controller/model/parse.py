"""Raw JSON objects to facts: the only reader of field names of Kubernetes' and Longhorn's objects.

Every function raises MalformedRequestError, which names the field, for a value of the wrong type or size. What is
missing has the API's own default. Sources: the Kubernetes API reference and Longhorn's `v1beta2` types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from controller.model import names
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
from controller.model.quantity import quantity_bytes
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
    why_false_at,
)
from controller.model.records import node_record
from controller.model.workload import (
    Claim,
    KubeNode,
    Namespace,
    PersistentVolume,
    Pod,
    PodOwner,
    PodVolume,
    StorageClass,
)

_SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_FINISHED = frozenset({"Succeeded", "Failed"})
_ACCESS_MODES = ("rwo", "rwop", "rwx")
_LAYOUTS = ("replicated", "sharded")
# The message of kube-scheduler's plugin NodeResourcesFit about a resource that no node offers: the resource itself, not
# one with a longer name.
_LACKS = re.compile(rf"Insufficient {re.escape(names.EXTENDER_RESOURCE)}(?![-\w/])(?!\.\w)")
_SCHEDULED = "PodScheduled"  # a pod's condition, which kube-scheduler writes
# Its reasons with which kube-scheduler has not looked at it.
_NOT_TRIED = frozenset({"SchedulingGated"})
_DISK_TYPES = ("filesystem", "block")


def pod_facts(raw: Raw) -> Pod:
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    status = mapping_at(raw, "", "status")
    name = text_at(meta, "metadata", "name")
    is_opted_in = _asks_for_extender(spec)
    return Pod(
        uid=text_at(meta, "metadata", "uid"),
        namespace=text_at(meta, "metadata", "namespace"),
        name=name,
        created_utc=text_at(meta, "metadata", "creationTimestamp"),
        priority=integer_at(spec, "spec", "priority"),
        is_opted_in=is_opted_in,
        node_name=text_at(spec, "spec", "nodeName"),
        nominated_node=text_at(status, "status", "nominatedNodeName"),
        is_finished=text_at(status, "status", "phase") in _FINISHED,
        is_deleting=meta.get("deletionTimestamp") is not None,
        volumes=_claims_of_pod(spec, name),
        version=_version(meta),
        scheduler_name=text_at(spec, "spec", "schedulerName"),
        lacks_extender=is_opted_in and bool(_LACKS.search(why_false_at(status, "status", _SCHEDULED, "message"))),
        is_gated=bool(spec.get("schedulingGates")),
        unschedulable_since_utc=_unschedulable_since(status) if is_opted_in else "",
        shares_volume=_volume_served(meta),
        follows_shares=_follows_shares(meta),
        opt_in_mark="" if is_opted_in else opt_in_mark(meta),
        owner=None if is_opted_in else _owner(meta),
    )


def _volume_served(meta: Raw) -> str:
    labels = mapping_at(meta, "metadata", "labels")
    if labels.get(names.COMPONENT_LABEL) != names.SHARE_MANAGER:
        return ""
    return text_at(labels, "metadata.labels", names.SHARED_VOLUME_LABEL)


def _follows_shares(meta: Raw) -> bool:
    """Asked for by annotation, except of a pod that a virtual machine migrates to."""
    if mapping_at(meta, "metadata", "annotations").get(names.CO_SCHEDULE_ANNOTATION) != "true":
        return False
    return not mapping_at(meta, "metadata", "labels").get(names.MIGRATION_LABEL)


def _owner(meta: Raw) -> PodOwner | None:
    """What controls the object."""
    for owner in list_at(meta, "metadata", "ownerReferences"):
        if isinstance(owner, Mapping) and owner.get("controller"):
            return PodOwner(*(str(owner.get(field, "")) for field in ("apiVersion", "kind", "name", "uid")))
    return None


def _unschedulable_since(status: Raw) -> str:
    """Since when kube-scheduler has found no node. The time that a pod spent behind a gate counts from its first
    attempt on, since the condition was False all the while (Kubernetes' `UpdatePodCondition`)."""
    if why_false_at(status, "status", _SCHEDULED, "reason") in _NOT_TRIED:
        return ""
    return why_false_at(status, "status", _SCHEDULED, "lastTransitionTime")


def _version(meta: Raw) -> int:
    """The resource version as a number, by which a live read and a watch of the same object are put in order."""
    text = text_at(meta, "metadata", "resourceVersion")
    return int(text) if text.isascii() and text.isdigit() else 0


def _asks_for_extender(spec: Raw) -> bool:
    """Whether any container names the resource in requests or limits, as kube-scheduler's `IsInterested` looks."""
    for group in ("containers", "initContainers"):
        for index, container in enumerate(list_at(spec, "spec", group)):
            path = f"spec.{group}[{index}]"
            for kind in ("requests", "limits"):
                if names.EXTENDER_RESOURCE in mapping_at(container, path, "resources", kind):
                    return True
    return False


def _claims_of_pod(spec: Raw, pod_name: str) -> tuple[PodVolume, ...]:
    found = []
    for index, volume in enumerate(list_at(spec, "spec", "volumes")):
        path = f"spec.volumes[{index}]"
        name = text_at(mapping_at(volume, path), path, "name")
        if volume.get("persistentVolumeClaim") is not None:
            source = mapping_at(volume, path, "persistentVolumeClaim")
            found.append(PodVolume(name, text_at(source, f"{path}.persistentVolumeClaim", "claimName")))
        elif volume.get("ephemeral") is not None:
            found.append(PodVolume(name, f"{pod_name}-{name}", is_ephemeral=True))
    return tuple(found)


def claim_facts(raw: Raw) -> Claim:
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    annotations = mapping_at(meta, "metadata", "annotations")
    requests = mapping_at(spec, "spec", "resources", "requests")
    size = requests.get("storage", 0)
    return Claim(
        uid=text_at(meta, "metadata", "uid"),
        namespace=text_at(meta, "metadata", "namespace"),
        name=text_at(meta, "metadata", "name"),
        class_name=_class_name(spec, annotations),
        volume_name=text_at(spec, "spec", "volumeName"),
        requested_bytes=max(0, quantity_bytes(size, "spec.resources.requests.storage")),
        selected_node=text_at(annotations, "metadata.annotations", names.SELECTED_NODE_ANNOTATION),
        is_shared=bool(_SHARED_MODES.intersection(texts_at(spec, "spec", "accessModes"))),
        is_deleting=meta.get("deletionTimestamp") is not None,
        owner_pod_uid=_owner_pod(meta),
        data_source=_data_source(spec),
        version=_version(meta),
    )


def _class_name(spec: Raw, annotations: Raw) -> str | None:
    old_form = annotations.get(names.CLASS_BETA_ANNOTATION)
    if isinstance(old_form, str):
        return old_form
    return text_at(spec, "spec", "storageClassName") if spec.get("storageClassName") is not None else None


def _owner_pod(meta: Raw) -> str:
    owner = _owner(meta)
    return owner.uid if owner is not None and owner.kind == "Pod" else ""


def _data_source(spec: Raw) -> str:
    for field in ("dataSourceRef", "dataSource"):
        source = mapping_at(spec, "spec", field)
        if source:
            return f"{source.get('kind', '')}/{source.get('name', '')}"
    return ""


def pv_facts(raw: Raw) -> PersistentVolume:
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    csi = mapping_at(spec, "spec", "csi")
    ref = mapping_at(spec, "spec", "claimRef")
    capacity = mapping_at(spec, "spec", "capacity").get("storage", 0)
    return PersistentVolume(
        name=text_at(meta, "metadata", "name"),
        driver=text_at(csi, "spec.csi", "driver"),
        handle=text_at(csi, "spec.csi", "volumeHandle"),
        claim_uid=text_at(ref, "spec.claimRef", "uid"),
        claim_key=f"{text_at(ref, 'spec.claimRef', 'namespace')}/{text_at(ref, 'spec.claimRef', 'name')}"
        if ref
        else "",
        capacity_bytes=max(0, quantity_bytes(capacity, "spec.capacity.storage")),
        created_utc=text_at(meta, "metadata", "creationTimestamp"),
        version=_version(meta),
    )


def namespace_facts(raw: Raw) -> Namespace:
    meta = mapping_at(raw, "", "metadata")
    label = mapping_at(meta, "metadata", "labels").get(names.OPT_IN_MARK)
    # Of such a label the API server keeps the pods away from the webhook, whatever an annotation says.
    is_kept_out = label is not None and str(label).lower() == "false"
    return Namespace(text_at(meta, "metadata", "name"), "false" if is_kept_out else opt_in_mark(meta))


def opt_in_mark(meta: Raw) -> str:
    """What the annotation, or else the label, says of opting in, in lower case; "" without one."""
    for place in ("annotations", "labels"):
        value = mapping_at(meta, "metadata", place).get(names.OPT_IN_MARK)
        if value is not None:
            return str(value).lower()
    return ""


def class_facts(raw: Raw) -> StorageClass:
    meta = mapping_at(raw, "", "metadata")
    annotations = mapping_at(meta, "metadata", "annotations")
    parameters = mapping_at(raw, "", "parameters")
    return StorageClass(
        name=text_at(meta, "metadata", "name"),
        provisioner=text_at(raw, "", "provisioner"),
        parameters={key: text_at(parameters, "parameters", key) for key in parameters},
        is_default="true"
        in (annotations.get(names.DEFAULT_CLASS_ANNOTATION), annotations.get(names.DEFAULT_CLASS_BETA_ANNOTATION)),
        created_utc=text_at(meta, "metadata", "creationTimestamp"),
    )


def kube_node_facts(raw: Raw) -> KubeNode:
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    return KubeNode(
        name=text_at(meta, "metadata", "name"),
        unschedulable=flag_at(spec, "spec", "unschedulable"),
        disables_v2=mapping_at(meta, "metadata", "labels").get(names.DISABLE_V2_LABEL) == "true",
    )


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
        version=_version(meta),
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
        version=_version(meta),
        held=text_at(annotations, "metadata.annotations", names.HELD_ANNOTATION),
        is_left=names.LEFT_ANNOTATION in annotations,
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
        status_disk_uuids=frozenset(mapping_at(status, "status", "diskFileStatusMap")),
        version=_version(mapping_at(raw, "", "metadata")),
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
    )
