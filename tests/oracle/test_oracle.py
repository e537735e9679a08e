"""The product decides as the tests' own rules for Longhorn do, and a product that does not would be found out."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.plan.complaints import Notes
from controller.plan.input import decode_document
from controller.rules.expandable import Route
from controller.rules.growth import Prospect, plan_expansion
from tests.longhorn import expansion
from tests.longhorn.placement import space_problem
from tests.longhorn.plan import read
from tests.longhorn_rules.objects import conditions
from tests.oracle.compare import Answer, Answerer, ask_product, ask_reference, differences
from tests.oracle.coverage import TRIES, cover, names
from tests.oracle.limits import near_limits
from tests.oracle.mix import world_of
from tests.oracle.reasons import longhorn_reason
from tests.oracle.rules import SOFT
from tests.oracle.run import run
from tests.oracle.shrink import shrink
from tests.oracle.worlds import NOW, VOLUME, Document

SEED = 20260501
WORLDS = 2000
OTHER_SEED = 7


def test_the_product_agrees_in_thousands_of_worlds_and_everything_decides_some_of_them() -> None:
    result = run(SEED, range(WORLDS), most=2)
    assert [] == [str(found) for found in result.disagreements.values()]
    assert (result.worlds, result.disagreeing) == (WORLDS, 0)
    assert [] == [name for name in names() if not result.counts[name]]
    decided = [("try", name) for name in TRIES] + [("soft flag", name) for name in SOFT]
    assert [] == [name for name in decided if result.counts[name] < 0.003 * WORLDS]
    assert result.counts["worlds", "within a byte of a limit"] >= 0.3 * WORLDS


def test_a_seed_and_an_index_are_one_world() -> None:
    for index in range(20):
        assert world_of(OTHER_SEED, index).document() == world_of(OTHER_SEED, index).document()
    assert world_of(OTHER_SEED, 1).document() != world_of(OTHER_SEED + 1, 1).document()


def test_asking_and_covering_leave_a_world_as_it_was() -> None:
    for index in range(200):
        world = world_of(OTHER_SEED, index)
        document = world.document()
        before = copy.deepcopy(document)
        if "error" in ask_reference(document):
            continue
        cover(world, read(document))
        differences(document)
        assert before == document


def test_a_larger_volume_object_is_judged_as_by_longhorns_webhook_for_volumes_alone() -> None:
    """The planner answers for claims; the other way into Longhorn is asked of the rules themselves."""
    verdicts: Counter[str] = Counter()
    differing = 0
    for index in range(WORLDS // 2):
        document = world_of(SEED, index).document()
        if "expand" not in document["question"] or "error" in ask_reference(document):
            continue
        question, decoded = read(document), decode_document(document, NOW, Notes(is_lenient=True))
        size, volume = question.details["size"], decoded.objects.volumes[VOLUME]
        own = [replica for replica in decoded.objects.replicas.values() if replica.volume == VOLUME]
        settings, nodes = decoded.settings, decoded.objects.nodes
        plan = plan_expansion(nodes, volume, own, size, settings.space, settings.behaviour, Route.VOLUME)
        expected = expansion.check_expansion(question.state, question.volume, size, by_webhook=True)
        assert expansion.verdict(expected) == plan.prospect, index
        of_volume = {longhorn_reason(entry.rejection.reason) for entry in plan.obstructions if not entry.node}
        assert {entry.reason for entry in expected if not entry.node} == of_volume, index
        verdicts[plan.prospect] += 1
        differing += plan.prospect != ask_product(document)["verdict"]
    assert set(Prospect) == verdicts.keys()
    assert differing > 20


# Products that are wrong


def asked_about(change: Callable[[dict[str, Any]], None]) -> Answerer:
    """A product that answers another question than was asked."""

    def answer(document: Document) -> Answer:
        changed = copy.deepcopy(document)
        change(changed)
        return ask_product(changed)

    return answer


def disks_of(document: Document) -> Iterator[dict[str, Any]]:
    for raw in document["objects"]:
        if raw["kind"] == "Node":
            yield from (raw.get("status", {}).get("diskStatus") or {}).values()


def less_by_one_byte(document: Document) -> None:
    """`<` for `<=` in the over-provisioning formula: a byte more has to fit."""
    for disk in disks_of(document):
        disk["storageScheduled"] = min(disk.get("storageScheduled", 0) + 1, 2**63 - 1)


def not_strictly_more(document: Document) -> None:
    """`>=` for `>` in the formula of minimal available space."""
    for disk in disks_of(document):
        if disk.get("storageAvailable", 0) > 0:
            disk["storageAvailable"] += 1


def ignoring(kind: str, field: str) -> Answerer:
    def change(document: Document) -> None:
        for raw in document["objects"]:
            if raw["kind"] == kind:
                raw["spec"].pop(field, None)

    return asked_about(change)


def conditions_ignored(document: Document) -> None:
    for disk in disks_of(document):
        disk["conditions"] = conditions(Schedulable="True")


def tries_swapped(document: Document) -> None:
    """Prefers a used zone's nodes to those of an unused one: the zones are all taken for the same."""
    for raw in document["objects"]:
        if raw["kind"] == "Node":
            raw["status"]["zone"] = "one"


def last_candidate_lost(document: Document) -> Answer:
    answer = ask_product(document)
    for step in answer.get("steps", ()):
        if len(step["candidates"]) > 3:
            step["candidates"].pop()
    return answer


def says_yes(document: Document) -> Answer:
    answer = ask_product(document)
    return {**answer, "admitted": True} if "admitted" in answer else answer


def granule_too_many(document: Document) -> Answer:
    answer = ask_product(document)
    return {**answer, "largestSize": answer["largestSize"] + 2**21} if "admitted" in answer else answer


def never_says_never(document: Document) -> Answer:
    answer = ask_product(document)
    return {**answer, "verdict": "no-room"} if answer.get("verdict") == "never" else answer


def stateless(field: str) -> Answerer:
    """A product that passes over a part of the volume's status."""

    def change(document: Document) -> None:
        for raw in document["objects"]:
            if raw["kind"] == "Volume":
                raw["status"].pop(field, None)

    return asked_about(change)


def crashes(document: Document) -> Answer:
    raise KeyError("status")


WRONG: dict[str, Answerer] = {
    "less instead of at most": asked_about(less_by_one_byte),
    "at least instead of more": asked_about(not_strictly_more),
    "ignores the node flag": ignoring("Volume", "replicaSoftAntiAffinity"),
    "ignores the zone flag": ignoring("Volume", "replicaZoneSoftAntiAffinity"),
    "ignores the disk flag": ignoring("Volume", "replicaDiskSoftAntiAffinity"),
    "ignores auto-balance": ignoring("Volume", "replicaAutoBalance"),
    "ignores the topology": ignoring("Volume", "topologyRequirement"),
    "ignores the retries": ignoring("Replica", "rebuildRetryCount"),
    "ignores a disk's condition": asked_about(conditions_ignored),
    "swaps the tries": asked_about(tries_swapped),
    "loses a candidate": last_candidate_lost,
    "admits every growth": says_yes,
    "promises too large a size": granule_too_many,
    "never says never": never_says_never,
    "ignores a restore": stateless("restoreRequired"),
    "ignores the volume's state": stateless("state"),
    "ignores the clone's state": stateless("cloneStatus"),
    "crashes": crashes,
}


@pytest.mark.parametrize("product", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_product_is_caught(product: Answerer) -> None:
    for index in range(1500):
        document = world_of(OTHER_SEED, index).document()
        if differences(document, product) and not differences(document):
            return
    pytest.fail("no world tells it from a right one")


def test_the_smallest_world_still_shows_the_mistake_and_little_else() -> None:
    wrong = WRONG["at least instead of more"]

    def shows(document: Document) -> bool:
        return any("candidates: " in line for line in differences(document, wrong)) and not differences(document)

    found = next(document for index in range(1500) if shows(document := world_of(OTHER_SEED, index).document()))
    before = copy.deepcopy(found)
    smallest = shrink(found, shows)
    assert found == before
    assert shows(smallest)
    assert ["Node", "Replica", "Volume"] == sorted(raw["kind"] for raw in smallest["objects"])
    (node,) = (raw for raw in smallest["objects"] if raw["kind"] == "Node")
    assert 1 == len(node["status"]["diskStatus"]) == len(node["spec"]["disks"])
    assert shrink(found, lambda _: True, questions=0) is found


def test_worlds_next_to_a_limit_are_next_to_it() -> None:
    """By a second look: two bytes more or less of the one figure turn the formula round."""
    turned = 0
    for index in range(400):
        world = world_of(OTHER_SEED, index)
        document = world.document()
        if not world.asked or "error" in ask_reference(document) or "over-provisioning" not in near_limits(world):
            continue
        state = read(document).state
        for _, _, spec, status in world.disks():
            verdicts = []
            for off in (-2, 2):
                moved = {**status, "storageScheduled": status.get("storageScheduled", 0) + off}
                verdicts.append(space_problem(state, spec, moved, world.size, 0, 0) is None)
            turned += verdicts == [True, False]
    assert turned > 20
