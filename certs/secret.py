"""Reads and writes Secrets under their resource versions.

A conflict means that somebody else wrote first; then everything is read and decided again. The authority's Secret is
written before the leaves': a crash in between leaves a chain whose next step is to write the leaves.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from certs import layout
from certs.layout import Data, Reading
from certs.rotation import Chain, Evidence, Leaves, RotationPolicy, bring_up_to_date
from controller.clock import Clock
from controller.errors import ConflictError
from controller.kube.api import KubeApi, find
from controller.kube.resources import SECRETS, SERVICES

TRIES: Final = 4
CALL_SECONDS: Final = 5.0
TLS_TYPE: Final = "kubernetes.io/tls"
OPAQUE: Final = "Opaque"
LABELS: Final = {"app.kubernetes.io/name": "longhorn-scheduler-extender"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """What one chain should be, and where it is.

    `secrets` are those of the leaves, by the leaves' names; the authority's is written before them, and they in their
    order. `servers` and `clients` are names of leaves; callers of the first server trust the bundle. `prefix`
    distinguishes the authorities' names from those of another chain. `leaves` may ask the API server.
    """

    ca_secret: str
    secrets: Mapping[str, str]
    leaves: Callable[[], Leaves]
    policy: RotationPolicy
    subject: str
    servers: tuple[str, ...]
    clients: tuple[str, ...]
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """A chain's Secrets as they were read, by name: whole, and their data; None for one that does not exist."""

    raws: Mapping[str, dict[str, Any] | None]
    datas: Mapping[str, Data | None]
    reading: Reading


@dataclass(frozen=True, slots=True)
class Kept:
    """What one round found and did. `written` has the names of Secrets."""

    reading: Reading
    written: Sequence[str] = ()


class SecretStore:
    """The Secrets of one namespace. Threads: any. Blocks: for a call's timeout. I/O: the API server.

    Errors: ClusterError and its kinds, as KubeApi has them.
    """

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def read(self, name: str) -> dict[str, Any] | None:
        return find(self._api, SECRETS, self._namespace, name, timeout=CALL_SECONDS)

    def data(self, name: str) -> Data | None:
        """The decoded data of a Secret; None if it does not exist."""
        return data_of(self.read(name))

    def write(self, name: str, old: Mapping[str, Any] | None, data: Data) -> None:
        """Replaces the data of the Secret as it was read; raises ConflictError if it has changed since."""
        encoded = {key: b64encode(value).decode("ascii") for key, value in data.items()}
        body: dict[str, Any] = {"apiVersion": SECRETS.api_version, "kind": SECRETS.kind, "data": encoded}
        if old is None:
            kind = TLS_TYPE if layout.NEXT_KEY not in data and data.get(layout.KEY) else OPAQUE
            body |= {"type": kind, "metadata": {"name": name, "namespace": self._namespace, "labels": dict(LABELS)}}
            self._api.create(SECRETS, self._namespace, body, timeout=CALL_SECONDS)
        else:
            # Its type cannot be changed; its metadata holds the resource version.
            body |= {"type": old.get("type", OPAQUE), "metadata": old["metadata"]}
            self._api.replace(SECRETS, self._namespace, name, body, timeout=CALL_SECONDS)

    def service_addresses(self, service: str) -> tuple[str, ...]:
        """The cluster addresses of a Service; empty if it does not exist or has none."""
        raw = find(self._api, SERVICES, self._namespace, service, timeout=CALL_SECONDS) or {}
        spec = raw.get("spec") or {}
        found = spec.get("clusterIPs") or [spec.get("clusterIP")]
        return tuple(str(address) for address in found if address and address != "None")

    def read_chain(self, plan: ChainPlan, remembered: Chain | None = None) -> Stored:
        """The chain as it stands, with what is damaged filled in from what is remembered."""
        raws = {name: self.read(name) for name in (plan.ca_secret, *plan.secrets.values())}
        datas = {name: data_of(raw) for name, raw in raws.items()}
        leaves = {leaf: datas[name] for leaf, name in plan.secrets.items()}
        return Stored(raws, datas, layout.read_chain(datas[plan.ca_secret], leaves, remembered))

    def write_chain(self, plan: ChainPlan, stored: Stored, chain: Chain, may_write: Callable[[], bool]) -> list[str]:
        """Writes the Secrets that differ, while `may_write`; their names."""
        wanted = {plan.ca_secret: layout.authority_data(chain)}
        wanted |= {name: layout.leaf_data(chain, leaf) for leaf, name in plan.secrets.items() if leaf in chain.leaves}
        written = []
        for name, data in wanted.items():
            if stored.datas[name] != data and may_write():
                self.write(name, stored.raws[name], data)
                written.append(name)
        return written


def data_of(raw: Mapping[str, Any] | None) -> Data | None:
    """A Secret's data, decoded. A value that is not base64 is left out, and counts as missing."""
    if raw is None:
        return None
    data = raw.get("data")
    found: dict[str, bytes] = {}
    for key, value in (data if isinstance(data, Mapping) else {}).items():
        try:
            found[str(key)] = b64decode(str(value), validate=True)
        except ValueError:
            continue
    return found


class ChainKeeper:
    """One chain in its Secrets: read, repaired and renewed.

    Threads: one at a time. Blocks: for its calls' timeouts. I/O: the API server. Remembers the chain as it was last
    read completely, so that a Secret that is deleted or damaged is restored. `evidence` tells which parts of the
    present chain are known to have reached everybody; None: only time decides.
    """

    def __init__(
        self, store: SecretStore, plan: ChainPlan, clock: Clock, evidence: Callable[[Chain], Evidence] | None = None
    ) -> None:
        self._store, self._plan, self._clock, self._evidence = store, plan, clock, evidence
        self._remembered: Chain | None = None

    def keep(self, may_write: Callable[[], bool]) -> Kept:
        """Reads the chain, and brings it and its Secrets up to date while `may_write`. Raises ConflictError after some
        tries."""
        plan = self._plan
        for left in reversed(range(TRIES)):
            stored = self._store.read_chain(plan, self._remembered)
            reading = stored.reading
            if not reading.problems:
                self._remembered = reading.chain
            if not may_write():
                return Kept(reading)
            leaves = plan.leaves()
            policy, now = plan.policy.checked(leaves.values()), self._clock.now_utc()
            evidence = self._evidence(reading.chain) if self._evidence is not None else None
            chain, steps = bring_up_to_date(reading.chain, leaves, policy, now, plan.subject, evidence)
            try:
                written = self._store.write_chain(plan, stored, chain, may_write)
            except ConflictError:
                if not left:
                    raise
                continue
            for problem in reading.problems:
                log.log(
                    logging.INFO if problem.endswith(layout.ABSENT) else logging.WARNING, "certificates: %s", problem
                )
            for step in steps:
                log.info("certificates: %s", step)
            if written:
                log.info("certificates: wrote the Secrets %s", ", ".join(written))
                self._remembered = chain
            return Kept(Reading(chain, reading.problems), written)
        raise AssertionError("unreachable")
