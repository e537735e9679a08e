"""Renewal on virtual time: what is done when, and that nobody is refused on the way."""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter

import pytest

from certs import rotation
from certs.authority import read_authorities
from certs.rotation import Action, Chain, Evidence, RotationPolicy, bring_up_to_date, next_step
from controller.errors import ConfigError
from tests.unit.certs.chains import HOUR, LEAFS, NOW, POLICY, SUBJECT, coming_of, fresh, signer_of, trusts, up_to_date


def actions(chain: Chain, now: datetime) -> list[str]:
    _, steps = bring_up_to_date(chain, LEAFS, POLICY, now, SUBJECT)
    return [f"{step.action.name} {step.name}".strip() for step in steps if step.action is not Action.RETIRE]


def test_from_nothing_an_authority_and_all_leaves_are_made() -> None:
    assert ["MAKE", "SIGN server", "SIGN client"] == actions(Chain(), NOW)


def test_when_all_is_well_nothing_is_done() -> None:
    chain = fresh()
    same, steps = bring_up_to_date(chain, LEAFS, POLICY, NOW + 12 * HOUR, SUBJECT)
    assert (chain, []) == (same, list(steps))
    assert same is chain


def test_a_leaf_is_renewed_before_its_end_and_not_earlier() -> None:
    chain = fresh()
    due = NOW + 13 * HOUR  # 20 of life less 7
    assert [] == actions(chain, due - timedelta(seconds=1))
    assert ["SIGN server", "SIGN client"] == actions(chain, due)


@pytest.mark.parametrize("late", [20 * HOUR, 21 * HOUR, 70 * HOUR])
def test_a_leaf_that_has_ended_is_renewed(late: timedelta) -> None:
    chain = up_to_date(fresh(), NOW + late)
    assert trusts(chain.bundle, chain.leaves["server"].certificate, NOW + late)


def test_the_next_authority_is_known_before_it_signs_and_the_old_one_after() -> None:
    chain = up_to_date(fresh(), NOW + 75 * HOUR)
    old = signer_of(chain)
    begins = NOW + 76 * HOUR
    assert actions(chain, begins)[0] == "PREPARE"

    chain = up_to_date(chain, begins)
    assert 2 == len(read_authorities(chain.bundle, what="bundle"))
    assert old is chain.signer
    chain = up_to_date(chain, begins + 6 * HOUR - timedelta(seconds=1))
    assert old is chain.signer
    chain = up_to_date(chain, begins + 6 * HOUR)
    assert old is not chain.signer
    assert (old,) == chain.previous
    chain = up_to_date(chain, begins + 12 * HOUR - timedelta(seconds=1))
    assert 2 == len(read_authorities(chain.bundle, what="bundle"))
    chain = up_to_date(chain, begins + 12 * HOUR)
    assert 1 == len(read_authorities(chain.bundle, what="bundle"))


def test_a_pinned_authority_is_trusted_to_its_end() -> None:
    policy = replace(POLICY, settle=None)
    chain = up_to_date(up_to_date(fresh(), NOW + 76 * HOUR, policy), NOW + 82 * HOUR, policy)
    assert 1 == len(chain.previous)
    assert 1 == len(up_to_date(chain, NOW + 99 * HOUR, policy).previous)
    assert 0 == len(up_to_date(chain, NOW + 101 * HOUR, policy).previous)


def test_an_authority_whose_key_is_lost_goes_out_of_use_without_anybody_being_refused() -> None:
    chain = fresh()
    lost = replace(chain, signer=replace(signer_of(chain), key=b""))
    soon = NOW + HOUR
    assert ["PREPARE"] == actions(lost, soon)
    waiting = up_to_date(lost, soon)
    assert chain.leaves == waiting.leaves
    assert trusts(waiting.bundle, chain.leaves["server"].certificate, soon)
    assert ["PROMOTE", "SIGN server", "SIGN client"] == actions(waiting, soon + 6 * HOUR)


def test_an_authority_without_a_key_hands_over_at_once_when_a_leaf_is_needed() -> None:
    chain = fresh()
    lost = replace(chain, signer=replace(signer_of(chain), key=b""), leaves={"server": chain.leaves["server"]})
    assert ["PREPARE", "PROMOTE", "SIGN server", "SIGN client"] == actions(lost, NOW + HOUR)
    after = up_to_date(lost, NOW + HOUR)
    assert trusts(after.bundle, chain.leaves["server"].certificate, NOW + HOUR)


def test_a_next_authority_without_its_key_is_made_anew() -> None:
    chain = up_to_date(fresh(), NOW + 76 * HOUR)
    broken = replace(chain, coming=replace(coming_of(chain), key=b""))
    assert ["DROP", "PREPARE"] == actions(broken, NOW + 77 * HOUR)


def test_after_a_long_sleep_all_is_made_anew() -> None:
    chain = up_to_date(fresh(), NOW + 1_000 * HOUR)
    assert trusts(chain.bundle, chain.leaves["server"].certificate, NOW + 1_000 * HOUR)
    assert 1 == len(chain.authorities)


def test_a_leaf_that_lacks_a_name_is_renewed_and_one_with_more_is_not() -> None:
    chain = fresh()
    server = LEAFS["server"]
    more = {**LEAFS, "server": replace(server, names=(*server.names, "10.96.0.8"))}
    less = {**LEAFS, "server": replace(server, names=())}
    step = next_step(chain, more, POLICY, NOW)
    assert step is not None
    assert (Action.SIGN, "server") == (step.action, step.name)
    assert "10.96.0.8" in step.why
    assert next_step(chain, less, POLICY, NOW) is None


def test_a_clock_that_is_wrong_changes_nothing() -> None:
    chain = fresh()
    for ahead in (timedelta(minutes=5), timedelta(minutes=-5), -48 * HOUR):
        assert [] == actions(chain, NOW + ahead)


@pytest.mark.parametrize(
    "policy",
    [
        replace(POLICY, overlap=18 * HOUR),
        replace(POLICY, settle=18 * HOUR),
        replace(POLICY, ca_life=24 * HOUR),
        replace(POLICY, settle=14 * HOUR, ca_renew_before=30 * HOUR),
    ],
)
def test_a_policy_that_leaves_a_gap_is_refused(policy: RotationPolicy) -> None:
    with pytest.raises(ConfigError):
        policy.checked(LEAFS.values())


def test_the_products_policies_leave_none() -> None:
    rotation.PINNED.checked()
    rotation.ROTATING.checked()
    POLICY.checked(LEAFS.values())
    replace(POLICY, settle=None, overlap=23 * HOUR).checked()


def refusals(policy: RotationPolicy, lag: timedelta, seed: int) -> Iterator[str]:
    """Who is refused while a chain goes on for three authorities.

    Each client and each server sees what was published up to `lag` ago, each another moment of it.
    """
    rng = random.Random(seed)
    chain, now, published = Chain(), NOW, list[tuple[datetime, Chain]]()

    def seen(moment: datetime) -> Chain:
        """What somebody has who sees it late."""
        return published[max(bisect.bisect_right(published, moment, key=itemgetter(0)) - 1, 0)][1]

    signers: set[str] = set()
    while len(signers) <= 3:
        chain = up_to_date(chain, now, policy)
        published.append((now, chain))
        signers.add(signer_of(chain).facts.fingerprint)
        for moment in (now, now + timedelta(minutes=rng.uniform(0, 59))):
            client, server = (seen(moment - rng.choice((0, rng.random(), 1)) * lag) for _ in range(2))
            if not trusts(client.bundle, server.leaves["server"].certificate, moment):
                yield f"server refused {moment - NOW}"
            if not trusts(server.bundle, client.leaves["client"].certificate, moment, as_client=True):
                yield f"client refused {moment - NOW}"
        now += timedelta(minutes=rng.uniform(1, 60))
        assert now < NOW + 1_000 * HOUR


@pytest.mark.parametrize("seed", range(3))
def test_over_many_rotations_nobody_who_sees_them_late_is_refused(seed: int) -> None:
    assert [] == list(refusals(POLICY, 5 * HOUR, seed))


@pytest.mark.parametrize(
    ("policy", "lag"),
    [
        pytest.param(replace(POLICY, overlap=timedelta(0)), 5 * HOUR, id="no overlap"),
        pytest.param(replace(POLICY, settle=timedelta(0)), 5 * HOUR, id="nothing settles"),
        pytest.param(POLICY, 8 * HOUR, id="later than that"),
    ],
)
def test_without_the_distances_somebody_is_refused(policy: RotationPolicy, lag: timedelta) -> None:
    assert any(next(refusals(policy, lag, seed), "") for seed in range(3))


NOTHING_SEEN = Evidence()


def rotating(now: datetime, chain: Chain, evidence: Evidence) -> Chain:
    return bring_up_to_date(chain, LEAFS, POLICY, now, SUBJECT, evidence)[0]


@pytest.fixture
def coming() -> Chain:
    """A chain whose next authority nobody was seen to know."""
    return rotating(NOW + 76 * HOUR, fresh(), NOTHING_SEEN)


def knows_next(chain: Chain) -> Evidence:
    return Evidence(trusted=frozenset({coming_of(chain).facts.fingerprint}))


def test_the_next_authority_waits_until_it_is_seen_to_be_trusted_as_well(coming: Chain) -> None:
    late, seen = NOW + 90 * HOUR, knows_next(coming)
    assert coming.signer is rotating(late, coming, NOTHING_SEEN).signer
    assert coming.signer is rotating(NOW + 82 * HOUR - timedelta(seconds=1), coming, seen).signer
    assert coming.coming is rotating(late, coming, seen).signer


def test_an_old_authority_stays_until_the_new_leaves_are_seen_in_use_as_well(coming: Chain) -> None:
    turned, late = NOW + 82 * HOUR, NOW + 89 * HOUR
    chain = rotating(turned, coming, knows_next(coming))
    assert 1 == len(chain.previous)
    fingerprints = [chain.leaves[name].facts.fingerprint for name in LEAFS]
    for used in ([], fingerprints[:1], fingerprints[1:]):
        assert 1 == len(rotating(late, chain, Evidence(used=frozenset(used))).previous)
    seen = Evidence(used=frozenset(fingerprints))
    assert 1 == len(rotating(turned + 6 * HOUR - timedelta(seconds=1), chain, seen).previous)
    assert () == rotating(late, chain, seen).previous


def test_an_authority_that_ends_is_replaced_though_nobody_was_seen_to_know_the_next(coming: Chain) -> None:
    after = rotating(NOW + 101 * HOUR, coming, NOTHING_SEEN)
    assert coming.coming is after.signer
    assert trusts(after.bundle, after.leaves["server"].certificate, NOW + 101 * HOUR)
