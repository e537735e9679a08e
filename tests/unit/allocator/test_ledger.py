"""The transition table, and sums that cannot drift."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.allocator.promises.ledger import NEXT, Ledger
from controller.allocator.promises.promise import Against, Kind, OneOf, Places, Promise, Roams, State, Verb
from controller.errors import BugError
from tests.fakes.builders import promise

PUTS = {Verb.HOLD: State.HELD, Verb.ASSUME: State.ASSUMED}
NODES = ("n", "m")


def entry(state: State, size: int = 1) -> Promise:
    return promise("v", "n", "p", size=size, state=state)


def ledger_in(state: State) -> Ledger:
    ledger = Ledger()
    if state is not State.ABSENT:
        ledger.put(Verb.HOLD if state is State.HELD else Verb.ASSUME, entry(state))
    return ledger


@pytest.mark.parametrize(("state", "verb"), list(product(State, Verb)))
def test_every_pair_moves_as_the_table_says_or_raises_before_anything_changes(state: State, verb: Verb) -> None:
    ledger = ledger_in(state)
    before = list(ledger.promises())

    def move() -> None:
        if verb in PUTS:
            ledger.put(verb, entry(PUTS[verb]))
        else:
            ledger.drop(verb, "v", "p")

    if (state, verb) in NEXT:
        move()
        found = ledger.get("v", "p")
        assert NEXT[state, verb] is (State.ABSENT if found is None else found.state)
    else:
        with pytest.raises(BugError):
            move()
        assert before == list(ledger.promises())


def test_what_binds_is_kept_up_to_date_as_promises_come_change_and_go() -> None:
    ledger = Ledger()
    ledger.put(Verb.HOLD, entry(State.HELD))
    assert ledger is ledger.binding
    ledger.keep_binding(lambda one: one.size_bytes > 1)
    assert [] == list(ledger.binding.promises())
    ledger.put(Verb.ASSUME, entry(State.ASSUMED, size=2))
    assert [2] == [one.size_bytes for one in ledger.binding.promises()]
    ledger.put(Verb.HOLD, entry(State.HELD, size=1))
    assert [] == list(ledger.binding.promises())
    ledger.put(Verb.HOLD, entry(State.HELD, size=3))
    ledger.drop(Verb.EXPIRE, "v", "p")
    assert [] == list(ledger.binding.promises())
    is_binding = False
    ledger.keep_binding(lambda _one: is_binding)
    ledger.put(Verb.HOLD, entry(State.HELD))
    is_binding = True
    ledger.bind(entry(State.HELD))
    assert [entry(State.HELD)] == list(ledger.binding.promises())
    ledger.keep_binding(None)
    assert ledger is ledger.binding


def test_a_promise_whose_state_does_not_fit_its_verb_is_a_bug() -> None:
    with pytest.raises(BugError):
        Ledger().put(Verb.HOLD, entry(State.ASSUMED))


places = st.one_of(
    st.frozensets(st.sampled_from(NODES), min_size=1).map(OneOf),
    st.just(OneOf(None)),
    st.builds(Roams, copies=st.integers(1, 3)),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["HOLD", "ASSUME", "FORGET"]),
        st.sampled_from("vw"),
        places,
        st.sampled_from("pq"),
        st.integers(1, 9),
        st.booleans(),
    )
)


@given(steps)
def test_sums_and_indices_always_agree_with_the_promises(
    moves: list[tuple[str, str, Places, str, int, bool]],
) -> None:
    ledger = Ledger()
    for name, volume, where, claimant, size, is_limited in moves:
        verb = Verb[name]
        if verb is Verb.FORGET:
            ledger.drop(verb, volume, claimant)
        else:
            made = promise(volume, "n", claimant, size=size, state=PUTS[verb])
            made = replace(made, places=where, against=Against(0) if is_limited else None)
            ledger.put(verb, made)
        found = list(ledger.promises())
        firm = [one for one in found if one.against is None]
        roaming = {one.volume for one in firm if not one.nodes}
        for place in NODES:
            here = [one for one in firm if place in one.nodes]
            largest = {
                one.volume: max(other.size_bytes for other in here if other.volume == one.volume) for one in here
            }
            assert sum(largest.values()) == ledger.pending_bytes(place)
            bound = {one: most for one, most in largest.items() if one not in roaming}
            assert bound == {item.volume: item.size_bytes for item in ledger.bound_items(place).items}
            assert bool(largest) is (place in ledger.nodes())
            everything = {(one.volume, one.claimant) for one in found if place in one.nodes}
            assert everything == {(one.volume, one.claimant) for one in ledger.on_node(place)}
        assert roaming == {entry.item.volume for entry in ledger.roaming()}
        assert [one for one in found if one.against] == sorted(ledger.limited(), key=found.index)
        for who in "pq":
            assert {one.volume for one in found if one.claimant == who} == {
                one.volume for one in ledger.of_claimant(who)
            }
        for which in "vw":
            assert {one.claimant for one in found if one.volume == which} == {
                one.claimant for one in ledger.of_volume(which)
            }


def sizes_on(ledger: Ledger) -> tuple[int, ...]:
    return tuple(item.size_bytes for item in ledger.bound_items("n").items)


def test_claimants_of_one_volume_count_once_at_the_largest_size() -> None:
    ledger = Ledger()
    for claimant, size in (("p", 3), ("q", 7)):
        ledger.put(Verb.HOLD, promise("v", "n", claimant, size=size))
    assert (7, (7,)) == (ledger.pending_bytes("n"), sizes_on(ledger))

    ledger.drop(Verb.FORGET, "v", "q")
    assert (3, (3,)) == (ledger.pending_bytes("n"), sizes_on(ledger))


def test_a_volume_that_may_land_anywhere_by_one_source_is_not_counted_on_a_node_by_another() -> None:
    ledger = Ledger()
    ledger.put(Verb.HOLD, promise("v", "n", "p", size=3))
    ledger.put(Verb.ASSUME, promise("v", "*", "volume:", size=3, state=State.ASSUMED))
    assert () == ledger.bound_items("n").items
    assert [3] == [entry.item.size_bytes for entry in ledger.roaming()]

    ledger.drop(Verb.FORGET, "v", "volume:")
    assert (3,) == sizes_on(ledger)


def test_a_move_that_the_former_leader_may_have_offered_anywhere_counts_once() -> None:
    ledger = Ledger()
    ledger.put(Verb.HOLD, replace(promise("v", "n", "p", size=3), kind=Kind.MOVE, places=OneOf(None)))
    ledger.put(Verb.ASSUME, replace(promise("v", "n", "volume:n", size=3, state=State.ASSUMED), kind=Kind.MOVE))

    assert ((), 1) == (ledger.bound_items("n").items, len(ledger.roaming()))


def test_a_move_counts_beside_further_copies_that_roam() -> None:
    ledger = Ledger()
    ledger.put(Verb.ASSUME, promise("v", "*", "volume:", size=3, state=State.ASSUMED))
    ledger.put(Verb.ASSUME, replace(promise("v", "n", "volume:n", size=3, state=State.ASSUMED), kind=Kind.MOVE))

    assert ((3,), 1) == (sizes_on(ledger), len(ledger.roaming()))
