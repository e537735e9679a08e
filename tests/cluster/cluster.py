"""A running control plane, and everything that a test needs of it."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from tests.cluster import history, nodes
from tests.cluster.build import Binaries, binaries, wanted_release
from tests.cluster.cache import state_root
from tests.cluster.client import ApiClient, Object
from tests.cluster.components import Layout
from tests.cluster.control import ControlError, call
from tests.cluster.kubeconfig import write_kubeconfig
from tests.cluster.launch import ADMIN, USERS, ClusterOptions, Launcher
from tests.cluster.pki import Authority
from tests.cluster.services import ServiceProxy
from tests.cluster.state import ClusterState, FoundCluster, inspect, own_record, write_state
from tests.cluster.supervisor import ClusterError, Supervisor, is_running, tidy_up, wait_for
from tests.waiting import wait_until

__all__ = ["Cluster", "ClusterError", "ClusterOptions", "wait_for"]

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
ADMIN_GROUPS = ("system:masters",)
WHOLE_SECONDS = 5.0
FIELDS_OF_TOKEN_REQUEST = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
_numbers = itertools.count(1)


def _silent(_: str) -> None:
    pass


class Cluster:
    """A running control plane: started by us, or found by `attach`.

    Threads: one at a time for starting and stopping; everything else from any. A cluster that `start` made ends with
    this process, however that ends, unless `keep` was called; as a context manager it ends with the block. One that
    was attached to is left alone by both.
    """

    def __init__(self, folder: Path, programs: Binaries, supervisor: Supervisor, log_level: int = 2) -> None:
        state = supervisor.state()
        self.state_dir = folder
        self.name = state.name
        self.api_url = state.api_url
        self.layout = Layout(folder)
        self.kubeconfig = self.layout.kubeconfig(ADMIN)
        self.ca_file = self.layout.pki / "ca.crt"
        self.history = folder / history.FILE
        self.services = ServiceProxy(folder)
        self._programs = programs
        self._supervisor = supervisor
        self._ends_with_block = False
        self._launcher = Launcher(supervisor, programs, log_level)

    # -- start and stop ------------------------------------------------------------------------------------------

    @classmethod
    def start(cls, options: ClusterOptions | None = None, *, progress: Callable[[str], None] = _silent) -> Self:
        """Start a cluster and return when it is ready to schedule. Takes about ten seconds, plus the first build.

        Raises ClusterError, with the last lines of the log that matters. Nothing is left running then, and the logs
        stay in the folder until the next start removes them.
        """
        options = options or ClusterOptions()
        name = options.name or f"test-{os.getpid()}-{next(_numbers)}"
        if NAME.fullmatch(name) is None:
            raise ValueError(f"name: {name!r} is not made of lower-case letters, digits and dashes (at most 40)")
        folder = (options.state_dir or state_root() / name).absolute()
        Layout(folder).check()
        release = wanted_release(options.release)
        programs = binaries(progress, release=release)
        tidy_up(folder, progress)
        folder.mkdir(parents=True, mode=0o700)
        write_state(folder, ClusterState(name, own_record(), release=release))
        supervisor = Supervisor(folder)
        try:
            supervisor.start_guard()
            Launcher(supervisor, programs, options.log_level).bring_up(options, progress)
        except BaseException:
            supervisor.end_everything(keep_files=True)
            raise
        cluster = cls(folder, programs, supervisor, options.log_level)
        cluster._ends_with_block = True
        return cluster

    @classmethod
    def attach(cls, name: str = "", *, state_dir: Path | None = None) -> Self:
        """A cluster that another process started. Raises ClusterError when there is none or it is not whole."""
        folder = (state_dir or state_root() / name).absolute()

        def look() -> FoundCluster:
            found = inspect(folder)
            if found is None:
                raise ClusterError(f"there is no cluster in {folder}")
            return found

        try:  # a process that is being ended stands on record for a moment more
            wait_until(lambda: look().is_whole, "whole cluster", WHOLE_SECONDS)
        except TimeoutError:
            raise ClusterError(look().describe()) from None
        found = look()
        return cls(folder, binaries(release=found.state.release), Supervisor(folder))

    def stop(self, *, keep_files: bool = False) -> None:
        """End every process of the cluster and remove its folder. May be called twice."""
        self._supervisor.end_everything(keep_files=keep_files)

    def keep(self) -> None:
        """Let the cluster live on when this process ends; `python -m tests.cluster down` ends it."""
        self._supervisor.keep()
        self._ends_with_block = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ends_with_block:
            self.stop()

    # -- access --------------------------------------------------------------------------------------------------

    def api(self, user: str = "admin", groups: Sequence[str] | None = None) -> ApiClient:
        """A new client for `user`, safe to share among threads.

        `admin`, `kube-scheduler` and `kube-controller-manager` are what they say; any other user has just `groups`.
        """
        if groups is None and user in USERS:
            return ApiClient.from_kubeconfig(self.layout.kubeconfig(user))
        path = self.layout.kubeconfig(f"user-{next(_numbers)}")
        return ApiClient.from_kubeconfig(self.write_kubeconfig(path, user=user, groups=groups or ()))

    def write_kubeconfig(self, path: Path, *, user: str = "admin", groups: Sequence[str] = ADMIN_GROUPS) -> Path:
        """Sign a client certificate for any user and groups, and write a kubeconfig around it."""
        authority = Authority.load(self.layout.pki, "ca")
        return self._launcher.write_kubeconfig(path, user, authority.client(user, groups))

    def service_account_kubeconfig(self, namespace: str, name: str, path: Path, *, hours: int = 24) -> Path:
        """A kubeconfig with a token of that ServiceAccount, which must exist."""
        answer = self.api().create(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {**FIELDS_OF_TOKEN_REQUEST, "spec": {"expirationSeconds": hours * 3600}},
        )
        token = str(answer["status"]["token"])
        return write_kubeconfig(path, self.api_url, self.ca_file.read_bytes(), user=f"{namespace}-{name}", token=token)

    def kubectl(self, *args: str, input: str | None = None) -> subprocess.CompletedProcess[str]:  # noqa: A002
        """Run kubectl as admin; its exit code is the caller's to look at."""
        return subprocess.run(
            [*self._programs.command("kubectl"), *args],
            input=input,
            text=True,
            capture_output=True,
            check=False,
            env={
                **os.environ,
                "KUBECONFIG": str(self.kubeconfig),
                "KUBECACHEDIR": str(self.state_dir / "kubectl-cache"),
            },
        )

    def add_node(self, name: str, cpu: str = "16", memory: str = "64Gi", **options: Any) -> Object:
        """A ready v1 Node; see `nodes.node_object` for labels, taints and more."""
        return nodes.add_node(self.api(), name, cpu=cpu, memory=memory, **options)

    def delete_node(self, name: str) -> None:
        self.api().delete(f"/api/v1/nodes/{name}")

    def create_namespace(self, name: str) -> None:
        """Create a namespace and wait for its default ServiceAccount, without which pods are refused."""
        api = self.api()
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_for(lambda: api.get_or_none(account) is not None, f"the default ServiceAccount of {name}", 30.0)

    def pids(self) -> dict[str, int]:
        """Process name to pid, of every process that belongs to the cluster."""
        return {record.name: record.pid for record in self._supervisor.state().processes}

    # -- history -------------------------------------------------------------------------------------------------

    def history_caught_up(self, timeout: float = 30.0) -> int:
        """Return once everything that the API server had done before this call is in `history`. Takes 1 to 2 s.

        The answer is the version up to which the file is whole; lines after it may still be missing some kinds. Raises
        TimeoutError. What is proven is the order of each kind's own watch, by a bookmark past a fresh list.
        """
        try:
            answer = call(self.state_dir / history.SOCKET, {"op": "catch_up", "timeout": timeout}, timeout + 5)
        except ControlError as error:
            raise TimeoutError(str(error)) from error
        return int(answer["version"])

    def history_covers(self, *paths: str, timeout: float = 30.0) -> None:
        """Wait until these collections (API paths) are recorded; custom kinds begin when their CRD is established."""
        socket = self.state_dir / history.SOCKET
        wait_for(lambda: set(paths) <= set(call(socket, {"op": "status"})["started"]), f"a history of {paths}", timeout)

    # -- schedulers ----------------------------------------------------------------------------------------------

    def start_scheduler(
        self,
        config: dict[str, Any] | str | None = None,
        *,
        name: str = "kube-scheduler",
        env: dict[str, str] | None = None,
        flags: dict[str, str] | None = None,
    ) -> None:
        """Start a kube-scheduler and return when its stores are filled and it schedules.

        `config` is a whole KubeSchedulerConfiguration; kubeconfig and leaderElection are filled in when absent. Text is
        taken as the file, as it is. `flags`, without dashes, win over those that the cluster itself sets. Raises
        ClusterError when it ends or does not become ready, and ValueError when one of that name runs already.
        """
        if is_running(self._supervisor.state().process(name)):
            raise ValueError(f"name: a process {name!r} runs already")
        wait = self._launcher.start_scheduler(name, config, self.services.dns, env or {}, flags)
        try:
            wait()
        except ClusterError:
            self.stop_scheduler(name, kill=True)
            raise

    def stop_scheduler(self, name: str = "kube-scheduler", *, kill: bool = False) -> None:
        """End a scheduler, politely or with SIGKILL. Nothing happens when none of that name runs."""
        record = self._supervisor.state().process(name)
        if record is not None:
            self._supervisor.end(record, kill=kill)

    def restart_scheduler(
        self,
        config: dict[str, Any] | None = None,
        *,
        name: str = "kube-scheduler",
        kill: bool = False,
        env: dict[str, str] | None = None,
    ) -> None:
        """Stop and start; without a `config` it keeps the one that it had."""
        if config is None:
            config = yaml.safe_load((self.state_dir / f"{name}.yaml").read_text())
        self.stop_scheduler(name, kill=kill)
        self.start_scheduler(config, name=name, env=env)

    def scheduler_metrics(self, name: str = "kube-scheduler") -> str:
        """Its /metrics page as text."""
        return self._launcher.page(self._supervisor.state().ports[name], "/metrics")

    def scheduler_log(self, name: str = "kube-scheduler") -> Path:
        return self.layout.log(name)
