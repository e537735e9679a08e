"""Builds the controller's object graph: the one place that knows which part is given to which."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from controller.adapters import OpenedGate, PodPatches, ServiceEndpoint
from controller.allocator.allocator import Allocator
from controller.certificates import certificate_worker
from controller.clock import Clock, SystemClock
from controller.configuration import SettingsReader, synced_longhorn_values
from controller.election.elector import Elector, Timing
from controller.election.gate import Gate
from controller.feed import Feed
from controller.kinds import KINDS
from controller.kube import resources
from controller.kube.api import KubeApi
from controller.kube.binder import PodBinder
from controller.kube.endpoint_slice import EndpointSlices
from controller.kube.informer import STALE_SECONDS, Informer
from controller.kube.lease import LeaseClient
from controller.kube.recorder import Recorder
from controller.kube.resources import Resource
from controller.kube.store import Store
from controller.lifecycle import Lifecycle, Parts
from controller.metrics import Metrics, Sources, StoreState
from controller.model.reader import Raw, mapping_at, text_at
from controller.reconcile.live import LiveKind, LiveReader
from controller.reconcile.support import SupportWatch
from controller.reconcile.sweeper import Sweeper
from controller.reconcile.telling import Teller
from controller.reconcile.wake import Waker
from controller.reconcile.wired_build import build_wiring
from controller.serving.tls import ServerTls
from controller.settings import LiveSettings, ProcessSettings
from controller.status import StatusServer, create_status_app
from extender.app import Verbs, create_app
from extender.binding import BindingService
from extender.canary import CanaryFilter
from extender.contention import WaitBudget
from extender.preconditions import Preconditions
from extender.preemption import PreemptionService
from extender.priorities import PriorityService
from extender.service import ExtenderService

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

PACKAGE: Final = "longhorn-scheduler-extender"

log = logging.getLogger(__name__)


class Followed:
    """An informer with its store, as the lifecycle and the status page see them."""

    def __init__(self, name: str, informer: Informer) -> None:
        self.name, self.informer = name, informer
        self.store: Store[Any] = informer.store

    def start(self) -> None:
        self.informer.start()

    def stop(self) -> None:
        self.informer.stop()

    def catch_up(self, timeout: float) -> bool:
        caught_up = self.informer.catch_up(timeout)
        if not caught_up:
            log.warning("store has not caught up kind=%s", self.name)
        return caught_up

    def age(self) -> float:
        return self.informer.age()

    def state(self) -> StoreState:
        store = self.store
        return StoreState(self.name, store.synced.is_set(), len(store), len(store.bad), self.informer.age())

    # As a live read compares itself with it

    @property
    def resource_version(self) -> str:
        return self.informer.resource_version

    def get(self, key: str) -> Any:
        return self.store.get(key)


class Controller:
    """The whole process: what gunicorn's worker builds, starts and stops."""

    def __init__(
        self,
        settings: ProcessSettings,
        identity: str,
        api: KubeApi,
        clock: Clock | None = None,
        *,
        tls: ServerTls | None = None,
    ) -> None:
        self.settings, self.identity, self.tls = settings, identity, tls
        self.clock: Clock = clock or SystemClock()
        self.allocator = Allocator(self.clock)
        self.gate = Gate(self.clock)
        self.metrics = Metrics(CollectorRegistry(), settings.node_name, product_version())
        self._follow(api)
        self.live = LiveReader(self._live_kinds(api), self.allocator)
        self.waker = Waker(
            self.allocator,
            PodPatches(api),
            self.clock,
            with_annotation=lambda: self._live_settings().wake_with_annotation,
            is_leading=lambda: self.gate.is_open,
        )
        self.certificates = certificate_worker(settings, api, self.clock, tls, lambda: self.gate.is_open)
        self.elector = self._make_elector(api)
        recorder = Recorder(api, self.clock, component=PACKAGE, instance=self.identity)
        self.teller = Teller(self.allocator, recorder, self.clock)
        self.wired = build_wiring(
            api,
            self.clock,
            recorder,
            self.followed["pod"].store,
            namespace=settings.namespace,
            lease=settings.lease,
            schedulers=settings.scheduler_names,
            serving=self._serving,
            every_seconds=lambda: self._live_settings().wiring_check_every_seconds,
        )
        self.lifecycle = self._make_lifecycle(api)
        self.preconditions = self._make_preconditions()
        self.app: WSGIApplication = create_app(
            self._make_verbs(api),
            self.metrics,
            self.clock,
            max_body_bytes=settings.body_limit_bytes,
        ).wsgi_app
        self.metrics.read_from(self._sources())

    # The process, as the server runs it

    def start(self) -> None:
        self.lifecycle.start()

    def begin_stop(self) -> None:
        self.lifecycle.begin_stop()

    def stop(self) -> None:
        self.lifecycle.stop()

    def _begin_term(self, term: int) -> None:
        self.lifecycle.begin_term(term)

    def _end_term(self) -> None:
        self.lifecycle.end_term()

    # Parts

    def _follow(self, api: KubeApi) -> None:
        feed = Feed(self.allocator)
        namespace = self.settings.namespace
        self.followed: dict[str, Followed] = {}
        for kind in KINDS:
            followed = self._followed(
                api, kind.name, kind.resource, kind.parse, namespace if kind.in_longhorn else None
            )
            feed.follow(kind.name, followed.store, cluster_scoped=kind.in_longhorn or not kind.resource.is_namespaced)
        config_maps = self._followed(api, "config_map", resources.CONFIG_MAPS, self._our_config_map, namespace)
        longhorn = self._followed(api, "setting", resources.LONGHORN_SETTINGS, _setting_value, namespace)
        for followed in (config_maps, longhorn):
            followed.store.subscribe(lambda _changes: self.lifecycle.settings_changed())
        longhorn.store.subscribe(lambda _changes: self.support.changed())
        self._read_settings = SettingsReader(config_maps.store, longhorn.store)
        self.support = SupportWatch(
            lambda: synced_longhorn_values(longhorn.store),
            lambda name: api.get(resources.CRDS, None, name, timeout=5.0),
        )

    def _followed(
        self, api: KubeApi, name: str, resource: Resource, facts: Callable[[Raw], Any], namespace: str | None
    ) -> Followed:
        store: Store[Any] = Store(name, facts)
        followed = Followed(name, Informer(api, resource, store, self.clock, namespace=namespace))
        self.followed[name] = followed
        return followed

    def _our_config_map(self, raw: Raw) -> Mapping[str, str] | None:
        if text_at(mapping_at(raw, "", "metadata"), "metadata", "name") != self.settings.config_map:
            return None
        data = mapping_at(raw, "", "data")
        return {name: text_at(data, "data", name) for name in data}

    def _live_kinds(self, api: KubeApi) -> dict[str, LiveKind]:
        kinds = {}
        for kind in KINDS:
            if kind.is_live:
                namespace = self.settings.namespace if kind.in_longhorn else ""
                kinds[kind.name] = LiveKind(
                    _reader(api, kind.resource), kind.parse, self.followed[kind.name], namespace
                )
        return kinds

    def _make_elector(self, api: KubeApi) -> Elector:
        settings = self.settings
        return Elector(
            LeaseClient(api, settings.namespace, settings.lease, self.clock),
            self.gate,
            self.clock,
            self.identity,
            Timing(settings.lease_duration_seconds, settings.renew_deadline_seconds, settings.retry_period_seconds),
            on_started=self._begin_term,
            on_stopped=self._end_term,
        )

    def _make_lifecycle(self, api: KubeApi) -> Lifecycle:
        settings = self.settings
        page = create_status_app(self.metrics.registry, is_ready=self.is_synced, status=self.status)
        return Lifecycle(
            Parts(
                clock=self.clock,
                allocator=self.allocator,
                followers=tuple(self.followed.values()),
                gate=self.gate,
                elector=self.elector,
                sweeper=Sweeper(
                    self.allocator, self.live, is_leading=lambda: self.gate.is_open, after_round=self.metrics.drain
                ),
                waker=self.waker,
                endpoint=ServiceEndpoint(EndpointSlices(api, settings.namespace), settings, self.certificates),
                always=(
                    StatusServer(page, settings.metrics_address, settings.metrics_port),
                    self.support,
                    self.teller,
                    self.certificates,
                    self.wired.prover,
                ),
                read_settings=self._read_settings,
            )
        )

    def _make_preconditions(self) -> Preconditions:
        return Preconditions(
            self.allocator,
            OpenedGate(self.gate, lambda: self.lifecycle.openings),
            self.live,
            self.clock,
            mode=lambda: self.lifecycle.mode,
            stale_kind=self.stale_kind,
        )

    def _make_verbs(self, api: KubeApi) -> Verbs:
        allocator, preconditions = self.allocator, self.preconditions
        filtering = ExtenderService(
            allocator,
            preconditions,
            self.clock,
            self.metrics,
            self.teller,
            contention_wait_seconds=lambda: self._live_settings().contention_wait_milliseconds / 1000,
            budget=WaitBudget(),
        )
        binding = BindingService(allocator, preconditions, PodBinder(api), self.live)
        return Verbs(
            CanaryFilter(filtering, preconditions, self.wired.proof),
            PriorityService(allocator, preconditions),
            PreemptionService(allocator, preconditions, self.metrics),
            binding,
        )

    # Views

    def _live_settings(self) -> LiveSettings:
        configured = self.lifecycle.configured
        return configured.live if configured is not None else LiveSettings()

    def _serving(self) -> int | None:
        """Which opening of the gate this is, while kube-scheduler is meant to ask here and can."""
        lifecycle = self.lifecycle
        if not (self.gate.is_open and lifecycle.points_here and self._live_settings().enabled):
            return None
        return lifecycle.openings

    def is_synced(self) -> bool:
        """Whether every store follows the cluster; true on followers too."""
        return all(followed.store.synced.is_set() for followed in self.followed.values())

    def stale_kind(self) -> str | None:
        """The first kind whose store is too old to decide on."""
        for name, followed in self.followed.items():
            if followed.age() > STALE_SECONDS:
                return name
        return None

    def store_states(self) -> Sequence[StoreState]:
        return [followed.state() for followed in self.followed.values()]

    def _sources(self) -> Sources:
        return Sources(
            snapshot=self.allocator.snapshot,
            drain_records=self.allocator.drain_records,
            is_leading=lambda: self.gate.is_open,
            stores=self.store_states,
            wakeups=lambda: (self.waker.woken, self.waker.failed),
            settings_problems=lambda: len(self.lifecycle.configured.problems) if self.lifecycle.configured else 0,
            certificates=self.certificates.expiries,
            certificate_problems=lambda: len(self.certificates.problems),
            handshakes=self.tls.counts if self.tls is not None else dict,
            wiring=self.wired.proof.findings,
            canaries=lambda: self.wired.prover.outcomes,
        )

    def status(self) -> Mapping[str, Any]:
        """What `/status` shows: who leads, in which mode, every promise, and how current the stores are."""
        snapshot = self.allocator.snapshot()
        configured = self.lifecycle.configured
        return {
            "identity": self.identity,
            "node": self.settings.node_name,
            "is_leading": self.gate.is_open,
            "holder": self.elector.holder,
            "term": self.lifecycle.term,
            "mode": self.lifecycle.mode,
            "longhorn": self.support.current,
            "wiring": self.wired.status(),
            "settings": configured.live if configured else None,
            "longhorn_settings": configured.longhorn if configured else None,
            "settings_problems": configured.problems if configured else {},
            "certificates": {name: round(seconds) for name, seconds in self.certificates.expiries().items()},
            "certificate_problems": self.certificates.problems,
            "held": {"count": snapshot.held_count, "bytes": snapshot.held_bytes},
            "assumed": {"count": snapshot.assumed_count, "bytes": snapshot.assumed_bytes},
            "oldest_hold_seconds": round(snapshot.oldest_hold_seconds, 3),
            "refused_pods": snapshot.refused_count,
            "quarantined": snapshot.quarantined,
            "promises": snapshot.promises,
            "counters": snapshot.counters,
            "stores": [
                {
                    "kind": state.kind,
                    "is_synced": state.is_synced,
                    "objects": state.objects,
                    "bad": self.followed[state.kind].store.bad,
                    "age_seconds": round(state.age_seconds, 3) if state.age_seconds < float("inf") else None,
                }
                for state in self.store_states()
            ],
        }


def product_version() -> str:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"


def _setting_value(raw: Raw) -> str:
    return text_at(raw, "", "value")


def _reader(api: KubeApi, resource: Resource) -> Callable[[str, str, float], Mapping[str, Any]]:
    def read(namespace: str, name: str, timeout_seconds: float) -> Mapping[str, Any]:
        return api.get(resource, namespace or None, name, timeout=timeout_seconds)

    return read
