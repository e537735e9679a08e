"""The project's own subset of Longhorn's custom resources: the fields that placement looks at, structural and
pruning."""

from __future__ import annotations

from typing import Any, Final

from tests.longhorn.paths import GROUP, VERSION

Schema = dict[str, Any]
TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
INT32: Final[Schema] = {"type": "integer"}
INT64: Final[Schema] = {"type": "integer", "format": "int64"}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
SIZES: Final[Schema] = {"type": "object", "additionalProperties": INT64}


def choice(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def fields(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def by_name(schema: Schema) -> Schema:
    return {"type": "object", "additionalProperties": schema}


def each(schema: Schema, *names: str) -> dict[str, Schema]:
    """Several fields of one kind."""
    return dict.fromkeys(names, schema)


CONDITIONS: Final[Schema] = {
    "type": "array",
    "items": fields(**each(TEXT, "type", "status", "reason", "message", "lastProbeTime", "lastTransitionTime")),
}
SOFT: Final = choice("ignored", "enabled", "disabled")
ENGINE: Final = choice("v1", "v2")
SIZE: Final[Schema] = {"type": "string", "format": "int64"}

NODE_SPEC: Final = fields(
    **each(FLAG, "allowScheduling", "evictionRequested"),
    name=TEXT,
    tags=TEXTS,
    instanceManagerCPURequest=INT32,
    disks=by_name(
        fields(
            **each(FLAG, "allowScheduling", "evictionRequested"),
            diskType=choice("filesystem", "block"),
            path=TEXT,
            diskDriver=choice("", "auto", "aio", "nvme"),
            storageReserved=INT64,
            tags=TEXTS,
        )
    ),
)
NODE_STATUS: Final = fields(
    **each(TEXT, "region", "zone"),
    conditions=CONDITIONS,
    autoEvicting=FLAG,
    diskStatus=by_name(
        fields(
            **each(INT64, "storageAvailable", "storageScheduled", "storageMaximum"),
            **each(SIZES, "scheduledReplica", "scheduledBackingImage"),
            **each(TEXT, "diskUUID", "diskName", "diskPath", "diskType", "diskDriver"),
            **each(TEXT, "filesystemType", "instanceManagerName"),
            conditions=CONDITIONS,
        )
    ),
)
VOLUME_SPEC: Final = fields(
    **each(TEXT, "nodeID", "migrationNodeID", "engineNodeID", "backingImage", "fromBackup", "dataSource", "image"),
    **each(TEXTS, "diskSelector", "nodeSelector"),
    **each(INT32, "numberOfReplicas", "staleReplicaTimeout"),
    **each(FLAG, "migratable", "encrypted", "disableFrontend", "Standby"),
    **each(SOFT, "replicaSoftAntiAffinity", "replicaZoneSoftAntiAffinity", "replicaDiskSoftAntiAffinity"),
    size=SIZE,
    dataLocality=choice("disabled", "best-effort", "strict-local"),
    topologyRequirement={"type": "array", "items": fields(zone=TEXT, region=TEXT)},
    replicaAutoBalance=choice("ignored", "disabled", "least-effort", "best-effort"),
    accessMode=choice("rwo", "rwop", "rwx"),
    dataEngine=ENGINE,
    cloneMode=choice("", "full-copy", "linked-clone"),
    frontend=choice("blockdev", "iscsi", "nvmf", "ublk", ""),
)
VOLUME_STATUS: Final = fields(
    **each(TEXT, "state", "robustness", "currentNodeID", "currentMigrationNodeID", "ownerID", "lastDegradedAt"),
    **each(TEXT, "shareState", "shareEndpoint"),
    **each(FLAG, "expansionRequired", "frontendDisabled", "isStandby", "restoreRequired"),
    conditions=CONDITIONS,
    actualSize=INT64,
    cloneStatus=fields(**each(TEXT, "sourceVolume", "snapshot", "state")),
)
REPLICA_SPEC: Final = fields(
    **each(TEXT, "volumeName", "nodeID", "diskID", "diskPath", "dataDirectoryName", "image", "desireState"),
    **each(TEXT, "engineName", "hardNodeAffinity", "healthyAt", "lastHealthyAt", "failedAt", "lastFailedAt"),
    **each(TEXT, "backingImage", "linkedCloneSrcReplicaName"),
    **each(FLAG, "active", "evictionRequested"),
    volumeSize=SIZE,
    dataEngine=ENGINE,
    rebuildRetryCount=INT32,
)
REPLICA_STATUS: Final = fields(**each(TEXT, "currentState", "ownerID", "instanceManagerName", "ip"))


def crd(
    plural: str, kind: str, short: str, *, spec: Schema | None = None, status: Schema | None = None, **top: Schema
) -> Schema:
    """One definition: namespaced, one version, a status subresource, unknown fields pruned."""
    properties: dict[str, Schema] = dict(top)
    if spec is not None:
        properties["spec"] = spec
    properties["status"] = status or fields(ownerID=TEXT)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
                "shortNames": [short],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "apiVersion": TEXT,
                                "kind": TEXT,
                                "metadata": {"type": "object"},
                                **properties,
                            },
                        }
                    },
                }
            ],
        },
    }


def definitions() -> list[Schema]:
    engine_status = fields(currentSize=SIZE, isExpanding=FLAG, replicaModeMap=by_name(TEXT))
    ticket = fields(**each(TEXT, "id", "type", "nodeID"), generation=INT64, parameters=by_name(TEXT))
    image_spec = fields(
        **each(TEXTS, "nodeSelector", "diskSelector"),
        diskFileSpecMap=by_name(fields(evictionRequested=FLAG, dataEngine=ENGINE)),
        minNumberOfCopies=INT32,
        dataEngine=ENGINE,
    )
    image_status = fields(
        **each(INT64, "size", "virtualSize", "realSize"), diskFileStatusMap=by_name(fields(state=TEXT, progress=INT32))
    )
    backup_status = fields(**each(TEXT, "url", "volumeName", "volumeSize", "state"))
    engine_spec = fields(volumeName=TEXT, volumeSize=SIZE, nodeID=TEXT, active=FLAG)
    deployed = fields(state=TEXT, nodeDeploymentMap=by_name(FLAG))
    manager_spec = fields(**each(TEXT, "nodeID", "type", "dataEngine", "image"))
    shared = fields(**each(TEXT, "state", "ownerID", "endpoint"))
    attached = fields(volume=TEXT, attachmentTickets=by_name(ticket))
    return [
        crd("nodes", "Node", "lhn", spec=NODE_SPEC, status=NODE_STATUS),
        crd("volumes", "Volume", "lhv", spec=VOLUME_SPEC, status=VOLUME_STATUS),
        crd("replicas", "Replica", "lhr", spec=REPLICA_SPEC, status=REPLICA_STATUS),
        crd("engines", "Engine", "lhe", spec=engine_spec, status=engine_status),
        crd("settings", "Setting", "lhs", status=fields(applied=FLAG), value=TEXT),
        crd("backingimages", "BackingImage", "lhbi", spec=image_spec, status=image_status),
        crd("backups", "Backup", "lhb", spec=fields(snapshotName=TEXT), status=backup_status),
        crd("engineimages", "EngineImage", "lhei", spec=fields(image=TEXT), status=deployed),
        crd("instancemanagers", "InstanceManager", "lhim", spec=manager_spec, status=fields(currentState=TEXT)),
        crd("sharemanagers", "ShareManager", "lhsm", spec=fields(image=TEXT), status=shared),
        crd("volumeattachments", "VolumeAttachment", "lhva", spec=attached),
    ]
