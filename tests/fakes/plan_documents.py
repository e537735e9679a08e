"""Documents for the planner in which nearly everything stands that it reads."""

from __future__ import annotations

import copy
from typing import Any

from tests.fakes import saved
from tests.fakes.saved import core, longhorn, node, replica, setting, storage_class, volume

_CLAIM: dict[str, Any] = {
    "storageClassName": "longhorn-local",
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "60Gi"}},
}
_POD: dict[str, Any] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
_PROMISE = {"node": "n1", "volume": "other", "size": "50Gi"}
QUESTIONS: list[dict[str, Any]] = [
    {"fit": {"pod": "shop/db", "nodes": ["n1", "n2", "n3"], "promises": [_PROMISE]}},
    {"schedule": {"volume": "v", "replicas": ["r1"]}},
    {"expand": {"volume": "v", "size": 2**40}},
]


def document(*more: dict[str, Any]) -> dict[str, Any]:
    """One with nearly every kind and most fields, and these objects."""
    linked: dict[str, Any] = {"dataSource": "vol://w", "cloneMode": "linked-clone"}
    local: dict[str, Any] = {"dataLocality": "best-effort", "nodeID": "n2", "backingImage": "image", "image": "engine"}
    objects = [
        node("n1", disks={"disk-1": {}}),
        node("n2", disks={"disk-2": {}}),
        *(core("Node", name) for name in ("n1", "n2", "n3")),
        storage_class("longhorn-local", numberOfReplicas="1", dataLocality="best-effort"),
        core("PersistentVolumeClaim", "data", "shop", spec=_CLAIM),
        core("Pod", "db", "shop", spec=_POD),
        volume(**local, topologyRequirement=[{"zone": "", "region": ""}], diskSelector=[], nodeSelector=[]),
        volume("w", **linked, status={"robustness": "degraded", "lastDegradedAt": saved.NOW, "actualSize": 5}),
        replica("r1", active=True, evictionRequested=False, rebuildRetryCount=0, hardNodeAffinity="", failedAt=""),
        replica("r2", "n1", "disk-1", failedAt=saved.NOW, linkedCloneSrcReplicaName=""),
        longhorn("BackingImage", "image", spec={"nodeSelector": [], "diskFileSpecMap": {}}, status={"realSize": 1}),
        longhorn("EngineImage", "e", spec={"image": "engine"}, status={"state": "deployed", "nodeDeploymentMap": {}}),
        longhorn("InstanceManager", "m", spec={"nodeID": "n1", "type": "aio"}, status={"currentState": "running"}),
        setting("default-replica-count", '{"v1":"3"}'),
        *more,
    ]
    return copy.deepcopy(
        {
            "objects": objects,
            "question": QUESTIONS[0],
            "settings": {"replica-soft-anti-affinity": True, "default-replica-count": {"v1": "3"}},
            "now": saved.NOW,
            "longhornVersion": "v1.12.1",
        }
    )
