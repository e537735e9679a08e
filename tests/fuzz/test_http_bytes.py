"""Bytes that are hardly HTTP, at the product's own server: it answers or closes, stays whole, and holds nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.extender_go.client import ServedExtender
from tests.extender_go.worlds import PodSpec, VolumeSpec, WorldSpec, kube_pod

POD = PodSpec("db", (VolumeSpec("db", 100),))
# 501: a transfer coding that the server does not know. Anything else from 500 up would be a fault of ours.
MEANT = {b"100", b"200", b"400", b"404", b"405", b"408", b"411", b"413", b"414", b"417", b"431", b"501", b"505"}
ANSWER_SECONDS = 20.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedExtender]:
    server = ServedExtender(tmp_path_factory.mktemp("extender"))
    server.put(WorldSpec({"n1": (400,)}, (POD,)))
    yield server
    server.stop()


def a_request(body: bytes, length: bytes) -> list[bytes]:
    return [
        b"POST /filter HTTP/1.1\r\n",
        b"Host: extender\r\n",
        b"Content-Type: application/json\r\n",
        b"Content-Length: " + length + b"\r\n",
        b"\r\n",
        body,
    ]


BODY = json.dumps({"Pod": kube_pod(PodSpec("other", POD.volumes)), "NodeNames": ["n1"]}).encode()
LENGTHS = st.sampled_from((str(len(BODY)).encode(), b"0", b"-1", b"1e3", b"99999999999", b"+5", b"", b"7, 7"))
LINES = st.sampled_from(
    (
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Content-Length: 3\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: upgrade\r\n",
        b": nameless\r\n",
        b" folded\r\n",
        b"\x00\r\n",
        b"Long: " + b"x" * 9_000 + b"\r\n",
        b"GET / HTTP/9.9\r\n",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"\r\n",
    )
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    parts = a_request(BODY, draw(LENGTHS))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(parts)))
        parts.insert(at, draw(st.one_of(LINES, st.binary(max_size=20))))
    stream = b"".join(parts)
    return stream[: draw(st.integers(0, len(stream)))] if draw(st.booleans()) else stream


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams())
def test_whatever_arrives(server: ServedExtender, stream: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_SECONDS) as connection:
        answer = exchange(connection, stream)
    if answer:
        version, status = answer.split(b" ", 2)[:2]
        assert version in (b"HTTP/1.1", b"HTTP/1.0")
        assert status in MEANT, answer[:300]
    assert server.ledger()["promises"] == []


def exchange(connection: socket.socket, stream: bytes) -> bytes:
    """All that comes back until the server closes, which it does soon: there is nothing more to come."""
    answer = b""
    try:
        connection.sendall(stream)
        connection.shutdown(socket.SHUT_WR)
        while received := connection.recv(65_536):
            answer += received
    except ConnectionError:
        pass  # closed while it was still being sent to
    return answer
