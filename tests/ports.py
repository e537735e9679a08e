"""Ports for servers that a test starts: free ones, and nobody else's a moment later.

The kernel gives any port of its own range to whoever asks next, as to a test that runs beside this one. So these lie
below that range, and each process that asks has a block of its own while it lives, also beside another run of the tests
on the same machine: a port that was found free is listened on only a moment later.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, TextIO

HOST: Final = "127.0.0.1"
FIRST: Final = 20_000
EACH: Final = 500  # ports of a block
BLOCKS: Final = 25
_held: list[TextIO] = []  # whose lock is the block; the kernel gives it back when the process ends


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    first, numbers = _block()
    for _ in range(EACH):
        port = first + next(numbers) % EACH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port is free from {first} on")


@cache
def _block() -> tuple[int, Iterator[int]]:
    """The first port of this process's block, and numbers that begin anywhere in it: the last holder's children may
    listen on for a moment."""
    folder = Path(tempfile.gettempdir()) / f"longhorn-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(BLOCKS):
        file = (folder / str(number)).open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            continue
        _held.append(file)
        return FIRST + number * EACH, itertools.count(os.getpid() % EACH)
    raise OSError(f"all {BLOCKS} blocks of ports are taken; their locks are in {folder}")
