"""The leader places Replica objects for a Longhorn whose own placement is off. What counts is read from the API server
and summed up here, by nothing of the product's."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.cache import REPOSITORY
from tests.cluster.client import ApiClient, ApiError
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.cluster.watch import Reflector
from tests.e2e.conftest import DELAYS
from tests.e2e.disk_site import DISK_GIB as SITE_GIB
from tests.e2e.disk_site import NODES, Site, install_record, recorded
from tests.e2e.harness import CONFIG_MAP, STOCK_SCHEDULER, Cell, Scene
from tests.e2e.manager_writes import made_object
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE
from tests.longhorn import paths
from tests.longhorn.options import GIB, LonghornOptions
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RIGHTS: Final = REPOSITORY / "docs" / "examples" / "replica-placement.yaml"
REPLICAS: Final = paths.longhorn("replicas", NAMESPACE)
LEASE: Final = ("--lease-duration-seconds", "6", "--renew-deadline-seconds", "4", "--retry-period-seconds", "1")
DISK_GIB: Final = 200
REFUSED: Final = "Longhorn scheduler extender may"
WAIT_SECONDS: Final = 120.0


class Watched:
    """Every place that a Replica was ever seen at, and the fullest that each node ever was. Threads: the reflector's;
    what it found is read when all is over."""

    def __init__(self, api: ApiClient) -> None:
        self.places: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
        self.fullest: Counter[str] = Counter()
        self._now: dict[str, tuple[str, int]] = {}
        self._reflector = Reflector(api, REPLICAS, self._see, name="watched-replicas")
        self._reflector.wait_synced()

    def stop(self) -> None:
        self._reflector.stop()

    def _see(self, verb: str, raw: dict[str, Any]) -> None:
        name, spec = raw["metadata"]["name"], raw["spec"]
        self._now.pop(name, None)
        if verb == "DELETED" or not spec.get("nodeID"):
            return
        self._now[name] = spec["nodeID"], int(spec["volumeSize"])
        self.places[name].add((spec["nodeID"], spec["diskID"], spec["dataDirectoryName"]))
        taken = sum(size for node, size in self._now.values() if node == spec["nodeID"])
        self.fullest[spec["nodeID"]] = max(taken, self.fullest[spec["nodeID"]])


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    options = LonghornOptions(delays=DELAYS, retry_seconds=1.0, places_replicas=False)
    with Scene.start(options, run_scheduler=False) as found:
        install_record(found.cluster)
        done = found.cluster.kubectl("apply", "-f", str(RIGHTS))
        assert done.returncode == 0, done.stderr
        found.set_settings(allocation_authority="disk-scheduler", replica_placement="true")
        found.start_stock_scheduler()
        yield found


@pytest.fixture
def watched(scene: Scene) -> Iterator[Watched]:
    found = Watched(scene.api)
    yield found
    found.stop()


def leads(controller: Controller) -> bool:
    try:
        return controller.is_running and bool(controller.status()["is_leading"])
    except OSError:
        return False


def placed(scene: Scene, cell: Cell) -> dict[str, int]:
    """Bytes by node, as the Replica objects say."""
    found: Counter[str] = Counter()
    for one in scene.api.list(REPLICAS)["items"]:
        found[one["spec"].get("nodeID", "")] += int(one["spec"]["volumeSize"])
    return {node: found[node] for node in cell.nodes}


@pytest.mark.parametrize(
    "kills", [pytest.param(False, marks=pytest.mark.long), True], ids=["one leader", "a leader that is killed"]
)
def test_pods_of_a_stock_scheduler_fill_every_disk_exactly(scene: Scene, watched: Watched, kills: bool) -> None:
    """Twelve pods of 100 GiB, bound wherever that scheduler likes, without the extender; four disks of 200 GiB."""
    for _ in range(2 - len(scene.controllers)):
        scene.launch_controller(flags=LEASE)
    wait_until(lambda: any(map(leads, scene.controllers)), "a leader", WAIT_SECONDS)
    for controller in scene.controllers:
        wait_until(controller.answers_ready, "a ready copy", WAIT_SECONDS)
    cell = scene.cell("killed" if kills else "placed", disks_gib=(DISK_GIB,), fillers=0)
    cell.stateful_set(replicas=12, opted_in=False, scheduler=STOCK_SCHEDULER)
    if kills:
        wait_until(lambda: sum(placed(scene, cell).values()) >= 100 * GIB, "the first place", WAIT_SECONDS)
        (leader,) = [one for one in scene.controllers if leads(one)]
        leader.stop(kill=True)
        scene.controllers.remove(leader)
        assert sum(placed(scene, cell).values()) < 4 * DISK_GIB * GIB, "killed too late"
    full = dict.fromkeys(cell.nodes, DISK_GIB * GIB)

    def is_full() -> bool:
        waiting = [one.status()["placement"]["waiting"] for one in scene.controllers if leads(one)]
        return placed(scene, cell) == full and any(one.get("no-room", 0) >= 4 for one in waiting)

    wait_until(is_full, "two volumes on each disk, and four that wait", WAIT_SECONDS)
    wait_until(lambda: on_record(scene, cell) == full, "a record of the same", WAIT_SECONDS)
    assert {1} == {len(found) for found in watched.places.values()}, "a replica was placed twice"
    assert full == {node: watched.fullest[node] for node in cell.nodes}
    assert len(watched.places) == len({place[2] for found in watched.places.values() for place in found})
    cell.clear()


def on_record(scene: Scene, cell: Cell) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (_, node, _), size in recorded(scene.api).items():
        found[node] += size
    return {node: found[node] for node in cell.nodes}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_leaders_that_die_lose_nothing_and_place_nothing_twice(tmp_path: Path, seed: int) -> None:
    """The leader is killed at random moments, three times, while 240 replicas wait for a disk, of which 200 fit."""
    dice = random.Random(seed)
    with Cluster.start(ClusterOptions(start_scheduler=False)) as cluster:
        site = Site(cluster, tmp_path)
        done = cluster.kubectl("apply", "-f", str(RIGHTS))
        assert done.returncode == 0, done.stderr
        watched = Watched(site.api)
        try:
            for controller in (site.start_leader(), site.start_leader()):
                wait_until(controller.answers_ready, "a ready copy", WAIT_SECONDS)
            for number in range(240):
                site.add_volume(f"v{number}", 2)
            site.api.patch(CONFIG_MAP, {"data": {"scheduler-extender-replica-placement": "true"}})
            for _ in range(3):
                wanted = len(watched.places) + dice.randint(1, 50)
                wait_until(lambda: len(watched.places) >= min(wanted, 200), "places", WAIT_SECONDS)  # noqa: B023
                for controller in filter(leads, tuple(site.leaders)):
                    controller.stop(kill=True)
                    site.leaders.remove(controller)
                    site.start_leader()
            full = {(name, "d1"): SITE_GIB * GIB for name in NODES}
            wait_until(lambda: dict(site.sums()) == full, "full disks", WAIT_SECONDS)
            wait_until(lambda: len(watched.places) == 200, "all places", WAIT_SECONDS)
        finally:
            watched.stop()
            site.stop()
        assert {1} == {len(found) for found in watched.places.values()}
        assert dict.fromkeys(NODES, SITE_GIB * GIB) == dict(watched.fullest)
        assert site.on_record().keys() == {
            (name, node, "d1") for name, found in watched.places.items() for node, _, _ in found
        }


# What the right to patch Replicas leaves


PLACE: Final = {"nodeID": "n1", "diskID": "d", "diskPath": "/d", "dataDirectoryName": "v-1"}
LABELS: Final = {"longhornnode": "n1", "longhorndiskuuid": "d"}


def refusal(ours: ApiClient, name: str, patch: dict[str, Any]) -> str:
    try:
        ours.patch(f"{REPLICAS}/{name}", patch, dryRun="All")
    except ApiError as error:
        return str(error)
    return ""


@pytest.fixture
def replica(scene: Scene) -> Iterator[str]:
    """One that is in nobody's way: its volume does not exist."""
    made = made_object("Replica", "bound-r-1", {"volumeName": "none", "volumeSize": str(GIB), "active": True})
    made["metadata"]["labels"] = {"longhornvolume": "none"}
    scene.api.create(REPLICAS, made)
    yield "bound-r-1"
    scene.api.delete(f"{REPLICAS}/bound-r-1")


def test_the_right_is_for_the_place_of_a_replica_that_has_none(scene: Scene, replica: str) -> None:
    ours = ApiClient.from_kubeconfig(scene.kubeconfig)
    wait_until(lambda: REFUSED in refusal(ours, replica, {"spec": {"active": False}}), "the policy", WAIT_SECONDS)
    assert "" == refusal(ours, replica, {"metadata": {"labels": LABELS}, "spec": PLACE})
    assert "" == refusal(ours, replica, {"spec": {"hardNodeAffinity": "n1"}})
    for patch in (
        {"spec": {"failedAt": "2026-01-01T00:00:00Z"}},
        {"spec": {"volumeSize": "1"}},
        {"spec": {"volumeName": None}},
        {"metadata": {"labels": {"longhornvolume": "another"}}},
        {"metadata": {"annotations": {"any": "1"}}},
        {"metadata": {"finalizers": ["example.org/keep"]}},
    ):
        assert REFUSED in refusal(ours, replica, patch), patch
    scene.api.patch(f"{REPLICAS}/{replica}", {"spec": PLACE})
    assert REFUSED in refusal(ours, replica, {"spec": {"nodeID": "n2"}})
