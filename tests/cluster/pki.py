"""The test cluster's own certificate authority."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = datetime.timedelta(days=365)
CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write `<name>.crt` and `<name>.key` (readable by the owner alone) and return their paths."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        return certificate, key


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that signs for servers and for clients. Its key lives as long as the cluster."""

    pair: KeyPair

    @classmethod
    def new(cls, name: str) -> Self:
        key, subject = new_key(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return cls(_signed(subject, key, subject, key, x509.BasicConstraints(ca=True, path_length=0)))

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        return cls(KeyPair((folder / f"{name}.crt").read_bytes(), (folder / f"{name}.key").read_bytes()))

    def server(self, name: str, hosts: Sequence[str]) -> KeyPair:
        """A server certificate; every one of `hosts` is an IP address or a DNS name."""
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        return self._sign(name, (), ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(names))

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A client certificate: Kubernetes reads the user from its common name, the groups from its organizations."""
        return self._sign(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _sign(
        self, name: str, groups: Sequence[str], purpose: x509.ObjectIdentifier, *more: x509.ExtensionType
    ) -> KeyPair:
        issuer = x509.load_pem_x509_certificate(self.pair.certificate).subject
        issuer_key = serialization.load_pem_private_key(self.pair.key, password=None)
        assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        leaf = x509.BasicConstraints(ca=False, path_length=None)
        return _signed(subject, new_key(), issuer, issuer_key, leaf, x509.ExtendedKeyUsage([purpose]), *more)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    constraints: x509.BasicConstraints,
    *more: x509.ExtensionType,
) -> KeyPair:
    """What a strict verifier asks of every certificate of that kind, and `more`."""
    now, signs = datetime.datetime.now(datetime.UTC), bool(constraints.ca)  # certificates, that is
    builder = x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now - CLOCK_SKEW, now + VALID_FOR
    )
    usage = x509.KeyUsage(True, False, False, False, False, signs, signs, False, False)
    builder = builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    for extension in (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), issued_by, *more):
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))
