"""The process of `http_process`, over TLS with the files of a directory.

`python -m tests.unit.serving.tls_process PORT EVENTS DIRECTORY HANDSHAKE_SECONDS HANDSHAKES`
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from controller.process.worker import Group, Part, Worker
from controller.serving.server import ServerOptions, serve
from controller.serving.tls import DirectoryFollower, ServerTls
from tests.unit.extender.http_process import ScriptedProcess

HURRY_SECONDS = 0.1  # between looks at the files


class Hurry(Part):
    """Has the files looked at more often than the product does."""

    def __init__(self, follower: DirectoryFollower) -> None:
        self._follower = follower
        self.worker = Worker("hurry", self._round)

    def _round(self) -> float:
        self._follower.worker.wake()
        return HURRY_SECONDS


class TlsProcess(ScriptedProcess):
    def __init__(self, events: Path, directory: Path, tls: ServerTls) -> None:
        super().__init__(events)
        follower = DirectoryFollower(directory, tls.use)
        self._certificates = Group((follower, Hurry(follower)))

    def start(self) -> None:
        self._certificates.start()
        super().start()

    def stop(self) -> None:
        self._certificates.stop()
        super().stop()


def main() -> None:
    port, events, directory = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    logging.basicConfig(level=logging.INFO)
    tls = ServerTls()
    options = ServerOptions(
        "127.0.0.1", port, threads=3, tls=tls, handshake_seconds=float(sys.argv[4]), handshakes=int(sys.argv[5])
    )
    serve(options, lambda: TlsProcess(events, directory, tls))


if __name__ == "__main__":
    main()
