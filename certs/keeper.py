"""The certificates of one running server: what it serves is handed to it, and on the leader all of it is kept in order.

In mode `self` the Secrets are ours. In the modes `cert-manager` and `provided` others write them: they are only read
and checked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from certs import layout
from certs.authority import Facts, LeafSpec, read_authorities, server_names
from certs.layout import foreign_findings
from certs.rotation import DAY, PINNED, YEAR, Chain, Leaf
from certs.secret import ChainKeeper, SecretNames, SecretStore, data_of
from controller.clock import Clock
from controller.errors import ConfigError, SchedulerError

SERVER: Final = "server"
CLIENT: Final = "client"
LOOK_EVERY_SECONDS: Final = 10.0
HURRY_SECONDS: Final = 1.0  # while there is no certificate, or after a failure
SUBJECT: Final = "longhorn-scheduler-extender-ca"
CLIENT_SUBJECT: Final = "kube-scheduler"

log = logging.getLogger(__name__)


class Mode(StrEnum):
    """Who writes the Secrets."""

    SELF = "self"
    CERT_MANAGER = "cert-manager"
    PROVIDED = "provided"


def extender_names(server: str, client: str, ca: str) -> SecretNames:
    """The extender's Secrets; ConfigError unless they are three."""
    if len({server, client, ca} - {""}) != 3:
        raise ConfigError(f"Secrets: three are needed, with three names, not {server!r}, {client!r} and {ca!r}")
    return SecretNames(ca, {SERVER: server, CLIENT: client})


def extender_leafs(names: Iterable[str]) -> dict[str, Leaf]:
    """What the extender's chain signs. The client's certificate stands in files of kube-scheduler, so it lives long."""
    server = tuple(names)
    return {
        SERVER: Leaf(LeafSpec(_common_name(server), 90 * DAY, server), renew_before=30 * DAY),
        CLIENT: Leaf(LeafSpec(CLIENT_SUBJECT, 10 * YEAR, is_client=True), renew_before=3 * YEAR),
    }


def _common_name(names: Iterable[str]) -> str:
    """The longest name that a common name can hold; clients read the other field."""
    return max((name for name in names if len(name) <= 64), key=len, default="server")


class ServiceNames:
    """The names and addresses that the server's certificate must have. I/O: the API server."""

    def __init__(self, store: SecretStore, service: str, namespace: str, *, domain: str, more: Iterable[str]) -> None:
        self._store, self._service, self._namespace = store, service, namespace
        self._domain, self._more = domain, tuple(more)

    def __call__(self) -> dict[str, Leaf]:
        addresses = self._store.service_addresses(self._service)
        names = server_names(self._service, self._namespace, addresses, self._domain)
        return extender_leafs((*names, *self._more))


def extender_keeper(
    store: SecretStore, clock: Clock, names: SecretNames, leafs: Callable[[], Mapping[str, Leaf]]
) -> ChainKeeper:
    return ChainKeeper(store, names, leafs, PINNED, clock, subject=SUBJECT)


class Certificates:
    """Follows the Secrets of one server.

    Threads: its own, `certificates`; start and stop from one; the views from any. Blocks: `stop`, for a call's timeout
    at most. I/O: the API server.
    """

    def __init__(
        self,
        mode: Mode,
        store: SecretStore,
        names: SecretNames,
        keeper: ChainKeeper,
        clock: Clock,
        use: Callable[[bytes, bytes, bytes], object],
        is_leading: Callable[[], bool],
    ) -> None:
        self._mode, self._store, self._names, self._keeper = mode, store, names, keeper
        self._clock, self._use, self._is_leading = clock, use, is_leading
        self._expiries: Mapping[str, datetime] = {}
        self._problems: tuple[str, ...] = ()
        self._is_serving = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_serving(self) -> bool:
        """Whether the server has been given a certificate."""
        return self._is_serving

    @property
    def problems(self) -> tuple[str, ...]:
        """What was wrong at the last look."""
        return self._problems

    def expiries(self) -> Mapping[str, float]:
        """Seconds until each certificate ends, by its name; negative when it has."""
        now = self._clock.now_utc()
        return {name: (end - now).total_seconds() for name, end in self._expiries.items()}

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10.0)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            is_well = True
            try:
                self.look()
            except SchedulerError as error:
                is_well = False
                self._note((str(error),))
            pause = LOOK_EVERY_SECONDS if is_well and self._is_serving else HURRY_SECONDS

    def look(self) -> None:
        """One round. Raises ClusterError when the API server cannot be asked, or refuses."""
        problems = self._look_at_ours() if self._mode is Mode.SELF else self._look_at_theirs()
        self._note(problems)

    def _look_at_ours(self) -> tuple[str, ...]:
        kept = self._keeper.keep(self._is_leading)
        chain = kept.reading.chain
        self._expiries = expiries_of(chain)
        leaf = chain.leafs.get(SERVER)
        if leaf is not None and chain.authorities:
            self._serve(leaf.certificate, leaf.key, chain.bundle)
        return () if kept.written else kept.reading.problems

    def _look_at_theirs(self) -> tuple[str, ...]:
        problems: list[str] = []
        ends: dict[str, datetime] = {}
        for leaf, name in self._names.leafs.items():
            data = data_of(self._store.read(name))
            if leaf != SERVER and data is None:
                continue  # clients may have theirs from elsewhere
            findings = foreign_findings(data, f"Secret {name}")
            problems += findings
            if findings or data is None:
                continue
            reading = layout.read_chain(None, {leaf: data})
            ends |= {name: end for name, end in expiries_of(reading.chain).items() if name == leaf}
            if leaf == SERVER:
                ends["ca"] = min(pair.facts.not_after_utc for pair in read_authorities(data[layout.BUNDLE], what=name))
                self._serve(data[layout.CERTIFICATE], data[layout.KEY], data[layout.BUNDLE])
        self._expiries = ends
        return tuple(problems)

    def _serve(self, certificate: bytes, key: bytes, client_ca: bytes) -> None:
        if self._use(certificate, key, client_ca):
            log.info("certificates: new connections are served with new ones")
        self._is_serving = True

    def _note(self, problems: tuple[str, ...]) -> None:
        if problems != self._problems:
            for problem in problems:
                log.warning("certificates: %s", problem)
        self._problems = problems


def expiries_of(chain: Chain) -> dict[str, datetime]:
    """When each certificate of the chain ends, by the name that metrics and commands give it."""
    return {name: facts.not_after_utc for name, facts in named_facts(chain).items()}


def named_facts(chain: Chain) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    if chain.signer is not None:
        found["ca"] = chain.signer.facts
    if chain.coming is not None:
        found["ca-next"] = chain.coming.facts
    for number, pair in enumerate(chain.previous, start=1):
        found[f"ca-previous-{number}"] = pair.facts
    return found | {name: pair.facts for name, pair in chain.leafs.items()}
