"""The least that a webhook in Python can do: one patch for every review (`python -m bench.bare_webhook PORT DIR`).

Nothing is parsed but the length of the body and the review's uid; no threads, no framework. What it costs is what the
API server's own part of the call costs, and TLS.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import sys
from pathlib import Path
from typing import Final

from tests.e2e.scheduling import RESOURCE

_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_UID: Final = re.compile(rb'"request":\{"uid":"([^"]+)"')
_AMOUNT: Final = f'{{"{RESOURCE}":"1"}}'
_PATCH: Final = base64.b64encode(
    f'[{{"op":"add","path":"/spec/containers/0/resources","value":{{"limits":{_AMOUNT},"requests":{_AMOUNT}}}}}]'.encode()
)


class Bare(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or length is None or len(body) < int(length[1]):
            return
        self._data = b""
        uid = _UID.search(body)
        assert uid is not None
        assert self._transport is not None
        answer = (
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%b","allowed":true,'
            b'"patchType":"JSONPatch","patch":"%b"}}' % (uid[1], _PATCH)
        )
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
        self._transport.write(head + answer)


async def serve(port: int, folder: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port, ssl=context)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
