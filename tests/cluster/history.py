"""Record what the API server did, object by object, independently of anyone's memory.

`python -m tests.cluster.history STATE_FOLDER KUBECONFIG` watches a set of kinds from the cluster's start and appends
JSON lines to `history.jsonl`:

    {"rv": 812, "type": "MODIFIED", "kind": "Pod", "group": "", "at": 1764050000.123, "object": {...}}

Each kind's lines stand in the API server's order; `read_history` merges all kinds by `rv`, which gives the total order.
Types besides ADDED, MODIFIED and DELETED: LISTED (there already when watching began), START (from `rv` on this kind is
covered; no object) and GAP (events may be missing before `rv`; a checker has to refuse such a history).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.cluster.client import ApiClient, ApiError, Object, Stop
from tests.cluster.control import ControlServer
from tests.cluster.watch import Reflector

logger = logging.getLogger("history")

FILE, SOCKET = "history.jsonl", "history.sock"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "admissionregistration.k8s.io"
RETRY_SECONDS = 0.05
# A short watch sends a bookmark about two seconds before its end.
PROBE_SECONDS = 3


@dataclass(frozen=True, slots=True)
class RecordedKind:
    group: str
    version: str
    plural: str
    kind: str

    @property
    def path(self) -> str:
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{base}/{self.plural}"


CORE_KINDS: Final = (
    RecordedKind("", "v1", "pods", "Pod"),
    RecordedKind("", "v1", "nodes", "Node"),
    RecordedKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    RecordedKind("", "v1", "persistentvolumes", "PersistentVolume"),
    RecordedKind("", "v1", "configmaps", "ConfigMap"),
    RecordedKind("", "v1", "serviceaccounts", "ServiceAccount"),
    RecordedKind("storage.k8s.io", "v1", "storageclasses", "StorageClass"),
    RecordedKind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
    RecordedKind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment"),
    RecordedKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    RecordedKind("coordination.k8s.io", "v1", "leases", "Lease"),
    RecordedKind(ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    RecordedKind(ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
)
CUSTOM_GROUPS: Final = ("longhorn.io", "scheduling.longhorn.io")


class Writer:
    """Appends whole lines. Threads: any; a line is in the file when the call returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = threading.Lock()

    def write(self, kind: RecordedKind, version: int, event: str, obj: Object | None) -> None:
        line = {"rv": version, "type": event, "kind": kind.kind, "group": kind.group, "at": round(time.time(), 6)}
        text = msgspec.json.encode({**line, "object": obj}) + b"\n"
        with self._lock:
            os.write(self._descriptor, text)


class HistoryFollower(Reflector):
    """Writes every change of one kind instead of telling it, without loss as long as the API server remembers.

    Threads: its own; `catch_up` may be called from any other.
    """

    def __init__(self, api: ApiClient, kind: RecordedKind, writer: Writer) -> None:
        self.kind, self._writer = kind, writer
        self._interrupt = Stop()  # ends the watch in progress; the next one goes on where it ended
        self._moved = threading.Condition()  # guards the next two
        self._version = 0  # everything up to here is written
        self._probes = 0  # how many catch_up calls wait for a bookmark
        self.started = threading.Event()
        super().__init__(api, kind.path, lambda *_: None, name=f"history-{kind.plural}")

    def stop(self, timeout: float = 5.0) -> None:
        """Write nothing more; returns when the thread has ended."""
        self._stop.set()
        self._interrupt.set()
        super().stop(timeout)

    def catch_up(self, deadline: float) -> int:
        """Return once everything that the API server had done before this call is written; up to which version that is.

        Raises TimeoutError.
        """
        if not self.started.wait(max(0.0, deadline - time.monotonic())):
            raise TimeoutError(f"{self.kind.path}: not listed yet")
        # A list brings the API server's cache up to its present version; a bookmark of a watch, which comes in the
        # watch's own order, then proves that nothing older is still on its way.
        target = self._present_version(deadline)
        with self._moved:
            self._probes += 1
            self._interrupt.set()
            try:
                if not self._moved.wait_for(lambda: self._version >= target, max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"{self.kind.path}: at version {self._version}, waiting for {target}")
            finally:
                self._probes -= 1
        return target

    def _present_version(self, deadline: float) -> int:
        """Of many kinds that are asked for at once, each over a connection of its own, one may find none at first."""
        while True:
            try:
                return int(self._api.list(self.kind.path, limit=1)["metadata"]["resourceVersion"])
            except ApiError as error:
                if not error.unavailable or self._stop.is_set() or time.monotonic() >= deadline:
                    raise
                self._stop.wait(RETRY_SECONDS)

    def _relist(self) -> None:
        answer = self._api.list(self.kind.path)
        version = int(answer["metadata"]["resourceVersion"])
        self._writer.write(self.kind, version, "GAP" if self.started.is_set() else "START", None)
        for item in answer["items"]:
            self._writer.write(self.kind, _version_of(item), "LISTED", item)
        self._move(version)
        self.started.set()

    def _follow(self) -> None:
        """One watch, from where the last ended. Raises ApiError only when that place is lost."""
        with self._moved:
            self._interrupt.clear()
            if self._stop.is_set():
                return
            timeout, version = (PROBE_SECONDS if self._probes else None), str(self._version)
        try:
            for event, obj in self._api.watch(self.kind.path, version, timeout, self._interrupt):
                if event != "BOOKMARK":
                    self._writer.write(self.kind, _version_of(obj), event, obj)
                self._move(_version_of(obj))
        except ApiError as error:
            if not error.unavailable:
                logger.warning("%s: %s", self.kind.path, error)
                raise
            self._stop.wait(RETRY_SECONDS)

    def _move(self, version: int) -> None:
        with self._moved:
            self._version = version
            self._moved.notify_all()


class Recorder:
    """One follower a kind; those of custom kinds begin when their definitions are established."""

    def __init__(self, api: ApiClient, writer: Writer, kinds: tuple[RecordedKind, ...]) -> None:
        self._api, self._writer = api, writer
        self._lock = threading.Lock()  # guards _followers
        self._followers = {kind: HistoryFollower(api, kind, writer) for kind in kinds}
        self._definitions = Reflector(api, CRDS, self._on_definition)

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            followers = list(self._followers.values())
        match request:
            case {"op": "status"}:
                started = [follower.kind.path for follower in followers if follower.started.is_set()]
                return {
                    "ready": self._definitions.synced.is_set() and len(started) == len(followers),
                    "started": started,
                }
            case {"op": "catch_up", "timeout": float() | int() as timeout}:
                return {"version": self._catch_up(followers, time.monotonic() + timeout)}
        raise ValueError(f"not a request: {request}")

    def _catch_up(self, followers: list[HistoryFollower], deadline: float) -> int:
        """Up to which version everything is written, of every kind."""
        with ThreadPoolExecutor(len(followers)) as pool:
            return min(pool.map(HistoryFollower.catch_up, followers, repeat(deadline)))

    def _on_definition(self, event: str, definition: Object) -> None:
        spec = definition["spec"]
        conditions = definition.get("status", {}).get("conditions") or []
        established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
        if event == "DELETED" or not established or spec["group"] not in CUSTOM_GROUPS:
            return
        version = next(version["name"] for version in spec["versions"] if version["storage"])
        kind = RecordedKind(spec["group"], version, spec["names"]["plural"], spec["names"]["kind"])
        with self._lock:
            if kind not in self._followers:
                self._followers[kind] = HistoryFollower(self._api, kind, self._writer)


def read_history(path: Path) -> Iterator[dict[str, Any]]:
    """The recorded lines in the API server's order. A line that is still being written at the end is left out.

    Raises ValueError that names the line for anything else that is not JSON.
    """
    lines: list[tuple[int, dict[str, Any]]] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = msgspec.json.decode(line)
                lines.append((entry["rv"], entry))
            except (msgspec.DecodeError, KeyError, TypeError) as error:
                raise ValueError(f"{path}:{number}: {error}") from error
    lines.sort(key=lambda pair: pair[0])
    return (entry for _, entry in lines)


def _version_of(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    folder, kubeconfig = Path(sys.argv[1]), Path(sys.argv[2])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    api = ApiClient.from_kubeconfig(kubeconfig, user_agent="history")
    recorder = Recorder(api, Writer(folder / FILE), CORE_KINDS)
    ControlServer(folder / SOCKET, recorder.handle).start()
    stop.wait()


if __name__ == "__main__":
    main()
