"""An API server that is away for five minutes: no process of ours ends, and none gives a kubelet cause to restart it.

The minutes are what is promised, and no setting shortens them. Away is tried in two ways: the server hangs, so that
calls run into their timeouts, and it is gone, so that connections are refused.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.process import Record
from tests.cluster.supervisor import Supervisor
from tests.e2e.harness import Scene
from tests.e2e.programs import OwnProgram
from tests.e2e.webhooks import Webhook
from tests.longhorn.options import LonghornOptions
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

AWAY_SECONDS = 300.0
BACK_SECONDS = 60.0  # a round of the longest back-off, and a term that begins
SERVER = "kube-apiserver"


@contextmanager
def hanging(cluster: Cluster) -> Iterator[None]:
    pid = cluster.pids()[SERVER]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def gone(cluster: Cluster) -> Iterator[None]:
    pid = cluster.pids()[SERVER]
    command = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    supervisor = Supervisor(cluster.state_dir)
    record = next(entry for entry in supervisor.state().processes if entry.name == SERVER)
    supervisor.end(record, kill=True)
    yield
    supervisor.spawn(SERVER, command)


@pytest.mark.parametrize("away", [hanging, gone], ids=["hanging", "gone"])
def test_nothing_is_restarted_and_everything_goes_on(away: Callable[[Cluster], AbstractContextManager[None]]) -> None:
    with Scene.start(LonghornOptions(), run_scheduler=False) as scene:
        scene.longhorn.pause()
        programs: list[OwnProgram] = [scene.start_controller(), scene.launch_controller(), Webhook(scene.cluster)]
        wait_until(lambda: all(is_well(program, "/readyz") for program in programs), "all of them ready", BACK_SECONDS)
        workers = {program.name: children(program.record) for program in programs}
        failures: list[str] = []

        def probed() -> bool:
            failures.extend(program.name for program in programs if not is_well(program, "/healthz"))
            return time.monotonic() >= end

        with away(scene.cluster):
            end = time.monotonic() + AWAY_SECONDS
            wait_until(probed, "end of the five minutes", AWAY_SECONDS + BACK_SECONDS)
            assert not any(leads(program) for program in programs[:2]), "nobody leads longer than its Lease may last"

        wait_until(lambda: any(leads(program) for program in programs[:2]), "leader", BACK_SECONDS)
        wait_until(lambda: is_well(programs[2], "/readyz"), "webhook that is ready", BACK_SECONDS)
        assert [] == failures
        assert workers == {program.name: children(program.record) for program in programs}


def is_well(program: OwnProgram, path: str) -> bool:
    try:
        return program.page(path).startswith("ok")
    except OSError:
        return False


def leads(program: OwnProgram) -> bool:
    return bool(program.status()["is_leading"])


def children(record: Record) -> str:
    """The process's workers: gunicorn would put another one in the place of one that ended."""
    return Path(f"/proc/{record.pid}/task/{record.pid}/children").read_text()
