"""The disk scheduler on the real API server: many processes ask at once, and leaders die. What counts is read from the
API server and summed up here, by nothing of the product's."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e.conftest import DELAYS
from tests.e2e.disk_callers import NAME
from tests.e2e.disk_site import (
    CLIENT,
    DISK_GIB,
    NODES,
    SERVICE_PORT,
    WAIT_SECONDS,
    Site,
    caller_certificate,
    install_record,
    recorded,
)
from tests.e2e.harness import STOCK_SCHEDULER, Scene
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE
from tests.longhorn import paths
from tests.longhorn.options import GIB, LonghornOptions
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


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
    assert {"NOT_FOUND": 2} == dict(site.outcome(site.ask(["replica v0 none", "image none 1"], 1)).refused)


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


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_leaders_that_die_lose_nothing_and_give_nothing_twice(site: Site, seed: int) -> None:
    """The leader is killed at random moments, three times, while eight processes ask; another copy takes over once the
    Lease has run out."""
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


def test_a_longhorn_that_asks_over_commits_no_disk_without_the_extender(tmp_path: Path) -> None:
    """Twenty pods of 100 GiB, which a stock scheduler binds wherever it likes, on four disks of 400 GiB: sixteen
    volumes get a disk, and no disk ever takes more than it holds, also while Longhorn moves data to the pods."""
    told = tmp_path / "asked.json"
    options = LonghornOptions(delays=DELAYS, retry_seconds=1.0, disk_scheduler=str(told))
    with Scene.start(options, run_scheduler=False) as scene:
        install_record(scene.cluster)
        scene.set_settings(allocation_authority="disk-scheduler")
        leader = scene.start_controller(flags=("--disk-scheduler-clients", CLIENT))
        folder = caller_certificate(scene.api, tmp_path)
        host, port = scene.cluster.services.address(NAMESPACE, "longhorn-replica-scheduler", SERVICE_PORT)
        told.write_text(json.dumps({"address": f"{host}:{port}", "name": NAME, "folder": str(folder)}))
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
