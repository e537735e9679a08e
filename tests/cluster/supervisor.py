"""Starts the processes of one cluster, waits for them with an eye on their death, and ends them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from tests.cluster import guard
from tests.cluster.cache import REPOSITORY
from tests.cluster.client import ApiError
from tests.cluster.components import Layout
from tests.cluster.control import ControlError
from tests.cluster.process import Record, is_alive, send, spawn, stop_all, wait_ended
from tests.cluster.state import MARK, ClusterState, end, end_processes, find_all, inspect, read_state, update_state
from tests.ports import free_port
from tests.waiting import wait_until

READY_SECONDS = 90.0
LOOK_SECONDS = 0.03
PORT_TRIES = 3
PORT_TAKEN = "address already in use"
LOG_LINES = 15
# Go's collector runs at every doubling of the heap; heaps this small leave it little else to do on two cores. Memory
# for time, for all of the control plane alike; what the environment says goes before it.
LESS_COLLECTING = {"GOGC": "400"}

Progress = Callable[[str], None]
Check = Callable[[], bool]


class ClusterError(Exception):
    """The cluster did not come up, or one of its processes ended by itself."""


class PortTakenError(ClusterError):
    """Somebody else got the port between our look and the process's start."""


class Supervisor:
    """The processes of the cluster in `folder`, ours or those that an earlier process recorded there.

    Threads: one at a time. Every process is recorded right after its start, so whoever comes later can end it.
    """

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder)
        self._folder = folder
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._guard: subprocess.Popen[bytes] | None = None

    def state(self) -> ClusterState:
        state = read_state(self._folder)
        if state is None:
            raise ClusterError(f"there is no cluster in {self._folder} any more")
        return state

    def spawn(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> Record:
        """Start and record one process; `env` comes on top of ours."""
        whole = {**LESS_COLLECTING, **os.environ, **(env or {}), MARK: str(self._folder)}
        record, child = spawn(name, command, self.layout.log(name), env=whole, cwd=self._folder)
        self._children[record.pid] = child
        update_state(self._folder, lambda state: state.with_process(record))
        return record

    def spawn_module(self, name: str, module: str, *args: str) -> Record:
        """Start one of this package's own programs."""
        path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
        return self.spawn(name, [sys.executable, "-m", module, *args], {"PYTHONPATH": path})

    def start_serving(
        self,
        name: str,
        command: Callable[[int], list[str]],
        is_ready: Callable[[int], bool],
        env: Mapping[str, str] | None = None,
    ) -> Callable[[], None]:
        """Start a process that serves on a free port; the returned function waits until `is_ready(port)`.

        Both begin again, with another port, when somebody else takes the port in between. Raises ClusterError.
        """

        def launch() -> tuple[Record, int]:
            port = free_port()
            update_state(self._folder, lambda state: replace(state, ports={**state.ports, name: port}))
            return self.spawn(name, command(port), env), port

        first = launch()

        def wait(started: tuple[Record, int] = first, tries: int = PORT_TRIES) -> None:
            record, port = started
            try:
                self.wait_ready(record, lambda: is_ready(port))
            except PortTakenError:
                if tries == 1:
                    raise
                wait(launch(), tries - 1)

        return wait

    def wait_ready(self, record: Record, is_ready: Check, timeout: float = READY_SECONDS) -> None:
        """Wait for a condition on a living process. Raises ClusterError with the end of its log when it dies first."""
        deadline = time.monotonic() + timeout
        while not _holds(is_ready):
            if wait_ended(record, LOOK_SECONDS):
                text = tail(Path(record.log))
                kind = PortTakenError if PORT_TAKEN in text else ClusterError
                raise kind(f"{record.name} ended while it was starting; the end of {record.log}:\n{text}")
            if time.monotonic() > deadline:
                text = tail(Path(record.log))
                raise ClusterError(
                    f"{record.name} is not ready after {timeout:.0f} s; the end of {record.log}:\n{text}"
                )

    def end(self, record: Record, *, kill: bool = False) -> None:
        """End one process and forget it."""
        if kill:
            send(record, signal.SIGKILL)
            wait_ended(record, 10.0)
        else:
            stop_all([record], timeout=10.0)
        self._reap(record)
        update_state(self._folder, lambda state: state.without_process(record.name))

    def exit_code(self, record: Record, timeout: float) -> int:
        """Of a process that we started, when it has ended by itself. Raises TimeoutExpired."""
        return self._children[record.pid].wait(timeout)

    def end_everything(self, *, keep_files: bool) -> None:
        """End all recorded processes and remove the folder. May be called twice."""
        state = read_state(self._folder)
        records = state.processes if state is not None else ()
        end_processes(records)
        for record in records:
            self._reap(record)
        self._release_guard(b"")
        if not keep_files:
            shutil.rmtree(self._folder, ignore_errors=True)

    def start_guard(self) -> None:
        """From here on the cluster ends with this process, unless `keep` is called."""
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with self.layout.log("guard").open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-m", guard.__name__, str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
            )

    def keep(self) -> None:
        update_state(self._folder, lambda state: replace(state, kept=True))
        self._release_guard(guard.KEEP)

    def _release_guard(self, word: bytes) -> None:
        if self._guard is None:
            return
        pipe: IO[bytes] | None = self._guard.stdin
        assert pipe is not None
        pipe.write(word)
        pipe.close()
        self._guard.wait()
        self._guard = None

    def _reap(self, record: Record) -> None:
        child = self._children.pop(record.pid, None)
        if child is not None:
            child.wait()


def tidy_up(folder: Path, progress: Progress) -> None:
    """Name what earlier clusters left, remove what is dead, and make sure that `folder` is free.

    Raises ClusterError when a cluster, or part of one, still runs in `folder`, or when something else is there.
    """
    mine = inspect(folder)
    if mine is not None:
        if mine.condition != "dead":
            raise ClusterError(
                f"there is a cluster already: {mine.describe()}; `down --name {mine.state.name}` ends it"
            )
        progress(f"removing what an earlier cluster left: {mine.describe()}")
        end(folder)
    elif folder.exists() and any(folder.iterdir()):
        raise ClusterError(f"{folder} is not empty and holds no cluster")
    elif folder.exists():
        folder.rmdir()
    if not folder.parent.is_dir():
        return
    for found in find_all(folder.parent):
        if found.condition == "dead" and not found.state.kept:
            progress(f"removing what an earlier test left: {found.describe()}")
            end(found.folder)
        elif found.condition not in ("running", "in use"):
            progress(f"left by an earlier run: {found.describe()}; `down --name {found.state.name}` removes it")


def wait_for(check: Check, what: str, timeout: float) -> None:
    """Wait until `check` is true; API and control errors count as not yet. Raises TimeoutError that names `what`."""
    wait_until(lambda: _holds(check), what, timeout)


def tail(path: Path, lines: int = LOG_LINES) -> str:
    """The last lines of a log, without the list of all flags that every component begins with."""
    try:
        text = path.read_text(errors="replace")
        return "\n".join([line for line in text.splitlines() if "] FLAG: --" not in line][-lines:])
    except FileNotFoundError:
        return "(no log)"


def _holds(check: Check) -> bool:
    try:
        return check()
    except (ApiError, ControlError):
        return False


def is_running(record: Record | None) -> bool:
    return record is not None and is_alive(record)
