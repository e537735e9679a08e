"""Where the status port is served: on loopback, where whoever may forward a port to the pod reaches it, and on the
network over TLS, for those who may read."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.assembly.certificates import CertificateWorker
from controller.assembly.status_access import StatusCallers
from controller.assembly.status_trust import StatusTrust
from controller.clock import Clock
from controller.errors import ConfigError
from controller.kube.api import KubeApi
from controller.process.status_app import Answer, StatusApp
from controller.process.status_port import LOOPBACK, StatusServer
from controller.process.worker import ProcessPart
from controller.serving.tls import CLIENT_CA_FILE, Material, ServerTls, make_context, read_directory
from controller.settings import ProcessSettings

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

LOCALHOST: Final = "localhost"


class StatusListeners:
    """Builds both servers, and what publishes the authorities of the second one; starts nothing. ConfigError if
    `--status-tls-cert-dir` cannot be used."""

    def __init__(
        self,
        settings: ProcessSettings,
        api: KubeApi,
        clock: Clock,
        *,
        tls: ServerTls | None,
        certificates: CertificateWorker,
        is_leading: Callable[[], bool],
    ) -> None:
        """`tls`, `certificates`: the extender's own; without them, and without that directory, there is no second
        port."""
        self._settings, self._tls, self._certificates = settings, tls, certificates
        self._directory = Path(settings.status_tls_cert_dir) if settings.status_tls_cert_dir else None
        self._callers = StatusCallers(api, clock, settings.namespace)
        self._trust: StatusTrust | None = None
        self._made: tuple[Material, ssl.SSLContext] | None = None
        if self._directory is not None:
            _context(self._material())
        if settings.status_tls_port and (tls is not None or self._directory is not None):
            host = f"[{settings.pod_ip}]" if ":" in settings.pod_ip else settings.pod_ip
            self._trust = StatusTrust(
                api,
                settings.namespace,
                leader=settings.pod_name,
                address=f"{host}:{settings.status_tls_port}",
                authorities=self._authorities,
                is_leading=is_leading,
            )

    def parts(self, answers: Mapping[str, Answer], page: WSGIApplication | None) -> Sequence[ProcessPart]:
        settings = self._settings
        service, namespace = settings.service, settings.namespace
        names = (service, f"{service}.{namespace}", f"{service}.{namespace}.svc")
        hosts = frozenset((LOCALHOST, *names, f"{names[-1]}.{settings.cluster_domain}"))
        local = StatusApp(answers, hosts=hosts, page=page)
        found: list[ProcessPart] = [StatusServer("status", local, LOOPBACK, settings.status_port)]
        if self._trust is not None:
            # Whoever calls here brings a token, which no browser sends by itself: any name will do.
            app = StatusApp(answers, admit=self._callers.admit, hosts=None, page=page)
            address, port = settings.metrics_address, settings.status_tls_port
            found += [StatusServer("status-tls", app, address, port, self._present_context), self._trust]
        return found

    def term_begun(self) -> None:
        if self._trust is not None:
            self._trust.worker.wake()

    def problem(self) -> str:
        """Why callers do not find what is published for them; "" if they do."""
        return self._trust.problem if self._trust is not None else ""

    def _present_context(self) -> ssl.SSLContext:
        """Asked for with each connection, so that a renewed certificate is used without a restart. Threads: one."""
        try:
            material = self._material()
            if self._made is None or self._made[0] != material:
                self._made = material, _context(material)
        except ConfigError as error:
            raise OSError(str(error)) from error  # which ends this connection alone
        return self._made[1]

    def _material(self) -> Material:
        if self._directory is not None:
            return read_directory(self._directory, with_client_ca=False)
        found = self._tls.material if self._tls is not None else None
        if found is None:
            raise ConfigError("there is no certificate yet")
        return found

    def _authorities(self) -> bytes | None:
        """With `--status-tls-cert-dir`, its `ca.crt`, if there is one; else those of the extender's certificate, once
        they are known."""
        if self._directory is not None:
            has_any = (self._directory / CLIENT_CA_FILE).exists()
            return read_directory(self._directory).client_ca if has_any else b""
        return self._certificates.bundle or None


def _context(material: Material) -> ssl.SSLContext:
    return make_context(replace(material, client_ca=b""), lets_anybody_in=True)
