"""What the benchmarks read, are made of, and say of their figures."""

from __future__ import annotations

import io
import math
from collections import Counter
from typing import Any

import pytest

from bench import burst, expansion_lock, offers, prioritize, race_timing
from bench.offers import constants, overtaken, parse_sweep
from bench.places_throughput import (
    BURSTS,
    Nodes,
    asked_gib,
    best_packing,
    free_gib,
    packed,
    packing_bound,
    play,
    two,
)
from bench.scrape import Histogram, most_in_window, samples_of
from bench.throughput_world import BurstWorld, NodeScores, PodAsk, PodRun, VolumeAsk, WriteTurns
from bench.verdicts import Verdict, conclude, never

# Pages of Prometheus

PAGE = """
# HELP took_seconds How long.
# TYPE took_seconds histogram
took_seconds_bucket{profile="a",result="scheduled",le="0.1"} 10
took_seconds_bucket{profile="a",result="scheduled",le="0.2"} 30
took_seconds_bucket{profile="a",result="scheduled",le="+Inf"} 40
took_seconds_sum{profile="a",result="scheduled"} 9
took_seconds_count{profile="a",result="scheduled"} 40
took_seconds_bucket{profile="b",result="scheduled",le="0.1"} 7
took_seconds_bucket{profile="b",result="scheduled",le="+Inf"} 7
# HELP answers_total Answers.
# TYPE answers_total counter
answers_total{decision="offered"} 5
answers_total{decision="refused"} 2
"""


def test_counters_are_read_by_label_and_as_gains() -> None:
    before = samples_of('# TYPE answers_total counter\nanswers_total{decision="offered"} 3\n')
    gained = samples_of(PAGE).since(before)
    assert {"offered": 2.0, "refused": 2.0} == gained.by_label("answers_total", "decision")
    assert (4.0, 0.0) == (gained.value("answers_total"), gained.value("unknown_total"))


def test_a_quantile_is_interpolated_in_its_bucket_over_all_series_that_carry_the_labels() -> None:
    found = Histogram.of(samples_of(PAGE), "took_seconds", profile="a", result="scheduled")
    beyond = 0.2  # the last bound that is a number
    assert pytest.approx([0.05, 0.15, beyond]) == [found.quantile(share) for share in (0.125, 0.5, 0.99)]
    assert (40, 47) == (found.count, Histogram.of(samples_of(PAGE), "took_seconds", result="scheduled").count)
    assert Histogram.of(samples_of(PAGE), "took_seconds", profile="c").quantile(0.5) is None


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 0.0),
        ([(0.0, 5.0)], 0.0),
        ([(0.0, 0.0), (4.0, 1.0), (9.0, 2.0), (20.0, 2.5)], 2.0),
        ([(0.0, 0.0), (6.0, 1.0), (12.0, 3.0), (16.0, 4.0)], 3.0),
    ],
)
def test_the_most_in_a_window_is_that_of_the_worst_stretch(samples: list[tuple[float, float]], expected: float) -> None:
    assert expected == most_in_window(samples, 10.0)


# Verdicts

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


def burst_case(name: str, *, pods: int = 100, others: int = 0, **ours: Any) -> burst.BurstCase:
    """`ours`: what differs with the extender."""
    usual: dict[str, Any] = {
        "bound": pods,
        "rate": 10.0,
        "others_bound": others,
        "others_rate": 10.0,
        "others_p99": 0.01,
    }
    runs = [burst.BurstRun(burst.WITH, **(usual | ours)), burst.BurstRun(burst.WITHOUT, **usual, violations=9)]
    return burst.BurstCase(name, pods, others, runs)


ALONE = "pods without claims alone"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (burst_case("ample space", rate=9.0), []),
        (burst_case("ample space", rate=8.9), ["ample space: 0.89 x stock"]),
        (burst_case("nearly full", rate=8.0), []),
        (burst_case("nearly full", rate=7.9), ["nearly full: 0.79 x stock"]),
        (burst_case("nearly full", decisions={"offered": 95, "contended": 5}), []),
        (
            burst_case("nearly full", decisions={"offered": 94, "contended": 6}),
            ["nearly full: 6.0% of calls contended"],
        ),
        (burst_case("ample space", bound=98), ["ample space: 2 pods never bound with the extender"]),
        (burst_case("ample space", violations=1), ["ample space: promised too much with the extender: 1 times"]),
        (burst_case(ALONE, pods=0, others=50, others_rate=9.4), [f"{ALONE}: 0.94 x stock"]),
    ],
)
def test_a_burst_is_compared_with_stock(found: burst.BurstCase, expected: list[str]) -> None:
    assert expected == unmet(burst.verdicts([found]))


@pytest.mark.parametrize(("p99", "is_met"), [(0.012, True), (0.013, False), (None, False)])
def test_pods_without_claims_wait_little_longer_among_the_others(p99: float | None, is_met: bool) -> None:
    among = burst_case("pods without claims among the others", others=50, others_p99=p99)
    assert is_met is not bool(unmet(burst.verdicts([burst_case(ALONE, pods=0, others=50), among])))


def test_a_run_that_did_not_bind_every_pod_is_told_beside_the_times_of_the_others() -> None:
    whole, cut = (race_timing.RaceRun(race_timing.OURS, bound, 10.0, 0, 4) for bound in (64, 63))
    stock = race_timing.RaceRun(race_timing.NONE, 64, 10.0, 3, 6)
    found = race_timing.RaceCase("64 pods, ample space", 64, 8, [whole, stock, cut])
    told = "64 pods, ample space: 1 runs with the extender did not bind all pods (1 pods)"
    assert [told] == unmet(race_timing.verdicts([found]))
    assert "of the 1 that bound all pods" in found.line(race_timing.OURS)


def test_prioritize_has_a_limit_and_looks_at_every_node() -> None:
    result = {"nodes": 1000, "volumes": 1, "points": [7], "filter_of_echo": 3.0, "prioritize_of_echo": 10.0}
    changes: tuple[dict[str, Any], ...] = ({}, {"prioritize_of_echo": 10.1}, {"points": [0, 7]})
    assert [0, 1, 1] == [len(unmet(prioritize.verdicts([result | change]))) for change in changes]


def test_an_expansion_that_is_not_refused_measures_nothing() -> None:
    size = {"is_refused": True, "median_ms": 100.0, "worst_ms": 320.0}
    assert [] == unmet(expansion_lock.verdicts({"pending": 1, "150Gi": size}))
    assert 2 == len(unmet(expansion_lock.verdicts({"150Gi": {**size, "is_refused": False, "worst_ms": 321.0}})))


# The world of the bursts

LOCAL, PAIR = VolumeAsk(50), VolumeAsk(30, 2, "disabled")


@pytest.mark.parametrize(
    ("nodes", "pods", "expected"),
    [
        pytest.param([[(100, 0)]], [(LOCAL,)] * 3, 100, id="as much as a disk takes"),
        pytest.param(
            [[(60, 0), (60, 0)]],
            [(VolumeAsk(60),), (VolumeAsk(50),), (VolumeAsk(60),)],
            120,
            id="the best two of three",
        ),
        pytest.param([[(50, 0)], [(50, 0), (50, 10)]], [(LOCAL, LOCAL)], 0, id="not beside one pod"),
        pytest.param([[(50, 0)], [(50, 0), (50, 10)]], [(LOCAL, VolumeAsk(40))], 90, id="beside one pod on one node"),
        pytest.param([[(60, 0)], [(60, 0)]], [(PAIR,)], 60, id="copies on different nodes"),
        pytest.param([[(60, 0), (60, 0)]], [(PAIR,)], 30, id="one copy is better than none"),
    ],
)
def test_a_packing_brings_as_much_onto_the_disks_as_they_take(nodes: Nodes, pods: list[PodAsk], expected: int) -> None:
    assert expected == best_packing(nodes, pods)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_packing_exceeds_its_bound(seed: int) -> None:
    shape = packed(seed)
    most = best_packing(shape.nodes, shape.pods, tries=3)
    assert 0.9 * packing_bound(shape.nodes, shape.pods) < most <= packing_bound(shape.nodes, shape.pods)


@pytest.mark.parametrize("name", ["local", "mixed"])
def test_pods_ask_for_four_fifths_of_what_is_free(name: str) -> None:
    shape = BURSTS[name](1)
    assert 0.75 < asked_gib(shape.pods) / free_gib(shape.nodes) <= 0.8


def test_kube_scheduler_prefers_the_node_with_the_fewest_pods_and_more_so_for_one_owner() -> None:
    pods = Counter({"a": 8, "b": 2})
    alone, owned = (NodeScores(has_owner=owner).points(pods, ("a", "b", "c")) for owner in (False, True))
    assert ["c", "b", "a"] == sorted(alone, key=alone.__getitem__, reverse=True)
    assert owned["c"] - owned["a"] > alone["c"] - alone["a"]


def test_without_a_leader_every_pod_is_let_through_and_a_full_node_sends_its_volumes_elsewhere() -> None:
    world = BurstWorld([[(100, 0)], [(100, 0)]], None, seed=1)
    world.submit_all([(VolumeAsk(60),)] * 2)
    for pod in world.pods.values():
        world.longhorn.provision(pod.volumes[0])
        world.longhorn.attach(pod.volumes[0], "n0000")
        world.timeline.run(world.timeline.now + 10)
    assert ["n0000", "n0001"] == [pod.volumes[0].copies[0].disk.node for pod in world.pods.values()]  # type: ignore[union-attr]


def test_a_run_without_a_leader_ends_when_all_is_placed_and_is_the_same_again() -> None:
    found = play(two(1), is_ours=False, seed=1)
    assert (64, 0, 0, 64) == (len(found.waits), found.left, found.unplaced, sum(found.by_node))
    assert 2 < found.seconds < 20
    assert (min(found.waits), max(found.waits)) == (found.wait(0), found.wait(1))
    assert found == play(two(1), is_ours=False, seed=1)


def test_a_client_sends_its_burst_at_once_and_the_rest_in_turn() -> None:
    turns = WriteTurns(qps=10, burst=2)
    assert [0.0, 0.0, 0.1, 0.2] == pytest.approx([turns.wait(5.0) for _ in range(4)])
    assert 0.0 == turns.wait(6.0)
    assert [0.0] * 3 == [WriteTurns(qps=0, burst=1).wait(0.0) for _ in range(3)]


def test_a_pod_is_overtaken_by_later_ones_that_have_their_yes_before() -> None:
    runs = [PodRun(f"p{number}", (LOCAL,), 0.0, 1, passed_at=at) for number, at in enumerate((3.0, 1.0, 2.0, math.inf))]
    assert 0.5 == overtaken(runs)


def test_a_constant_is_another_one_for_a_while_wherever_it_was_imported() -> None:
    from controller import settings

    before = settings.MEBIBYTE
    with constants({"controller.settings.MEBIBYTE": 7}):
        assert 7 == vars(settings)["MEBIBYTE"]
    assert before == settings.MEBIBYTE
    with pytest.raises(SystemExit, match="has no constant"), constants({"controller.settings.NOTHING": 1}):
        pass


def test_a_sweep_is_a_name_and_values_and_its_worlds_can_be_made() -> None:
    assert ("a.b.MANY", (4, 0.5)) == parse_sweep("a.b.MANY=4,0.5")
    assert all(make(1).pods for make in offers.WORLDS.values())
