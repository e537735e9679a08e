"""What a kubelet does for the pods of Helm's hooks, on a cluster that has none: run the container, report its end.

The command is the image's entry point with the pod's own arguments, as the pod's own account. What a pod reaches by a
Service's name is reached here by the test cluster's address of that Service. What it said last is in a file as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.cache import REPOSITORY
from tests.cluster.client import ignored_when_gone
from tests.cluster.cluster import Cluster

Object = dict[str, Any]
UNINSTALL, TEST = "longhorn-scheduler-extender-uninstall", "longhorn-scheduler-extender-test"
LOOK_SECONDS = 0.2


class HookPods:
    """Runs every pod that belongs to a hook, once. Threads: its own. `outputs`: what each said, by the pod's label."""

    def __init__(self, site: Cluster, namespace: str, folder: Path, more: Callable[[], list[str]] = list) -> None:
        """`more`: further arguments of `check-installation`."""
        self._site, self._namespace, self._folder, self._more = site, namespace, folder, more
        self._api, self._stop = site.api(), threading.Event()
        self._done: set[str] = set()
        self.outputs: dict[str, str] = {}
        self.failure = ""
        self._thread = threading.Thread(target=self._run, name="hook-pods")

    def __enter__(self) -> HookPods:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self.failure, self.failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_SECONDS):
                for pod in self._api.list(f"/api/v1/namespaces/{self._namespace}/pods")["items"]:
                    name = (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name")
                    if name in (UNINSTALL, TEST) and pod["metadata"]["uid"] not in self._done:
                        self._done.add(pod["metadata"]["uid"])
                        self._play(name, pod)
        except Exception as error:  # thread top
            self.failure = repr(error)

    def _play(self, name: str, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        account = pod["spec"]["serviceAccountName"]
        kubeconfig = self._site.service_account_kubeconfig(
            self._namespace, account, self._folder / f"{name}.kubeconfig"
        )
        words = [*container["args"], "--kubeconfig", str(kubeconfig)]
        if name == TEST:
            words += self._more()
        done = subprocess.run(
            [sys.executable, "-m", "controller", *words],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "POD_NAMESPACE": self._namespace},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.outputs[name] = done.stdout + done.stderr
        (self._folder / f"{name}.log").write_text(self.outputs[name])
        state = {"terminated": {"exitCode": done.returncode, "reason": "Error" if done.returncode else "Completed"}}
        status = {
            "phase": "Failed" if done.returncode else "Succeeded",
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod['metadata']['name']}/status"
        with ignored_when_gone():
            self._api.patch(path, {"status": status})
