"""What the benchmarks say of their figures, and how they end."""

from __future__ import annotations

import io
from typing import Any

import pytest

from bench import (
    burst,
    expansion_lock,
    prioritize,
    race_timing,
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


def test_a_run_that_did_not_bind_every_pod_is_told_beside_the_times_of_the_others() -> None:
    whole, cut = (race_timing.RaceRun(race_timing.OURS, bound, 10.0, 0, 4) for bound in (64, 63))
    stock = race_timing.RaceRun(race_timing.NONE, 64, 10.0, 3, 6)
    found = race_timing.RaceCase("64 pods, ample space", 64, 8, [whole, stock, cut])

    assert ["64 pods, ample space: 1 runs with the extender did not bind all pods (1 pods)"] == unmet(
        race_timing.verdicts([found])
    )
    assert "of the 1 that bound all pods" in found.line(race_timing.OURS)


def test_prioritize_has_a_limit_and_looks_at_every_node() -> None:
    result = {"nodes": 1000, "volumes": 1, "points": [7], "filter_of_echo": 3.0, "prioritize_of_echo": 10.0}

    assert [] == unmet(prioritize.verdicts([result]))
    assert 1 == len(unmet(prioritize.verdicts([{**result, "prioritize_of_echo": 10.1}])))
    assert 1 == len(unmet(prioritize.verdicts([{**result, "points": [0, 7]}])))


def test_an_expansion_that_is_not_refused_measures_nothing() -> None:
    size = {"is_refused": True, "median_ms": 100.0, "worst_ms": 320.0}

    assert [] == unmet(expansion_lock.verdicts({"pending": 1, "150Gi": size}))
    assert 2 == len(unmet(expansion_lock.verdicts({"150Gi": {**size, "is_refused": False, "worst_ms": 321.0}})))
