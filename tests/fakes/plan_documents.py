"""Documents for the planner in which nearly everything stands that it reads."""

from __future__ import annotations

import copy
from typing import Any

from controller.plan.yaml_reader import load_yaml
from tests.fakes import saved
from tests.fakes.saved import longhorn, replica, setting, volume

_NODE = """\
  - apiVersion: longhorn.io/v1beta2
    kind: Node
    metadata: {name: nNUMBER, namespace: longhorn-system}
    spec:
      allowScheduling: true
      disks: {disk-NUMBER: {allowScheduling: true, storageReserved: 0}}
    status:
      conditions: [{type: Ready, status: "True"}, {type: Schedulable, status: "True"}]
      diskStatus:
        disk-NUMBER:
          conditions: [{type: Ready, status: "True"}, {type: Schedulable, status: "True"}]
          diskUUID: uuid-NUMBER
          filesystemType: ext4
          storageMaximum: 107374182400
          storageAvailable: 107374182400
          storageScheduled: 0
"""
FIT: dict[str, Any] = load_yaml(
    "objects:\n"
    + _NODE.replace("NUMBER", "1")
    + _NODE.replace("NUMBER", "2")
    + """\
  - {apiVersion: v1, kind: Node, metadata: {name: n1}}
  - {apiVersion: v1, kind: Node, metadata: {name: n2}}
  - {apiVersion: v1, kind: Node, metadata: {name: n3}}
  - apiVersion: storage.k8s.io/v1
    kind: StorageClass
    metadata: {name: longhorn-local}
    provisioner: driver.longhorn.io
    parameters: {numberOfReplicas: "1", dataLocality: best-effort}
    volumeBindingMode: WaitForFirstConsumer
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata: {name: data, namespace: shop, uid: 5d1c}
    spec:
      storageClassName: longhorn-local
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 60Gi}}
  - apiVersion: v1
    kind: Pod
    metadata: {name: db, namespace: shop, uid: 77a0}
    spec:
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
question:
  fit:
    pod: shop/db
    nodes: [n1, n2, n3]
    promises: [{node: n1, volume: other, size: 50Gi}]
"""
)  # type: ignore[assignment]


def document() -> dict[str, Any]:
    """One with every kind and most fields."""
    found = copy.deepcopy(FIT)
    linked: dict[str, Any] = {"dataSource": "vol://w", "cloneMode": "linked-clone"}
    local: dict[str, Any] = {"dataLocality": "best-effort", "nodeID": "n2", "backingImage": "image", "image": "engine"}
    found["objects"] += [
        volume(**local, topologyRequirement=[{"zone": "", "region": ""}], diskSelector=[], nodeSelector=[]),
        volume("w", **linked, status={"robustness": "degraded", "lastDegradedAt": saved.NOW, "actualSize": 5}),
        replica("r1", active=True, evictionRequested=False, rebuildRetryCount=0, hardNodeAffinity="", failedAt=""),
        replica("r2", "n1", "disk-1", failedAt=saved.NOW, linkedCloneSrcReplicaName=""),
        longhorn("BackingImage", "image", spec={"nodeSelector": [], "diskFileSpecMap": {}}, status={"realSize": 1}),
        longhorn("EngineImage", "e", spec={"image": "engine"}, status={"state": "deployed", "nodeDeploymentMap": {}}),
        longhorn("InstanceManager", "m", spec={"nodeID": "n1", "type": "aio"}, status={"currentState": "running"}),
        setting("default-replica-count", '{"v1":"3"}'),
    ]
    found["settings"] = {"replica-soft-anti-affinity": True, "default-replica-count": {"v1": "3"}}
    found["now"] = saved.NOW
    found["longhornVersion"] = "v1.12.1"
    return found


QUESTIONS = [
    document()["question"],
    {"schedule": {"volume": "v", "replicas": ["r1"]}},
    {"expand": {"volume": "v", "size": 2**40}},
]
