"""The HTTP server of the extender and of the webhook: gunicorn with exactly one worker and threads.

One worker: the allocator's promises live in the extender's, and a second one would promise the same bytes again. In the
webhook each would keep its own copy of all claims and watch the cluster for itself; more pods do the same, and survive
the loss of a node. The object graph is built and started in the worker, after the fork, so that its threads live there.
A worker that dies is started again by gunicorn, warm within the time of a relist.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import math
import selectors
import socket
import ssl
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.config import Config
from gunicorn.workers.gthread import TConn, ThreadWorker

from controller.clock import SystemClock
from controller.errors import ConfigError
from controller.serving.arrivals import Arrivals, HeldBytes
from controller.serving.connection import Connection, RequestDeadlines
from controller.serving.handshakes import ClosingSockets, Handshakes
from controller.serving.pauses import Pauses
from controller.serving.tls import ServerTls

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from gunicorn.arbiter import Arbiter

SHARED_MEMORY: Final = Path("/dev/shm")
CLOSING_STATUSES: Final = ("503", "413", "429")
ARRIVING_REQUESTS: Final = 256  # that have begun and are not whole; the oldest one makes room for the next
SILENT_CONNECTIONS: Final = 256  # that were opened and say nothing; the oldest one makes room for the next
KEPT_CONNECTIONS: Final = 128  # that wait for their next request; beyond it the host with most loses its oldest one
# Of requests that are being read or answered, beside the largest one: more of them get 429.
HELD_BYTES: Final = 16 * 1024**2
STOPPING_SECONDS: Final = 2.0  # for those of them that are open when the process ends
_TRY_AGAIN: Final = (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK)

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
    body_limit_bytes: int = 64 * 1024**2  # a larger body is not waited for: the application refuses it by its length
    tls: ServerTls | None = None  # None: plain HTTP
    handshake_seconds: float = 5.0
    handshakes: int = 256  # at a time; the oldest one makes room for the next
    name: str = "longhorn-scheduler-extender"
    drain_seconds: float = 0.0  # told to end, it still serves for this long, until no more calls come
    held: HeldBytes = field(init=False)
    deadlines: RequestDeadlines = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "held", HeldBytes(HELD_BYTES))
        object.__setattr__(self, "deadlines", RequestDeadlines(SystemClock(), self.request_seconds))

    @property
    def host(self) -> str:
        """The address as it stands before a port."""
        return f"[{self.address}]" if ":" in self.address else self.address


class ServingWorker(ThreadWorker):
    """gunicorn's threaded worker, with a time limit for each request, and told early that the process ends.

    A connection gets a thread when a request has arrived whole: handshakes, requests that are still arriving, and
    connections that are silent or are being closed wait in the loop, each kind bounded in number and time.
    """

    _deadlines: RequestDeadlines
    _handshakes: Handshakes | None
    _arrivals: Arrivals
    _closing: ClosingSockets
    _read_by_threads: int

    def init_process(self) -> None:
        Pauses(SystemClock().now).install()
        self._deadlines = _served_by(self).options.deadlines
        self._deadlines.start()
        super().init_process()

    def run(self) -> None:
        options, clock = _served_by(self).options, SystemClock()
        self._closing = ClosingSockets(self.poller, clock)
        self._read_by_threads = 0
        self._arrivals = Arrivals(
            self.poller,
            clock,
            self._arrived,
            self._drop,
            self._refuse,
            held=options.held,
            seconds=options.request_seconds,
            most=ARRIVING_REQUESTS,
            largest=options.body_limit_bytes,
        )
        self._handshakes = None
        if options.tls is not None:
            self._handshakes = Handshakes(
                self.poller,
                options.tls,
                clock,
                self._closing.begin,
                seconds=options.handshake_seconds,
                most=options.handshakes,
            )
        super().run()

    def get_thread_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.cfg.threads, thread_name_prefix="http")

    def accept(self, listener: socket.socket) -> None:
        try:
            sock, client = listener.accept()
        except OSError as error:
            if error.errno not in _TRY_AGAIN:
                raise
            return
        self.nr_conns += 1
        connection = Connection(self.cfg, sock, client, listener.getsockname())
        connection.closing, connection.held = self._closing, _served_by(self).options.held
        if self._handshakes is None:
            self._await_request(connection)
        else:
            self._handshakes.begin(sock, partial(self._handshake_ended, connection))

    def _handshake_ended(self, connection: Connection, sock: socket.socket | None) -> None:
        """Goes on with the encrypted connection; None: the handshake failed, and the connection is closed."""
        if sock is None:
            self.nr_conns -= 1
        else:
            connection.sock = sock
            self._await_request(connection)

    def _await_request(self, connection: Connection) -> None:
        """Has the connection wait for its first byte in the loop, without a thread."""
        while len(self.pending_conns) >= SILENT_CONNECTIONS:
            self._drop_silent()
        connection.sock.setblocking(False)
        connection.set_timeout()
        self.pending_conns.append(connection)
        self.poller.register(
            connection.sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, connection)
        )

    def _drop_silent(self) -> None:
        connection = self.pending_conns.popleft()
        with suppress(OSError, KeyError, ValueError):
            self.poller.unregister(connection.sock)
        self.nr_conns -= 1
        connection.close()

    def on_pending_socket_readable(self, conn: TConn, client: socket.socket) -> None:
        if conn in self.pending_conns:  # not if it was dropped since the loop learned that it is readable
            self.poller.unregister(client)
            self.pending_conns.remove(conn)
            conn.data_ready = True
            self._await_rest(conn)

    def on_client_socket_readable(self, conn: TConn, client: socket.socket) -> None:
        """The next request on a connection that was kept begins."""
        if conn in self.keepalived_conns:  # not if it was ended since the loop learned that it is readable
            self.poller.unregister(client)
            self.keepalived_conns.remove(conn)
            self._await_rest(conn)

    def _await_rest(self, connection: TConn) -> None:
        assert isinstance(connection, Connection)
        self._arrivals.begin(connection)

    def _arrived(self, connection: Connection, data: bytearray, is_whole: bool) -> None:
        """Gives a request a thread. One that is not whole is read by the thread, within the time of a request."""
        if not is_whole:
            if self._read_by_threads >= max(1, self.cfg.threads // 4):
                connection.held.drop(connection)
                self._drop(connection)
                return
            self._read_by_threads += 1
            connection.is_read_by_thread = True
        connection.received = data
        self.enqueue_req(connection)

    def _drop(self, connection: Connection) -> None:
        self.nr_conns -= 1
        connection.close()

    def _refuse(self, connection: Connection) -> None:
        self.nr_conns -= 1
        connection.refuse()

    def murder_pending(self) -> None:
        """Ends what waits for too long. gunicorn calls it about once a second, also while the process ends."""
        self._closing.end_overdue()
        self._arrivals.end_overdue(None if self.alive else STOPPING_SECONDS)
        if self._handshakes is not None:
            self._handshakes.end_overdue()
        if not self.alive:
            if self._handshakes is not None:
                self._handshakes.end_all()
            latest = time.monotonic() + STOPPING_SECONDS
            for connection in self.pending_conns:
                connection.timeout = min(connection.timeout or latest, latest)
        super().murder_pending()

    def finish_request(self, conn: TConn, fs: Future[bool]) -> None:
        assert isinstance(conn, Connection)
        conn.held.drop(conn)
        self._read_by_threads -= conn.is_read_by_thread
        conn.is_read_by_thread = False
        if not fs.cancelled() and fs.exception() is None and fs.result() is True:
            sock = conn.sock
            conn.keep_rest()
            if conn.beyond or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                conn.set_timeout()
                self._arrivals.begin(conn)  # read or decrypted already: the socket will not say so
                return
            self._make_place_to_keep()
        super().finish_request(conn, fs)

    def _make_place_to_keep(self) -> None:
        """gunicorn's own limit would let anybody have all connections that there may be, for `keepalive_seconds`."""
        while len(kept := [conn for conn in self.keepalived_conns if isinstance(conn, Connection)]) >= KEPT_CONNECTIONS:
            ((host, _),) = Counter(conn.host for conn in kept).most_common(1)
            oldest = next(conn for conn in kept if conn.host == host)
            self.keepalived_conns.remove(oldest)
            with suppress(OSError, KeyError, ValueError):
                self.poller.unregister(oldest.sock)
            self.nr_conns -= 1
            oldest.close()

    def handle(self, conn: TConn) -> bool:
        with self._deadlines.watching(conn):
            return super().handle(conn)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        application = _served_by(self)
        if application.process is not None:
            application.process.begin_stop()
        if not application.options.drain_seconds:
            super().handle_exit(sig, frame)
        elif not application.is_draining:
            application.is_draining = True
            end = threading.Timer(application.options.drain_seconds, super().handle_exit, (sig, frame))
            end.name, end.daemon = "http-drain", True
            end.start()

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

    def info(self, msg: object, *args: Any, **kwargs: Any) -> None:
        """Leaves out where gunicorn says that it listens: of TLS, which is the worker's, it knows nothing."""
        if not str(msg).startswith("Listening at"):
            super().info(msg, *args, **kwargs)


class ServedApplication(BaseApplication):
    """gunicorn's side of the process: its settings, and the graph in the worker."""

    def __init__(self, options: ServerOptions, build: Callable[[], WorkerProcess]) -> None:
        self.options = options
        self.process: WorkerProcess | None = None
        self.is_draining = False  # asked to end: answers close their connections from now on
        self._build = build
        self._only_one: IO[bytes] = tempfile.TemporaryFile(dir=_scratch())  # noqa: SIM115
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._gunicorn_settings().items():
            self.cfg.set(name, value)

    def _gunicorn_settings(self) -> Mapping[str, Any]:
        options = self.options
        return {
            "bind": f"{options.host}:{options.port}",
            "workers": 1,
            "worker_class": ServingWorker,
            "threads": options.threads,
            "worker_connections": 1000,
            "keepalive": options.keepalive_seconds,
            "graceful_timeout": options.graceful_seconds + math.ceil(options.drain_seconds),
            "timeout": 30,
            "preload_app": False,
            "control_socket_disable": True,
            "accesslog": None,
            "errorlog": "-",
            "logger_class": PlainLogger,
            "worker_tmp_dir": _scratch(),
            "proc_name": options.name,
            "when_ready": _tell_address,
            "post_worker_init": _start,
            "worker_exit": _stop,
        }

    def load(self) -> WSGIApplication:  # type: ignore[override]  # the stubs leave `exc_info` out of WSGI
        """In the worker: build the graph, once no other worker of this process group has one."""
        # A record lock belongs to one process and ends with it. When gunicorn is told to reload or to add workers, it
        # starts a second worker; that one waits here until the first has ended.
        fcntl.lockf(self._only_one, fcntl.LOCK_EX)
        self.process = self._build()
        return ClosingAnswers(self.process.app, lambda: self.is_draining)


class ClosingAnswers:
    """Answers that say "not here" end their connection, so that the client's next call finds the leader. So do all
    answers once the process is asked to end, so that the next call finds another copy.

    The application cannot say so itself: `Connection` is the server's header, and gunicorn drops it.
    """

    def __init__(self, app: WSGIApplication, is_draining: Callable[[], bool]) -> None:
        self._app, self._is_draining = app, is_draining

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        response = getattr(start_response, "__self__", None)

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
            if response is not None and (status.startswith(CLOSING_STATUSES) or self._is_draining()):
                response.force_close()
            return start_response(status, headers, exc_info)

        return self._app(environ, start)


def check_one_worker(cfg: Config) -> None:
    """ConfigError unless gunicorn runs exactly one worker of our kind with threads."""
    if cfg.workers != 1:
        raise ConfigError(f"workers: {cfg.proc_name} runs with exactly one, not {cfg.workers}")
    if cfg.worker_class is not ServingWorker:
        raise ConfigError(f"worker_class: {cfg.proc_name} needs its own, not {cfg.worker_class_str}")
    if cfg.preload_app:
        raise ConfigError(f"preload_app: the threads of {cfg.proc_name} must start after the fork")


def serve(options: ServerOptions, build: Callable[[], WorkerProcess]) -> None:
    """Run until the process is told to end. `build` is called in the worker, each time one starts."""
    application = ServedApplication(options, build)
    check_one_worker(application.cfg)
    application.run()


def _served_by(worker: ThreadWorker) -> ServedApplication:
    application = worker.app
    assert isinstance(application, ServedApplication)
    return application


def _tell_address(arbiter: Arbiter) -> None:
    application = arbiter.app
    assert isinstance(application, ServedApplication)
    options = application.options
    log.info("listening at %s://%s:%d", "https" if options.tls is not None else "http", options.host, options.port)


def _start(worker: ThreadWorker) -> None:
    process = _served_by(worker).process
    if process is not None:
        process.start()


def _stop(_server: object, worker: ThreadWorker) -> None:
    process = _served_by(worker).process
    if process is not None:
        process.stop()


def _scratch() -> str | None:
    """A place for gunicorn's heartbeat file that needs no disk; None for the system's default."""
    return str(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else None
