"""Who is to give a Replica its first place, where somebody else than Longhorn places: this project's own idea of it.

It is for whoever judges what happened, and knows nothing of how anybody chooses.
"""

from __future__ import annotations

from typing import Any, Final, Literal

Raw = dict[str, Any]
Placer = Literal["other", "longhorn", "either"]

DELETED: Final = "deletionTimestamp"


def placer_of(volume: Raw, replica: Raw) -> Placer:
    """Whose first place is right, by both objects as they were before it: `other` is whoever places for Longhorn.

    `longhorn`: a place by anybody else does harm. `either`: it helps nobody to forbid one of them.
    """
    spec, copy = volume["spec"], replica["spec"]
    if volume["metadata"].get(DELETED) or replica["metadata"].get(DELETED):
        return "either"
    if not copy.get("active", True) or copy.get("nodeID"):
        return "longhorn"  # a twin is made where its original lies, and keeps that place
    if copy.get("failedAt"):
        return "longhorn"  # it comes back where its data is, or never
    if (spec.get("dataLayout") or {}).get("type") == "sharded":
        return "longhorn"  # its manager remembers the shards' places by itself
    if spec.get("cloneMode") == "linked-clone":
        return "either"  # beside a copy of its source; elsewhere it is deleted
    is_filled = bool(spec.get("dataSource") or spec.get("fromBackup"))
    if spec.get("dataLocality") == "strict-local" and is_filled:
        return "longhorn"  # it is attached to its owner first, and its PV has to follow in time
    return "other"
