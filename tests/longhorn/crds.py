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


CONDITIONS: Final[Schema] = {
    "type": "array",
    "items": fields(type=TEXT, status=TEXT, reason=TEXT, message=TEXT, lastProbeTime=TEXT, lastTransitionTime=TEXT),
}
SOFT: Final = choice("ignored", "enabled", "disabled")
ENGINE: Final = choice("v1", "v2")

NODE_SPEC: Final = fields(
    name=TEXT,
    allowScheduling=FLAG,
    evictionRequested=FLAG,
    tags=TEXTS,
    instanceManagerCPURequest=INT32,
    disks=by_name(
        fields(
            diskType=choice("filesystem", "block"),
            path=TEXT,
            diskDriver=choice("", "auto", "aio", "nvme"),
            allowScheduling=FLAG,
            evictionRequested=FLAG,
            storageReserved=INT64,
            tags=TEXTS,
        )
    ),
)
NODE_STATUS: Final = fields(
    conditions=CONDITIONS,
    region=TEXT,
    zone=TEXT,
    autoEvicting=FLAG,
    diskStatus=by_name(
        fields(
            conditions=CONDITIONS,
            storageAvailable=INT64,
            storageScheduled=INT64,
            storageMaximum=INT64,
            scheduledReplica=SIZES,
            scheduledBackingImage=SIZES,
            diskUUID=TEXT,
            diskName=TEXT,
            diskPath=TEXT,
            diskType=TEXT,
            diskDriver=TEXT,
            filesystemType=TEXT,
            instanceManagerName=TEXT,
        )
    ),
)
VOLUME_SPEC: Final = fields(
    size={"type": "string", "format": "int64"},
    numberOfReplicas=INT32,
    staleReplicaTimeout=INT32,
    dataLocality=choice("disabled", "best-effort", "strict-local"),
    nodeID=TEXT,
    migrationNodeID=TEXT,
    engineNodeID=TEXT,
    diskSelector=TEXTS,
    nodeSelector=TEXTS,
    topologyRequirement={"type": "array", "items": fields(zone=TEXT, region=TEXT)},
    replicaSoftAntiAffinity=SOFT,
    replicaZoneSoftAntiAffinity=SOFT,
    replicaDiskSoftAntiAffinity=SOFT,
    replicaAutoBalance=choice("ignored", "disabled", "least-effort", "best-effort"),
    accessMode=choice("rwo", "rwop", "rwx"),
    migratable=FLAG,
    encrypted=FLAG,
    dataEngine=ENGINE,
    backingImage=TEXT,
    fromBackup=TEXT,
    dataSource=TEXT,
    cloneMode=choice("", "full-copy", "linked-clone"),
    image=TEXT,
    frontend=choice("blockdev", "iscsi", "nvmf", "ublk", ""),
    disableFrontend=FLAG,
    Standby=FLAG,
)
VOLUME_STATUS: Final = fields(
    state=TEXT,
    robustness=TEXT,
    currentNodeID=TEXT,
    ownerID=TEXT,
    conditions=CONDITIONS,
    actualSize=INT64,
    expansionRequired=FLAG,
    lastDegradedAt=TEXT,
    frontendDisabled=FLAG,
    isStandby=FLAG,
    restoreRequired=FLAG,
    cloneStatus=fields(sourceVolume=TEXT, snapshot=TEXT, state=TEXT),
    shareState=TEXT,
    shareEndpoint=TEXT,
)
REPLICA_SPEC: Final = fields(
    volumeName=TEXT,
    volumeSize={"type": "string", "format": "int64"},
    nodeID=TEXT,
    diskID=TEXT,
    diskPath=TEXT,
    dataDirectoryName=TEXT,
    image=TEXT,
    dataEngine=ENGINE,
    desireState=TEXT,
    active=FLAG,
    engineName=TEXT,
    hardNodeAffinity=TEXT,
    healthyAt=TEXT,
    lastHealthyAt=TEXT,
    failedAt=TEXT,
    lastFailedAt=TEXT,
    rebuildRetryCount=INT32,
    evictionRequested=FLAG,
    backingImage=TEXT,
    linkedCloneSrcReplicaName=TEXT,
)
REPLICA_STATUS: Final = fields(currentState=TEXT, ownerID=TEXT, instanceManagerName=TEXT, ip=TEXT)


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
    engine_status = fields(
        currentSize={"type": "string", "format": "int64"}, isExpanding=FLAG, replicaModeMap=by_name(TEXT)
    )
    ticket = fields(id=TEXT, type=TEXT, nodeID=TEXT, generation=INT64, parameters=by_name(TEXT))
    return [
        crd("nodes", "Node", "lhn", spec=NODE_SPEC, status=NODE_STATUS),
        crd("volumes", "Volume", "lhv", spec=VOLUME_SPEC, status=VOLUME_STATUS),
        crd("replicas", "Replica", "lhr", spec=REPLICA_SPEC, status=REPLICA_STATUS),
        crd(
            "engines",
            "Engine",
            "lhe",
            spec=fields(volumeName=TEXT, volumeSize={"type": "string", "format": "int64"}, nodeID=TEXT, active=FLAG),
            status=engine_status,
        ),
        crd("settings", "Setting", "lhs", status=fields(applied=FLAG), value=TEXT),
        crd(
            "backingimages",
            "BackingImage",
            "lhbi",
            spec=fields(
                diskFileSpecMap=by_name(fields(evictionRequested=FLAG, dataEngine=ENGINE)),
                minNumberOfCopies=INT32,
                nodeSelector=TEXTS,
                diskSelector=TEXTS,
                dataEngine=ENGINE,
            ),
            status=fields(size=INT64, virtualSize=INT64, realSize=INT64),
        ),
        crd(
            "engineimages",
            "EngineImage",
            "lhei",
            spec=fields(image=TEXT),
            status=fields(state=TEXT, nodeDeploymentMap=by_name(FLAG)),
        ),
        crd(
            "instancemanagers",
            "InstanceManager",
            "lhim",
            spec=fields(nodeID=TEXT, type=TEXT, dataEngine=TEXT, image=TEXT),
            status=fields(currentState=TEXT),
        ),
        crd(
            "sharemanagers",
            "ShareManager",
            "lhsm",
            spec=fields(image=TEXT),
            status=fields(state=TEXT, ownerID=TEXT, endpoint=TEXT),
        ),
        crd(
            "volumeattachments",
            "VolumeAttachment",
            "lhva",
            spec=fields(volume=TEXT, attachmentTickets=by_name(ticket)),
        ),
    ]
