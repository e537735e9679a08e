"""A server that asks no certificate of its clients does so on purpose only."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from controller.errors import ConfigError
from controller.serving.tls import ServerTls, read_directory
from tests.unit.serving.tls_files import Mounted, authority, server_of


def asked_of_clients(tls: ServerTls) -> ssl.VerifyMode:
    assert tls.context is not None
    return tls.context.verify_mode


def test_without_authorities_nobody_is_asked_where_the_server_lets_that_be() -> None:
    ca = authority()
    leaf = server_of(ca)
    tls = ServerTls(lets_anybody_in=True)

    assert tls.use(leaf.certificate, leaf.key, b"")
    assert ssl.CERT_NONE == asked_of_clients(tls)
    assert tls.use(leaf.certificate, leaf.key, ca.certificate)
    assert ssl.CERT_REQUIRED == asked_of_clients(tls)


def test_an_empty_file_of_authorities_does_not_open_a_server_that_knows_its_clients() -> None:
    leaf = server_of(authority())
    tls = ServerTls()

    with pytest.raises(ConfigError, match=r"ca\.crt"):
        tls.use(leaf.certificate, leaf.key, b"")
    assert tls.context is None


def test_authorities_of_clients_need_not_be_in_the_directory(tmp_path: Path) -> None:
    ca = authority()
    leaf = server_of(ca)
    (tmp_path / "tls.crt").write_bytes(leaf.certificate)
    (tmp_path / "tls.key").write_bytes(leaf.key)
    tls = ServerTls(lets_anybody_in=True)

    found = read_directory(tmp_path, with_client_ca=False)
    tls.use(found.certificate, found.key, found.client_ca)
    assert tls.context is not None
    with pytest.raises(ConfigError, match=r"ca\.crt"):
        read_directory(tmp_path)

    mounted = Mounted(tmp_path / "mounted")
    mounted.put(leaf, ca.certificate)
    assert b"" == read_directory(mounted.path, with_client_ca=False).client_ca
