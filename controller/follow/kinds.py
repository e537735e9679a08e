"""The kinds of objects that decide: how each becomes facts, and who is told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from controller.allocator.verbs.observe import Events
from controller.kube import resources
from controller.kube.resources import Resource
from controller.kube.store import Change, Store
from controller.model import parse, records, workload
from controller.model.longhorn import LonghornNode
from controller.model.longhorn_settings import setting_value
from controller.model.names import ALLOCATION_GROUP, LONGHORN_GROUP
from controller.model.reader import Raw
from controller.model.workload import Pod

F = TypeVar("F")


def _kept_apart(events: Events, key: str, facts: object, gone: object) -> None:
    """Tells nothing: the allocator makes the record itself, and is configured with Longhorn's settings."""
    del events, key, facts, gone


@dataclass(frozen=True, slots=True)
class FollowedKind(Generic[F]):
    """A kind of objects that is watched or read live. `observe` tells the allocator the key, the facts or None, and,
    without facts, those of what was deleted.

    A kind that the cluster does not have (its CRD is absent) has no objects: its store is in sync, and empty.
    """

    name: str
    resource: Resource
    parse: Callable[[Raw], F | None]
    observe: Callable[[Events, str, F | None, F | None], None] = _kept_apart
    is_live: bool = False  # read live by name, by a right to get it; others are listed by name
    is_followed: bool = True  # else it is read live alone, by name
    may_open_disks: bool = False  # any change of an object may open a disk to a replica that found none
    sharing: Callable[[F, F], F] | None = None  # as a store's

    @property
    def in_longhorn(self) -> bool:
        """Whether it lives in Longhorn's namespace, known by its name alone."""
        return self.resource.group in (LONGHORN_GROUP, ALLOCATION_GROUP)

    @property
    def by_name(self) -> bool:
        """Whether its objects are known by their names alone."""
        return self.in_longhorn or not self.resource.is_namespaced

    def feed(self, store: Store[F], events: Events) -> None:
        """Hands every change of the store to the allocator, in the order of its watch: start-up, relists, live events.
        Runs in the informer's thread, after the store's lock is free."""

        def on_changes(changes: Sequence[Change[F]]) -> None:
            for change in changes:
                key = change.key.rsplit("/", 1)[-1] if self.by_name else change.key
                self.observe(events, key, change.new, change.old if change.new is None else None)

        store.subscribe(on_changes)


def interesting_pod(raw: Raw) -> Pod | None:
    """Pods that concern us: those with a claim, those that ask for the extender, and share-managers. Others are not
    kept."""
    pod = workload.pod_facts(raw)
    return pod if pod.volumes or pod.is_opted_in or pod.shares_volume else None


def _with_record_of(old: LonghornNode, new: LonghornNode) -> LonghornNode:
    if old.record is None or new.record is None:
        return new
    return replace(new, record=records.sharing(old.record, new.record))


KINDS: Final[tuple[FollowedKind[Any], ...]] = (
    FollowedKind("pod", resources.PODS, interesting_pod, Events.observe_pod, is_live=True),
    FollowedKind("claim", resources.CLAIMS, workload.claim_facts, Events.observe_claim, is_live=True),
    FollowedKind("pv", resources.VOLUMES, workload.pv_facts, Events.observe_pv, is_live=True),
    FollowedKind("class", resources.STORAGE_CLASSES, workload.class_facts, Events.observe_class, is_live=True),
    FollowedKind("kube_node", resources.NODES, workload.kube_node_facts, Events.observe_kube_node, may_open_disks=True),
    FollowedKind("node", resources.LONGHORN_NODES, parse.node_facts, Events.observe_node, sharing=_with_record_of),
    FollowedKind("volume", resources.LONGHORN_VOLUMES, parse.volume_facts, Events.observe_volume, is_live=True),
    FollowedKind("replica", resources.LONGHORN_REPLICAS, parse.replica_facts, Events.observe_replica),
    FollowedKind(
        "backing_image",
        resources.LONGHORN_BACKING_IMAGES,
        parse.backing_image_facts,
        Events.observe_backing_image,
        may_open_disks=True,
    ),
    FollowedKind("record", resources.NODE_DISK_ALLOCATIONS, records.own_record, sharing=records.sharing),
    # A cluster may have very many of them, and a few are asked about, once each.
    FollowedKind(
        "backup",
        resources.LONGHORN_BACKUPS,
        parse.backup_facts,
        Events.observe_backup,
        is_live=True,
        is_followed=False,
    ),
    FollowedKind(
        "engine_image",
        resources.LONGHORN_ENGINE_IMAGES,
        parse.engine_image_facts,
        Events.observe_engine_image,
        may_open_disks=True,
    ),
    FollowedKind(
        "instance_manager",
        resources.LONGHORN_INSTANCE_MANAGERS,
        parse.instance_manager_facts,
        Events.observe_instance_manager,
        may_open_disks=True,
    ),
    FollowedKind("setting", resources.LONGHORN_SETTINGS, setting_value, is_live=True, may_open_disks=True),
)
"""One row for each kind."""
FOLLOWED: Final = tuple(kind for kind in KINDS if kind.is_followed)
