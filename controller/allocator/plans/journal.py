"""What is to be told of holds, plans and growths: counters and durations for metrics, and Events for claims."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.model.workload import Claim

MAX_RECORDS: Final = 10_000  # durations that wait to be drained
MAX_EVENTS: Final = 1_000  # Events that wait to be drained

SCHEDULING_WAIT: Final = "pod_scheduling_wait"
NODE_RESERVATION: Final = "node_reservation"


class ClaimEventKind(StrEnum):
    """What the owner of a claim is told."""

    GROWTH_NOT_HELD = "growth-not-held"  # what is asked for is not stored, or was not the last time
    GROWS_TOO_FAR = "grows-too-far"  # no disk of it can ever have that size
    GROWS_LATER = "grows-later"  # what lies there leaves no room for it now
    NEVER_GROWS = "never-grows"  # Longhorn does not expand it, whatever room there is
    PLACE_LOST = "place-lost"  # the disk that was planned for it takes it no more, and no other does


_COUNTED_AS: Final = {ClaimEventKind.NEVER_GROWS: ClaimEventKind.GROWS_TOO_FAR}  # what no room helps counts as one


@dataclass(frozen=True, slots=True)
class ClaimEvent:
    """An Event about a claim. `asked_bytes`: what it asks for. `most_bytes`: what there is. `where`: the disk that
    decides, or the reason."""

    kind: ClaimEventKind
    namespace: str
    name: str
    uid: str
    asked_bytes: int
    most_bytes: int
    where: str = ""


class Journal:
    """Counters; durations as (name, seconds, success) and Events of claims, until they are drained."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._records: list[tuple[str, float, bool]] = []
        self._claim_events: dict[tuple[str, ClaimEventKind], ClaimEvent] = {}  # by the claim's uid

    def tell(self, kind: ClaimEventKind, claim: Claim, asked_bytes: int, most_bytes: int, where: str = "") -> None:
        """Have the claim's owner told. The same kind is told once for a claim until Events are drained."""
        if (claim.uid, kind) not in self._claim_events:
            self.counters[f"claims_{_COUNTED_AS.get(kind, kind)}"] += 1
        if len(self._claim_events) < MAX_EVENTS:
            found = ClaimEvent(kind, claim.namespace, claim.name, claim.uid, asked_bytes, most_bytes, where)
            self._claim_events[claim.uid, kind] = found

    def drain_claim_events(self) -> tuple[ClaimEvent, ...]:
        events, self._claim_events = tuple(self._claim_events.values()), {}
        return events

    def record(self, name: str, seconds: float, success: bool) -> None:
        if len(self._records) < MAX_RECORDS:
            self._records.append((name, max(0.0, seconds), success))
        else:
            self.counters["records_dropped"] += 1

    def drain(self) -> tuple[tuple[str, float, bool], ...]:
        records, self._records = tuple(self._records), []
        return records
