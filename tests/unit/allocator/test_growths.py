"""The book of growth: what was admitted, what the cluster asks for, how long it is held, and where it counts.

tests/scenarios/growth.txt tells how holds become the cluster's word, and when they end; never_placed.txt, of growth
beyond a disk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from controller.allocator.plans.growths import HOLD_SECONDS, STORE_SECONDS, UNSTORED_SECONDS
from controller.allocator.plans.journal import ClaimEventKind
from controller.allocator.verbs.grow import GrowthVerdict
from controller.model.longhorn import DiskNeeds
from tests.fakes.builders import GIB, disk, node
from tests.unit.allocator.growing import A, Growing, more_bytes

BACKUP: Final = "s3://b@r/?backup=one&volume=v"


def add_copy(stage: Growing, gib: float = 100) -> None:
    """On n2, which has a disk of 400 GiB too."""
    stage.add_node("n2", d1=400)
    stage.place(A, "n2", gib, number=2)


def claim_events(stage: Growing) -> list[tuple[ClaimEventKind, int, int]]:
    """What owners are told since the last time: GiB asked for, and the most there is."""
    told = stage.journal.drain_claim_events()
    return [(one.kind, one.asked_bytes // GIB, one.most_bytes // GIB) for one in told]


# Where it counts


def test_what_is_admitted_counts_on_every_disk_that_holds_the_volume_and_on_no_other(stage: Growing) -> None:
    stage.put_node(node("n1", disk("d1", 400), disk("d2", 400)))
    add_copy(stage)
    assert (300, 400, 300) == (stage.free_gib(), stage.free_gib("n1", "d2"), stage.free_gib("n2"))
    assert stage.growths.hold(A, 250 * GIB, stage.clock.now())

    growth = stage.growths.get(A)
    assert growth is not None
    assert (("n1", "n1-d1", 150 * GIB), ("n2", "n2-d1", 150 * GIB)) == growth.on_disks
    sizes = stage.growths.target_of(A), stage.growths.granted(A), more_bytes(growth)
    assert (250 * GIB, 250 * GIB, 300 * GIB) == sizes
    assert [True, False, True] == [stage.growths.grows_on(uuid) for uuid in ("n1-d1", "n1-d2", "n2-d1")]
    assert (150, 400, 150) == (stage.free_gib(), stage.free_gib("n1", "d2"), stage.free_gib("n2"))
    seen = stage.world.volume(A)
    assert seen is not None and 250 * GIB == seen.size_bytes


def test_a_copy_that_goes_takes_its_growth_along(stage: Growing) -> None:
    add_copy(stage)
    stage.ask("a", 200)
    stage.world.put_replica(f"{A}-r-2", None)
    stage.settle(A)
    assert {"a": ("HELD", 100)} == stage.grown()
    assert not stage.growths.grows_on("n2-d1")


def test_a_copy_that_is_placed_meanwhile_has_the_size_that_was_granted() -> None:
    stage = Growing()
    stage.add("a", 100, on="")
    stage.growths.hold(A, 300 * GIB, stage.clock.now())
    assert {"a": ("HELD", 0)} == stage.grown()
    stage.place(A, "n1", 100)
    assert ({"a": ("HELD", 200)}, 100) == (stage.grown(), stage.free_gib())


def test_a_copy_of_the_book_knows_nothing_of_what_comes_later(stage: Growing) -> None:
    other = stage.add("b", 100)
    stage.ask("a", 200)
    book = stage.growths.copy()
    book.world = stage.world.copy(book)
    stage.ask("b", 200)
    stage.growths.settle(A, stage.clock.now(), ends_hold=True)
    assert [A] == [growth.volume for growth in book.all()]
    assert (200 * GIB, 100 * GIB) == (book.granted(A), book.granted(other))
    assert [(A, 100 * GIB)] == list(book.growing_by("n1-d1"))
    room = book.world.room("n1")
    assert room is not None and [100 * GIB] == [one.free_bytes for one in room.disks]


# Held, and asked for


def test_a_smaller_growth_that_is_stored_ends_no_larger_hold(stage: Growing) -> None:
    stage.ask("a", 300)
    stage.grow_claim("a", 200)
    assert {"a": ("HELD", 200)} == stage.grown()
    stage.clock.advance(HOLD_SECONDS)
    assert stage.look(A)
    assert {"a": ("ASKED", 100)} == stage.grown()


def test_a_copy_that_is_as_large_as_what_is_left_of_the_growth_grows_no_more(stage: Growing) -> None:
    add_copy(stage, 200)
    stage.ask("a", 300)
    stage.grow_claim("a", 200)
    assert (100, 100) == (stage.free_gib(), stage.free_gib("n2"))
    stage.clock.advance(HOLD_SECONDS)
    assert stage.look(A)
    assert ({"a": ("ASKED", 100)}, 200, 200) == (stage.grown(), stage.free_gib(), stage.free_gib("n2"))


def test_what_is_asked_for_is_as_old_as_the_first_request(stage: Growing) -> None:
    stage.ask("a", 150)
    stage.clock.advance(1)
    asked_at = stage.clock.now()
    stage.grow_claim("a", 150)
    stage.clock.advance(1)
    stage.grow_claim("a", 160)
    growth = stage.growths.get(A)
    assert growth is not None and asked_at == growth.since


def test_a_volume_that_is_gone_grows_no_more(stage: Growing) -> None:
    stage.ask("a", 300)
    stage.drop_volume(A)
    assert ({}, 0, False) == (stage.grown(), stage.growths.granted(A), stage.growths.grows_on("n1-d1"))


def test_whoever_leaves_tells_whether_anything_is_held_that_nobody_sees(stage: Growing) -> None:
    stage.add("b", 100)
    stage.grow_claim("b", 200)
    assert 100 == stage.free_gib()
    assert not stage.growths.clear()
    assert ({}, 200) == (stage.grown(), stage.free_gib())
    stage.ask("a", 200)
    assert stage.growths.clear()
    assert ({}, 200) == (stage.grown(), stage.free_gib())


# Held in vain


def hold_in_vain(stage: Growing, name: str, gib: float) -> None:
    stage.ask(name, gib)
    stage.clock.advance(HOLD_SECONDS)
    assert stage.look(f"pvc-uid-{name}")


def test_a_hold_is_looked_at_soon_and_ends_a_minute_after_its_first_review(stage: Growing) -> None:
    stage.ask("a", 200)
    assert not stage.look(A)  # it is not due
    (held,) = stage.growths.held()
    assert stage.clock.now() + STORE_SECONDS == held.until
    stage.clock.advance(STORE_SECONDS)
    stage.ask("a", 300)  # whoever asks again, for whatever, changes nothing of that
    assert not stage.look(A)
    (held,) = stage.growths.held()
    assert (held.since + HOLD_SECONDS, 300 * GIB) == (held.until, held.size_bytes)
    stage.clock.advance(HOLD_SECONDS - STORE_SECONDS - 1)
    assert not stage.look(A)
    stage.clock.advance(1)
    assert stage.look(A)


def test_the_owner_of_a_volume_whose_growth_is_not_held_after_one_in_vain_is_told(stage: Growing) -> None:
    hold_in_vain(stage, "a", 200)
    assert GrowthVerdict.ADMITTED is stage.ask("a", 300).verdict
    (event,) = stage.journal.drain_claim_events()
    assert ({}, ClaimEventKind.GROWTH_NOT_HELD, 300 * GIB) == (stage.grown(), event.kind, event.asked_bytes)
    assert stage.growths.is_so(event, A)
    stage.grow_claim("a", 300)
    assert not stage.growths.is_so(event, A)  # it was stored after all


def test_each_hold_in_vain_is_remembered_as_long(stage: Growing) -> None:
    stage.add("b", 100)
    hold_in_vain(stage, "a", 110)
    hold_in_vain(stage, "b", 110)
    stage.clock.advance(UNSTORED_SECONDS - HOLD_SECONDS)
    stage.ask("a", 110)
    stage.ask("b", 110)
    assert {"a": ("HELD", 10)} == stage.grown()


@pytest.mark.parametrize(("stored_gib", "state"), [(200, "HELD"), (199, "ASKED")])
def test_what_is_stored_after_all_was_meant_and_less_says_nothing(stage: Growing, stored_gib: int, state: str) -> None:
    hold_in_vain(stage, "a", 200)
    stage.grow_claim("a", stored_gib)
    assert "ASKED" == stage.grown()["a"][0]
    stage.ask("a", 300)
    assert state == stage.grown()["a"][0]


def test_a_new_term_begins_without_what_was_remembered(stage: Growing) -> None:
    hold_in_vain(stage, "a", 200)
    stage.growths.clear()
    stage.ask("a", 200)
    assert {"a": ("HELD", 100)} == stage.grown()


# What the cluster asks for and cannot have


@pytest.mark.parametrize(("copies", "most_gib"), [(1, 400), (2, 200)], ids=["alone on its disk", "two copies there"])
def test_what_its_disk_could_never_hold_takes_no_room_and_its_owner_is_told(
    stage: Growing, copies: int, most_gib: int
) -> None:
    for number in range(1, copies + 1):
        stage.place(A, "n1", 100, number=number)
    stage.grow_claim("a", most_gib + 1)
    assert {} == stage.grown()
    assert [(ClaimEventKind.GROWS_TOO_FAR, most_gib + 1, most_gib)] == claim_events(stage)
    stage.grow_claim("a", most_gib)
    assert {"a": ("ASKED", copies * (most_gib - 100))} == stage.grown()


@pytest.mark.parametrize(
    ("facts", "most_gib"),
    [({"needs": DiskNeeds(data_engine="v2"), "wanted_frontend": "ublk"}, 100), ({}, 16 * 1024 - 1)],
    ids=["its engine never grows", "its file system takes less"],
)
def test_what_longhorn_never_does_takes_no_room_and_its_owner_is_told(facts: dict[str, Any], most_gib: int) -> None:
    stage = Growing(d1=40 * 1024)
    stage.add("a", 100, **facts)
    stage.grow_claim("a", most_gib + 1)
    assert {} == stage.grown()
    assert [(ClaimEventKind.NEVER_GROWS, most_gib + 1, 100)] == claim_events(stage)
    assert 1 == stage.journal.counters["claims_grows-too-far"]
    stage.grow_claim("a", most_gib)
    assert (most_gib > 100) is bool(stage.grown())


def test_what_has_no_room_now_takes_none_until_there_is_some(stage: Growing) -> None:
    full = replace(disk("d1", 400), scheduled_bytes=300 * GIB, scheduled_replicas={f"{A}-r-1": 100 * GIB})
    stage.put_node(node("n1", full))
    stage.grow_claim("a", 201)
    assert {} == stage.grown()
    assert [(ClaimEventKind.GROWS_LATER, 201, 200)] == claim_events(stage)
    stage.put_node(node("n1", replace(full, scheduled_bytes=299 * GIB)))
    assert {"a": ("ASKED", 101)} == stage.grown()


def test_on_a_disk_beyond_its_limit_the_copys_own_size_is_the_most(stage: Growing) -> None:
    stage.put_node(node("n1", replace(disk("d1", 400), scheduled_bytes=450 * GIB)))
    stage.grow_claim("a", 101)
    assert [(ClaimEventKind.GROWS_LATER, 101, 100)] == claim_events(stage)
    stage.grow_volume(A, 100)
    assert {} == stage.grown()


def test_what_was_admitted_keeps_its_room_whatever_comes_there_afterwards(stage: Growing) -> None:
    stage.ask("a", 300)
    stage.put_node(node("n1", replace(disk("d1", 400), scheduled_bytes=350 * GIB)))
    stage.grow_claim("a", 300)
    assert {"a": ("ASKED", 200)} == stage.grown()
    stage.grow_claim("a", 301)  # that was not
    assert {} == stage.grown()


# How large the cluster wants it


def test_a_volume_that_is_smaller_than_its_pv_says_does_not_grow_for_that() -> None:
    stage = Growing()
    stage.add_by_hand(claim_gib=50, pv_gib=50, volume_gib=10)
    assert {} == stage.grown()
    stage.grow_claim("hand", 60)
    assert {"hand": ("ASKED", 50)} == stage.grown()


def test_a_claim_that_is_larger_than_its_backup_grows_only_by_what_it_asks_for_later() -> None:
    """Its PV is as large as it asks for, its volume as the backup."""
    stage = Growing()
    stage.add("a", 40, from_backup=BACKUP)
    stage.put_pv(A, stage.claims["a"], 100)
    stage.grow_claim("a", 100)
    assert ({}, set(), 360, []) == (stage.grown(), stage.world.growing, stage.free_gib(), claim_events(stage))

    assert GrowthVerdict.ADMITTED is stage.ask("a", 150).verdict
    assert {"a": ("HELD", 110)} == stage.grown()
    stage.grow_claim("a", 150)
    assert {"a": ("ASKED", 110)} == stage.grown()

    stage.grow_volume(A, 150, from_backup=BACKUP)
    stage.place(A, "n1", 150)
    stage.put_pv(A, stage.claims["a"], 150)
    stage.settle(A)
    assert ({}, 250) == (stage.grown(), stage.free_gib())
