"""Builds the webhook's object graph: the one place that knows which part is given to which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from controller.clock import Clock, SystemClock
from controller.kube.api import KubeApi
from controller.kube.bounded_reads import ReadLimits
from controller.kube.resources import Resource
from controller.process.common_metrics import store_entries
from controller.process.status_port import LOOPBACK, StatusServer, create_metrics_app, create_status_app
from controller.process.version import product_version
from controller.process.worker import Group, Worker, health_problem, worker_entries
from controller.rules.opt_in import OptInPolicy
from controller.serving.tls import ServerTls
from controller.settings import LiveSettings
from webhook.app import Reviewer, create_app
from webhook.bounded import BoundedLeader
from webhook.certificates import certificate_worker
from webhook.expansion import VALIDATE_CLAIMS, VALIDATE_VOLUMES, ExpansionService
from webhook.following import Following
from webhook.leader import LeaderClient
from webhook.metrics import WebhookMetrics, WebhookSources
from webhook.service import PodService, ShareManagerService
from webhook.settings import LiveSettingsReader, WebhookSettings
from webhook.stores import SHARED_SECONDS, BoundedReader

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

MUTATE_PODS: Final = "mutate-pods"
MUTATE_SHARE_MANAGERS: Final = "mutate-share-managers"
ROUTES: Final = (MUTATE_PODS, MUTATE_SHARE_MANAGERS, VALIDATE_CLAIMS, VALIDATE_VOLUMES)


class Webhook:
    """The whole process: what gunicorn's worker builds, starts and stops."""

    def __init__(
        self,
        settings: WebhookSettings,
        api: KubeApi,
        clock: Clock | None = None,
        *,
        tls: ServerTls | None = None,
        serving: Sequence[Worker] = (),
    ) -> None:
        self.settings, self._api, self._tls = settings, api, tls
        self._serving_workers = serving
        self.clock: Clock = clock or SystemClock()
        self.following = Following(api, self.clock, settings.namespace, settings.config_map)
        self.live = LiveSettingsReader(self.following.config_maps, self.following.longhorn_settings)
        self.certificates = certificate_worker(settings, api, self.clock, tls)
        self.metrics = WebhookMetrics(CollectorRegistry(), product_version(), ROUTES)
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
        self._pages = Group(
            (
                StatusServer("metrics", page, settings.metrics_address, settings.metrics_port),
                StatusServer("status", create_status_app(self.status), LOOPBACK, settings.status_port),
            )
        )
        self.metrics.read_from(self._sources())

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
        read = reader.read
        expansions = ExpansionService(
            self.following.stores,
            read,
            self.clock,
            BoundedLeader(self._leader, max(1, self.settings.threads // 2), self.clock),  # the rest is for pods
            lambda: self._live_settings().expansion_policy,
            self.metrics,
        )
        return {
            **expansions.reviewers(),
            MUTATE_PODS: PodService(self.following.stores, read, self.clock, self._policy, self.metrics),
            MUTATE_SHARE_MANAGERS: ShareManagerService(
                self.settings.namespace,
                reader.read_patiently,  # they may all come at once, when the node that served them has gone
                lambda: self._live_settings().share_managers,
                self.metrics,
            ),
        }

    def _live_settings(self) -> LiveSettings:
        return self.live.current

    def _policy(self) -> OptInPolicy:
        return OptInPolicy(
            self.settings.schedulers, self.settings.left_alone, only_marked=self._live_settings().only_marked
        )

    def _read(self, resource: Resource, namespace: str, name: str, timeout_seconds: float) -> Mapping[str, Any]:
        return self._api.get(resource, namespace or None, name, timeout=timeout_seconds)

    # Views

    def is_ready(self) -> bool:
        return self.following.is_ready and self.certificates.is_serving and not self._is_stopping

    def _sources(self) -> WebhookSources:
        return WebhookSources(
            stores=self.following.states,
            workers=lambda: self.workers,
            settings_problems=lambda: len(self.live.problems),
            certificates=self.certificates.expiries,
            certificate_problems=lambda: len(self.certificates.problems),
            handshakes=self._tls.counts if self._tls is not None else dict,
        )

    def status(self) -> Mapping[str, Any]:
        """What `/status` shows: how current the stores are, the settings and the certificates."""
        return {
            "version": product_version(),
            "is_ready": self.is_ready(),
            "settings": self._live_settings(),
            "settings_problems": {entry.name: entry.text for entry in self.live.problems},
            "settings_notes": {entry.name: entry.text for entry in self.live.notes},
            "certificates": {name: round(seconds) for name, seconds in self.certificates.expiries().items()},
            "certificate_problems": self.certificates.problems,
            "workers": worker_entries(self.workers),
            "stores": store_entries(self.following.states(), self.following.bad),
        }
