"""What the benchmarks of places are made of: the packing beside which disks are judged, and the world's own rules."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from bench import offers, throughput_world
from bench.offers import constants, overtaken, parse_sweep
from bench.places_throughput import BURSTS, asked_gib, best_packing, free_gib, packed, packing_bound, play, two
from bench.throughput_world import BurstWorld, NodeScores, PodRun, VolumeAsk, WriteTurns

LOCAL, PAIR = VolumeAsk(50), VolumeAsk(30, 2, "disabled")


def test_a_packing_brings_as_much_onto_the_disks_as_they_take() -> None:
    assert 100 == best_packing([[(100, 0)]], [(LOCAL,)] * 3)
    assert 120 == best_packing([[(60, 0), (60, 0)]], [(VolumeAsk(60),), (VolumeAsk(50),), (VolumeAsk(60),)])


def test_volumes_beside_one_pod_lie_on_one_node() -> None:
    nodes = [[(50, 0)], [(50, 0), (50, 10)]]
    assert 0 == best_packing(nodes, [(LOCAL, LOCAL)])
    assert 90 == best_packing(nodes, [(LOCAL, VolumeAsk(40))])


def test_copies_of_a_volume_lie_on_different_nodes_and_one_is_better_than_none() -> None:
    assert 60 == best_packing([[(60, 0)], [(60, 0)]], [(PAIR,)])
    assert 30 == best_packing([[(60, 0), (60, 0)]], [(PAIR,)])


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


def test_a_run_without_a_leader_ends_when_all_is_placed() -> None:
    found = play(two(1), is_ours=False, seed=1)
    assert (64, 0, 0) == (len(found.waits), found.left, found.unplaced)
    assert 2 < found.seconds < 20
    assert 64 == sum(found.by_node)
    assert found == play(two(1), is_ours=False, seed=1)


def test_a_client_sends_its_burst_at_once_and_the_rest_in_turn() -> None:
    turns = WriteTurns(qps=10, burst=2)
    assert [0.0, 0.0, 0.1, 0.2] == pytest.approx([turns.wait(5.0) for _ in range(4)])
    assert 0.0 == turns.wait(6.0)
    assert [0.0] * 3 == [WriteTurns(qps=0, burst=1).wait(0.0) for _ in range(3)]


def test_waits_are_told_by_share() -> None:
    found = play(two(1), is_ours=False, seed=1)
    assert min(found.waits) == found.wait(0)
    assert max(found.waits) == found.wait(1)


def test_a_pod_is_overtaken_by_later_ones_that_have_their_yes_before() -> None:
    runs = [PodRun(f"p{number}", (LOCAL,), 0.0, 1, passed_at=at) for number, at in enumerate((3.0, 1.0, 2.0, math.inf))]
    assert 0.5 == overtaken(runs)


def test_a_constant_is_another_one_for_a_while_wherever_it_was_imported() -> None:
    with pytest.raises(SystemExit, match="has no constant"), constants({"controller.settings.NOTHING": 1}):
        pass
    from controller import settings

    before = settings.MEBIBYTE
    with constants({"controller.settings.MEBIBYTE": 7}):
        assert 7 == vars(settings)["MEBIBYTE"]
    assert before == settings.MEBIBYTE


def test_a_sweep_is_a_name_and_values() -> None:
    assert ("a.b.MANY", (4, 0.5)) == parse_sweep("a.b.MANY=4,0.5")


def test_the_worlds_of_the_sweep_can_be_made() -> None:
    assert all(make(1).pods for make in offers.WORLDS.values())
    assert throughput_world.VolumeAsk(10).is_beside
