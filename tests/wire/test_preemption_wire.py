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


def test_victims_by_uid_as_a_cache_capable_extender_gets_them() -> None:
    args = decode(
        Pod=POD,
        NodeNameToVictims=None,
        NodeNameToMetaVictims={"n1": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}},
    )

    assert (args.pod.uid, args.pod.key, args.pod.has_claims) == ("u", "n/p", True)
    assert args.candidates == {"n1": Victims(("a", "b"), 1)}


def test_victims_as_whole_pods() -> None:
    victim = {"metadata": {"name": "v", "uid": "a"}, "spec": {"containers": []}, "status": {"phase": "Running"}}
    args = decode(Pod=POD, NodeNameToVictims={"n1": {"Pods": [victim], "NumPDBViolations": 0}})

    assert args.candidates == {"n1": Victims(("a",), 0)}


def test_keys_are_read_in_any_letter_case() -> None:
    args = decode(pod=POD, nodeNameToMetaVictims={"n1": {"Pods": [{"UID": "a"}]}})

    assert args.candidates == {"n1": Victims(("a",), 0)}


def test_keys_of_the_victims_objects_are_read_in_any_letter_case() -> None:
    entry = {"pods": [{"uid": "a"}, {"Uid": "b", "more": 1}], "numPDBViolations": 2}
    assert {"n1": Victims(("a", "b"), 2), "n2": Victims((), 0)} == (
        decode(Pod=POD, NodeNameToMetaVictims={"n1": entry, "n2": {"PODS": None}, "n3": None}).candidates
    )

    whole = {"pods": [{"metadata": {"uid": "a"}, "spec": {}}], "numpdbviolations": 3}
    assert {"n1": Victims(("a",), 3)} == decode(Pod=POD, NodeNameToVictims={"n1": whole}).candidates


def test_of_two_spellings_in_a_victims_object_the_later_one_counts() -> None:
    entry = {"Pods": [{"UID": "a"}], "pods": [{"UID": "b", "uid": "c"}]}

    assert {"n1": Victims(("c",), 0)} == decode(Pod=POD, NodeNameToMetaVictims={"n1": entry}).candidates


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1])
@pytest.mark.parametrize("key", ["NumPDBViolations", "numPDBViolations"])
def test_counts_that_go_can_read_back_are_read(key: str, number: int) -> None:
    entry = {"Pods": [{"UID": "a"}], key: number}

    assert {"n1": Victims(("a",), number)} == decode(Pod=POD, NodeNameToMetaVictims={"n1": entry}).candidates


def test_of_a_key_that_stands_there_twice_the_last_one_counts() -> None:
    first, second = {"n1": {"Pods": [{"UID": "a"}]}}, {"n2": {"Pods": [{"UID": "b"}]}}

    args = decode(Pod=POD, NodeNameToMetaVictims=first, nodenametometavictims=second)
    assert {"n2": Victims(("b",), 0)} == args.candidates
    args = decode(Pod=POD, nodenametometavictims=second, NodeNameToMetaVictims=first)
    assert {"n1": Victims(("a",), 0)} == args.candidates


@pytest.mark.parametrize("empty", [{"Pods": []}, {"Pods": None}, {}])
def test_candidates_without_victims_are_read(empty: dict[str, Any]) -> None:
    assert decode(Pod=POD, NodeNameToMetaVictims={"n1": empty}).candidates == {"n1": Victims((), 0)}


def test_a_null_candidate_is_none() -> None:
    assert decode(Pod=POD, NodeNameToMetaVictims={"n1": None}).candidates == {}


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
            {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"pods": [{"uid": ""}]}}},
            "NodeNameToMetaVictims.n1.Pods[0]",
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
