"""When time alone ends a promise.

A hold ends when its pod was answered long ago and choices of pods answered later have been seen; whoever asks looks at
the API server once more before. An assumption ends some time after Longhorn had its chance to place the volume. What is
kept for a pod carries its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller.allocator.promises.ledger import Kind, Promise, Source, State
from controller.allocator.promises.settle import CLAIM

OWN_SECONDS: Final = 90.0  # that Longhorn has for copies of its own; a manager that is dead must not close a cluster
ALONE_SECONDS: Final = 60.0  # that a claim without a pod is waited for until its volume shows


@dataclass(frozen=True, slots=True)
class Due:
    """What time may end, once a live read of `reads` (kind, key) has shown nothing. `is_capped`: it ends even if the
    API server cannot be asked. `claimant` and `volume` ("" for all of the claimant's) name it."""

    claimant: str
    volume: str
    reads: tuple[tuple[str, str], ...]
    is_capped: bool


def ends_at(promise: Promise, reservation_seconds: float) -> float | None:
    """When time ends it without a further look; None while only events do."""
    if promise.kind is Kind.GROWTH:
        return None  # what was admitted ends after a look at the API server
    if promise.until is not None:
        return promise.until
    if promise.state is not State.ASSUMED or promise.chance_at is None:
        return None
    if promise.source is Source.LONGHORN or promise.kind is Kind.ROAMING:
        return promise.chance_at + OWN_SECONDS
    if promise.claimant == CLAIM:
        return promise.chance_at + ALONE_SECONDS
    return promise.chance_at + reservation_seconds
