"""The server's loop, taken turn by turn, and connections whose other ends the test holds."""

from __future__ import annotations

import selectors
import socket

from tests.fakes.clock import VirtualClock


class Loop:
    def __init__(self) -> None:
        self.poller, self.clock = selectors.DefaultSelector(), VirtualClock()
        self.open: list[socket.socket] = []

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """The server's end of a connection, and the client's."""
        ours, theirs = socket.socketpair()
        theirs.settimeout(10)
        self.open += [ours, theirs]
        return ours, theirs

    def turn(self) -> None:
        """One turn of the loop: everything that is ready now."""
        for key, _ in self.poller.select(0):
            key.data(key.fileobj)

    def close(self) -> None:
        self.poller.close()
        for sock in self.open:
            sock.close()
