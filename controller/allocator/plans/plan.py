"""What the leader has decided and the cluster does not show yet: plans of volumes, and holds of pods.

                choice                 copy stored, claim gone, nobody uses it
ABSENT --> HELD -------> PLANNED -----------------------------------------------> ABSENT
   |         |              ^
   |         +--> ABSENT    |    gone, filtered again, or by time after a live read
   +------------------------+    bound without a yes of ours
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from controller.model.places import Place

NO_PLACES: Final[Mapping[str, tuple[Place, ...]]] = {}
NO_PLACE: Final[Mapping[str, Place]] = {}


class Source(StrEnum):
    """Why a pod holds room."""

    FILTER = "filter"  # it was answered yes
    NOMINATION = "nomination"  # pods are evicted for it
    KEPT_ROOM = "kept-room"  # it has waited for long
    WAKE_PLAN = "wake-plan"  # it is about to be woken


@dataclass(frozen=True, slots=True)
class Plan:
    """Places for the copies that one volume still misses.

    `uid`: of the Volume object, or of its claim while there is no Volume yet; made again under its name, it is another
    volume. `pods`: the UIDs of the pods that claim it and were answered yes. `since_utc`: in whole seconds.
    """

    volume: str
    uid: str
    places: tuple[Place, ...]
    pods: tuple[str, ...]
    since_utc: datetime


@dataclass(frozen=True, slots=True)
class KeepsOut:
    """Whom a hold keeps out that does not keep out everybody: pods of lower priority, and of the same priority with a
    later `serial` or none. `is_for_local`: of these only pods with volumes that need a node's room."""

    priority: int
    serial: int = -1
    is_for_local: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Places for the volumes of one pod that is not bound yet, by the volumes' names; none once its node is chosen.

    `nodes`: the offered nodes, of which one will be chosen, each with the places of volumes that follow the pod; None:
    any node may be. `anywhere`: places of volumes that are bound to no node. `named_before`: the nodes that the pod's
    claims (by UID) and its nomination ("") named before the answer: they are no news. `chosen`: the node, once it is
    known; the places are plans from then on, and the hold only tells which nodes were offered, until the pod is bound.
    `since` and `until`: monotonic seconds. `keeps_out` None: it keeps out everybody.
    """

    pod: str
    source: Source
    nodes: Mapping[str, Mapping[str, Place]] | None
    anywhere: Mapping[str, tuple[Place, ...]]
    since: float
    since_utc: datetime
    named_before: frozenset[tuple[str, str]] = frozenset()
    chosen: str = ""
    until: float | None = None
    keeps_out: KeepsOut | None = None

    def includes(self, node: str) -> bool:
        """Whether that node was offered."""
        return self.nodes is None or node in self.nodes

    def at(self, node: str) -> Mapping[str, tuple[Place, ...]]:
        """Return the places by volume if that node is chosen."""
        here = (self.nodes or {}).get(node)
        return self.anywhere if not here else {**self.anywhere, **{volume: (one,) for volume, one in here.items()}}

    def places(self) -> Iterator[tuple[str, Place]]:
        """Yield each place with its volume's name. Places on one offered node are alternatives to those on another."""
        for volume, places in self.anywhere.items():
            for place in places:
                yield volume, place
        for on_node in (self.nodes or {}).values():
            yield from on_node.items()

    def places_of(self, volume: str) -> tuple[Place, ...]:
        return tuple(place for name, place in self.places() if name == volume)

    def has_place_of(self, volume: str) -> bool:
        return volume in self.anywhere or any(volume in here for here in (self.nodes or {}).values())

    def narrowed(self, node: str) -> Hold:
        """Return the hold once that node is chosen, and all places of it are plans."""
        nodes = self.nodes if self.nodes is None else {**dict.fromkeys(self.nodes, NO_PLACE), node: NO_PLACE}
        return replace(self, nodes=nodes, anywhere={}, chosen=node)

    def planned_at(self, node: str, besides: Container[str] = ()) -> Hold:
        """Return the hold once its places on the chosen node, or anywhere, are plans, but for those of the volumes
        `besides`. What was answered on other nodes since that choice stays held."""
        nodes = self.nodes
        if nodes is not None:
            here = {name: place for name, place in nodes.get(node, NO_PLACE).items() if name in besides}
            nodes = {**nodes, node: here}
        anywhere = {name: places for name, places in self.anywhere.items() if name in besides}
        return replace(self, nodes=nodes, anywhere=anywhere, chosen=node)

    def with_places_of(self, volume: str, former: Hold) -> Hold:
        """Return the hold with the volume's places of `former` where it has none itself."""
        nodes, known = self.nodes, former.nodes or {}
        if nodes is not None:
            nodes = {
                node: {**here, volume: known[node][volume]}
                if node in known and volume in known[node] and volume not in here
                else here
                for node, here in nodes.items()
            }
        anywhere = {**self.anywhere, volume: former.anywhere[volume]} if volume in former.anywhere else self.anywhere
        return replace(self, nodes=nodes, anywhere=anywhere)

    def without(self, volume: str, disks: Container[tuple[str, str]] | None = None) -> Hold:
        """Return the hold without the volume's places, or without those on these disks (node and UUID)."""

        def stays(name: str, place: Place) -> bool:
            return name != volume or (disks is not None and (place.node, place.disk_uuid) not in disks)

        nodes = self.nodes
        if nodes is not None:
            nodes = {
                node: {name: place for name, place in here.items() if stays(name, place)}
                for node, here in nodes.items()
            }
        left = {name: tuple(one for one in places if stays(name, one)) for name, places in self.anywhere.items()}
        return replace(self, nodes=nodes, anywhere={name: places for name, places in left.items() if places})

    @property
    def size_bytes(self) -> int:
        return sum(place.size_bytes for _, place in self.places())

    @property
    def volumes(self) -> frozenset[str]:
        return frozenset(volume for volume, _ in self.places())
