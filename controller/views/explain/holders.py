"""Who has the bytes of a disk, and until when: by name where the caller may know, as sums elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from controller.allocator.plans.growths import HOLD_SECONDS
from controller.allocator.plans.plan import Hold
from controller.allocator.verbs.views import Look, kind_of
from controller.model.workload import Pod
from controller.views.documents import Holder
from controller.views.overview import moment

MaySee: TypeAlias = Callable[[str], bool]
"""Whether the caller may know of the pods of that namespace; "": of all namespaces."""

STORED, PLANNED, GROWING = "stored", "plan", "growth"
MOST_NAMED: Final = 10  # holders of a disk
_ORDER: Final = ("answer", "wake-plan", "nomination", "kept-room", PLANNED, GROWING, STORED)
_Disk: TypeAlias = tuple[str, str]  # node and UUID


@dataclass(frozen=True, slots=True)
class _Share:
    kind: str
    volume: str
    size_bytes: int
    until: float | None = None  # monotonic


@dataclass(slots=True)
class DiskHolders:
    """What plans, holds, growth and copies take on the disks in question, but for what is the pod's own."""

    look: Look
    may_see: MaySee
    _holds: Mapping[_Disk, Mapping[tuple[str, str], _Share]] = field(default_factory=dict)
    _own: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, look: Look, may_see: MaySee, disks: Collection[_Disk], pod: Pod | None, own: frozenset[str], *, local: bool
    ) -> DiskHolders:
        """`pod`: who asks, with its `own` volumes, `local` if any needs its node's room; None: nobody. Costs: a look at
        each place that is held."""
        found: dict[_Disk, dict[tuple[str, str], _Share]] = defaultdict(dict)
        asks = look.room().newcomer(pod) if pod is not None else None
        for hold in look.table.all_holds():
            if asks is not None and (hold.pod == asks.pod_uid or not asks.yields_to(hold, is_local=local)):
                continue
            for volume, place in hold.places():
                disk = place.node, place.disk_uuid
                if disk in disks and volume not in own:
                    kind, until = kind_of(hold.source), end_of(look, hold)
                    old = found[disk].get((kind, volume))
                    if old is None or place.size_bytes > old.size_bytes:
                        found[disk][kind, volume] = _Share(kind, volume, place.size_bytes, until)
        return cls(look, may_see, found, own)

    def on(self, node: str, uuid: str) -> Sequence[Holder]:
        """Return who has bytes on that disk: what may end by itself first, then by size."""
        shares = sorted(self._shares(node, uuid), key=lambda one: (_ORDER.index(one.kind), -one.size_bytes, one.volume))
        named, others = list[Holder](), defaultdict[str, list[_Share]](list)
        for one in shares:
            claim = self.look.world.claim_of_volume(one.volume)
            is_seen = self.may_see(claim.namespace if claim is not None else "")
            if is_seen and len(named) < MOST_NAMED:
                name = claim.key if claim is not None else one.volume
                named.append(Holder(one.kind, name, 1, one.size_bytes, self._text(one.until)))
            else:
                others[one.kind].append(one)
        return (*named, *(self._sum(kind, members) for kind, members in others.items()))

    def _shares(self, node: str, uuid: str) -> Iterator[_Share]:
        planned = self.look.table.planned_on(node, uuid)
        for volume, size in planned.items():
            if volume not in self._own:
                yield _Share(PLANNED, volume, size)
        for share in self._holds.get((node, uuid), {}).values():
            if share.volume not in planned:
                yield share
        for volume, size in self.look.growths.growing_by(uuid):
            growth = self.look.growths.get(volume)
            is_held = growth is not None and growth.is_held
            yield _Share(GROWING, volume, size, growth.since + HOLD_SECONDS if growth is not None and is_held else None)
        sizes = defaultdict[str, int](int)
        for replica in self.look.world.replicas_on(uuid):
            sizes[replica.volume] += replica.size_bytes
        for volume, size in sizes.items():
            yield _Share(STORED, volume, size)

    def _sum(self, kind: str, members: Sequence[_Share]) -> Holder:
        ends = [one.until for one in members]
        until = None if None in ends else max(end for end in ends if end is not None)
        return Holder(kind, "", len(members), sum(one.size_bytes for one in members), self._text(until))

    def _text(self, until: float | None) -> str:
        return moment(self.look, until) if until is not None else ""


def end_of(look: Look, hold: Hold) -> float | None:
    """Return when that hold ends by itself at the latest, in monotonic seconds; None if it does not."""
    if hold.until is not None:
        return hold.until
    return hold.since + look.live.hold_cap_seconds if not hold.chosen else None
