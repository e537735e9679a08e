"""Gives the extender's server its certificates, from where the settings say that they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from certs.authority import CertificateError, read_authorities, read_pair
from certs.keeper import SERVER, Certificates, Mode, ServiceNames, extender_keeper, extender_names
from certs.secret import SecretStore
from controller.clock import Clock
from controller.kube.api import KubeApi
from controller.serving.tls import DirectoryFollower, ServerTls
from controller.settings import TLS_OFF, ProcessSettings

CA: Final = "ca"


class CertificateWorker(Protocol):
    """What keeps a server's certificates current, and what is known of them."""

    @property
    def is_serving(self) -> bool: ...
    @property
    def problems(self) -> tuple[str, ...]: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def expiries(self) -> Mapping[str, float]:
        """Seconds until each certificate ends."""
        ...


class NoCertificates:
    """The server speaks plain HTTP."""

    is_serving = True
    problems: tuple[str, ...] = ()

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def expiries(self) -> Mapping[str, float]:
        return {}


class MountedCertificates:
    """Follows the files of a directory. Threads, blocking and I/O: those of DirectoryFollower."""

    def __init__(self, directory: Path, tls: ServerTls, clock: Clock) -> None:
        self._tls, self._clock = tls, clock
        self._ends: Mapping[str, datetime] = {}
        self._follower = DirectoryFollower(directory, self._use)
        self.start, self.stop = self._follower.start, self._follower.stop

    @property
    def is_serving(self) -> bool:
        return self._tls.context is not None

    @property
    def problems(self) -> tuple[str, ...]:
        return (self._follower.problem,) if self._follower.problem else ()

    def expiries(self) -> Mapping[str, float]:
        now = self._clock.now_utc()
        return {name: (end - now).total_seconds() for name, end in self._ends.items()}

    def _use(self, certificate: bytes, key: bytes, client_ca: bytes) -> bool:
        is_new = self._tls.use(certificate, key, client_ca)
        if is_new:
            self._ends = _ends(certificate, key, client_ca)
        return is_new


def _ends(certificate: bytes, key: bytes, client_ca: bytes) -> dict[str, datetime]:
    """When these end, as far as we can read what the library could."""
    ends: dict[str, datetime] = {}
    try:
        ends[SERVER] = read_pair(certificate, key, what=SERVER).facts.not_after_utc
        ends[CA] = min(pair.facts.not_after_utc for pair in read_authorities(client_ca, what=CA))
    except CertificateError:
        pass
    return ends


def certificate_worker(
    settings: ProcessSettings, api: KubeApi, clock: Clock, tls: ServerTls | None, is_leading: Callable[[], bool]
) -> CertificateWorker:
    """What keeps `tls` current. Does nothing yet."""
    if tls is None or settings.tls_mode == TLS_OFF:
        return NoCertificates()
    if settings.tls_cert_dir:
        return MountedCertificates(Path(settings.tls_cert_dir), tls, clock)
    store = SecretStore(api, settings.namespace)
    names = extender_names(settings.tls_secret, settings.tls_client_secret, settings.tls_ca_secret)
    leafs = ServiceNames(
        store,
        settings.service,
        settings.namespace,
        domain=settings.cluster_domain,
        more=[name for name in settings.tls_extra_names.split(",") if name],
    )
    keeper = extender_keeper(store, clock, names, leafs)
    return Certificates(Mode(settings.tls_mode), store, names, keeper, clock, tls.use, is_leading)
