"""The other verbs' bodies as kube-scheduler 1.36.3 sent them, and the form of every answer to a filter call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.errors import MalformedRequestError
from controller.rules.reasons import Reason
from extender import binding, preemption, wire

GOLDEN = Path(__file__).parent / "golden"
POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}
NODE = {"metadata": {"name": "a"}}


@pytest.mark.parametrize("form", ["names", "nodes"])
def test_a_preemption_is_read_alike_in_both_forms(form: str) -> None:
    body = (GOLDEN / f"preempt_{form}.json").read_bytes()

    args = preemption.decode_preemption_args(body)
    kept = json.loads(preemption.encode_preemption_result(args.candidates, {"worker-1"}))

    assert args.pod.key == f"shop/high-{form}"
    assert not args.pod.has_claims
    assert ["worker-0", "worker-1", "worker-2"] == sorted(args.candidates)
    assert all(len(victims.pod_uids) == 1 for victims in args.candidates.values())
    (uid,) = args.candidates["worker-1"].pod_uids
    assert kept == {"NodeNameToMetaVictims": {"worker-1": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}}


def test_a_binding_is_read() -> None:
    args = binding.decode_binding_args((GOLDEN / "bind.json").read_bytes())

    assert (args.pod.key, args.pod.uid, args.node) == (
        "shop/easy-names",
        "d990d0ee-1da3-4ad3-a37f-5867c4a43f9b",
        "worker-0",
    )


@pytest.mark.parametrize("by_name", [{}, {"NodeNames": None}, {"NodeNames": []}, {"NodeNames": ["a"]}])
@pytest.mark.parametrize(
    "whole",
    [
        {},
        {"Nodes": None},
        {"Nodes": {}},
        {"Nodes": {"items": None}},
        {"Nodes": {"items": []}},
        {"Nodes": {"items": [NODE]}},
    ],
)
def test_the_answer_has_the_form_of_the_request(by_name: dict[str, Any], whole: dict[str, Any]) -> None:
    sent: dict[str, Any] = {"Pod": POD, **by_name, **whole}
    names, nodes = sent.get("NodeNames"), sent.get("Nodes")
    items = (nodes or {}).get("items") or []
    if (names is None and nodes is None) or (None not in (names, nodes) and bool(names) != bool(items)):
        with pytest.raises(MalformedRequestError, match="NodeNames"):
            wire.decode_filter_args(json.dumps(sent).encode())
        return

    args = wire.decode_filter_args(json.dumps(sent).encode())
    passed = json.loads(wire.encode_filter_result(args, args.candidates, {}))
    refused = json.loads(wire.encode_filter_result(args, [], dict.fromkeys(args.candidates, Reason.TOO_FULL)))
    failed = json.loads(wire.encode_error("Longhorn: no", args))

    assert passed["NodeNames"] == names
    assert passed["Nodes"] == ({"metadata": {}, "items": items} if nodes is not None else None)
    for answer in (refused, failed):
        assert answer["NodeNames"] == ([] if names is not None else None)
        assert answer["Nodes"] == ({"metadata": {}, "items": []} if nodes is not None else None)
    assert refused["FailedAndUnresolvableNodes"].keys() == set(args.candidates)
    assert failed["FailedAndUnresolvableNodes"] == {}
