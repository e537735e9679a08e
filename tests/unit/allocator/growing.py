"""Volumes that are asked to grow, and what is held for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.allocator.verbs.grow import GrowthOutcome, GrowthRequest
from controller.model.longhorn import LonghornSettings
from tests.fakes.builders import GIB, TestCluster, disk, volume
from tests.fakes.rooms import OPEN


class Growing:
    """Volumes with one replica each, on one disk of 400 GiB unless said otherwise."""

    def __init__(self, settings: LonghornSettings = OPEN, **disks: float) -> None:
        self.cluster = TestCluster(settings=settings)
        self.allocator = self.cluster.allocator
        self.cluster.add_node("n1", *(disk(name, free) for name, free in (disks or {"d1": 400}).items()))

    def add(self, name: str, gib: float = 100, *, on: str = "n1", disk_name: str = "d1") -> str:
        """A claim that is bound, with its volume placed; the volume's name."""
        self.cluster.add_claim(name, gib)
        volume_name = self.cluster.provision(name)
        self.cluster.place(volume_name, on, gib, disk_name)
        return volume_name

    def ask(self, claim: str, gib: float, *, dry_run: bool = False) -> GrowthOutcome:
        facts = self.cluster.claims[claim]
        request = GrowthRequest(facts.volume_name, int(gib * GIB), facts.namespace, facts.name, is_dry_run=dry_run)
        assert self.allocator.expansions.missing(request) is None
        return self.allocator.expansions.hold(request)

    def ask_volume(self, name: str, gib: float) -> GrowthOutcome:
        return self.allocator.expansions.hold(GrowthRequest(name, int(gib * GIB)))

    def grow_claim(self, claim: str, gib: float) -> None:
        self.cluster.set_claim(replace(self.cluster.claims[claim], requested_bytes=int(gib * GIB)))

    def grow_volume(self, name: str, gib: float, **other: Any) -> None:
        self.allocator.observe_volume(name, volume(name, gib, **other))

    def held(self) -> dict[str, tuple[str, int]]:
        """State and GiB by claim, of expansions."""
        return {
            view.claim: (view.state, view.size_bytes // GIB)
            for view in self.allocator.snapshot().promises
            if view.kind == "expansion"
        }
