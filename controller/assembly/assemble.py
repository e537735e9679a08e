"""Builds the controller's object graph: the only place that knows which part gets which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from certs.webhook import DEFAULT_PACE, Pace
from controller.admission.build import AdmissionParts, build_admission
from controller.allocator.allocator import Allocator
from controller.assembly.adapters import OpenedGate, PodPatches, ServiceEndpoint, SettingsEvents
from controller.assembly.certificates import certificate_worker, tell_plain_http, transport_status, webhook_chain
from controller.assembly.configuration import SettingsReader, synced_longhorn_values
from controller.assembly.lifecycle import Lifecycle, Parts
from controller.assembly.metrics import LeaderMetrics, LeaderSources
from controller.assembly.status_document import StatusView
from controller.assembly.status_listeners import status_servers
from controller.canary.build import LeaseEvents, build_wiring
from controller.clock import Clock, SystemClock
from controller.election.elector import Elector, Timing
from controller.election.gate import Gate
from controller.follow.live import LiveReader
from controller.follow.stores import Stores
from controller.kube import resources
from controller.kube.api import KubeApi
from controller.kube.binder import PodBinder
from controller.kube.endpoint_slice import EndpointSlices
from controller.kube.lease import LeaseClient
from controller.kube.recorder import Recorder, Target
from controller.placement.build import build_placement
from controller.process.addition import Addition
from controller.process.flags import split_names
from controller.process.status_port import StatusServer, create_metrics_app
from controller.process.version import PACKAGE, product_version
from controller.process.worker import Worker, health_problem, worker_entries
from controller.record.build import build_record
from controller.rpc.build import build_rpc
from controller.serving.tls import ServerTls
from controller.settings import PLAIN_HTTP, LiveSettings, ProcessSettings
from controller.workers.support import SupportWatch
from controller.workers.sweeper import Sweeper
from controller.workers.teller import Teller
from controller.workers.waker import Waker
from extender.app import Verbs, create_app
from extender.binding import BindingService
from extender.canary import CanaryFilter
from extender.contention import WaitBudget
from extender.coschedule import CoScheduler
from extender.preconditions import Preconditions
from extender.preemption import PreemptionService
from extender.priorities import PriorityService
from extender.service import ExtenderService
from extender.wire import ClusterSize, PodRef

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


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
        serving: Sequence[Worker] = (),
        end_process: Callable[[], None] = lambda: None,
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        self.settings, self.identity, self.tls = settings, identity, tls
        self._serving_workers, self._end_process = serving, end_process
        self.clock: Clock = clock or SystemClock()
        self.allocator = Allocator(self.clock, frozenset(split_names(settings.scheduler_names)))
        self.gate = Gate(self.clock)
        self.metrics = LeaderMetrics(CollectorRegistry(), settings.node_name, product_version())
        self._follow(api)
        self.live = LiveReader(self.stores.live_kinds(), self.allocator)
        self.waker = Waker(
            self.allocator,
            PodPatches(api),
            self.clock,
            with_annotation=lambda: self._live_settings().wake_with_annotation,
            is_leading=lambda: self.gate.is_open,
        )
        self.certificates = certificate_worker(settings, api, self.clock, tls, lambda: self.gate.is_open)
        self.webhook_chain = webhook_chain(settings, api, self.clock, lambda: self.gate.is_open, pace=pace)
        self.elector = self._make_elector(api)
        self.recorder = Recorder(api, self.clock, component=PACKAGE, instance=self.identity)
        self._tell = SettingsEvents(self.recorder, settings, self.stores.config_maps).tell
        self.teller = Teller(self.allocator, self.recorder, self.clock, settings.namespace)
        self.proof, self.prover, self._lease_watch = build_wiring(
            api,
            self.clock,
            self.stores.followed["pod"].store,
            settings,
            serving=self._serving,
            live=self._live_settings,
            tell=LeaseEvents(api, self.recorder, settings.namespace, settings.lease).tell,
        )
        self.co_scheduler = self._make_co_scheduler()
        self.admission = self._make_admission(api)
        self.additions = self._add(api)
        self.lifecycle = self._make_lifecycle(api)
        self.preconditions = self._make_preconditions()
        self.app: WSGIApplication = create_app(
            self._make_verbs(api),
            self.metrics,
            self.clock,
            max_body_bytes=settings.body_limit_bytes,
            cluster_size=lambda: ClusterSize(len(self.stores.followed["kube_node"].store)),
        ).wsgi_app
        self.metrics.read_from(self._sources())
        self._view = self._make_view()

    # The process, as the server runs it

    @property
    def workers(self) -> Sequence[Worker]:
        return (*self.lifecycle.workers, *self._serving_workers)

    def start(self) -> None:
        self.lifecycle.start()

    def begin_stop(self) -> None:
        self.lifecycle.begin_stop()

    def stop(self) -> None:
        self.lifecycle.stop()

    def _begin_term(self, term: int) -> None:
        if self.tls is None:
            tell_plain_http(self.recorder, self.settings)
        self.lifecycle.begin_term(term, has_predecessor=self.elector.had_predecessor)

    def _end_term(self) -> None:
        self.lifecycle.end_term()

    # Parts

    def _follow(self, api: KubeApi) -> None:
        self.stores = Stores(api, self.clock, self.settings.namespace, self.settings.config_map)
        self.stores.feed(self.allocator)
        config_maps, longhorn = self.stores.config_maps, self.stores.longhorn_settings
        for store in (config_maps, longhorn):
            store.subscribe(lambda _changes: self.lifecycle.settings_changed())
        longhorn.subscribe(lambda _changes: self.support.worker.wake())
        self._read_settings = SettingsReader(config_maps, longhorn)
        self.support = SupportWatch(
            lambda: synced_longhorn_values(longhorn),
            lambda name: api.get(resources.CRDS, None, name, timeout=5.0),
        )

    def _add(self, api: KubeApi) -> Sequence[Addition]:
        """Builds the parts besides the extender, in the order in which they start; starts nothing."""
        stores = {name: followed.store for name, followed in self.stores.followed.items()}
        self.record, record = build_record(
            api,
            self.settings.namespace,
            self.clock,
            self.gate,
            stores,
            self.metrics.registry,
            self.allocator.record,
            settings=self._live_settings,
            is_fresh=lambda: self.stores.stale_kind() is None,
        )
        rpc = build_rpc(
            self.settings,
            api,
            self.clock,
            self.allocator,
            self.live,
            self.metrics.registry,
            checks=lambda: self.preconditions,
            is_leading=lambda: self.gate.is_open,
            credentials=self.webhook_chain.grpc_server,
            record=self.record.known,
        )
        self.placement = build_placement(
            api,
            self.settings,
            self.clock,
            stores,
            self.metrics.registry,
            decides=self.allocator.places,
            checks=lambda: self.preconditions,
            live=self._live_settings,
            mode=lambda: self.lifecycle.mode,
            holds_lease=lambda term: self.lifecycle.holds(term),  # noqa: PLW0108 -- it is made later
            is_leading=lambda: self.gate.is_open,
            wait=lambda seconds: self.lifecycle.worker.wait(seconds),  # noqa: PLW0108 -- the same
            tell=self._tell,
            explains=self.teller,
        )
        return (
            record,
            Addition("webhook_certificates", self.webhook_chain, self.webhook_chain.status),
            self.admission.addition,
            rpc,
            *self.placement.additions,
        )

    def _make_admission(self, api: KubeApi) -> AdmissionParts:
        admission = build_admission(
            api,
            self.clock,
            self.recorder,
            self.settings,
            {name: followed.store for name, followed in self.stores.followed.items()},
            live=self._live_settings,
            longhorn=lambda: self.support.current,
            findings=self.proof.findings,
            opening=lambda: self.lifecycle.openings if self.gate.is_open else None,
            authorities=self.webhook_chain.ca_bundle,
        )
        self.webhook_chain.subscribe(admission.worker.changed)
        return admission

    def _make_co_scheduler(self) -> CoScheduler:
        return CoScheduler(
            self.allocator.served,
            self.clock,
            self._live_settings,
            namespace=self.settings.namespace,
            wake=self.waker.wake,
            tell=self._tell_pod,
            is_leading=lambda: self.gate.is_open,
        )

    def _make_elector(self, api: KubeApi) -> Elector:
        settings = self.settings
        return Elector(
            LeaseClient(
                api, settings.namespace, settings.lease, self.clock, lambda: not self.allocator.has_unseen_growth()
            ),
            self.gate,
            self.clock,
            self.identity,
            Timing(settings.lease_duration_seconds, settings.renew_deadline_seconds, settings.retry_period_seconds),
            on_started=self._begin_term,
            on_stopped=self._end_term,
        )

    def _make_lifecycle(self, api: KubeApi) -> Lifecycle:
        settings = self.settings
        page = create_metrics_app(
            self.metrics.registry, problem=lambda: health_problem(self.workers), is_ready=self.stores.is_synced
        )
        slices = EndpointSlices(api, settings.namespace, is_leading=lambda: self.gate.is_open)
        return Lifecycle(
            Parts(
                clock=self.clock,
                allocator=self.allocator,
                followers=tuple(self.stores.followed.values()),
                gate=self.gate,
                elector=self.elector,
                sweeper=Sweeper(
                    self.allocator,
                    self.live,
                    is_leading=lambda: self.gate.is_open,
                    after_round=self._after_sweep,
                ),
                waker=self.waker,
                endpoint=ServiceEndpoint(slices, settings, self.certificates),
                terms=self.placement.terms,
                load_record=self.record.load,
                always=(
                    StatusServer("metrics", page, settings.metrics_address, settings.metrics_port),
                    *status_servers(settings, api, self.status),
                    self.support,
                    self.teller,
                    self.co_scheduler,
                    self.recorder,
                    self.certificates,
                    self._lease_watch,
                    self.prover,
                    *(addition.part for addition in self.additions),
                ),
                read_settings=self._read_settings,
                tell=self._tell,
                no_pod_opts_in=self.admission.worker.is_pod_rule_out,
                end_process=self._end_process,
            )
        )

    def _after_sweep(self) -> None:
        self.metrics.drain()
        self.teller.tell_of_claims()

    def _make_preconditions(self) -> Preconditions:
        return Preconditions(
            self.allocator,
            OpenedGate(self.gate, lambda: self.lifecycle.openings),
            self.live,
            self.clock,
            mode=lambda: self.lifecycle.mode,
            stale_kind=self.stores.stale_kind,
            knows_callers=self.settings.tls_mode != PLAIN_HTTP,
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
            co_scheduler=self.co_scheduler,
        )
        binding = BindingService(preconditions, PodBinder(api))
        return Verbs(
            CanaryFilter(filtering, preconditions, self.proof),
            PriorityService(allocator, preconditions, self.co_scheduler),
            PreemptionService(allocator, preconditions, self.metrics, self.teller, self.co_scheduler),
            binding,
        )

    def _tell_pod(self, pod: PodRef, reason: str, text: str) -> None:
        target = Target("Pod", pod.namespace, pod.name, pod.uid)
        self.recorder.note(target, reason, text, is_warning=True)

    # Views

    def _live_settings(self) -> LiveSettings:
        configured = self.lifecycle.configured
        return configured.live if configured is not None else LiveSettings()

    def _serving(self) -> int | None:
        """The number of the gate's opening, while kube-scheduler should and can ask this process."""
        lifecycle = self.lifecycle
        if not (self.gate.is_open and lifecycle.points_here and self._live_settings().enabled):
            return None
        return lifecycle.openings

    def _sources(self) -> LeaderSources:
        return LeaderSources(
            snapshot=self.allocator.snapshot,
            drain_records=self.allocator.drain_records,
            is_leading=lambda: self.gate.is_open,
            stores=self.stores.states,
            workers=lambda: self.workers,
            wakeups=lambda: (self.waker.woken, self.waker.failed),
            settings_problems=lambda: len(self.lifecycle.configured.problems) if self.lifecycle.configured else 0,
            certificates=lambda: {**self.certificates.expiries(), **self.webhook_chain.expiries()},
            certificate_problems=lambda: len(self.certificates.problems) + len(self.webhook_chain.problems),
            handshakes=self.tls.counts if self.tls is not None else dict,
            wiring=self.proof.findings,
            canaries=lambda: self.prover.outcomes,
            late_canary_calls=lambda: self.proof.late_calls,
            admission=self.admission.worker.figures,
        )

    def status(self) -> Mapping[str, Any]:
        """What `/status` shows."""
        return self._view.document()

    def _make_view(self) -> StatusView:
        return StatusView(
            self.identity,
            self.settings,
            self.allocator,
            self.gate,
            self.elector,
            self.lifecycle,
            self.stores,
            self.certificates,
            lambda: self.support.current,
            {
                "transport": lambda: transport_status(self.settings),
                "wiring": self.proof.status,
                **{addition.name: addition.status for addition in self.additions},
                "workers": lambda: worker_entries(self.workers),
            },
        )
