"""What kubelets do for pods, on a cluster that has none. Of the release's pods: start each container as it is rendered,
probe it, say whether it is ready, and end it when its pod is deleted.

The pods are those that the Deployments' controllers made and kube-scheduler bound. What a container gets from its pod
is the pod's own: the arguments, the environment, and the rights of its account. The processes listen on loopback, at
ports of their own in place of the container's, and are reached at the pod's made-up address through Services alone.
"""

from __future__ import annotations

import itertools
import json
import re
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from tests.cluster.client import ignored_when_gone
from tests.cluster.cluster import Cluster
from tests.cluster.components import LOOPBACK
from tests.e2e.programs import Program, leader_address
from tests.e2e.scheduling import SERVICE_PORT
from tests.helm.chart import NAME, NAMESPACE
from tests.ports import free_port

Object = dict[str, Any]
LOOK_SECONDS: Final = 0.1
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
APPS: Final = (NAME, "longhorn-scheduler-webhook")  # by the pods' label; a second kube-scheduler is not started
# The image's scripts, and which flags move a container's ports.
MODULES: Final = {"longhorn-scheduler-extender": "controller", "longhorn-scheduler-webhook": "webhook"}
FLAGS: Final = {
    ("controller", "https"): ("--extender-address", "--extender-port", "--endpoint-port"),
    ("controller", "grpc"): ("--grpc-address", "--grpc-port", "--grpc-endpoint-port"),
    ("controller", "metrics"): ("--metrics-address", "--metrics-port", ""),
    ("controller", "status"): ("--metrics-address", "--status-tls-port", ""),
    ("webhook", "https"): ("--address", "--port", ""),
    ("webhook", "metrics"): ("--metrics-address", "--metrics-port", ""),
}
ADDRESSES_FILE: Final = "addresses.json"  # in the kubelet's folder
_numbers = itertools.count(1)


class RunningPod(Program):
    """The process of one pod's container."""

    def __init__(self, site: Cluster, pod: Object, source: Path, kubeconfig: Path, *, first: str = "") -> None:
        """`first`: what Python does before the program."""
        number = next(_numbers)
        self.name, self.uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self.ip = f"10.247.{number // 250}.{number % 250 + 1}"
        (self.container,) = pod["spec"]["containers"]
        module = MODULES[(self.container.get("command") or [NAME])[0]]
        self.status_port = free_port()
        words = [*self.container["args"], "--kubeconfig", str(kubeconfig), "--status-port", str(self.status_port)]
        self.ports: dict[str, int] = {}
        for port in self.container["ports"]:
            own = self.ports[port["name"]] = free_port()
            address, listens, told = FLAGS[module, port["name"]]
            words += [address, LOOPBACK, listens, str(own)]
            words += [told, str(port["containerPort"])] if told else []
            site.services.map_pod(self.ip, port["containerPort"], own)
        if module == "webhook" and not any(word.startswith("--leader-address") for word in self.container["args"]):
            words += ["--leader-address", leader_address(site)]  # in place of the Service's name, which DNS would know
        assert all("emptyDir" in one for one in pod["spec"]["volumes"] if not one["name"].startswith("kube-api-access"))
        known = {
            "metadata.name": self.name,
            "metadata.namespace": NAMESPACE,
            "status.podIP": self.ip,
            "spec.nodeName": pod["spec"]["nodeName"],
        }
        env = {one["name"]: known[one["valueFrom"]["fieldRef"]["fieldPath"]] for one in self.container["env"]}
        script = f"{first}\nimport sys, {module}.cli; sys.exit({module}.cli.main())"  # as the package installs it
        # -P: of this folder nothing is imported.
        super().__init__(site, self.name, [sys.executable, "-P", "-c", script, *words], env, source=source)
        self.is_ready, self.ends_at = False, 0.0

    def answers(self) -> bool:
        probe = self.container["readinessProbe"]["httpGet"]
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.ports[probe['port']]}{probe['path']}", timeout=5):
                return True
        except OSError:
            return False


class PodKeeper:
    """Looks after the pods of the release's namespace, one after the other, again and again. `failure`: what ended it.
    Threads: its own."""

    def __init__(self, site: Cluster, folder: Path) -> None:
        """`folder`: for what the pods leave behind."""
        self.site, self.folder, self.api = site, folder, site.api()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__)
        self.failure = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self.failure, self.failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_SECONDS):
                for pod in self.api.list(PODS)["items"]:
                    self.look_after(pod)
        except Exception as error:  # thread top
            self.failure = repr(error)

    def look_after(self, pod: Object) -> None:
        raise NotImplementedError

    def account_of(self, pod: Object, name: str) -> Path:
        """A kubeconfig for the pod's own account, in a file of that name."""
        account = pod["spec"]["serviceAccountName"]
        return self.site.service_account_kubeconfig(NAMESPACE, account, self.folder / f"{name}.kubeconfig")

    def tell(self, pod: Object, state: Object, *, is_ready: bool = False, **status: Any) -> None:
        """Report the pod's container, and what else is known of it."""
        (container,) = pod["spec"]["containers"]
        told = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
        status["containerStatuses"] = [{**told, "ready": is_ready, "state": state}]
        with ignored_when_gone():
            self.api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})


class ReleaseKubelet(PodKeeper):
    """Runs the pods of the two Deployments. `sources`: by the image's tag the code that is in it. Threads: its own.

    `addresses` is a file in the folder, for programs outside of pods: by the pod's name, where its status port really
    is, as the pods' own addresses are made up.
    """

    def __init__(self, site: Cluster, sources: Mapping[str, Path], folder: Path, *, first: str = "") -> None:
        """`first`: what Python does in each pod before its program."""
        super().__init__(site, folder)
        self._sources, self.addresses, self._first = sources, folder / ADDRESSES_FILE, first
        self._over: set[str] = set()
        self.pods: dict[str, RunningPod] = {}  # by uid, also of those that are over
        self._tell_addresses()

    def __exit__(self, *_: object) -> None:
        try:
            super().__exit__()
        finally:
            for pod in self.pods.values():
                pod.stop()

    def look_after(self, pod: Object) -> None:
        uid, deleted = pod["metadata"]["uid"], pod["metadata"].get("deletionTimestamp")
        owners = {one["kind"] for one in pod["metadata"].get("ownerReferences", ())}
        if "ReplicaSet" not in owners or uid in self._over:
            return
        running = self.pods.get(uid)
        if running is None:
            is_app = (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name") in APPS
            if pod["spec"].get("nodeName") and not deleted and is_app:
                tag = re.search(r":([\w.-]+)$", pod["spec"]["containers"][0]["image"])
                assert tag is not None
                kubeconfig = self.account_of(pod, pod["metadata"]["name"])
                self.pods[uid] = RunningPod(self.site, pod, self._sources[tag[1]], kubeconfig, first=self._first)
                self._tell_addresses()
            elif deleted:
                self._forget(pod)
            return
        if deleted:
            self._end(pod, running)
        elif not running.is_running:
            raise running.fail("ended by itself")
        elif running.answers() != running.is_ready:
            running.is_ready = not running.is_ready
            self._tell_running(pod, running)

    def _end(self, pod: Object, running: RunningPod) -> None:
        if not running.ends_at:
            running.ends_at = time.monotonic() + pod["spec"]["terminationGracePeriodSeconds"]
            running.signal(signal.SIGTERM)
        if running.is_running and time.monotonic() > running.ends_at:
            raise running.fail("outlived its grace period")
        if not running.is_running:
            self.site.services.unmap_pod(running.ip)
            self._forget(pod)

    def _tell_addresses(self) -> None:
        host, port = self.site.services.address(NAMESPACE, NAME, SERVICE_PORT)
        here = (one for uid, one in self.pods.items() if uid not in self._over)
        found = {one.name: {"status": f"{LOOPBACK}:{one.status_port}"} for one in here}
        found[f"{NAME}.{NAMESPACE}.svc"] = {"https": f"{host}:{port}"}
        new = self.addresses.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.replace(self.addresses)  # whoever reads it meanwhile reads all of it

    def _forget(self, pod: Object) -> None:
        self._over.add(pod["metadata"]["uid"])
        self._tell_addresses()
        with ignored_when_gone():
            self.api.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)

    def _tell_running(self, pod: Object, running: RunningPod) -> None:
        since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # from when `minReadySeconds` count
        condition = {"status": "True" if running.is_ready else "False", "lastTransitionTime": since}
        self.tell(
            pod,
            {"running": {}},
            is_ready=running.is_ready,
            phase="Running",
            podIP=running.ip,
            podIPs=[{"ip": running.ip}],
            conditions=[{"type": kind, **condition} for kind in ("Ready", "ContainersReady")],
        )
