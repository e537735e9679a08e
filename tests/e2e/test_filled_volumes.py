"""Volumes that Longhorn fills from a backup or from another volume, for pods that asked, on disks that are full to the
last byte once all of them are there.

Longhorn attaches such a volume to its owner first, which may be any node, and lets the pod have it once it is filled.
Its copies lie where they are planned nevertheless; only strict-local ones are Longhorn's to place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.e2e.conftest import DELAYS
from tests.e2e.filled_volumes import BLOCK_GIB, BLOCK_SOURCE, SIZE_GIB, SOURCE, V2, FilledCell, FilledKind, stored_plans
from tests.e2e.harness import Cell, Scene, cells
from tests.e2e.late_volumes import WAIT_SECONDS, PlansSeen, copies, places
from tests.e2e.placed import fills
from tests.judge.facts import copy_facts, is_leaders, writer_of
from tests.judge.judge import guilt
from tests.longhorn.longhorn import disk_uuid
from tests.longhorn.options import GIB
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

DISK_GIB: Final = 60
NOBODY: Final = "nobody"  # a scheduler that is served, and is not there
SOURCES: Final = ("restored", "cloned", "linked")
KINDS: Final = [
    FilledKind(of, where, count) for of in SOURCES for where in ("best-effort", "disabled") for count in (3, 1)
]
LINKED: Final = [kind for kind in KINDS if kind.filled == "linked"]
STRICT: Final = [FilledKind(of, "strict-local") for of in SOURCES]
LINKED_STRICT: Final = STRICT[-1]


# Longhorn's to place


def test_strict_local_volumes_are_longhorns_to_place_and_their_pods_follow_them(
    scene: Scene, make_cell: Callable[..., Cell], plans: PlansSeen
) -> None:
    """The test plays kube-scheduler: it chooses a node, and decides again once the PersistentVolume names another one.
    There is no other cell: its nodes might own the volumes."""
    cell, leader = make_cell(nodes=3, disks_gib=(DISK_GIB,), fillers=0), scene.controllers[-1]
    found = FilledCell(cell, plans)
    found.add_block_disks()
    found.add_sources()
    leader.wait_ledger_empty()
    chosen, owner, _ = cell.nodes
    for kind in STRICT:
        found.add_kind(kind, schedulerName=NOBODY)
        assert cell.nodes == cell.filter(str(kind)).passed
    assert [] == leader.status()["promises"]

    scene.longhorn.pause()
    found.make_linked(LINKED_STRICT, owner)
    for claim in map(str, STRICT):
        cell.select(claim, chosen)
    # Longhorn binds a PersistentVolume to its volume's node only while the volume is attached.
    scene.longhorn.resume(replace(DELAYS, provision=0.5, restore=5.0))
    for claim in map(str, STRICT):
        node = found.wait_bound_to(claim)
        found.wait_copies(claim, 1)
        assert {node} == {spot.node for spot in found.spots(claim)}
        wait_until(lambda: cell.filter(claim).passed == [node], f"{node} alone", WAIT_SECONDS)  # noqa: B023
        cell.bind(claim, node)
    cell.wait_ready(2 + len(STRICT), WAIT_SECONDS)

    assert owner == found.bound_to(str(LINKED_STRICT))
    assert found.spots(str(LINKED_STRICT)) <= found.spots(BLOCK_SOURCE)
    for claim in map(str, STRICT):
        (copy,) = copies(scene, found.volumes[claim])
        assert (True, False) == (copy_facts(copy).is_left, is_leaders(writer_of(copy)[0])), claim
        assert [] == found.planned(claim)
    leader.wait_ledger_empty()


# All others, at once


@pytest.fixture(scope="module")
def make_cells(shared_scene: Scene) -> Iterator[Callable[..., Cell]]:
    shared_scene.longhorn.resume()
    shared_scene.lead()
    with cells(shared_scene, "filled", fillers=0) as make:
        yield make


@pytest.fixture(scope="module")
def filled(shared_scene: Scene, make_cells: Callable[..., Cell], plans: PlansSeen) -> FilledCell:
    """One pod of each kind; one with a clone and a new volume; one whose backup is smaller than its claim; and so many
    others that all disks are planned to the last byte. Then Longhorn goes to work, on all of them at once."""
    found = FilledCell(make_cells(disks_gib=(DISK_GIB,)), plans)
    cell = found.cell
    found.add_block_disks()
    found.add_sources()
    plain, block = found.add_class("plain", FilledKind("")), found.add_class("block", FilledKind(""), V2)
    small = found.add_class("small", FilledKind(""), {"fromBackup": found.add_backup("small")})
    shared_scene.longhorn.pause()

    several, single = ([kind for kind in KINDS if kind.copies == count] for count in (3, 1))
    found.plan_kinds([*several, *(kind for kind in single if kind in LINKED)])
    found.add_claim("pair-clone", plain, SOURCE)
    found.add_claim("pair-new", plain)
    found.add_pod("pair", "pair-clone", "pair-new")
    found.add_claim("small", small, gib=2 * SIZE_GIB)
    found.add_pod("small", "small")
    for claim in ("pair-clone", "pair-new", "small"):
        found.wait_planned(claim, 1)
    found.plan_kinds([kind for kind in single if kind not in LINKED])
    for number in range(3):
        found.plan_new(f"plain-{number}", plain)
    for number in range(5):  # four of them lie where the source of linked clones has no copy
        found.plan_new(f"block-{number}", block)

    for kind in LINKED:
        found.make_linked(kind, next(node for node in cell.nodes if node != found.chosen_node(str(kind))))
    shared_scene.longhorn.resume()
    cell.wait_ready(len({*found.pods.values()}), WAIT_SECONDS)
    for kind in KINDS:
        found.wait_copies(str(kind), kind.copies)
    found.read_history()
    return found


@pytest.mark.parametrize("claim", [*map(str, KINDS), "pair-clone", "pair-new", "small"])
def test_copies_lie_where_they_were_planned_whatever_node_longhorn_attached_the_volume_to(
    filled: FilledCell, claim: str
) -> None:
    """And each of them was made once."""
    first, *later = filled.planned(claim)
    spots = filled.spots(claim)

    assert first == spots
    assert all(left <= spots for left in later)
    assert spots == places(filled.scene, filled.volumes[claim])
    assert len(spots) == len(filled.made[filled.volumes[claim]])
    if claim.startswith("linked"):
        assert spots <= filled.spots(BLOCK_SOURCE)


@pytest.mark.parametrize("claim", [*(str(one) for one in KINDS if one.locality == "best-effort"), "pair-clone"])
def test_a_best_effort_volume_has_a_copy_at_its_pods_node(filled: FilledCell, claim: str) -> None:
    assert filled.node_of(claim) in {spot.node for spot in filled.spots(claim)}
    assert filled.node_of(claim) == filled.volume(claim)["spec"]["nodeID"]


def test_longhorn_attached_every_volume_by_itself_first_and_some_of_them_elsewhere(filled: FilledCell) -> None:
    claims = [*map(str, KINDS), "pair-clone", "small"]
    nodes = {claim: list(filled.attached.get(filled.volumes[claim], ())) for claim in claims}

    assert [1] * len(claims) == [len(of) for of in nodes.values()], nodes
    elsewhere = {claim for claim, (node,) in nodes.items() if node != filled.node_of(claim)}
    assert {*map(str, LINKED)} < elsewhere, nodes


def test_what_a_claim_asks_for_beyond_its_backup_is_free_and_then_all_disks_are_full(filled: FilledCell) -> None:
    """And nothing is held or planned."""
    cell, leader = filled.cell, filled.scene.controllers[-1]
    claim = filled.scene.api.get(cell.path("persistentvolumeclaims", "small"))
    assert str(2 * SIZE_GIB * GIB) == claim["status"]["capacity"]["storage"]
    assert str(SIZE_GIB * GIB) == filled.volume("small")["spec"]["size"]
    leader.wait_ledger_empty()  # growth would stand there, too

    filled.add_claim("last", f"{cell.class_name}-plain")
    filled.add_pod("last", "last")
    cell.wait_pod_ready("last", WAIT_SECONDS)

    assert filled.node_of("small") == filled.node_of("last")
    full = {f"{node}/{disk_uuid(node, 'disk1')}": DISK_GIB for node in cell.nodes}
    full |= {f"{node}/{disk_uuid(node, 'disk2')}": BLOCK_GIB for node in cell.nodes}
    assert full == fills(filled.scene)
    leader.wait_ledger_empty()
    wait_until(lambda: not stored_plans(filled.scene), "the end of all stored plans", WAIT_SECONDS)
    findings = [one for one in guilt(filled.scene.findings()) if one.spot and one.spot.node in cell.nodes]
    assert [] == list(map(str, findings))
