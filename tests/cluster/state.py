"""What a cluster consists of, in a file beside its logs, so that a later process can find, name and end it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from tests.cluster.cache import locked
from tests.cluster.process import Record, find_marked, is_alive, start_ticks, stop_all

FILE, LOCK = "state.json", "state.lock"
MARK = "TEST_CLUSTER_STATE"  # in the environment of every process of a cluster; its value is the state folder
ENDED_LAST = ("kube-apiserver", "etcd")


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A running cluster, or what is left of one."""

    name: str
    owner: Record  # who started it; a cluster that is not `kept` ends with its owner
    kept: bool = False  # stays until somebody says `down`
    release: str = ""  # the minor version of Kubernetes that was asked for by name
    api_url: str = ""
    ports: dict[str, int] = field(default_factory=dict)  # process name -> its HTTPS port on 127.0.0.1
    processes: tuple[Record, ...] = ()

    def process(self, name: str) -> Record | None:
        return next((record for record in self.processes if record.name == name), None)

    def with_process(self, record: Record) -> ClusterState:
        others = tuple(other for other in self.processes if other.name != record.name)
        return replace(self, processes=(*others, record))

    def without_process(self, name: str) -> ClusterState:
        return replace(self, processes=tuple(record for record in self.processes if record.name != name))


def own_record() -> Record:
    return Record("owner", os.getpid(), start_ticks(os.getpid()) or 0, "")


def read_state(folder: Path) -> ClusterState | None:
    """None when there is no cluster in `folder`. Raises ValueError that names a file that cannot be read as one."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=ClusterState)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise ValueError(f"{folder / FILE}: {error}") from error


def write_state(folder: Path, state: ClusterState) -> None:
    fresh = folder / f"{FILE}.{os.getpid()}"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    fresh.replace(folder / FILE)


def update_state(folder: Path, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
    """Read, change and write in one step among processes."""
    with locked(folder / LOCK, lambda: None):
        state = read_state(folder)
        if state is None:
            raise FileNotFoundError(f"{folder / FILE}: the cluster is gone")
        state = change(state)
        write_state(folder, state)
        return state


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """A state folder and how much of its cluster still lives."""

    folder: Path
    state: ClusterState
    alive: tuple[Record, ...]
    strays: tuple[int, ...]  # pids that carry this cluster's mark and stand in no record
    owner_alive: bool

    @property
    def is_whole(self) -> bool:
        return len(self.alive) == len(self.state.processes)

    @property
    def condition(self) -> str:
        if self.state.kept:
            if not self.alive:
                return "dead"
            return "running" if self.is_whole else "damaged"
        if self.owner_alive:
            return "in use"
        return "orphaned" if self.alive or self.strays else "dead"

    def describe(self) -> str:
        text = f"{self.state.name}: {self.condition}, {self.folder}"
        if self.condition == "in use":
            text += f", belongs to pid {self.state.owner.pid}"
        gone = [record.name for record in self.state.processes if record not in self.alive]
        if self.alive:
            text += "; running: " + ", ".join(f"{record.name} (pid {record.pid})" for record in self.alive)
        if gone and self.condition != "dead":
            text += "; ended: " + ", ".join(gone)
        if self.strays:
            text += "; not in its record: pid " + ", ".join(map(str, self.strays))
        return text


def inspect(folder: Path) -> FoundCluster | None:
    state = read_state(folder)
    if state is None:
        return None
    alive = tuple(record for record in state.processes if is_alive(record))
    known = {record.pid for record in state.processes} | {os.getpid()}
    owner_alive = is_alive(state.owner)
    strays = () if owner_alive else tuple(pid for pid in find_marked(MARK, str(folder)) if pid not in known)
    return FoundCluster(folder, state, alive, strays, owner_alive)


def find_all(root: Path) -> Iterator[FoundCluster]:
    """Every cluster below `root`, by name."""
    for folder in sorted(root.iterdir()):
        found = inspect(folder) if folder.is_dir() else None
        if found is not None:
            yield found


def end_processes(records: Iterable[Record]) -> None:
    """End a cluster's processes, the API server and its store last."""
    records = list(records)
    stop_all([record for record in records if record.name not in ENDED_LAST], timeout=3.0)
    # Nothing of what these hold is needed any more, and a polite end waits for every open watch.
    stop_all([record for record in records if record.name in ENDED_LAST], timeout=0.0)


def end(folder: Path) -> list[Record]:
    """End exactly the processes that the state in `folder` records and remove the folder. Returns what was running."""
    state = read_state(folder)
    if state is None:
        return []
    running = [record for record in state.processes if is_alive(record)]
    end_processes(running)
    shutil.rmtree(folder, ignore_errors=True)
    return running
