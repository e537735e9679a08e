"""Certificates for the tests of the server, and a directory that changes as the kubelet changes a mounted Secret."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs.authority import LeafSpec, Pair, make_authority, sign

DAY = timedelta(days=1)
HOST = "127.0.0.1"
SERVER = LeafSpec("server", DAY, (HOST,))
CLIENT = LeafSpec("kube-scheduler", DAY, is_client=True)


def now() -> datetime:
    return datetime.now(UTC)


def authority() -> Pair:
    return make_authority("ca", 10 * DAY, now())


def server_of(ca: Pair) -> Pair:
    return sign(ca, SERVER, now())


def client_of(ca: Pair) -> Pair:
    return sign(ca, CLIENT, now())


def expired(spec: LeafSpec, life: timedelta = DAY) -> tuple[Pair, Pair]:
    """An authority that is valid, and a leaf of it that ended a while ago."""
    made = now() - 5 * DAY
    ca = make_authority("ca", 10 * DAY, made)
    return ca, sign(ca, LeafSpec(spec.subject, life, spec.names, is_client=spec.is_client), made)


class Mounted:
    """A directory with the files of one Secret; `put` replaces all of them at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._versions = 0
        path.mkdir()

    def put(self, leaf: Pair, trusted: bytes, *, key: bytes | None = None) -> None:
        self._versions += 1
        version = self.path / f"..v{self._versions}"
        version.mkdir()
        (version / "tls.crt").write_bytes(leaf.certificate)
        (version / "tls.key").write_bytes(leaf.key if key is None else key)
        (version / "ca.crt").write_bytes(trusted)
        link = self.path / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self.path / "..data")
        for name in ("tls.crt", "tls.key", "ca.crt"):
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")


def context(directory: Path, trusted: bytes, client: Pair | None) -> ssl.SSLContext:
    """A client's context that trusts this bundle only."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(cadata=trusted.decode())
    if client is not None:
        file = directory / f"{client.facts.fingerprint}.pem"
        file.write_bytes(client.certificate + client.key)
        made.load_cert_chain(file)
    return made
