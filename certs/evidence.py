"""Which parts of a chain are known to have reached everybody, so that a rotation may go on.

An authority is trusted where kube-apiserver looks: in the `caBundle` of every entry of our webhook configurations. A
leaf is used where programs look: in its Secret. Both are looked at in every round. What was there without a break for
`spread_seconds` of this process's own monotonic time has reached everybody who reads it at least that often. Wall
clocks may be wrong and are not used; a new leader starts to count from zero.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from certs.authority import CertificateError, Pair, read_authorities
from certs.rotation import Chain, Evidence
from controller.clock import Clock
from controller.errors import ClusterError
from controller.kube.api import KubeApi, find
from controller.kube.resources import OUR_CONFIGURATIONS

CALL_SECONDS: Final = 5.0


class PublishedBundles:
    """The `caBundle`s of our webhook configurations. Threads: one at a time. I/O: the API server."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self.problem = ""  # why they could not be read; "" when they could

    def all_have(self, authority: Pair) -> bool:
        """Whether every entry trusts it. True if there is no entry, false if that cannot be known."""
        bundles = self._read()
        return bundles is not None and all(
            authority.facts.fingerprint in {pair.facts.fingerprint for pair in _authorities_in(bundle)}
            for bundle in bundles
        )

    def authorities(self) -> tuple[Pair, ...] | None:
        """All that any entry trusts, each once; None when that cannot be known."""
        bundles = self._read()
        if bundles is None:
            return None
        found = {pair.facts.fingerprint: pair for bundle in bundles for pair in _authorities_in(bundle)}
        return tuple(found.values())

    def _read(self) -> list[bytes] | None:
        try:
            bundles = list(self._bundles())
        except ClusterError as error:
            self.problem = f"webhook configurations {', '.join(OUR_CONFIGURATIONS.values())}: {error}"
            return None
        self.problem = ""
        return bundles

    def _bundles(self) -> Iterator[bytes]:
        for resource, name in OUR_CONFIGURATIONS.items():
            raw = find(self._api, resource, None, name, timeout=CALL_SECONDS) or {}
            for entry in raw.get("webhooks") or []:
                yield _decoded((entry.get("clientConfig") or {}).get("caBundle"))


def _decoded(text: Any) -> bytes:
    try:
        return b64decode(str(text or ""), validate=True)
    except ValueError:
        return b""


def _authorities_in(bundle: bytes) -> tuple[Pair, ...]:
    try:
        return read_authorities(bundle, what="caBundle")
    except CertificateError:
        return ()


class Spread:
    """How long the contents of a chain have been where others look. Threads: one at a time. I/O: that of
    `published`."""

    def __init__(self, published: PublishedBundles, clock: Clock, spread_seconds: float) -> None:
        self._published, self._clock, self._spread_seconds = published, clock, spread_seconds
        self._since: Mapping[str, float] = {}  # fingerprint -> monotonic

    def __call__(self, chain: Chain) -> Evidence:
        now = self._clock.now()
        seen = {pair.facts.fingerprint for pair in chain.leaves.values()}
        if chain.coming is not None and self._published.all_have(chain.coming):
            seen.add(chain.coming.facts.fingerprint)
        self._since = {fingerprint: self._since.get(fingerprint, now) for fingerprint in seen}
        known = frozenset(name for name, since in self._since.items() if now - since >= self._spread_seconds)
        return Evidence(trusted=known, used=known)

    @property
    def problem(self) -> str:
        return self._published.problem
