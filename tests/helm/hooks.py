"""What a kubelet does for the pods of Helm's hooks, on a cluster that has none: run the container, report its end.

The command is the image's entry point with the pod's own arguments, as the pod's own account. What a pod reaches by a
Service's name, or at another pod's address, is reached here by a table of addresses. What it said last is in a file as
well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from controller.commands.leader import ADDRESSES
from tests.cluster.cache import REPOSITORY
from tests.cluster.cluster import Cluster
from tests.helm.chart import NAMESPACE
from tests.helm.kubelet import ADDRESSES_FILE, Object, PodKeeper

UNINSTALL, TEST = "longhorn-scheduler-extender-uninstall", "longhorn-scheduler-extender-test"


class HookPods(PodKeeper):
    """Runs every pod that belongs to a hook, once. Threads: its own. `outputs`: what each said, by the pod's label."""

    def __init__(self, site: Cluster, folder: Path, more: Callable[[], list[str]] = list) -> None:
        """`more`: further arguments of `check`."""
        super().__init__(site, folder)
        self._more = more
        self._done: set[str] = set()
        self.outputs: dict[str, str] = {}

    def _addresses(self) -> dict[str, str]:
        """Where the pods are reached, if a kubelet with the same folder has said so."""
        table = self.folder / ADDRESSES_FILE
        return {ADDRESSES: str(table)} if table.exists() else {}

    def look_after(self, pod: Object) -> None:
        name = (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name")
        if name not in (UNINSTALL, TEST) or pod["metadata"]["uid"] in self._done:
            return
        self._done.add(pod["metadata"]["uid"])
        kubeconfig = self.account_of(pod, name)
        (container,) = pod["spec"]["containers"]
        words = [*container["args"], "--kubeconfig", str(kubeconfig), *(self._more() if name == TEST else ())]
        done = subprocess.run(
            [sys.executable, "-m", "controller", *words],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "POD_NAMESPACE": NAMESPACE, **self._addresses()},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.outputs[name] = done.stdout + done.stderr
        (self.folder / f"{name}.log").write_text(self.outputs[name])
        ended = {"exitCode": done.returncode, "reason": "Error" if done.returncode else "Completed"}
        self.tell(pod, {"terminated": ended}, phase="Failed" if done.returncode else "Succeeded")
