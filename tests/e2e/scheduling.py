"""KubeSchedulerConfigurations of the end-to-end tests and the comparisons."""

from __future__ import annotations

from typing import Any

import yaml

from controller.scheduler_config.config import new_config
from controller.scheduler_config.options import DEFAULT_BURST, DEFAULT_QPS, PLATFORMS, Options, parse_timeout

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


def stock(*, qps: int = DEFAULT_QPS, burst: int = DEFAULT_BURST) -> Config:
    """No extender: kube-scheduler's own sampling and batching. The client is as fast as the extender's is set to be."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"qps": qps, "burst": burst},
    }


def with_extender(
    address: tuple[str, int],
    *,
    qps: int = DEFAULT_QPS,
    burst: int = DEFAULT_BURST,
    timeout: str = "4s",
    ignorable: bool = False,
    filter_only: bool = False,
    preempt: bool = True,
    bind: bool = False,
    node_cache_capable: bool = True,
) -> Config:
    """What `render-scheduler-config` prints, with nothing else changed than what is asked for.

    `address`: where a client on the host network reaches the Service. Access to the API server and the election are
    left to the test cluster.
    """
    host, port = address
    options = Options(
        PLATFORMS["plain"],
        service_address=host,
        port=port,
        qps=qps,
        burst=burst,
        timeout_milliseconds=parse_timeout(timeout),
        allow_long_timeout=True,
        ignorable=ignorable,
    )
    config: Config = yaml.safe_load(new_config(options.checked()).text)
    del config["clientConnection"]["kubeconfig"], config["leaderElection"]
    (entry,) = config["extenders"]
    unwanted = ["prioritizeVerb", "weight", "preemptVerb"] if filter_only else [] if preempt else ["preemptVerb"]
    for name in unwanted:
        del entry[name]
    if bind:
        entry["bindVerb"] = "bind"
    if not node_cache_capable:
        entry["nodeCacheCapable"] = False
    return config


def with_default_client(config: Config) -> Config:
    """The same with kube-scheduler's own default of 50 requests a second, which shows choices many seconds late."""
    return {name: value for name, value in config.items() if name != "clientConnection"}
