"""The order of the steps of each review."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from controller.clock import Clock
from controller.errors import ClusterError, MalformedRequestError, NotFoundError
from controller.kube import resources
from controller.rules.opt_in import OptInPolicy
from webhook import review as reviews
from webhook.metrics import WebhookMetrics
from webhook.pod_opt_in import plan_opt_in
from webhook.review import Review
from webhook.share_manager import consumer_nodes, plan_affinity, volume_of
from webhook.stores import Read, RequestLookup, WebhookStores

LIVE_SECONDS: Final = 0.5  # for all live reads of one pod; the API server waits 3 s for us
ATTACHMENT_SECONDS: Final = 1.0  # for the one live read of a share-manager pod; the API server waits 2 s for us
BLIND_WARNING: Final = "Longhorn scheduler extender: the pod could not be reviewed and was admitted unchanged"

log = logging.getLogger(__name__)


def _is_new_pod(review: Review) -> bool:
    return (review.resource, review.operation, review.sub_resource) == ("pods", "CREATE", "")


@dataclass(frozen=True, slots=True)
class PodService:
    """Reviews of pods that are being created.

    Threads: any. Blocks: for LIVE_SECONDS, where the stores lack an object. I/O: those reads.
    """

    stores: WebhookStores
    read: Read
    clock: Clock
    policy: Callable[[], OptInPolicy]
    observer: WebhookMetrics

    def review(self, review: Review) -> bytes:
        """The answer. Anything but the creation of a pod is allowed unchanged; the configuration does not ask for
        it."""
        if not _is_new_pod(review):
            self.observer.pod_reviewed("not-asked-for")
            return reviews.encode_allowed(review.uid)
        lookup = RequestLookup(self.stores, self.read, self.clock, LIVE_SECONDS)
        opt_in = plan_opt_in(review.object, review.namespace, lookup, self.policy())
        outcome = opt_in.skipped or "opted-in"
        self.observer.pod_reviewed(outcome)
        log.debug(
            "pod review namespace=%s name=%s outcome=%s reads=%d",
            review.namespace,
            review.name,
            outcome,
            lookup.reads,
        )
        return reviews.encode_allowed(review.uid, opt_in.operations, opt_in.warnings)

    def failed(self, review: Review) -> bytes:
        """The answer where a review failed on our side: pods must be created as if the webhook were not there."""
        return reviews.encode_allowed(review.uid, warnings=[BLIND_WARNING])


@dataclass(frozen=True, slots=True)
class ShareManagerService:
    """Reviews of share-manager pods that are being created in Longhorn's namespace.

    Threads: any. Blocks: for ATTACHMENT_SECONDS, and for a turn before that. I/O: one read.
    """

    namespace: str
    read: Read
    is_wanted: Callable[[], bool]
    observer: WebhookMetrics

    def review(self, review: Review) -> bytes:
        """The answer; always allowed."""
        volume = volume_of(review.object) if _is_new_pod(review) and review.namespace == self.namespace else ""
        if not volume or not self.is_wanted():
            self.observer.share_manager_reviewed("not-asked-for" if not volume else "off")
            return reviews.encode_allowed(review.uid)
        try:
            attachment = self.read(resources.LONGHORN_ATTACHMENTS, self.namespace, volume, ATTACHMENT_SECONDS)
            nodes = consumer_nodes(attachment)
        except NotFoundError:
            nodes = ()
        except (ClusterError, MalformedRequestError) as error:
            log.warning("share-manager review volume=%s error=%s", volume, error)
            self.observer.share_manager_reviewed("unread")
            return reviews.encode_allowed(review.uid)
        operations = plan_affinity(review.object, nodes)
        outcome = "pointed" if operations else "as-it-is" if nodes else "no-consumer"
        self.observer.share_manager_reviewed(outcome)
        log.info("share-manager review volume=%s nodes=%s outcome=%s", volume, ",".join(nodes[:8]), outcome)
        return reviews.encode_allowed(review.uid, operations)

    def failed(self, review: Review) -> bytes:
        return reviews.encode_allowed(review.uid, warnings=[BLIND_WARNING])
