"""Builds the webhook's object graph: the one place that knows which part is given to which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.clock import Clock, SystemClock
from controller.kube.api import KubeApi
from controller.kube.bounded_reads import ReadLimits
from controller.kube.resources import Resource
from controller.process.common_metrics import (
    certificate_metrics,
    crowded_metric,
    new_registry,
    store_entries,
    store_metrics,
    worker_metrics,
)
from controller.process.status_app import StatusApp
from controller.process.status_port import LOOPBACK, StatusServer, create_metrics_app
from controller.process.version import product_version
from controller.process.worker import Group, Worker, health_problem, worker_entries
from controller.rules.opt_in import OptInPolicy
from controller.serving.tls import ServerTls
from webhook.app import Reviewer, create_app
from webhook.certificates import certificate_worker
from webhook.expansion import CLAIM, VOLUME, ExpansionService, GrowthCheck
from webhook.leader import BoundedLeader, LeaderClient
from webhook.metrics import PREFIX, WebhookMetrics
from webhook.pod_opt_in import PodService
from webhook.settings import LiveSettingsReader, WebhookSettings
from webhook.share_manager import ShareManagerService
from webhook.stores import SHARED_SECONDS, TURN_SECONDS, BoundedReader, Following

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

MUTATE_PODS: Final = "mutate-pods"
MUTATE_SHARE_MANAGERS: Final = "mutate-share-managers"
_KINDS: Final = {"validate-pvcs": CLAIM, "validate-volumes": VOLUME}  # that grow, by their routes
CHECK_GROWTH: Final = "check-growth"
ROUTES: Final = (MUTATE_PODS, MUTATE_SHARE_MANAGERS, *_KINDS, CHECK_GROWTH)


class Webhook(Collector):
    """The whole process: what gunicorn's worker builds, starts and stops."""

    def __init__(
        self,
        settings: WebhookSettings,
        api: KubeApi,
        clock: Clock | None = None,
        *,
        tls: ServerTls | None = None,
        serving: Sequence[Worker] = (),
        crowded: Callable[[], int] = lambda: 0,
    ) -> None:
        """`crowded`: how many requests the server has refused by 429."""
        self.settings, self._api, self._tls, self._crowded = settings, api, tls, crowded
        self._serving_workers = serving
        self.clock: Clock = clock or SystemClock()
        self.following = Following(api, self.clock, settings.namespace, settings.config_map)
        self.live = LiveSettingsReader(self.following.config_maps, self.following.longhorn_settings)
        self.certificates = certificate_worker(settings, api, self.clock, tls)
        self.metrics = WebhookMetrics(new_registry(), product_version(), ROUTES)
        self._is_stopping = False
        self._leader = LeaderClient(
            settings.leader, settings.leader_name, self.certificates.client_credentials, self.clock
        )
        self.app: WSGIApplication = create_app(
            self._reviewers(), self.is_ready, self.metrics, self.clock, max_body_bytes=settings.body_limit_bytes
        ).wsgi_app
        page = create_metrics_app(
            self.metrics.registry, problem=lambda: health_problem(self.workers), is_ready=self.is_ready
        )
        status = StatusApp({"/status": lambda _: self.status()})
        self._pages = Group(
            (
                StatusServer("metrics", page, settings.metrics_address, settings.metrics_port),
                StatusServer("status", status, LOOPBACK, settings.status_port),
            )
        )
        self.metrics.registry.register(self)

    # The process, as the server runs it

    @property
    def workers(self) -> Sequence[Worker]:
        return (*self._pages.workers, *self.certificates.workers, *self.following.workers, *self._serving_workers)

    def start(self) -> None:
        self._pages.start()
        self.certificates.start()
        self.following.start()

    def begin_stop(self) -> None:
        self._is_stopping = True  # not ready from now on, so that the Service sends no more calls here

    def stop(self) -> None:
        self._leader.stop()
        self.following.stop()
        self.certificates.stop()
        self._pages.stop()

    # Parts

    def _reviewers(self) -> dict[str, Reviewer]:
        # Pods need threads that neither read nor wait for the leader.
        limits = ReadLimits(self.settings.live_reads_per_second, max(1, self.settings.threads // 4), SHARED_SECONDS)
        reader = BoundedReader(self._read, self.clock, limits, self.metrics)
        stores, read, metrics = self.following.stores, reader.read, self.metrics
        leader = BoundedLeader(self._leader, max(1, self.settings.threads // 2), self.clock)  # the rest is for pods
        expansions = {
            route: ExpansionService(kind, stores, read, self.clock, leader, self._expansion_policy, metrics)
            for route, kind in _KINDS.items()
        }
        return {
            **expansions,
            CHECK_GROWTH: GrowthCheck(leader),
            MUTATE_PODS: PodService(stores, read, self.clock, self._policy, metrics),
            MUTATE_SHARE_MANAGERS: ShareManagerService(
                self.settings.namespace,
                # They may all come at once, when the node that served them has gone.
                partial(reader.read, patience_seconds=TURN_SECONDS),
                lambda: self.live.current.share_managers,
                metrics,
            ),
        }

    def _expansion_policy(self) -> str:
        return self.live.current.expansion_policy

    def _policy(self) -> OptInPolicy:
        return OptInPolicy(
            self.settings.schedulers, self.settings.left_alone, only_marked=self.live.current.only_marked
        )

    def _read(self, resource: Resource, namespace: str, name: str, timeout_seconds: float) -> Mapping[str, Any]:
        return self._api.get(resource, namespace or None, name, timeout=timeout_seconds)

    # Views

    def is_ready(self) -> bool:
        return self.following.is_ready and self.certificates.is_serving and not self._is_stopping

    def collect(self) -> Iterator[Metric]:
        """What a scrape shows besides the events that `metrics` counts."""
        handshakes = self._tls.counts() if self._tls is not None else {}
        yield from store_metrics(PREFIX, self.following.states())
        yield from worker_metrics(PREFIX, self.workers)
        yield crowded_metric(PREFIX, self._crowded())
        text = "Settings that are not used because their value or name is wrong."
        yield GaugeMetricFamily(f"{PREFIX}_settings_problems", text, value=len(self.live.problems))
        yield from certificate_metrics(
            PREFIX, self.certificates.expiries(), len(self.certificates.problems), handshakes
        )

    def status(self) -> Mapping[str, Any]:
        """What `/status` shows: how current the stores are, the settings and the certificates."""
        return {
            "version": product_version(),
            "is_ready": self.is_ready(),
            "settings": self.live.current,
            "settings_problems": {entry.name: entry.text for entry in self.live.problems},
            "settings_notes": {entry.name: entry.text for entry in self.live.notes},
            "certificates": {name: round(seconds) for name, seconds in self.certificates.expiries().items()},
            "certificate_problems": self.certificates.problems,
            "workers": worker_entries(self.workers),
            "stores": store_entries(self.following.states(), self.following.bad),
        }
