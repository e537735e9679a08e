"""Share-manager pods follow their consumer.

Longhorn serves a volume of several nodes (RWX, not migratable) by NFS from a share-manager pod, which it creates once a
consumer of the volume has been scheduled, and which kube-scheduler then places freely. The volume's engine and its
local replica follow that pod, so it should run where the consumer runs. Longhorn's own VolumeAttachment of the volume
tells where that is: the node of each ticket of csi-attacher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.errors import ClusterError, MalformedRequestError, NotFoundError
from controller.kube.resources import LONGHORN_ATTACHMENTS, pointer
from controller.log_line import say
from controller.model.names import COMPONENT_LABEL, SHARE_MANAGER, SHARED_VOLUME_LABEL
from controller.model.reader import Raw, list_at, mapping_at, text_at
from webhook.metrics import WebhookMetrics
from webhook.review import Operation, Review, encode_admitted_unchanged, encode_allowed, plan_value
from webhook.stores import Read

ATTACHMENT_SECONDS: Final = 1.0  # for the one live read of a share-manager pod; the API server waits 2 s for us
CSI_ATTACHER: Final = "csi-attacher"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
NAME_FIELD: Final = "metadata.name"
WEIGHT: Final = 100
MOST_NODES: Final = 8
"""Consumers on more nodes than these: wherever the pod runs, it is away from nearly all of them."""

_PREFERRED: Final = ("spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")


log = logging.getLogger(__name__)


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
        volume = volume_of(review.object) if review.is_new_pod and review.namespace == self.namespace else ""
        if not volume or not self.is_wanted():
            self.observer.share_manager_reviewed("not-asked-for" if not volume else "off")
            return encode_allowed(review.uid)
        try:
            attachment = self.read(LONGHORN_ATTACHMENTS, self.namespace, volume, ATTACHMENT_SECONDS)
            nodes = consumer_nodes(attachment)
        except NotFoundError:
            nodes = ()
        except (ClusterError, MalformedRequestError) as error:
            say(log, "review", logging.WARNING, volume=volume, decision="unread", error=error)
            self.observer.share_manager_reviewed("unread")
            return encode_allowed(review.uid)
        operations = plan_affinity(review.object, nodes)
        outcome = "pointed" if operations else "as-it-is" if nodes else "no-consumer"
        self.observer.share_manager_reviewed(outcome)
        say(log, "review", volume=volume, decision=outcome, nodes=nodes[:MOST_NODES])
        return encode_allowed(review.uid, operations)

    def failed(self, review: Review) -> bytes:
        return encode_admitted_unchanged(review.uid)


def volume_of(pod: Raw) -> str:
    """The volume that the pod is the share-manager of, "" for other pods."""
    meta = mapping_at(pod, "", "metadata")
    labels = mapping_at(meta, "metadata", "labels")
    if labels.get(COMPONENT_LABEL) != SHARE_MANAGER:
        return ""
    return text_at(labels, "metadata.labels", SHARED_VOLUME_LABEL)


def consumer_nodes(attachment: Raw) -> tuple[str, ...]:
    """The nodes on which pods use the volume, by name, out of Longhorn's VolumeAttachment."""
    tickets = mapping_at(attachment, "", "spec", "attachmentTickets")
    nodes = set()
    for key in tickets:
        ticket = mapping_at(tickets, "spec.attachmentTickets", key)
        if ticket.get("type") == CSI_ATTACHER:
            nodes.add(text_at(ticket, f"spec.attachmentTickets.{key}", "nodeID"))
    return tuple(sorted(nodes - {""}))


def plan_affinity(pod: Raw, nodes: Sequence[str]) -> list[Operation]:
    """The operations that make the pod prefer these nodes besides its present preferences; none if it does already or
    must not.

    Raises MalformedRequestError for a malformed pod.
    """
    spec = mapping_at(pod, "", "spec")
    preferred = list_at(mapping_at(spec, "spec", *_PREFERRED[1:-1]), ".".join(_PREFERRED[:-1]), _PREFERRED[-1])
    avoided = {node for term in preferred for node in _avoided(term)}
    wanted = [_term(node) for node in nodes if node not in avoided]
    missing = [term for term in wanted if term not in preferred]
    if not missing or len(nodes) > MOST_NODES:
        return []
    if preferred:
        return [Operation(pointer(*_PREFERRED, "-"), term) for term in missing]
    return plan_value(pod, _PREFERRED, missing)


def _term(node: str) -> dict[str, Any]:
    field = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    return {"weight": WEIGHT, "preference": {"matchFields": [field]}}


def _avoided(term: Any) -> list[str]:
    """The nodes that a preferred term of Longhorn's excludes, as one that has just lost the pod."""
    if not isinstance(term, Mapping):
        raise MalformedRequestError(".".join(_PREFERRED), "holds something that is not an object")
    preference = mapping_at(term, ".".join(_PREFERRED), "preference")
    found: list[str] = []
    for part, key in (("matchFields", NAME_FIELD), ("matchExpressions", HOSTNAME_LABEL)):
        for entry in list_at(preference, "preference", part):
            if isinstance(entry, Mapping) and (entry.get("key"), entry.get("operator")) == (key, "NotIn"):
                found += [str(value) for value in list_at(entry, part, "values")]
    return found
