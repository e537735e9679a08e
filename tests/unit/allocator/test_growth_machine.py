"""The race of race_machine.py with volumes that grow: no byte is given to a growth and to somebody else.

A growth is asked for, and, if it was admitted, written by the API server at some later moment, or never. From then on
claim, Longhorn's API, volume, replicas and PV follow one another, each change seen late by the allocator.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from controller.allocator.outcome import Due
from controller.allocator.plans.ends import GROWTH
from controller.allocator.plans.growths import HOLD_SECONDS
from controller.allocator.verbs.grow import GrowthOutcome, GrowthRequest, GrowthVerdict
from controller.model.longhorn import Replica, Volume
from controller.model.workload import Claim, PersistentVolume
from tests.fakes.builders import GIB, observe
from tests.unit.allocator.race_machine import ROOM_GIB, RaceMachine


class Growth(RaceMachine):
    def __init__(self) -> None:
        super().__init__()
        self.admitted: dict[str, int] = {}  # claim -> bytes that the API server may still write

    # The API server, and whoever asks it

    @precondition(lambda self: self.bound())
    @rule(data=st.data(), more=st.integers(1, ROOM_GIB), is_dry_run=st.booleans())
    def ask_growth(self, data: st.DataObject, more: int, is_dry_run: bool) -> None:
        claim = data.draw(st.sampled_from(self.bound()))
        size = claim.requested_bytes + more * GIB
        request = GrowthRequest(claim.volume_name, size, "ns", claim.name, is_dry_run=is_dry_run)
        self.read_missing(request)
        before = self.allocator.snapshot().promises
        outcome = self.hold(request)
        if is_dry_run:
            assert before == self.allocator.snapshot().promises
        elif outcome.verdict is GrowthVerdict.ADMITTED:
            self.admitted[claim.key] = max(size, self.admitted.get(claim.key, 0))
        elif outcome.verdict is GrowthVerdict.REFUSED:
            again = GrowthRequest(claim.volume_name, outcome.largest_bytes, "ns", claim.name, is_dry_run=True)
            assert GrowthVerdict.REFUSED is not self.hold(again).verdict, "the largest size that fits does not"

    def bound(self) -> list[Claim]:
        claims = (facts for facts in self.truth["claim"].values() if isinstance(facts, Claim))
        return [claim for claim in claims if claim.volume_name in self.truth["volume"]]

    def hold(self, request: GrowthRequest) -> GrowthOutcome:
        self.read_missing(request)
        return self.allocator.expansions.hold(request)

    def read_missing(self, request: GrowthRequest) -> None:
        """The leader's live reads of what its stores lack."""
        while (missing := self.allocator.expansions.missing(request)) is not None:
            observe(self.allocator, missing.kind, missing.name, self.truth[missing.kind][missing.name])

    @precondition(lambda self: self.admitted)
    @rule(data=st.data(), is_written=st.booleans())
    def end_request(self, data: st.DataObject, is_written: bool) -> None:
        """It was admitted by everybody and is written, or somebody else refused it."""
        key = data.draw(st.sampled_from(sorted(self.admitted)))
        self.finish(key, is_written=is_written)

    def finish(self, key: str, *, is_written: bool) -> None:
        size, claim = self.admitted.pop(key), self.truth["claim"].get(key)
        if is_written and isinstance(claim, Claim) and claim.requested_bytes < size:
            self.write("claim", key, replace(claim, requested_bytes=size))

    def due_growths(self) -> list[Due]:
        return [due for due in self.allocator.due() if due.claimant == GROWTH]

    @precondition(lambda self: self.growing())
    @rule(data=st.data())
    def ask_for_less(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.growing()))
        pv = self.truth["pv"][claim.volume_name]
        facts = self.truth["volume"][claim.volume_name]
        assert isinstance(pv, PersistentVolume)
        assert isinstance(facts, Volume)
        if facts.size_bytes <= pv.capacity_bytes and claim.key not in self.admitted:
            self.write("claim", claim.key, replace(claim, requested_bytes=pv.capacity_bytes))

    def growing(self) -> list[Claim]:
        """Claims that ask for more than their PV has."""
        found = []
        for claim in self.bound():
            pv = self.truth["pv"].get(claim.volume_name)
            if isinstance(pv, PersistentVolume) and claim.requested_bytes > pv.capacity_bytes:
                found.append(claim)
        return found

    # Longhorn

    @precondition(lambda self: self.growing())
    @rule(data=st.data())
    def grow_volume(self, data: st.DataObject) -> None:
        """Longhorn's API; the volume's own review never refuses what its claim was granted."""
        claim = data.draw(st.sampled_from(self.growing()))
        facts = self.truth["volume"][claim.volume_name]
        assert isinstance(facts, Volume)
        outcome = self.hold(GrowthRequest(facts.name, claim.requested_bytes))
        assert GrowthVerdict.ADMITTED is outcome.verdict
        self.write("volume", facts.name, replace(facts, size_bytes=max(facts.size_bytes, claim.requested_bytes)))

    @precondition(lambda self: self.truth["replica"])
    @rule(data=st.data())
    def grow_replica(self, data: st.DataObject) -> None:
        facts = self.truth["replica"][data.draw(st.sampled_from(sorted(self.truth["replica"])))]
        assert isinstance(facts, Replica)
        owner = self.truth["volume"].get(facts.volume)
        if isinstance(owner, Volume) and facts.size_bytes < owner.size_bytes:
            self.write("replica", facts.name, replace(facts, size_bytes=owner.size_bytes))

    @precondition(lambda self: self.growing())
    @rule(data=st.data())
    def finish_growth(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.growing()))
        pv, facts = self.truth["pv"][claim.volume_name], self.truth["replica"].get(f"{claim.volume_name}-r")
        assert isinstance(pv, PersistentVolume)
        if isinstance(facts, Replica) and facts.size_bytes >= claim.requested_bytes:
            self.write("pv", pv.name, replace(pv, capacity_bytes=facts.size_bytes))

    # Time and leadership

    @rule()
    def a_minute_goes_by(self) -> None:
        """No request lives so long; what was never written ends after a live read. Nor is a claim without a pod waited
        for so long: its provisioner has given the choice back."""
        for key in list(self.admitted):
            self.finish(key, is_written=False)
        wanted = {key for workload in self.alive() for key in workload.claims}
        for claim in self.provisionable():
            if claim.key not in wanted:
                self.write("claim", claim.key, replace(claim, selected_node=""))
        self.give_up_bindings(HOLD_SECONDS)
        self.clock.advance(HOLD_SECONDS)
        for due in self.due_growths():
            for kind, key in due.reads:
                if key in self.truth[kind]:
                    observe(self.allocator, kind, key, self.truth[kind][key])
            self.allocator.expire(due)
        assert [] == self.due_growths()

    @precondition(lambda self: not self.admitted)
    @rule()
    def change_leader(self) -> None:
        """Plans and holds are handed over; growth that the cluster does not ask for yet is not."""
        super().change_leader()

    @precondition(lambda self: self.admitted)
    @rule(is_written=st.booleans())
    def change_leader_with_requests_under_way(self, is_written: bool) -> None:
        """They have ended when the new leader's stores are caught up past its win."""
        for key in list(self.admitted):
            self.finish(key, is_written=is_written)
        self.change_leader()

    # Safety

    def promised(self, name: str) -> int:
        """With each volume at the size that somebody was told it may have."""
        total = 0
        for facts in self.truth["replica"].values():
            if isinstance(facts, Replica) and facts.node == name:
                total += max(facts.size_bytes, self.granted(facts.volume))
        for claim in self.truth["claim"].values():
            if isinstance(claim, Claim) and self.is_chosen_for(claim, name):
                placed = self.truth["replica"].get(f"{claim.volume_name}-r")
                if not (isinstance(placed, Replica) and placed.node == name):
                    total += max(claim.requested_bytes, self.granted(claim.volume_name))
        return total

    def granted(self, volume: str) -> int:
        facts = self.truth["volume"].get(volume)
        sizes = [facts.size_bytes] if isinstance(facts, Volume) else [0]
        for claim in self.truth["claim"].values():
            if isinstance(claim, Claim) and claim.volume_name == volume and volume:
                sizes += [claim.requested_bytes, self.admitted.get(claim.key, 0)]
        return max(sizes)


TestGrowth = Growth.TestCase
TestGrowth.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
