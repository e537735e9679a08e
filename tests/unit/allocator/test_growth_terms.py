"""Growth that the former leader admitted may not be stored yet: until it has had time to show, no other is admitted."""

from __future__ import annotations

import pytest

from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import GrowthVerdict
from tests.fakes.builders import disk, replica
from tests.unit.allocator.test_growth import Growing

SOON, LONG = 50, 75  # seconds after the change of leader


def led_anew(*, grown: bool = True) -> Growing:
    """Two volumes of 100 GiB on a disk of 400; the former leader let `a` grow to 300."""
    world = Growing()
    world.add("a", 100)
    world.add("b", 100)
    world.cluster.clock.advance(LONG)
    if grown:
        assert GrowthVerdict.ADMITTED is world.ask("a", 300).verdict
    world.allocator.end_term()
    world.allocator.begin_term()
    return world


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_new_leader_asks_to_try_again_where_growth_may_be_under_way(dry_run: bool) -> None:
    world = led_anew()

    assert "try-again" == world.ask("b", 300, dry_run=dry_run).verdict
    assert {} == world.held()


@pytest.mark.parametrize("grown", [True, False])
def test_it_does_so_for_about_a_minute_and_whether_it_could_know_or_not(grown: bool) -> None:
    world = led_anew(grown=grown)
    world.cluster.clock.advance(SOON)
    assert "try-again" == world.ask("b", 300).verdict

    world.cluster.clock.advance(LONG - SOON)
    assert GrowthVerdict.ADMITTED is world.ask("b", 300).verdict
    assert {"ns/b": ("HELD", 200)} == world.held()


def test_the_growth_that_was_stored_meanwhile_is_counted_from_then_on() -> None:
    world = led_anew()
    world.cluster.clock.advance(1)
    world.grow_claim("a", 300)
    assert {"ns/a": ("ASSUMED", 200)} == world.held()

    world.cluster.clock.advance(LONG)
    assert GrowthVerdict.REFUSED is world.ask("b", 101).verdict


def test_the_volume_whose_growth_was_admitted_is_told_the_same() -> None:
    """Nobody knows by now that it was admitted."""
    world = led_anew()

    assert "try-again" == world.ask("a", 300).verdict


@pytest.mark.parametrize("how", ["claim", "volume"])
def test_what_the_cluster_asks_for_stays_granted(how: str) -> None:
    """Longhorn's API asks again for what the claim has asked for."""
    world = led_anew(grown=False)
    world.grow_claim("a", 200)
    name = world.cluster.claims["a"].volume_name
    outcome = world.ask("a", 200) if how == "claim" else world.ask_volume(name, 200)

    assert GrowthVerdict.ADMITTED is outcome.verdict
    assert {"ns/a": ("ASSUMED", 100)} == world.held()
    assert "try-again" == world.ask("a", 250).verdict


@pytest.mark.parametrize("gib", [50, 100])
def test_growth_that_needs_no_new_bytes_is_admitted(gib: float) -> None:
    world = led_anew()

    assert GrowthVerdict.ADMITTED is world.ask("b", gib).verdict


def test_each_change_of_leader_counts_from_its_own_moment() -> None:
    world = led_anew()
    world.cluster.clock.advance(SOON)
    world.allocator.end_term()
    world.allocator.begin_term()
    world.cluster.clock.advance(SOON)

    assert "try-again" == world.ask("b", 300).verdict


def test_a_volume_with_several_replicas_is_told_to_try_again_as_well() -> None:
    world = Growing()
    world.cluster.add_node("n2", disk("d1", 400))
    name = world.add("a", 100)
    world.allocator.observe_replica(f"{name}-r-2", replica(f"{name}-r-2", name, 100, on="n2"))
    world.allocator.begin_term()

    assert "try-again" == world.ask("a", 200).verdict
    assert {} == world.held()


def test_a_first_leader_admits_growth_at_once() -> None:
    world = Growing()
    world.add("a", 100)
    world.allocator.end_term()
    world.allocator.begin_term(has_predecessor=False)

    assert GrowthVerdict.ADMITTED is world.ask("a", 300).verdict
    assert {"ns/a": ("HELD", 200)} == world.held()


def test_while_the_extender_is_switched_off_growth_is_not_checked_under_a_new_leader_either() -> None:
    world = led_anew()
    world.allocator.set_mode(Mode.BYPASS)

    assert GrowthVerdict.NOT_CHECKED is world.ask("b", 300).verdict


def test_who_leaves_tells_whether_an_expansion_is_under_way_that_nobody_sees() -> None:
    world = Growing()
    world.add("a", 100)
    assert not world.allocator.has_unseen_growth()

    assert GrowthVerdict.ADMITTED is world.ask("a", 300).verdict
    assert world.allocator.has_unseen_growth()
    world.allocator.end_term()
    assert world.allocator.has_unseen_growth()
    world.allocator.begin_term()
    assert world.allocator.has_unseen_growth()  # what the one before has admitted may still come
    world.cluster.clock.advance(LONG)
    assert not world.allocator.has_unseen_growth()
