"""The preempt verb's JSON in both forms of kube-scheduler, and everything that must be refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.errors import MalformedRequestError
from extender import preemption
from extender.preemption import Victims

POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"volumes": [{"ephemeral": {}}]}}


def decode(**fields: Any) -> preemption.PreemptionArgs:
    return preemption.decode_preemption_args(json.dumps(fields).encode())


A, B = {"n1": Victims(("a",), 0)}, {"n2": Victims(("b",), 0)}
META_A, META_B = {"n1": {"Pods": [{"UID": "a"}]}}, {"n2": {"Pods": [{"UID": "b"}]}}
WHOLE = {"metadata": {"name": "v", "uid": "a"}, "spec": {"containers": []}, "status": {"phase": "Running"}}


def test_victims_by_uid_as_a_cache_capable_extender_gets_them() -> None:
    entry = {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}
    args = decode(Pod=POD, NodeNameToVictims=None, NodeNameToMetaVictims={"n1": entry})

    assert (args.pod.uid, args.pod.key, args.pod.has_claims) == ("u", "n/p", True)
    assert args.candidates == {"n1": Victims(("a", "b"), 1)}


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
    assert candidates == decode(Pod=POD, **fields).candidates
    assert candidates == decode(pod=POD, **fields).candidates


def test_the_answer_has_go_keys_and_all_victims_of_what_stays() -> None:
    candidates = {"n1": Victims(("a", "b"), 1), "n2": Victims(("c",), 0)}

    answer = json.loads(preemption.encode_preemption_result(candidates, {"n1"}))

    assert answer == {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}}}


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
        decode(**fields)

    assert str(caught.value).startswith(field)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_not_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequestError, match="body"):
        preemption.decode_preemption_args(body)
