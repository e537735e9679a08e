"""The JSON of the verbs preempt and bind: as kube-scheduler 1.36.3 sent it, in both its forms, and in any letter case;
and everything that must be refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.errors import MalformedRequestError
from extender import binding, preemption
from extender.preemption import Victims
from extender.wire import ClusterSize, PodRef

GOLDEN = Path(__file__).parent / "golden"
POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"volumes": [{"ephemeral": {}}]}}


def decode_preemption(**fields: Any) -> preemption.PreemptionArgs:
    return preemption.decode_preemption_args(json.dumps(fields).encode())


@pytest.mark.parametrize("form", ["names", "nodes"])
def test_a_preemption_is_read_alike_in_both_forms(form: str) -> None:
    body = (GOLDEN / f"preempt_{form}.json").read_bytes()
    args = preemption.decode_preemption_args(body)
    assert (args.pod.key, args.pod.has_claims) == (f"shop/high-{form}", False)
    assert ["worker-0", "worker-1", "worker-2"] == sorted(args.candidates)
    assert [(1, 0)] * 3 == [(len(victims.pod_uids), victims.violations) for victims in args.candidates.values()]


A, B = {"n1": Victims(("a",), 0)}, {"n2": Victims(("b",), 0)}
META_A, META_B = {"n1": {"Pods": [{"UID": "a"}]}}, {"n2": {"Pods": [{"UID": "b"}]}}
WHOLE = {"metadata": {"name": "v", "uid": "a"}, "spec": {"containers": []}, "status": {"phase": "Running"}}


def test_victims_by_uid_go_back_with_go_keys_and_all_of_them_where_the_node_stays() -> None:
    entry = {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}
    sent = {"n1": entry, "n2": {"Pods": [{"UID": "c"}]}}
    args = decode_preemption(Pod=POD, NodeNameToVictims=None, NodeNameToMetaVictims=sent)
    assert (args.pod.uid, args.pod.key, args.pod.has_claims) == ("u", "n/p", True)
    assert args.candidates == {"n1": Victims(("a", "b"), 1), "n2": Victims(("c",), 0)}
    answer = json.loads(preemption.encode_preemption_result(args.candidates, {"n1"}))
    assert answer == {"NodeNameToMetaVictims": {"n1": entry}}


def whole(entry: dict[str, Any]) -> dict[str, Any]:
    return {"NodeNameToVictims": {"n1": entry}}


def meta(entry: dict[str, Any] | None) -> dict[str, Any]:
    return {"NodeNameToMetaVictims": {"n1": entry}}


@pytest.mark.parametrize(
    ("fields", "candidates"),
    [
        pytest.param(whole({"Pods": [WHOLE], "NumPDBViolations": 0}), A, id="whole pods"),
        # Keys in any letter case; of two spellings the later one counts
        pytest.param({"nodeNameToMetaVictims": META_A}, A, id="another letter case"),
        pytest.param(
            meta({"pods": [{"uid": "a"}, {"Uid": "b", "more": 1}], "numPDBViolations": 2}),
            {"n1": Victims(("a", "b"), 2)},
            id="another letter case in victims",
        ),
        pytest.param(
            whole({"pods": [{"metadata": {"uid": "a"}, "spec": {}}], "numpdbviolations": 3}),
            {"n1": Victims(("a",), 3)},
            id="another letter case in whole pods",
        ),
        pytest.param(meta({"Pods": [{"UID": "b"}], "pods": [{"UID": "b", "uid": "a"}]}), A, id="twice in victims"),
        pytest.param({"NodeNameToMetaVictims": META_A, "nodenametometavictims": META_B}, B, id="twice"),
        pytest.param({"nodenametometavictims": META_B, "NodeNameToMetaVictims": META_A}, A, id="twice, turned"),
        # Candidates without victims, and none
        pytest.param(meta({}), {"n1": Victims((), 0)}, id="no list of victims"),
        pytest.param(meta({"Pods": []}), {"n1": Victims((), 0)}, id="an empty list"),
        pytest.param(meta({"PODS": None}), {"n1": Victims((), 0)}, id="a null list"),
        pytest.param(meta(None), {}, id="a null candidate"),
        pytest.param(
            {"NodeNameToMetaVictims": {"n1": {"pods": [{"uid": "a"}]}, "n3": None}}, A, id="one in another letter case"
        ),
        *(
            pytest.param(
                meta({"Pods": [{"UID": "a"}], key: number}), {"n1": Victims(("a",), number)}, id=f"{key} {number}"
            )
            for key in ("NumPDBViolations", "numPDBViolations")
            for number in (-(2**63), 2**63 - 1)  # what Go can read back
        ),
    ],
)
def test_candidates_are_read_as_go_reads_them(fields: dict[str, Any], candidates: dict[str, Victims]) -> None:
    assert candidates == decode_preemption(Pod=POD, **fields).candidates
    assert candidates == decode_preemption(pod=POD, **fields).candidates


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"Pod": None, "NodeNameToMetaVictims": {}}, "Pod"),
        ({"NodeNameToMetaVictims": {}}, "Pod"),
        ({"Pod": {"metadata": {"name": "p", "namespace": "n"}}, "NodeNameToMetaVictims": {}}, "Pod.metadata.uid"),
        ({"Pod": POD}, "NodeNameToMetaVictims"),
        ({"Pod": POD, "NodeNameToMetaVictims": []}, "NodeNameToMetaVictims"),
        ({"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{}]}}}, "NodeNameToMetaVictims.n1.Pods[0]"),
        ({"Pod": POD, "NodeNameToMetaVictims": {"": {"Pods": [{"UID": "a"}]}}}, "NodeNameToMetaVictims"),
        ({"Pod": POD, "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {}}]}}}, "NodeNameToVictims.n1.Pods[0]"),
        ({"Pod": POD, "NodeNameToMetaVictims": {"n1": {"NumPDBViolations": "x"}}}, "NodeNameToMetaVictims"),
        *(
            ({"Pod": POD, field: {"n1": {key: number}}}, f"{field}.n1.NumPDBViolations")
            for field in ("NodeNameToMetaVictims", "NodeNameToVictims")
            for key in ("NumPDBViolations", "numPDBViolations")
            for number in (2**63, -(2**63) - 1, 10**30)
        ),
        (
            {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"pods": [{"uid": "a"}, {"uid": ""}]}}},
            "NodeNameToMetaVictims.n1.Pods[1]",
        ),
        ({"Pod": POD, "NodeNameToMetaVictims": {"n1": {"pods": [{"uid": 1}]}}}, "NodeNameToMetaVictims.n1.Pods[0].uid"),
        ({"Pod": POD, "NodeNameToMetaVictims": {"n1": {"pods": {}}}}, "NodeNameToMetaVictims.n1.Pods"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        decode_preemption(**fields)
    assert str(caught.value).startswith(field)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_not_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequestError, match="body"):
        preemption.decode_preemption_args(body)


@pytest.mark.parametrize("field", ["NodeNameToMetaVictims", "NodeNameToVictims"])
@pytest.mark.parametrize(
    "entry", [{}, None, {"Pods": [{"UID": "a"}] * 10}, {"Pods": [{"metadata": {"uid": "a"}}] * 10}]
)
def test_many_small_victims_are_not_decoded(field: str, entry: object) -> None:
    size = ClusterSize(4)
    sent = {"Pod": POD, field: {f"n{number}": entry for number in range(50_000)}}
    with pytest.raises(MalformedRequestError):
        preemption.decode_preemption_args(json.dumps(sent).encode(), size)


def test_a_tenth_of_a_large_cluster_may_lose_all_its_pods() -> None:
    size = ClusterSize(5_000)
    victims = {f"n{number}": {"Pods": [{"UID": f"{number}-{pod}"} for pod in range(110)]} for number in range(500)}
    sent = json.dumps({"Pod": POD, "NodeNameToMetaVictims": victims}).encode()
    assert victims.keys() == preemption.decode_preemption_args(sent, size).candidates.keys()


# Bind


BINDING = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"}


def decode_binding(**fields: Any) -> binding.BindingArgs:
    return binding.decode_binding_args(json.dumps(fields).encode())


def test_a_recorded_binding_is_read() -> None:
    pod = PodRef("d990d0ee-1da3-4ad3-a37f-5867c4a43f9b", "shop", "easy-names")
    assert binding.BindingArgs(pod, "worker-0") == binding.decode_binding_args((GOLDEN / "bind.json").read_bytes())


def test_a_binding_is_read_in_any_letter_case() -> None:
    wanted = binding.BindingArgs(PodRef("u", "ns", "p"), "n1")
    assert wanted == decode_binding(**BINDING)
    assert wanted == decode_binding(**{name.lower(): text for name, text in BINDING.items()})


@pytest.mark.parametrize("name", list(BINDING))
@pytest.mark.parametrize("value", [None, "", 7])
def test_what_a_binding_lacks_or_has_as_no_text_is_named(name: str, value: object) -> None:
    with pytest.raises(MalformedRequestError, match=name):
        decode_binding(**{**BINDING, name: value})


def test_the_answer_to_a_binding_has_gos_key() -> None:
    assert {"Error": ""} == json.loads(binding.encode_binding_result(""))
