"""TLS of the gRPC service, for certificates that change while it runs: of the leader's server, and of its clients.

Both sides show a certificate of the webhook's chain and accept no other; the leader also requires the webhook's name in
it, because the authority may sign for others. An open connection stays open when certificates change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import grpc

from controller.errors import NotReadyError, SchedulerError
from controller.serving.tls import Material

Current = Callable[[], Material | None]

_CHANNEL_OPTIONS: Final[Sequence[tuple[str, str | int]]] = (
    ("grpc.enable_http_proxy", 0),  # the leader is in the cluster
    ("grpc.use_local_subchannel_pool", 1),  # a new channel makes a new connection
    ("grpc.initial_reconnect_backoff_ms", 200),
    # The time for an attempt to connect, in spite of the name (gRPC, connection-backoff.md: MIN_CONNECT_TIMEOUT).
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
_COMMON_NAME: Final = "x509_common_name"
_DNS_NAMES: Final = "peer_dns"  # the alternative names that are DNS names
_MOST_CHARACTERS: Final = 60  # of a stranger's names in a message


class StrangerError(SchedulerError):
    """The caller's certificate is valid, but for another client, which the message names."""


def check_caller(peer: Mapping[str, Iterable[bytes]], allowed: Collection[str], denial: str) -> None:
    """Raise StrangerError unless one of the `allowed` names is the certificate's common name or one of its DNS names.

    `peer`: gRPC's auth context of the connection. `denial`: follows the certificate's names in the message.
    """
    names = [shown.decode(errors="replace") for key in (_COMMON_NAME, _DNS_NAMES) for shown in peer.get(key, ())]
    if not set(names) & set(allowed):
        shown = ", ".join(names)[:_MOST_CHARACTERS] or "nobody"
        raise StrangerError(f"the client certificate is for {shown}{denial}")


def server_credentials(current: Current) -> grpc.ServerCredentials:
    """Credentials that ask `current` at every handshake, and require a certificate of each client.

    While `current` answers None, the last answer holds. NotReadyError when there has been none yet.
    """
    used, lock = current(), threading.Lock()
    if used is None:
        raise NotReadyError("the gRPC server has no certificate yet")

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC, in any of its threads, before a handshake: the new configuration; None when nothing has
        changed."""
        nonlocal used
        material = current()
        with lock:
            if material is None or material == used:
                return None
            used = material
        return _configuration(material)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used),
        changed,  # type: ignore[arg-type]  # the stubs do not know that None says "no change"
        require_client_authentication=True,
    )


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.certificate)], material.client_ca)


@dataclass(slots=True)
class _Use:
    """One channel, and how many need it: each call on it, and `ReloadingChannel` while it is the present one."""

    channel: grpc.Channel
    material: Material
    holders: int = 1


class ReloadingChannel:
    """The channel to the leader, which is replaced when our certificate or the authorities that we trust change. A
    former channel is closed when its last call is over, since closing it would cancel that call.

    Threads: any. Blocks: never. I/O: that of gRPC.
    """

    def __init__(self, target: str, server_name: str, current: Current) -> None:
        self._target, self._current = target, current
        self._options = [*_CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", server_name)]
        self._lock = threading.Lock()  # guards the field below and what it points to
        self._present: _Use | None = None

    @contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        """The channel for one call. NotReadyError while there is no certificate to call with."""
        material, old = self._current(), None
        if material is None:
            raise NotReadyError("there is no certificate to call the leader with")
        with self._lock:
            if self._present is not None and self._present.material != material:
                old, self._present = self._present, None
            if self._present is None:
                self._present = _Use(self._connect(material), material)
            use = self._present
            use.holders += 1
        self._release(old)
        try:
            yield use.channel
        finally:
            self._release(use)

    def drop(self, channel: grpc.Channel) -> None:
        """Have the next call use a new connection, unless that channel was replaced already."""
        with self._lock:
            if self._present is None or self._present.channel is not channel:
                return
            old, self._present = self._present, None
        self._release(old)

    def close(self) -> None:
        """Keep no channel any more; a call that is under way ends by itself."""
        with self._lock:
            old, self._present = self._present, None
        self._release(old)

    def _release(self, use: _Use | None) -> None:
        """Close the channel unless another call needs it."""
        if use is None:
            return
        with self._lock:
            use.holders -= 1
            is_last = not use.holders
        if is_last:
            use.channel.close()

    def _connect(self, material: Material) -> grpc.Channel:
        # Opens no connection yet.
        credentials = grpc.ssl_channel_credentials(material.client_ca, material.key, material.certificate)
        return grpc.secure_channel(self._target, credentials, options=self._options)
