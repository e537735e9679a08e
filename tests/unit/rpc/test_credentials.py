"""gRPC over TLS on loopback: who is let in, and certificates of both sides that change under calls."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from certs.authority import LeafSpec, Pair, bundle_of, sign
from controller.errors import NotReadyError
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import ReloadingChannel, server_credentials
from controller.rpc.wire import HOLD_EXPANSION
from controller.serving.tls import Material
from tests.unit.rpc.leaders import HOST, NAME, Chain, Leader, Reply, ask
from tests.unit.serving.tls_files import DAY, authority, now
from tests.waiting import wait_until

SECONDS = 20.0
REQUEST = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)


def material(signer: Pair, *trusted: Pair, client: bool = False) -> Material:
    spec = LeafSpec("client", DAY, is_client=True) if client else LeafSpec("server", DAY, (NAME,))
    leaf = sign(signer, spec, now())
    return Material(leaf.certificate, leaf.key, bundle_of(trusted or (signer,)))


class CallingClient:
    def __init__(self, server: Leader, shown: Material | None) -> None:
        self.shown = shown
        self.way = ReloadingChannel(server.address, NAME, lambda: self.shown)

    def is_answered(self) -> bool:
        return bool(ask(self.way, REQUEST, seconds=SECONDS).verdict == Reply.NOT_CHECKED)

    def refusal(self) -> grpc.StatusCode:
        """How one fresh connection ends; AssertionError when the call is answered."""
        with pytest.raises(grpc.RpcError) as caught:
            self.is_answered()
        self.way.close()
        code: grpc.StatusCode = caught.value.code()
        return code


@pytest.fixture
def ca(chain: Chain) -> Pair:
    return chain.ca


@pytest.fixture
def server(chain: Chain) -> Iterator[Leader]:
    with Leader(chain, client_name="") as leader:
        yield leader


@pytest.fixture
def client(server: Leader, ca: Pair) -> Iterator[CallingClient]:
    client = CallingClient(server, material(ca, client=True))
    yield client
    client.way.close()


def invoke(channel: grpc.Channel) -> None:
    call: Any = channel.unary_unary(HOLD_EXPANSION, pb.HoldExpansionRequest.SerializeToString)
    call(REQUEST, timeout=SECONDS)


def test_strangers_are_refused(server: Leader, client: CallingClient, ca: Pair) -> None:
    other = authority()
    foreign = CallingClient(server, material(other, ca, client=True))
    assert grpc.StatusCode.UNAVAILABLE == foreign.refusal()
    a_server = CallingClient(server, material(ca))
    assert grpc.StatusCode.UNAVAILABLE == a_server.refusal()
    nobody = grpc.secure_channel(
        server.address,
        grpc.ssl_channel_credentials(ca.certificate),
        options=[("grpc.ssl_target_name_override", NAME), ("grpc.use_local_subchannel_pool", 1)],
    )
    with nobody, pytest.raises(grpc.RpcError):
        invoke(nobody)
    assert client.is_answered()


def test_a_server_that_is_not_the_leader_is_refused(server: Leader, ca: Pair) -> None:
    distrusting = CallingClient(server, material(ca, authority(), client=True))
    assert grpc.StatusCode.UNAVAILABLE == distrusting.refusal()
    other_name = sign(ca, LeafSpec("server", DAY, ("another.test.svc",)), now())
    server.material = Material(other_name.certificate, other_name.key, ca.certificate)
    assert grpc.StatusCode.UNAVAILABLE == CallingClient(server, material(ca, client=True)).refusal()


def test_both_sides_change_certificates_without_a_failed_call(server: Leader, client: CallingClient, ca: Pair) -> None:
    present = ca
    for _ in range(3):
        coming = authority()
        for signer in (present, coming):
            server.material = material(signer, present, coming)
            assert client.is_answered()  # not known to the client yet
            client.shown = material(signer, present, coming, client=True)
            assert client.is_answered()
        server.material = material(coming, coming)
        client.shown = material(coming, coming, client=True)
        assert client.is_answered()
        # The former authority's clients are strangers from now on.
        assert grpc.StatusCode.UNAVAILABLE == CallingClient(server, material(present, coming, client=True)).refusal()
        present = coming


def test_a_new_certificate_is_used_by_a_new_connection_and_calls_under_way_end_well(
    server: Leader, client: CallingClient, ca: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, go_on = threading.Event(), threading.Event()
    real = server.cluster.allocator.expansions.hold

    def hold(*arguments: Any) -> Any:
        waiting.set()
        assert go_on.wait(SECONDS)
        return real(*arguments)

    monkeypatch.setattr(server.cluster.allocator.expansions, "hold", hold)
    answers = futures.ThreadPoolExecutor(1)
    first = answers.submit(client.is_answered)
    assert waiting.wait(SECONDS)
    monkeypatch.undo()
    with client.way.channel() as before:
        pass
    client.shown = material(ca, client=True)
    with client.way.channel() as after:
        assert after is not before
    assert client.is_answered()
    go_on.set()
    assert first.result(SECONDS)
    wait_until(lambda: _is_closed(before))
    answers.shutdown()


def test_a_connection_may_take_longer_than_the_pause_before_the_next_try(server: Leader, ca: Pair) -> None:
    """As it does on a busy machine, or from far away: nothing comes back for a second."""
    shown = material(ca, client=True)
    with socket.create_server((HOST, 0)) as listener, futures.ThreadPoolExecutor(3) as threads:
        way = ReloadingChannel(f"{HOST}:{listener.getsockname()[1]}", NAME, lambda: shown)
        answer = threads.submit(ask, way, REQUEST, seconds=SECONDS)
        near, far = listener.accept()[0], socket.create_connection((HOST, server.server.port))
        assert not futures.wait([answer], timeout=1.0).done
        for source, sink in ((near, far), (far, near)):
            threads.submit(_pass_on, source, sink)
        assert Reply.NOT_CHECKED == answer.result(SECONDS).verdict
        way.close()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def test_a_dropped_channel_is_made_anew_once(client: CallingClient) -> None:
    with client.way.channel() as first:
        client.way.drop(first)
        with client.way.channel() as second:
            assert second is not first
        client.way.drop(first)  # somebody else noticed later
        with client.way.channel() as third:
            assert third is second
    assert client.is_answered()


def test_without_a_certificate_nobody_serves_or_calls(server: Leader, client: CallingClient) -> None:
    with pytest.raises(NotReadyError):
        server_credentials(lambda: None)
    client.shown = None
    with pytest.raises(NotReadyError):
        client.is_answered()


@pytest.mark.parametrize(
    "shown", [None, Material(b"garbage", b"garbage", b"garbage")], ids=["nothing is known", "it cannot be used"]
)
def test_the_certificate_in_use_stays_while(server: Leader, client: CallingClient, shown: Material | None) -> None:
    server.material = shown
    client.is_answered()
    client.way.close()
    assert client.is_answered()


def _is_closed(channel: grpc.Channel) -> bool:
    try:
        invoke(channel)
    except ValueError:
        return True
    return False
