"""The webhook's certificates: the one it serves, and the one it calls the leader with.

It only reads them, from two Secrets or from directories; the leader of the controllers makes them in mode `self`,
others in the modes `cert-manager` and `provided`.

What comes from Secrets must have been *confirmed* within some hours, which means that the API server answered when it
was asked for them. Otherwise they are no longer used. So the leader knows without asking that nobody uses what it
replaced longer ago, even if a process was cut off or suspended. A Secret that is missing or damaged is an answer, too:
there is nothing newer than what is in use.

Where clients need a certificate, only those of the authorities in a file are served. If the file becomes unreadable,
nothing changes; until it could be read, nobody is served.

Where others write, an authority may change without notice, and not in all Secrets at once: see certs.trust.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from certs.authority import Pair, read_authorities
from certs.keeper import HURRY_SECONDS, CertificateMode, NoCertificates, say_problem
from certs.layout import BUNDLE, CERTIFICATE, KEY, Data, read_leaf
from certs.secret import SecretStore
from certs.trust import Shown, Trust
from certs.webhook import CLIENT, DEFAULT_PACE, PREFIX, SERVER, Pace
from controller.clock import Clock
from controller.errors import ConfigError, NotReadyError, SchedulerError
from controller.kube.api import KubeApi
from controller.process.repeated import QUIET_SECONDS, Repeated
from controller.process.worker import Part
from controller.serving.tls import Material, ServerTls, read_directory
from webhook.settings import WebhookSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """What one leaf's Secret holds."""

    leaf: Pair
    authorities: tuple[Pair, ...]


def _authorities_of(name: str, data: Data | None) -> tuple[Pair, ...]:
    """The authorities beside a leaf; a server may do without."""
    bundle = (data or {}).get(BUNDLE, b"")
    if data is None or (name == SERVER and not bundle):
        return ()
    return read_authorities(bundle, what=f"{name}, {BUNDLE}")


class WebhookCertificates(Part):
    """Keeps the server's and the client's certificate current.

    Threads: `worker`'s; start and stop from one; the views from any. Blocks: `stop`, for a call's timeout
    at most. I/O: that of `reads`.
    """

    def __init__(
        self,
        reads: Mapping[str, Callable[[], Data | None]],
        tls: ServerTls,
        clock: Clock,
        pace: Pace,
        *,
        must_confirm: bool,
        is_foreign: bool,
        client_ca_file: str,
    ) -> None:
        """`reads`: for each leaf that should exist, what its Secret or directory holds, None where that is missing; a
        SchedulerError means that nothing is known."""
        self._reads, self._tls, self._clock, self._pace = reads, tls, clock, pace
        self._must_confirm, self._is_foreign = must_confirm, is_foreign
        self._client: Material | None = None
        self._client_ca_file = client_ca_file
        self._client_ca = b""  # of the API server
        self._trust = (
            Trust(reads, pace.settle_seconds) if is_foreign else Trust([CLIENT], 0.0)  # its chain has its own
        )
        self._shown = {name: Shown(pace.confirm_seconds) for name in reads}
        self._read: dict[str, _Found] = {}
        self._newest: dict[str, _Found] = {}  # that may be used
        self._confirmed_at = dict.fromkeys(reads, clock.now())
        # Quiet at first: the leader may be making them.
        self._looks = Repeated(
            self.look,
            self._pause_seconds,
            say_problem,
            thread="certificates",
            quiet_seconds=QUIET_SECONDS,
            now=clock.now,
        )
        self.worker = self._looks.worker

    @property
    def is_serving(self) -> bool:
        return self._tls.context is not None

    @property
    def problems(self) -> tuple[str, ...]:
        """What was wrong at the last look."""
        return self._looks.problems

    def client_credentials(self) -> Material | None:
        """What to show the leader, and which authorities to trust for it; None: do not call."""
        return self._client

    def expiries(self) -> Mapping[str, float]:
        """Seconds until each certificate ends, by its name; negative when it has."""
        now = self._clock.now_utc()
        read = dict(self._read)
        ends = {name: found.leaf.facts.not_after_utc for name, found in read.items()}
        authorities = [pair.facts.not_after_utc for found in read.values() for pair in found.authorities]
        if authorities:
            ends[f"{PREFIX}ca"] = min(authorities)
        return {name: (end - now).total_seconds() for name, end in ends.items()}

    def _pause_seconds(self, is_over: bool) -> float:
        every = self._pace.look_every_seconds
        is_well = is_over and self.is_serving and not self.problems
        return every if is_well else self._looks.hurry_seconds((min(HURRY_SECONDS, every), every))

    def look(self) -> None:
        """One round: read, use what is new, and stop using what has not been confirmed for too long."""
        problems: list[str] = []
        named: dict[str, tuple[Pair, ...]] = {}
        for name, read in self._reads.items():
            begun = self._clock.now()
            try:
                data = read()
                self._confirmed_at[name] = begun
                authorities = _authorities_of(name, data)
                if self._is_foreign:
                    named[name] = authorities  # even if the leaf beside them is damaged
                self._newest[name] = self._read[name] = _Found(read_leaf(data, name), authorities)
                named[name] = authorities
            except SchedulerError as error:
                problems.append(str(error))
        try:
            self._read_client_ca()
        except SchedulerError as error:
            problems.append(str(error))
        self._trust.update(named, self._clock.now(), self._clock.now_utc())
        for name in self._reads:
            try:
                if self._must_confirm and self._clock.now() - self._confirmed_at[name] > self._pace.confirm_seconds:
                    self._give_up(name)
                    raise NotReadyError(f"{name}: has not been confirmed for too long and is not used")
                self._use(name)
            except SchedulerError as error:
                problems.append(str(error))
        self._looks.note(problems)

    def _use(self, name: str) -> None:
        found = self._newest.get(name)
        if found is None:
            return
        now, now_utc = self._clock.now(), self._clock.now_utc()
        # Where nothing is said of its authority, there is nothing to wait for.
        is_known = not (self._is_foreign and found.authorities) or self._trust.has_known(
            found.leaf, now - self._pace.spread_seconds
        )
        pair = self._shown[name].choose(found.leaf, is_known, now, now_utc)
        material = Material(pair.certificate, pair.key, self._trust.bundle)
        if self._use_server(material) if name == SERVER else self._use_client(material):
            log.info("certificates: a new %s is in use", name)

    def _use_server(self, material: Material) -> bool:
        # The API server shows no certificate of its own, unless it is configured to.
        if self._client_ca_file and not self._client_ca:
            return False
        return self._tls.use(material.certificate, material.key, self._client_ca)

    def _read_client_ca(self) -> None:
        if not self._client_ca_file:
            return
        try:
            found = Path(self._client_ca_file).read_bytes()
        except OSError as error:
            raise ConfigError(f"client_ca_file: {self._client_ca_file}: {error.strerror or error}") from error
        if not found or found != self._client_ca:
            read_authorities(found, what=f"client_ca_file: {self._client_ca_file}")
            self._client_ca = found

    def _use_client(self, material: Material) -> bool:
        is_new, self._client = material != self._client, material
        return is_new

    def _give_up(self, name: str) -> None:
        self._newest.pop(name, None)
        self._shown[name].forget()
        if name == SERVER:
            self._tls.forget()
        else:
            self._client = None


def certificate_worker(
    settings: WebhookSettings, api: KubeApi, clock: Clock, tls: ServerTls | None, pace: Pace = DEFAULT_PACE
) -> WebhookCertificates | NoCertificates:
    """What keeps `tls` and the client's certificate current. Does nothing yet."""
    if tls is None:
        return NoCertificates()
    reads: dict[str, Callable[[], Data | None]] = {}
    if settings.tls_cert_dir:
        reads[SERVER] = partial(_data_of_directory, Path(settings.tls_cert_dir), with_client_ca=False)
        if settings.tls_client_cert_dir:
            reads[CLIENT] = partial(_data_of_directory, Path(settings.tls_client_cert_dir), with_client_ca=True)
    else:
        store = SecretStore(api, settings.namespace)
        reads[SERVER] = partial(store.data, settings.tls_secret)
        reads[CLIENT] = partial(store.data, settings.tls_client_secret)
    return WebhookCertificates(
        reads,
        tls,
        clock,
        pace,
        # It is not known how late a mounted file is; its writer must leave time.
        must_confirm=not settings.tls_cert_dir,
        is_foreign=settings.tls_mode != CertificateMode.SELF,
        client_ca_file=settings.client_ca_file,
    )


def _data_of_directory(directory: Path, *, with_client_ca: bool) -> Data:
    found = read_directory(directory, with_client_ca=with_client_ca)
    return {CERTIFICATE: found.certificate, KEY: found.key, BUNDLE: found.client_ca}
