"""Whom to trust and which leaf to show while others change an authority; by rules alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import LeafSpec, Pair, bundle_of, make_authority, read_authorities, sign
from certs.rotation import DAY
from certs.trust import MOST_FORMER, Shown, Trust

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTLE = 100.0


def authority(life: timedelta = 300 * DAY) -> Pair:
    return make_authority("ca", life, NOW)


def trusted(trust: Trust) -> set[str]:
    return {pair.facts.fingerprint for pair in read_authorities(trust.bundle, what="x")} if trust.bundle else set()


def fingerprints(*pairs: Pair) -> set[str]:
    return {pair.facts.fingerprint for pair in pairs}


OLD, NEW, STRANGE = authority(), authority(), authority()
ALL_OLD, ALL_NEW = ({"a": [one], "b": [one]} for one in (OLD, NEW))


def two_sources() -> Trust:
    trust = Trust(("a", "b"), SETTLE)
    trust.update({"a": [OLD], "b": [OLD]}, 0.0, NOW)
    return trust


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        pytest.param([(1, {"a": [NEW], "c": [STRANGE]})], {OLD, NEW}, id="all that any source names, and no others"),
        pytest.param([(50, {"a": [OLD], "b": [NEW]}), (60, ALL_NEW), (149, {})], {OLD, NEW}, id="while it settles"),
        pytest.param([(50, {"a": [OLD], "b": [NEW]}), (60, ALL_NEW), (150, {})], {NEW}, id="settled, it leaves"),
        pytest.param([(10, ALL_NEW), (90, ALL_OLD), (100, ALL_NEW), (180, {})], {OLD, NEW}, id="settles anew"),
        pytest.param([(10, {"b": [NEW]}), (10_000, {"a": []})], {OLD, NEW}, id="a source that says nothing"),
    ],
)
def test_who_is_no_longer_named_settles_and_leaves(
    updates: list[tuple[float, dict[str, list[Pair]]]], expected: set[Pair]
) -> None:
    trust = two_sources()
    for second, named in updates:
        trust.update(named, second, NOW)
    assert fingerprints(*expected) == trusted(trust)


def test_before_every_source_was_read_nobody_settles() -> None:
    trust = Trust(("a", "b"), SETTLE)
    trust.recall([OLD], 0.0)
    trust.update({"a": [NEW]}, 0.0, NOW)
    trust.update({"a": [NEW]}, 1_000.0, NOW)
    assert fingerprints(OLD, NEW) == trusted(trust)
    trust.update({"b": [NEW]}, 1_001.0, NOW)
    trust.update({}, 1_100.0, NOW)
    assert fingerprints(NEW) == trusted(trust)


def test_one_that_was_and_has_expired_leaves_at_once_but_not_one_that_is_named() -> None:
    short = authority(DAY)
    for is_named in (True, False):
        trust = Trust(("a",), SETTLE)
        trust.update({"a": [short, OLD]}, 0.0, NOW)
        trust.update({"a": [short, OLD] if is_named else [OLD]}, 1.0, NOW + 2 * DAY)
        assert (fingerprints(short, OLD) if is_named else fingerprints(OLD)) == trusted(trust)


def test_a_writer_without_end_fills_nothing_and_the_latest_stay() -> None:
    made = [authority() for _ in range(MOST_FORMER + 5)]
    trust = Trust(("a",), 1e9)
    for second, pair in enumerate(made):
        trust.update({"a": [pair]}, float(second), NOW)
    assert fingerprints(*made[-MOST_FORMER - 1 :]) == trusted(trust)


def test_processes_that_know_the_same_say_the_same() -> None:
    first, second = Trust(("a", "b"), SETTLE), Trust(("b", "a"), SETTLE)
    third = authority()
    first.update({"a": [OLD, third], "b": [NEW]}, 0.0, NOW)
    first.update({"a": [NEW]}, 1.0, NOW)
    second.recall(read_authorities(first.bundle, what="x"), 5.0)
    second.update({"b": [NEW], "a": [NEW]}, 5.0, NOW)
    assert first.bundle == second.bundle
    assert first.bundle.startswith(bundle_of([NEW]))


def test_a_leaf_is_known_through_its_chain() -> None:
    trust = two_sources()
    leaf = sign(NEW, LeafSpec("s", DAY, ("x",)), NOW)
    trust.update({"b": [NEW]}, 10.0, NOW)
    assert not trust.has_known(leaf, 9.0)
    assert trust.has_known(leaf, 10.0)
    of_nobody = sign(authority(), LeafSpec("s", DAY, ("x",)), NOW)
    chained = Pair(of_nobody.certificate + leaf.certificate, of_nobody.key, of_nobody.facts)
    assert not trust.has_known(of_nobody, 10.0)
    assert trust.has_known(chained, 10.0)


def test_the_leaf_before_is_shown_until_the_next_is_known_or_patience_ends() -> None:
    before, after, third = (sign(OLD, LeafSpec("s", DAY, ("x",)), NOW) for _ in range(3))
    shown = Shown(100.0)
    assert before is shown.choose(before, False, 0.0, NOW)  # there is nothing else
    assert before is shown.choose(after, False, 10.0, NOW)
    assert after is shown.choose(after, True, 20.0, NOW)
    assert after is shown.choose(before, False, 30.0, NOW)
    assert after is shown.choose(third, False, 129.0, NOW)
    assert third is shown.choose(third, False, 130.0, NOW)


def test_no_leaf_is_shown_beyond_its_end_or_after_it_was_given_up() -> None:
    before, after = (sign(OLD, LeafSpec("s", DAY, ("x",)), NOW) for _ in range(2))
    for is_given_up, moment in ((False, NOW + 2 * DAY), (True, NOW)):
        shown = Shown(1e9)
        shown.choose(before, False, 0.0, NOW)
        if is_given_up:
            shown.forget()
        assert after is shown.choose(after, False, 1.0, moment)


def test_a_leaf_waits_from_when_it_differs_until_it_is_shown() -> None:
    before, after = (sign(OLD, LeafSpec("s", DAY, ("x",)), NOW) for _ in range(2))
    shown, seen = Shown(100.0), list[bool]()
    for leaf, is_known in ((before, False), (after, False), (after, False), (after, True)):
        shown.choose(leaf, is_known, 0.0, NOW)
        seen.append(shown.is_waiting)
    assert [False, True, True, False] == seen
