"""Which key of which Secret holds which part of a chain, and what happens to parts that cannot be read. Pure.

Only the leader reads the authority's Secret. A leaf's Secret has the three usual keys: `tls.crt`, `tls.key`, and
`ca.crt` with the bundle of authorities to trust on the other side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from certs.authority import CertificateError, Pair, bundle_of, is_issued_by, read_authorities, read_pair
from certs.rotation import Chain

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_KEY: Final = "next.key"
PREVIOUS: Final = "previous.crt"
ABSENT: Final = "its Secret does not exist"

Data = Mapping[str, bytes]  # a Secret's data, decoded


@dataclass(frozen=True, slots=True)
class Reading:
    """A chain as far as it can be read, and the problems. A missing Secret is a problem, too."""

    chain: Chain
    problems: tuple[str, ...]


def read_chain(ca: Data | None, leaves: Mapping[str, Data | None], remembered: Chain | None = None) -> Reading:
    """The chain in these Secrets; None stands for one that does not exist.

    What is damaged is taken from `remembered`, the chain as it was read last. Where there is none (the program has just
    started) and the authority is lost, the authorities that the leaves' bundles name are kept without their keys: what
    they signed stays in use and trusted while the next authority becomes known.
    """
    found, problems = {}, []
    for name, data in leaves.items():
        try:
            found[name] = read_leaf(data, name)
        except CertificateError as error:
            problems.append(str(error))
            if remembered is not None and name in remembered.leaves:
                found[name] = remembered.leaves[name]
    try:
        chain = _read_authority(ca)
    except CertificateError as error:
        problems.append(str(error))
        chain = remembered or _adopt(leaves, found)
    return Reading(Chain(chain.signer, chain.coming, chain.previous, found), tuple(problems))


def read_leaf(data: Data | None, name: str) -> Pair:
    """The leaf in a Secret; CertificateError names it when there is none."""
    if data is None:
        raise CertificateError(f"{name}: {ABSENT}")
    pair = read_pair(data.get(CERTIFICATE, b""), data.get(KEY, b""), what=name)
    if pair.facts.is_authority:
        raise CertificateError(f"{name}: is a certificate authority, not a leaf certificate")
    return pair


def _read_authority(data: Data | None) -> Chain:
    if data is None:
        raise CertificateError(f"authority: {ABSENT}")
    signer = _read_signer(data, CERTIFICATE, KEY, "authority")
    coming = None
    if NEXT_CERTIFICATE in data or NEXT_KEY in data:
        coming = _read_signer(data, NEXT_CERTIFICATE, NEXT_KEY, "next authority")
    previous: tuple[Pair, ...] = ()
    if data.get(PREVIOUS):
        previous = read_authorities(data[PREVIOUS], what="previous authorities")
    return Chain(signer, coming, previous)


def _read_signer(data: Data, certificate: str, key: str, what: str) -> Pair:
    if data.get(key):
        pair = read_pair(data.get(certificate, b""), data[key], what=what)
        if not pair.facts.is_authority:
            raise CertificateError(f"{what}: is no authority")
        return pair
    if key in data:  # empty: known to be lost, and written down so
        return read_authorities(data.get(certificate, b""), what=what)[0]
    raise CertificateError(f"{what}: {key} is missing")


def _adopt(leaves: Mapping[str, Data | None], found: Mapping[str, Pair]) -> Chain:
    """The chain that the leaves' own bundles tell of, its keys lost: the signer of a leaf that was found, and the
    others."""
    known: list[Pair] = []
    for data in leaves.values():
        try:
            known += read_authorities((data or {}).get(BUNDLE, b""), what=BUNDLE)
        except CertificateError:
            continue
    known = list({pair.facts.fingerprint: pair for pair in known}.values())
    signers = [pair for pair in known if any(is_issued_by(leaf, pair) for leaf in found.values())]
    signer = signers[0] if signers else None
    return Chain(signer, None, tuple(pair for pair in known if pair is not signer))


def authority_data(chain: Chain) -> dict[str, bytes]:
    """What the authority's Secret should hold."""
    if chain.signer is None:
        raise CertificateError("authority: does not exist")
    data = {CERTIFICATE: chain.signer.certificate, KEY: chain.signer.key, BUNDLE: chain.bundle}
    if chain.coming is not None:
        data |= {NEXT_CERTIFICATE: chain.coming.certificate, NEXT_KEY: chain.coming.key}
    if chain.previous:
        data[PREVIOUS] = bundle_of(chain.previous)
    return data


def leaf_data(chain: Chain, name: str) -> dict[str, bytes]:
    """What a leaf's Secret should hold."""
    pair = chain.leaves[name]
    return {CERTIFICATE: pair.certificate, KEY: pair.key, BUNDLE: chain.bundle}


def foreign_findings(data: Data | None, what: str) -> Sequence[str]:
    """The problem with a Secret that others write: it is unreadable, or not signed by an authority in its own
    `ca.crt`."""
    try:
        pair = read_leaf(data, what)
        authorities = read_authorities((data or {}).get(BUNDLE, b""), what=f"{what}, {BUNDLE}")
    except CertificateError as error:
        return [str(error)]
    is_alone = pair.certificate.count(b"-----BEGIN CERTIFICATE-----") == 1
    if is_alone and not any(is_issued_by(pair, ca) for ca in authorities):
        return [f"{what}: {CERTIFICATE} is not signed by an authority in {BUNDLE}"]
    return []
