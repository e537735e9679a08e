"""The disk that is chosen: Longhorn's candidates and order of tries, and which of them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from controller.allocator.choose.choose import Chooser, Chosen
from controller.allocator.choose.explain import Explained, explain
from controller.allocator.choose.wanted import NothingTaken, Wanted, replica_to_come, view_of
from controller.allocator.world.world import World
from controller.model.longhorn import BackingImage, LonghornNode
from controller.model.places import Place
from controller.plan.complaints import InputError, Notes
from controller.plan.input import decode_document
from controller.plan.objects import world_of
from controller.rules.affinity import Try
from controller.rules.preference import prefer_attach_node, preferred
from tests.fakes.builders import disk, node, replica
from tests.fakes.rooms import OPEN
from tests.longhorn import placement, preference
from tests.longhorn.plan import read
from tests.oracle.mix import world_of as oracle_world
from tests.oracle.worlds import NOW, VOLUME, Document
from tests.unit.choose.random_worlds import (
    GIB,
    TakenOf,
    asked,
    change,
    has_overflow,
    questions,
    wanted_in,
    world_with,
    worlds,
)

SEED: Final = 20261126
WORLDS: Final = 1200
TRY_OF_LONGHORN: Final = {
    "1": Try.NEW_ZONE,
    "2a": Try.EVICTING_ZONE,
    "2b unused": Try.NEW_NODE,
    "2b evicting": Try.EVICTING_NODE,
    "2c unused": Try.NEW_NODE_SOFT,
    "2c used": Try.USED_NODE,
}


NOTHING: Final = NothingTaken()


# Longhorn's own rules, as the oracle has them


def told_at_once(document: Document) -> Document:
    """The same, where all figures are up to date but for the volume's own replicas, which its scheduler adds; a copy of
    a backing image has no bytes; and a strict-local volume's replica is bound, as when Longhorn looks for its disk."""
    volumes = (raw for raw in document["objects"] if raw["kind"] == "Volume")
    spec = next(raw["spec"] for raw in volumes if raw["metadata"]["name"] == VOLUME)
    replicas = [raw for raw in document["objects"] if raw["kind"] == "Replica"]
    disks = {
        status["diskUUID"]: status
        for raw in document["objects"]
        if raw["kind"] == "Node"
        for status in (raw.get("status", {}).get("diskStatus") or {}).values()
        if status.get("diskUUID")
    }
    for raw in replicas:
        name, size = raw["metadata"]["name"], int(raw["spec"].get("volumeSize") or 0)
        status = disks.get(raw["spec"].get("diskID") or "")
        listed = (status or {}).get("scheduledReplica") or {}
        if status is not None and (name in listed or raw["spec"].get("volumeName") != VOLUME):
            status["scheduledReplica"] = {**listed, name: size}
        if not raw["spec"].get("nodeID") and spec.get("dataLocality") == "strict-local" and spec.get("nodeID"):
            raw["spec"]["hardNodeAffinity"] = spec["nodeID"]
    for raw in document["objects"]:
        if raw["kind"] == "BackingImage":
            raw.setdefault("status", {})["realSize"] = 0
    return document


def test_without_anything_taken_candidates_and_try_are_longhorns() -> None:
    decided: Counter[str] = Counter()
    for index in range(WORLDS):
        document = oracle_world(SEED, index).document()
        if "schedule" not in document["question"] or not document["question"]["schedule"]["replicas"]:
            continue
        try:
            read(document), decode_document(document, NOW, Notes(is_lenient=True))
        except InputError:
            continue
        document = told_at_once(document)
        question, decoded = read(document), decode_document(document, NOW, Notes(is_lenient=True))
        world = world_of(decoded.objects, decoded.settings)
        name = document["question"]["schedule"]["replicas"][0]
        raw = next((one for one in question.state.replicas if one["metadata"]["name"] == name), None)
        if raw is None or has_overflow(world) or raw["spec"].get("nodeID"):
            continue
        if raw["spec"].get("failedAt") and not raw["spec"].get("healthyAt"):
            expected = placement.SearchAnswer([], [])
        else:
            expected = placement.find_candidates(question.state, question.volume, raw)
        wanted = Wanted(world.volumes[VOLUME], world.replicas_of(VOLUME)[name])
        told = explain(wanted, world, NOTHING, NOW).found
        assert [places(one) for one in expected.candidates] == [places(one) for one in told.candidates], index
        found = Chooser(world).choose(wanted, NOTHING, NOW)
        tried = TRY_OF_LONGHORN.get(expected.attempt)
        assert (tried, tried) == (told.tried, found.tried), index
        near = {places(one) for one in preference.near(question.state, question.volume, expected.candidates)}
        assert place_of(found) in near if near else found == Chosen(), index
        decided[expected.attempt] += 1
    assert min(decided[name] for name in TRY_OF_LONGHORN) >= 5, decided


def places(one: Any) -> tuple[str, str, str]:
    return one.node, one.disk, one.uuid


def place_of(found: Chosen) -> tuple[str, str, str] | None:
    return None if found.place is None else (found.place.node, found.disk, found.place.disk_uuid)


# Which of the candidates: by a second look at all of them


class _Candidate(NamedTuple):
    """With `left_bytes` beside the backing image, and `score`, the higher the better, its node's before its own."""

    names: tuple[str, str, str]
    left_bytes: int
    is_nearly_full: bool
    usable_bytes: int
    score: tuple[int, ...]


def candidates(world: World, wanted: Wanted, taken: Any) -> tuple[list[_Candidate], Explained]:
    told = explain(wanted, world, taken, NOW)
    behaviour = world.settings.behaviour
    siblings = [*world.replicas_of(wanted.volume.name).values()]
    siblings += [replace(replica_to_come(wanted.volume), node=one.node) for one in wanted.planned]
    rows = []
    for one in prefer_attach_node(told.found.candidates, wanted.volume, siblings, behaviour):
        known = told.figures[one.node, one.disk]
        facts = next(disk for disk in world.nodes[one.node].disks if disk.name == one.disk)
        spare = facts.available_bytes - facts.reserved_bytes
        usable = max(0, spare - (known.limit_bytes - known.free_bytes))
        rows.append((one, known, usable, spare - known.taken_bytes))
    found = []
    for one, known, usable, spare in rows:
        here = [row for row in rows if row[0].node == one.node]
        score: tuple[int, ...] = sum(row[2] for row in here), sum(row[1].free_bytes for row in here)
        score = (*score, usable, known.free_bytes) if behaviour.picks_by_balance_score else (spare,)
        nearly_full = (known.limit_bytes - known.free_bytes) * 100 >= 85 * known.limit_bytes
        found.append(_Candidate(places(one), known.free_bytes - known.image_bytes, nearly_full, usable, score))
    return found, told


def expected_of(found: list[_Candidate]) -> tuple[str, str, str] | None:
    """The best score; where even that one is nearly full, the least left. Equal ones by their names."""
    if not found:
        return None
    best = min(found, key=lambda one: (tuple(-value for value in one.score), one.names))
    if best.is_nearly_full:
        best = min(found, key=lambda one: (one.left_bytes, one.names))
    return best.names


def test_beside_what_is_taken_it_is_the_best_of_what_the_whole_search_finds() -> None:
    seen: Counter[str] = Counter()
    for world, wanted, taken in questions(43, 400):
        beside = nearly_all(world, wanted.volume.size_bytes) if seen.total() % 3 == 0 else taken
        among, told = candidates(world, wanted, beside)
        found = Chooser(world).choose(wanted, beside, NOW)
        assert expected_of(among) == place_of(found)
        assert told.found.tried == found.tried
        assert told.found.refusals or told.found.candidates
        seen["found" if among else "none"] += 1
        seen["planned"] += bool(wanted.planned and among)
        seen["only"] += bool(wanted.only and among)
        seen["several"] += len(among) > 1
        seen["packed"] += bool(among) and all(one.is_nearly_full for one in among)
        seen[f"try {found.tried}"] += 1
    assert min(seen[name] for name in ("found", "none", "planned", "only", "several", "packed")) > 30, seen
    assert min(seen[f"try {one}"] for one in Try) > 0, seen


def nearly_all(world: World, but_bytes: int) -> TakenOf:
    """So much, and up to a GiB, is left of each disk that has it."""
    dice = random.Random(1)
    rooms = [room for name in world.nodes if (room := world.room(name)) is not None]
    free = {(room.name, disk.uuid): disk.free_bytes for room in rooms for disk in room.disks}
    return TakenOf({place: max(0, one - but_bytes - dice.randrange(GIB)) for place, one in free.items()})


def test_where_nothing_is_pending_it_is_the_disk_that_longhorn_prefers_after_any_change() -> None:
    """Where it prefers one, and there is room everywhere."""
    seen: Counter[str] = Counter()
    for dice, world, one in worlds(41, 250):
        chooser = Chooser(world)
        for _ in range(4):
            now_volume = world.volume(one.name)
            if has_overflow(world) or now_volume is None:
                break
            wanted = Wanted(now_volume, asked(dice, world, one))
            found = chooser.choose(wanted, NOTHING, NOW)
            view = view_of(world, wanted, NOW)
            among, _ = candidates(world, wanted, NOTHING)
            by_score = sorted(among, key=lambda one: one.score)
            is_unclear = len(among) > 1 and by_score[-1].score[::2] == by_score[-2].score[::2]
            is_clear = among and not is_unclear and by_score[-1].usable_bytes >= now_volume.size_bytes
            if is_clear and not by_score[-1].is_nearly_full and world.settings.behaviour.picks_by_balance_score:
                told = explain(wanted, world, NOTHING, NOW).found.candidates
                near = prefer_attach_node(told, now_volume, view.replicas, view.behaviour)
                best = preferred(near, shown(world), now_volume.size_bytes, view.behaviour)
                assert best is not None and places(best) == place_of(found)
                seen["preferred"] += 1
            elif not among:
                assert found.place is None
                seen["none"] += 1
            change(dice, world, one)
    assert min(seen.values()) > 60, seen


def shown(world: World) -> dict[str, LonghornNode]:
    """The nodes, their disks' figures as if they told all that lies there."""
    nodes = {}
    for name, one in world.nodes.items():
        room = world.room(name)
        known = {disk.name: disk.limit_bytes - disk.free_bytes for disk in room.disks} if room is not None else {}
        disks = (replace(disk, scheduled_bytes=known.get(disk.name, disk.scheduled_bytes)) for disk in one.disks)
        nodes[name] = replace(one, disks=tuple(disks))
    return nodes


# Small worlds


def node_of(found: Chosen) -> str:
    return "" if found.place is None else found.place.node


@pytest.mark.parametrize(("more", "node"), [(0, "n0"), (-1, "n1")])
def test_where_the_emptiest_disk_is_85_percent_in_use_or_taken_it_is_packed(more: int, node: str) -> None:
    world = world_with(100, 210)
    taken = TakenOf({("n1", "n1-d1"): 60 * GIB + more})
    assert node == node_of(Chooser(world).choose(wanted_in(world), taken))


def test_where_longhorn_leaves_it_to_chance_it_spreads_all_the_same() -> None:
    """More is promised than there is, so that nothing counts as usable."""
    over = replace(OPEN, space=replace(OPEN.space, over_provisioning_pct=300))
    world = World()
    world.put_settings(over)
    for name, used in (("n0", 1200), ("n1", 1100), ("n2", 1300)):
        listed = {"other": used * GIB}
        facts = replace(disk("d1", 1000, node=name), scheduled_bytes=used * GIB, scheduled_replicas=listed)
        world.put_node(name, node(name, facts))
    assert "n1" == node_of(Chooser(world).choose(wanted_in(world), NOTHING))


def test_what_is_compared_has_a_limit() -> None:
    """Among hundreds of nodes with something taken it is one of the best, and few are asked about."""
    world, looked = world_with(*(900 - number for number in range(300))), set()

    class LookedAt(NothingTaken):
        def taken_bytes(self, node: str, disk_uuid: str) -> int:
            looked.add(node)
            return 400 * GIB

    assert "n0" == node_of(Chooser(world).choose(wanted_in(world), LookedAt()))
    assert 64 == len(looked)


@pytest.mark.parametrize("missing", [0, 1])
def test_what_is_taken_counts_to_the_byte(missing: int) -> None:
    world = world_with(100)
    found = Chooser(world).choose(wanted_in(world, 40), TakenOf({("n0", "n0-d1"): 60 * GIB + missing}))
    assert (None if missing else Place("n0", "n0-d1", 40 * GIB)) == found.place


def test_a_planned_sibling_that_is_stored_meanwhile_counts_once() -> None:
    """Releases that burden a disk with all fresh copies of the node would count its bytes there twice."""
    soft = replace(OPEN, soft_anti_affinity=True, behaviour=replace(OPEN.behaviour, counts_fresh_per_node=True))
    world = World()
    world.put_settings(soft)
    world.put_node("n0", node("n0", disk("d1", 100, node="n0"), disk("d2", 25, node="n0")))
    wanted = replace(wanted_in(world), planned=(Place("n0", "n0-d1", 10 * GIB),))
    assert "d2" == Chooser(world).choose(wanted, NOTHING).disk
    world.put_replica("v-r-2", replica("v-r-2", "v", 10, on="n0"))
    assert "d2" == Chooser(world).choose(wanted, NOTHING).disk


def test_the_backing_image_is_part_of_the_place_where_it_comes_along() -> None:
    world = world_with(100)
    world.put_backing_image("i", BackingImage("i", real_size_bytes=60 * GIB))
    wanted = wanted_in(world, 40, backing_image="i")
    assert Place("n0", "n0-d1", 100 * GIB) == Chooser(world).choose(wanted, NOTHING).place
    assert Chosen() == Chooser(world).choose(wanted_in(world, 40.01, backing_image="i"), NOTHING)
    world.put_backing_image("i", BackingImage("i", real_size_bytes=60 * GIB, disk_uuids=frozenset({"n0-d1"})))
    assert Place("n0", "n0-d1", 40 * GIB) == Chooser(world).choose(wanted, NOTHING).place


def test_a_copy_that_brings_the_image_is_planned_there_already() -> None:
    soft = replace(OPEN, soft_anti_affinity=True)
    world = world_with(100, settings=soft)
    world.put_backing_image("i", BackingImage("i", real_size_bytes=40 * GIB))
    wanted = replace(wanted_in(world, 30, backing_image="i"), planned=(Place("n0", "n0-d1", 70 * GIB),))
    taken = TakenOf({("n0", "n0-d1"): 70 * GIB})
    assert Place("n0", "n0-d1", 30 * GIB) == Chooser(world).choose(wanted, taken).place


def test_what_would_fit_but_for_what_is_taken_says_so() -> None:
    world = world_with(100)
    told = explain(wanted_in(world, 40), world, TakenOf({("n0", "n0-d1"): 70 * GIB}))
    (refusal,) = told.found.refusals
    assert ("Contended", "d1") == (refusal.rejection.reason, refusal.disk)
    assert "70 GiB are promised to other volumes; 30 GiB are neither used nor promised" in refusal.rejection.message


@pytest.mark.parametrize("kinds", [1, 40])
def test_a_kind_of_need_that_was_not_asked_for_lately_is_up_to_date_all_the_same(kinds: int) -> None:
    for dice, world, one in worlds(47, 60):
        chooser, asked_for = Chooser(world), asked(dice, world, one)
        chooser.choose(Wanted(one, asked_for), NOTHING, NOW)
        for number in range(kinds):
            change(dice, world, one)
            other = replace(one, needs=replace(one.needs, disk_selector=(f"tag-{number}",)))
            chooser.choose(Wanted(other, asked_for), NOTHING, NOW)
        current = world.volumes[one.name]
        wanted = Wanted(current, world.replicas_of(one.name)[asked_for.name])
        assert Chooser(world).choose(wanted, NOTHING, NOW) == chooser.choose(wanted, NOTHING, NOW)
