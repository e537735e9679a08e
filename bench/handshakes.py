"""What clients that stop half-way cost the others: calls beside half-open TLS handshakes, and beside none.

`python -m bench.handshakes`: the product's server, threads as in production, over TLS. Caller threads make calls at a
steady rate, half of them on connections of their own, and each is timed from the moment at which it was due. Rounds
with HALVES half-open handshakes and without alternate in one run; the ratio of their p99 is the figure.
Half-open ones stop in their first message, after it, or say nothing, and are made anew when the server ends them; they
begin one after the other over as long as a handshake may take, so that they do not all end in the same moment.
Printed as one JSON object, with the verdicts, which go to standard error as well.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import selectors
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from flask import Flask

from bench.certificates import DAY, write_certificates
from bench.served import serving
from bench.verdicts import Verdict, add_report_only, conclude, lines_of
from certs.authority import LeafSpec
from controller.serving.server import ServerOptions, serve
from controller.serving.tls import ServerTls, read_directory

HOST = "127.0.0.1"
HALVES, CALLERS, RATE, SECONDS, ROUNDS = 100, 8, 100.0, 8.0, 7
HANDSHAKE_SECONDS = 5.0  # the server's default
START_SECONDS = 60.0
P99_RATIO = 1.5  # asked of us
BODY = json.dumps({"pad": "x" * 2_000}).encode()


class EchoProcess:
    """A route that reads its body and answers."""

    def __init__(self, directory: Path, tls: ServerTls) -> None:
        self._directory, self._tls = directory, tls
        app = Flask("bench")
        app.add_url_rule("/echo", view_func=_echo, methods=["POST"])
        self.app = app.wsgi_app

    def start(self) -> None:
        shown = read_directory(self._directory, with_client_ca=False)
        self._tls.use(shown.certificate, shown.key, shown.client_ca)

    def begin_stop(self) -> None:
        return

    def stop(self) -> None:
        return


def _echo() -> str:
    from flask import request

    return str(len(request.get_data()))


def halve(port: int) -> None:
    """Keep HALVES handshakes half open until the end of standard input. A line once all are, one with their number.

    In a process of its own: it must not take time from the callers.
    """
    hello = client_hello()
    parts = itertools.cycle([hello[: len(hello) // 2], hello, b""])
    poller = selectors.DefaultSelector()
    poller.register(sys.stdin, selectors.EVENT_READ)
    opened = 0
    while True:
        while len(poller.get_map()) <= HALVES:
            sock = socket.create_connection((HOST, port), timeout=5)
            sock.sendall(next(parts))
            sock.setblocking(False)
            poller.register(sock, selectors.EVENT_READ)
            opened += 1
            if opened < HALVES:
                time.sleep(HANDSHAKE_SECONDS / HALVES)
            elif opened == HALVES:
                print("open", flush=True)
        for key, _ in poller.select():
            if key.fileobj is sys.stdin:
                print(opened, flush=True)
                return
            assert isinstance(key.fileobj, socket.socket)
            if _is_ended(key.fileobj):
                poller.unregister(key.fileobj)
                key.fileobj.close()


def _is_ended(sock: socket.socket) -> bool:
    """Whether the server has closed it. What it says until then is thrown away."""
    try:
        while data := sock.recv(65_536):
            del data
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


class Halves:
    """The process that keeps handshakes half open."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "bench.handshakes", "--halve", str(port)]
        self._process = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "open\n"

    def stop(self) -> int:
        """End it; how many handshakes were opened in all."""
        said, _ = self._process.communicate("", timeout=60)
        return int(said)


def client_hello() -> bytes:
    """The first bytes of a real client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


class Caller(threading.Thread):
    """Calls at a steady rate, whatever the answers do."""

    def __init__(self, port: int, context: ssl.SSLContext, number: int, *, keeps: bool) -> None:
        super().__init__(daemon=True)
        self._port, self._context, self._number, self._keeps = port, context, number, keeps
        self.times: list[float] = []
        self.failures = 0

    def run(self) -> None:
        period = CALLERS / RATE
        begun = time.monotonic() + self._number / RATE
        connection = self._connect()
        turn = 0
        while (due := begun + turn * period) < begun + SECONDS:
            turn += 1
            pause = due - time.monotonic()
            while pause > 0:
                time.sleep(pause)
                pause = due - time.monotonic()
            try:
                connection.request("POST", "/echo", BODY)
                connection.getresponse().read()
            except OSError:
                self.failures += 1
                connection.close()
            else:
                self.times.append(time.monotonic() - due)
            if not self._keeps:
                connection.close()
                connection = self._connect()
        connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(HOST, self._port, timeout=30, context=self._context)


def measure(port: int, context: ssl.SSLContext) -> dict[str, Any]:
    found: dict[str, dict[bool, list[float]]] = {"fresh": {False: [], True: []}, "kept": {False: [], True: []}}
    ratios: dict[str, list[float]] = {"fresh": [], "kept": [], "all": []}
    failures = opened = 0
    for round_number in range(ROUNDS + 1):
        p99: dict[bool, dict[str, float]] = {}
        for with_halves in (False, True) if round_number % 2 else (True, False):
            halves = Halves(port) if with_halves else None
            callers = [Caller(port, context, number, keeps=bool(number % 2)) for number in range(CALLERS)]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
            if halves is not None:
                opened += halves.stop()
            failures += sum(caller.failures for caller in callers)
            times = {
                "fresh": [t for caller in callers[::2] for t in caller.times],
                "kept": [t for caller in callers[1::2] for t in caller.times],
            }
            p99[with_halves] = {name: _p99(seen) for name, seen in times.items()}
            p99[with_halves]["all"] = _p99([*times["fresh"], *times["kept"]])
            if round_number:
                for name, seen in times.items():
                    found[name][with_halves] += seen
        if round_number:  # the first round warms up
            for name, seen_ratios in ratios.items():
                seen_ratios.append(p99[True][name] / p99[False][name])
    return {
        "half_open": HALVES,
        "opened": opened,
        "calls_a_second": RATE,
        "failures": failures,
        "load_average": os.getloadavg()[0],
        "p99_ratio": {name: _spread(seen) for name, seen in ratios.items()},
        "median_ms": {
            name: {
                ("with" if way else "without"): round(statistics.median(seen) * 1000, 2) for way, seen in ways.items()
            }
            for name, ways in found.items()
        },
    }


def _p99(seen: list[float]) -> float:
    return statistics.quantiles(seen, n=100)[98]


def _spread(seen: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(seen), 3),
        "least": round(min(seen), 3),
        "most": round(max(seen), 3),
    }


def run_server(port: int, directory: Path) -> None:
    tls = ServerTls(lets_anybody_in=True)
    serve(ServerOptions(HOST, port, tls=tls), lambda: EchoProcess(directory, tls))


def verdicts(result: dict[str, Any]) -> list[Verdict]:
    """Each figure beside what is asked of it. A call that failed has no time, so none may."""
    ratio, failures = result["p99_ratio"]["all"]["median"], result["failures"]
    text = f"p99 beside {HALVES} half-open handshakes: {ratio:.2f} x that beside none"
    return [
        Verdict(text, ratio <= P99_RATIO, f"at most {P99_RATIO}"),
        Verdict(f"{failures} calls failed", failures == 0, "none"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--halve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    add_report_only(parser)
    options = parser.parse_args()
    if options.serve:
        run_server(options.serve, options.directory)
        return 0
    if options.halve:
        halve(options.halve)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write_certificates(Path(folder), {"server": LeafSpec("server", DAY, (HOST,))})
        directory = Path(folder) / "server"
        context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        with serving("bench.handshakes", "--directory", str(directory)) as server:
            wait_serving(server.port, context, server.process)
            result = measure(server.port, context)
    checks = verdicts(result)
    print(json.dumps({**result, "verdicts": lines_of(checks)}), flush=True)
    return conclude(checks, is_report_only=options.report_only, file=sys.stderr)


def wait_serving(port: int, context: ssl.SSLContext, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        connection = http.client.HTTPSConnection(HOST, port, timeout=5, context=context)
        try:
            connection.request("POST", "/echo", BODY)
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise SystemExit("the server did not start")


if __name__ == "__main__":
    sys.exit(main())
