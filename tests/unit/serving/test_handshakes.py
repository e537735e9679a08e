"""Handshakes and closings on socket pairs, with a clock that is moved by hand: deadlines, bounds, counts."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from controller.serving.handshakes import CROWDED, DONE, FAILED, LATE, NO_CERTIFICATE, ClosingSockets, Handshakes
from controller.serving.tls import Material, ServerTls, make_context
from tests.unit.serving.loop import Loop
from tests.unit.serving.tls_files import authority, client_of, context, server_of


class HandshakesLoop(Loop):
    def __init__(self) -> None:
        super().__init__()
        self.tls, self.ca = ServerTls(), authority()
        server = server_of(self.ca)
        self.tls.use(server.certificate, server.key, self.ca.certificate)
        self.closing = ClosingSockets(self.poller, self.clock, seconds=2.0, most=3)
        self.handshakes = self.make_handshakes(self.tls)
        self.ended: list[socket.socket | None] = []

    def make_handshakes(self, tls: ServerTls) -> Handshakes:
        return Handshakes(self.poller, tls, self.clock, self.closing.begin, seconds=5.0, most=3)

    def begin(self) -> socket.socket:
        ours, theirs = self.pair()
        self.handshakes.begin(ours, self._end)
        return theirs

    def _end(self, sock: socket.socket | None) -> None:
        self.ended.append(sock)
        self.open += [sock] if sock is not None else []


@pytest.fixture
def world() -> Iterator[HandshakesLoop]:
    world = HandshakesLoop()
    yield world
    world.close()


def test_a_handshake_is_done_in_turns_of_the_loop(world: HandshakesLoop, tmp_path: Path) -> None:
    trusting = context(tmp_path, world.ca.certificate, client_of(world.ca))
    client = trusting.wrap_socket(world.begin(), server_hostname="127.0.0.1", do_handshake_on_connect=False)
    client.setblocking(False)
    world.open.append(client)
    for _ in range(10):
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        world.turn()
    (encrypted,) = world.ended
    assert isinstance(encrypted, ssl.SSLSocket)
    assert {DONE: 1} == world.tls.counts()
    assert 0 == len(world.handshakes)
    assert not world.poller.get_map()


def test_half_a_handshake_ends_at_its_deadline(world: HandshakesLoop) -> None:
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


def test_the_oldest_makes_place_when_there_are_too_many(world: HandshakesLoop) -> None:
    clients = [world.begin() for _ in range(5)]
    assert 3 == len(world.handshakes)
    assert [None, None] == world.ended
    assert {CROWDED: 2} == world.tls.counts()
    assert [b"", b""] == [client.recv(1) for client in clients[:2]]


@pytest.mark.parametrize("is_there", [True, False], ids=["nonsense", "a client that leaves"])
def test_what_cannot_become_one_ends_a_handshake_at_once(world: HandshakesLoop, is_there: bool) -> None:
    client = world.begin()
    client.sendall(b"GET / HTTP/1.1\r\n\r\n") if is_there else client.close()
    world.turn()
    assert [None] == world.ended
    assert {FAILED: 1} == world.tls.counts()


def test_without_a_certificate_a_connection_is_closed_at_once(world: HandshakesLoop) -> None:
    world.handshakes = world.make_handshakes(ServerTls())
    assert b"" == world.begin().recv(1)
    assert [None] == world.ended


def test_all_are_ended_with_the_process(world: HandshakesLoop) -> None:
    for _ in range(3):
        world.begin()
    world.handshakes.end_all()
    assert [None] * 3 == world.ended
    assert not world.poller.get_map()


def test_a_connection_that_is_closed_is_drained_until_the_client_closes(world: HandshakesLoop) -> None:
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


def test_a_client_that_never_closes_is_left_after_a_while(world: HandshakesLoop) -> None:
    ours, _theirs = world.pair()
    world.closing.begin(ours)
    world.clock.advance(1.9)
    world.closing.end_overdue()
    assert 1 == len(world.closing)
    world.clock.advance(0.1)
    world.closing.end_overdue()
    assert -1 == ours.fileno()


def test_closings_are_bounded_and_the_oldest_goes(world: HandshakesLoop) -> None:
    pairs = [world.pair() for _ in range(5)]
    for ours, _ in pairs:
        world.closing.begin(ours)
    assert 3 == len(world.closing)
    assert [-1, -1] == [ours.fileno() for ours, _ in pairs[:2]]
    world.closing.begin(pairs[0][0])  # one that is gone needs no closing
    assert 3 == len(world.closing)


def test_what_ended_in_the_same_turn_of_the_loop_is_left_alone(world: HandshakesLoop) -> None:
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


def test_failures_outnumber_lines_of_the_log(world: HandshakesLoop, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10):
        world.begin().close()
        world.turn()
    assert 1 == len(caplog.records)
    world.clock.advance(10)
    world.begin().close()
    world.turn()
    assert 2 == len(caplog.records)
    assert {FAILED: 11} == world.tls.counts()


def test_a_context_asks_for_new_tls_and_for_a_certificate_and_resumes_nothing(world: HandshakesLoop) -> None:
    server = server_of(world.ca)
    made = make_context(Material(server.certificate, server.key, world.ca.certificate))
    assert ssl.TLSVersion.TLSv1_2 == made.minimum_version
    assert ssl.CERT_REQUIRED == made.verify_mode
    assert 0 == made.num_tickets
    assert NO_CERTIFICATE not in world.tls.counts()
    assert "PRIVATE" not in repr(Material(server.certificate, server.key, world.ca.certificate))


def test_the_same_certificates_make_no_new_context(world: HandshakesLoop) -> None:
    before = world.tls.context
    server = server_of(world.ca)
    assert world.tls.use(server.certificate, server.key, world.ca.certificate)
    after = world.tls.context
    assert before is not after
    assert not world.tls.use(server.certificate, server.key, world.ca.certificate)
    assert after is world.tls.context
