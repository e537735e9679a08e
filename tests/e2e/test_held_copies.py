"""First copies for which there is no room: the leader holds them back from Longhorn, not for ever, and not when they
are nothing any more; and all of its times are the API server's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from controller.allocator.verbs import place
from controller.clock import SystemClock
from controller.installation.gate import try_placement
from controller.installation.site import CheckTarget, Site
from controller.kube.api import ClientKubeApi
from tests.cluster.client import ApiError
from tests.e2e import hurried
from tests.e2e.conftest import DELAYS
from tests.e2e.harness import GATE_ACCOUNT, Cell, Scene
from tests.e2e.late_volumes import (
    HELD,
    WAIT_SECONDS,
    PlansSeen,
    copies,
    places,
    unplaced,
    wait_told,
    wait_unplaced,
)
from tests.e2e.placed import REPLICAS, add_class_of_now
from tests.e2e.programs import QUICK_LEASE, Controller
from tests.e2e.scheduling import NAMESPACE
from tests.judge.facts import OURS, is_leaders, writer_of
from tests.longhorn import paths
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MakeCell = Callable[..., Cell]
LEFT: Final = "scheduling.longhorn.io/left"
DISK_GIB: Final = 100
HELD_SECONDS: Final = 8  # instead of five minutes
SILENT_SECONDS: Final = 45  # after which the gate opens
NOW_WITHIN: Final = timedelta(minutes=5)  # however busy the machine is


@pytest.fixture
def start_leader(shared_scene: Scene) -> Iterator[Callable[..., Controller]]:
    """A function that starts the product with some of its times changed; it ends with the test."""
    shared_scene.longhorn.resume()
    shared_scene.stop_controllers()

    def start(*flags: str, **seconds: float) -> Controller:
        times = hurried.flags_of(place, **{"HOLD_AFTER_SECONDS": 1.0, **seconds})
        return shared_scene.start_controller(module=hurried.__name__, flags=(*times, *flags, *QUICK_LEASE))

    yield start
    shared_scene.stop_controllers()


def marks(scene: Scene, replica: str) -> dict[str, str]:
    found: dict[str, str] = scene.api.get(f"{REPLICAS}/{replica}")["metadata"].get("annotations") or {}
    return found


def wait_held(scene: Scene, replica: str) -> None:
    wait_until(lambda: HELD in marks(scene, replica), f"a mark of {replica}", WAIT_SECONDS)


@dataclass(frozen=True)
class Contest:
    """A disk that is planned for the claim `waits`, to its last byte, and a volume that finds no room beside that,
    though Longhorn sees some. `copy`: its Replica; `volume`, `planned`: the two volumes."""

    cell: Cell
    copy: str
    volume: str
    planned: str

    def give_way(self) -> None:
        """The planned volume comes after all, and goes."""
        self.cell.let_come("waits")
        self.cell.wait_ready(1, WAIT_SECONDS)
        assert places(self.cell.scene, self.planned)
        self.cell.kill("waits")
        self.cell.delete("persistentvolumeclaims", "waits")


@pytest.fixture
def contest(shared_scene: Scene, make_cell: MakeCell, plans: PlansSeen) -> Callable[[], Contest]:
    """A function that begins one."""

    def begin() -> Contest:
        cell = make_cell(nodes=1, disks_gib=(DISK_GIB,), fillers=0)
        planned = cell.claim("waits", DISK_GIB, late=True)
        cell.pod("waits", "waits")
        plans.wait(planned)
        volume = cell.claim("second", 80, add_class_of_now(cell))
        return Contest(cell, wait_unplaced(shared_scene, volume), volume, planned)

    return begin


def test_a_held_copy_that_longhorn_marks_failed_is_let_go_and_the_next_one_is_taken_as_new(
    shared_scene: Scene, start_leader: Callable[..., Controller], contest: Callable[[], Contest]
) -> None:
    """Somebody attaches the volume, in vain, and detaches it: what Longhorn marks then is gone for good."""
    start_leader()
    shared_scene.longhorn.resume(replace(DELAYS, finalize=10.0))  # what is deleted is to be seen for a while
    one = contest()
    volume = paths.longhorn("volumes", NAMESPACE, one.volume)
    shared_scene.api.patch(volume, {"spec": {"nodeID": one.cell.nodes[0]}})
    wait_held(shared_scene, one.copy)
    shared_scene.api.patch(volume, {"spec": {"nodeID": ""}})
    failed = {"spec": {"failedAt": "2026-01-01T00:00:00Z", "rebuildRetryCount": 5}}
    shared_scene.api.patch(f"{REPLICAS}/{one.copy}", failed)
    wait_until(lambda: HELD not in marks(shared_scene, one.copy), "a copy that is let go", WAIT_SECONDS)

    (following,) = wait_until(lambda: others(shared_scene, one), "the next copy", WAIT_SECONDS)
    wait_held(shared_scene, following)
    shared_scene.longhorn.resume()
    one.give_way()
    one.cell.pod("q", "second")
    one.cell.wait_pod_ready("q", WAIT_SECONDS)
    assert [following] == others(shared_scene, one)
    assert places(shared_scene, one.volume)


def placement_checks(scene: Scene) -> list[str]:
    """What `check` says of a placement by its caller, an administrator."""
    api = ClientKubeApi.load(str(scene.cluster.layout.kubeconfig("admin")))
    site = Site(api, SystemClock(), CheckTarget(NAMESPACE), lambda _: {})
    return [found.text for found in try_placement(site) if found.outcome == "ok"]


def others(scene: Scene, one: Contest) -> list[str]:
    """Replicas of the volume, but for the first one."""
    return [name for name in (copy["metadata"]["name"] for copy in copies(scene, one.volume)) if name != one.copy]


def test_a_copy_is_held_for_a_time_and_then_left_to_longhorn_which_places_it_where_it_sees_room(
    shared_scene: Scene, start_leader: Callable[..., Controller], contest: Callable[[], Contest]
) -> None:
    leader = start_leader(HOLD_SECONDS=HELD_SECONDS)
    one = contest()
    wait_held(shared_scene, one.copy)
    assert [f"a dry run that places {one.copy} is refused"] == placement_checks(shared_scene)
    wait_told(one.cell, "second", "LonghornNoPlace")

    wait_until(lambda: not unplaced(shared_scene, one.volume), "Longhorn's place", HELD_SECONDS + WAIT_SECONDS)
    (placed,) = copies(shared_scene, one.volume)
    assert LEFT in marks(shared_scene, one.copy)
    assert not is_leaders(writer_of(placed)[0])
    counters = ("holds_given_up_total", "left_placements_total", "foreign_placements_total")
    wait_until(lambda: [leader.counted(name) for name in counters] == [1, 1, 0], "what is counted", WAIT_SECONDS)
    wait_told(one.cell, "waits", "LonghornPlaceLost")

    one.cell.delete("persistentvolumeclaims", "second")
    one.give_way()


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_clock_of_the_leaders_machine_counts_nowhere(
    shared_scene: Scene, start_leader: Callable[..., Controller], contest: Callable[[], Contest], hours: int
) -> None:
    leader = start_leader("--clock-offset", str(hours * 3600))
    one = contest()
    with pytest.raises(ApiError) as refused:
        shared_scene.api.patch(f"{REPLICAS}/{one.copy}", {"spec": {"nodeID": one.cell.nodes[0]}})
    assert 403 == refused.value.status

    wait_held(shared_scene, one.copy)
    account = shared_scene.api.get(GATE_ACCOUNT)["metadata"]["annotations"]
    stamps = [marks(shared_scene, one.copy)[HELD], *(account[f"{OURS}{name}"] for name in ("since", "renewed"))]
    wrong = [stamp for stamp in stamps if abs(datetime.fromisoformat(stamp) - datetime.now(UTC)) > NOW_WITHIN]
    assert [] == wrong
    tries = tries_of(leader, one.copy)
    wait_until(lambda: tries_of(leader, one.copy) > tries, "another look at it", WAIT_SECONDS)

    one.give_way()
    wait_until(lambda: places(shared_scene, one.volume), "the leader's place", WAIT_SECONDS)
    wait_until(lambda: leader.status()["placement_gate"]["state"] == "enforced", "a gate that is proven", WAIT_SECONDS)


def tries_of(leader: Controller, replica: str) -> int:
    """How often it found no room for that copy."""
    shown = leader.status()["placement"]["replicas"]
    return max(
        (int(one["tries"]) for one in shown if one["replica"] == replica and one["reason"] == "no-room"), default=0
    )


@pytest.mark.long
@pytest.mark.parametrize("hours", [-1, 1])
def test_nothing_stays_held_after_a_leader_whose_clock_is_wrong_has_died(
    shared_scene: Scene, start_leader: Callable[..., Controller], contest: Callable[[], Contest], hours: int
) -> None:
    leader = start_leader("--clock-offset", str(hours * 3600))
    one = contest()
    wait_held(shared_scene, one.copy)

    shared_scene.kill(leader)

    wait_until(lambda: not unplaced(shared_scene, one.volume), "Longhorn's place", SILENT_SECONDS + WAIT_SECONDS)
    assert not places(shared_scene, one.volume)
