"""Where replicas and demand came from: who asked, when the cluster chose, when each byte landed. Nothing is forgotten.

The objects may be gone when an excess is to be explained (see `explained`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.e2e.history_facts import ClaimFacts, PodFacts, ReplicaFacts, VolumeFacts


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that came to a disk at one time: a replica, or what it grew by."""

    at: float
    size_bytes: int
    is_growth: bool = False


@dataclass(slots=True)
class Copy:
    """One replica's life on a disk."""

    uid: str
    volume: str
    node: str
    disk: str
    is_rebuild: bool  # its volume had had all the copies that it wants before
    pieces: list[Piece]

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


@dataclass(slots=True)
class ClaimOrigin:
    """A claim, and all that the cluster decided about it."""

    key: str
    chosen_at: float | None = None  # since when the present choice of a node stands
    is_selected: bool = False  # the choice is an annotation of the claim
    node: str = ""
    sizes: list[tuple[float, int]] = field(default_factory=list)  # when it asked for how many bytes

    def grown_at(self, landed_at: float) -> float:
        """When the size was asked for that it got at that time."""
        before = [at for at, _ in self.sizes[1:] if at <= landed_at]
        return before[-1] if before else landed_at


class Origins:
    """Fed with every fact as it changes. Threads: one."""

    def __init__(self) -> None:
        self.copies: dict[str, Copy] = {}  # by the replica's name, from when it first had a disk
        self.volumes: dict[str, VolumeFacts] = {}
        self.requests: dict[str, ClaimOrigin] = {}  # by the claim's uid
        self.pods: dict[str, PodFacts] = {}  # by uid, all that ever were
        self._born: dict[str, float] = {}  # when each of them was first seen
        self._claims: dict[str, str] = {}  # key -> uid of the latest of that name
        self._owners: dict[str, str] = {}  # volume -> the claim's uid
        self._users: dict[str, dict[str, PodFacts]] = {}  # claim's key -> pods by uid
        self._copies_of: dict[str, int] = {}  # volume -> replicas that were ever placed

    def request_of(self, volume: str) -> ClaimOrigin | None:
        """The claim behind a volume; None: none is known."""
        return self.requests.get(self._owners.get(volume) or volume.removeprefix("pvc-"))

    def pods_of(self, volume: str) -> list[PodFacts]:
        request = self.request_of(volume)
        return list(self._users.get(request.key, {}).values()) if request is not None else []

    def first_asked_at(self, volume: str) -> float:
        """Before that there was no pod to ask for it."""
        return min((self._born[pod.uid] for pod in self.pods_of(volume)), default=-math.inf)

    def volume_of_claim(self, key: str) -> str:
        """The volume behind the latest claim of that name; empty when none is known."""
        uid = self._claims.get(key, "")
        return next((volume for volume, owner in self._owners.items() if owner == uid and volume in self.volumes), "")

    def is_asked_for(self, volume: str) -> bool:
        return any(pod.asks for pod in self.pods_of(volume))

    # What comes

    def claim_came(self, at: float, claim: ClaimFacts, volume: str) -> None:
        request = self.requests.setdefault(claim.uid, ClaimOrigin(claim.key))
        self._claims[claim.key] = claim.uid
        self._owners[volume] = claim.uid
        if not request.sizes or request.sizes[-1][1] != claim.size_bytes:
            request.sizes.append((at, claim.size_bytes))
        if claim.selected_node and claim.selected_node != request.node:
            request.node, request.chosen_at, request.is_selected = claim.selected_node, at, True

    def volume_bound(self, claim: ClaimFacts, volume: str) -> None:
        self._owners[volume] = claim.uid

    def pod_came(self, at: float, pod: PodFacts) -> None:
        known = self.pods.get(pod.uid)
        self._born.setdefault(pod.uid, at)
        self.pods[pod.uid] = pod
        for key in pod.claims:
            self._users.setdefault(key, {})[pod.uid] = pod
            request = self.requests.get(self._claims.get(key, ""))
            if pod.node and not (known and known.node) and request is not None and request.chosen_at is None:
                request.node, request.chosen_at = pod.node, at

    def replica_came(self, at: float, replica: ReplicaFacts) -> None:
        if not replica.is_placed:
            return
        copy = self.copies.get(replica.name)
        if copy is None or copy.uid != replica.uid or copy.disk != replica.disk:
            earlier = self._copies_of.get(replica.volume, 0)
            self._copies_of[replica.volume] = earlier + 1
            volume = self.volumes.get(replica.volume)
            is_rebuild = volume is not None and earlier >= volume.replicas
            pieces = [Piece(at, replica.size_bytes)]
            self.copies[replica.name] = Copy(
                replica.uid, replica.volume, replica.node, replica.disk, is_rebuild, pieces
            )
        elif replica.size_bytes != copy.size_bytes:
            copy.pieces.append(Piece(at, replica.size_bytes - copy.size_bytes, is_growth=True))
