"""Which node a share-manager pod prefers; patches are applied by an independent implementation."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from controller.errors import MalformedRequestError
from controller.kube.resources import LONGHORN_ATTACHMENTS
from tests.unit.webhook.stage import NAMESPACE, Raw, WebhookStage
from tests.waiting import wait_until
from webhook.share_manager import ATTACHMENT_SECONDS, MOST_NODES, consumer_nodes, plan_affinity

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod(*preferred: Raw, **affinity: Any) -> Raw:
    labels = {"longhorn.io/component": "share-manager", "longhorn.io/share-manager": "pvc-1"}
    spec: Raw = {"containers": [{"name": "share-manager"}]}
    if preferred:
        affinity["nodeAffinity"] = {PREFERRED: list(preferred)}
    if affinity:
        spec["affinity"] = affinity
    return {"metadata": {"name": "share-manager-pvc-1", "labels": labels}, "spec": spec}


def term(node: str, operator: str = "In", key: str = "metadata.name", part: str = "matchFields") -> Raw:
    return {"weight": 100, "preference": {part: [{"key": key, "operator": operator, "values": [node]}]}}


def attachment(**tickets: Raw) -> Raw:
    return {"spec": {"volume": "pvc-1", "attachmentTickets": tickets}}


def ticket(node: str, kind: str = "csi-attacher") -> Raw:
    return {"id": "csi-1", "type": kind, "nodeID": node, "parameters": {"disableFrontend": "false"}}


def preferred(raw: Raw, *nodes: str) -> list[Raw]:
    operations = [operation.raw() for operation in plan_affinity(raw, nodes)]
    patched = jsonpatch.apply_patch(raw, operations)
    found: list[Raw] = ((patched["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(PREFERRED) or []
    return found


def test_the_consumers_are_where_csi_attacher_wants_the_volume() -> None:
    raw = attachment(a=ticket("n2"), b=ticket("n1"), c=ticket("n1"), d=ticket("n3", "share-manager-controller"))
    assert ("n1", "n2") == consumer_nodes(raw)
    assert () == consumer_nodes(attachment(a=ticket("")))
    assert () == consumer_nodes({"spec": {"attachmentTickets": None}})
    assert () == consumer_nodes({})


def test_the_pod_prefers_the_consumers_nodes_besides_what_it_prefers_already() -> None:
    assert [term("n1"), term("n2")] == preferred(pod(), "n1", "n2")
    assert [] == plan_affinity(pod(), ())
    other = {"weight": 5, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}
    assert [other, term("n1")] == preferred(pod(other), "n1")
    required: Raw = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    raw = pod(nodeAffinity=required, podAntiAffinity={"x": 1})
    patched = jsonpatch.apply_patch(raw, [operation.raw() for operation in plan_affinity(raw, ["n1"])])
    assert {**required, PREFERRED: [term("n1")]} == patched["spec"]["affinity"]["nodeAffinity"]
    assert {"x": 1} == patched["spec"]["affinity"]["podAntiAffinity"]


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": None}, {"nodeAffinity": {PREFERRED: []}}])
def test_empty_affinities_are_filled(affinity: Raw | None) -> None:
    raw = pod()
    raw["spec"]["affinity"] = affinity
    assert [term("n1")] == preferred(raw, "n1")


def test_twice_is_as_once() -> None:
    once = jsonpatch.apply_patch(pod(), [operation.raw() for operation in plan_affinity(pod(), ["n1", "n2"])])
    assert [] == plan_affinity(once, ["n1", "n2"])
    assert [term("n3")] == [operation.value for operation in plan_affinity(once, ["n1", "n3"])]


@pytest.mark.parametrize(
    "avoided", [term("n1", "NotIn"), term("n1", "NotIn", "kubernetes.io/hostname", "matchExpressions")]
)
def test_a_node_that_longhorn_wants_to_leave_is_not_preferred(avoided: Raw) -> None:
    assert [avoided, term("n2")] == preferred(pod(avoided), "n1", "n2")
    assert [] == plan_affinity(pod(avoided), ["n1"])


def test_of_many_consumers_none_is_preferred() -> None:
    nodes = [f"n{number}" for number in range(MOST_NODES + 1)]
    assert MOST_NODES == len(preferred(pod(), *nodes[:-1]))
    assert [] == plan_affinity(pod(), nodes)


@pytest.mark.parametrize("bad", [{"affinity": 5}, {"affinity": {"nodeAffinity": {PREFERRED: [5]}}}])
def test_what_is_no_pod_is_refused(bad: Raw) -> None:
    with pytest.raises(MalformedRequestError, match="affinity"):
        plan_affinity({"spec": bad}, ["n1"])


# The service


def is_pointed(stage: WebhookStage, raw: Raw | None = None, **changes: str) -> bool:
    answer = stage.post(raw or pod(), to="mutate-share-managers", **{"namespace": NAMESPACE, **changes})
    return "patch" in answer


def attach(stage: WebhookStage, raw: Raw) -> None:
    stage.api.put(LONGHORN_ATTACHMENTS, NAMESPACE, {"metadata": {"name": "pvc-1"}, **raw})


def outcomes(stage: WebhookStage, outcome: str) -> float:
    return stage.sample("share_manager_reviews_total", outcome=outcome)


FOUND = attachment(a=ticket("n1"))


def test_one_read_tells_the_node(stage: WebhookStage) -> None:
    attach(stage, FOUND)
    assert is_pointed(stage)
    assert ["volumeattachments longhorn-system/pvc-1"] == stage.api.reads
    assert 1 == outcomes(stage, "pointed")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (None, "no-consumer"),
        (attachment(), "no-consumer"),
        ({"spec": {"attachmentTickets": {"a": 5}}}, "unread"),
        ({"spec": []}, "unread"),
    ],
)
def test_whatever_goes_wrong_the_pod_is_let_through(stage: WebhookStage, answer: Raw | None, outcome: str) -> None:
    if answer is not None:
        attach(stage, answer)
    assert not is_pointed(stage)
    assert 1 == outcomes(stage, outcome)


def test_a_slow_read_is_given_up_in_time_and_the_pod_is_let_through(stage: WebhookStage) -> None:
    attach(stage, FOUND)
    stage.api.read_seconds, begun = 10.0, stage.clock.now()
    assert not is_pointed(stage)
    assert ATTACHMENT_SECONDS == stage.clock.now() - begun
    assert 1 == outcomes(stage, "unread")


def test_nobody_is_read_about_who_is_no_share_manager(stage: WebhookStage) -> None:
    plain = pod()
    for labels in ({"longhorn.io/component": "longhorn-ui"}, {"longhorn.io/share-manager": "pvc-1"}, None):
        plain["metadata"]["labels"] = labels
        assert not is_pointed(stage, plain)
    assert not is_pointed(stage, namespace="default")
    assert not is_pointed(stage, operation="UPDATE")
    assert not is_pointed(stage, subResource="status")
    assert (6, []) == (outcomes(stage, "not-asked-for"), stage.api.reads)


def test_it_can_be_switched_off(started: WebhookStage) -> None:
    attach(started, FOUND)
    started.configure(share_managers="false")
    wait_until(lambda: not started.webhook.live.current.share_managers)
    assert not is_pointed(started)
    assert (1, []) == (outcomes(started, "off"), started.api.reads)
