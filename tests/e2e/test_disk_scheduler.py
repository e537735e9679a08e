"""The disk scheduler on the real API server: many processes ask at once, and leaders die. What counts is read from the
API server and summed up here, by nothing of the product's."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.e2e.asking_pods import AskingPods
from tests.e2e.conftest import DELAYS
from tests.e2e.disk_history import CLAIM, OBJECTS, RECORD, Place, peaks, sums, taken
from tests.e2e.disk_site import (
    DISK_GIB,
    NODES,
    WAIT_SECONDS,
    Outcome,
    Refused,
    Site,
    recorded,
    start_asked_leader,
)
from tests.e2e.harness import STOCK_SCHEDULER, Scene
from tests.e2e.programs import QUICK_LEASE
from tests.e2e.scheduling import NAMESPACE
from tests.longhorn import paths
from tests.longhorn.options import GIB, LonghornOptions
from tests.waiting import wait_equal, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NO_SPACE = "INSUFFICIENT_STORAGE"
GROWTH_SECONDS = 120.0  # what a leader granted that died before it could tell ends after a minute


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site.start(tmp_path) as found:
        yield found


@pytest.mark.long
def test_from_many_processes_exactly_what_fits_is_given(site: Site) -> None:
    """Replicas of 30 GiB for 120, where 12 fit: three on each disk, and 88 refused with the reason."""
    site.start_leader().wait_leading()
    replicas = [(name, site.add_volume(name, 30)[0]) for name in (f"v{number}" for number in range(100))]
    outcome = site.outcome(site.ask([f"replica {volume} {replica}" for volume, replica in replicas], 8))
    assert {"RESOURCE_EXHAUSTED": 88} == dict(outcome.refused)
    assert {missing_everywhere(20)} == set(outcome.why.values())
    assert outcome.given == site.on_record()
    assert {(name, "d1"): 90 * GIB for name in NODES} == dict(site.sums())
    assert {"NOT_FOUND": 2} == dict(site.outcome(site.ask(["replica v0 none", "image none 1"], 1)).refused)


def missing_everywhere(gib: int) -> Refused:
    return Refused("RESOURCE_EXHAUSTED", frozenset((name, "d1", NO_SPACE, gib * GIB) for name in NODES), 0)


@pytest.mark.long
def test_copies_of_images_alone_are_given_where_they_fit(site: Site) -> None:
    """Of 60 images with 15 GiB each, six on each disk."""
    site.start_leader().wait_leading()
    names = [f"image{number}" for number in range(60)]
    for name in names:
        site.add_image(name, 15)
    outcome = site.outcome(site.ask([f"image {name} {15 * GIB}" for name in names], 8, writes=True))
    assert {"RESOURCE_EXHAUSTED": 36} == dict(outcome.refused)
    assert {missing_everywhere(5)} == set(outcome.why.values())
    assert outcome.given == site.on_record() == taken(site.api, *OBJECTS)
    assert {(name, "d1"): 90 * GIB for name in NODES} == dict(site.sums())


@pytest.mark.long
def test_expansions_alone_are_given_on_all_disks_or_on_none(site: Site) -> None:
    """Sixteen volumes of 5 GiB on each of two pairs of nodes, which are to have 2 GiB more: ten on each pair."""
    site.start_leader().wait_leading()
    pairs = {f"v{number}": NODES[:2] if number % 2 else NODES[2:] for number in range(32)}
    for volume, nodes in pairs.items():
        for replica, node in zip(site.add_volume(volume, 5, replicas=2), nodes, strict=True):
            site.place(replica, node)
    wait_for_shown(site)
    outcome = site.outcome(site.ask([f"expand {volume} {7 * GIB}" for volume in pairs], 8, writes=True))
    assert {"RESOURCE_EXHAUSTED": 12} == dict(outcome.refused)
    for request, why in outcome.why.items():
        nodes = pairs[request.split()[1]]
        assert why == Refused("RESOURCE_EXHAUSTED", frozenset((name, "d1", NO_SPACE, 2 * GIB) for name in nodes), 0)
    assert 40 == len(outcome.given) and {7 * GIB} == set(outcome.given.values())
    assert outcome.given.items() <= site.on_record().items()
    assert site.on_record() == taken(site.api, *OBJECTS)
    assert {(name, "d1"): 100 * GIB for name in NODES} == dict(site.sums())


def wait_for_shown(site: Site, seconds: float = WAIT_SECONDS) -> None:
    """Until the record says what the objects show."""
    wait_equal([], lambda: sorted(site.on_record().items() ^ taken(site.api, *OBJECTS).items()), seconds)


def mixed(site: Site, volumes: int, replicas: int, images: int, seed: int) -> list[str]:
    """Requests of all three kinds: for volumes with three copies of 4 GiB that are placed already, new replicas of
    5 GiB and images of 3 GiB."""
    for number in range(volumes):
        members = site.add_volume(f"old{number}", 4, replicas=3)
        for index, replica in enumerate(members):
            site.place(replica, NODES[(number + index) % len(NODES)])
    wait_for_shown(site)
    requests = [f"expand old{number} {(8 + 2 * (number % 5)) * GIB}" for number in range(volumes)]
    requests += [f"new new{number} {5 * GIB}" for number in range(replicas)]
    for number in range(images):
        site.add_image(f"image{number}", 3)
        requests.append(f"image image{number} {3 * GIB}")
    random.Random(seed).shuffle(requests)
    return requests


def fitting(site: Site, requests: Iterable[str], *kinds: str) -> list[str]:
    """Those of the requests for which there is room by what these kinds of objects say."""
    places = taken(site.api, *kinds)
    left = {node: DISK_GIB * GIB - size for (node, _), size in sums(places).items()}
    found = []
    for request in requests:
        kind, name, size = request.split()
        if kind == "expand":
            growth = {node: int(size) - was for (one, node, _), was in places.items() if one.startswith(f"{name}-r-")}
            fits = all(left[node] >= more for node, more in growth.items())
        else:
            fits = max(left.values()) >= int(size)
        found += [request] if fits else []
    return found


def check_reasons(outcome: Outcome) -> None:
    """Each refusal names disks that lack room, and a replica's or an image's names all."""
    for request, why in outcome.why.items():
        assert "RESOURCE_EXHAUSTED" == why.code and not why.more, (request, why)
        assert all(reason in (NO_SPACE, "CONTENDED") and missing > 0 for _, _, reason, missing in why.disks), why
        named = {node for node, _, _, _ in why.disks}
        assert named and (request.startswith("expand") or named == set(NODES)), (request, why)


def check_expansions(places: Mapping[Place, int]) -> None:
    """All or none: the copies of a volume have one size."""
    sizes: dict[str, set[int]] = {}
    for (name, _, _), size in places.items():
        sizes.setdefault(name.partition("-r-")[0], set()).add(size)
    assert not {name: found for name, found in sizes.items() if len(found) > 1}


@pytest.mark.long
def test_replicas_images_and_expansions_at_once_never_exceed_a_disk(site: Site) -> None:
    site.start_leader().wait_leading()
    requests = mixed(site, volumes=8, replicas=50, images=20, seed=7)
    outcome = site.outcome(site.ask(requests, 10, writes=True))
    check_reasons(outcome)
    record = site.on_record()
    assert outcome.given.items() <= record.items()
    assert record == taken(site.api, *OBJECTS)
    check_expansions(record)
    assert max(peaks(site.cluster, RECORD, *OBJECTS).values()) <= DISK_GIB * GIB
    assert outcome.why and not fitting(site, outcome.why, RECORD)


def test_pods_and_calls_of_many_processes_never_get_the_same_bytes(site: Site) -> None:
    """Filter calls for pods with a local volume of 10 GiB, while four processes ask for all three kinds. At no moment
    is more given and chosen than a disk holds, and in the end whoever has nothing would not fit."""
    site.start_leader().wait_leading()
    requests = mixed(site, volumes=8, replicas=30, images=20, seed=11)
    pods = AskingPods(site, list(NODES), 32, 10)
    callers = site.ask(requests, 4, writes=True)
    given, asked_meanwhile = 0, False
    while pods.waiting and not all_over(callers):  # one for each few that the callers get, as long as these ask
        wait_for_more(site, callers, 1)
        given += pods.ask(2)
        asked_meanwhile = asked_meanwhile or (given > 0 and not all_over(callers))
        if len(pods.refused) >= 2:
            break
    outcome = site.outcome(callers)
    check_reasons(outcome)
    assert given and outcome.given and asked_meanwhile, "they did not ask at the same time"
    everything = (RECORD, *OBJECTS, CLAIM)

    def is_just() -> bool:
        """Who was refused asks again: room may have been held for a choice that went elsewhere."""
        nonlocal outcome
        pods.ask()
        outcome = site.outcome(site.ask(list(outcome.why), 2, writes=True))
        check_reasons(outcome)
        left = DISK_GIB * GIB - min(sums(taken(site.api, *everything)).values())
        return not fitting(site, outcome.why, *everything) and (not pods.waiting or left < 10 * GIB)

    wait_until(is_just, "an end where nobody who has nothing would fit", WAIT_SECONDS)
    assert outcome.why and pods.refused and all(set(why) == set(NODES) for why in pods.refused.values())
    wait_for_shown(site)
    check_expansions(site.on_record())
    most_ever = peaks(site.cluster, *everything)
    assert max(most_ever.values()) <= DISK_GIB * GIB, most_ever
    assert len(taken(site.api, CLAIM)) == 32 - len(pods.waiting)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_leaders_that_die_lose_nothing_and_give_nothing_twice(site: Site, seed: int) -> None:
    """The leader is killed at random moments, three times, while eight processes ask for all three kinds, and write
    what they are told; another copy takes over once the Lease has run out. Once nobody asks any more, record and
    objects say the same, and whoever was refused would not fit."""
    dice = random.Random(seed)
    for controller in (site.start_leader(*QUICK_LEASE), site.start_leader(*QUICK_LEASE)):
        wait_until(controller.answers_ready, "a ready copy", WAIT_SECONDS)
    requests = mixed(site, volumes=12, replicas=40, images=30, seed=seed)
    callers = site.ask(requests, 8, writes=True)
    killed = 0
    for _ in range(3):
        wait_for_more(site, callers, dice.randint(1, 6))
        for controller in [one for one in site.leaders if one.leads()]:
            killed += not all_over(callers)
            controller.stop(kill=True)
            site.leaders.remove(controller)
            site.start_leader(*QUICK_LEASE)
    outcome = site.outcome(callers)
    assert killed, "nobody was killed while others asked"
    check_reasons(outcome)
    record = site.on_record()
    lost = {place: size for place, size in outcome.given.items() if record.get(place, 0) < size}
    assert not lost
    wait_for_shown(site, GROWTH_SECONDS)
    record = site.on_record()
    assert outcome.given.items() <= record.items()
    names = Counter(name for name, _, _ in record if "-r-" in name or name.startswith("image"))
    assert 1 == max(names.values()), "given twice"
    check_expansions(record)
    assert max(peaks(site.cluster, RECORD, *OBJECTS).values()) <= DISK_GIB * GIB
    again = site.outcome(site.ask(list(outcome.why), 2, writes=True))
    check_reasons(again)
    assert again.why and not fitting(site, again.why, RECORD)


def wait_for_more(site: Site, callers: Sequence[subprocess.Popen[str]], count: int) -> None:
    """Until so many more are on record, or nobody asks any more."""
    wanted = len(site.on_record()) + count
    wait_until(lambda: len(site.on_record()) >= wanted or all_over(callers), "allocations", 2 * WAIT_SECONDS)


def all_over(callers: Sequence[subprocess.Popen[str]]) -> bool:
    return all(process.poll() is not None for process in callers)


@pytest.mark.long
def test_a_longhorn_that_asks_over_commits_no_disk_without_the_extender(tmp_path: Path) -> None:
    """Twenty pods of 100 GiB, which a stock scheduler binds wherever it likes, on four disks of 400 GiB: sixteen
    volumes get a disk, and no disk ever takes more than it holds, also while Longhorn moves data to the pods."""
    told = tmp_path / "asked.json"
    options = LonghornOptions(delays=DELAYS, retry_seconds=1.0, disk_scheduler=str(told))
    with Scene.start(options, run_scheduler=False) as scene:
        scene.set_settings(allocation_authority="disk-scheduler")
        leader, _ = start_asked_leader(scene, tmp_path, told)
        scene.start_stock_scheduler()
        cell = scene.cell("goal", fillers=0)
        cell.stateful_set(replicas=20, opted_in=False, scheduler=STOCK_SCHEDULER)

        def placed() -> dict[str, int]:
            replicas = scene.api.list(paths.longhorn("replicas", NAMESPACE))["items"]
            found = Counter(one["spec"]["nodeID"] for one in replicas)
            assert all(found[node] <= 4 for node in cell.nodes), found
            return {node: found[node] for node in cell.nodes}

        def is_full() -> bool:
            refused = leader.counted('rpc_calls_total{call="ScheduleReplica",outcome="no-room"}')
            return placed() == dict.fromkeys(cell.nodes, 4) and refused >= 4

        wait_until(is_full, "four volumes on each disk, and four without", 120)
        assert dict.fromkeys(cell.nodes, 400 * GIB) == {
            node: sum(size for (_, there, _), size in recorded(scene.api).items() if there == node)
            for node in cell.nodes
        }
