"""The leader places every Replica, and the API server keeps everybody else from it. What counts is read from the API
server: who wrote a Replica's node, and what lies on each disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.client import ApiError
from tests.e2e import workloads
from tests.e2e.conftest import DELAYS
from tests.e2e.disk_site import QUICK_LEASE
from tests.e2e.harness import CLASSES, CONFIG_MAP, GATE_ACCOUNT, GATE_BINDING, STOCK_SCHEDULER, Cell, Scene, cells
from tests.e2e.late_volumes import claim_volume, wait_unplaced
from tests.e2e.manager_writes import made_object
from tests.e2e.neighbours import ForeignWebhook
from tests.e2e.placed import (
    REPLICAS,
    add_class_of_now,
    by_node,
    fills,
    gate_state,
    is_placed_by_leader,
    placers,
    replicas,
)
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.webhooks import VALIDATING
from tests.longhorn import paths
from tests.longhorn.longhorn import disk_uuid
from tests.longhorn.options import GIB, LonghornOptions
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

WAIT_SECONDS: Final = 120.0


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    # Longhorn makes no Replica while its figures show that no disk would take it: they are late.
    delays = replace(DELAYS, disk_figures=(5.0, 7.0))
    with Scene.start(LonghornOptions(delays=delays, retry_seconds=3.0)) as found:
        found.start_stock_scheduler()
        yield found


@pytest.fixture
def leader(scene: Scene) -> Iterator[Controller]:
    yield scene.start_controller(flags=QUICK_LEASE)
    scene.stop_controllers()


@pytest.fixture
def make_cell(scene: Scene) -> Iterator[Callable[..., Cell]]:
    with cells(scene, "places", fillers=0) as make:
        yield make


def add_classes(cell: Cell) -> dict[str, str]:
    """Classes of further kinds on the cell's disks, by name."""
    kinds = {"three": ("disabled", 3), "near": ("best-effort", 2), "strict": ("strict-local", 1)}
    for name, (locality, copies) in kinds.items():
        made = workloads.storage_class(
            f"{cell.class_name}-{name}", locality=locality, replicas=copies, node_selector=cell.name
        )
        cell.scene.api.create(CLASSES, made)
    return {name: f"{cell.class_name}-{name}" for name in kinds}


def test_the_leader_places_all_kinds_of_volumes_whether_or_not_their_pods_asked(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    cell = make_cell(disks_gib=(400, 400))
    classes = add_classes(cell)
    for number, class_name in enumerate(("", *classes.values())):
        for asked, scheduler in ((True, "default-scheduler"), (False, STOCK_SCHEDULER)):
            workload = workloads.stateful_set(
                f"w{number}{'a' if asked else 'b'}",
                class_name or cell.class_name,
                replicas=2,
                gib=40,
                opted_in=asked,
                selector=cell.selector,
                scheduler=scheduler,
            )
            cell.create("statefulsets", workload)

    cell.wait_ready(16, WAIT_SECONDS)

    wait_until(lambda: placers(scene)["leader"] >= 28, "all copies placed", WAIT_SECONDS)
    assert {"leader"} == set(placers(scene))
    assert all(taken <= 400 for taken in fills(scene).values())
    wait_until(lambda: gate_state(leader) == "enforced", "a gate that is proven", WAIT_SECONDS)
    wait_until(lambda: leader.status()["plans"]["plans"] == 0, "no plan that is left", 30.0)


def waiting_copy(scene: Scene, cell: Cell, name: str, gib: int) -> str:
    """A Replica that finds no room, of a claim that needs no pod; its name."""
    return wait_unplaced(scene, claim_volume(cell, name, f"{cell.class_name}-now", gib))


def full_node(scene: Scene, make_cell: Callable[..., Cell]) -> Cell:
    """One node of 100 GiB, of which a claim "first" has 80."""
    cell = make_cell(nodes=1, disks_gib=(100,))
    add_class_of_now(cell)
    cell.create("persistentvolumeclaims", workloads.claim("first", f"{cell.class_name}-now", 80))
    wait_until(lambda: 80 in fills(scene).values(), "the first copy", 60.0)
    return cell


def told_of_place(cell: Cell) -> dict[str, str]:
    """What is told in the cell's namespace because no disk takes a copy, by the kind that it is told of."""
    events = cell.scene.api.list(cell.path("events"))["items"]
    told = [one for one in events if one["reason"] == "LonghornNoPlace"]
    return {one["involvedObject"]["kind"]: one["message"] for one in told}


def reasons(leader: Controller, name: str) -> dict[str, int]:
    """Why no disk takes that Replica, as the status document has it."""
    waiting = leader.status()["placement"]["replicas"]
    return next((dict(one.get("reasons", {})) for one in waiting if one["replica"] == name), {})


def replica(scene: Scene, name: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.api.get(f"{REPLICAS}/{name}")
    return found


def test_a_copy_without_room_is_nobodys_until_room_comes_and_its_claim_and_pod_say_why(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    cell = full_node(scene, make_cell)
    cell.pod("user", "second", opted_in=False)
    name = waiting_copy(scene, cell, "second", 80)

    with pytest.raises(ApiError) as refused:
        scene.api.patch(f"{REPLICAS}/{name}", {"spec": {"nodeID": cell.nodes[0]}})
    assert 403 == refused.value.status
    held = "scheduling.longhorn.io/held"
    wait_until(lambda: held in (replica(scene, name)["metadata"].get("annotations") or {}), "its mark", 30.0)
    owners = {"PersistentVolumeClaim", "Pod"}
    wait_until(lambda: owners == told_of_place(cell).keys(), "Events of its claim and pod", 30.0)
    assert all("1 disk InsufficientStorage (" in text for text in told_of_place(cell).values()), told_of_place(cell)
    assert 1 == reasons(leader, name).get("InsufficientStorage")

    cell.delete("persistentvolumeclaims", "first")
    placed = wait_until(lambda: replica(scene, name)["spec"].get("nodeID"), "a place", 15.0)

    assert (cell.nodes[0], True) == (placed, is_placed_by_leader(replica(scene, name)))
    assert held not in (replica(scene, name)["metadata"].get("annotations") or {})


def test_a_copy_without_room_that_is_deleted_leaves_nothing_behind(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    cell = full_node(scene, make_cell)
    name = waiting_copy(scene, cell, "second", 80)

    cell.delete("persistentvolumeclaims", "second")

    wait_until(lambda: scene.api.get_or_none(f"{REPLICAS}/{name}") is None, "its end", 30.0)
    wait_until(lambda: leader.status()["placement"]["waiting"] == {}, "nothing that waits", 10.0)


def test_placing_goes_on_while_longhorn_stands_still_and_nothing_is_placed_twice(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    cell = make_cell(disks_gib=(400,))
    cell.stateful_set(replicas=8, gib=100)
    wait_until(lambda: len(replicas(scene)) >= 2, "the first copies", WAIT_SECONDS)

    scene.longhorn.pause()
    wait_until(lambda: all(one["spec"].get("nodeID") for one in replicas(scene)), "places of all of them", 30.0)
    scene.longhorn.resume()

    cell.wait_ready(8, WAIT_SECONDS)
    assert {"leader"} == set(placers(scene))


def test_longhorn_that_is_killed_in_a_burst_goes_on_from_the_places_that_it_finds(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    cell = make_cell(disks_gib=(400,))
    cell.stateful_set(replicas=16, gib=100)
    wait_until(lambda: placers(scene)["leader"] >= 4, "the first places", WAIT_SECONDS)

    scene.longhorn.pause(kill=True)
    scene.longhorn.resume()

    assert_full(scene, cell)


@contextmanager
def replica_webhook_away(scene: Scene, folder: Path) -> Iterator[None]:
    """Longhorn's own webhook is asked about each write of a Replica without a node, and does not answer."""
    rule = {"operations": ["UPDATE"], "apiGroups": [paths.GROUP], "apiVersions": ["*"], "resources": ["replicas"]}
    unplaced = {"matchLabels": {"longhornnode": ""}}
    with ForeignWebhook(
        scene.api,
        folder,
        "longhorn-webhook-replicas",
        lambda *_: None,
        collection=VALIDATING,
        operation="UPDATE",
        resource="replicas",
        rules=[rule],
        objectSelector=unplaced,
    ):
        yield


def test_while_longhorns_webhook_is_away_nobody_places_and_afterwards_every_disk_is_filled_exactly(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell], tmp_path: Path
) -> None:
    """Eight of twelve fit."""
    cell = make_cell(disks_gib=(250,))
    add_class_of_now(cell)

    def told() -> dict[str, Any]:
        found: dict[str, Any] = leader.status()["placement"]
        return found

    with replica_webhook_away(scene, tmp_path):
        for number in range(12):
            cell.create("persistentvolumeclaims", workloads.claim(f"now-{number}", f"{cell.class_name}-now", 100))
        wait_until(lambda: told()["outcomes"]["failed"] >= 8, "writes that failed", WAIT_SECONDS)
        assert {} == fills(scene)

    wait_until(lambda: by_node(cell) == dict.fromkeys(cell.nodes, 200), "two volumes on each disk", WAIT_SECONDS)
    wait_until(lambda: (told()["waiting"], told()["writing"]) == ({"no-room": 4}, 0), "four that wait", WAIT_SECONDS)
    assert dict.fromkeys(cell.nodes, 200) == by_node(cell)


def fill(scene: Scene, make_cell: Callable[..., Cell], first: int) -> tuple[Cell, Controller]:
    """Sixteen volumes that fill four disks, and a second copy of the product; once so many of them have a place."""
    cell = make_cell(disks_gib=(400,))
    other = scene.launch_controller(flags=QUICK_LEASE)
    wait_until(other.answers_ready, "a second copy that is ready", WAIT_SECONDS)
    cell.stateful_set(replicas=16, gib=100)
    wait_until(lambda: placers(scene)["leader"] >= first, "the first places", WAIT_SECONDS)
    return cell, other


def assert_full(scene: Scene, cell: Cell) -> None:
    """All sixteen run, on disks that are exactly full, by places that a leader gave."""
    cell.wait_ready(16, WAIT_SECONDS)
    assert {"leader"} == set(placers(scene))
    assert {400} == set(fills(scene).values())


def test_a_leader_that_is_killed_is_followed_by_one_that_places_on(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    cell, _ = fill(scene, make_cell, 4)

    scene.kill(leader)

    assert_full(scene, cell)


def test_a_leader_that_was_suspended_places_nothing_of_its_former_term(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    cell, other = fill(scene, make_cell, 2)

    leader.freeze()
    wait_until(lambda: bool(other.status()["is_leading"]), "another leader", WAIT_SECONDS)
    leader.thaw()

    assert_full(scene, cell)


def test_volumes_that_nobody_asked_about_fill_every_disk_exactly_and_the_rest_waits(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    """Twelve at once, of which eight fit."""
    cell = make_cell(disks_gib=(250,))
    add_class_of_now(cell)
    for number in range(12):
        made = workloads.claim(f"now-{number}", f"{cell.class_name}-now", 100)
        cell.create("persistentvolumeclaims", made)
    full = dict.fromkeys(cell.nodes, 200)

    wait_until(lambda: by_node(cell) == full, "two volumes on each disk", WAIT_SECONDS)
    wait_until(lambda: leader.status()["placement"]["waiting"].get("no-room") == 4, "four that wait", 30.0)
    assert {"leader"} == set(placers(scene))


def add_image(cell: Cell, gib: int) -> str:
    """A backing image with a copy on the cell's first node, and two classes of volumes that are made on it: one whose
    pods are asked about, and `...-now`. Its name is theirs."""
    name = f"{cell.class_name}-image"
    made = made_object("BackingImage", name, {"diskFileSpecMap": {disk_uuid(cell.nodes[0], "disk1"): {}}})
    path = paths.longhorn("backingimages", NAMESPACE)
    stored = cell.scene.api.create(path, made)
    stored["status"] = {"realSize": gib * GIB, "size": gib * GIB}
    cell.scene.api.replace(f"{path}/{name}/status", stored)
    options: dict[str, Any] = {"node_selector": cell.name, "parameters": {"backingImage": name}}
    now = workloads.storage_class(f"{name}-now", locality="disabled", binding="Immediate", **options)
    for one in (workloads.storage_class(name, **options), now):
        cell.scene.api.create(CLASSES, one)
    return name


@pytest.mark.parametrize(("image_gib", "on_each"), [(50, 2), (60, 1)])
def test_volumes_on_a_backing_image_fill_exactly_what_its_copies_leave(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell], image_gib: int, on_each: int
) -> None:
    """Twelve at once on disks of 250 GiB, half of them for pods that ask. Each disk gets one copy, and pays for it
    once."""
    cell = make_cell(disks_gib=(250,))
    image = add_image(cell, image_gib)
    claims = [workloads.claim(f"now-{number}", f"{image}-now") for number in range(6)]
    pods = workloads.stateful_set("asked", image, replicas=6, selector=cell.selector)
    with ThreadPoolExecutor(7) as pool:
        asked = pool.submit(cell.create, "statefulsets", pods)
        list(pool.map(lambda made: cell.create("persistentvolumeclaims", made), claims))
    asked.result()
    full = dict.fromkeys(cell.nodes, 100 * on_each)

    def left_over() -> int:
        return len(cell.refused()) + int(leader.status()["placement"]["waiting"].get("no-room", 0))

    wait_until(lambda: by_node(cell) == full, f"{on_each} volumes on each disk", WAIT_SECONDS)
    wait_until(lambda: left_over() == 12 - 4 * on_each, "all others told to wait", WAIT_SECONDS)
    path, uuids = paths.longhorn("backingimages", NAMESPACE, image), {disk_uuid(node, "disk1") for node in cell.nodes}
    wait_until(lambda: set(scene.api.get(path)["spec"]["diskFileSpecMap"]) == uuids, "a copy on each disk", 30.0)
    assert (full, {"leader"}) == (by_node(cell), set(placers(scene)))


def test_longhorn_goes_on_alone_once_everything_of_ours_is_gone_for_good(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    cell = make_cell(disks_gib=(400,))
    cell.stateful_set("asked", replicas=4, gib=40)
    cell.stateful_set("free", replicas=4, gib=40, opted_in=False, scheduler=STOCK_SCHEDULER)
    cell.wait_bound(4, WAIT_SECONDS)

    scene.kill(leader)

    bound = {pod["metadata"]["name"] for pod in cell.bound()}
    free = {f"free-{number}" for number in range(4)}
    for name in sorted(bound | free):
        cell.wait_pod_ready(name, WAIT_SECONDS)


def test_the_gates_binding_is_made_again_and_its_stamps_too(
    scene: Scene, leader: Controller, make_cell: Callable[..., Cell]
) -> None:
    cell = make_cell(disks_gib=(400,))
    cell.stateful_set(replicas=1, gib=40)
    cell.wait_ready(1, WAIT_SECONDS)
    wait_until(lambda: gate_state(leader) == "enforced", "a gate that is proven", WAIT_SECONDS)

    scene.api.delete(GATE_BINDING)
    wait_until(lambda: scene.api.get_or_none(GATE_BINDING) is not None, "the binding again", 5.0)

    scene.api.patch(
        GATE_ACCOUNT, {"metadata": {"annotations": {"scheduling.longhorn.io/renewed": "2031-01-01T00:00:00Z"}}}
    )
    wait_until(
        lambda: scene.api.get(GATE_ACCOUNT)["metadata"]["annotations"]["scheduling.longhorn.io/renewed"] < "2031",
        "stamps of the leader",
        10.0,
    )


@pytest.mark.parametrize("settings", [{"bypass": "true"}, {"placement": "longhorn"}, {"placement": "audit"}], ids=str)
def test_the_gate_is_opened_by_a_setting_within_two_seconds_and_closed_again(
    scene: Scene, leader: Controller, settings: dict[str, str]
) -> None:
    wait_until(lambda: scene.api.get_or_none(GATE_BINDING) is not None, "the binding", 30.0)

    def refuses() -> bool:
        found = scene.api.get_or_none(GATE_BINDING)
        return found is not None and found["spec"]["validationActions"] == ["Deny"]

    scene.api.patch(CONFIG_MAP, {"data": {f"scheduler-extender-{key}": value for key, value in settings.items()}})
    wait_until(lambda: not refuses(), "an open gate", 3.0)
    scene.api.patch(CONFIG_MAP, {"data": {f"scheduler-extender-{key}": None for key in settings}})
    wait_until(refuses, "a gate that refuses", 10.0)
