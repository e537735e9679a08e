"""KubeSchedulerConfigurations of the end-to-end tests and the comparisons."""

from __future__ import annotations

from typing import Any

NAMESPACE = "longhorn-system"
SERVICE, SERVICE_PORT = "longhorn-scheduler-extender", 9504
RESOURCE = "longhorn.io/scheduler-extender"

Config = dict[str, Any]

# Longhorn's enhancement text asks administrators for this, word for word (without the paths of its own cluster).
PROPOSAL_WORD_FOR_WORD: Config = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "extenders": [
        {
            "urlPrefix": "http://longhorn-scheduler-extender.longhorn-system.svc:9504",
            "filterVerb": "filter",
            "enableHTTPS": False,
            "nodeCacheCapable": False,
            "ignorable": False,
            "httpTimeout": "10s",
            "managedResources": [{"name": RESOURCE, "ignoredByScheduler": True}],
        }
    ],
}


def stock(*, qps: int = 500, burst: int = 1000) -> Config:
    """No extender: kube-scheduler's own sampling and batching. The client is as fast as the extender's is set to be."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"qps": qps, "burst": burst},
    }


def with_extender(
    address: tuple[str, int],
    *,
    qps: int = 500,
    burst: int = 1000,
    timeout: str = "4s",
    ignorable: bool = False,
    filter_only: bool = False,
    preempt: bool = True,
    bind: bool = False,
    node_cache_capable: bool = True,
) -> Config:
    """What the documents tell users to configure. `address`: where a client on the host network reaches the Service."""
    verbs: dict[str, Any] = {"filterVerb": "filter"}
    verbs |= {} if filter_only else {"prioritizeVerb": "prioritize", "weight": 1}
    verbs |= {"preemptVerb": "preempt"} if preempt and not filter_only else {}
    verbs |= {"bindVerb": "bind"} if bind else {}
    host, port = address
    return {
        **stock(qps=qps, burst=burst),
        "percentageOfNodesToScore": 100,
        "extenders": [
            {
                "urlPrefix": f"http://{host}:{port}",
                **verbs,
                "nodeCacheCapable": node_cache_capable,
                "ignorable": ignorable,
                "httpTimeout": timeout,
                "managedResources": [{"name": RESOURCE, "ignoredByScheduler": True}],
            }
        ],
    }


def with_default_client(config: Config) -> Config:
    """The same with kube-scheduler's own default of 50 requests a second, which shows choices many seconds late."""
    return {name: value for name, value in config.items() if name != "clientConnection"}
