"""What the benchmarks say of their figures, and how they end."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from bench import (
    admission_rate,
    burst,
    coschedule,
    expansion_lock,
    filter_latency,
    fit_speed,
    handshakes,
    node_bodies,
    pod_review,
    prioritize,
    race_timing,
    wake_up,
)
from bench.verdicts import Verdict, conclude, never

MET, MISSED = Verdict("1.00 x", True, "at most 1.1"), Verdict("1.20 x", False, "at most 1.1")


def unmet(verdicts: list[Verdict]) -> list[str]:
    return [verdict.figure for verdict in verdicts if not verdict.is_met]


@pytest.mark.parametrize(
    ("verdicts", "is_report_only", "expected"),
    [
        ([], False, 0),
        ([MET], False, 0),
        ([MET, MISSED], False, 1),
        ([MET, MISSED], True, 0),
        ([MET, never("promised too much", 1)], True, 1),
        ([MET, never("promised too much", 0)], False, 0),
    ],
)
def test_a_limit_that_is_not_met_is_the_exit_code(verdicts: list[Verdict], is_report_only: bool, expected: int) -> None:
    assert expected == conclude(verdicts, is_report_only=is_report_only, file=io.StringIO())


def test_every_limit_has_a_line() -> None:
    said = io.StringIO()
    conclude([MET, MISSED], is_report_only=False, file=said)

    assert "  met     1.00 x (asked: at most 1.1)\n  NOT MET 1.20 x (asked: at most 1.1)\n" == said.getvalue()


ROUND = wake_up.WakeRound(4, 500, 5, 10, 2.0, 3.0, 4)


@pytest.mark.parametrize(
    ("entry", "violations", "expected"),
    [
        (ROUND, 0, []),
        (replace(ROUND, first_bind_seconds=2.01), 0, ["round 1: first bind after 2.01 s"]),
        (replace(ROUND, patches=6), 0, ["round 1: 6 patches for 4 pods"]),
        (ROUND, 2, ["promised too much: 2 times"]),
    ],
)
def test_a_wake_up_counts_patches_the_first_bind_and_promises(
    entry: wake_up.WakeRound, violations: int, expected: list[str]
) -> None:
    assert expected == unmet(wake_up.verdicts([entry], violations))


def case(
    name: str, *, ours: dict[str, Any], stock: dict[str, Any], others: int = 0, pods: int = 100
) -> burst.BurstCase:
    usual = {"bound": pods, "rate": 10.0, "others_bound": others, "others_rate": 10.0, "others_p99": 0.01}
    runs = [burst.BurstRun(burst.WITH, **(usual | ours)), burst.BurstRun(burst.WITHOUT, **(usual | stock))]
    return burst.BurstCase(name, pods, others, runs)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (case("ample space", ours={"rate": 9.0}, stock={}), []),
        (case("ample space", ours={"rate": 8.9}, stock={}), ["ample space: 0.89 x stock"]),
        (case("nearly full", ours={"rate": 8.0}, stock={}), []),
        (case("nearly full", ours={"rate": 7.9}, stock={}), ["nearly full: 0.79 x stock"]),
        (case("nearly full", ours={"decisions": {"offered": 95, "contended": 5}}, stock={}), []),
        (
            case("nearly full", ours={"decisions": {"offered": 94, "contended": 6}}, stock={}),
            ["nearly full: 6.0% of calls contended"],
        ),
        (case("ample space", ours={"bound": 98}, stock={}), ["ample space: 2 pods never bound with the extender"]),
        (
            case("ample space", ours={"violations": 1}, stock={"violations": 9}),
            ["ample space: promised too much with the extender: 1 times"],
        ),
        (
            case("pods without claims alone", ours={"others_rate": 9.4}, stock={}, others=50, pods=0),
            ["pods without claims alone: 0.94 x stock"],
        ),
    ],
)
def test_a_burst_is_compared_with_stock(found: burst.BurstCase, expected: list[str]) -> None:
    assert expected == unmet(burst.verdicts([found]))


@pytest.mark.parametrize(("p99", "is_met"), [(0.012, True), (0.013, False), (None, False)])
def test_pods_without_claims_wait_little_longer_among_the_others(p99: float | None, is_met: bool) -> None:
    quiet = case("pods without claims alone", ours={}, stock={}, others=50, pods=0)
    among = case("pods without claims among the others", ours={"others_p99": p99}, stock={}, others=50)

    assert is_met is not bool(unmet(burst.verdicts([quiet, among])))


def test_whole_nodes_have_a_limit_up_to_a_thousand() -> None:
    result = {"nodes": 1000, "passed": 100, "ratio": 0.51}

    assert ["1000 nodes, 100 come back: 0.51 of Go's time"] == unmet(node_bodies.verdicts(result))
    assert [] == unmet(node_bodies.verdicts({**result, "ratio": 0.5}))
    assert [] == node_bodies.verdicts({**result, "nodes": 5000})


def test_a_review_and_its_tail_have_limits() -> None:
    def result(ratio: float, tail: float) -> dict[str, Any]:
        ours = {"ratio": 9.0, "apart_from_stalls": {"ratio": tail}}
        bare = {"ratio": 8.0, "apart_from_stalls": {"ratio": 3.5}}
        return {
            "alternating": {"ratio": ratio},
            "steady": {"a_second": 200.0, "mutate-pods": ours, "allow": bare},
        }

    assert [] == unmet(pod_review.verdicts(result(2.0, 3.0)))
    assert 1 == len(unmet(pod_review.verdicts(result(2.1, 3.0))))
    assert 1 == len(unmet(pod_review.verdicts(result(2.0, 3.1))))


def test_calls_beside_half_open_handshakes_are_as_fast_and_all_answered() -> None:
    result = {"p99_ratio": {"all": {"median": 1.5}}, "failures": 0}

    assert [] == unmet(handshakes.verdicts(result))
    assert 1 == len(unmet(handshakes.verdicts({**result, "p99_ratio": {"all": {"median": 1.6}}})))
    assert ["3 calls failed"] == unmet(handshakes.verdicts({**result, "failures": 3}))


def test_the_rate_of_admission_has_a_limit_with_claims_and_no_change_without() -> None:
    none = {"a_second": 100.0, "range": [95.0, 105.0], "ratio": 1.0}

    def result(ours: float) -> dict[str, Any]:
        entry = {"a_second": ours, "range": [ours, ours], "ratio": ours / 100}
        names = ("with claims, full speed", "without claims, full speed")
        offered = ("with claims, offered 100 a second", "without claims, offered 100 a second")
        return {name: {"without": none, "ours": entry} for name in (*names, *offered)}

    assert [] == unmet(admission_rate.verdicts(result(95.0)))
    assert 2 == len(unmet(admission_rate.verdicts(result(92.0))))
    assert 4 == len(unmet(admission_rate.verdicts(result(89.0))))


def test_a_run_that_did_not_bind_every_pod_is_told_beside_the_times_of_the_others() -> None:
    whole, cut = (race_timing.RaceRun(race_timing.OURS, bound, 10.0, 0, 4) for bound in (64, 63))
    stock = race_timing.RaceRun(race_timing.NONE, 64, 10.0, 3, 6)
    found = race_timing.RaceCase("64 pods, ample space", 64, 8, [whole, stock, cut])

    assert ["64 pods, ample space: 1 runs with the extender did not bind all pods (1 pods)"] == unmet(
        race_timing.verdicts([found])
    )
    assert "of the 1 that bound all pods" in found.line(race_timing.OURS)


@pytest.mark.parametrize(("usual", "beside", "expected"), [(1.5, 2.0, 0), (2.1, 2.0, 1), (1.5, 2.1, 1)])
def test_a_filter_call_has_a_limit_beside_an_echo_and_beside_pending_volumes(
    usual: float, beside: float, expected: int
) -> None:
    same = {"nodes": 1000, "max_offers": 100, "full_every": 0, "disks": 4, "holds": 0, "passed": 100}
    quiet = {**same, "roaming": 0, "ratio": usual, "filter": {"median_ms": 1.0}}
    crowded = {**same, "roaming": 1000, "ratio": 9.0, "filter": {"median_ms": beside}}

    assert expected == len(unmet(filter_latency.verdicts([quiet, crowded])))


def test_prioritize_has_a_limit_and_looks_at_every_node() -> None:
    result = {"nodes": 1000, "volumes": 1, "points": [7], "filter_of_echo": 3.0, "prioritize_of_echo": 10.0}

    assert [] == unmet(prioritize.verdicts([result]))
    assert 1 == len(unmet(prioritize.verdicts([{**result, "prioritize_of_echo": 10.1}])))
    assert 1 == len(unmet(prioritize.verdicts([{**result, "points": [0, 7]}])))


def test_co_scheduling_has_a_limit_for_each_kind_of_pod() -> None:
    result = {"nodes": 1000, "strictness": "required", "plain_added_pct": 10.0, "annotated_added_pct": 20.0}

    assert [] == unmet(coschedule.verdicts([result]))
    assert 2 == len(unmet(coschedule.verdicts([{**result, "plain_added_pct": 10.1, "annotated_added_pct": 20.1}])))


def test_judging_nodes_has_a_limit_in_units_and_in_time() -> None:
    (case,) = (case for case in fit_speed.CASES if case.name == "half nearly full, one volume")

    assert [] == unmet(fit_speed.verdicts(case, {"warm_units": 30.0, "warm_ms": 50.0}))
    assert 2 == len(unmet(fit_speed.verdicts(case, {"warm_units": 30.1, "warm_ms": 50.1})))


def test_an_expansion_that_is_not_refused_measures_nothing() -> None:
    size = {"is_refused": True, "median_ms": 100.0, "worst_ms": 320.0}

    assert [] == unmet(expansion_lock.verdicts({"pending": 1, "150Gi": size}))
    assert 2 == len(unmet(expansion_lock.verdicts({"150Gi": {**size, "is_refused": False, "worst_ms": 321.0}})))
