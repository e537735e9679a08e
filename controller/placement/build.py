"""Puts together what places replicas in the leader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry

from controller.clock import Clock
from controller.kube.api import KubeApi
from controller.kube.store import Store
from controller.placement.metrics import PlacementMetrics
from controller.placement.objects import ReplicaObjects
from controller.placement.placer import Gives, PlacementTurns, Placer, TermChecks, status_of
from controller.process.addition import Addition
from controller.settings import LiveSettings

# Whatever changes there may open a disk.
OTHERS: Final = ("setting", "backing_image", "engine_image", "instance_manager", "kube_node")


@dataclass(frozen=True, slots=True)
class PlacementParts:
    """`addition` runs the placer."""

    placer: Placer
    addition: Addition


def build_placement(
    api: KubeApi,
    namespace: str,
    clock: Clock,
    stores: Mapping[str, Store[Any]],
    registry: CollectorRegistry,
    *,
    gives: Gives,
    turns: PlacementTurns,
    settings: Callable[[], LiveSettings],
    checks: Callable[[], TermChecks],
    is_leading: Callable[[], bool],
    has_record: Callable[[], bool],
) -> PlacementParts:
    """`stores`: by kind, before their informers start, and after the allocator has subscribed. Starts nothing."""

    def disk_path(node: str, uuid: str) -> str:
        found = stores["node"].get(f"{namespace}/{node}")
        return next((disk.path for disk in found.disks if disk.uuid == uuid), "") if found is not None else ""

    objects = ReplicaObjects(api, namespace)
    placer = Placer(
        gives, turns, objects, disk_path, settings, checks, clock, is_leading=is_leading, has_record=has_record
    )
    stores["replica"].subscribe(placer.unplaced.replicas_changed)
    stores["volume"].subscribe(placer.unplaced.volumes_changed)
    stores["node"].subscribe(placer.unplaced.nodes_changed)
    stores["record"].subscribe(placer.unplaced.records_changed)
    for kind in OTHERS:
        stores[kind].subscribe(placer.unplaced.room_came)
    registry.register(PlacementMetrics(placer.figures))
    return PlacementParts(placer, Addition("placement", placer, lambda: status_of(placer.figures())))
