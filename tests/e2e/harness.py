"""The whole scene: a real control plane, Longhorn's stand-in on it, and the product behind its Service.

A *cell* is a namespace with nodes of its own, so that several runs share one scene without touching each other.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Self

import yaml

from controller.settings import LIVE_FIELDS, live_settings
from tests.cluster.cache import REPOSITORY
from tests.cluster.client import Object, ignored_when_gone
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e import scheduling, workloads
from tests.e2e.checker import Checker, Report, Scope, ToldPods
from tests.e2e.claim_webhook import ClaimWebhook
from tests.e2e.forms import FilterAnswer, Form, encode, post, wanted_form
from tests.e2e.history_facts import SELECTED_NODE
from tests.e2e.history_tail import HistoryTail
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE, SERVICE, SERVICE_PORT
from tests.e2e.standin import StandIn
from tests.e2e.view import CLAIMS, LONGHORN_NODES, LONGHORN_VOLUMES, PODS, VOLUMES, View
from tests.judge.judge import PlaceFinding, guilt, judge
from tests.judge.reading import stored_places
from tests.longhorn.options import LonghornOptions
from tests.longhorn.paths import CSI_NODES, LATE
from tests.waiting import wait_equal, wait_until

GIB = workloads.GIB
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{SERVICE}"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
GATE_BINDING = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/longhorn-scheduler-extender-gate"
)
GATE_ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/longhorn-scheduler-extender-gate"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
NODES = "/api/v1/nodes"
MANIFESTS = ("install.yaml", "webhook.yaml")
# What a Deployment would run is started as processes here.
NOT_APPLIED = ("Deployment", "PodDisruptionBudget")
FILL_CPU, FILL_MEMORY = "12", "48Gi"  # three quarters of a node as the test cluster makes it
STOCK_SCHEDULER = "stock-scheduler"
# docs/rules/waiting.md, "When room appears": a pod is woken at once, again after at most 10 s.
WOKEN_SECONDS = 10.0
SETTINGS_SECONDS = 30.0
_numbers = count(1)  # of cells


def _silent(_: str) -> None:
    pass


class Scene:
    """A cluster with Longhorn's stand-in and the product's objects installed; no copy of the product runs yet.

    Threads: one at a time for starting and stopping; looking and waiting from any. `form` is what its schedulers, and
    `filter`, send to the extender.
    """

    def __init__(
        self, cluster: Cluster, options: LonghornOptions, install: Callable[[Cluster], None] | None = None
    ) -> None:
        """`install`: in the place of the manifests and of certificates that are made before a leader makes them."""
        self.form = wanted_form()
        self.cluster = cluster
        self.api = cluster.api()
        self.longhorn = StandIn(cluster, options)
        self.controllers: list[Controller] = []
        self._is_kept = False
        self.is_plain = False
        self._history, self._checker = HistoryTail(cluster.history), Checker()
        self.longhorn.start()
        (install or _install)(cluster)
        self.view = View(self.api)
        cluster.history_covers(LONGHORN_NODES, LONGHORN_VOLUMES)
        self.kubeconfig = cluster.service_account_kubeconfig(
            NAMESPACE, SERVICE, cluster.state_dir / "extender.kubeconfig"
        )

    @classmethod
    def start(
        cls,
        options: LonghornOptions,
        *,
        name: str = "",
        run_scheduler: bool = True,
        api_server_flags: Mapping[str, str] | None = None,
        progress: Callable[[str], None] = _silent,
    ) -> Self:
        """About ten seconds. The scheduler is configured as the product's documents say. The scene's block ends with an
        AssertionError where the judge finds guilt."""
        wanted = ClusterOptions(name=name, start_scheduler=False, api_server_flags=api_server_flags or {})
        cluster = Cluster.start(wanted, progress=progress)
        try:
            scene = cls(cluster, options)
            if run_scheduler:
                cluster.start_scheduler(scene.extender_config())
        except BaseException:
            cluster.stop()
            raise
        return scene

    def stop(self) -> None:
        """End everything that was started, unless it is kept."""
        self.view.close()
        if not self._is_kept:
            self.cluster.stop()

    def keep(self) -> None:
        """Let it all live on when this process ends; `python -m tests.cluster down` ends it."""
        self.cluster.keep()
        self._is_kept = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if failure is None:
                assert [] == list(map(str, guilt(self.findings())))
        finally:
            self.stop()

    # -- the product ---------------------------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        """Where kube-scheduler reaches the extender's Service."""
        return self.cluster.services.address(NAMESPACE, SERVICE, SERVICE_PORT)

    def extender_config(self, **options: Any) -> scheduling.Config:
        """What `render-scheduler-config` writes, as somebody calls it in the product's pod. Access to the API server
        and the election are left to the test cluster."""
        options.setdefault("node_cache_capable", self.form.is_node_cache_capable)
        options.setdefault("plain_http", self.is_plain)
        return scheduling.with_changes(self._rendered, **options)

    @cached_property
    def _rendered(self) -> scheduling.Config:
        path, (host, port) = self.cluster.state_dir / "scheduler-extender.yaml", self.address
        words = ["--for", "plain", "--service-address", host, "--port", str(port), "--output", str(path)]
        done = self.run("controller", "render-scheduler-config", *words)
        if done.returncode != 0:
            raise RuntimeError(f"render-scheduler-config: {done.stderr}")
        config: scheduling.Config = yaml.safe_load(path.read_text())
        del config["clientConnection"]["kubeconfig"], config["leaderElection"]
        return config

    @cached_property
    def trust(self) -> ssl.SSLContext:
        """What kube-scheduler has: the extender's authority, and a certificate to show."""
        return scheduling.trust_of(self._rendered, self.cluster.state_dir)

    def call(self, path: str, body: bytes, *, address: tuple[str, int] | None = None) -> FilterAnswer:
        """One call of the extender, as kube-scheduler's; through its Service, unless an address is given."""
        return post(address or self.address, path, body, None if self.is_plain else self.trust)

    def start_controller(self, **options: Any) -> Controller:
        """Start one more copy; returns once the Service leads to it."""
        controller = self.launch_controller(**options)
        controller.wait_leading()
        return controller

    def lead(self, *flags: str) -> Controller:
        """The one copy with these flags, in charge: that of an earlier test, if it still leads, else a new one."""
        wanted = ("controller", *self._flags(flags))
        for one in list(self.controllers):
            if one.has_died() or one.program != wanted or not one.leads():
                self.controllers.remove(one)
                one.stop()
        if not self.controllers:
            return self.start_controller(flags=flags)
        (leader,) = self.controllers
        leader.wait_leading()
        return leader

    def _flags(self, flags: Sequence[str]) -> tuple[str, ...]:
        return (*flags, *(("--tls-mode", "insecure-plain-http") if self.is_plain else ()))

    def launch_controller(self, **options: Any) -> Controller:
        options["flags"] = self._flags(options.get("flags", ()))
        controller = Controller(self.cluster, self.kubeconfig, **options)
        self.controllers.append(controller)
        return controller

    def stop_controllers(self, *, kill: bool = False) -> None:
        """End all copies. Raises RuntimeError about one that had died before."""
        died = [controller for controller in self.controllers if controller.has_died()]
        while self.controllers:
            self.controllers.pop().stop(kill=kill)
        if died:
            raise died[0].fail("it, or its worker, died although nothing ended it")

    def kill(self, controller: Controller) -> None:
        """End this copy at once; `stop_controllers` is to know nothing of it."""
        controller.stop(kill=True)
        self.controllers.remove(controller)

    def let_place(self, who: str) -> None:
        """Have the leader place, or Longhorn alone, and wait until it is so. Without a copy of ours nothing is done."""
        if self.controllers:
            self.set_settings(placement=who)
            bound = who != "longhorn"
            wait_until(lambda: (self.api.get_or_none(GATE_BINDING) is not None) is bound, f"{who} that places", 30.0)

    @contextmanager
    def longhorn_alone(self) -> Iterator[None]:
        """Meanwhile Longhorn places, as where nothing of ours is installed; then the leader again."""
        self.let_place("longhorn")
        try:
            yield
        finally:
            self.let_place("leader")

    def take_away(self) -> None:
        """End all copies, and let Longhorn place at once, as after an uninstallation."""
        self.stop_controllers()
        with ignored_when_gone():
            self.api.delete(GATE_BINDING)

    @contextmanager
    def plain_http(self) -> Iterator[Controller]:
        """Meanwhile the product and kube-scheduler speak plain HTTP with each other, and anybody may call."""
        self.stop_controllers()
        self.is_plain = True
        try:
            leader = self.start_controller()
            self.cluster.restart_scheduler(self.extender_config())
            yield leader
        finally:
            self.stop_controllers()
            self.is_plain = False
            self.cluster.restart_scheduler(self.extender_config())

    def set_settings(self, **settings: str) -> None:
        """Change the product's live settings, and wait until each copy that runs has seen them; one that answers nobody
        is not waited for. Underscores in names stand for dashes, without the common prefix."""
        data = {f"scheduler-extender-{name.replace('_', '-')}": value for name, value in settings.items()}
        whole = self.api.patch(CONFIG_MAP, {"data": data})["data"]
        live, problems = live_settings(whole, {})
        refused = {one.name for one in problems}
        fields = [LIVE_FIELDS[name] for name in data if name not in refused]
        wanted = {field: getattr(live, field) for field in fields}

        def is_seen(controller: Controller) -> bool:
            try:
                seen = controller.status()["settings"] or {}
            except OSError:
                return True
            return all(seen.get(field) == value for field, value in wanted.items())

        for one in self.controllers:
            wait_until(lambda: is_seen(one), f"{one.name} with {settings}", SETTINGS_SECONDS)  # noqa: B023

    def run(self, *words: str, kubeconfig: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of the product, with the rights of its ServiceAccount unless others are given."""
        command = [sys.executable, "-m", *words, "--kubeconfig", str(kubeconfig or self.kubeconfig)]
        env = {**os.environ, **environment}
        return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=60, check=False)

    def claim_webhook(self) -> ClaimWebhook:
        """Put Longhorn's own webhook in the way of every claim's update, until it is stopped."""
        return ClaimWebhook(self.api, self.cluster.state_dir, self.longhorn.options.namespace)

    def start_stock_scheduler(self) -> None:
        """A second kube-scheduler, without any extender, for pods that name it."""
        self.cluster.start_scheduler(
            {**scheduling.stock(), "profiles": [{"schedulerName": STOCK_SCHEDULER}]}, name=STOCK_SCHEDULER
        )

    def filter(self, pod: Object, nodes: Sequence[str], *, form: Form | None = None) -> FilterAnswer:
        """Call the extender through its Service as kube-scheduler does."""
        form = form or self.form
        items = self.api.list(NODES)["items"] if form is Form.NODES else []
        body = encode(form, pod, nodes, {node["metadata"]["name"]: node for node in items})
        return self.call("/filter", body)

    def events(self, reason: str = "", namespace: str = NAMESPACE) -> list[Object]:
        """The namespace's Events, or those of that reason."""
        found = self.api.list(f"/api/v1/namespaces/{namespace}/events")["items"]
        return [event for event in found if reason in ("", event["reason"])]

    # -- verdicts ------------------------------------------------------------------------------------------------

    def judge(self, cell: Cell, told: ToldPods = ToldPods(), **patience: float) -> Report:
        """What the API server's history says of the cell's present run, up to this call. Takes 1 to 2 s. `patience`: as
        for `Checker.verdict`."""
        upto = self.cluster.history_caught_up()
        for entry in self._history.read(upto):
            self._checker.feed(entry)
        return self._checker.verdict(cell.scope, told, **patience)

    def findings(self) -> list[PlaceFinding]:
        """What the judge of places finds in all that was stored up to this call. Takes 1 to 2 s."""
        upto = self.cluster.history_caught_up()
        return judge(stored_places(self.cluster.history, upto))

    def open_scope(self, cell: Cell, since: int, former: Scope | None) -> Scope:
        """Judge the cell's run that begins after this revision, and its former one no more."""
        if former is not None:
            self._checker.close(former)
        return self._checker.open(nodes=cell.nodes, namespaces={cell.namespace}, after=since)

    def assert_exactly_full(self, *cells: Cell) -> None:
        """Four pods become ready on each node of these cells, no byte is promised twice, and the ledger empties."""
        for cell in cells:
            cell.wait_ready(4 * len(cell.nodes), 120)
        for cell in cells:
            report = self.judge(cell)
            assert [] == report.complaints()
            assert dict.fromkeys(cell.nodes, 4) == report.pods_per_node()
            assert 4 * len(cell.nodes) == len(report.local)
            assert dict.fromkeys(cell.nodes, 400 * GIB) == report.peaks()
        self.controllers[-1].wait_ledger_empty()

    def cell(self, name: str, **options: Any) -> Cell:
        return Cell(self, name, **options)


class Cell:
    """A namespace, nodes that only its pods may use, and a storage class that only uses those nodes' disks.

    Threads: one at a time.
    """

    def __init__(
        self,
        scene: Scene,
        name: str,
        *,
        nodes: int = 4,
        node_names: Sequence[str] = (),
        disks_gib: Sequence[int] = (400,),
        fillers: int = 2,
        reclaim: str = "Delete",
    ) -> None:
        self.scene, self.name = scene, name
        self.nodes: list[str] = []
        self.class_name = f"longhorn-{name}"
        self.selector = {"cell": name}
        self._runs = 0
        self._fillers = ""  # the namespace of pods that take CPU and memory
        self._scope: Scope | None = None
        self._classes: list[str] = []
        for node in node_names or [f"{name}-n{number}" for number in range(1, nodes + 1)]:
            self.add_node(node, disks_gib)
        self.add_class(reclaim=reclaim)
        if fillers:
            self._fill(self.nodes[:fillers])
        self.renew()

    def add_node(self, name: str, disks_gib: Sequence[int]) -> None:
        """One more node, with disks of these sizes."""
        self.nodes.append(name)
        self.scene.cluster.add_node(name, labels=self.selector)
        self.scene.longhorn.add_node(name, disks_gib, tags=(self.name,))

    def add_class(self, kind: str = "", **options: Any) -> str:
        """The name of one more class of volumes on the cell's disks. `kind` is its part that tells it from others;
        without one, the values of the options are."""
        words = [self.class_name, kind or "-".join(map(str, options.values()))]
        name = "-".join(words).lower() if self._classes else self.class_name
        self._classes.append(name)
        self.scene.api.create(CLASSES, workloads.storage_class(name, node_selector=self.name, **options))
        return name

    def _fill(self, nodes: Sequence[str]) -> None:
        """Take three quarters of these nodes, for good: kube-scheduler spreads pods over equal nodes by itself."""
        namespace = self._fillers = f"{self.name}-fillers"
        self.scene.cluster.create_namespace(namespace)
        for node in nodes:
            pod = workloads.filler(f"filler-{node}", node, cpu=FILL_CPU, memory=FILL_MEMORY)
            self.scene.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)

    @property
    def scope(self) -> Scope:
        assert self._scope is not None
        return self._scope

    def renew(self) -> None:
        """Begin another run on the same nodes: a new namespace, judged from here on."""
        self._runs += 1
        self.namespace = f"{self.name}-{self._runs}"
        self.scene.cluster.create_namespace(self.namespace)
        made = self.scene.api.get(f"/api/v1/namespaces/{self.namespace}")
        since = int(made["metadata"]["resourceVersion"])
        self._scope = self.scene.open_scope(self, since, self._scope)

    # -- objects -------------------------------------------------------------------------------------------------

    def path(self, plural: str, name: str = "") -> str:
        group = "apis/apps/v1" if plural == "statefulsets" else "api/v1"
        return f"/{group}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def create(self, plural: str, obj: Object) -> Object:
        return self.scene.api.create(self.path(plural), obj)

    def delete(self, plural: str, name: str, **options: Any) -> None:
        with ignored_when_gone():
            self.scene.api.delete(self.path(plural, name), **options)

    def claim(self, name: str, gib: int = 100, class_name: str = "", *, late: bool = False) -> str:
        """Make a claim; the name of the volume that it gets. `late`: no volume is made before `let_come`."""
        made = workloads.claim(name, class_name or self.class_name, gib)
        if late:
            made["metadata"]["annotations"] = {LATE: ""}
        return f"pvc-{self.create('persistentvolumeclaims', made)['metadata']['uid']}"

    def let_come(self, claim: str) -> None:
        """Have the volume of a claim that was made as a late one."""
        self.scene.api.patch(self.path("persistentvolumeclaims", claim), {"metadata": {"annotations": {LATE: None}}})

    def pod(self, name: str, *claims: str, node: str = "", **options: Any) -> Object:
        """Make a pod, for that node alone where one is named."""
        selector = {**self.selector, **({"kubernetes.io/hostname": node} if node else {})}
        return self.create("pods", workloads.pod(name, *claims, selector=selector, **options))

    def ask(self, *names: str, gib: int = 100, **options: Any) -> None:
        """For each name a claim, and then for each a pod of that name that uses it."""
        for name in names:
            self.claim(name, gib)
        for name in names:
            self.pod(name, name, **options)

    def kill(self, *pods: str) -> None:
        """Delete these pods without a grace period."""
        for pod in pods:
            self.delete("pods", pod, gracePeriodSeconds=0)

    def stateful_set(self, name: str = "web", **options: Any) -> Object:
        return self.create(
            "statefulsets", workloads.stateful_set(name, self.class_name, selector=self.selector, **options)
        )

    def select(self, claim: str, node: str | None) -> None:
        """Choose a node for a claim as kube-scheduler does, or take the choice back."""
        patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
        self.scene.api.patch(self.path("persistentvolumeclaims", claim), patch)

    def bind(self, pod: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        self.scene.api.create(self.path("pods", pod) + "/binding", binding)

    def allow_scheduling(self, node: str, *, allowed: bool) -> None:
        """Whether Longhorn may place anything on this node."""
        self.scene.api.patch(longhorn_node(node), {"spec": {"allowScheduling": allowed}})

    # -- looking and waiting -------------------------------------------------------------------------------------

    def pods(self) -> list[Object]:
        return self.scene.view.all(PODS, self.namespace)

    def claims(self) -> list[Object]:
        return self.scene.view.all(CLAIMS, self.namespace)

    def bound(self) -> list[Object]:
        return [pod for pod in self.pods() if pod["spec"].get("nodeName")]

    def events(self, reason: str = "", about: str = "") -> list[Object]:
        """Of its present namespace; about an object of that name, if one is given."""
        found = self.scene.events(reason, self.namespace)
        return [event for event in found if about in ("", event["involvedObject"]["name"])]

    def verdict(self, pod: str) -> str:
        """Reason and message of what the scheduler wrote about the pod; empty when it wrote nothing, or bound it."""
        raw = self.scene.view.get(PODS, f"{self.namespace}/{pod}") or {}
        conditions = (raw.get("status") or {}).get("conditions") or []
        refusals = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
        return f"{refusals[0].get('reason')}: {refusals[0].get('message')}" if refusals else ""

    def ready(self) -> list[Object]:
        return [pod for pod in self.pods() if has_condition(pod, "Ready", "True")]

    def refused(self) -> list[Object]:
        return [
            pod
            for pod in self.pods()
            if has_condition(pod, "PodScheduled", "False") and not pod["spec"].get("nodeName")
        ]

    def chosen(self) -> list[Object]:
        """Claims for which a node was chosen."""
        return [claim for claim in self.claims() if SELECTED_NODE in (claim["metadata"].get("annotations") or {})]

    def wait_bound(self, count: int, timeout: float = 60.0) -> None:
        self._wait(lambda: len(self.bound()) >= count, f"{count} bound pods", timeout)

    def wait_ready(self, count: int, timeout: float = 60.0) -> None:
        self._wait(lambda: len(self.ready()) >= count, f"{count} ready pods", timeout)

    def wait_refused(self, count: int, timeout: float = 60.0) -> None:
        self._wait(lambda: len(self.refused()) >= count, f"{count} refused pods", timeout)

    def wait_chosen(self, count: int, timeout: float = 60.0) -> None:
        self._wait(lambda: len(self.chosen()) >= count, f"{count} claims with a chosen node", timeout)

    def wait_pod_ready(self, name: str, timeout: float = 60.0) -> None:
        self._wait(lambda: any(p["metadata"]["name"] == name for p in self.ready()), f"ready pod {name}", timeout)

    def wait_gone(self, name: str, timeout: float = 60.0) -> None:
        key = f"{self.namespace}/{name}"
        self._wait(lambda: self.scene.view.get(PODS, key) is None, f"end of pod {name}", timeout)

    def promised(self, controller: Controller) -> dict[str, int]:
        """What plans, holds and growth take for this cell's volumes, GiB by node. Sizes are whole."""
        found: dict[str, int] = {}
        for promise in controller.status()["promises"]:
            if promise["claim"].startswith(f"{self.namespace}/"):
                found[promise["node"]] = found.get(promise["node"], 0) + promise["size_bytes"] // GIB
        return dict(sorted(found.items()))

    def wait_promised(self, controller: Controller, expected: Mapping[str, int], timeout: float = 20.0) -> None:
        """Wait until exactly this is taken."""
        wait_equal(dict(expected), lambda: self.promised(controller), timeout)

    def chosen_nodes(self) -> dict[str, int]:
        """How many claims chose each node."""
        found: dict[str, int] = {}
        for claim in self.chosen():
            node = claim["metadata"]["annotations"][SELECTED_NODE]
            found[node] = found.get(node, 0) + 1
        return dict(sorted(found.items()))

    def filter(self, pod: str, nodes: Sequence[str] = ()) -> FilterAnswer:
        """Ask about one of its pods as kube-scheduler does, also again; of all its nodes unless some are named."""
        return self.scene.filter(self.scene.api.get(self.path("pods", pod)), nodes or self.nodes)

    def _wait(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        try:
            self.scene.view.wait_for(condition, f"{what} in {self.namespace}", timeout)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.describe()}") from None

    def describe(self) -> str:
        """Where its pods stand, for the message of a failed test."""
        refused = self.refused()
        why = [one["message"] for pod in refused[:1] for one in pod["status"]["conditions"] if "message" in one]
        return (
            f"{len(self.pods())} pods, {len(self.bound())} bound, {len(self.ready())} ready, {len(refused)} refused, "
            f"{len(self.claims())} claims, {len(self.chosen())} chosen {' '.join(why)}"
        )

    def clear(self, timeout: float = 120.0) -> None:
        """Delete its workloads and claims, and wait until Longhorn has given their bytes back."""
        api = self.scene.api
        for workload in api.list(self.path("statefulsets"))["items"]:
            self.delete("statefulsets", workload["metadata"]["name"], propagationPolicy="Background")
        api.delete(self.path("pods"), gracePeriodSeconds=0)
        api.delete(self.path("persistentvolumeclaims"))
        self._wait(lambda: not self.pods() and not self.claims(), "end of its pods and claims", timeout)
        self.drop_attachments()
        self._wait(lambda: not self._volumes(), "end of its volumes", timeout)

    def end(self) -> None:
        """Clear it, and take its nodes away: limits that are a share of all disks must not grow from test to test."""
        self.clear()
        api = self.scene.api
        if self._fillers:
            api.delete(f"/api/v1/namespaces/{self._fillers}/pods", gracePeriodSeconds=0)
        paths = [f"{CLASSES}/{name}" for name in self._classes]
        for node in self.nodes:
            paths += longhorn_node(node), f"{CSI_NODES}/{node}", f"{NODES}/{node}"
        for path in paths:
            with ignored_when_gone():
                api.delete(path)

    def drop_attachments(self) -> None:
        """Delete the attachments of volumes that no pod uses any more.

        kube-controller-manager does so itself, but where an attachment never came about only after two minutes.
        """
        nodes = {pod["spec"].get("nodeName") for pod in self.pods()}
        for attachment in self.scene.api.list(ATTACHMENTS)["items"]:
            node = attachment["spec"]["nodeName"]
            if node in self.nodes and node not in nodes:
                with ignored_when_gone():
                    self.scene.api.delete(f"{ATTACHMENTS}/{attachment['metadata']['name']}")

    def _volumes(self) -> list[Object]:
        """PersistentVolumes and Longhorn Volumes that were made for this cell."""
        view = self.scene.view
        pvs = [pv for pv in view.all(VOLUMES) if pv["spec"].get("storageClassName") == self.class_name]
        volumes = [v for v in view.all(LONGHORN_VOLUMES) if self.name in (v["spec"].get("nodeSelector") or ())]
        return pvs + volumes


@contextmanager
def cells(scene: Scene, prefix: str, **always: Any) -> Iterator[Callable[..., Cell]]:
    """A function that makes a cell, with these options and those it is called with; all of them go at the end, whatever
    was left behind."""
    made: list[Cell] = []

    def make(**options: Any) -> Cell:
        made.append(scene.cell(f"{prefix}{next(_numbers)}", **always, **options))
        return made[-1]

    yield make
    scene.longhorn.go_on()
    with ThreadPoolExecutor(max(1, len(made))) as pool:
        list(pool.map(Cell.end, made))


def longhorn_node(name: str) -> str:
    return f"/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/nodes/{name}"


def has_condition(obj: Object, kind: str, status: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(condition["type"] == kind and condition["status"] == status for condition in conditions)


def manifests() -> list[Object]:
    """What the documents tell users to apply."""
    text = "---\n".join((REPOSITORY / "docs" / "examples" / name).read_text() for name in MANIFESTS)
    return [document for document in yaml.safe_load_all(text) if document]


def apply_manifests(cluster: Cluster, changed: Callable[[str], str] = str) -> None:
    """What users apply, but for what a Deployment would run. `changed`: what becomes of the text."""
    wanted = [document for document in manifests() if document["kind"] not in NOT_APPLIED]
    done = cluster.kubectl("apply", "-f", "-", input=changed(yaml.safe_dump_all(wanted, width=10_000)))
    if done.returncode != 0:
        raise RuntimeError(f"the manifest was refused: {done.stderr}")


def install_product(cluster: Cluster, settings: Mapping[str, str] | None = None) -> None:
    """Apply the documented manifests, so that the product has the rights that users give it, and switch it on."""
    if cluster.api().get_or_none(f"/api/v1/namespaces/{NAMESPACE}") is None:
        cluster.create_namespace(NAMESPACE)
    apply_manifests(cluster)
    cluster.api().patch(CONFIG_MAP, {"data": {"scheduler-extender-enabled": "true", **(settings or {})}})


def _install(cluster: Cluster) -> None:
    install_product(cluster)
    make_certificates(cluster)


def make_certificates(cluster: Cluster) -> None:
    """As the first leader does, so that kube-scheduler's file can be written before one leads."""
    command = [*(sys.executable, "-m", "controller", "certs", "renew", "--chain", "extender", "--namespace", NAMESPACE)]
    command += ["--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"certs renew: {done.stderr}")
