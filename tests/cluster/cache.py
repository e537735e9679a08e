"""Where the test cluster keeps what it builds and what it runs, and the folders' locks."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PRODUCT = "longhorn-scheduler-extender"
CACHE_VARIABLE, STATE_VARIABLE = "LONGHORN_SCHED_CACHE", "LONGHORN_SCHED_STATE"
AUDIT_VARIABLE = "LONGHORN_SCHED_AUDIT"  # a folder: what service accounts ask each API server is written there


def cache_root() -> Path:
    """The folder for built binaries; made when missing.

    `$LONGHORN_SCHED_CACHE`, else `$XDG_CACHE_HOME/longhorn-scheduler-extender`, else the same below `~/.cache`; when
    there is no home to write to, `.cache` in the clone. A folder that the user named and that cannot be written is an
    error (OSError), never passed over.
    """
    if named := os.environ.get(CACHE_VARIABLE):
        return _made(Path(named).expanduser().absolute())
    if named := os.environ.get("XDG_CACHE_HOME"):
        return _made(Path(named).absolute() / PRODUCT)
    if home := os.environ.get("HOME"):
        try:
            return _made(Path(home).absolute() / ".cache" / PRODUCT)
        except OSError:
            pass
    return _made(REPOSITORY / ".cache")


def state_root() -> Path:
    """The folder that holds one folder for each running cluster.

    `$LONGHORN_SCHED_STATE`, else one of this user's own in the folder for temporary files. Its path is short on
    purpose, because the path of a Unix socket below it may have 107 bytes at most.
    """
    if named := os.environ.get(STATE_VARIABLE):
        return _made(Path(named).expanduser().absolute())
    root = _made(Path(tempfile.gettempdir()) / f"longhorn-clusters-{os.getuid()}")
    if root.stat().st_uid != os.getuid():
        raise PermissionError(f"{root} belongs to somebody else; set {STATE_VARIABLE} to a folder of your own")
    root.chmod(0o700)
    return root


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(f"{path}: cannot be written")
    return path


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`; calls `on_wait` once if another has it. It ends with the process."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
