"""The documents of the process that leads: who that is, by its Lease, and one way to it that works; and the flags of
the commands that show them.

The ways, in this order: a table of addresses (`$LONGHORN_SCHEDULER_ADDRESSES`, for clusters without a kubelet), the
loopback of this pod or that `--status-port` names, the pod's address over TLS with the caller's token, and
port-forward.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import click
import msgspec

from controller.clock import Clock, SystemClock
from controller.commands.terminal import duration, print_document, progress
from controller.errors import (
    ClusterError,
    ConfigError,
    ForbiddenError,
    NotLeaderError,
    NotReadyError,
)
from controller.model.names import STATUS_CONFIG_MAP
from controller.process.flags import PORT, access, namespace
from controller.settings import ProcessSettings

if TYPE_CHECKING:
    from controller.kube.api import KubeApi

ADDRESSES: Final = "LONGHORN_SCHEDULER_ADDRESSES"
AUTHORITIES, LEADER, ADDRESS = "ca.crt", "leader", "address"  # keys of the ConfigMap
SELECTOR: Final = "app.kubernetes.io/name=longhorn-scheduler-extender"
RIGHTS: Final = "docs/command.md says which rights are needed; or run the command in the leader's pod by kubectl exec"
PORT_NAME: Final = "status"
LOOPBACK: Final = "127.0.0.1"
CONNECT_SECONDS: Final = 2.0  # to a pod's address, which may lead nowhere from here
READ_SECONDS: Final = 20.0
MOST_BYTES: Final = 256 * 1024**2
_DEFAULTS: Final = ProcessSettings()
_UNREACHED: Final = (OSError, http.client.HTTPException, ClusterError)
FORMS: Final = ("json", "yaml", "wide")
Document = TypeVar("Document")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class NobodyLeadsError(NotLeaderError):
    """The Lease names nobody that is there."""


class StatusError(NotReadyError):
    """A process was asked and answered with an HTTP `status` other than 200."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


def _connect(kubeconfig: str, context: str) -> KubeApi:
    from controller.kube.api import ClientKubeApi  # half a second, which a question to this pod does not need

    return ClientKubeApi.load(kubeconfig, context)


def _forward(api: KubeApi, namespace: str, pod: str, port: int) -> socket.socket:
    from controller.kube.api import ClientKubeApi
    from controller.kube.port_forward import forwarded

    if not isinstance(api, ClientKubeApi):
        raise ConfigError("port-forward needs an API server")
    return forwarded(api, namespace, pod, port)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a process. `headers` go with each question."""

    name: str
    connect: Callable[[], socket.socket]
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, path: str) -> bytes:
        """The body of the answer. StatusError for another answer than 200; OSError or HTTPException for none."""
        connection = http.client.HTTPConnection("localhost", timeout=READ_SECONDS)
        connection.sock = self.connect()
        try:
            connection.sock.settimeout(READ_SECONDS)
            connection.request("GET", path, headers={"Accept": "application/json", **self.headers})
            response = connection.getresponse()
            body = response.read(MOST_BYTES)
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            said = body[:500].decode("utf-8", "replace").strip() or response.reason
            raise StatusError(response.status, f"{path}: {response.status}: {said}")
        return body


@dataclass
class StatusReader:
    """Asks the leader, and finds it. `status_port`: of loopback; then nobody is looked for. The fields behind it are
    the edges, for tests.

    Threads: one. Blocks: for the calls. I/O: the API server, the leader.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = _DEFAULTS.namespace
    status_port: int | None = None
    connect: Callable[[str, str], KubeApi] = _connect
    forward: Callable[[KubeApi, str, str, int], socket.socket] = _forward
    clock: Clock = field(default_factory=SystemClock)
    asked: str = ""  # the pod that answered, and how it was reached
    _api: KubeApi | None = None
    _way: Way | None = None

    def document(self, path: str, kind: type[Document], *, of_anybody: bool = False) -> Document:
        """What the leader serves there. Where nobody leads, or `of_anybody` may answer, that of another copy.

        NobodyLeadsError, StatusError, or another NotReadyError or ClusterError that says what was tried.
        """
        known = self._way
        found = self._decoded(path, kind, of_anybody=of_anybody)
        if known is not None and known is self._way and getattr(found, "is_leading", True) is False:
            self._way = None  # it led when it was found
            found = self._decoded(path, kind, of_anybody=of_anybody)
        return found

    def ask_pod(self, path: str, raw: Mapping[str, Any]) -> bytes:
        """What the copy of that pod answers there, whoever leads. Errors as of `document`."""
        known = self._way, self.asked
        try:
            return self._found(path, str(raw["metadata"]["name"]), dict(raw))
        finally:
            self._way, self.asked = known

    def _decoded(self, path: str, kind: type[Document], *, of_anybody: bool) -> Document:
        body = self._body(path, of_anybody=of_anybody)
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise NotReadyError(f"{self.asked}: its {path} is of another release than this command: {error}") from error

    def _body(self, path: str, *, of_anybody: bool) -> bytes:
        if self.status_port is not None:
            return self._of_loopback(path, self.status_port)
        if self._way is not None:
            way = self._way
            try:
                return way.ask(path)
            except StatusError as error:
                if error.status != http.HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
            except _UNREACHED:
                pass
            self._way = None
        try:
            return self._found(path, *self._leader())
        except (NobodyLeadsError, StatusError) as error:
            may_have_changed = isinstance(error, StatusError) and error.status == http.HTTPStatus.SERVICE_UNAVAILABLE
            if may_have_changed:  # found again once
                return self._found(path, *self._leader())
            if not of_anybody or isinstance(error, StatusError):
                raise
            other = self._anybody(error)
            return self._found(path, other["metadata"]["name"], other)

    def _of_loopback(self, path: str, port: int) -> bytes:
        self.asked = f"{LOOPBACK}:{port}"
        try:
            return _to(LOOPBACK, port).ask(path)
        except (OSError, http.client.HTTPException) as error:
            hint = "--status-port is for a pod of the suite, or a forwarded port"
            raise NotReadyError(f"http://{self.asked}{path}: {_why(error)}. {hint}") from error

    def _found(self, path: str, pod: str, raw: dict[str, Any]) -> bytes:
        """By the first way that is open."""
        tried = []
        for way in self._ways(pod, raw):
            try:
                body = way.ask(path)
            except StatusError as error:
                if error.status not in (401, 403):
                    raise
                tried.append(f"{way.name}: {error}")
            except _UNREACHED as error:
                tried.append(f"{way.name}: {_why(error)}")
            else:
                self._way, self.asked = way, f"{pod} ({way.name})"
                return body
        raise NotReadyError(f"pod {self.namespace}/{pod} was not reached: {'; '.join(tried)}. {RIGHTS}")

    def _ways(self, pod: str, raw: dict[str, Any]) -> Iterator[Way]:
        if table := os.environ.get(ADDRESSES):
            yield _by_table(table, pod)
            return
        if os.environ.get("POD_NAME") == pod:
            yield _to(LOOPBACK, _DEFAULTS.status_port, "loopback")
        headers = self.api.bearer()
        address, port = str((raw.get("status") or {}).get("podIP") or ""), _port_of(raw)
        if headers and address and port and (trust := self._trust()) is not None:
            name = f"{_DEFAULTS.service}.{self.namespace}.svc"
            yield Way(f"{address}:{port}", lambda: _over_tls(address, port, name, trust), headers)
        api = self.api
        yield Way("port-forward", lambda: self.forward(api, self.namespace, pod, _DEFAULTS.status_port))

    @property
    def api(self) -> KubeApi:
        if self._api is None:
            self._api = self.connect(self.kubeconfig, self.context)
        return self._api

    def _trust(self) -> str | None:
        """The authorities of the leader's certificate; "" where this machine's own have to do, None without access."""
        published = self._published()
        return str(published.get(AUTHORITIES, "")) if published is not None else None

    def _published(self) -> Mapping[str, str] | None:
        """What the leader tells callers of its status port; None without access."""
        from controller.kube.resources import CONFIG_MAPS

        try:
            return dict(self.api.get(CONFIG_MAPS, self.namespace, STATUS_CONFIG_MAP).get("data") or {})
        except ClusterError:
            return None

    def _leader(self) -> tuple[str, dict[str, Any]]:
        """The name and the object of the pod that the Lease names. NobodyLeadsError where none is at work. Whoever may
        read neither Lease nor pod is told by the ConfigMap of the status port, which everybody may read."""
        try:
            return self._by_lease()
        except ForbiddenError as error:
            if (told := self._published_leader()) is not None:
                return told
            raise NotReadyError(f"this account may not look for the leader: {error}. {RIGHTS}") from error

    def _published_leader(self) -> tuple[str, dict[str, Any]] | None:
        """As much of a pod as is published; None where nothing is, or without a token to go there with."""
        published = self._published() or {}
        pod, (host, _, port) = published.get(LEADER, ""), published.get(ADDRESS, "").rpartition(":")
        if not (pod and host and port.isdecimal() and self.api.bearer()):
            return None
        ports = [{"name": PORT_NAME, "containerPort": int(port)}]
        return pod, {"spec": {"containers": [{"ports": ports}]}, "status": {"podIP": host.strip("[]")}}

    def _by_lease(self) -> tuple[str, dict[str, Any]]:
        from controller.kube.api import find
        from controller.kube.lease import LeaseClient
        from controller.kube.resources import NAMESPACES, PODS

        where = f"Lease {self.namespace}/{_DEFAULTS.lease}"
        record = LeaseClient(self.api, self.namespace, _DEFAULTS.lease, self.clock).read(CONNECT_SECONDS * 5)
        if not record.resource_version:
            if _is_missing(lambda: find(self.api, NAMESPACES, None, self.namespace)):
                raise ConfigError(f"--namespace: there is no namespace {self.namespace}")
            raise NobodyLeadsError(f"there is no {where}: is the extender installed in that namespace (--namespace)?")
        if not record.holder:
            raise NobodyLeadsError(f"nobody leads: {where} has no holder; do the controller's pods run?")
        pod = record.holder.rpartition("_")[0] or record.holder
        since = self._silence(record.renewed_utc)
        if since is not None and since > max(record.duration_seconds, 1):
            raise NobodyLeadsError(
                f"nobody leads: {pod} last renewed {where} {duration(since)} ago; do the controller's pods run?"
            )
        raw = find(self.api, PODS, self.namespace, pod)
        if raw is None and not os.environ.get(ADDRESSES):
            raise NobodyLeadsError(f"{where} names pod {pod}, which is gone; another leads within seconds")
        return pod, raw or {}

    def _silence(self, renewed: str) -> float | None:
        try:
            moment = datetime.fromisoformat(renewed)
        except ValueError:
            return None
        return ((self.api.server_utc() or self.clock.now_utc()) - moment).total_seconds()

    def _anybody(self, why: Exception) -> dict[str, Any]:
        """The pod of a copy that runs; the error itself where there is none."""
        from controller.kube.api import listed
        from controller.kube.resources import PODS

        for pod in listed(self.api, PODS, self.namespace, labelSelector=SELECTOR):
            if (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp"):
                return pod
        raise why


def explain_path(kind: str, name: str, namespace: str = "") -> str:
    """Of `/explain/...`, for kind "pods", "claims" or "volumes"."""
    return "/explain/" + "/".join(quote(part, safe="") for part in (kind, namespace, name) if part)


def _to(host: str, port: int, name: str = "") -> Way:
    return Way(name or f"{host}:{port}", lambda: socket.create_connection((host, port), timeout=CONNECT_SECONDS))


def _by_table(path: str, pod: str) -> Way:
    try:
        address = json.loads(Path(path).read_bytes())[pod][PORT_NAME]
        host, _, port = str(address).rpartition(":")
        return _to(host, int(port))
    except OSError as error:
        raise ConfigError(f"{ADDRESSES}: {path}: {error.strerror or error}") from error
    except (ValueError, TypeError, LookupError) as error:
        raise ConfigError(f'{ADDRESSES}: {path}: lacks {{"{pod}": {{"status": "HOST:PORT"}}}}') from error


def _port_of(pod: dict[str, Any]) -> int | None:
    for container in (pod.get("spec") or {}).get("containers") or []:
        for port in container.get("ports") or []:
            if port.get("name") == PORT_NAME:
                return int(port["containerPort"])
    return None


def _over_tls(address: str, port: int, name: str, trust: str) -> ssl.SSLSocket:
    if not trust.isascii():
        raise ssl.SSLError(f"ca.crt of ConfigMap {STATUS_CONFIG_MAP} is no PEM")
    context = ssl.create_default_context(cadata=trust or None)
    return context.wrap_socket(socket.create_connection((address, port), CONNECT_SECONDS), server_hostname=name)


def _is_missing(look: Callable[[], object]) -> bool:
    try:
        return look() is None
    except ForbiddenError:
        return False


def _why(error: BaseException) -> str:
    from controller.kube.api import why_unreachable

    return str(error) if isinstance(error, ClusterError) else why_unreachable(error)


# Commands


def about_leader(command: Decorated) -> Decorated:
    """Adds the flags by which the leader is found, and --output; the command gets them as `reader` and `output`."""

    def called(
        *, kubeconfig: str, context: str, namespace: str, status_port: int | None, output: str | None, **more: Any
    ) -> Any:
        reader = click.get_current_context().obj or StatusReader()
        reader.kubeconfig, reader.context, reader.namespace = kubeconfig, context, namespace
        reader.status_port = status_port
        return command(reader=reader, output=output or "", **more)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__dict__.update(command.__dict__)  # the command's own flags
    text = "ask the process whose status port this is on loopback, and look for no leader"
    made: Any = click.option("--status-port", type=PORT, metavar="N", help=text)(called)
    text = "json or yaml: the whole document; wide: more columns"
    made = click.option("-o", "--output", type=click.Choice(FORMS), help=text)(made)
    decorated: Decorated = access(namespace(made))
    return decorated


def asked(reader: StatusReader, path: str, kind: type[Document], *, of_anybody: bool = False) -> Document:
    """The document, while a terminal is told that it is waited for."""
    with progress("asking the leader"):
        return reader.document(path, kind, of_anybody=of_anybody)


def is_printed(document: Any, output: str) -> bool:
    """Whether the document was wanted whole, and is printed so."""
    if output in ("json", "yaml"):
        print_document(document, output)
        return True
    return False
