"""Documents for the planner in which nearly everything stands that it reads."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from controller.plan.yaml_reader import load_yaml
from tests.fakes import saved
from tests.fakes.saved import longhorn, replica, setting, volume

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plan-format.md"
FIT: dict[str, Any] = load_yaml(PAGE.read_text().split("```yaml\n")[3].split("```")[0])  # type: ignore[assignment]


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
