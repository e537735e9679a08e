"""Longhorn's affinity among replicas: which nodes and zones a volume's replicas use, in which order nodes are tried,
and next to which source replicas those of a linked clone lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from controller.model.longhorn import BALANCE_BEST_EFFORT, LINKED_CLONE, LonghornNode, LonghornSettings, Replica, Volume
from controller.model.times import utc_time
from controller.model.versions import Behaviour


class Try(StrEnum):
    """A group of nodes, in the order in which Longhorn tries them."""

    NEW_ZONE = "1"
    EVICTING_ZONE = "2a"
    NEW_NODE = "2b"
    EVICTING_NODE = "2b-evicting"
    NEW_NODE_SOFT = "2c"
    USED_NODE = "2c-used"


@dataclass(frozen=True, slots=True)
class Affinity:
    """The flags that hold for one volume: its own fields, or the settings where it leaves them open."""

    node_soft: bool
    zone_soft: bool
    disk_soft: bool
    balances: bool  # auto-balance is best-effort

    @property
    def shares_nodes(self) -> bool:
        """Whether several replicas of the volume may lie on one node."""
        return self.zone_soft and self.node_soft

    @classmethod
    def of(cls, volume: Volume, settings: LonghornSettings) -> Affinity:
        balance = settings.auto_balance if volume.auto_balance == "ignored" else volume.auto_balance
        return cls(
            node_soft=_effective(volume.soft_anti_affinity, settings.soft_anti_affinity),
            zone_soft=_effective(volume.zone_soft_anti_affinity, settings.zone_soft_anti_affinity),
            disk_soft=_effective(volume.disk_soft_anti_affinity, settings.disk_soft_anti_affinity),
            balances=balance == BALANCE_BEST_EFFORT,
        )


def _effective(own: str, setting: bool) -> bool:
    return own == "enabled" if own in ("enabled", "disabled") else setting


@dataclass(frozen=True, slots=True)
class Usage:
    """The names of the candidate nodes and zones that hold replicas of the volume, and of those that hold only replicas
    that are being evicted."""

    nodes: frozenset[str]
    zones: frozenset[str]
    evicting_nodes: frozenset[str]
    evicting_zones: frozenset[str]

    @classmethod
    def of(
        cls,
        volume: Volume,
        replicas: Iterable[Replica],
        nodes: Mapping[str, LonghornNode],
        settings: LonghornSettings,
        now_utc: datetime | None,
        *,
        ignore_failed: bool = False,
    ) -> Usage:
        """Return the usage by the volume's `replicas` on `nodes`. Replicas that are being deleted do not count, nor
        failed ones that cannot come back, or that are due to be replaced."""
        ignore_failed = ignore_failed or is_replacement_due(volume, settings, now_utc)
        by_node: dict[str, bool] = {}
        by_zone: dict[str, bool] = {}
        for replica in replicas:
            node = nodes.get(replica.node)
            is_lost = replica.failed_at and (ignore_failed or not replica.is_potentially_reusable)
            if node is not None and not replica.deleting and not is_lost:
                by_node[node.name] = by_node.get(node.name, True) and replica.eviction_requested
                by_zone[node.zone] = by_zone.get(node.zone, True) and replica.eviction_requested
        return cls(
            frozenset(by_node),
            frozenset(by_zone),
            frozenset(name for name, evicting in by_node.items() if evicting),
            frozenset(zone for zone, evicting in by_zone.items() if evicting),
        )


def is_replacement_due(volume: Volume, settings: LonghornSettings, now_utc: datetime | None) -> bool:
    """Whether a degraded volume has waited long enough for its failed replicas to come back, from that moment on."""
    if volume.robustness != "degraded" or not volume.last_degraded_at or now_utc is None:
        return False
    waited = (now_utc - utc_time(volume.last_degraded_at)).total_seconds()
    return waited >= settings.replenishment_wait_seconds


def groups_of_nodes(
    nodes: Mapping[str, LonghornNode],
    tagged: Mapping[str, LonghornNode],
    usage: Usage,
    affinity: Affinity,
    reopened: frozenset[str],
) -> Iterator[tuple[Try, Mapping[str, LonghornNode]]]:
    """Yield the tries in their order, each with its nodes by name. `tagged`: the nodes whose tags match. `reopened`:
    used nodes that count as unused. Costs: a look at each node for each try; none for the first while no zone is
    used."""

    def only(nodes: Mapping[str, LonghornNode], belongs: Callable[[LonghornNode], bool]) -> dict[str, LonghornNode]:
        return {name: node for name, node in nodes.items() if belongs(node)}

    yield Try.NEW_ZONE, only(tagged, lambda node: node.zone not in usage.zones) if usage.zones else tagged
    evicting = only(tagged, lambda node: node.name in usage.evicting_nodes) if usage.evicting_nodes else {}
    if not affinity.zone_soft:
        zones = usage.evicting_zones
        yield Try.EVICTING_ZONE, only(evicting, lambda node: affinity.balances or node.zone in zones)
        return
    unused = only(tagged, lambda node: node.name not in usage.nodes or node.name in reopened)
    yield Try.NEW_NODE_SOFT if affinity.node_soft else Try.NEW_NODE, unused
    if affinity.node_soft:
        yield Try.USED_NODE, only(nodes, lambda node: node.name in usage.nodes)
    else:
        yield Try.EVICTING_NODE, evicting


def clone_sources(
    volume: Volume, copies: Iterable[Replica], behaviour: Behaviour, named: str = ""
) -> list[Replica] | None:
    """Return those `copies` of a linked clone's source next to which its replica may lie; None for any other volume.
    `named`: the source replica that the clone's replica names."""
    if volume.clone_mode != LINKED_CLONE or not behaviour.has_linked_clones:
        return None
    found = [one for one in copies if one.is_placed and one.healthy_at and not one.failed_at]
    if behaviour.clones_skip_evicting_sources:  # the release that also knows the field of the source's name
        found = [one for one in found if not one.eviction_requested and named in ("", one.name)]
    return found


def disks_with_replicas(replicas: Iterable[Replica], *, ignore_failed: bool) -> frozenset[str]:
    """Return the UUIDs of the disks that anti-affinity avoids. Replicas that are being deleted still count here."""
    return frozenset(
        replica.disk_uuid
        for replica in replicas
        if replica.disk_uuid and (not replica.failed_at or (replica.is_potentially_reusable and not ignore_failed))
    )
