"""Start processes, remember them beyond our own life, and end exactly those."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """One process of a cluster. A pid alone may be somebody else's by now; with its start time it is one process."""

    name: str
    pid: int
    start_ticks: int  # field 22 of /proc/<pid>/stat
    log: str


def start_ticks(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None when there is none or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in parentheses and may hold blanks and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(record: Record) -> bool:
    return start_ticks(record.pid) == record.start_ticks


def spawn(
    name: str, command: Sequence[str], log: Path, *, env: Mapping[str, str], cwd: Path
) -> tuple[Record, subprocess.Popen[bytes]]:
    """Start `command` in a session of its own, with its output appended to `log`.

    Its own session keeps a Ctrl-C in our terminal away from it; what ends it is `stop_all`.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    return Record(name, process.pid, start_ticks(process.pid) or 0, str(log)), process


@contextmanager
def _handle(record: Record) -> Iterator[int | None]:
    """A descriptor that names this very process while the block lasts; None when it is gone."""
    try:
        descriptor = os.pidfd_open(record.pid)
    except (ProcessLookupError, FileNotFoundError):
        yield None
        return
    try:
        yield descriptor if is_alive(record) else None  # checked after the open
    finally:
        os.close(descriptor)


def wait_ended(record: Record, timeout: float) -> bool:
    """True once the process has ended, false when it still runs after `timeout` seconds."""
    with _handle(record) as descriptor:
        poller = select.poll()
        if descriptor is not None:
            poller.register(descriptor, select.POLLIN)
        return descriptor is None or bool(poller.poll(max(0.0, timeout) * 1000))


def send(record: Record, number: signal.Signals) -> None:
    """Signal exactly the recorded process; nothing happens when it is gone."""
    with _handle(record) as descriptor, suppress(ProcessLookupError):
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)


def stop_all(records: Iterable[Record], timeout: float = STOP_SECONDS) -> list[Record]:
    """Ask all at once to end, then kill what still runs after `timeout`. Returns what had to be killed."""
    records = list(records)
    for record in records:
        send(record, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    stubborn = [record for record in records if not wait_ended(record, deadline - time.monotonic())]
    for record in stubborn:
        send(record, signal.SIGKILL)
    for record in stubborn:
        wait_ended(record, timeout)
    return stubborn


def find_marked(variable: str, value: str) -> list[int]:
    """Pids of this user's processes whose environment was started with `variable=value`."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
    return found
