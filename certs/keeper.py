"""The certificates of running servers: every server is given what it serves, and the leader keeps all of it in order.

In mode `self` the leader writes the Secrets. In the modes `cert-manager` and `provided` others write them, and they are
only read and checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from certs.authority import LONGEST_NAME, CertificateFacts, LeafSpec, server_names
from certs.foreign import ForeignChain, ForeignFollowing
from certs.rotation import DAY, PINNED, YEAR, Chain, Evidence
from certs.secret import ChainKeeper, ChainPlan, SecretStore
from controller.clock import Clock
from controller.errors import ConfigError
from controller.process.repeated import QUIET_SECONDS, Repeated
from controller.process.worker import Part, Worker

SERVER: Final = "server"
CLIENT: Final = "client"
LOOK_EVERY_SECONDS: Final = 10.0
HURRY_SECONDS: Final = 1.0  # while there is no certificate, or after a failure
SUBJECT: Final = "longhorn-scheduler-extender-ca"
CLIENT_SUBJECT: Final = "kube-scheduler"

log = logging.getLogger(__name__)


Use = Callable[[bytes, bytes, bytes], object]  # certificate, key, bundle; true when they are new to it


class CertificateMode(StrEnum):
    """Who writes the Secrets."""

    SELF = "self"
    CERT_MANAGER = "cert-manager"
    PROVIDED = "provided"


class ExtenderFlags(Protocol):
    """The controller's flags about the extender's chain: its settings, or the parsed flags of `certs`."""

    @property
    def namespace(self) -> str: ...
    @property
    def service(self) -> str: ...
    @property
    def cluster_domain(self) -> str: ...
    @property
    def tls_extra_names(self) -> str: ...
    @property
    def tls_secret(self) -> str: ...
    @property
    def tls_client_secret(self) -> str: ...
    @property
    def tls_ca_secret(self) -> str: ...


def extender_plan(store: SecretStore, flags: ExtenderFlags) -> ChainPlan:
    """The extender's chain. The server has all names of its Service, the Service's present addresses, and
    `tls_extra_names`. ConfigError unless the three Secrets have three names."""
    server, client, ca = flags.tls_secret, flags.tls_client_secret, flags.tls_ca_secret
    if len({server, client, ca} - {""}) != 3:
        raise ConfigError(f"Secrets: three are needed, with three names, not {server!r}, {client!r} and {ca!r}")

    def leaves() -> dict[str, LeafSpec]:
        addresses, more = store.service_addresses(flags.service), filter(None, flags.tls_extra_names.split(","))
        return extender_leaves((*server_names(flags.service, flags.namespace, addresses, flags.cluster_domain), *more))

    return ChainPlan(ca, {SERVER: server, CLIENT: client}, leaves, PINNED, SUBJECT, (SERVER,), (CLIENT,))


def extender_leaves(names: Iterable[str]) -> dict[str, LeafSpec]:
    """What the extender's chain signs. The client's certificate is in kube-scheduler's files, so it lives long."""
    server = tuple(names)
    # The longest name that a common name can hold; clients read the other field.
    common_name = max((name for name in server if len(name) <= LONGEST_NAME), key=len, default="server")
    return {
        SERVER: LeafSpec(common_name, 90 * DAY, server, renew_before=30 * DAY),
        CLIENT: LeafSpec(CLIENT_SUBJECT, 10 * YEAR, is_client=True, renew_before=3 * YEAR),
    }


class Certificates(Part):
    """Follows the Secrets of one chain, and on the leader keeps them in order.

    `uses` tells who is given which leaf: the certificate, its key, and the bundle of authorities to trust on the other
    side. In the modes in which others write, those leaves must exist; other leaves are checked if they exist.
    `evidence` is for mode `self`, as ChainKeeper has it. `following` is for chains that others write; without it, the
    authorities are those in the Secret of the first server.

    Threads: `worker`'s, named `thread`; start and stop from one; the views from any. Blocks: `stop`, for a call's
    timeout at most. I/O: the API server.
    """

    def __init__(
        self,
        mode: CertificateMode,
        store: SecretStore,
        plan: ChainPlan,
        clock: Clock,
        uses: Mapping[str, Use],
        is_leading: Callable[[], bool],
        *,
        evidence: Callable[[Chain], Evidence] | None = None,
        following: ForeignFollowing | None = None,
        thread: str = "certificates",
        look_every_seconds: float = LOOK_EVERY_SECONDS,
    ) -> None:
        self._mode, self._plan, self._clock = mode, plan, clock
        self._uses, self._is_leading = uses, is_leading
        self._look_every_seconds = look_every_seconds
        self._keeper = ChainKeeper(store, plan, clock, evidence)
        following = following or ForeignFollowing(named_by=plan.servers[:1])
        self._foreign = ForeignChain(store, plan, clock, uses, following)
        self._expiries: Mapping[str, datetime] = {}
        self._bundle = b""
        self._served: frozenset[str] = frozenset()
        self._listeners: list[Callable[[], None]] = []
        # Quiet at first: the leader may be making them.
        self._looks = Repeated(
            self.look, self._pause_seconds, say_problem, thread=thread, quiet_seconds=QUIET_SECONDS, now=clock.now
        )
        self.worker = self._looks.worker

    @property
    def is_serving(self) -> bool:
        """Whether every leaf that is used here has been handed over."""
        return self._served >= self._uses.keys()

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems found at the last look."""
        return self._looks.problems

    @property
    def bundle(self) -> bytes:
        """The authorities that callers have to trust, in PEM; empty while nothing is known."""
        return self._bundle

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Has `listener` run in this worker's thread after the bundle has changed. Subscribe before start."""
        self._listeners.append(listener)

    def expiries(self) -> Mapping[str, float]:
        """Seconds until each certificate ends, by its name; negative when it has."""
        now = self._clock.now_utc()
        return {name: (end - now).total_seconds() for name, end in self._expiries.items()}

    def _pause_seconds(self, is_well: bool) -> float:
        every = self._look_every_seconds
        return every if is_well and self.is_serving else self._looks.hurry_seconds((min(HURRY_SECONDS, every), every))

    def look(self) -> None:
        """One round. Raises ClusterError when the API server cannot be asked, or refuses."""
        self._looks.note(self._look_at_ours() if self._mode is CertificateMode.SELF else self._look_at_theirs())

    def _look_at_ours(self) -> tuple[str, ...]:
        kept = self._keeper.keep(self._is_leading)
        chain = kept.reading.chain
        self._expiries = {name: facts.not_after_utc for name, facts in named_facts(chain, self._plan.prefix).items()}
        if chain.authorities:
            leaves = {name: chain.leaves[name] for name in self._uses if name in chain.leaves}
            self._hand_over({name: (leaf.certificate, leaf.key, chain.bundle) for name, leaf in leaves.items()})
            self._set_bundle(chain.bundle)
        return () if kept.written else kept.reading.problems

    def _look_at_theirs(self) -> tuple[str, ...]:
        seen = self._foreign.look()
        ends = dict(seen.ends)
        if self._plan.servers[0] in ends and seen.authority_end is not None:
            ends[f"{self._plan.prefix}ca"] = seen.authority_end
        self._expiries = ends
        self._hand_over(seen.shown)
        if seen.bundle:
            self._set_bundle(seen.bundle)
        return seen.problems

    def _hand_over(self, leaves: Mapping[str, tuple[bytes, bytes, bytes]]) -> None:
        for name, material in leaves.items():
            if self._uses[name](*material):
                log.info("certificates: new connections are served with a new %s", name)
            self._served |= {name}

    def _set_bundle(self, bundle: bytes) -> None:
        is_new, self._bundle = bundle != self._bundle, bundle
        if is_new:
            for listener in self._listeners:
                listener()


class NoCertificates:
    """The server speaks plain HTTP, for tests and for a proxy in front; there is no certificate to call anybody
    with."""

    is_serving = True
    bundle = b""
    problems: tuple[str, ...] = ()
    workers: Sequence[Worker] = ()

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def expiries(self) -> Mapping[str, float]:
        return {}

    def client_credentials(self) -> None: ...
    def subscribe(self, listener: Callable[[], None]) -> None: ...


def say_problem(problem: str) -> None:
    log.warning("certificates: %s", problem)


def named_facts(chain: Chain, prefix: str) -> dict[str, CertificateFacts]:
    """The facts of every certificate, by the name that metrics and commands give it: authorities as `ca`, `ca-next` and
    `ca-previous-1`, leaves by their names."""
    found: dict[str, CertificateFacts] = {}
    if chain.signer is not None:
        found[f"{prefix}ca"] = chain.signer.facts
    if chain.coming is not None:
        found[f"{prefix}ca-next"] = chain.coming.facts
    for number, pair in enumerate(chain.previous, start=1):
        found[f"{prefix}ca-previous-{number}"] = pair.facts
    return found | {name: pair.facts for name, pair in chain.leaves.items()}
