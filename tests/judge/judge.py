"""Judge places by the API server's recorded history alone: what was stored, in its order.

Found is each of these, at the moment when it was stored:

- a copy that takes bytes beyond its disk's limit, by its first place or by its growth;
- a first place that takes bytes which a stored plan keeps for another volume;
- a copy beside another of its volume against hard anti-affinity of nodes, zones or disks;
- a first place that the leader did not give, or that it gave under another term than the present one;
- a copy that moves from one place to another, or is placed a second time.

A finding may be explained: the gate was open for this copy, the disk's limit fell a moment ago, the copy is a further
one of its volume, and so on. What nothing explains is guilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from tests.judge.facts import GATE, LEADER, CopyFacts, Raw, Spot, is_leaders, writer_of
from tests.judge.gate_seen import AGED, OPEN, GateHistory
from tests.judge.stored import LATE_SECONDS, PlanKey, Stored, plans_name

# A plan is written within 0.1 s after it has changed; a busy machine takes longer.
COMMIT_SECONDS: Final = 2.0

LOWERED: Final = "the disk's limit fell"
UNSEEN: Final = "somebody else's bytes came a moment before"
FURTHER: Final = "its volume has a placed copy"
PLAN_WENT: Final = "the plan moved or ended at once"
IMAGE: Final = "an image came, or its size became known"
BALANCE: Final = "Longhorn balances within a node"
CREATED: Final = "it was created with its place"
WITH_ITS_DISK: Final = "its disk has moved"

LONGHORN: Final = "longhorn.io"
ADMISSION: Final = "admissionregistration.k8s.io"
KINDS: Final = {
    *((LONGHORN, kind) for kind in ("Replica", "Node", "Setting", "BackingImage", "Volume")),
    *(("", kind) for kind in ("PersistentVolumeClaim", "ConfigMap", "ServiceAccount")),
    *((ADMISSION, kind) for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")),
}


class HistoryGap(Exception):
    """The history cannot be judged: events are missing from it."""


class Found(StrEnum):
    OVER = "over the limit"
    PLANNED = "took planned bytes"
    AFFINITY = "against hard anti-affinity"
    FOREIGN = "not placed by the leader"
    TERM = "placed under another term"
    MOVED = "placed twice"


@dataclass(frozen=True, slots=True)
class PlaceFinding:
    what: Found
    rv: int
    at: float  # wall clock of the recorder, seconds
    spot: Spot | None
    copy: str  # empty: no copy did it
    by: str  # the field manager; empty: nobody gave a place
    detail: str
    explained: str = ""  # empty: by nothing

    def __str__(self) -> str:
        why = f" ({self.explained})" if self.explained else ""
        return f"{self.what} at {self.rv}{why}: {self.copy or 'nobody'} on {self.spot} by {self.by!r}; {self.detail}"


@dataclass(frozen=True, slots=True)
class _Placing:
    """A first place, as it was stored; or a growth, which is by nobody."""

    rv: int
    at: float
    copy: CopyFacts
    by: str
    excuse: str  # what let somebody else give it

    @property
    def is_leaders(self) -> bool:
        return is_leaders(self.by)

    @property
    def spot(self) -> Spot:
        assert self.copy.spot is not None
        return self.copy.spot

    def finding(self, what: Found, detail: str, explained: str) -> PlaceFinding:
        return PlaceFinding(what, self.rv, self.at, self.spot, self.copy.name, self.by, detail, explained)


@dataclass(frozen=True, slots=True)
class _Suspect:
    """It took planned bytes, unless the plan was on its way elsewhere."""

    finding: PlaceFinding
    spot: Spot
    victims: dict[PlanKey, int]
    free_bytes: int  # beside the plans; negative where there are none


class PlaceJudge:
    """Reads a history line by line, in the API server's order. Threads: one."""

    def __init__(self) -> None:
        self.findings: list[PlaceFinding] = []
        self._stored, self._gate = Stored(), GateHistory()
        self._suspects: list[_Suspect] = []
        self._readers: Mapping[str, Callable[[Mapping[str, Any], Raw | None, Raw], None]] = {
            "Replica": self._on_copy,
            "Node": self._on_node,
            "Setting": self._on_setting,
            "BackingImage": self._on_image,
            "Volume": self._on_volume,
            "PersistentVolumeClaim": self._on_owner,
            "ConfigMap": self._on_config_map,
        }

    def feed(self, entry: Mapping[str, Any]) -> None:
        """Take in the next line. Raises HistoryGap where something that matters may be missing."""
        if (entry["group"], entry["kind"]) not in KINDS:
            return
        if entry["type"] == "GAP":
            raise HistoryGap(f"events of {entry['kind']} may be missing before revision {entry['rv']}")
        raw = entry.get("object")
        if raw is None:
            return
        self._settle(float(entry["at"]) - COMMIT_SECONDS)
        read = self._readers.get(entry["kind"], self._on_gate)
        read(entry, None if entry["type"] == "DELETED" else raw, raw)

    def end(self) -> list[PlaceFinding]:
        """All that was found, in the order of the history."""
        self._settle(float("inf"))
        return sorted(self.findings, key=lambda one: one.rv)

    # -- what is only kept in mind; `raw` is None where the object has gone, `last` is how it was last ----------------

    def _on_owner(self, entry: Mapping[str, Any], raw: Raw | None, last: Raw) -> None:
        if raw is None:
            self._stored.drop_owner(last)
        else:
            self._stored.put_owner(last)

    def _on_volume(self, entry: Mapping[str, Any], raw: Raw | None, last: Raw) -> None:
        self._on_owner(entry, raw, last)
        if raw is None:
            self._stored.volumes.pop(last["metadata"]["name"], None)
        else:
            self._stored.volumes[last["metadata"]["name"]] = raw

    def _on_config_map(self, entry: Mapping[str, Any], raw: Raw | None, last: Raw) -> None:
        key = plans_name(last)
        if key:
            self._stored.put_plans(float(entry["at"]), raw, key)

    def _on_gate(self, entry: Mapping[str, Any], raw: Raw | None, last: Raw) -> None:
        if last["metadata"]["name"] == GATE:
            parts = {"ServiceAccount": self._gate.account, "ValidatingAdmissionPolicy": self._gate.policy}
            parts.get(entry["kind"], self._gate.binding)(float(entry["at"]), raw)

    # -- limits and images -------------------------------------------------------------------------------------------

    def _on_node(self, entry: Mapping[str, Any], raw: Raw | None, last: Raw) -> None:
        changed = self._stored.limits.node(float(entry["at"]), last["metadata"]["name"], raw)
        self._note_over(entry, changed, LOWERED)

    def _on_setting(self, entry: Mapping[str, Any], raw: Raw | None, last: Raw) -> None:
        name = last["metadata"]["name"]
        self._stored.put_setting(name, None if raw is None else str(raw.get("value", "")))
        if name == "storage-over-provisioning-percentage":
            changed = self._stored.limits.percentage(float(entry["at"]), int(self._stored.setting(name)))
            self._note_over(entry, changed, LOWERED)

    def _on_image(self, entry: Mapping[str, Any], raw: Raw | None, last: Raw) -> None:
        self._note_over(entry, self._stored.put_image(raw, last["metadata"]["name"]), IMAGE)

    def _note_over(self, entry: Mapping[str, Any], spots: Iterable[Spot], explained: str) -> None:
        """Nobody has placed anything there: it is told, and is nobody's guilt."""
        for spot in spots:
            limit, taken = self._stored.limits.now(spot), self._stored.taken_bytes(spot)
            if taken > max(limit, 0):
                rv, at = int(entry["rv"]), float(entry["at"])
                detail = f"{gib(taken - limit)} GiB over {gib(limit)}"
                self.findings.append(PlaceFinding(Found.OVER, rv, at, spot, "", "", detail, explained))

    # -- copies ------------------------------------------------------------------------------------------------------

    def _on_copy(self, entry: Mapping[str, Any], raw: Raw | None, last: Raw) -> None:
        before = self._stored.copies.get(last["metadata"]["name"])
        if raw is None:
            self._stored.drop_copy(last["metadata"]["name"])
            return
        after = self._stored.put_copy(raw)
        if entry["type"] == "LISTED" or after.spot is None:
            return
        by, written = writer_of(raw)
        now = float(entry["at"]) if written is None else written
        if before is None or before.spot is None:
            self._on_first_place(entry, before, after, by, now)
        elif before.spot != after.spot:
            self._on_move(entry, before.spot, after, by)
        elif before.size_bytes < after.size_bytes:
            self._on_growth(entry, before, after)

    def _on_first_place(
        self, entry: Mapping[str, Any], before: CopyFacts | None, after: CopyFacts, by: str, now: float
    ) -> None:
        rv, at, ours = int(entry["rv"]), float(entry["at"]), is_leaders(by)
        excuse = ""
        if not ours:
            excuse = CREATED if before is None else self._gate.why_open(before, now, at)
        placing = _Placing(rv, at, after, by, excuse)
        if not ours:
            self.findings.append(placing.finding(Found.FOREIGN, f"at {now:.0f}", excuse))
        elif not self._gate.had_term(by.removeprefix(LEADER), at):
            self.findings.append(placing.finding(Found.TERM, "no gate had that term then", ""))
        if after.uid in self._stored.arrivals:
            self.findings.append(placing.finding(Found.MOVED, "it had a place before", ""))
        if excuse == AGED and not self._was_placeable(after):
            placing = replace(placing, excuse="")
        is_own_plan = self._stored.is_planned_for(after)
        self._stored.arrived(after, at, is_leaders=ours)
        if self._check_limit(placing) and not is_own_plan:
            self._check_plans(placing)
        self._check_affinity(placing)

    def _was_placeable(self, copy: CopyFacts) -> bool:
        """May its age excuse what it took? Not that of a first copy which was never held: it had to be."""
        return copy.uid in self._stored.once_held or any(self._stored.siblings(copy))

    def _on_move(self, entry: Mapping[str, Any], former: Spot, after: CopyFacts, by: str) -> None:
        assert after.spot is not None
        went_along = after.spot.uuid == former.uuid and self._stored.limits.is_shown(after.spot)
        self.findings.append(
            PlaceFinding(
                Found.MOVED,
                int(entry["rv"]),
                float(entry["at"]),
                after.spot,
                after.name,
                by,
                f"it was on {former}",
                WITH_ITS_DISK if went_along else "",
            )
        )

    def _on_growth(self, entry: Mapping[str, Any], before: CopyFacts, after: CopyFacts) -> None:
        assert after.spot is not None
        rv, at = int(entry["rv"]), float(entry["at"])
        excuse = OPEN if self._gate.is_open(at, at) else ""
        grown = f", grown by {gib(after.size_bytes - before.size_bytes)} GiB"
        self._check_limit(_Placing(rv, at, after, "", excuse), also=grown)

    def _check_limit(self, placing: _Placing, *, also: str = "") -> bool:
        """Is it within the limit? `also`: what a finding tells beside the bytes."""
        stored, spot = self._stored, placing.spot
        limit, taken = stored.limits.now(spot), stored.taken_bytes(spot)
        if taken <= limit:
            return True
        lately = stored.limits.lately(spot, placing.at)
        explained = placing.excuse
        if not explained and taken <= lately:
            explained = LOWERED
        if not explained and placing.is_leaders and taken <= lately + self._unseen_bytes(placing):
            explained = UNSEEN
        detail = f"{gib(taken - limit)} GiB over {gib(limit)}{also}"
        self.findings.append(placing.finding(Found.OVER, detail, explained))
        return False

    def _unseen_bytes(self, placing: _Placing) -> int:
        """What others placed there a moment before: the leader decides by what its watches have shown it."""
        names = [
            copy.name
            for copy in self._stored.on_disk(placing.spot)
            if copy.name != placing.copy.name and self._is_unseen(copy, placing.at)
        ]
        return self._stored.taken_bytes(placing.spot) - self._stored.taken_bytes(placing.spot, unless=names)

    def _is_unseen(self, copy: CopyFacts, at: float) -> bool:
        arrival = self._stored.arrivals.get(copy.uid)
        return arrival is not None and not arrival.is_leaders and arrival.at > at - LATE_SECONDS

    def _check_plans(self, placing: _Placing) -> None:
        stored, spot = self._stored, placing.spot
        victims = stored.planned_for_others(spot, placing.copy.volume)
        free = stored.limits.lately(spot, placing.at) - stored.taken_bytes(spot)
        if placing.is_leaders:
            free += self._unseen_bytes(placing)
        lost = sum(victims.values()) - free
        if lost <= 0:
            return
        explained = placing.excuse or (FURTHER if any(stored.siblings(placing.copy)) else "")
        names = ", ".join(sorted(stored.plans[key].plan.volume for key in victims))
        finding = placing.finding(Found.PLANNED, f"{gib(lost)} GiB of {names}", explained)
        if placing.is_leaders and not explained:
            self._suspects.append(_Suspect(finding, spot, victims, free))
        else:
            self.findings.append(finding)

    def _settle(self, upto: float) -> None:
        """The leader knows its plans before they are stored; one that is still there as it was has lost its bytes."""
        while self._suspects and self._suspects[0].finding.at <= upto:
            one = self._suspects.pop(0)
            is_lost = self._stored.still_planned(one.spot, one.victims) > one.free_bytes
            self.findings.append(one.finding if is_lost else replace(one.finding, explained=PLAN_WENT))

    def _check_affinity(self, placing: _Placing) -> None:
        copy, stored = placing.copy, self._stored
        volume = stored.volumes.get(copy.volume)
        if volume is None or copy.is_failed or not copy.is_active:
            return
        for other in stored.siblings(copy):
            if other.is_failed or other.is_leaving or not other.is_active:
                continue
            broken = self._broken(volume, placing.spot, other.spot)
            if broken:
                explained = placing.excuse
                if not explained and placing.is_leaders and self._is_unseen(other, placing.at):
                    explained = UNSEEN
                if not explained and self._balances(volume):
                    explained = BALANCE
                detail = f"{other.name} is on the same {broken}"
                self.findings.append(placing.finding(Found.AFFINITY, detail, explained))

    def _broken(self, volume: Raw, spot: Spot, other: Spot | None) -> str:
        """What the two have in common and must not."""
        assert other is not None
        zones, soft = self._stored.limits.zones, self._stored.is_soft
        if spot == other and not soft(volume, "Disk"):
            return "disk"
        if spot.node == other.node and not (soft(volume, "Zone") and soft(volume, "")):
            return "node"
        is_one_zone = spot.node in zones and other.node in zones and zones[spot.node] == zones[other.node]
        return "zone" if is_one_zone and not soft(volume, "Zone") else ""

    def _balances(self, volume: Raw) -> bool:
        """Then a node with a disk under pressure counts as unused."""
        own = volume["spec"].get("replicaAutoBalance") or "ignored"
        return (own if own != "ignored" else self._stored.setting("replica-auto-balance")) == "best-effort"


def gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.3f}"


def judge(entries: Iterable[Mapping[str, Any]]) -> list[PlaceFinding]:
    """All that a history in the API server's order shows, explained or not."""
    found = PlaceJudge()
    for entry in entries:
        found.feed(entry)
    return found.end()


def guilt(findings: Iterable[PlaceFinding], *, only_leader_places: bool = True) -> list[PlaceFinding]:
    """What nothing explains. `only_leader_places`: is a place that the leader did not give a guilt, too?"""
    left_out = () if only_leader_places else (Found.FOREIGN, Found.TERM)
    return [one for one in findings if not one.explained and one.what not in left_out]
