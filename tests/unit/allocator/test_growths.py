"""The book of growth: what was admitted, what the cluster asks for, how long it is held, and where it counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.plans.growths import HOLD_SECONDS, STORE_SECONDS, UNSTORED_SECONDS
from controller.allocator.plans.journal import ClaimEventKind
from controller.allocator.verbs.grow import GrowthVerdict
from controller.model.longhorn import DiskNeeds
from tests.fakes.builders import GIB, claim, disk, node
from tests.unit.allocator.growing import Growing, more_bytes


def claim_events(stage: Growing) -> list[tuple[ClaimEventKind, int, int]]:
    """What owners are told since the last time: GiB asked for, and the most there is."""
    told = stage.journal.drain_claim_events()
    return [(one.kind, one.asked_bytes // GIB, one.most_bytes // GIB) for one in told]


# Where it counts


def test_what_is_admitted_counts_on_every_disk_that_holds_the_volume_and_on_no_other() -> None:
    stage = Growing(d1=400, d2=400)
    stage.add_node("n2", d1=400)
    name = stage.add("a", 100)
    stage.place(name, "n2", 100, number=2)
    assert (300, 400, 300) == (stage.free_gib(), stage.free_gib("n1", "d2"), stage.free_gib("n2"))
    assert stage.growths.hold(name, 250 * GIB, stage.clock.now())

    growth = stage.growths.get(name)
    assert growth is not None
    assert (("n1", "n1-d1", 150 * GIB), ("n2", "n2-d1", 150 * GIB)) == growth.on_disks
    assert (250 * GIB, 250 * GIB, 300 * GIB) == (
        stage.growths.target_of(name),
        stage.growths.granted(name),
        more_bytes(growth),
    )
    assert [True, False, True] == [stage.growths.grows_on(uuid) for uuid in ("n1-d1", "n1-d2", "n2-d1")]
    assert (150, 400, 150) == (stage.free_gib(), stage.free_gib("n1", "d2"), stage.free_gib("n2"))
    seen = stage.world.volume(name)
    assert seen is not None and 250 * GIB == seen.size_bytes


def test_copies_of_a_volume_on_one_disk_grow_together() -> None:
    stage = Growing()
    name = stage.add("a", 50)
    stage.place(name, "n1", 50, number=2)
    stage.growths.hold(name, 150 * GIB, stage.clock.now())
    assert [(name, 200 * GIB)] == list(stage.growths.growing_by("n1-d1"))
    assert 100 == stage.free_gib()


def test_a_copy_that_goes_takes_its_growth_along() -> None:
    stage = Growing()
    stage.add_node("n2", d1=400)
    name = stage.add("a", 100)
    stage.place(name, "n2", 100, number=2)
    stage.ask("a", 200)
    stage.world.put_replica(f"{name}-r-2", None)
    stage.settle(name)
    assert {"a": ("HELD", 100)} == stage.grown()
    assert not stage.growths.grows_on("n2-d1")


def test_a_copy_that_is_placed_meanwhile_has_the_size_that_was_granted() -> None:
    stage = Growing()
    name = stage.add("a", 100, on="")
    stage.growths.hold(name, 300 * GIB, stage.clock.now())
    assert {"a": ("HELD", 0)} == stage.grown()
    stage.place(name, "n1", 100)
    assert ({"a": ("HELD", 200)}, 100) == (stage.grown(), stage.free_gib())


def test_a_copy_of_the_book_knows_nothing_of_what_comes_later() -> None:
    stage = Growing()
    name, other = stage.add("a", 100), stage.add("b", 100)
    stage.ask("a", 200)
    book = stage.growths.copy()
    book.world = stage.world.copy(book)
    stage.ask("b", 200)
    stage.growths.settle(name, stage.clock.now(), ends_hold=True)
    assert [name] == [growth.volume for growth in book.all()]
    assert (200 * GIB, 100 * GIB) == (book.granted(name), book.granted(other))
    assert [(name, 100 * GIB)] == list(book.growing_by("n1-d1"))
    room = book.world.room("n1")
    assert room is not None and [100 * GIB] == [one.free_bytes for one in room.disks]


# Held, asked for, shown


def test_a_hold_becomes_the_clusters_word_and_ends_when_the_copies_show_it() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.ask("a", 300)
    assert {"a": ("HELD", 200)} == stage.grown()
    stage.grow_claim("a", 300)
    assert {"a": ("ASKED", 200)} == stage.grown()
    assert [] == stage.growths.held()
    stage.clock.advance(10_000)
    assert not stage.look(name)
    stage.grow_volume(name, 300)
    assert {"a": ("ASKED", 200)} == stage.grown()
    stage.place(name, "n1", 300)
    assert ({}, 100) == (stage.grown(), stage.free_gib())


def test_a_smaller_growth_that_is_stored_ends_no_larger_hold() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.ask("a", 300)
    stage.grow_claim("a", 200)
    assert {"a": ("HELD", 200)} == stage.grown()
    stage.clock.advance(HOLD_SECONDS)
    assert stage.look(name)
    assert {"a": ("ASKED", 100)} == stage.grown()


def test_a_copy_that_is_as_large_as_what_is_left_of_the_growth_grows_no_more() -> None:
    stage = Growing()
    stage.add_node("n2", d1=400)
    name = stage.add("a", 100)
    stage.place(name, "n2", 200, number=2)
    stage.ask("a", 300)
    stage.grow_claim("a", 200)
    assert (100, 100) == (stage.free_gib(), stage.free_gib("n2"))
    stage.clock.advance(HOLD_SECONDS)
    assert stage.look(name)
    assert ({"a": ("ASKED", 100)}, 200, 200) == (stage.grown(), stage.free_gib(), stage.free_gib("n2"))


def test_what_is_asked_for_is_as_old_as_the_first_request() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.ask("a", 150)
    stage.clock.advance(1)
    asked_at = stage.clock.now()
    stage.grow_claim("a", 150)
    stage.clock.advance(1)
    stage.grow_claim("a", 160)
    growth = stage.growths.get(name)
    assert growth is not None and asked_at == growth.since


def test_a_request_that_is_lowered_again_takes_nothing() -> None:
    stage = Growing()
    stage.add("a", 100)
    stage.grow_claim("a", 300)
    stage.grow_claim("a", 100)
    assert ({}, 300) == (stage.grown(), stage.free_gib())


def test_a_volume_that_is_gone_grows_no_more() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.ask("a", 300)
    stage.drop_volume(name)
    assert {} == stage.grown()
    assert 0 == stage.growths.granted(name)
    assert not stage.growths.grows_on("n1-d1")


def test_whoever_leaves_tells_whether_anything_is_held_that_nobody_sees() -> None:
    stage = Growing()
    stage.add("a", 100)
    stage.add("b", 100)
    stage.grow_claim("b", 200)
    assert 100 == stage.free_gib()
    assert not stage.growths.clear()
    assert ({}, 200) == (stage.grown(), stage.free_gib())
    stage.ask("a", 200)
    assert stage.growths.clear()
    assert ({}, 200) == (stage.grown(), stage.free_gib())


# The end of a hold


def test_a_hold_is_looked_at_soon_and_ends_a_minute_after_its_first_review() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.ask("a", 200)
    assert not stage.look(name)  # it is not due
    (held,) = stage.growths.held()
    assert stage.clock.now() + STORE_SECONDS == held.until

    stage.clock.advance(STORE_SECONDS)
    stage.ask("a", 300)  # whoever asks again, for whatever, changes nothing of that
    assert not stage.look(name)
    (held,) = stage.growths.held()
    assert (held.since + HOLD_SECONDS, 300 * GIB) == (held.until, held.size_bytes)

    stage.clock.advance(HOLD_SECONDS - STORE_SECONDS - 1)
    assert not stage.look(name)
    assert 100 == stage.free_gib()
    stage.clock.advance(1)
    assert stage.look(name)
    assert ({}, 300) == (stage.grown(), stage.free_gib())


def end_in_vain(stage: Growing, name: str) -> None:
    stage.clock.advance(HOLD_SECONDS)
    assert stage.look(name)


def test_after_a_hold_in_vain_a_volume_may_grow_and_nothing_is_held_for_it() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.ask("a", 200)
    end_in_vain(stage, name)
    assert GrowthVerdict.ADMITTED is stage.ask("a", 300).verdict
    assert {} == stage.grown()
    assert [(ClaimEventKind.GROWTH_NOT_HELD, 300, 0)] == claim_events(stage)
    assert GrowthVerdict.REFUSED is stage.ask("a", 401).verdict

    stage.clock.advance(UNSTORED_SECONDS - 1)
    stage.ask("a", 300)
    assert {} == stage.grown()
    stage.clock.advance(1)
    stage.ask("a", 300)
    assert {"a": ("HELD", 200)} == stage.grown()


def test_other_volumes_are_held_as_ever() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.add("b", 100)
    stage.ask("a", 200)
    end_in_vain(stage, name)
    stage.ask("b", 200)
    assert {"b": ("HELD", 100)} == stage.grown()


def test_each_hold_in_vain_is_remembered_as_long() -> None:
    stage = Growing()
    first, second = stage.add("a", 100), stage.add("b", 100)
    stage.ask("a", 110)
    end_in_vain(stage, first)
    stage.ask("b", 110)
    end_in_vain(stage, second)
    stage.clock.advance(UNSTORED_SECONDS - HOLD_SECONDS)
    stage.ask("a", 110)
    stage.ask("b", 110)
    assert {"a": ("HELD", 10)} == stage.grown()


@pytest.mark.parametrize(("stored_gib", "is_held"), [(200, True), (199, False)])
def test_what_is_stored_after_all_was_meant(stored_gib: int, is_held: bool) -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.ask("a", 200)
    end_in_vain(stage, name)
    stage.grow_claim("a", stored_gib)
    assert "ASKED" == stage.grown()["a"][0]
    stage.ask("a", 300)
    assert ("HELD" if is_held else "ASKED") == stage.grown()["a"][0]


def test_a_new_term_begins_without_what_was_remembered() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.ask("a", 200)
    end_in_vain(stage, name)
    stage.growths.clear()
    stage.ask("a", 200)
    assert {"a": ("HELD", 100)} == stage.grown()


# What the cluster asks for and cannot have


def test_what_no_disk_could_ever_have_takes_no_room_and_its_owner_is_told() -> None:
    stage = Growing()
    stage.add("a", 100)
    stage.grow_claim("a", 401)
    assert {} == stage.grown()
    assert [(ClaimEventKind.GROWS_TOO_FAR, 401, 400)] == claim_events(stage)


def test_copies_that_share_a_disk_need_it_several_times() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.place(name, "n1", 100, number=2)
    stage.grow_claim("a", 201)
    assert {} == stage.grown()
    assert [(ClaimEventKind.GROWS_TOO_FAR, 201, 200)] == claim_events(stage)
    stage.grow_claim("a", 200)
    assert {"a": ("ASKED", 200)} == stage.grown()


def test_a_volume_that_was_made_larger_than_its_disk_takes_no_room_either() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.grow_volume(name, 401)
    assert ({}, 300) == (stage.grown(), stage.free_gib())
    stage.grow_volume(name, 400)
    assert ({"a": ("ASKED", 300)}, 0) == (stage.grown(), stage.free_gib())


def test_what_has_no_room_now_takes_none_until_there_is_some() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    full = replace(disk("d1", 400), scheduled_bytes=300 * GIB, scheduled_replicas={f"{name}-r-1": 100 * GIB})
    stage.put_node(node("n1", full))
    stage.grow_claim("a", 201)
    assert {} == stage.grown()
    assert [(ClaimEventKind.GROWS_LATER, 201, 200)] == claim_events(stage)
    stage.put_node(node("n1", replace(full, scheduled_bytes=299 * GIB)))
    assert {"a": ("ASKED", 101)} == stage.grown()


def test_on_a_disk_beyond_its_limit_the_copys_own_size_is_the_most() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.put_node(node("n1", replace(disk("d1", 400), scheduled_bytes=450 * GIB)))
    stage.grow_claim("a", 101)
    assert [(ClaimEventKind.GROWS_LATER, 101, 100)] == claim_events(stage)
    stage.grow_volume(name, 100)
    assert {} == stage.grown()


def test_what_longhorns_own_figure_has_room_for_counts_whatever_else_lies_there() -> None:
    """Longhorn goes by its figure, which tells of another volume's copy late."""
    stage = Growing()
    stage.add("b", 300)
    stage.add("a", 50)
    stage.grow_claim("a", 200)
    assert ({"a": ("ASKED", 150)}, -100) == (stage.grown(), stage.free_gib())


def test_what_was_admitted_keeps_its_room_whatever_comes_there_afterwards() -> None:
    stage = Growing()
    stage.add("a", 100)
    stage.ask("a", 300)
    stage.put_node(node("n1", replace(disk("d1", 400), scheduled_bytes=350 * GIB)))
    stage.grow_claim("a", 300)
    assert {"a": ("ASKED", 200)} == stage.grown()
    stage.grow_claim("a", 301)  # that was not
    assert {} == stage.grown()


def test_what_never_grows_takes_no_room() -> None:
    stage = Growing()
    name = stage.add("a", 100)
    stage.grow_volume(name, 100, needs=DiskNeeds(data_engine="v2"), wanted_frontend="ublk")
    stage.grow_claim("a", 200)
    assert {} == stage.grown()
    assert [(ClaimEventKind.NEVER_GROWS, 200, 100)] == claim_events(stage)
    assert 1 == stage.journal.counters["claims_grows-too-far"]


def test_what_its_file_system_does_not_take_takes_no_room_either() -> None:
    stage = Growing(d1=40 * 1024)
    stage.add("a", 100)
    stage.grow_claim("a", 16 * 1024)
    assert {} == stage.grown()
    stage.grow_claim("a", 16 * 1024 - 1)
    assert ["a"] == list(stage.grown())


# How large the cluster wants it


def by_hand(stage: Growing, *, claim_gib: float, pv_gib: float, volume_gib: float) -> None:
    """A volume and a PV that somebody made, bound to the claim `hand`, with its copy on n1."""
    facts = claim("hand", claim_gib, "", volume_name="pv")
    stage.put_pv("pv", facts, pv_gib, handle="lhv")
    stage.grow_volume("lhv", volume_gib, locality="disabled")
    stage.place("lhv", "n1", volume_gib)
    stage.put_claim(facts)


def test_a_volume_that_is_smaller_than_its_pv_says_does_not_grow_for_that() -> None:
    stage = Growing()
    by_hand(stage, claim_gib=50, pv_gib=50, volume_gib=10)
    assert {} == stage.grown()
    stage.grow_claim("hand", 60)
    assert {"hand": ("ASKED", 50)} == stage.grown()


def restored(stage: Growing, *, claim_gib: float, backup_gib: float) -> str:
    """A claim for more than its backup has: its PV is as large as it asks for, its volume as the backup."""
    name = stage.add("a", backup_gib, from_backup="s3://b@r/?backup=one&volume=v")
    stage.put_pv(name, stage.claims["a"], claim_gib)
    stage.grow_claim("a", claim_gib)
    return name


def test_a_claim_that_is_larger_than_its_backup_does_not_grow_for_that() -> None:
    stage = Growing()
    restored(stage, claim_gib=100, backup_gib=40)
    assert ({}, set(), 360) == (stage.grown(), stage.world.growing, stage.free_gib())
    assert [] == claim_events(stage)


def test_a_claim_that_asks_for_more_than_it_was_restored_with_grows_from_its_backups_size() -> None:
    stage = Growing()
    name = restored(stage, claim_gib=100, backup_gib=40)
    assert GrowthVerdict.ADMITTED is stage.ask("a", 150).verdict
    assert {"a": ("HELD", 110)} == stage.grown()
    stage.grow_claim("a", 150)
    assert {"a": ("ASKED", 110)} == stage.grown()

    stage.grow_volume(name, 150, from_backup="s3://b@r/?backup=one&volume=v")
    stage.place(name, "n1", 150)
    stage.put_pv(name, stage.claims["a"], 150)
    stage.settle(name)
    assert ({}, 250) == (stage.grown(), stage.free_gib())
