"""The leader places every Replica, and the API server keeps everybody else from it. What counts is read from the API
server: who wrote a Replica's node, and what lies on each disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.client import ApiError
from tests.e2e import workloads
from tests.e2e.harness import STOCK_SCHEDULER, Cell, Scene
from tests.e2e.late_volumes import wait_unplaced
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
)
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.webhooks import VALIDATING
from tests.longhorn import paths
from tests.longhorn.longhorn import disk_uuid
from tests.longhorn.options import GIB
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

WAIT_SECONDS: Final = 120.0


@pytest.fixture
def scene(late_scene: Scene) -> Scene:
    return late_scene


def test_the_leader_places_all_kinds_of_volumes_whether_or_not_their_pods_asked(
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell]
) -> None:
    cell = make_bare_cell(disks_gib=(400, 400))
    kinds = ("disabled", 3), ("best-effort", 2), ("strict-local", 1)
    classes = [cell.add_class(locality=locality, replicas=copies) for locality, copies in kinds]
    for number, class_name in enumerate((cell.class_name, *classes)):
        for asked, scheduler in ((True, "default-scheduler"), (False, STOCK_SCHEDULER)):
            workload = workloads.stateful_set(
                f"w{number}{'a' if asked else 'b'}",
                class_name,
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
    return wait_unplaced(scene, cell.claim(name, gib, f"{cell.class_name}-now"))


def full_node(scene: Scene, make_bare_cell: Callable[..., Cell]) -> Cell:
    """One node of 100 GiB, of which a claim "first" has 80."""
    cell = make_bare_cell(nodes=1, disks_gib=(100,))
    cell.claim("first", 80, add_class_of_now(cell))
    wait_until(lambda: 80 in fills(scene).values(), "the first copy", 60.0)
    return cell


def told_of_place(cell: Cell) -> dict[str, str]:
    """What is told in the cell's namespace because no disk takes a copy, by the kind that it is told of."""
    return {one["involvedObject"]["kind"]: one["message"] for one in cell.events("LonghornNoPlace")}


def reasons(leader: Controller, name: str) -> dict[str, int]:
    """Why no disk takes that Replica, as the status document has it."""
    waiting = leader.status()["placement"]["replicas"]
    return next((dict(one.get("reasons", {})) for one in waiting if one["replica"] == name), {})


def replica(scene: Scene, name: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.api.get(f"{REPLICAS}/{name}")
    return found


def test_a_copy_without_room_is_nobodys_until_room_comes_and_its_claim_and_pod_say_why(
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell]
) -> None:
    cell = full_node(scene, make_bare_cell)
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
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell]
) -> None:
    cell = full_node(scene, make_bare_cell)
    name = waiting_copy(scene, cell, "second", 80)

    cell.delete("persistentvolumeclaims", "second")

    wait_until(lambda: scene.api.get_or_none(f"{REPLICAS}/{name}") is None, "its end", 30.0)
    wait_until(lambda: leader.status()["placement"]["waiting"] == {}, "nothing that waits", 10.0)


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
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell], tmp_path: Path
) -> None:
    """Eight of twelve fit."""
    cell = make_bare_cell(disks_gib=(250,))
    now = add_class_of_now(cell)

    def told() -> dict[str, Any]:
        found: dict[str, Any] = leader.status()["placement"]
        return found

    failed = told()["outcomes"]["failed"]
    with replica_webhook_away(scene, tmp_path):
        for number in range(12):
            cell.claim(f"now-{number}", class_name=now)
        wait_until(lambda: told()["outcomes"]["failed"] >= failed + 8, "writes that failed", WAIT_SECONDS)
        assert {} == fills(scene)

    wait_until(lambda: by_node(cell) == dict.fromkeys(cell.nodes, 200), "two volumes on each disk", WAIT_SECONDS)
    wait_until(lambda: (told()["waiting"], told()["writing"]) == ({"no-room": 4}, 0), "four that wait", WAIT_SECONDS)
    assert (dict.fromkeys(cell.nodes, 200), {"leader"}) == (by_node(cell), set(placers(scene)))


def add_image(cell: Cell, gib: int) -> tuple[str, str]:
    """A backing image with a copy on the cell's first node, and two classes of volumes that are made on it: one whose
    pods are asked about, and one whose volumes need no pod. The image is called as the first of them."""
    name = f"{cell.class_name}-image"
    made = made_object("BackingImage", name, {"diskFileSpecMap": {disk_uuid(cell.nodes[0], "disk1"): {}}})
    path = paths.longhorn("backingimages", NAMESPACE)
    stored = cell.scene.api.create(path, made)
    stored["status"] = {"realSize": gib * GIB, "size": gib * GIB}
    cell.scene.api.replace(f"{path}/{name}/status", stored)
    parameters = {"backingImage": name}
    now = cell.add_class("image-now", locality="disabled", binding="Immediate", parameters=parameters)
    return cell.add_class("image", parameters=parameters), now


@pytest.mark.parametrize(("image_gib", "on_each"), [(50, 2), (60, 1)])
def test_volumes_on_a_backing_image_fill_exactly_what_its_copies_leave(
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell], image_gib: int, on_each: int
) -> None:
    """Twelve at once on disks of 250 GiB, half of them for pods that ask. Each disk gets one copy, and pays for it
    once."""
    cell = make_bare_cell(disks_gib=(250,))
    image, now = add_image(cell, image_gib)
    pods = workloads.stateful_set("asked", image, replicas=6, selector=cell.selector)
    with ThreadPoolExecutor(7) as pool:
        asked = pool.submit(cell.create, "statefulsets", pods)
        list(pool.map(lambda number: cell.claim(f"now-{number}", class_name=now), range(6)))
    asked.result()
    full = dict.fromkeys(cell.nodes, 100 * on_each)

    def left_over() -> int:
        return len(cell.refused()) + int(leader.status()["placement"]["waiting"].get("no-room", 0))

    wait_until(lambda: by_node(cell) == full, f"{on_each} volumes on each disk", WAIT_SECONDS)
    wait_until(lambda: left_over() == 12 - 4 * on_each, "all others told to wait", WAIT_SECONDS)
    path, uuids = paths.longhorn("backingimages", NAMESPACE, image), {disk_uuid(node, "disk1") for node in cell.nodes}
    wait_until(lambda: set(scene.api.get(path)["spec"]["diskFileSpecMap"]) == uuids, "a copy on each disk", 30.0)
    assert (full, {"leader"}) == (by_node(cell), set(placers(scene)))
