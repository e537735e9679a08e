"""A cluster on which to install the chart by hand (`make trial`), until Ctrl-C or SIGTERM.

A control plane with a kube-scheduler that nobody has wired, Longhorn's stand-in, four nodes with a disk each, and in
place of kubelets this process: it starts the release's pods, and those of Helm's hooks, as the processes that they are.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Final

from controller.commands.leader import ADDRESSES
from tests.cluster.cache import REPOSITORY
from tests.cluster.cluster import Cluster, ClusterError, ClusterOptions
from tests.cluster.toolchain import BuildError
from tests.e2e import workloads
from tests.e2e.harness import CLASSES
from tests.e2e.standin import StandIn
from tests.helm.hooks import HookPods
from tests.helm.kubelet import ReleaseKubelet, RunningPod
from tests.helm.tools import HELM_3, HELM_4
from tests.longhorn.options import LonghornOptions

CLUSTER: Final = "trial"
NODES: Final = ("n1", "n2", "n3", "n4")
DISK_GIB: Final = 400
CLASS: Final = "longhorn-local"  # the class of docs/examples/workload.yaml
LOOK_SECONDS: Final = 0.5
FIRST: Final = "TRIAL_FIRST"  # in the environment: what Python does in each pod before its program
COMMAND: Final = "longhorn-scheduler-extender"
# The clone's code in any folder: that of the folder itself (-P) does not count.
WRAPPER: Final = f'#!/bin/sh\nPYTHONPATH="{REPOSITORY}" exec "{sys.executable}" -P -m controller "$@"\n'


def prepare(cluster: Cluster) -> None:
    """What a cluster with Longhorn has before the chart is installed, and the programs to install it with."""
    longhorn = StandIn(cluster, LonghornOptions(runs_own_pods=False))
    longhorn.start()
    for node in NODES:
        cluster.add_node(node)
        longhorn.add_node(node, (DISK_GIB,))
    cluster.api().create(CLASSES, workloads.storage_class(CLASS))
    programs = cluster.state_dir / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(cluster.state_dir / "kubectl")
    for name, tool in {"helm": HELM_3, "helm4": HELM_4}.items():
        (programs / name).symlink_to(tool.build())
    (programs / COMMAND).write_text(WRAPPER)
    (programs / COMMAND).chmod(0o755)


def instructions(cluster: Cluster, addresses: Path) -> str:
    folder = cluster.state_dir
    return f"""
Four nodes, n1 to n4, have a disk of {DISK_GIB} GiB each; the storage class is {CLASS}. In another terminal:
  export TRIAL={folder} KUBECONFIG={cluster.kubeconfig} {ADDRESSES}={addresses} PATH={folder}/bin:$PATH
The steps are in docs/test-cluster.md, "Install the chart there". Ctrl-C ends all of this. What the pods do:"""


def tell(pods: list[RunningPod], told: dict[str, str]) -> None:
    """Say of each pod when it starts, becomes ready and ends."""
    for pod in pods:
        state = "has ended" if not pod.is_running else "is ready" if pod.is_ready else "has started"
        if told.get(pod.uid) != state:
            told[pod.uid] = state
            more = f", --status-port {pod.status_port}" if state == "is ready" else ""
            print(f"  {pod.name} {state}{more}", flush=True)
            if not pod.is_running:
                pod.stop()  # so that the cluster, which others attach to, counts as whole


def run(end: threading.Event) -> None:
    with Cluster.start(ClusterOptions(name=CLUSTER), progress=print) as cluster:
        prepare(cluster)
        sources: defaultdict[str, Path] = defaultdict(lambda: REPOSITORY)  # whatever the image is called
        told: dict[str, str] = {}
        with (
            ReleaseKubelet(cluster, sources, cluster.state_dir, first=os.environ.get(FIRST, "")) as kubelet,
            HookPods(cluster, cluster.state_dir) as hooks,
        ):
            print(instructions(cluster, kubelet.addresses), flush=True)
            while not (kubelet.failure or hooks.failure or end.wait(LOOK_SECONDS)):
                tell(list(kubelet.pods.values()), told)
            print("ending all of it ...", flush=True)


def main() -> int:
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    try:
        run(end)
    except (AssertionError, BuildError, ClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("ended, and everything that it started")
    return 0


if __name__ == "__main__":
    sys.exit(main())
