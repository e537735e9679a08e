"""The disk scheduler on the real API server: many processes ask at once, and leaders die. What counts is read from the
API server and summed up here, by nothing of the product's."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e.disk_site import DISK_GIB, NODES, WAIT_SECONDS, Site
from tests.e2e.programs import Controller
from tests.longhorn.options import GIB
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SHORT_SEEDS = 1  # of 20 runs with leaders that die


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Cluster.start(ClusterOptions(start_scheduler=False)) as cluster:
        found = Site(cluster, tmp_path)
        try:
            yield found
        finally:
            found.stop()


def test_from_many_processes_exactly_what_fits_is_given(site: Site) -> None:
    """Replicas of 30 GiB for 120, where 12 fit: three on each disk, and 88 refused with the reason."""
    site.start_leader().wait_leading()
    replicas = [(name, site.add_volume(name, 30)[0]) for name in (f"v{number}" for number in range(100))]
    outcome = site.outcome(site.ask([f"replica {volume} {replica}" for volume, replica in replicas], 8))
    assert {"RESOURCE_EXHAUSTED": 88} == dict(outcome.refused)
    assert outcome.given == site.on_record()
    assert {(name, "d1"): 90 * GIB for name in NODES} == dict(site.sums())


def test_replicas_images_and_expansions_at_once_never_exceed_a_disk(site: Site) -> None:
    site.start_leader().wait_leading()
    first = [site.add_volume(f"old{number}", 10, replicas=3) for number in range(4)]
    old = site.outcome(site.ask([f"replica {one.rsplit('-r-')[0]} {one}" for members in first for one in members], 4))
    assert 12 == len(old.given) and not old.refused
    requests = [f"expand old{number} {40 * GIB}" for number in range(4)]
    requests += [f"replica new{number} {site.add_volume(f'new{number}', 15)[0]}" for number in range(30)]
    for number in range(10):
        site.add_image(f"image{number}", 8)
        requests.append(f"image image{number} {8 * GIB}")
    random.Random(7).shuffle(requests)
    outcome = site.outcome(site.ask(requests, 10))
    assert set(outcome.refused) <= {"RESOURCE_EXHAUSTED"}
    assert all(total <= DISK_GIB * GIB for total in site.sums().values()), site.sums()
    record = site.on_record()
    assert {**old.given, **outcome.given} == record
    for number, members in enumerate(first):  # all or none
        sizes = {size for (name, _, _), size in record.items() if name in members}
        assert 1 == len(sizes), (number, sizes)
    smallest = 8 * GIB if any("image" in one for one in outcome.why) else 15 * GIB
    assert all(DISK_GIB * GIB - total < smallest for total in site.sums().values()), "room is left, and was refused"


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] if seed >= SHORT_SEEDS else []) for seed in range(20)]
)
def test_leaders_that_die_lose_nothing_and_give_nothing_twice(site: Site, seed: int) -> None:
    """The leader is killed at random moments, three times, while eight processes ask; another copy takes over."""
    dice = random.Random(seed)
    for controller in (site.start_leader(), site.start_leader()):
        wait_until(controller.answers_ready, "a ready copy", WAIT_SECONDS)
    replicas = [(name, site.add_volume(name, 2)[0]) for name in (f"v{number}" for number in range(240))]
    callers = site.ask([f"replica {volume} {replica}" for volume, replica in replicas], 8)
    killed = 0
    for _ in range(3):
        wait_for_more(site, callers, dice.randint(1, 30))
        for controller in [one for one in site.leaders if leads(one)]:
            killed += not all_over(callers)
            controller.stop(kill=True)
            site.leaders.remove(controller)
            site.start_leader()
    outcome = site.outcome(callers)
    assert killed, "nobody was killed while others asked"
    assert {"RESOURCE_EXHAUSTED": 40} == dict(outcome.refused)
    record = site.on_record()
    assert outcome.given == record and 200 == len(record)
    assert {(name, "d1"): 100 * GIB for name in NODES} == dict(site.sums())


def leads(controller: Controller) -> bool:
    try:
        return controller.is_running and bool(controller.status()["is_leading"])
    except OSError:
        return False


def wait_for_more(site: Site, callers: Sequence[subprocess.Popen[str]], count: int) -> None:
    """Until so many more are on record, or nobody asks any more."""
    wanted = len(site.on_record()) + count
    wait_until(lambda: len(site.on_record()) >= wanted or all_over(callers), "allocations", WAIT_SECONDS)


def all_over(callers: Sequence[subprocess.Popen[str]]) -> bool:
    return all(process.poll() is not None for process in callers)
