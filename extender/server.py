"""The extender's HTTP server: gunicorn with exactly one worker and threads.

One worker, because the allocator's promises live in that process; a second one would promise the same bytes again. The
object graph is built and started in the worker, after the fork, so that its threads live there. A worker that dies is
started again by gunicorn, warm within the time of a relist.
"""

from __future__ import annotations

import fcntl
import logging
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.config import Config
from gunicorn.workers.gthread import TConn, ThreadWorker

from controller.clock import Clock, SystemClock
from controller.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

SHARED_MEMORY: Final = Path("/dev/shm")
WATCH_EVERY_SECONDS: Final = 0.25
CLOSING_STATUSES: Final = ("503", "413")

log = logging.getLogger(__name__)


class WorkerProcess(Protocol):
    """What runs in the worker: built after the fork, started before the first request, stopped after the last."""

    @property
    def app(self) -> WSGIApplication: ...
    def start(self) -> None: ...
    def begin_stop(self) -> None:
        """The process was asked to end. Called in a signal handler: may set flags, must not block."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to listen, and the limits of one request."""

    address: str
    port: int
    threads: int = 16
    request_seconds: float = 10.0  # from a connection's first byte of a request to the end of its answer
    keepalive_seconds: int = 300  # a Go client drops an idle connection after 90 s: let it be the one that closes
    graceful_seconds: int = 10


class RequestDeadlines:
    """Ends connections whose request takes too long: half a header or half a body costs one thread for a bounded time.

    Threads: any. Blocks: never, except `run`. I/O: closes sockets.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._lock = threading.Lock()  # guards the field below
        self._deadlines: dict[int, tuple[float, TConn]] = {}

    @contextmanager
    def watching(self, connection: TConn) -> Iterator[None]:
        key = id(connection)
        with self._lock:
            self._deadlines[key] = (self._clock.now() + self._seconds, connection)
        try:
            yield
        finally:
            with self._lock:
                del self._deadlines[key]

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(WATCH_EVERY_SECONDS):
            self.end_overdue()

    def end_overdue(self) -> int:
        """Shut down every connection that is past its deadline; how many there were."""
        now = self._clock.now()
        with self._lock:
            overdue = [connection for deadline, connection in self._deadlines.values() if deadline <= now]
        for connection in overdue:
            with suppress(OSError):
                connection.sock.shutdown(2)
        return len(overdue)


class ExtenderWorker(ThreadWorker):
    """gunicorn's threaded worker with a time limit for each request, and told early that the process ends."""

    _deadlines: RequestDeadlines
    _stop_watching: threading.Event

    def init_process(self) -> None:
        application = self.app
        assert isinstance(application, ExtenderApplication)
        self._deadlines = RequestDeadlines(SystemClock(), application.options.request_seconds)
        self._stop_watching = threading.Event()
        watch = threading.Thread(
            target=self._deadlines.run, args=(self._stop_watching,), name="http-deadlines", daemon=True
        )
        watch.start()
        super().init_process()

    def get_thread_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.cfg.threads, thread_name_prefix="http")

    def handle(self, conn: TConn) -> bool:
        with self._deadlines.watching(conn):
            return super().handle(conn)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        application = self.app
        if isinstance(application, ExtenderApplication) and application.process is not None:
            application.process.begin_stop()
        super().handle_exit(sig, frame)

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """An interrupt from a terminal ends the process as cleanly as a termination does."""
        self.handle_exit(sig, frame)


class PlainLogger(glogging.Logger):
    """gunicorn's own messages go through the process's logging, whatever its form is."""

    def setup(self, cfg: Config) -> None:
        super().setup(cfg)
        for handler in list(self.error_log.handlers):
            self.error_log.removeHandler(handler)
        self.error_log.propagate = True


class ExtenderApplication(BaseApplication):
    """gunicorn's side of the process: its settings, and the graph in the worker."""

    def __init__(self, options: ServerOptions, build: Callable[[], WorkerProcess]) -> None:
        self.options = options
        self.process: WorkerProcess | None = None
        self._build = build
        self._only_one: IO[bytes] = tempfile.TemporaryFile(dir=_scratch())  # noqa: SIM115
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._gunicorn_settings().items():
            self.cfg.set(name, value)

    def _gunicorn_settings(self) -> Mapping[str, Any]:
        options = self.options
        host = f"[{options.address}]" if ":" in options.address else options.address
        return {
            "bind": f"{host}:{options.port}",
            "workers": 1,
            "worker_class": ExtenderWorker,
            "threads": options.threads,
            "worker_connections": 1000,
            "keepalive": options.keepalive_seconds,
            "graceful_timeout": options.graceful_seconds,
            "timeout": 30,
            "preload_app": False,
            "control_socket_disable": True,
            "accesslog": None,
            "errorlog": "-",
            "logger_class": PlainLogger,
            "worker_tmp_dir": _scratch(),
            "proc_name": "longhorn-scheduler-extender",
            "post_worker_init": _start,
            "worker_exit": _stop,
        }

    def load(self) -> WSGIApplication:  # type: ignore[override]  # the stubs leave `exc_info` out of WSGI
        """In the worker: build the graph, once no other worker of this process group has one."""
        # A record lock belongs to one process and ends with it. gunicorn starts a second worker beside the first one
        # when it is told to reload or to add workers; that one waits here until the first is gone.
        fcntl.lockf(self._only_one, fcntl.LOCK_EX)
        self.process = self._build()
        return ClosingAnswers(self.process.app)


class ClosingAnswers:
    """Answers that say "not here" end their connection, so that the client's next call finds the leader.

    The application cannot say so itself: `Connection` is the server's header, and gunicorn drops it.
    """

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        response = getattr(start_response, "__self__", None)

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
            if status.startswith(CLOSING_STATUSES) and response is not None:
                response.force_close()
            return start_response(status, headers, exc_info)

        return self._app(environ, start)


def check_one_worker(cfg: Config) -> None:
    """ConfigError unless gunicorn runs exactly one worker of our kind with threads."""
    if cfg.workers != 1:
        raise ConfigError(f"workers: the extender runs with exactly one, not {cfg.workers}")
    if cfg.worker_class is not ExtenderWorker:
        raise ConfigError(f"worker_class: the extender needs its own, not {cfg.worker_class_str}")
    if cfg.preload_app:
        raise ConfigError("preload_app: the extender's threads must start after the fork")


def serve(options: ServerOptions, build: Callable[[], WorkerProcess]) -> None:
    """Run until the process is told to end. `build` is called in the worker, each time one starts."""
    application = ExtenderApplication(options, build)
    check_one_worker(application.cfg)
    application.run()


def _start(worker: ThreadWorker) -> None:
    application = worker.app
    assert isinstance(application, ExtenderApplication)
    if application.process is not None:
        application.process.start()


def _stop(_server: object, worker: ThreadWorker) -> None:
    application = worker.app
    if isinstance(application, ExtenderApplication) and application.process is not None:
        application.process.stop()


def _scratch() -> str | None:
    """A place for gunicorn's heartbeat file that needs no disk; None for the system's default."""
    return str(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else None
