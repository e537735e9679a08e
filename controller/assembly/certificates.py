"""Gives the controller's servers their certificates, from the source that the settings name, and keeps the webhook's
chain."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from certs import webhook
from certs.authority import CertificateError, read_authorities, read_pair
from certs.evidence import PublishedBundles, Spread
from certs.keeper import SERVER, CertificateMode, Certificates, NoCertificates, extender_plan
from certs.secret import SecretStore
from controller.clock import Clock
from controller.kube.api import KubeApi
from controller.kube.recorder import Recorder, Target
from controller.serving.tls import DirectoryFollower, Material, ServerTls
from controller.settings import PLAIN_HTTP, TLS_OFF, ProcessSettings

CA: Final = "ca"
PLAIN_HTTP_RISK: Final = (
    f"plain HTTP, as --tls-mode {PLAIN_HTTP} says: whoever reaches it is taken for kube-scheduler, sees which nodes "
    "are full, and can have room held for pending pods"
)

log = logging.getLogger(__name__)


def tell_plain_http(recorder: Recorder, settings: ProcessSettings) -> None:
    """Warns in the log and by an Event on the Service: kube-scheduler needs no certificate."""
    log.warning("port %d: %s", settings.extender_port, PLAIN_HTTP_RISK)
    service = Target("Service", settings.namespace, settings.service)
    recorder.note(service, "PlainHTTP", f"port {settings.extender_port}: {PLAIN_HTTP_RISK}", is_warning=True)


def transport_status(settings: ProcessSettings) -> Mapping[str, str]:
    """The section of `/status` about the extender's port."""
    return {"tls_mode": settings.tls_mode, "gives_up": PLAIN_HTTP_RISK if settings.tls_mode == PLAIN_HTTP else ""}


class MountedCertificates(DirectoryFollower):
    """Follows the files of a directory. Threads, blocking and I/O: those of DirectoryFollower."""

    def __init__(self, directory: Path, tls: ServerTls, clock: Clock) -> None:
        super().__init__(directory, self._serve_with)
        self._tls, self._clock = tls, clock
        self._ends: Mapping[str, datetime] = {}

    @property
    def is_serving(self) -> bool:
        return self._tls.context is not None

    @property
    def problems(self) -> tuple[str, ...]:
        return (self.problem,) if self.problem else ()

    @property
    def bundle(self) -> bytes:
        """The authorities in the directory; empty while there are none."""
        material = self._tls.material
        return material.client_ca if material is not None else b""

    def expiries(self) -> Mapping[str, float]:
        now = self._clock.now_utc()
        return {name: (end - now).total_seconds() for name, end in self._ends.items()}

    def _serve_with(self, certificate: bytes, key: bytes, client_ca: bytes) -> bool:
        is_new = self._tls.use(certificate, key, client_ca)
        if is_new:
            self._ends = _ends(certificate, key, client_ca)
        return is_new


def _ends(certificate: bytes, key: bytes, client_ca: bytes) -> dict[str, datetime]:
    """When these end, as far as they can be read."""
    ends: dict[str, datetime] = {}
    try:
        ends[SERVER] = read_pair(certificate, key, what=SERVER).facts.not_after_utc
        ends[CA] = min(pair.facts.not_after_utc for pair in read_authorities(client_ca, what=CA))
    except CertificateError:
        pass
    return ends


CertificateWorker = Certificates | MountedCertificates | NoCertificates


def certificate_worker(
    settings: ProcessSettings, api: KubeApi, clock: Clock, tls: ServerTls | None, is_leading: Callable[[], bool]
) -> CertificateWorker:
    """The worker that keeps `tls` current; not started yet."""
    if tls is None or settings.tls_mode == PLAIN_HTTP:
        return NoCertificates()
    if settings.tls_cert_dir:
        return MountedCertificates(Path(settings.tls_cert_dir), tls, clock)
    store = SecretStore(api, settings.namespace)
    plan = extender_plan(store, settings)
    return Certificates(CertificateMode(settings.tls_mode), store, plan, clock, {SERVER: tls.use}, is_leading)


class NoWebhookChain(NoCertificates):
    """Stands for the chain where there is no webhook."""

    def ca_bundle(self) -> bytes:
        return b""

    def grpc_server(self) -> Material | None:
        return None

    def status(self) -> Mapping[str, Any]:
        return {}


class KeptWebhookChain(Certificates):
    """The webhook's certificates in their Secrets, which the leader keeps in order. `is_serving`: its gRPC server has
    one. Threads, blocking and I/O: those of Certificates."""

    def __init__(
        self,
        settings: ProcessSettings,
        api: KubeApi,
        clock: Clock,
        is_leading: Callable[[], bool],
        pace: webhook.Pace,
    ) -> None:
        store = SecretStore(api, settings.namespace)
        self._spread = Spread(PublishedBundles(api), clock, pace.spread_seconds)
        self._material: Material | None = None
        super().__init__(
            CertificateMode(settings.webhook_tls_mode),
            store,
            webhook.webhook_plan(settings, pace.checked()),
            clock,
            {webhook.LEADER: self._use},
            is_leading,
            evidence=self._spread,
            following=webhook.webhook_following(PublishedBundles(api), pace),
            thread="webhook-certificates",
            look_every_seconds=pace.look_every_seconds,
        )

    def _use(self, certificate: bytes, key: bytes, authorities: bytes) -> bool:
        former, self._material = self._material, Material(certificate, key, authorities)
        return self._material != former

    @property
    def problems(self) -> tuple[str, ...]:
        return (*super().problems, *((self._spread.problem,) if self._spread.problem else ()))

    def ca_bundle(self) -> bytes:
        """PEM of the authorities that API servers have to trust: present, next, former. Empty while unknown."""
        return self.bundle

    def grpc_server(self) -> Material | None:
        """What the leader's gRPC server shows, and which clients it accepts. None: it cannot serve yet."""
        return self._material

    def status(self) -> Mapping[str, Any]:
        """Its section of `/status`."""
        ends = {name: round(seconds) for name, seconds in self.expiries().items()}
        return {"ends_in_seconds": ends, "problems": self.problems}


WebhookChain = KeptWebhookChain | NoWebhookChain


def webhook_chain(
    settings: ProcessSettings,
    api: KubeApi,
    clock: Clock,
    is_leading: Callable[[], bool],
    *,
    pace: webhook.Pace = webhook.DEFAULT_PACE,
) -> WebhookChain:
    """The worker that keeps the certificates of the webhook and of the gRPC server; not started yet."""
    if settings.webhook_tls_mode == TLS_OFF:
        return NoWebhookChain()
    return KeptWebhookChain(settings, api, clock, is_leading, pace)
