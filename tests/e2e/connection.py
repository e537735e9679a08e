"""HTTPS to an address whose certificate is for a Service's name."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable


class Connection(http.client.HTTPSConnection):
    """To `address`, expecting `name`; `connected` is told of the certificate (DER) at each handshake."""

    def __init__(
        self,
        address: tuple[str, int],
        name: str,
        trust: ssl.SSLContext,
        *,
        timeout: float,
        connected: Callable[[bytes], None],
    ) -> None:
        super().__init__(*address, context=trust, timeout=timeout)
        self._name, self._trust, self._connected = name, trust, connected

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        encrypted = self._trust.wrap_socket(self.sock, server_hostname=self._name)
        self._connected(encrypted.getpeercert(binary_form=True) or b"")
        self.sock = encrypted
