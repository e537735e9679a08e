"""Chains in small, and what another program says of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.x509 import verification

from certs.authority import LeafSpec, Pair
from certs.rotation import Chain, RotationPolicy, bring_up_to_date

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
NAME = "s.n.svc"
POLICY = RotationPolicy(ca_life=100 * HOUR, ca_renew_before=24 * HOUR, overlap=6 * HOUR, settle=6 * HOUR)
LEAFS = {
    "server": LeafSpec("server", 20 * HOUR, (NAME, "10.96.0.7"), renew_before=7 * HOUR),
    "client": LeafSpec("client", 20 * HOUR, is_client=True, renew_before=7 * HOUR),
}
SUBJECT = "ca"


def up_to_date(chain: Chain, now: datetime, policy: RotationPolicy = POLICY) -> Chain:
    return bring_up_to_date(chain, LEAFS, policy, now, SUBJECT)[0]


def fresh(now: datetime = NOW) -> Chain:
    return up_to_date(Chain(), now)


def signer_of(chain: Chain) -> Pair:
    assert chain.signer is not None
    return chain.signer


def coming_of(chain: Chain) -> Pair:
    assert chain.coming is not None
    return chain.coming


def trusts(bundle: bytes, leaf: bytes, now: datetime, *, as_client: bool = False, name: str = NAME) -> bool:
    """Whether a stranger's verifier, who knows this bundle only, takes the leaf now. No code of ours is asked."""
    store = verification.Store(x509.load_pem_x509_certificates(bundle))
    builder = verification.PolicyBuilder().store(store).time(now)
    certificate = x509.load_pem_x509_certificate(leaf)
    try:
        if as_client:
            # The library wants a name in a client's certificate; kube-scheduler's has none and needs none.
            policy = verification.ExtensionPolicy.permit_all()
            builder = builder.extension_policies(
                ca_policy=verification.ExtensionPolicy.webpki_defaults_ca(), ee_policy=policy
            )
            builder.build_client_verifier().verify(certificate, [])
        else:
            builder.build_server_verifier(x509.DNSName(name)).verify(certificate, [])
    except verification.VerificationError:
        return False
    return True
