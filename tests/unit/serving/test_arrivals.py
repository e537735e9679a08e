"""Requests that arrive in pieces, in the loop: how long one is, when it is handed on, and what ends it."""

from __future__ import annotations

import gc
import socket
import ssl
import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
from gunicorn.config import Config
from hypothesis import given
from hypothesis import strategies as st

from controller.serving.arrivals import (
    HEAD_BYTES,
    SMALL_BYTES,
    UNKNOWN,
    Arrivals,
    HeldBytes,
    Received,
    TooManyBytesError,
    length_of,
)
from controller.serving.connection import Connection
from controller.serving.handshakes import ClosingSockets
from tests.unit.serving.loop import Loop

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
LARGEST = 400_000
HELD = 300_000  # beside the largest


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 5),
        (b"POST / HTTP/1.1\r\ncontent-LENGTH:   12 \r\n\r\n", 12),
        (b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 0),
    ],
)
def test_the_length_is_that_of_header_and_body(head: bytes, body: int) -> None:
    assert len(head) + body == length_of(head) == length_of(head + b"more")


@pytest.mark.parametrize(
    "line",
    [
        b"Transfer-Encoding: chunked",
        b"transfer-encoding: identity",
        b"Expect: 100-continue",
        b"Upgrade: h2c",
        b"Content-Length: 5\r\nContent-Length: 5",
        b"Content-Length: -5",
        b"Content-Length: 5, 5",
        b"Content-Length: 0x5",
        b"Content-Length:",
        b"Content-Length: " + b"9" * 30,
        b"X: folded\r\n Content-Length: 5",
    ],
)
def test_what_only_a_parser_can_tell_is_unknown(line: bytes) -> None:
    assert UNKNOWN == length_of(b"POST / HTTP/1.1\r\n" + line + b"\r\n\r\n")


def test_a_header_that_does_not_end_is_unknown_past_its_limit() -> None:
    assert length_of(b"x" * (HEAD_BYTES - 1)) is None
    assert UNKNOWN == length_of(b"x" * HEAD_BYTES)


@given(st.integers(0, len(POST) - 6), st.booleans())
def test_half_a_header_is_none_wherever_it_ends(cut: int, looked: bool) -> None:
    head = POST[: len(POST) - 5]
    assert length_of(head[:cut]) is None
    assert len(POST) == length_of(head, cut if looked else 0)


PIECE = 50_000


class End:
    """A connection's end in the server, as gunicorn has it."""

    def __init__(self, sock: socket.socket, host: str) -> None:
        self.sock, self.host, self.beyond = sock, host, b""


class ArrivalsLoop(Loop):
    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[bytes, bool]] = []
        self.dropped: list[End] = []
        self.refused: list[End] = []
        self.answering: list[End] = []
        self.held = HeldBytes(HELD)
        self.let_wait(4)

    def let_wait(self, most: int) -> None:
        calls = (self._take, self._drop, self.refused.append)
        self.arrivals = Arrivals(
            self.poller, self.clock, *calls, held=self.held, seconds=10.0, most=most, largest=LARGEST
        )

    def _take(self, connection: End, data: bytearray, is_whole: bool) -> None:
        self.taken.append((bytes(data), is_whole))
        self.answering.append(connection)

    def _drop(self, end: End) -> None:
        end.sock.close()
        self.dropped.append(end)

    def connect(self, first: bytes, host: str = "10.0.0.1") -> tuple[socket.socket, End]:
        """A client that has said so much."""
        server, client = self.pair()
        end, said = End(server, host), memoryview(first)
        client.sendall(said[:PIECE])
        self.arrivals.begin(end)
        for begin in range(PIECE, len(said), PIECE):
            client.sendall(said[begin : begin + PIECE])  # as much as a pair of sockets takes at once
            self.turn()
        return client, end

    def post(self, length: int, missing: int = 0, host: str = "10.0.0.1") -> End:
        """A client whose request has so many bytes, all but the last ones of which have arrived."""
        head = f"POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode()
        return self.connect(head + b"x" * (length - missing), host)[1]


@pytest.fixture
def world() -> Iterator[ArrivalsLoop]:
    made = ArrivalsLoop()
    yield made
    made.close()


def test_a_request_that_is_there_is_handed_on_at_once(world: ArrivalsLoop) -> None:
    world.connect(GET)
    world.connect(POST)
    assert [(GET, True), (POST, True)] == world.taken
    assert 0 == len(world.arrivals)
    assert {} == dict(world.poller.get_map())


def test_one_that_comes_byte_by_byte_is_handed_on_when_it_is_whole(world: ArrivalsLoop) -> None:
    client, _ = world.connect(POST[:1])
    for byte in POST[1:]:
        assert [] == world.taken
        client.sendall(bytes([byte]))
        world.turn()
    assert [(POST, True)] == world.taken


def test_what_comes_behind_it_is_kept_for_the_next(world: ArrivalsLoop) -> None:
    _, end = world.connect(POST + GET + b"GET /ha")
    assert [(POST, True)] == world.taken
    world.arrivals.begin(end)
    assert [(POST, True), (GET, True)] == world.taken
    world.arrivals.begin(end)
    assert 1 == len(world.arrivals)
    assert b"" == end.beyond


def test_half_a_request_ends_at_its_deadline_though_bytes_go_on_coming(world: ArrivalsLoop) -> None:
    client, end = world.connect(POST[:10])
    for byte in POST[10:19]:
        world.clock.advance(1.0)
        client.sendall(bytes([byte]))
        world.turn()
        world.arrivals.end_overdue()
    assert [] == world.dropped
    world.clock.advance(1.0)
    world.arrivals.end_overdue()
    assert [end] == world.dropped
    assert b"" == client.recv(1)
    assert [] == world.taken


def test_the_oldest_makes_place_when_there_are_too_many(world: ArrivalsLoop) -> None:
    ends = [world.connect(POST[:10])[1] for _ in range(6)]
    assert ends[:2] == world.dropped
    assert 4 == len(world.arrivals)
    world.connect(GET)
    assert [(GET, True)] == world.taken


def test_of_large_ones_that_arrive_together_the_largest_but_one_is_refused(world: ArrivalsLoop) -> None:
    """The largest goes on; and those beside it, as long as they take no more than they may."""
    largest = world.post(LARGEST, missing=1)
    others = [world.post(140_000, missing=1), world.post(120_000, missing=1)]
    assert [] == world.refused
    late = world.post(100_000, missing=1)
    assert [others[0]] == world.refused
    assert 1 == world.held.refused()
    assert not {id(end) for end in (largest, others[1], late)} & {id(end) for end in world.dropped}
    assert 3 == len(world.arrivals)


def test_many_that_do_not_end_keep_out_no_larger_one_of_another_host(world: ArrivalsLoop) -> None:
    world.let_wait(100)
    world.post(LARGEST, missing=1)
    mine = [world.post(70_000, missing=1) for _ in range(2 + HELD // 70_000)]
    late = [world.post(100_000, host="10.0.0.2") for _ in range(2)]
    assert len(late) == len(world.taken)
    assert world.refused
    assert {id(end) for end in world.refused} <= {id(end) for end in mine}


def test_what_is_being_answered_counts_until_it_is(world: ArrivalsLoop) -> None:
    world.let_wait(100)
    for length in (LARGEST, HELD - 1_000):
        world.post(length)
    assert 2 == len(world.taken)  # whole, and so not to be refused any more
    late = world.post(2 * PIECE, missing=1)
    assert [late] == world.refused
    world.held.drop(world.answering.pop())
    assert world.post(2 * PIECE) not in world.refused
    assert 3 == len(world.taken)


def test_one_request_alone_is_never_too_much(world: ArrivalsLoop) -> None:
    world.post(LARGEST)
    assert [LARGEST] == [len(data) - data.index(b"x") for data, _ in world.taken]


def test_small_requests_are_served_beside_large_ones(world: ArrivalsLoop) -> None:
    world.let_wait(100)
    for _ in range(4):
        world.post(LARGEST, missing=1)
    refused = len(world.refused)
    assert refused
    for _ in range(20):
        world.post(SMALL_BYTES - 100)
    assert refused == len(world.refused)


def test_what_a_thread_reads_counts_as_well() -> None:
    held, (mine, other) = HeldBytes(HELD), (object(), object())
    held.add(other, 2 * HELD)
    held.claim(mine, HELD)
    with pytest.raises(TooManyBytesError):
        held.claim(mine, 1)
    held.drop(other)
    held.claim(mine, HELD)  # the largest now


OVER_THE_LIMIT = f"POST / HTTP/1.1\r\nContent-Length: {LARGEST + HEAD_BYTES + 1}\r\n\r\n".encode()
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"


@pytest.mark.parametrize("said", [OVER_THE_LIMIT, CHUNKED], ids=["a body over the limit", "one of unknown end"])
def test_what_is_not_to_be_waited_for_is_handed_on_as_it_is(world: ArrivalsLoop, said: bytes) -> None:
    world.connect(said)
    assert [(said, False)] == world.taken


def test_a_client_that_leaves_ends_its_request(world: ArrivalsLoop) -> None:
    client, end = world.connect(POST[:10])
    client.close()
    world.turn()
    assert [end] == world.dropped
    assert 0 == len(world.arrivals)


def test_one_that_says_all_and_then_no_more_is_answered(world: ArrivalsLoop) -> None:
    client, _ = world.connect(POST[:10])
    client.sendall(POST[10:])
    client.shutdown(socket.SHUT_WR)
    world.turn()
    assert [(POST, True)] == world.taken
    assert [] == world.dropped


def test_when_the_process_ends_they_get_little_time(world: ArrivalsLoop) -> None:
    world.connect(POST[:10])
    world.arrivals.end_overdue(2.0)
    world.clock.advance(2.0)
    world.arrivals.end_overdue(2.0)
    assert 1 == len(world.dropped)


def test_they_end_more_often_than_the_log_has_lines(world: ArrivalsLoop, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        world.connect(POST[:10])
    assert 1 == len(caplog.records)


def test_a_parser_reads_what_has_arrived_and_then_the_socket() -> None:
    one, other = socket.socketpair()
    with one, other:
        claimed: list[int] = []
        data = bytearray(b"abcdef")
        reading = Received(one, data, claimed.append)
        assert [b"abcd", b"ef"] == [reading.recv(4), reading.recv(4)]
        data.clear()  # raises as long as anybody keeps it in memory
        other.sendall(b"ghi")
        assert b"ghi" == reading.recv(4)
        assert [3] == claimed
        reading.settimeout(3.0)
        assert 3.0 == one.gettimeout()


class WantsToWrite:
    """A TLS socket in the middle of a change of keys: it has to write before it can go on, and then has nothing."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.left = sock, [ssl.SSLWantWriteError(), ssl.SSLWantReadError(), ssl.SSLWantReadError()]

    def recv(self, _size: int) -> bytes:
        raise self.left.pop(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def test_a_socket_that_has_written_wakes_the_loop_no_more(world: ArrivalsLoop) -> None:
    server, client = world.pair()
    sock = WantsToWrite(server)
    world.arrivals.begin(End(cast(socket.socket, sock), "10.0.0.1"))
    assert 2 == len(sock.left)
    world.turn()
    assert 1 == len(sock.left)
    world.turn()
    assert 1 == len(sock.left)
    client.send(b"x")
    world.turn()
    assert 0 == len(sock.left)


def parsed(connection: Connection) -> Any:
    parser: Any = connection.parser
    return next(parser)


class Data(bytearray):
    """What tells whether it is still in memory."""


@pytest.mark.parametrize("graceful", [True, False])
def test_a_request_that_was_not_read_is_not_kept_when_its_connection_ends(world: ArrivalsLoop, graceful: bool) -> None:
    """The collector of circles does not come for what it has left out for good."""
    server, _ = world.pair()
    data = Data(b"POST / HTTP/1.1\r\nContent-Length: 90000\r\n\r\n" + b"x" * 90_000)
    kept = weakref.ref(data)
    connection = Connection(Config(), server, ("10.0.0.1", 1), ("10.0.0.2", 2))
    connection.held, connection.closing = world.held, ClosingSockets(world.poller, world.clock)
    connection.received = data
    del data
    gc.disable()
    try:
        connection.init()
        assert "POST" == parsed(connection).method
        connection.close(graceful)
        assert kept() is None
    finally:
        gc.enable()


def test_what_comes_behind_a_request_of_unknown_end_is_kept_for_the_next(world: ArrivalsLoop) -> None:
    server, _ = world.pair()
    connection = Connection(Config(), server, ("10.0.0.1", 1), ("10.0.0.2", 2))
    connection.held = world.held
    connection.received = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET * 1_000
    connection.init()
    assert b"" == parsed(connection).body.read()
    connection.keep_rest()
    assert GET * 1_000 == connection.beyond
