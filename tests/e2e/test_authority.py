"""Who decides where replicas go changes while pods are scheduled and many processes ask for room. What counts is read
from the API server's history and summed up here, by nothing of the product's."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import DELAYS
from tests.e2e.disk_history import OBJECTS, RECORD, Place, peaks, taken
from tests.e2e.disk_site import RECORDS, Outcome, outcome_of, recorded, start_asked_leader, start_callers
from tests.e2e.harness import Cell, Scene
from tests.e2e.manager_writes import made_object
from tests.e2e.programs import leader_address
from tests.e2e.scheduling import NAMESPACE
from tests.longhorn import paths
from tests.longhorn.options import GIB, LonghornOptions
from tests.waiting import wait_equal, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]

DISK_GIB = 400
LONGHORN, OURS = "longhorn", "disk-scheduler"
DECIDED = [
    f'rpc_calls_total{{call="{call}",outcome="{outcome}"}}'
    for call in ("ScheduleReplica", "ExpandVolume")
    for outcome in ("allocated", "no-room")
]
# Of the programs; Longhorn grows nothing here.
REFUSED = ['rpc_calls_total{call="ExpandVolume",outcome="precondition"}']


class Switched:
    """A scene whose Longhorn asks where replicas go, as other programs do beside it."""

    def __init__(self, scene: Scene, folder: Path, told: Path) -> None:
        self.scene, self.api = scene, scene.api
        scene.set_settings(placement="longhorn")  # the leader places nothing
        self.leader, self.certificate = start_asked_leader(scene, folder, told)
        scene.cluster.history_covers(RECORDS.replace(f"/namespaces/{NAMESPACE}", ""))
        self.callers: list[subprocess.Popen[str]] = []

    def add_volumes(self, count: int) -> list[tuple[str, str]]:
        """Volumes of 10 GiB that may lie anywhere, and the replica that Longhorn makes of each; none is placed while
        Longhorn is the authority, as it asks all the same."""
        names = [f"v{number}" for number in range(count)]
        spec = {"size": str(10 * GIB), "numberOfReplicas": 1, "dataLocality": "disabled", "frontend": "blockdev"}
        for name in names:
            self.api.create(paths.longhorn("volumes", NAMESPACE), made_object("Volume", name, spec))

        def made() -> dict[str, str]:
            return {one["spec"]["volumeName"]: one["metadata"]["name"] for one in self.replicas()}

        wait_until(lambda: made().keys() >= set(names), "a replica of each volume", 60)
        found = made()
        return [(name, found[name]) for name in names]

    def replicas(self) -> list[Any]:
        found: list[Any] = self.api.list(paths.longhorn("replicas", NAMESPACE))["items"]
        return found

    def ask(self, requests: list[str], pace: float) -> None:
        address = leader_address(self.scene.cluster)
        self.callers = start_callers(address, self.certificate, requests, 4, pace)

    def switch(self, authority: str) -> None:
        self.scene.set_settings(allocation_authority=authority)

    def wait_for_more(self, counters: list[str], count: int = 5) -> None:
        wanted = self._counted(counters) + count
        wait_until(lambda: self._counted(counters) >= wanted, f"{count} more of {counters}", 60)

    def _counted(self, counters: list[str]) -> int:
        return sum(map(self.leader.counted, counters))

    # What stands in the API server

    def objects(self) -> dict[Place, int]:
        """What lies on disks by Longhorn's objects."""
        return taken(self.api, *OBJECTS)

    def peaks(self) -> Counter[tuple[str, str]]:
        """The most that each disk ever held, by what its objects take or the record says, whichever is more."""
        return peaks(self.scene.cluster, RECORD, *OBJECTS)


@pytest.mark.parametrize(("rounds", "volumes"), [pytest.param(1, 60, id="once"), pytest.param(12, 130, id="long")])
def test_the_authority_changes_both_ways_under_load_and_no_disk_is_over(
    tmp_path: Path, rounds: int, volumes: int
) -> None:
    """Four disks of 400 GiB; pods want 1,200 of these through the extender, programs 600 for volumes, and more to grow
    them. Whoever asks while Longhorn is the authority is refused by the documented code, and asks again. What was given
    and not written is forgotten then; what is told after the last change holds."""
    told = tmp_path / "asked.json"
    options = LonghornOptions(delays=DELAYS, retry_seconds=1.0, disk_scheduler=str(told))
    with Scene.start(options) as scene:
        cell = scene.cell("switched", fillers=0, disks_gib=(DISK_GIB,))
        site = Switched(scene, tmp_path, told)
        pairs = site.add_volumes(volumes)
        assert not site.objects() and not recorded(scene.api)
        requests = [f"replica {volume} {replica}" for volume, replica in pairs]
        requests += [f"expand {volume} {(12 + 4 * number) * GIB}" for number in range(3) for volume, _ in pairs]
        random.Random(5).shuffle(requests)
        cell.stateful_set(replicas=12, gib=100)
        site.ask(requests, 0.05 * rounds)
        site.wait_for_more(REFUSED)
        for _ in range(rounds):
            site.switch(OURS)
            site.wait_for_more(DECIDED)
            site.switch(LONGHORN)
            site.wait_for_more(REFUSED)
        site.switch(OURS)
        outcome = outcome_of(site.callers)
        assert outcome.waited, "nobody was refused"
        _check_refusals(outcome)
        site.ask(requests, 0)
        _check(site, cell, outcome_of(site.callers))


def _check_refusals(outcome: Outcome) -> None:
    """A volume whose replica found no room does not grow."""
    for request, why in outcome.why.items():
        is_known = why.code == "RESOURCE_EXHAUSTED" or (
            request.startswith("expand") and why.code == "FAILED_PRECONDITION"
        )
        assert is_known, (request, why)


def _check(site: Switched, cell: Cell, outcome: Outcome) -> None:
    _check_refusals(outcome)
    record = recorded(site.api)
    lost = {place: size for place, size in outcome.given.items() if record.get(place, 0) < size}
    assert not lost
    wait_until(lambda: len(cell.bound()) + len(cell.refused()) == len(cell.pods()) == 12, "an answer to each pod", 60)
    # Expansions that nobody went on with end.
    wait_equal([], lambda: sorted(recorded(site.api).items() ^ site.objects().items()), 120)
    where = {name: (node, disk) for name, node, disk in site.objects()}
    assert not [place for place in outcome.given if where.get(place[0], place[1:]) != place[1:]], "given two places"
    over = {disk: size / GIB for disk, size in site.peaks().items() if size > DISK_GIB * GIB}
    assert not over
    assert [] == site.scene.judge(cell).complaints()
