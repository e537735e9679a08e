"""The certificates that kube-scheduler is served with: contexts made from PEM, and replaced while the server runs.

A context is never changed once connections use it. New certificates make a new context, which connections that begin
from then on use; those that are open stay as they are. So a renewal disturbs no call.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from controller.errors import ConfigError
from controller.process.repeated import Repeated
from controller.process.worker import Part

CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
CLIENT_CA_FILE: Final = "ca.crt"
_CURRENT: Final = "..data"  # where the kubelet links the files of one version of a Secret
LOOK_EVERY_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Material:
    """PEM: the server's certificate with its chain, its private key, and the authorities that clients come from.

    Without authorities no certificate is asked of clients, where the server lets that be.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes


def make_context(material: Material, *, lets_anybody_in: bool = False) -> ssl.SSLContext:
    """A server's context: TLS 1.2 or newer, and a certificate of one of the authorities from every client.

    ConfigError says which part cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would be let in by a certificate that has expired since, or whose authority is gone.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    if material.client_ca or not lets_anybody_in:
        _require_certificates(context, material.client_ca)
    try:
        with _as_file(material.certificate + b"\n" + material.key) as path:
            context.load_cert_chain(path, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{CERTIFICATE_FILE}, {KEY_FILE}: not a certificate and its key: {error}") from error
    return context


def _require_certificates(context: ssl.SSLContext, client_ca: bytes) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{CLIENT_CA_FILE}: holds no usable certificate: {error}") from error
    if not context.cert_store_stats()["x509_ca"]:
        raise ConfigError(f"{CLIENT_CA_FILE}: holds no certificate of an authority")


def _no_password() -> str:
    raise ValueError("the key is encrypted")


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path that holds the data, in memory, while it is needed: the library reads keys from files only."""
    handle = os.memfd_create("certificate")
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(data)
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


class ServerTls:
    """What the server offers to connections that begin now.

    `lets_anybody_in`: material without authorities of clients is served, and no certificate is asked for then. The API
    server brings none to a webhook unless it is told to. Otherwise such material is an error: an empty file must not
    open a server that is meant to know its clients.
    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(self, *, lets_anybody_in: bool = False) -> None:
        self._lets_anybody_in = lets_anybody_in
        self._lock = threading.Lock()  # guards what `use` and `count` change
        self._material: Material | None = None
        self._context: ssl.SSLContext | None = None
        self._counts: Counter[str] = Counter()

    @property
    def context(self) -> ssl.SSLContext | None:
        """None while there is no certificate; no connection is served then."""
        return self._context

    @property
    def material(self) -> Material | None:
        """What `context` was made of."""
        return self._material

    def use(self, certificate: bytes, key: bytes, client_ca: bytes) -> bool:
        """Serves connections that begin from now on with these; returns whether they are new. After a ConfigError the
        old ones stay."""
        material = Material(certificate, key, client_ca)
        with self._lock:
            if material == self._material:
                return False
        context = make_context(material, lets_anybody_in=self._lets_anybody_in)
        with self._lock:
            self._material, self._context = material, context
        return True

    def forget(self) -> None:
        """Serves no connection that begins from now on, until `use` is called again."""
        with self._lock:
            self._material, self._context = None, None

    def count(self, outcome: str) -> None:
        with self._lock:
            self._counts[outcome] += 1

    def counts(self) -> Mapping[str, int]:
        """How many handshakes ended in which way."""
        with self._lock:
            return dict(self._counts)


def read_directory(directory: Path, *, with_client_ca: bool = True) -> Material:
    """The material in `tls.crt`, `tls.key` and, with `with_client_ca`, `ca.crt`; ConfigError names a file that cannot
    be read.

    All are of one version where the directory is a mounted Secret.
    """
    current = directory / _CURRENT
    root = current.resolve() if current.exists() else directory
    certificate, key = _read(root, CERTIFICATE_FILE), _read(root, KEY_FILE)
    return Material(certificate, key, _read(root, CLIENT_CA_FILE) if with_client_ca else b"")


def _read(root: Path, name: str) -> bytes:
    try:
        return (root / name).read_bytes()
    except OSError as error:
        raise ConfigError(f"{root / name}: {error.strerror or error}") from error


class DirectoryFollower(Part):
    """Hands on what a directory holds, each time that it has changed; what cannot be used is reported once.

    Threads: `worker`'s; start and stop from one. Blocks: `stop`, for a moment. I/O: reads files.
    """

    def __init__(self, directory: Path, use: Callable[[bytes, bytes, bytes], object]) -> None:
        self._directory, self._use = directory, use
        say = partial(log.error, "new certificates of %s are not used: %s", directory)
        self._looks = Repeated(self.look, lambda _: LOOK_EVERY_SECONDS, say, thread="certificates")
        self.worker = self._looks.worker

    @property
    def problem(self) -> str:
        """Why what the directory holds now is not in use; "" when it is."""
        return "; ".join(self._looks.problems)

    def start(self) -> None:
        self.look()
        self.worker.start(LOOK_EVERY_SECONDS)

    def look(self) -> None:
        problems: list[str] = []
        try:
            material = read_directory(self._directory)
            if self._use(material.certificate, material.key, material.client_ca):
                log.info("certificates of %s are in use", self._directory)
        except ConfigError as error:
            problems.append(str(error))
        self._looks.note(problems)
