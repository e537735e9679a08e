"""Builds the controller's object graph: the only place that knows which part gets which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

from certs.webhook import DEFAULT_PACE, Pace
from controller.admission.build import AdmissionWorker
from controller.allocator.allocator import Allocator
from controller.assembly import metrics
from controller.assembly.certificates import certificate_worker, tell_plain_http, webhook_chain
from controller.assembly.configuration import SettingsReader
from controller.assembly.documents import StatusDocuments
from controller.assembly.gauges import Gauges
from controller.assembly.lifecycle import Lifecycle, Parts
from controller.assembly.metrics import LeaderMetrics
from controller.assembly.status_listeners import StatusListeners
from controller.canary.build import LeaseEvents, build_wiring
from controller.clock import Clock, SystemClock
from controller.election.elector import Elector, Timing
from controller.election.gate import Gate
from controller.follow.live import LiveReader
from controller.follow.stores import Stores
from controller.kube.api import KubeApi
from controller.kube.binder import PodBinder
from controller.kube.endpoint_slice import EndpointSlices, PodEndpoint
from controller.kube.lease import LeaseClient
from controller.kube.recorder import Recorder, Target
from controller.kube.resources import CONFIG_MAPS
from controller.page.app import create_page
from controller.placement.build import build_placement
from controller.process.common_metrics import (
    PREFIX,
    crowded_metric,
    new_registry,
    store_metrics,
    worker_metrics,
)
from controller.process.flags import split_names
from controller.process.named_part import NamedPart
from controller.process.status_port import StatusServer, create_metrics_app
from controller.process.version import PACKAGE, product_version
from controller.process.worker import Worker, health_problem
from controller.record.build import build_record
from controller.rpc.build import build_rpc
from controller.serving.tls import ServerTls
from controller.settings import PLAIN_HTTP, ProcessSettings
from controller.views.decisions import DecisionLog
from controller.views.views import Views
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
        crowded: Callable[[], int] = lambda: 0,
        end_process: Callable[[], None] = lambda: None,
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        self.settings, self.identity, self.tls, self._serving_workers = settings, identity, tls, serving
        self._crowded = crowded
        self.clock: Clock = clock or SystemClock()
        self.allocator = Allocator(self.clock, frozenset(split_names(settings.scheduler_names)))
        self.gate = Gate(self.clock)
        self.decisions, self.views = DecisionLog(self.clock), Views(self.allocator)
        self.gauges = Gauges(self.allocator, self.views.capacity, self.is_leading)
        self.metrics = LeaderMetrics(new_registry(), product_version(), self.allocator.drain_records)
        self.stores = Stores(api, self.clock, settings.namespace, settings.config_map)
        self.stores.feed(self.allocator)
        self.lifecycle = self._make_lifecycle(end_process)
        self.live = LiveReader(self.stores.live_kinds(), self.allocator)
        self.preconditions = self._make_preconditions()
        self.recorder = Recorder(api, self.clock, component=PACKAGE, instance=identity)
        self.teller = Teller(self.allocator, self.recorder, self.clock, settings.namespace)
        self.waker = self._make_waker(api)
        self.support = SupportWatch(api, self.stores.longhorn_settings)
        self.certificates = certificate_worker(settings, api, self.clock, tls, self.is_leading)
        self._listeners = StatusListeners(
            settings, api, self.clock, tls=tls, certificates=self.certificates, is_leading=self.is_leading
        )
        self.webhook_chain = webhook_chain(settings, api, self.clock, self.is_leading, pace=pace)
        self.elector = self._make_elector(api)
        self.co_scheduler = self._make_co_scheduler()
        lease_events = LeaseEvents(api, self.recorder, settings.namespace, settings.lease)
        self.proof, self.prover, self._lease_watch = build_wiring(
            api,
            self.clock,
            self.stores.by_kind["pod"],
            settings,
            serving=self._serving,
            live=self.lifecycle.live_settings,
            tell=lease_events.tell,
        )
        self.admission = self._make_admission(api, lease_events)
        self.parts = self._add(api)
        self.documents = StatusDocuments(self, self._listeners.problem)
        self.lifecycle.take_parts(self._make_parts(api))
        self.app: WSGIApplication = create_app(
            self._make_verbs(api),
            self.metrics,
            self.clock,
            max_body_bytes=settings.body_limit_bytes,
            cluster_size=lambda: ClusterSize(len(self.stores.by_kind["kube_node"])),
        ).wsgi_app
        self.metrics.show(self._scrape)

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

    def is_leading(self) -> bool:
        return self.gate.is_open

    # Parts, in the order in which they are made

    def _make_lifecycle(self, end_process: Callable[[], None]) -> Lifecycle:
        config_maps, longhorn = self.stores.config_maps, self.stores.longhorn_settings
        followers = tuple(self.stores.followed.values())
        read = SettingsReader(config_maps, longhorn)
        lifecycle = Lifecycle(self.clock, self.allocator, self.gate, followers, read, end_process, self.decisions.note)
        for store in (config_maps, longhorn):
            store.subscribe(lifecycle.settings_changed)
        return lifecycle

    def _make_preconditions(self) -> Preconditions:
        return Preconditions(
            self.allocator,
            self.gate,
            self.live,
            self.clock,
            mode=lambda: self.lifecycle.mode,
            stale_kind=self.stores.stale_kind,
            knows_callers=self.settings.tls_mode != PLAIN_HTTP,
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
            on_stopped=self.lifecycle.end_term,
        )

    def _make_waker(self, api: KubeApi) -> Waker:
        live, note = self.lifecycle.live_settings, self.decisions.note
        return Waker(self.allocator, api, self.clock, live=live, is_leading=self.is_leading, note=note)

    def _make_co_scheduler(self) -> CoScheduler:
        return CoScheduler(
            self.allocator.served,
            self.clock,
            self.lifecycle.live_settings,
            namespace=self.settings.namespace,
            wake=self.waker.wake,
            tell=self._tell_pod,
            is_leading=self.is_leading,
        )

    def _make_admission(self, api: KubeApi, lease_events: LeaseEvents) -> AdmissionWorker:
        admission = AdmissionWorker(
            api,
            self.clock,
            self.recorder,
            self.settings,
            self.stores.by_kind,
            live=self.lifecycle.live_settings,
            support=self.support,
            findings=self.proof.findings,
            opening=self.gate.opening,
            authorities=self.webhook_chain.ca_bundle,
            tell=lease_events.tell,
        )
        self.webhook_chain.subscribe(admission.reconciler.worker.wake)
        return admission

    def _add(self, api: KubeApi) -> Sequence[NamedPart]:
        """Builds the parts besides the extender, in the order in which they start; starts nothing."""
        self.record, record = build_record(
            api,
            self.settings.namespace,
            self.clock,
            self.gate,
            self.stores.by_kind,
            self.metrics.registry,
            self.allocator.record,
            settings=self.lifecycle.live_settings,
            is_fresh=lambda: self.stores.stale_kind() is None,
        )
        self.rpc = build_rpc(
            self.settings,
            api,
            self.clock,
            self.allocator,
            self.live,
            self.metrics.registry,
            checks=lambda: self.preconditions,
            is_leading=self.is_leading,
            credentials=self.webhook_chain.grpc_server,
            record=self.record.known,
            note=self.decisions.note,
        )
        for worker in self.rpc.part.workers:
            self.webhook_chain.subscribe(worker.wake)
        self.placement = build_placement(
            api,
            self.settings,
            self.clock,
            self.stores.by_kind,
            self.metrics.registry,
            decides=self.allocator.places,
            checks=lambda: self.preconditions,
            live=self.lifecycle.live_settings,
            mode=lambda: self.lifecycle.mode,
            holds_lease=self.lifecycle.holds,
            is_leading=self.is_leading,
            wait=self.lifecycle.worker.wait,
            tell=self._tell_settings,
            explains=self.teller,
            note=self.decisions.note,
        )
        return (
            record,
            NamedPart("webhook_certificates", self.webhook_chain, self.webhook_chain.status),
            NamedPart("admission", self.admission, self.admission.status),
            self.rpc,
            *self.placement.parts,
        )

    def _make_parts(self, api: KubeApi) -> Parts:
        settings = self.settings
        page = create_metrics_app(
            self.metrics.registry,
            problem=lambda: health_problem(self.workers),
            is_ready=self.stores.is_synced,
            rendered=self.gauges.page,
        )
        slices = EndpointSlices(api, settings.namespace, is_leading=self.is_leading)
        ports = {"http": settings.endpoint_port or settings.extender_port}  # the Service's, by its name
        return Parts(
            elector=self.elector,
            sweeper=Sweeper(self.allocator, self.live, is_leading=self.is_leading, after_round=self._after_sweep),
            waker=self.waker,
            endpoint=PodEndpoint(slices, settings, settings.service, ports),
            certificates=self.certificates,
            terms=self.placement.terms,
            load_record=self.record.load,
            begun=self._term_begun,
            always=(
                StatusServer("metrics", page, settings.metrics_address, settings.metrics_port),
                *self._listeners.parts(self.documents.answers(), create_page(product_version())),
                self.support,
                self.gauges,
                self.teller,
                self.co_scheduler,
                self.recorder,
                self.certificates,
                self._lease_watch,
                self.prover,
                *(one.part for one in self.parts),
            ),
            tell=self._tell_settings,
            no_pod_opts_in=self.admission.reconciler.is_pod_rule_out,
        )

    def _make_verbs(self, api: KubeApi) -> Verbs:
        allocator, preconditions = self.allocator, self.preconditions
        filtering = ExtenderService(
            allocator,
            preconditions,
            self.clock,
            self.metrics,
            self.teller,
            contention_wait_seconds=lambda: self.lifecycle.live_settings().contention_wait_milliseconds / 1000,
            budget=WaitBudget(),
            co_scheduler=self.co_scheduler,
            note=self.decisions.note,
        )
        preempting = PreemptionService(
            allocator, preconditions, self.metrics, self.teller, self.co_scheduler, self.decisions.note
        )
        return Verbs(
            CanaryFilter(filtering, preconditions, self.proof),
            PriorityService(allocator, preconditions, self.co_scheduler).prioritize,
            preempting.preempt,
            BindingService(preconditions, PodBinder(api)).bind,
        )

    def _scrape(self) -> Iterator[Metric]:
        configured, wakeups = self.lifecycle.configured, (self.waker.woken, self.waker.failed)
        problems = len(configured.problems) if configured is not None else 0
        dropped = self.recorder.dropped + self.teller.dropped
        yield from metrics.of_process(self.settings.node_name, self.is_leading(), wakeups, problems, dropped)
        yield from metrics.of_snapshot(self.allocator.snapshot(with_promises=False))
        yield from self.gauges.collect()
        yield from store_metrics(PREFIX, self.stores.states())
        yield from worker_metrics(PREFIX, self.workers)
        yield crowded_metric(PREFIX, self._crowded())
        handshakes = self.tls.counts() if self.tls is not None else {}
        yield from metrics.of_certificates((self.certificates, self.webhook_chain), handshakes)
        yield from metrics.of_wiring(self.proof.findings(), self.prover.outcomes, self.proof.late_calls)
        yield from metrics.of_admission(self.admission.figures(), self.admission.missed.by_scheduler())

    # What parts ask of the process

    def _begin_term(self, term: int, has_predecessor: bool) -> None:
        if self.tls is None:
            tell_plain_http(self.recorder, self.settings)
        self.lifecycle.begin_term(term, has_predecessor)

    def _term_begun(self) -> None:
        """Has the second Service lead here at once, or as soon as there are certificates for its server."""
        for worker in (*self.webhook_chain.workers, *self.rpc.part.workers, self.gauges.worker):
            worker.wake()
        self._listeners.term_begun()

    def _after_sweep(self) -> None:
        self.metrics.drain()
        self.teller.tell_of_claims()
        self.teller.tell_of_disks(self._tell_settings)

    def _tell_pod(self, pod: PodRef, reason: str, text: str) -> None:
        target = Target("Pod", pod.namespace, pod.name, pod.uid)
        self.recorder.note(target, reason, text, is_warning=True)

    def _tell_settings(self, reason: str, text: str, is_warning: bool) -> None:
        """An Event on the ConfigMap with the live settings, where those who change it look."""
        uid = next((found.uid for found in self.stores.config_maps.values()), "")
        target = Target(CONFIG_MAPS.kind, self.settings.namespace, self.settings.config_map, uid)
        self.recorder.note(target, reason, text, is_warning=is_warning)

    def _serving(self) -> int | None:
        """The number of the gate's opening, while kube-scheduler should and can ask this process."""
        is_asked = self.lifecycle.points_here and self.lifecycle.live_settings().enabled
        return self.gate.opening() if is_asked else None
