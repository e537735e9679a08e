"""Holds beside the plans: what is written together with what, and what the next leader finds."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.plans.plan import Hold, Plan
from controller.kube.resources import CONFIG_MAPS
from controller.placement.plan_entries import KEY, SHARDS, Entry, encode, hold_key, key_of, plan_key
from controller.placement.plan_objects import GATHER_SECONDS, REMOVE_SECONDS, Loaded, PlanObjects
from controller.placement.plan_shard import COMPANY_BYTES
from tests.unit.placement.plan_stage import FIRST, NAMES, NAMESPACE, PlanSite, Raw, hold, neighbours, plan

NODES = tuple(f"n{number}" for number in range(100))


@pytest.fixture
def site() -> PlanSite:
    return PlanSite()


def chosen(pod: str, *nodes: str, volume: str = "v0") -> tuple[Hold, Plan]:
    """What a choice of the first of these nodes makes of the hold, and the plan that it makes."""
    one = hold(pod, *nodes, volume=volume)
    return one.narrowed(nodes[0]), replace(plan(volume), places=one.at(nodes[0])[volume], pods=(pod,))


def where(site: PlanSite, pod: str) -> str:
    """The ConfigMap that has the pod's hold."""
    (found,) = (name for name in NAMES if any(line.get("pod") == pod for line in site.lines_in(name)))
    return found


# What is written when


def test_a_hold_is_written_as_soon_as_a_plan_and_with_plans(site: PlanSite) -> None:
    leader = site.leader()
    before = site.writes()
    leader.put(hold("p", "n1", "n2"))
    leader.put(plan("other"), hold("q", "n1"))
    site.pass_time(leader, GATHER_SECONDS)
    assert before + 1 == site.writes()
    assert ({"p", "q"}, {"other"}) == (site.pods(), site.volumes())
    figures = leader.figures()
    assert (1, 2, 0) == (figures.plans, figures.holds, figures.unwritten)


def test_less_of_a_hold_waits_for_company_and_all_else_is_written_at_once(site: PlanSite) -> None:
    """What is less: test_plan_entries.py."""
    leader, later = site.leader(), hold("p", "n1", "n2")
    for entry, seconds, writes in (
        (later, GATHER_SECONDS, 1),
        (replace(later, since=5.0), REMOVE_SECONDS, 1),
        (later.narrowed("n1"), GATHER_SECONDS, 1),
        (later.narrowed("n1"), REMOVE_SECONDS, 2),
        (hold("p", "n1", "n3"), GATHER_SECONDS, 3),
    ):
        leader.put(entry)
        site.pass_time(leader, seconds)
        assert SHARDS + writes == site.writes()
    assert [hold("p", "n1", "n3")] == list(site.new().load(2).holds)


# A choice


def crowded(site: PlanSite) -> PlanObjects:
    """A leader with so many holds that they stand in several ConfigMaps, those of p0 and p1 in different ones."""
    leader = site.leader()
    leader.put(hold("p0", "n1", "n2", volume="v0"))
    leader.put(*(hold(f"x{number}", *NODES) for number in range(3 * COMPANY_BYTES // 4_000)))
    leader.put(hold("p1", "n1", "n2", volume="v1"))
    site.pass_time(leader, GATHER_SECONDS)
    assert where(site, "p0") != where(site, "p1")
    return leader


def test_a_plan_goes_to_its_pods_hold_and_one_write_makes_it_of_that(site: PlanSite) -> None:
    """So that whoever loads finds the places in one of the two, and not twice either."""
    leader = crowded(site)
    before, names = site.writes(), [where(site, "p0"), where(site, "p1")]
    for number in (0, 1):
        leader.put(*chosen(f"p{number}", "n1", "n2", volume=f"v{number}"))
    site.pass_time(leader, GATHER_SECONDS)
    assert before + 2 == site.writes()
    assert [["v0"], ["v1"]] == [site.volumes_in(name) for name in names]
    assert [{"n1": {}, "n2": {}}] * 2 == [site.held()[pod]["nodes"] for pod in ("p0", "p1")]


def test_a_plan_goes_there_too_when_the_hold_ends_in_the_same_moment_or_has_just_done_so(site: PlanSite) -> None:
    leader = crowded(site)
    names = [where(site, "p0"), where(site, "p1")]
    leader.put(chosen("p0", "n1")[1])
    leader.remove(hold_key("p0"), hold_key("p1"))
    leader.put(chosen("p1", "n1", volume="v1")[1])
    site.pass_time(leader, GATHER_SECONDS)
    assert [["v0"], ["v1"]] == [site.volumes_in(name) for name in names]
    assert set() == {"p0", "p1"} & site.pods()


def test_whenever_the_leader_ends_the_places_of_a_choice_stand_in_hold_or_plan(site: PlanSite) -> None:
    """Each write of the ConfigMaps may be the last one."""
    leader = crowded(site)
    pods = {f"p{number}": f"v{number}" for number in (0, 1)}
    for pod, volume in pods.items():
        leader.put(*chosen(pod, "n1", "n2", volume=volume))
    send, one_by_one, found = site.api.replace, threading.Lock(), list[Loaded]()

    def replace_(*args: Any, **more: Any) -> Raw:
        with one_by_one:
            raw: Raw = send(*args, **more)
            found.append(stored(site))
        return raw

    site.api.replace = replace_  # type: ignore[method-assign]
    site.pass_time(leader, REMOVE_SECONDS)
    assert 2 == len(found)
    for one, (pod, volume) in itertools.product(found, pods.items()):
        places = [place for each in one.holds if each.pod == pod for place in each.at("n1").get(volume, ())]
        places += [place for each in one.plans if each.volume == volume for place in each.places]
        assert ["n1"] == [place.node for place in places]


def stored(site: PlanSite) -> Loaded:
    """What a leader would find now, without one."""
    copy = PlanSite()
    for name in NAMES:
        copy.api.put(CONFIG_MAPS, NAMESPACE, {"metadata": {"name": name}, "data": dict(site.raw(name)["data"])})
    return copy.new().load(1)


def test_a_plan_stays_where_it_stands_and_goes_elsewhere_if_its_holds_config_map_is_refused(site: PlanSite) -> None:
    leader = crowded(site)
    refused = where(site, "p1")
    leader.put(plan("v9"))
    site.pass_time(leader, GATHER_SECONDS)
    before = [name for name in NAMES if "v9" in site.volumes_in(name)]
    site.refuse(refused)
    leader.put(replace(hold("p1", "n1", volume="v1"), named_before=frozenset({("claim", "n1")})))
    site.pass_time(leader, GATHER_SECONDS)
    leader.put(*chosen("p1", "n1", volume="v1"), replace(plan("v9"), pods=("p1",)))
    site.pass_time(leader, GATHER_SECONDS)
    assert before == [name for name in NAMES if "v9" in site.volumes_in(name)]
    assert "v1" in site.volumes() - set(site.volumes_in(refused))


# The next leader


def test_the_next_leader_finds_all_holds_and_plans_and_goes_on_with_them(
    site: PlanSite, caplog: pytest.LogCaptureFixture
) -> None:
    holds = [hold(f"p{number}", *NODES[: number % 7], far={"w": ("d1", "d2")}) for number in range(100)]
    plans = [plan(name) for name in neighbours(100)]
    former = site.leader()
    former.put(*holds, *plans)
    assert former.flush(1.0)
    leader = site.new()
    found = leader.load(2)
    assert {one.pod: one for one in holds} == {one.pod: one for one in found.holds}
    assert {one.volume: one for one in plans} == {one.volume: one for one in found.plans}
    assert (100, 0, []) == (leader.figures().holds, leader.figures().unwritten, caplog.messages)
    leader.remove(*(hold_key(one.pod) for one in holds[1:]), *(plan_key(one.volume) for one in plans[1:]))
    site.pass_time(leader, REMOVE_SECONDS)
    assert ({"p0"}, {"v0"}) == (site.pods(), site.volumes())


# What others leave there


@pytest.mark.parametrize(
    "other",
    [hold("p", "n2"), hold("p", "n1"), plan("p", "d2"), plan("p")],
    ids=["another-hold", "the-same-hold", "another-plan", "the-same-plan"],
)
@pytest.mark.parametrize("name", NAMES[:2], ids=["in-one", "in-two"])
def test_of_two_entries_of_one_kind_and_name_neither_is_taken(
    site: PlanSite, other: Entry, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    lines: dict[str, list[Entry]] = {FIRST: [hold("p", "n1"), plan("p"), hold("q", "n1")]}
    lines.setdefault(name, []).append(other)
    for one, entries in lines.items():
        data = {KEY: "\n".join(map(encode, entries))}
        site.api.put(CONFIG_MAPS, NAMESPACE, {"metadata": {"name": one}, "data": data})
    objects = site.new()
    found = objects.load(2)
    taken = {"hold:p", "plan:p", "hold:q"} - {key_of(other)}
    assert taken == {*map(key_of, found.holds), *map(key_of, found.plans)}
    told = [f"plans in ConfigMap {one}: there are several entries for {key_of(other)}" for one in lines]
    assert told == [message for message in caplog.messages if "several" in message]
    site.pass_time(objects, 0)
    assert taken == {*map(hold_key, site.pods()), *map(plan_key, site.volumes())}
    assert 1 == objects.figures().overwritten
