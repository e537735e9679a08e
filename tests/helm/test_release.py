"""The product as Helm installs it: Deployments' pods that kube-scheduler binds and a kubelet's stand-in starts, the
real kube-scheduler wired by the command that the notes print, and upgrades while pods come and go."""

from __future__ import annotations

import secrets
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.cache import REPOSITORY
from tests.cluster.client import ApiError
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e import scheduling, workloads
from tests.e2e.conftest import DELAYS
from tests.e2e.harness import GIB, Cell, Scene
from tests.helm.chart import NAME, NAMESPACE, Helm, Values, merged
from tests.helm.kubelet import ReleaseKubelet
from tests.longhorn.options import LonghornOptions
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

HOSTS: Final = {"hosts": "the-product"}
DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
COMMITS_BACK: Final = 5  # from which it is upgraded
READY_SECONDS: Final = 120.0
EACH_SECONDS: Final = 0.5  # a pod with a volume
MOST_DELAYED_SECONDS: Final = 2.0  # beyond what it takes at other times
BEFORE_PODS: Final = 20


def values(tag: str) -> Values:
    ours = {"nodeSelector": HOSTS}
    return {
        "image": {"registry": "REGISTRY", "tag": tag},
        "settings": {"enabled": True, "opt-in": "always"},
        "controller": ours,
        "webhook": ours,
    }


class Installed:
    """A scene whose product is a release. `tag`: of the image that it runs first."""

    def __init__(self, cluster: Cluster, helm: Helm, sources: dict[str, Path], tag: str, folder: Path) -> None:
        self._cluster, self._helm, self._sources, self._tag = cluster, helm, sources, tag
        self.kubelet = ReleaseKubelet(cluster, sources, folder)
        options = LonghornOptions(delays=DELAYS, retry_seconds=3.0, runs_own_pods=False)
        self.scene = Scene(cluster, options, lambda _: self._install(tag))

    def __enter__(self) -> Installed:
        """Once everything runs, and kube-scheduler asks it."""
        self.kubelet.__enter__()
        self.wait_rolled_out(self._tag)
        self._cluster.restart_scheduler(self.scene.extender_config())
        return self

    def __exit__(self, *_: object) -> None:
        self.kubelet.__exit__()
        self.scene.view.close()

    def _install(self, tag: str) -> None:
        for number in (1, 2, 3):
            self._cluster.add_node(f"host-{number}", labels=HOSTS)
        self.helm("install", tag)

    def helm(self, command: str, tag: str, **more: Any) -> None:
        """`install` or `upgrade` with the chart of that image's code."""
        chart = self._sources[tag] / "helm" / NAME
        self._run(command, NAME, str(chart), values=merged(values(tag), more))

    def roll_back(self) -> None:
        self._run("rollback", NAME, "1")

    def _run(self, *words: str, **options: Any) -> None:
        access = ("--kubeconfig", str(self._cluster.kubeconfig), "--namespace", NAMESPACE)
        done = self._helm.run(*words, *access, **options)
        assert 0 == done.returncode, done.stdout + done.stderr

    def wait_rolled_out(self, tag: str) -> None:
        """Until every pod is ready and has that image, and those before them are gone."""

        def is_done() -> bool:
            assert not self.kubelet.failure, self.kubelet.failure
            return all(map(rolled_out, self.scene.api.list(DEPLOYMENTS)["items"])) and self._tags() == {tag}

        wait_until(is_done, "Deployments that are rolled out", READY_SECONDS)

    def _tags(self) -> set[str]:
        pods = self.scene.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods}


def rolled_out(deployment: dict[str, Any]) -> bool:
    status, replicas = deployment.get("status", {}), deployment["spec"]["replicas"]
    numbers = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and numbers == [replicas] * 3


@pytest.fixture
def bare() -> Iterator[Cluster]:
    """Nothing but the control plane, with a scheduler that nobody has wired."""
    wanted = ClusterOptions(name=f"release-{secrets.token_hex(4)}", start_scheduler=False)
    with Cluster.start(wanted) as cluster:
        cluster.start_scheduler(scheduling.stock())
        yield cluster


@pytest.mark.long
def test_the_first_goal_through_the_release(bare: Cluster, helm: Helm, tmp_path: Path) -> None:
    """Sixteen pods of 100 GiB, which opt in by themselves, fill four disks of 400 GiB exactly."""
    with Installed(bare, helm, {"now": REPOSITORY}, "now", tmp_path) as installed:
        cell = installed.scene.cell("goal")
        cell.stateful_set(replicas=16, opted_in=False)
        cell.wait_ready(16, 120)
        report = installed.scene.judge(cell)
    assert [] == report.complaints()
    assert dict.fromkeys(cell.nodes, 4) == report.pods_per_node()
    assert dict.fromkeys(cell.nodes, 400 * GIB) == report.peaks()


def earlier_code(folder: Path) -> Path:
    """The repository as it was so many commits ago."""
    git = ["git", "-C", str(REPOSITORY)]
    words = ["rev-list", "-1", f"--skip={COMMITS_BACK}", "HEAD"]
    commit = subprocess.run([*git, *words], capture_output=True, text=True, check=False).stdout.strip()
    if not commit:
        pytest.skip(f"the clone has fewer than {COMMITS_BACK} commits")
    folder.mkdir()
    packed = subprocess.run([*git, "archive", commit], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


class Comers:
    """Pods with a small volume each, one after the other, and beside them pods that are only tried (dry runs). Threads:
    two of its own. `seconds`: from being made to being bound, by name; `missed`: what the webhook did not change."""

    def __init__(self, cell: Cell) -> None:
        self._cell, self._api, self._stop = cell, cell.scene.cluster.api(), threading.Event()
        self._threads = [threading.Thread(target=run, name="comers") for run in (self._come, self._try)]
        self._made: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        self.missed: list[str] = []
        self.tried = 0

    def __enter__(self) -> Comers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        self._cell.wait_bound(len(self._made), 60)
        self._look()

    def _come(self) -> None:
        while not self._stop.wait(0.02):
            if time.monotonic() - max(self._made.values(), default=0.0) >= EACH_SECONDS:
                name = f"comer-{len(self._made)}"
                self._cell.claim(name, 1)
                self._cell.pod(name, name, opted_in=False)
                self._made[name] = time.monotonic()
            self._look()

    def _look(self) -> None:
        for pod in self._cell.bound():
            name = pod["metadata"]["name"]
            if name in self._made:
                self.seconds.setdefault(name, time.monotonic() - self._made[name])

    def _try(self) -> None:
        while not self._stop.wait(0.05):
            pod = workloads.pod("tried", "tried", opted_in=False)
            try:
                made = self._api.create(self._cell.path("pods"), pod, dryRun="All")
                asked = (made["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
                problem = "" if scheduling.RESOURCE in asked else "came out as it was"
            except ApiError as error:
                problem = str(error)
            self.tried += 1
            if problem:
                self.missed.append(problem)

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.seconds) >= count, f"{count} pods that came and were bound", READY_SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("version", [3, 4])
def test_an_upgrade_and_a_rollback_delay_nobody(
    bare: Cluster, helm: Helm, helm4: Helm, tmp_path: Path, version: int
) -> None:
    """From an earlier chart with its code to this one and back, while pods come and go."""
    helm = helm if version == 3 else helm4
    sources = {"now": REPOSITORY, "earlier": earlier_code(tmp_path / "earlier")}
    with Installed(bare, helm, sources, "earlier", tmp_path) as installed:
        cell = installed.scene.cell("load", fillers=0)
        with Comers(cell) as comers:
            comers.wait_for(BEFORE_PODS)
            usual = list(comers.seconds.values())
            installed.helm("upgrade", "now")
            installed.wait_rolled_out("now")
            comers.wait_for(len(comers.seconds) + BEFORE_PODS)
            installed.roll_back()
            installed.wait_rolled_out("earlier")
            comers.wait_for(len(comers.seconds) + BEFORE_PODS)
        report = installed.scene.judge(cell)
    longest = max(comers.seconds.values())
    print(
        f"{comers.tried} admissions, {len(comers.missed)} failed; {len(comers.seconds)} pods bound, before the upgrade "
        f"after {statistics.median(usual):.2f} s (median, at most {max(usual):.2f}), later after at most {longest:.2f}"
    )
    print(
        "slow: " + ", ".join(f"{name} {took:.2f}" for name, took in comers.seconds.items() if took > max(usual) + 0.2)
    )
    assert [] == comers.missed
    assert [] == report.complaints()
    assert longest <= max(usual) + MOST_DELAYED_SECONDS
