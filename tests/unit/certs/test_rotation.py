"""Renewal on virtual time: what is done when, and that nobody is refused on the way."""

from __future__ import annotations

import bisect
import random
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter

import pytest

from certs import rotation
from certs.authority import read_authorities
from certs.rotation import Action, Chain, Evidence, RotationPolicy, bring_up_to_date, next_step
from controller.errors import ConfigError
from tests.unit.certs.chains import HOUR, LEAFS, NOW, POLICY, SUBJECT, fresh, trusts, up_to_date


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
    old = chain.signer
    assert old is not None
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
    assert chain.signer is not None
    lost = replace(chain, signer=replace(chain.signer, key=b""))
    soon = NOW + HOUR
    assert ["PREPARE"] == actions(lost, soon)
    waiting = up_to_date(lost, soon)
    assert chain.leaves == waiting.leaves
    assert trusts(waiting.bundle, chain.leaves["server"].certificate, soon)
    assert ["PROMOTE", "SIGN server", "SIGN client"] == actions(waiting, soon + 6 * HOUR)


def test_an_authority_without_a_key_hands_over_at_once_when_a_leaf_is_needed() -> None:
    chain = fresh()
    assert chain.signer is not None
    lost = replace(chain, signer=replace(chain.signer, key=b""), leaves={"server": chain.leaves["server"]})
    assert ["PREPARE", "PROMOTE", "SIGN server", "SIGN client"] == actions(lost, NOW + HOUR)
    after = up_to_date(lost, NOW + HOUR)
    assert trusts(after.bundle, chain.leaves["server"].certificate, NOW + HOUR)


def test_a_next_authority_without_its_key_is_made_anew() -> None:
    chain = up_to_date(fresh(), NOW + 76 * HOUR)
    assert chain.coming is not None
    broken = replace(chain, coming=replace(chain.coming, key=b""))
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


@pytest.mark.parametrize("behind", [timedelta(minutes=5), timedelta(minutes=-5)])
def test_a_clock_that_is_five_minutes_off_changes_nothing(behind: timedelta) -> None:
    chain = fresh()
    assert [] == actions(chain, NOW - behind)
    assert trusts(chain.bundle, chain.leaves["server"].certificate, NOW - behind)


def test_a_clock_far_back_neither_fails_nor_throws_the_authority_away() -> None:
    chain = fresh()
    assert [] == actions(chain, NOW - 48 * HOUR)


@pytest.mark.parametrize("interrupted", range(1, 7))
def test_a_renewal_that_is_interrupted_anywhere_is_finished_by_the_next(interrupted: int) -> None:
    chain, now = up_to_date(fresh(), NOW + 76 * HOUR), NOW + 82 * HOUR
    for _ in range(interrupted):
        if (step := next_step(chain, LEAFS, POLICY, now)) is not None:
            chain = rotation.carry_out(chain, step, LEAFS, POLICY, now, SUBJECT)
    chain = up_to_date(chain, now)
    assert next_step(chain, LEAFS, POLICY, now) is None
    assert trusts(chain.bundle, chain.leaves["server"].certificate, now)
    assert 1 == len(chain.previous)


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


def refusals(policy: RotationPolicy, lag: timedelta, seed: int) -> tuple[list[str], int, int]:
    """Who was refused while chains went on for 5 authorities, and how many leaves and authorities there were.

    Each client and each server sees what was published up to `lag` ago, each another moment of it.
    """
    rng = random.Random(seed)
    chain, now, published = Chain(), NOW, list[tuple[datetime, Chain]]()

    def seen(moment: datetime) -> Chain:
        """What somebody has who sees it late."""
        return published[max(bisect.bisect_right(published, moment, key=itemgetter(0)) - 1, 0)][1]

    leaves: set[str] = set()
    signers: set[str] = set()
    found: list[str] = []
    while len(signers) <= 5 or len(leaves) <= 20:
        chain = up_to_date(chain, now, policy)
        published.append((now, chain))
        assert chain.signer is not None
        leaves.add(chain.leaves["server"].facts.fingerprint)
        signers.add(chain.signer.facts.fingerprint)
        for moment in (now, now + timedelta(minutes=rng.uniform(0, 29))):
            client, server = (seen(moment - rng.choice((0, rng.random(), 1)) * lag) for _ in range(2))
            if not trusts(client.bundle, server.leaves["server"].certificate, moment):
                found.append(f"server refused {moment - NOW}")
            if not trusts(server.bundle, client.leaves["client"].certificate, moment, as_client=True):
                found.append(f"client refused {moment - NOW}")
        now += timedelta(minutes=rng.uniform(1, 30))
        assert now < NOW + 2_000 * HOUR
    return found, len(leaves), len(signers)


@pytest.mark.parametrize("seed", range(3))
def test_over_many_rotations_nobody_who_sees_them_late_is_refused(seed: int) -> None:
    found, leaves, signers = refusals(POLICY, 5 * HOUR, seed)
    assert [] == found
    assert leaves > 20
    assert signers > 5


@pytest.mark.parametrize(
    ("policy", "lag"),
    [
        (replace(POLICY, overlap=timedelta(0)), 5 * HOUR),
        (replace(POLICY, settle=timedelta(0)), 5 * HOUR),
        (POLICY, 8 * HOUR),
    ],
    ids=["no overlap", "nothing settles", "later than that"],
)
def test_without_the_distances_somebody_is_refused(policy: RotationPolicy, lag: timedelta) -> None:
    assert any(refusals(policy, lag, seed)[0] for seed in range(3))


NOTHING_SEEN = Evidence()


def rotating(now: datetime, chain: Chain, evidence: Evidence) -> Chain:
    return bring_up_to_date(chain, LEAFS, POLICY, now, SUBJECT, evidence)[0]


def test_the_next_authority_waits_until_it_is_seen_to_be_trusted_as_well() -> None:
    chain = rotating(NOW + 76 * HOUR, fresh(), NOTHING_SEEN)
    assert chain.coming is not None
    late = NOW + 90 * HOUR
    waiting = rotating(late, chain, NOTHING_SEEN)
    assert chain.signer is waiting.signer
    seen = Evidence(trusted=frozenset({chain.coming.facts.fingerprint}))
    assert chain.signer is rotating(NOW + 82 * HOUR - timedelta(seconds=1), chain, seen).signer
    assert chain.coming is rotating(late, chain, seen).signer


def test_an_old_authority_stays_until_the_new_leaves_are_seen_in_use_as_well() -> None:
    chain = rotating(NOW + 76 * HOUR, fresh(), NOTHING_SEEN)
    assert chain.coming is not None
    turned = NOW + 82 * HOUR
    chain = rotating(turned, chain, Evidence(trusted=frozenset({chain.coming.facts.fingerprint})))
    assert 1 == len(chain.previous)
    fingerprints = [chain.leaves[name].facts.fingerprint for name in LEAFS]
    late = turned + 7 * HOUR
    for used in ([], fingerprints[:1], fingerprints[1:]):
        assert 1 == len(rotating(late, chain, Evidence(used=frozenset(used))).previous)
    seen = Evidence(used=frozenset(fingerprints))
    assert 1 == len(rotating(turned + 6 * HOUR - timedelta(seconds=1), chain, seen).previous)
    assert () == rotating(late, chain, seen).previous


def test_an_authority_that_ends_is_replaced_though_nobody_was_seen_to_know_the_next() -> None:
    chain = rotating(NOW + 76 * HOUR, fresh(), NOTHING_SEEN)
    after = rotating(NOW + 101 * HOUR, chain, NOTHING_SEEN)
    assert chain.coming is after.signer
    assert trusts(after.bundle, after.leaves["server"].certificate, NOW + 101 * HOUR)
