"""Where the status document is served: on loopback, and, where a flag asks for it, on the network.

On the network it is served over TLS, to those whose bearer token the API server knows (TokenReview) and whose account
it lets `get` the path (SubjectAccessReview), as kubelet and kube-scheduler guard pages of theirs.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controller.errors import ClusterError, ConfigError
from controller.kube.api import KubeApi
from controller.kube.resources import ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from controller.process.status_port import LOOPBACK, StatusServer, create_status_app
from controller.serving.tls import make_context, read_directory
from controller.settings import ProcessSettings

REVIEW_SECONDS: Final = 3.0
MOST_REVIEWS: Final = 4  # callers that are checked at a time; others get an error and try again

log = logging.getLogger(__name__)


class StatusCallers:
    """Decides who may read a path, by the API server's reviews of token and account. Threads: any. Blocks: for these
    two calls. I/O: those."""

    def __init__(self, api: KubeApi) -> None:
        self._api, self._places = api, threading.BoundedSemaphore(MOST_REVIEWS)

    def refusal(self, authorization: str, path: str) -> tuple[str, str] | None:
        """None if the caller may read; otherwise the HTTP status and the reason."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return "401 Unauthorized", "a bearer token is needed"
        if not self._places.acquire(blocking=False):
            return "503 Service Unavailable", "too many callers at once"
        try:
            return self._refusal(token.strip(), path)
        except ClusterError as error:
            log.warning("the token of a caller of %s could not be checked: %s", path, error)
            return "503 Service Unavailable", "the API server could not check who may read this"
        finally:
            self._places.release()

    def _refusal(self, token: str, path: str) -> tuple[str, str] | None:
        found = self._review(TOKEN_REVIEWS, {"token": token})
        if found.get("authenticated") is not True:
            return "401 Unauthorized", "the API server does not know this token"
        who = found.get("user") or {}
        user = {"user": who.get("username"), **{key: who[key] for key in ("uid", "groups", "extra") if key in who}}
        verdict = self._review(ACCESS_REVIEWS, {**user, "nonResourceAttributes": {"path": path, "verb": "get"}})
        return None if verdict.get("allowed") is True else ("403 Forbidden", f"this account may not get {path}")

    def _review(self, resource: Resource, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        status: Mapping[str, Any] = self._api.create(resource, None, body, timeout=REVIEW_SECONDS).get("status") or {}
        return status


def status_servers(
    settings: ProcessSettings, api: KubeApi, status: Callable[[], Mapping[str, Any]]
) -> Sequence[StatusServer]:
    """The servers of the status document; not started yet. ConfigError if the certificate for the network cannot be
    used."""
    servers = [StatusServer("status", create_status_app(status), LOOPBACK, settings.status_port)]
    if settings.status_tls_port:
        directory = Path(settings.status_tls_cert_dir)
        _context(directory)
        app = create_status_app(status, StatusCallers(api).refusal)
        address, port = settings.metrics_address, settings.status_tls_port
        servers.append(StatusServer("status-tls", app, address, port, lambda: _present_context(directory)))
    return servers


def _context(directory: Path) -> ssl.SSLContext:
    return make_context(read_directory(directory, with_client_ca=False), lets_anybody_in=True)


def _present_context(directory: Path) -> ssl.SSLContext:
    """Made for each connection, of which there are few, so that a renewed certificate is used without a restart."""
    try:
        return _context(directory)
    except ConfigError as error:
        log.error("status-tls-cert-dir: %s", error)
        raise OSError(str(error)) from error  # which ends this connection alone
