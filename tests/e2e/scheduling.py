"""KubeSchedulerConfigurations of the end-to-end tests and the comparisons."""

from __future__ import annotations

import ssl
from base64 import b64decode
from copy import deepcopy
from pathlib import Path
from typing import Any

from controller.scheduler_config.options import DEFAULT_BURST, DEFAULT_QPS

NAMESPACE = "longhorn-system"
SERVICE, SERVICE_PORT = "longhorn-scheduler-extender", 9504
LEADER_SERVICE, LEADER_PORT = "longhorn-replica-scheduler", 9504  # gRPC
SERVER_NAME = f"{SERVICE}.{NAMESPACE}.svc"
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

# Names of all schedulers that ask the product in some test or benchmark; "nobody": the test itself asks.
ASKING = (
    "default-scheduler,nobody,longhorn-scheduler,second-scheduler,sampling-scheduler,slow-scheduler,"
    "preempting-scheduler,evicting-scheduler,choosing-scheduler,binding-scheduler,forgiving-scheduler,"
    "binding-all,"
    "goals-preempting,goals-evicting,merged-scheduler,merged-packing,second-managed-resources,"
    "second-no-managed-resources,rendered-plain,rendered-whole,rendered-k3s,rendered-rke2,rendered-talos,"
    "rendered-large,"
    "kubevirt-scheduler,https-scheduler,burst-scheduler,wrong-authority,wrong-name,wrong-client,no-client,names-scheduler,nodes-scheduler"
)


def stock(*, qps: int = DEFAULT_QPS, burst: int = DEFAULT_BURST) -> Config:
    """No extender: kube-scheduler's own sampling and batching. The client is as fast as the extender's is set to be."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"qps": qps, "burst": burst},
    }


def with_changes(
    config: Config,
    *,
    qps: int = DEFAULT_QPS,
    burst: int = DEFAULT_BURST,
    timeout: str = "4s",
    ignorable: bool = False,
    filter_only: bool = False,
    preempt: bool = True,
    bind: bool = False,
    node_cache_capable: bool = True,
    plain_http: bool = False,
    managed: bool = True,
    path: str = "",
) -> Config:
    """What `render-scheduler-config` printed, with nothing else changed than what is asked for."""
    changed = deepcopy(config)
    changed["clientConnection"].update(qps=qps, burst=burst)
    (entry,) = changed["extenders"]
    entry.update(httpTimeout=timeout, ignorable=ignorable, nodeCacheCapable=node_cache_capable)
    unwanted = ["prioritizeVerb", "weight", "preemptVerb"] if filter_only else [] if preempt else ["preemptVerb"]
    for name in unwanted:
        del entry[name]
    if bind:
        entry["bindVerb"] = "bind"
    if not managed:
        del entry["managedResources"]
    entry["urlPrefix"] += path
    if plain_http:
        del entry["enableHTTPS"], entry["tlsConfig"]
        entry["urlPrefix"] = entry["urlPrefix"].replace("https://", "http://")
    return changed


def with_default_client(config: Config) -> Config:
    """The same with kube-scheduler's own default of 50 requests a second, which shows choices many seconds late."""
    return {name: value for name, value in config.items() if name != "clientConnection"}


def trust_of(config: Config, folder: Path) -> ssl.SSLContext:
    """What a kube-scheduler with this configuration has: whom it trusts, and what it shows."""
    tls = config["extenders"][0]["tlsConfig"]
    pair = folder / "scheduler-client.pem"
    pair.write_bytes(b64decode(tls["certData"]) + b64decode(tls["keyData"]))
    trust = ssl.create_default_context(cadata=b64decode(tls["caData"]).decode())
    trust.load_cert_chain(pair)
    return trust
