"""What is signed is taken by strangers, and by nobody for what it is not; bad input is named."""

from __future__ import annotations

from datetime import datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs import authority
from certs.authority import CertificateError, LeafSpec, make_authority, read_authorities, read_pair, server_names, sign
from tests.unit.certs.chains import HOUR, LEAFS, NOW, trusts

DAY = 24 * HOUR
CA = make_authority("ca", 10 * DAY, NOW)
SERVER = sign(CA, LEAFS["server"], NOW)
CLIENT = sign(CA, LEAFS["client"], NOW)


def test_a_stranger_who_trusts_the_authority_takes_its_leaves() -> None:
    assert trusts(CA.certificate, SERVER.certificate, NOW)
    assert trusts(CA.certificate, CLIENT.certificate, NOW, as_client=True)
    other = make_authority("ca", 10 * DAY, NOW)
    assert not trusts(other.certificate, SERVER.certificate, NOW)
    assert not trusts(other.certificate, CLIENT.certificate, NOW, as_client=True)


def test_each_leaf_serves_its_purpose_only() -> None:
    def purposes(pair: authority.Pair) -> list[x509.ObjectIdentifier]:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)

    assert [ExtendedKeyUsageOID.SERVER_AUTH] == purposes(SERVER)
    assert [ExtendedKeyUsageOID.CLIENT_AUTH] == purposes(CLIENT)


def test_everything_begins_five_minutes_in_the_past_and_ends_in_time() -> None:
    for pair in (CA, SERVER, CLIENT):
        assert NOW - timedelta(minutes=5) == pair.facts.not_before_utc
        assert NOW == pair.facts.made_utc
    assert NOW + 20 * HOUR == SERVER.facts.not_after_utc
    assert trusts(CA.certificate, SERVER.certificate, NOW - timedelta(minutes=5))
    assert trusts(CA.certificate, SERVER.certificate, NOW + 20 * HOUR)
    assert not trusts(CA.certificate, SERVER.certificate, NOW + 20 * HOUR + timedelta(seconds=1))


def test_a_leaf_ends_with_its_authority_at_the_latest() -> None:
    leaf = sign(CA, LeafSpec("long", 100 * DAY), NOW + DAY)
    assert CA.facts.not_after_utc == leaf.facts.not_after_utc


def test_a_server_has_all_names_of_its_service_and_its_addresses() -> None:
    names = server_names("s", "n", ("10.96.0.7", "fd00::7"), "cluster.local")
    assert ("s.n.svc", "s.n.svc.cluster.local", "s.n", "s", "10.96.0.7", "fd00::7") == names
    leaf = sign(CA, LeafSpec("server", DAY, names), NOW)
    alternatives = x509.load_pem_x509_certificate(leaf.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert ["s.n.svc", "s.n.svc.cluster.local", "s.n", "s"] == alternatives.value.get_values_for_type(x509.DNSName)
    assert [ip_address("10.96.0.7"), ip_address("fd00::7")] == alternatives.value.get_values_for_type(x509.IPAddress)
    assert set(names) == leaf.facts.names


def test_no_two_are_alike_and_keys_are_not_in_what_is_printed() -> None:
    twin = sign(CA, LEAFS["server"], NOW)
    assert SERVER.key != twin.key
    serials = {x509.load_pem_x509_certificate(pair.certificate).serial_number for pair in (CA, SERVER, twin)}
    assert 3 == len(serials)
    assert "PRIVATE" not in repr(SERVER)


def test_a_leaf_is_known_by_its_signature_and_not_by_names() -> None:
    twin = make_authority("ca", 10 * DAY, NOW)
    assert authority.is_issued_by(SERVER, CA)
    assert not authority.is_issued_by(SERVER, twin)
    assert not authority.is_issued_by(CA, twin)


@pytest.mark.parametrize(
    ("certificate", "key", "problem"),
    [
        (b"", SERVER.key, "is not a PEM certificate"),
        (b"\x00garbage\xff", SERVER.key, "is not a PEM certificate"),
        (SERVER.key, SERVER.key, "is not a PEM certificate"),
        (SERVER.certificate[:200], SERVER.key, "is not a PEM certificate"),
        (SERVER.certificate, b"", "not a PEM key"),
        (SERVER.certificate, b"\x00\xff", "not a PEM key"),
        (SERVER.certificate, SERVER.key[:60], "not a PEM key"),
        (SERVER.certificate, CLIENT.key, "does not belong to the certificate"),
    ],
)
def test_what_is_no_pair_is_refused_by_name(certificate: bytes, key: bytes, problem: str) -> None:
    with pytest.raises(CertificateError, match="^thing: .*" + problem):
        read_pair(certificate, key, what="thing")


def test_a_chain_behind_the_leaf_is_kept() -> None:
    chain = SERVER.certificate + CA.certificate
    pair = read_pair(chain, SERVER.key, what="x")
    assert chain == pair.certificate
    assert SERVER.facts == pair.facts


@pytest.mark.parametrize("bundle", [b"", b"garbage", SERVER.certificate, CA.certificate + SERVER.certificate])
def test_a_bundle_holds_authorities_and_nothing_else(bundle: bytes) -> None:
    with pytest.raises(CertificateError, match=r"^thing: "):
        read_authorities(bundle, what="thing")


def test_an_authority_without_a_key_or_out_of_its_time_signs_nothing() -> None:
    (known,) = read_authorities(CA.certificate, what="x")
    with pytest.raises(CertificateError, match="key is not available"):
        sign(known, LEAFS["server"], NOW)
    for moment in (NOW - HOUR, NOW + 11 * DAY):
        with pytest.raises(CertificateError, match="is not valid at"):
            sign(CA, LEAFS["server"], moment)


def test_what_x509_does_not_take_is_named() -> None:
    for subject in ("", "x" * 65):
        with pytest.raises(CertificateError, match=r"^subject "):
            make_authority(subject, DAY, NOW)
    with pytest.raises(CertificateError, match="not in UTC"):
        make_authority("ca", DAY, datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(CertificateError, match=r"^name 'ü"):
        sign(CA, LeafSpec("server", DAY, ("ü.svc",)), NOW)
