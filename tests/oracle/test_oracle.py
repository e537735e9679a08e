"""The product decides as the tests' own rules for Longhorn do, and a product that does not would be found out."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from controller.plan.complaints import Notes
from controller.plan.input import decode_document
from controller.rules.expandable import Route
from controller.rules.growth import Prospect, plan_expansion
from tests.longhorn import expansion
from tests.longhorn.plan import read
from tests.longhorn_rules.objects import conditions
from tests.oracle.compare import BAD_INPUT, Answer, Answerer, ask_product, differences
from tests.oracle.mix import world_of
from tests.oracle.reasons import longhorn_reason
from tests.oracle.run import run
from tests.oracle.shrink import shrink
from tests.oracle.worlds import NOW, VOLUME, Document

SEED = 20260501
WORLDS = 2000
OTHER_SEED = 7


def test_the_product_agrees_in_thousands_of_worlds() -> None:
    result = run(SEED, range(WORLDS), most=2)
    assert [] == [str(found) for found in result.disagreements.values()]
    assert (result.worlds, result.disagreeing) == (WORLDS, 0)


def test_hardly_any_world_is_no_question() -> None:
    assert sum(BAD_INPUT in ask_product(world_of(SEED, index).document()) for index in range(500)) < 10


def test_a_larger_volume_object_is_judged_as_by_longhorns_webhook_for_volumes_alone() -> None:
    """The planner answers for claims; the other way into Longhorn is asked of the rules themselves."""
    verdicts: Counter[str] = Counter()
    differing = 0
    for index in range(WORLDS // 2):
        document = world_of(SEED, index).document()
        if "expand" not in document["question"] or BAD_INPUT in ask_product(document):
            continue
        question, decoded = read(document), decode_document(document, NOW, Notes(is_lenient=True))
        size, volume = question.details["size"], decoded.objects.by_kind["volume"][VOLUME]
        own = [replica for replica in decoded.objects.by_kind["replica"].values() if replica.volume == VOLUME]
        settings, nodes = decoded.settings, decoded.objects.by_kind["node"]
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


def crashes(document: Document) -> Answer:
    raise KeyError("status")


GOOD = conditions(Ready="True", Schedulable="True")
# What a product would take a field for that passes over it, by the kind and the way to it; None: for absent.
IGNORED: dict[str, Any] = {
    "Node metadata.deletionTimestamp": None,
    "Node spec.allowScheduling": True,
    "Node spec.disks.*.allowScheduling": True,
    "Node spec.disks.*.diskType": "filesystem",
    "Node spec.disks.*.evictionRequested": False,
    "Node spec.disks.*.storageReserved": 0,
    "Node status.conditions": GOOD,
    "Node status.diskStatus.*.conditions": GOOD,
    "Node status.diskStatus.*.filesystemType": "",
    "Node status.diskStatus.*.scheduledReplica": {},
    "Node status.diskStatus.*.storageAvailable": 2**50,
    "Node status.diskStatus.*.storageMaximum": 2**50,
    "Node status.diskStatus.*.storageScheduled": 0,
    "Node status.zone": "one",
    "Volume spec.backingImage": None,
    "Volume spec.cloneMode": None,
    "Volume spec.dataEngine": "v1",
    "Volume spec.dataLocality": None,
    "Volume spec.diskSelector": None,
    "Volume spec.frontend": None,
    "Volume spec.migrationNodeID": None,
    "Volume spec.nodeID": None,
    "Volume spec.nodeSelector": None,
    "Volume spec.replicaAutoBalance": None,
    "Volume spec.replicaDiskSoftAntiAffinity": None,
    "Volume spec.replicaSoftAntiAffinity": None,
    "Volume spec.replicaZoneSoftAntiAffinity": None,
    "Volume spec.topologyRequirement": None,
    "Volume status.actualSize": 0,
    "Volume status.cloneStatus": None,
    "Volume status.conditions": [],
    "Volume status.isStandby": None,
    "Volume status.lastDegradedAt": None,
    "Volume status.restoreRequired": None,
    "Volume status.robustness": None,
    "Volume status.state": None,
    "Replica metadata.deletionTimestamp": None,
    "Replica spec.diskID": "",
    "Replica spec.evictionRequested": False,
    "Replica spec.failedAt": "",
    "Replica spec.hardNodeAffinity": None,
    "Replica spec.healthyAt": "",
    "Replica spec.linkedCloneSrcReplicaName": None,
    "Replica spec.nodeID": "",
    "Replica spec.rebuildRetryCount": 0,
    "BackingImage spec.diskSelector": None,
    "BackingImage spec.nodeSelector": None,
    "EngineImage status.nodeDeploymentMap": {},
    "EngineImage status.state": "deployed",
    "InstanceManager spec.image": "manager",
    "InstanceManager spec.nodeID": "",
    "InstanceManager status.currentState": "running",
    "v1 Node metadata.labels": {},
    "Setting allow-empty-disk-selector-volume": None,
    "Setting allow-empty-node-selector-volume": None,
    "Setting default-instance-manager-image": None,
    "Setting replica-auto-balance": None,
    "Setting replica-auto-balance-disk-pressure-percentage": None,
    "Setting replica-disk-soft-anti-affinity": None,
    "Setting replica-replenishment-wait-interval": None,
    "Setting replica-soft-anti-affinity": None,
    "Setting replica-zone-soft-anti-affinity": None,
    "Setting storage-minimal-available-percentage": None,
    "Setting storage-over-provisioning-percentage": None,
    "Document longhornVersion": None,
}


def ignoring(path: str, taken_for: Any) -> Answerer:
    def change(document: Document) -> None:
        kind, _, way = path.rpartition(" ")
        if kind == "Setting":
            document.get("settings", {}).pop(way, None)
            document["objects"] = [one for one in document["objects"] if one["metadata"]["name"] != way]
        elif kind == "Document":
            document.pop(way, None)
        for raw in document["objects"]:
            core = "v1 " if raw["apiVersion"] == "v1" else ""
            if f"{core}{raw['kind']}" == kind:
                put(raw, way.split("."), taken_for)

    return asked_about(change)


def put(raw: Any, way: list[str], value: Any) -> None:
    """Where the field is. `*`: in each of a map's."""
    if not isinstance(raw, dict):
        return
    name, *rest = way
    for key in list(raw) if name == "*" else [name] if name in raw else []:
        if rest:
            put(raw[key], rest, value)
        elif value is None:
            del raw[key]
        else:
            raw[key] = copy.deepcopy(value)


WRONG: dict[str, Answerer] = {
    "less instead of at most": asked_about(less_by_one_byte),
    "at least instead of more": asked_about(not_strictly_more),
    "loses a candidate": last_candidate_lost,
    "admits every growth": says_yes,
    "promises too large a size": granule_too_many,
    "never says never": never_says_never,
    "crashes": crashes,
    **{path: ignoring(path, taken_for) for path, taken_for in IGNORED.items()},
}


@cache
def document_of(index: int) -> Document:
    return world_of(OTHER_SEED, index).document()


@pytest.mark.parametrize("product", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_product_is_caught(product: Answerer) -> None:
    for index in range(1500):
        document = document_of(index)
        if differences(document, product) and not differences(document):
            return
    pytest.fail("no world tells it from a right one")


def test_the_smallest_world_still_shows_the_mistake_and_little_else() -> None:
    wrong = WRONG["at least instead of more"]

    def shows(document: Document) -> bool:
        return any("candidates: " in line for line in differences(document, wrong)) and not differences(document)

    found = next(document for index in range(1500) if shows(document := document_of(index)))
    before = copy.deepcopy(found)
    smallest = shrink(found, shows)
    assert found == before
    assert shows(smallest)
    assert ["Node", "Replica", "Volume"] == sorted(raw["kind"] for raw in smallest["objects"])
    (node,) = (raw for raw in smallest["objects"] if raw["kind"] == "Node")
    assert 1 == len(node["status"]["diskStatus"]) == len(node["spec"]["disks"])
    assert shrink(found, lambda _: True, questions=0) is found
