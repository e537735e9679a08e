"""The extender's JSON as kube-scheduler 1.36 sends and reads it, and everything that must be refused by name.

The golden bodies were recorded from kube-scheduler 1.36.3 with `nodeCacheCapable` true and false.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.errors import MalformedRequestError
from controller.rules.reasons import Reason
from extender import wire

GOLDEN = Path(__file__).parent / "golden"
POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}
GO_KEYS = ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]


def body(**fields: Any) -> bytes:
    return msgspec.json.encode(fields)


def test_names_form_of_kube_scheduler() -> None:
    args = wire.decode_filter_args((GOLDEN / "filter_names.json").read_bytes())
    assert args.pod == wire.PodRef("77486436-a2db-4207-b7b6-9366e066ed72", "shop", "db-0")
    assert args.candidates == ["worker-0", "worker-1", "worker-2"]
    answer = json.loads(wire.encode_filter_result(args, ["worker-0"], {"worker-1": Reason.CONTENDED}))
    assert list(answer) == GO_KEYS
    assert list(answer.values()) == [None, ["worker-0"], {}, {"worker-1": Reason.CONTENDED.text}, ""]


def test_full_nodes_form_is_answered_in_nodes_byte_for_byte() -> None:
    sent = (GOLDEN / "filter_nodes.json").read_bytes().rstrip()
    args = wire.decode_filter_args(sent)

    assert sorted(args.candidates) == ["worker-0", "worker-1", "worker-2"]

    everything = wire.encode_filter_result(args, args.candidates, {})
    one = wire.encode_filter_result(args, ["worker-0"], {"worker-2": Reason.TOO_FULL})

    items = sent[sent.index(b'"items":[', sent.index(b'"Nodes"')) : sent.rindex(b'},"NodeNames"')]
    assert items in everything
    assert json.loads(everything)["NodeNames"] is None
    assert [node["metadata"]["name"] for node in json.loads(one)["Nodes"]["items"]] == ["worker-0"]
    assert msgspec.json.decode(one)["Nodes"]["items"][0] in msgspec.json.decode(sent)["Nodes"]["items"]


def test_items_keep_what_a_decoder_would_change() -> None:
    item = b'{"metadata":{"name":"a","note":"gr\\u00f6\\u00dfe"}, "status":{"cpu":1.50,"big":12345678901234567890}}'
    sent = b'{"Pod":%b,"Nodes":{"items":[%b]}}' % (msgspec.json.encode(POD), item)
    args = wire.decode_filter_args(sent)
    assert item in wire.encode_filter_result(args, args.candidates, {})
    assert item in wire.encode_filter_result(args, ["a"], {})


@pytest.mark.parametrize("reason", list(Reason))
def test_reasons_carry_no_numbers_because_a_changing_condition_schedules_the_pod_again(reason: Reason) -> None:
    assert not any(letter.isdigit() for letter in reason.text)


@pytest.mark.parametrize(
    "keys",
    [("Pod", "NodeNames"), ("pod", "nodenames"), ("pod", "nodeNames"), ("POD", "NODENAMES"), ("Pod", "nodeNames")],
)
def test_keys_are_read_in_any_letter_case(keys: tuple[str, str]) -> None:
    args = wire.decode_filter_args(body(**{keys[0]: POD, keys[1]: ["a", "b"]}))
    assert args.candidates == ["a", "b"]
    assert json.loads(wire.encode_filter_result(args, args.candidates, {}))["NodeNames"] == ["a", "b"]


@pytest.mark.parametrize(
    ("lists", "candidates"),
    [
        ('"NodeNames":["a"],"nodenames":["b"]', ["b"]),
        ('"nodenames":["b"],"NodeNames":["a"]', ["a"]),
        ('"NodeNames":["a"],"NodeNames":["b"]', ["b"]),
        ('"nodenames":["a"],"nodenames":["b"]', ["b"]),
        ('"nodenames":["a"],"NodeNames":["b"],"nodenames":["c"]', ["c"]),
        ('"NodeNames":["a"],"nodenames":["b"],"NODENAMES":["c"],"nodenames":["d"],"Future":1', ["d"]),
        ('"NodeNames":["a","b","c"],"nodenames":["d"]', ["d"]),
        ('"NodeNames":["a"],"nodenames":[]', []),
        ('"nodenames":null,"NodeNames":["a"]', ["a"]),
        ('"NodeName\u017f":["a"],"\u006eodenames":["b"]', ["b"]),
        ('"NodeNames":["a"],"nodename\u017f":["b"]', ["b"]),
        ('"NodeNames":["a"],"Nodenames ":["b"]', ["a"]),
    ],
)
def test_of_a_key_that_stands_there_twice_the_last_one_counts_as_for_go(lists: str, candidates: list[str]) -> None:
    args = wire.decode_filter_args(b'{"Pod":%b,%b}' % (msgspec.json.encode(POD), lists.encode()))
    assert candidates == args.candidates
    assert args.items is None


@pytest.mark.parametrize("odd", [b'"\x80"', b"1" * 5000])
def test_keys_that_stand_there_twice_beside_something_unreadable_are_a_bad_request(odd: bytes) -> None:
    with pytest.raises(MalformedRequestError, match="body: cannot be read"):
        wire.decode_filter_args(
            b'{"Pod":%b,"NodeNames":["a"],"nodenames":["b"],"x":%b}' % (msgspec.json.encode(POD), odd)
        )


def test_a_list_that_a_later_null_takes_back_was_not_sent() -> None:
    pod = msgspec.json.encode(POD)
    nodes = b'"Nodes":{"items":[{"metadata":{"name":"n"}}]}'
    args = wire.decode_filter_args(b'{"Pod":%b,"NodeNames":["a"],%b,"nodenames":null}' % (pod, nodes))
    assert (["n"], False) == (args.candidates, args.has_names)
    with pytest.raises(MalformedRequestError, match="NodeNames: is missing, and so is Nodes"):
        wire.decode_filter_args(b'{"Pod":%b,"NodeNames":["a"],"nodenames":null}' % pod)


def test_lower_case_nodes_as_in_the_old_protocol_text() -> None:
    args = wire.decode_filter_args(body(pod=POD, nodes={"items": [{"metadata": {"name": "a"}}]}))
    assert args.candidates == ["a"]
    assert json.loads(wire.encode_filter_result(args, ["a"], {}))["Nodes"]["items"] == [{"metadata": {"name": "a"}}]


def test_both_forms_naming_the_same_nodes_are_both_answered() -> None:
    nodes = {"items": [{"metadata": {"name": "b"}}, {"metadata": {"name": "a"}}]}
    args = wire.decode_filter_args(body(Pod=POD, Nodes=nodes, NodeNames=["a", "b"]))
    answer = json.loads(wire.encode_filter_result(args, ["a"], {"b": Reason.TOO_FULL}))
    assert answer["NodeNames"] == ["a"]
    assert answer["Nodes"]["items"] == [{"metadata": {"name": "a"}}]


@pytest.mark.parametrize(
    ("volume", "has_claims"),
    [
        ({"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, True),
        ({"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}, True),
        ({"name": "v", "persistentVolumeClaim": None, "emptyDir": {}}, False),
        ({"name": "v", "configMap": {"name": "c"}}, False),
    ],
)
def test_claims_and_ephemeral_volumes_are_told_from_the_rest(volume: dict[str, Any], has_claims: bool) -> None:
    pod = {**POD, "spec": {"volumes": [{"name": "a", "emptyDir": {}}, volume]}}
    assert wire.decode_filter_args(body(Pod=pod, NodeNames=["a"])).pod.has_claims is has_claims
    assert wire.decode_filter_args(body(pod=pod, nodenames=["a"])).pod.has_claims is has_claims


def test_unknown_fields_mean_nothing() -> None:
    args = wire.decode_filter_args(
        body(Pod={**POD, "spec": {"new": [1, {"x": None}]}}, NodeNames=["a"], Future={"a": 1})
    )
    assert args.candidates == ["a"]


def test_an_error_answer_calls_no_node_unsuitable() -> None:
    answer = json.loads(wire.encode_error("Longhorn: the pod does not exist"))
    assert list(answer) == GO_KEYS
    assert answer["Error"] == "Longhorn: the pod does not exist"
    assert (answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]) == ({}, {})


NAMED = {"Pod": POD, "NodeNames": ["a"]}


@pytest.mark.parametrize("spelling", [str, str.lower])
@pytest.mark.parametrize("form", ["NodeNames", "Nodes"])
def test_more_nodes_than_the_cluster_may_have_are_refused(form: str, spelling: Callable[[str], str]) -> None:
    size = wire.ClusterSize(4)
    names = [f"n{number}" for number in range(size.most_nodes + 1)]

    def sent(names: list[str]) -> bytes:
        nodes = {"items": [{"metadata": {"name": name}} for name in names]}
        return body(**{spelling("Pod"): POD, spelling(form): names if form == "NodeNames" else nodes})

    assert names[1:] == wire.decode_filter_args(sent(names[1:]), size).candidates
    with pytest.raises(MalformedRequestError, match="has more than 1008 nodes; 4 are known"):
        wire.decode_filter_args(sent(names), size)


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"null", "body"),
        (b"[]", "body"),
        (b'"text"', "body"),
        (b'{"Pod":', "body"),
        (b'{"Pod": NaN}', "body"),
        (b'{"Pod":{"metadata":{"name":"\xff"}},"NodeNames":["a"]}', "Pod"),
        (body(NodeNames=["a"]), "Pod"),
        (body(Pod=None, NodeNames=["a"]), "Pod"),
        (body(Pod={}, NodeNames=["a"]), "Pod.metadata"),
        (body(Pod={"metadata": None}, NodeNames=["a"]), "Pod.metadata"),
        (body(Pod=[], NodeNames=["a"]), "Pod"),
        (body(Pod={"metadata": {"namespace": "n", "uid": "u"}}, NodeNames=["a"]), "Pod.metadata.name"),
        (body(Pod={"metadata": {"name": "p", "namespace": "n"}}, NodeNames=["a"]), "Pod.metadata.uid"),
        (body(Pod={"metadata": {"name": "p", "uid": "u"}}, NodeNames=["a"]), "Pod.metadata.namespace"),
        (body(Pod={"metadata": {"name": "p", "namespace": "n", "uid": ""}}, NodeNames=["a"]), "Pod.metadata.uid"),
        (body(Pod={"metadata": {"name": "p", "namespace": "n", "uid": 7}}, NodeNames=["a"]), "Pod.metadata.uid"),
        (body(pod={"metadata": {"name": "p", "namespace": "n", "uid": 7}}, nodenames=["a"]), "Pod.metadata.uid"),
        (body(Pod={**POD, "spec": {"volumes": "all"}}, NodeNames=["a"]), "Pod.spec.volumes"),
        (body(Pod=POD), "NodeNames"),
        (body(Pod=POD, Nodes=None, NodeNames=None), "NodeNames"),
        (body(Pod=POD, NodeNames="a"), "NodeNames"),
        (body(Pod=POD, NodeNames={"a": 1}), "NodeNames"),
        (body(Pod=POD, NodeNames=["a", 1]), "NodeNames[1]"),
        (body(Pod=POD, NodeNames=["a", None]), "NodeNames[1]"),
        (body(Pod=POD, NodeNames=["a", ""]), "NodeNames[1]"),
        (body(Pod=POD, NodeNames=["a", "b", "a"]), "NodeNames[2]"),
        (body(Pod=POD, Nodes=["a"]), "Nodes"),
        (body(Pod=POD, Nodes={"items": ["a"]}), "Nodes.items[0]"),
        (body(Pod=POD, Nodes={"items": [{"metadata": {"name": "a"}}, {}]}), "Nodes.items[1]"),
        (body(Pod=POD, Nodes={"items": [{"metadata": {}}]}), "Nodes.items[0].metadata"),
        (body(Pod=POD, Nodes={"items": [{"metadata": {"name": ""}}]}), "Nodes.items[0]"),
        (body(Pod=POD, Nodes={"items": [{"metadata": {"name": 1}}]}), "Nodes.items[0].metadata.name"),
        (body(Pod=POD, Nodes={"items": [{"metadata": {"name": "a"}}] * 2}), "Nodes.items[1]"),
        (body(Pod=POD, Nodes={"items": [{"metadata": {"name": "b"}}]}, NodeNames=["a"]), "NodeNames"),
        (b'{"pod":{},"Pod":{},"nodenames":[]}', "Pod.metadata"),
        (b'{"Pod":{"metadata":{"name":"p","namespace":"n","uid":"u"}},"pod":null,"nodenames":[]}', "Pod"),
        (b'{"Pod":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "Pod"),
        (b'{"Pod":{"status":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "body"),
    ],
)
def test_malformed_requests_name_the_field(sent: bytes, field: str) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        wire.decode_filter_args(sent)
    assert field == caught.value.field
    assert caught.value.problem


def many(count: int, text: bytes = b"{}") -> bytes:
    return b",".join([text] * count)


def keys(count: int, value: bytes) -> bytes:
    return b",".join(b'"k%d":%b' % (number, value) for number in range(count))


MANY = wire.MOST_OBJECTS + wire.ClusterSize(4).most_nodes
POD_TEXT = msgspec.json.encode(POD)[1:-1]
FULL_NODE = msgspec.json.encode({"metadata": {"name": "n"}, "status": {"images": [{"names": ["a", "b"]}] * 30}})


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b'{"Pod":{%b,"spec":{"volumes":[%b]}},"NodeNames":["a"]}' % (POD_TEXT, many(MANY + 1)), "more objects"),
        (
            b'{"Pod":{%b},"Nodes":{"items":[%b]}}' % (POD_TEXT, many(MANY, b'{"m\\u0065tadata":{"name":"n"}}')),
            "more than",
        ),
        (b'{"Pod":{%b},"NodeNames":["a"],%b}' % (POD_TEXT, keys(MANY, b"1")), "unknown field `k0`"),
        (b'{"pod":{%b},"NodeNames":["a"],"x":[%b]}' % (POD_TEXT, many(MANY)), "unknown field `pod`"),
        # The wrong field is named in a large request as in a small one.
        (b'{"Pod":{%b},"Nodes":{"items":[%b,{}]}}' % (POD_TEXT, many(1_000, FULL_NODE)), "Nodes.items[1000]"),
    ],
    ids=["volumes", "nodes", "keys", "another spelling", "a node without a name"],
)
def test_many_small_objects_are_not_decoded(sent: bytes, problem: str) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        wire.decode_filter_args(sent, wire.ClusterSize(4))
    assert problem in str(caught.value)


def test_what_nobody_reads_may_be_as_long_as_it_likes() -> None:
    parts = b'"NodeNames":["a"]', POD_TEXT, many(100_000), keys(100_000, b"{}"), b"9" * 1_000_000
    sent = b'{%b,"Pod":{%b,"spec":{"x":[%b],"y":{%b},"z":%b}}}' % parts
    assert ["a"] == wire.decode_filter_args(sent, wire.ClusterSize(4)).candidates


@pytest.mark.parametrize("by_name", [{}, {"NodeNames": None}, {"NodeNames": []}, {"NodeNames": ["a"]}])
@pytest.mark.parametrize(
    "whole",
    [
        {},
        {"Nodes": None},
        {"Nodes": {}},
        {"Nodes": {"items": None}},
        {"Nodes": {"items": []}},
        {"Nodes": {"items": [{"metadata": {"name": "a"}}]}},
    ],
)
def test_the_answer_has_the_form_of_the_request(by_name: dict[str, Any], whole: dict[str, Any]) -> None:
    sent = {"Pod": POD, **by_name, **whole}
    names, nodes = sent.get("NodeNames"), sent.get("Nodes")
    items = (nodes or {}).get("items") or []
    if (names is None and nodes is None) or (None not in (names, nodes) and bool(names) != bool(items)):
        with pytest.raises(MalformedRequestError, match="NodeNames"):
            wire.decode_filter_args(body(**sent))
        return

    args = wire.decode_filter_args(body(**sent))
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
