"""What the API server holds at one revision, as far as places are concerned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tests.judge.facts import (
    PLANS,
    CopyFacts,
    DiskShown,
    PlanStored,
    Raw,
    Spot,
    copy_facts,
    disks_shown,
    key_of,
    plan_stored,
)

# So much later may a leader see what has changed, and still decide.
LATE_SECONDS: Final = 5.0
# Longhorn's own, for settings without an object.
DEFAULTS: Final = {
    "storage-over-provisioning-percentage": "100",
    "replica-soft-anti-affinity": "false",
    "replica-zone-soft-anti-affinity": "true",
    "replica-disk-soft-anti-affinity": "true",
    "replica-auto-balance": "disabled",
}


@dataclass(slots=True)
class Arrival:
    """How a copy came to its place."""

    at: float
    is_leaders: bool


@dataclass(slots=True)
class PlanKept:
    """A plan, and how many of its places its volume's own copies have taken: it stays stored for a moment more."""

    plan: PlanStored
    used: dict[Spot, int] = field(default_factory=dict)

    def count(self, spot: Spot) -> int:
        return len(self.plan.places.get(spot, ()))

    def left_bytes(self, spot: Spot) -> int:
        return sum(self.plan.places.get(spot, ())[self.used.get(spot, 0) :])


PlanKey = tuple[str, str]  # the ConfigMap and the key in it


class DiskLimits:
    """Of each disk, now and a little earlier. A disk that is not shown takes nothing."""

    def __init__(self) -> None:
        self._shown: dict[str, list[DiskShown]] = {}  # by node
        self._limits: dict[Spot, list[tuple[float, int]]] = {}  # since when, the oldest first
        self._percentage = int(DEFAULTS["storage-over-provisioning-percentage"])
        self.zones: dict[str, str] = {}

    def node(self, at: float, name: str, raw: Raw | None) -> list[Spot]:
        """The disks whose limit has changed."""
        former = self._shown.pop(name, [])
        if raw is not None:
            self._shown[name] = disks_shown(raw)
            self.zones[name] = str((raw.get("status") or {}).get("zone") or "")
        now = {disk.spot: disk.limit_bytes(self._percentage) for disk in self._shown.get(name, ())}
        return self._note(at, {disk.spot: 0 for disk in former} | now)

    def percentage(self, at: float, value: int) -> list[Spot]:
        self._percentage = value
        disks = [disk for shown in self._shown.values() for disk in shown]
        return self._note(at, {disk.spot: disk.limit_bytes(value) for disk in disks})

    def now(self, spot: Spot) -> int:
        limits = self._limits.get(spot)
        return limits[-1][1] if limits else 0

    def lately(self, spot: Spot, at: float) -> int:
        """The most that somebody could have gone by who sees everything somewhat later."""
        most = 0
        for since, limit in reversed(self._limits.get(spot, ())):
            most = max(most, limit)
            if since <= at - LATE_SECONDS:
                break
        return most

    def is_shown(self, spot: Spot) -> bool:
        return any(disk.spot == spot for disk in self._shown.get(spot.node, ()))

    def _note(self, at: float, limits: dict[Spot, int]) -> list[Spot]:
        changed = [spot for spot, limit in limits.items() if spot not in self._limits or self.now(spot) != limit]
        for spot in changed:
            self._limits.setdefault(spot, []).append((at, limits[spot]))
        return changed


class Stored:
    """Copies, images, volumes, claims, settings and plans by what the history has told so far. Threads: one."""

    def __init__(self) -> None:
        self.limits = DiskLimits()
        self.copies: dict[str, CopyFacts] = {}
        self.arrivals: dict[str, Arrival] = {}  # by the copy's uid
        self.once_held: set[str] = set()  # uids
        self.volumes: dict[str, Raw] = {}
        self.plans: dict[PlanKey, PlanKept] = {}
        self._uids: set[str] = set()  # of the volumes and claims that are there
        self._settings: dict[str, str] = {}
        self._on_disk: dict[Spot, set[str]] = defaultdict(set)
        self._of_volume: dict[str, set[str]] = defaultdict(set)
        self._images: dict[str, tuple[int, frozenset[str]]] = {}  # size, and the UUIDs of the disks that have it
        self._shards: dict[str, dict[str, PlanStored]] = {}  # what each of the plans' ConfigMaps has
        self._planned_on: dict[Spot, set[PlanKey]] = defaultdict(set)

    # -- what has changed ----------------------------------------------------------------------------------------

    def put_copy(self, raw: Raw) -> CopyFacts:
        copy = copy_facts(raw)
        self.drop_copy(copy.name)
        self.copies[copy.name] = copy
        self._of_volume[copy.volume].add(copy.name)
        if copy.spot is not None:
            self._on_disk[copy.spot].add(copy.name)
        if copy.is_held:
            self.once_held.add(copy.uid)
        return copy

    def drop_copy(self, name: str) -> None:
        former = self.copies.pop(name, None)
        if former is not None:
            self._of_volume[former.volume].discard(name)
            if former.spot is not None:
                self._on_disk[former.spot].discard(name)

    def arrived(self, copy: CopyFacts, at: float, *, is_leaders: bool) -> None:
        """It has its first place, and takes it out of its volume's plan."""
        assert copy.spot is not None
        self.arrivals[copy.uid] = Arrival(at, is_leaders)
        for key in self._planned_on.get(copy.spot, ()):
            kept = self.plans[key]
            if kept.plan.volume == copy.volume:
                kept.used[copy.spot] = kept.used.get(copy.spot, 0) + 1

    def put_owner(self, raw: Raw) -> None:
        """A volume, or a claim."""
        self._uids.add(raw["metadata"].get("uid", ""))

    def drop_owner(self, raw: Raw) -> None:
        self._uids.discard(raw["metadata"].get("uid", ""))

    def put_image(self, raw: Raw | None, name: str) -> list[Spot]:
        """The disks on which it takes more than before."""
        former_size, former_uuids = self._images.pop(name, (0, frozenset[str]()))
        if raw is None:
            return []
        size = int((raw.get("status") or {}).get("realSize") or 0)
        uuids = frozenset((raw.get("spec") or {}).get("diskFileSpecMap") or ())
        self._images[name] = size, uuids
        more = uuids if size > former_size else uuids - former_uuids
        return [spot for spot in self._on_disk if spot.uuid in more]

    def put_setting(self, name: str, value: str | None) -> None:
        if value is None:
            self._settings.pop(name, None)
        else:
            self._settings[name] = value

    def put_plans(self, at: float, raw: Raw | None, key: str) -> None:
        """One ConfigMap as it is now."""
        data: dict[str, PlanStored] = {}  # by the key that each stands under and its volume
        for name, text in ((raw or {}).get("data") or {}).items():
            for line in str(text).splitlines():
                plan = plan_stored(line)
                if plan is not None:
                    data[f"{name} {plan.volume}"] = plan
        former = self._shards.get(key, {})
        self._shards[key] = data
        for name in former.keys() - data.keys():
            self._put_plan(at, (key, name), None)
        for name, plan in data.items():
            if former.get(name) != plan:
                self._put_plan(at, (key, name), plan)

    def _put_plan(self, at: float, key: PlanKey, plan: PlanStored | None) -> None:
        former = self.plans.pop(key, None)
        for spot in former.plan.places if former is not None else ():
            self._planned_on[spot].discard(key)
        if plan is None:
            return
        kept = self.plans[key] = PlanKept(plan)
        for spot in plan.places:
            self._planned_on[spot].add(key)
            if former is not None and former.plan.uid == plan.uid and former.count(spot):
                went = former.count(spot) - kept.count(spot)
                kept.used[spot] = max(0, former.used.get(spot, 0) - max(0, went))
            else:
                kept.used[spot] = self._came_lately(at, plan.volume, spot)

    def _came_lately(self, at: float, volume: str, spot: Spot) -> int:
        """A plan that is written while its copy is placed may have been true a moment before."""
        names = self._of_volume.get(volume, set()) & self._on_disk.get(spot, set())
        arrivals = [self.arrivals.get(self.copies[name].uid) for name in names]
        return sum(one is not None and one.at > at - LATE_SECONDS for one in arrivals)

    # -- what it comes to ----------------------------------------------------------------------------------------

    def setting(self, name: str) -> str:
        value = self._settings.get(name, DEFAULTS[name])
        return str(msgspec.json.decode(value).get("v1", DEFAULTS[name])) if value.startswith("{") else value

    def is_soft(self, volume: Raw, kind: str) -> bool:
        """`kind`: "", "Zone" or "Disk"."""
        own = volume["spec"].get(f"replica{kind}SoftAntiAffinity")
        if own in ("enabled", "disabled"):
            return bool(own == "enabled")
        return self.setting(f"replica-{kind.lower()}{'-' if kind else ''}soft-anti-affinity") == "true"

    def siblings(self, copy: CopyFacts) -> Iterator[CopyFacts]:
        """The other copies of its volume that have a place."""
        for name in self._of_volume.get(copy.volume, ()):
            other = self.copies[name]
            if name != copy.name and other.spot is not None:
                yield other

    def on_disk(self, spot: Spot) -> list[CopyFacts]:
        return [self.copies[name] for name in self._on_disk.get(spot, ())]

    def taken_bytes(self, spot: Spot, *, unless: Iterable[str] = ()) -> int:
        """Of all copies but these, and of the images that are there or that the copies will bring."""
        left_out = set(unless)
        copies = [copy for copy in self.on_disk(spot) if copy.name not in left_out]
        images = {copy.image for copy in copies} & self._images.keys()
        images |= {name for name, (_, uuids) in self._images.items() if spot.uuid in uuids}
        return sum(copy.size_bytes for copy in copies) + sum(self._images[name][0] for name in images)

    def planned_for_others(self, spot: Spot, volume: str) -> dict[PlanKey, int]:
        """Bytes that no copy has taken yet, by plan; plans of volumes that are gone are nobody's."""
        found = {}
        for key in self._planned_on.get(spot, ()):
            kept = self.plans[key]
            if kept.plan.volume != volume and kept.plan.uid in self._uids and kept.left_bytes(spot):
                found[key] = kept.left_bytes(spot)
        return found

    def is_planned_for(self, copy: CopyFacts) -> bool:
        """Is its place one that its own volume's plan has?"""
        assert copy.spot is not None
        return any(
            self.plans[key].plan.volume == copy.volume and self.plans[key].left_bytes(copy.spot)
            for key in self._planned_on.get(copy.spot, ())
        )

    def still_planned(self, spot: Spot, victims: dict[PlanKey, int]) -> int:
        """How much of this the same plans still have there."""
        kept = [(self.plans.get(key), size) for key, size in victims.items()]
        return sum(min(size, one.left_bytes(spot)) for one, size in kept if one is not None)


def plans_name(raw: Raw) -> str:
    """The key of a ConfigMap that holds plans; empty for any other."""
    return key_of(raw) if raw["metadata"]["name"].startswith(PLANS) else ""
