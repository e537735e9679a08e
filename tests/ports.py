"""Ports for servers that a test starts: free ones, and nobody else's a moment later.

The kernel gives any port of its own range to whoever asks next, as to a test that runs beside this one. So these lie
below that range, and each process of a test run (pytest-xdist) has a part of its own.
"""

from __future__ import annotations

import itertools
import os
import socket
from typing import Final

HOST: Final = "127.0.0.1"
FIRST: Final = 20_000
EACH: Final = 500  # ports of each process
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
# Another run on the same machine begins elsewhere.
_numbers = itertools.count(os.getpid() % EACH)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    for _ in range(EACH):
        port = FIRST + _WORKER * EACH + next(_numbers) % EACH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port is free from {FIRST + _WORKER * EACH} on")
