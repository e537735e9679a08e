"""gRPC over TLS on loopback: who is let in, and certificates of both sides that change under calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from certs.authority import LeafSpec, Pair, bundle_of, make_authority, sign
from controller.errors import NotReadyError
from controller.rpc.credentials import SERVER_OPTIONS, ReloadingChannel, server_credentials
from controller.serving.tls import Material
from tests.fakes.waiting import wait_until
from tests.unit.serving.tls_files import DAY, now

NAME = "leader.test.svc"
CALL = "/Test/Call"
SECONDS = 20.0


def authority() -> Pair:
    return make_authority("ca", 10 * DAY, now())


def material(signer: Pair, *trusted: Pair, client: bool = False) -> Material:
    spec = LeafSpec("client", DAY, is_client=True) if client else LeafSpec("server", DAY, (NAME,))
    leaf = sign(signer, spec, now())
    return Material(leaf.certificate, leaf.key, bundle_of(trusted or (signer,)))


def invoke(channel: grpc.Channel, body: bytes = b"x") -> bytes:
    call: Any = channel.unary_unary(CALL)
    answer: bytes = call(body, timeout=SECONDS)
    return answer


class Server(grpc.GenericRpcHandler):
    """Echoes; a call whose body is b"wait" waits for `go_on`."""

    def __init__(self, shown: Material) -> None:
        self.shown: Material | None = shown
        self.go_on, self.waiting = threading.Event(), threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(4), [self], options=list(SERVER_OPTIONS))
        port = self._server.add_secure_port("127.0.0.1:0", server_credentials(lambda: self.shown))
        self.target = f"127.0.0.1:{port}"
        self._server.start()

    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._echo)

    def _echo(self, request: bytes, _context: Any) -> bytes:
        if request == b"wait":
            self.waiting.set()
            assert self.go_on.wait(SECONDS)
        return request

    def stop(self) -> None:
        self.go_on.set()
        self._server.stop(None).wait(SECONDS)


class Client:
    def __init__(self, server: Server, shown: Material | None) -> None:
        self.shown = shown
        self.way = ReloadingChannel(server.target, NAME, lambda: self.shown)

    def call(self, body: bytes = b"x") -> bytes:
        with self.way.channel() as channel:
            return invoke(channel, body)

    def refusal(self) -> grpc.StatusCode:
        """How one fresh connection ends; AssertionError when the call is answered."""
        with pytest.raises(grpc.RpcError) as caught, self.way.channel() as channel:
            invoke(channel)
        self.way.close()
        code: grpc.StatusCode = caught.value.code()
        return code


@pytest.fixture
def ca() -> Pair:
    return authority()


@pytest.fixture
def server(ca: Pair) -> Iterator[Server]:
    server = Server(material(ca))
    yield server
    server.stop()


@pytest.fixture
def client(server: Server, ca: Pair) -> Iterator[Client]:
    client = Client(server, material(ca, client=True))
    yield client
    client.way.close()


def test_a_client_of_our_authority_is_answered(client: Client) -> None:
    assert b"hello" == client.call(b"hello")


def test_strangers_are_refused(server: Server, client: Client, ca: Pair) -> None:
    other = authority()
    foreign = Client(server, material(other, ca, client=True))
    assert grpc.StatusCode.UNAVAILABLE == foreign.refusal()
    a_server = Client(server, material(ca))
    assert grpc.StatusCode.UNAVAILABLE == a_server.refusal()
    nobody = grpc.secure_channel(
        server.target,
        grpc.ssl_channel_credentials(ca.certificate),
        options=[("grpc.ssl_target_name_override", NAME), ("grpc.use_local_subchannel_pool", 1)],
    )
    with nobody, pytest.raises(grpc.RpcError):
        invoke(nobody)
    assert b"x" == client.call()


def test_a_server_that_is_not_the_leader_is_refused(server: Server, ca: Pair) -> None:
    distrusting = Client(server, material(ca, authority(), client=True))
    assert grpc.StatusCode.UNAVAILABLE == distrusting.refusal()
    other_name = sign(ca, LeafSpec("server", DAY, ("another.test.svc",)), now())
    server.shown = Material(other_name.certificate, other_name.key, ca.certificate)
    assert grpc.StatusCode.UNAVAILABLE == Client(server, material(ca, client=True)).refusal()


def test_both_sides_change_leaves_and_authorities_without_a_failed_call(
    server: Server, client: Client, ca: Pair
) -> None:
    present = ca
    for _ in range(3):
        coming = authority()
        for signer in (present, coming):
            server.shown = material(signer, present, coming)
            assert b"x" == client.call()  # not known to the client yet
            client.shown = material(signer, present, coming, client=True)
            assert b"x" == client.call()
        server.shown = material(coming, coming)
        client.shown = material(coming, coming, client=True)
        assert b"x" == client.call()
        # The former authority's clients are strangers from now on.
        assert grpc.StatusCode.UNAVAILABLE == Client(server, material(present, coming, client=True)).refusal()
        present = coming


def test_a_new_certificate_is_used_by_a_new_connection_and_calls_under_way_end_well(
    server: Server, client: Client, ca: Pair
) -> None:
    answers = futures.ThreadPoolExecutor(1)
    first = answers.submit(client.call, b"wait")
    assert server.waiting.wait(SECONDS)
    with client.way.channel() as before:
        pass
    client.shown = material(ca, client=True)
    with client.way.channel() as after:
        assert after is not before
    assert b"x" == client.call()
    server.go_on.set()
    assert b"wait" == first.result(SECONDS)
    wait_until(lambda: _is_closed(before))
    answers.shutdown()


def test_a_dropped_channel_is_made_anew_once(client: Client) -> None:
    with client.way.channel() as first:
        client.way.drop(first)
        with client.way.channel() as second:
            assert second is not first
        client.way.drop(first)  # somebody else noticed later
        with client.way.channel() as third:
            assert third is second
    assert b"x" == client.call()


def test_without_a_certificate_nobody_serves_or_calls(server: Server, client: Client) -> None:
    with pytest.raises(NotReadyError):
        server_credentials(lambda: None)
    client.shown = None
    with pytest.raises(NotReadyError):
        client.call()


def test_while_nothing_is_known_the_last_certificate_holds(server: Server, client: Client) -> None:
    server.shown = None
    assert b"x" == client.call()


def test_what_cannot_be_used_leaves_the_certificate_in_use(server: Server, client: Client, ca: Pair) -> None:
    server.shown = Material(b"garbage", b"garbage", ca.certificate)
    client.call()
    client.way.close()
    assert b"x" == client.call()


def _is_closed(channel: grpc.Channel) -> bool:
    try:
        invoke(channel)
    except ValueError:
        return True
    return False
