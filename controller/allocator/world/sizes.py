"""How large volumes may become: what Longhorn shows, what claims ask for, and what was admitted and is not seen yet.

The first two are worked out of the facts whenever they change, so that a follower and a new leader know them as well;
only the third is remembered, until the cluster shows it or its time is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.model.longhorn import Volume
from controller.model.provisioning import provisioned_name, rounded_volume_bytes
from controller.model.workload import Claim, PersistentVolume


@dataclass(frozen=True, slots=True)
class GrowthHold:
    """An admitted growth that the cluster does not show. Bytes; monotonic seconds."""

    size_bytes: int
    since: float
    reviewed_at: float  # when it was last asked for
    claim: str = ""  # "namespace/name", "" for a volume without a claim


def asked_bytes(volume: Volume, claim: Claim | None, pvs: Mapping[str, PersistentVolume]) -> int:
    """The size that the cluster asks for: the volume's own, or the request of the claim that is bound to it, as
    Longhorn rounds it.

    A volume that was provisioned for its claim is as large as the claim asked for, until the claim asks for more. One
    that was made by hand need not be as large as its PV says: there the request has to be beyond the PV's capacity.
    """
    pv = pvs.get(claim.volume_name) if claim is not None and claim.volume_name else None
    if claim is None or pv is None or pv.handle != volume.name or pv.claim_uid not in ("", claim.uid):
        return volume.size_bytes
    if volume.deleting or (provisioned_name(claim) != volume.name and claim.requested_bytes <= pv.capacity_bytes):
        return volume.size_bytes
    return max(volume.size_bytes, rounded_volume_bytes(claim.requested_bytes))


class Sizes:
    """What each volume was granted. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, *, counts_growth: bool = True) -> None:
        """`counts_growth` False: nothing is granted beyond what each object says of itself."""
        self._counts_growth = counts_growth
        self.shown: dict[str, Volume] = {}  # by name, as Longhorn shows them
        self.asked: dict[str, int] = {}  # the same volumes, as the cluster asks for them
        self.holds: dict[str, GrowthHold] = {}

    def granted(self, volume: str) -> int:
        """Bytes; 0 for a volume that is not there."""
        if not self._counts_growth:
            return 0
        hold = self.holds.get(volume)
        asked = self.asked.get(volume, 0)
        return max(asked, hold.size_bytes) if hold is not None and asked else asked

    def put(self, name: str, volume: Volume | None, claim: Claim | None, pvs: Mapping[str, PersistentVolume]) -> None:
        """As Longhorn shows it now. A hold ends with its volume, and when the cluster asks for as much."""
        if volume is None:
            self.shown.pop(name, None)
            self.asked.pop(name, None)
            self.holds.pop(name, None)
            return
        self.shown[name] = volume
        asked = self.asked[name] = asked_bytes(volume, claim, pvs)
        hold = self.holds.get(name)
        if hold is not None and hold.size_bytes <= asked:
            del self.holds[name]
