"""The transition table, and sums that cannot drift."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.allocator.promises.ledger import NEXT, Entry, Key, Kind, Ledger, State, Verb
from controller.errors import BugError
from controller.model.longhorn import DEFAULT_NEEDS

PUTS = {Verb.HOLD: State.HELD, Verb.ASSUME: State.ASSUMED}
KEY = Key("v", "n", "p")


def entry(state: State, size: int = 1) -> Entry:
    return Entry(state, Kind.FIRST, size, 0, DEFAULT_NEEDS, 0.0)


def ledger_in(state: State) -> Ledger:
    ledger = Ledger()
    if state is not State.ABSENT:
        ledger.put(Verb.HOLD if state is State.HELD else Verb.ASSUME, KEY, entry(state))
    return ledger


@pytest.mark.parametrize(("state", "verb"), list(product(State, Verb)))
def test_every_pair_moves_as_the_table_says_or_raises_before_anything_changes(state: State, verb: Verb) -> None:
    ledger = ledger_in(state)
    before = list(ledger.entries())

    def move() -> None:
        if verb in PUTS:
            ledger.put(verb, KEY, entry(PUTS[verb]))
        else:
            ledger.drop(verb, KEY)

    if (state, verb) in NEXT:
        move()
        found = ledger.get(KEY)
        assert NEXT[state, verb] is (State.ABSENT if found is None else found.state)
    else:
        with pytest.raises(BugError):
            move()
        assert before == list(ledger.entries())


def test_an_entry_whose_state_does_not_fit_its_verb_is_a_bug() -> None:
    with pytest.raises(BugError):
        Ledger().put(Verb.HOLD, KEY, entry(State.ASSUMED))


steps = st.lists(
    st.tuples(
        st.sampled_from(["HOLD", "ASSUME", "FORGET"]),
        st.sampled_from("vw"),
        st.sampled_from("nm"),
        st.sampled_from("pq"),
        st.integers(1, 9),
    )
)


@given(steps)
def test_sums_and_indices_always_agree_with_the_entries(moves: list[tuple[str, str, str, str, int]]) -> None:
    ledger = Ledger()
    for name, volume, node, claimant, size in moves:
        key, verb = Key(volume, node, claimant), Verb[name]
        if verb is Verb.FORGET:
            ledger.drop(verb, key)
        else:
            ledger.put(verb, key, entry(PUTS[verb], size))
        entries = dict(ledger.entries())
        for place in "nm":
            largest: dict[str, int] = {}
            for found, held in entries.items():
                if found.node == place:
                    largest[found.volume] = max(largest.get(found.volume, 0), held.size_bytes)
            assert sum(largest.values()) == ledger.pending_bytes(place)
            assert largest == {promise.volume: promise.size_bytes for promise in ledger.promises(place)}
            assert bool(largest) is ledger.has_promises(place)
        for who in "pq":
            assert {found for found in entries if found.claimant == who} == {k for k, _ in ledger.of_claimant(who)}
        for which in "vw":
            assert {found for found in entries if found.volume == which} == {k for k, _ in ledger.of_volume(which)}
