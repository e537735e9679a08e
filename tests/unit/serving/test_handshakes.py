"""Handshakes and closings on socket pairs, with a clock that is moved by hand: deadlines, bounds, counts."""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from controller.serving.handshakes import CROWDED, DONE, FAILED, LATE, NO_CERTIFICATE, Closing, Handshakes
from controller.serving.tls import Material, ServerTls, make_context
from tests.fakes.clock import VirtualClock
from tests.unit.serving.tls_files import authority, client_of, server_of


class World:
    """A server's loop by hand, and its clients on the other ends."""

    def __init__(self) -> None:
        self.poller, self.clock, self.tls = selectors.DefaultSelector(), VirtualClock(), ServerTls()
        self.ca = authority()
        server = server_of(self.ca)
        self.tls.use(server.certificate, server.key, self.ca.certificate)
        self.closing = Closing(self.poller, self.clock, seconds=2.0, most=3)
        self.handshakes = self.make_handshakes(self.tls)
        self.ended: list[socket.socket | None] = []
        self._open: list[socket.socket] = []

    def make_handshakes(self, tls: ServerTls) -> Handshakes:
        return Handshakes(self.poller, tls, self.clock, self.closing.begin, seconds=5.0, most=3)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        theirs.settimeout(10)
        self._open += [ours, theirs]
        return ours, theirs

    def begin(self) -> socket.socket:
        ours, theirs = self.pair()
        self.handshakes.begin(ours, self.ended.append)
        return theirs

    def turn(self) -> None:
        """One turn of the loop: everything that is ready now."""
        for key, _ in self.poller.select(0):
            key.data(key.fileobj)

    def close(self) -> None:
        for sock in [*self._open, *filter(None, self.ended)]:
            sock.close()
        self.poller.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


class Client:
    """A client's side of TLS, byte by byte."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        sock.setblocking(False)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")

    def step(self) -> bool:
        """Read what there is and answer it; whether the client is done."""
        with suppress(BlockingIOError):
            self._in.write(self._sock.recv(65_536))
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            if self._out.pending:
                self._sock.sendall(self._out.read())
        return True


def client_context(world: World, tmp_path: Any) -> ssl.SSLContext:
    client = client_of(world.ca)
    file = tmp_path / "client.pem"
    file.write_bytes(client.certificate + client.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=world.ca.certificate.decode())
    context.load_cert_chain(file)
    return context


def test_a_handshake_is_done_in_turns_of_the_loop(world: World, tmp_path: Any) -> None:
    client = Client(world.begin(), client_context(world, tmp_path))
    turns = 0
    while not world.ended:
        client.step()
        world.turn()
        turns += 1
        assert turns < 10
    (encrypted,) = world.ended
    assert isinstance(encrypted, ssl.SSLSocket)
    assert {DONE: 1} == world.tls.counts()
    assert 0 == len(world.handshakes)
    assert not world.poller.get_map()


def test_half_a_handshake_ends_at_its_deadline(world: World) -> None:
    first = world.begin()
    world.clock.advance(2)
    world.begin()
    first.sendall(b"\x16\x03\x01")
    world.turn()
    world.clock.advance(2.9)
    world.handshakes.end_overdue()
    assert [] == world.ended

    world.clock.advance(0.1)
    world.handshakes.end_overdue()
    assert [None] == world.ended
    assert b"" == first.recv(1)
    world.clock.advance(2)
    world.handshakes.end_overdue()
    assert [None, None] == world.ended
    assert {LATE: 2} == world.tls.counts()
    assert not world.poller.get_map()


def test_the_oldest_makes_place_when_there_are_too_many(world: World) -> None:
    clients = [world.begin() for _ in range(5)]
    assert 3 == len(world.handshakes)
    assert [None, None] == world.ended
    assert {CROWDED: 2} == world.tls.counts()
    assert [b"", b""] == [client.recv(1) for client in clients[:2]]


def test_nonsense_ends_a_handshake_at_once(world: World) -> None:
    client = world.begin()
    client.sendall(b"GET / HTTP/1.1\r\n\r\n")
    world.turn()
    assert [None] == world.ended
    assert {FAILED: 1} == world.tls.counts()


def test_a_client_that_leaves_ends_it_too(world: World) -> None:
    world.begin().close()
    world.turn()
    assert [None] == world.ended
    assert {FAILED: 1} == world.tls.counts()


def test_without_a_certificate_a_connection_is_closed_at_once() -> None:
    world = World()
    world.handshakes = world.make_handshakes(ServerTls())
    assert b"" == world.begin().recv(1)
    assert [None] == world.ended
    world.close()


def test_all_are_ended_with_the_process(world: World) -> None:
    for _ in range(3):
        world.begin()
    world.handshakes.end_all()
    assert [None] * 3 == world.ended
    assert not world.poller.get_map()


def test_a_connection_that_is_closed_is_drained_until_the_client_closes(world: World) -> None:
    ours, theirs = world.pair()
    world.closing.begin(ours)
    assert b"" == theirs.recv(1)  # told at once
    theirs.sendall(b"the rest of a body that nobody reads")
    world.turn()
    assert 1 == len(world.closing)
    theirs.close()
    world.turn()
    assert 0 == len(world.closing)
    assert -1 == ours.fileno()


def test_a_client_that_never_closes_is_left_after_a_while(world: World) -> None:
    ours, _theirs = world.pair()
    world.closing.begin(ours)
    world.clock.advance(1.9)
    world.closing.end_overdue()
    assert 1 == len(world.closing)
    world.clock.advance(0.1)
    world.closing.end_overdue()
    assert -1 == ours.fileno()


def test_closings_are_bounded_and_the_oldest_goes(world: World) -> None:
    pairs = [world.pair() for _ in range(5)]
    for ours, _ in pairs:
        world.closing.begin(ours)
    assert 3 == len(world.closing)
    assert [-1, -1] == [ours.fileno() for ours, _ in pairs[:2]]


def test_what_ended_in_the_same_turn_of_the_loop_is_left_alone(world: World) -> None:
    ours, theirs = world.pair()
    world.closing.begin(ours)
    theirs.close()
    world.begin().close()
    ready = world.poller.select(0)
    assert 2 == len(ready)
    for sock, _ in [world.pair() for _ in range(3)]:
        world.closing.begin(sock)
    world.handshakes.end_all()
    for key, _ in ready:
        key.data(key.fileobj)
    assert 3 == len(world.closing)
    assert [None] == world.ended


def test_a_connection_that_is_gone_needs_no_closing(world: World) -> None:
    ours, _theirs = world.pair()
    ours.close()
    world.closing.begin(ours)
    assert 0 == len(world.closing)


def test_handshakes_that_fail_outnumber_lines_of_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10):
        world.begin().close()
        world.turn()
    assert 1 == len(caplog.records)
    world.clock.advance(10)
    world.begin().close()
    world.turn()
    assert 2 == len(caplog.records)
    assert {FAILED: 11} == world.tls.counts()


def test_a_context_asks_for_new_tls_and_for_a_certificate_and_resumes_nothing(world: World) -> None:
    server = server_of(world.ca)
    context = make_context(Material(server.certificate, server.key, world.ca.certificate))
    assert ssl.TLSVersion.TLSv1_2 == context.minimum_version
    assert ssl.CERT_REQUIRED == context.verify_mode
    assert 0 == context.num_tickets
    assert NO_CERTIFICATE not in world.tls.counts()
    assert "PRIVATE" not in repr(Material(server.certificate, server.key, world.ca.certificate))


def test_the_same_certificates_make_no_new_context(world: World) -> None:
    before = world.tls.context
    server = server_of(world.ca)
    assert world.tls.use(server.certificate, server.key, world.ca.certificate)
    after = world.tls.context
    assert before is not after
    assert not world.tls.use(server.certificate, server.key, world.ca.certificate)
    assert after is world.tls.context
