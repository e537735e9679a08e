"""Which node a share-manager pod prefers; patches are applied by an independent implementation."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from controller.errors import MalformedRequestError, NotFoundError, UnavailableError
from controller.kube.resources import Resource
from webhook.review import Review
from webhook.service import ATTACHMENT_SECONDS, ShareManagerService
from webhook.share_manager import MOST_NODES, consumer_nodes, plan_affinity, volume_of

Raw = dict[str, Any]
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


def test_the_pod_prefers_the_consumers_node() -> None:
    assert [term("n1")] == preferred(pod(), "n1")
    assert [term("n1"), term("n2")] == preferred(pod(), "n1", "n2")
    assert [] == plan_affinity(pod(), ())


def test_what_the_pod_prefers_already_stays() -> None:
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


def test_other_pods_are_no_share_managers() -> None:
    assert "pvc-1" == volume_of(pod())
    assert "" == volume_of({"metadata": {"labels": {"longhorn.io/share-manager": "pvc-1"}}})
    assert "" == volume_of({})


@pytest.mark.parametrize("bad", [{"affinity": 5}, {"affinity": {"nodeAffinity": {PREFERRED: [5]}}}])
def test_what_is_no_pod_is_refused(bad: Raw) -> None:
    with pytest.raises(MalformedRequestError, match="affinity"):
        plan_affinity({"spec": bad}, ["n1"])


# The service


class Watched:
    """The service over one answer of the API server."""

    def __init__(self, answer: Raw | Exception, *, wanted: bool = True) -> None:
        self.answer = answer
        self.reads: list[tuple[str, str, str, float]] = []
        self.outcomes: list[str] = []
        self.service = ShareManagerService("longhorn-system", self.read, lambda: wanted, self)

    def read(self, resource: Resource, namespace: str, name: str, timeout: float) -> Raw:
        self.reads.append((resource.plural, namespace, name, timeout))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def share_manager_reviewed(self, outcome: str) -> None:
        self.outcomes.append(outcome)

    def pod_reviewed(self, outcome: str) -> None:
        raise AssertionError(outcome)

    def read_live(self, kind: str, outcome: str) -> None:
        raise AssertionError(kind, outcome)

    def patches(self, raw: Raw | None = None, **changes: str) -> bool:
        fields = {"namespace": "longhorn-system", "operation": "CREATE", "sub_resource": "", **changes}
        review = Review(
            uid="u",
            kind="Pod",
            resource="pods",
            name="",
            is_dry_run=False,
            object=raw or pod(),
            old_object={},
            **fields,
        )
        answer = self.service.review(review)
        assert b'"allowed":true' in answer
        return b'"patch"' in answer


FOUND = attachment(a=ticket("n1"))


def test_one_read_within_its_time_tells_the_node() -> None:
    watched = Watched(FOUND)
    assert watched.patches()
    assert [("volumeattachments", "longhorn-system", "pvc-1", ATTACHMENT_SECONDS)] == watched.reads
    assert ["pointed"] == watched.outcomes


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (NotFoundError("gone"), "no-consumer"),
        (attachment(), "no-consumer"),
        (UnavailableError("slow"), "unread"),
        ({"spec": {"attachmentTickets": {"a": 5}}}, "unread"),
        ({"spec": []}, "unread"),
    ],
)
def test_whatever_goes_wrong_the_pod_is_let_through(answer: Raw | Exception, outcome: str) -> None:
    watched = Watched(answer)
    assert not watched.patches()
    assert [outcome] == watched.outcomes


def test_nobody_is_read_about_who_is_no_share_manager() -> None:
    watched = Watched(FOUND)
    plain = pod()
    plain["metadata"]["labels"] = {"longhorn.io/component": "longhorn-ui"}
    assert not watched.patches(plain)
    assert not watched.patches(namespace="default")
    assert not watched.patches(operation="UPDATE")
    assert not watched.patches(sub_resource="status")
    assert (["not-asked-for"] * 4, []) == (watched.outcomes, watched.reads)


def test_it_can_be_switched_off() -> None:
    watched = Watched(FOUND, wanted=False)
    assert not watched.patches()
    assert (["off"], []) == (watched.outcomes, watched.reads)
