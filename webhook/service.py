"""The order of the steps of each review."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from controller.clock import Clock
from webhook import review as reviews
from webhook.pod_opt_in import Policy, plan_opt_in
from webhook.review import Review
from webhook.stores import Read, RequestLookup, Stores

LIVE_SECONDS: Final = 0.5  # for all live reads of one pod; the API server waits 3 s for us
BLIND_WARNING: Final = "Longhorn scheduler extender: the pod could not be looked at and was let through unchanged"

log = logging.getLogger(__name__)


class ReviewObserver(Protocol):
    def pod_reviewed(self, outcome: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PodService:
    """Reviews of pods that are being created.

    Threads: any. Blocks: for LIVE_SECONDS, where the stores lack an object. I/O: those reads.
    """

    stores: Stores
    read: Read
    clock: Clock
    policy: Callable[[], Policy]
    observer: ReviewObserver

    def review(self, review: Review) -> bytes:
        """The answer. What is no pod that is being created is allowed as it is: nobody should have asked."""
        if review.resource != "pods" or review.operation != "CREATE" or review.sub_resource:
            self.observer.pod_reviewed("not-asked-for")
            return reviews.encode_allowed(review.uid)
        lookup = RequestLookup(self.stores, self.read, self.clock, LIVE_SECONDS)
        opt_in = plan_opt_in(review.object, review.namespace, lookup, self.policy())
        self.observer.pod_reviewed(opt_in.skipped or "opted-in")
        log.debug(
            "pod review namespace=%s name=%s outcome=%s reads=%d",
            review.namespace,
            review.name,
            opt_in.skipped or "opted-in",
            lookup.reads,
        )
        return reviews.encode_allowed(review.uid, opt_in.operations, opt_in.warnings)

    def is_ready(self) -> bool:
        return self.stores.are_synced
