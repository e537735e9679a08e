"""Whether the certificates are in order: those in the Secrets, and the authorities that the API server trusts."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from certs.authority import CertificateError, read_authorities
from certs.evidence import PublishedBundles
from certs.keeper import CertificateMode, extender_plan
from certs.managed import ManagedChain, span
from certs.secret import SecretStore
from certs.webhook import webhook_plan
from controller.installation.site import CheckResult, Site, failure, ok, skipped, warning
from controller.kube.api import find
from controller.kube.resources import OUR_CONFIGURATIONS
from controller.settings import PLAIN_HTTP, TLS_OFF

NEAR: Final = timedelta(days=14)
HINT: Final = "docs/operations.md, Certificates; longhorn-scheduler-extender certs show"


def try_extender_chain(site: Site) -> Iterator[CheckResult]:
    """Age, chain and names of what kube-scheduler and the extender show each other."""
    mode = site.settings.tls_mode
    if mode == PLAIN_HTTP:
        text = "the extender serves plain HTTP: whoever reaches port 9504 is taken for kube-scheduler"
        yield warning("certificate", text, "docs/kube-scheduler.md, Plain HTTP")
        return
    if site.settings.tls_cert_dir:
        yield skipped("certificate", "the extender's certificate is in a file of its pod (--tls-cert-dir)")
        return
    store = SecretStore(site.api, site.namespace)
    chain = ManagedChain(store, extender_plan(store, site.settings), CertificateMode(mode))
    yield from _of_chain(site, "the extender's chain", chain)


def try_webhook_chain(site: Site) -> Iterator[CheckResult]:
    """The same of webhook and gRPC server, and what the API server trusts."""
    mode = site.settings.webhook_tls_mode
    if mode == TLS_OFF:
        yield skipped("certificate", "there is no webhook, and so no certificate of it")
        return
    published = PublishedBundles(site.api)
    chain = ManagedChain(
        SecretStore(site.api, site.namespace), webhook_plan(site.settings), CertificateMode(mode), published
    )
    yield from _of_chain(site, "the webhook's chain", chain)


def _of_chain(site: Site, name: str, chain: ManagedChain) -> Iterator[CheckResult]:
    now = site.now_utc
    wrong = chain.findings(now, timedelta(0))
    near = [one for one in chain.findings(now, NEAR) if one not in wrong]
    for text in wrong:
        yield failure("certificate", f"{name}: {text}", HINT)
    for text in near:
        yield warning("certificate", f"{name}: {text}", HINT)
    if not wrong and not near:
        first = min(facts.remaining(now) for facts in chain.facts().values())
        yield ok("certificate", f"{name} is in order; the first certificate ends in {span(first)}")


def try_bundles(site: Site) -> Iterator[CheckResult]:
    """Whether the API server is told whom to trust for the webhook, in every entry."""
    wrong, entries = list[str](), 0
    for kind, name in OUR_CONFIGURATIONS.items():
        found = find(site.api, kind, None, name) or {}
        for entry in found.get("webhooks") or ():
            entries += 1
            text = str((entry.get("clientConfig") or {}).get("caBundle") or "")
            try:
                pairs = read_authorities(b64decode(text), what="caBundle")
                if not any(pair.facts.is_valid(site.now_utc) for pair in pairs):
                    wrong.append(f"{entry.get('name')}: every authority in its caBundle has ended")
            except (CertificateError, ValueError) as error:
                wrong.append(f"{entry.get('name')}: {error}")
    for one in wrong:
        yield failure("ca bundle", one, "who writes it? docs/admission.md, What reaches the webhook")
    if not entries:
        yield skipped("ca bundle", "the API server does not ask the webhook now")
    elif not wrong:
        yield ok("ca bundle", f"the API server is told whom to trust in each of {entries} entries")
