"""The process of `http_process`, over TLS with the files of a directory.

`python -m tests.unit.serving.tls_process PORT EVENTS DIRECTORY HANDSHAKE_SECONDS HANDSHAKES`
"""

from __future__ import annotations

import sys
from pathlib import Path

from controller.serving.server import ServerOptions, serve
from controller.serving.tls import DirectoryFollower, ServerTls
from tests.unit.extender.http_process import ScriptedProcess


class TlsProcess(ScriptedProcess):
    def __init__(self, events: Path, directory: Path, tls: ServerTls) -> None:
        super().__init__(events)
        self._follower = DirectoryFollower(directory, tls.use)

    def start(self) -> None:
        self._follower.start()
        super().start()

    def stop(self) -> None:
        self._follower.stop()
        super().stop()


def main() -> None:
    port, events, directory = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    tls = ServerTls()
    options = ServerOptions(
        "127.0.0.1", port, threads=3, tls=tls, handshake_seconds=float(sys.argv[4]), handshakes=int(sys.argv[5])
    )
    serve(options, lambda: TlsProcess(events, directory, tls))


if __name__ == "__main__":
    main()
