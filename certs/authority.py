"""Makes an authority, signs certificates, and reads PEM. Bytes in, bytes out; time is an argument.

Keys are EC P-256. Every certificate begins five minutes in the past, so that a machine whose clock is that much behind
takes it at once.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.errors import ConfigError

BACKDATED: Final = timedelta(minutes=5)
SOON: Final = timedelta(days=30)
ORGANIZATION: Final = "longhorn-scheduler"
LONGEST_NAME: Final = 64  # characters that X.509 lets a common name have


class CertificateError(ConfigError):
    """A certificate or key is malformed or does not match; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The facts of one certificate that matter here. Times are those in the certificate."""

    subject: str
    not_before_utc: datetime
    not_after_utc: datetime
    is_authority: bool
    names: frozenset[str]  # DNS names and IP addresses, as text
    fingerprint: str  # SHA-256 of it, in hexadecimal

    @property
    def made_utc(self) -> datetime:
        """When it was made; true of our own certificates alone."""
        return self.not_before_utc + BACKDATED

    def is_valid(self, now_utc: datetime) -> bool:
        return self.not_before_utc <= now_utc <= self.not_after_utc

    def remaining(self, now_utc: datetime) -> timedelta:
        return self.not_after_utc - now_utc


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both in PEM; the key is empty if it is lost or not ours."""

    certificate: bytes
    key: bytes = field(repr=False)
    facts: CertificateFacts

    @property
    def has_key(self) -> bool:
        return bool(self.key)


@dataclass(frozen=True, slots=True)
class LeafSpec:
    """What a leaf is for: a server has names, a client only a subject. It lives for `life`, or as long as its
    authority, and in a chain it is renewed `renew_before` its end."""

    subject: str
    life: timedelta
    names: tuple[str, ...] = ()
    is_client: bool = False
    renew_before: timedelta = timedelta(0)


def make_authority(subject: str, life: timedelta, now_utc: datetime) -> Pair:
    """A new self-signed authority that signs leaves only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(subject)
    builder = (
        _builder(name, name, key.public_key(), now_utc, now_utc + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def sign(authority: Pair, spec: LeafSpec, now_utc: datetime) -> Pair:
    """A new leaf with a new key. Raises CertificateError if the authority has no key or is not valid now."""
    if not authority.has_key:
        raise CertificateError(f"authority {authority.facts.subject}: its key is not available")
    if not authority.facts.is_valid(now_utc):
        raise CertificateError(f"authority {authority.facts.subject}: is not valid at {now_utc.isoformat()}")
    issuer, issuer_key = _certificates_in(authority.certificate, "authority")[0], _private_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if spec.is_client else ExtendedKeyUsageOID.SERVER_AUTH
    until = min(now_utc + spec.life, authority.facts.not_after_utc)
    builder = (
        _builder(_name(spec.subject), issuer.subject, key.public_key(), now_utc, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if spec.names:
        builder = builder.add_extension(x509.SubjectAlternativeName(_general_names(spec.names)), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def server_names(service: str, namespace: str, addresses: Iterable[str] = (), domain: str = "") -> tuple[str, ...]:
    """All names of a Service inside the cluster, and its addresses, in the order of their use."""
    names = [f"{service}.{namespace}.svc", f"{service}.{namespace}", service]
    if domain:
        names.insert(1, f"{service}.{namespace}.svc.{domain}")
    return (*names, *addresses)


def is_issued_by(leaf: Pair, authority: Pair) -> bool:
    """Whether the authority's key signed the leaf. Says nothing of time."""
    return _is_signed_by(_certificates_in(leaf.certificate, "leaf")[0], authority)


def is_rooted_in(chain: bytes, authorities: Iterable[Pair]) -> bool:
    """Whether the key of one of them signed a certificate of this chain, PEM. Says nothing of time."""
    links = _certificates_in(chain, "chain")
    return any(_is_signed_by(link, authority) for authority in authorities for link in links)


def _is_signed_by(certificate: x509.Certificate, authority: Pair) -> bool:
    try:
        certificate.verify_directly_issued_by(_certificates_in(authority.certificate, "authority")[0])
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def read_pair(certificate: bytes, key: bytes, *, what: str) -> Pair:
    """A certificate and its key out of PEM; of a chain the first one counts. CertificateError names `what`."""
    first = _certificates_in(certificate, what)[0]
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{what}: its key is not a PEM key without a password") from error
    if private.public_key() != first.public_key():
        raise CertificateError(f"{what}: the key does not belong to the certificate")
    return Pair(certificate, key, facts_of(first))


def read_authorities(bundle: bytes, *, what: str) -> tuple[Pair, ...]:
    """The certificates of authorities in a bundle, without keys. CertificateError when there is none, or another."""
    try:
        found = x509.load_pem_x509_certificates(bundle)
    except ValueError as error:
        raise CertificateError(f"{what}: holds no PEM certificate") from error
    pairs = []
    for certificate in found:
        facts = facts_of(certificate)
        if not facts.is_authority:
            raise CertificateError(f"{what}: {facts.subject} is not an authority")
        pairs.append(Pair(certificate.public_bytes(serialization.Encoding.PEM), b"", facts))
    return tuple(pairs)


def check_client(files: Mapping[str, bytes], now_utc: datetime) -> Iterator[str]:
    """Checks what a client is given, PEM by name: the authority that it trusts, its certificate, its key. Yields what
    is odd about them, and raises CertificateError for what no call can succeed with."""
    (ca_name, ca), (name, certificate), (key_name, key) = files.items()
    authorities, first = read_authorities(ca, what=ca_name), _certificates_in(certificate, name)[0]
    pair = read_pair(certificate, key, what=key_name)
    if pair.facts.is_authority:
        raise CertificateError(f"{name}: {pair.facts.subject} is an authority")
    if not _is_for_clients(first):
        raise CertificateError(f"{name}: is not for clients: its extended key usage lacks clientAuth")
    for what, facts in ((name, pair.facts), *((ca_name, one.facts) for one in authorities)):
        if not facts.is_valid(now_utc):
            span = f"{facts.not_before_utc:%Y-%m-%d %H:%M} to {facts.not_after_utc:%Y-%m-%d %H:%M} UTC"
            when = "has ended" if now_utc >= facts.not_after_utc else "is not valid yet"
            raise CertificateError(f"{what}: {facts.subject} {when}: it is valid from {span}")
        if facts.remaining(now_utc) < SOON:
            yield f"{what}: {facts.subject} ends at {facts.not_after_utc:%Y-%m-%d %H:%M} UTC"
    if not is_rooted_in(certificate, authorities):
        # Right where server and clients have certificates of two authorities.
        yield f"{name}: its authority {first.issuer.rfc4514_string()} is not in {ca_name}: does the server know it?"


def _is_for_clients(certificate: x509.Certificate) -> bool:
    """Without the extension, it is for everything."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return bool({ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(usage))


def bundle_of(authorities: Iterable[Pair]) -> bytes:
    """One PEM of all of them, each once, in their order."""
    return b"".join(dict.fromkeys(pair.certificate.strip() + b"\n" for pair in authorities))


def facts_of(certificate: x509.Certificate) -> CertificateFacts:
    """The facts of one certificate; CertificateError when its extensions cannot be read."""
    try:
        extensions = certificate.extensions
    except ValueError as error:
        raise CertificateError(f"a certificate's extensions cannot be read: {error}") from error
    names: frozenset[str] = frozenset()
    is_authority = False
    for extension in extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            addresses = (str(address) for address in value.get_values_for_type(x509.IPAddress))
            names = frozenset((*value.get_values_for_type(x509.DNSName), *addresses))
        elif isinstance(value, x509.BasicConstraints):
            is_authority = value.ca
    return CertificateFacts(
        subject=certificate.subject.rfc4514_string(),
        not_before_utc=certificate.not_valid_before_utc,
        not_after_utc=certificate.not_valid_after_utc,
        is_authority=is_authority,
        names=names,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _certificates_in(data: bytes, what: str) -> list[x509.Certificate]:
    """All certificates in this PEM, one at least; CertificateError names `what`."""
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise CertificateError(f"{what}: is not a PEM certificate") from error


def _private_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(data, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the authority's key is not an elliptic-curve key")
    return key


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        facts_of(certificate),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now_utc: datetime, until_utc: datetime
) -> x509.CertificateBuilder:
    if now_utc.tzinfo is None or now_utc.utcoffset() != UTC.utcoffset(None):
        raise CertificateError(f"the time {now_utc.isoformat()} is not in UTC")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before((now_utc - BACKDATED).replace(microsecond=0))
        .not_valid_after(until_utc.replace(microsecond=0))
    )


def _name(subject: str) -> x509.Name:
    if not 0 < len(subject) <= LONGEST_NAME:
        raise CertificateError(f"subject {subject!r}: is not 1 to {LONGEST_NAME} characters long")
    parts = {NameOID.ORGANIZATION_NAME: ORGANIZATION, NameOID.COMMON_NAME: subject}
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in parts.items()])


def _general_names(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            try:
                found.append(x509.DNSName(name))
            except ValueError as error:
                raise CertificateError(f"name {name!r}: is neither an IP address nor a DNS name") from error
    return found


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
