"""Lines of plans and holds: what one says is what was written, and what is no entry is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.plans.plan import Hold, Plan, Source
from controller.errors import MalformedRequestError
from controller.model.places import Place
from controller.model.quantity import MAX_BYTES
from controller.placement.plan_entries import MAX_LINE_BYTES, MAX_PLACES, Entry, decode, encode, key_of, only_shrinks
from tests.longhorn.options import GIB
from tests.unit.placement.plan_stage import hold, plan

Found = TypeVar("Found")
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
sizes = st.integers(1, MAX_BYTES)
times = st.datetimes(timezones=st.just(UTC))
places = st.builds(Place, names, names, sizes)
lists = st.lists(places, max_size=4).map(tuple)


@st.composite
def holds(draw: st.DrawFn) -> Hold:
    """Disks and sizes of few values, so that a node has several volumes on a disk and a volume several sizes."""
    spots = st.tuples(st.sampled_from(["d1", "d2", draw(names)]), st.sampled_from([1, GIB, draw(sizes)]))
    offers = draw(st.none() | st.dictionaries(names, st.dictionaries(names, spots, max_size=4), max_size=4))
    return Hold(
        pod=draw(names),
        source=Source.FILTER,
        nodes=None if offers is None else {node: _placed(node, on_node) for node, on_node in offers.items()},
        anywhere=draw(st.dictionaries(names, lists, max_size=3)),
        since=draw(st.floats(0, 1e6)),
        since_utc=draw(times),
        named_before=frozenset(draw(st.lists(st.tuples(st.just("") | names, st.just("") | names), max_size=3))),
        chosen=draw(st.just("") | names),
    )


def _placed(node: str, on_node: Mapping[str, tuple[str, int]]) -> dict[str, Place]:
    return {volume: Place(node, disk, size) for volume, (disk, size) in on_node.items()}


def _turned(one: Hold) -> Hold:
    """The same one, with everything in another order."""
    nodes = one.nodes
    return replace(
        one,
        nodes=None if nodes is None else {name: _reversed(nodes[name]) for name in _reversed(nodes)},
        anywhere=_reversed(one.anywhere),
    )


def _reversed(of: Mapping[str, Found]) -> dict[str, Found]:
    return {name: of[name] for name in reversed(list(of))}


@settings(max_examples=50)
@given(holds())
def test_a_line_says_all_that_a_hold_is_but_for_the_time_of_its_process(one: Hold) -> None:
    line = encode(one)
    assert "\n" not in line
    assert replace(one, since=0.0) == decode(line)
    assert line == encode(decode(line)) == encode(_turned(one))


@given(st.builds(Plan, names, names, lists, st.lists(names, max_size=3).map(tuple), times))
def test_a_line_says_all_that_a_plan_is(one: Plan) -> None:
    line = encode(one)
    assert "\n" not in line
    assert one == decode(line)
    assert line == encode(decode(line))


def test_an_offer_takes_little_more_than_its_node_and_disk() -> None:
    one = replace(hold("pod-1", "n1", "n2", volume="pvc-1"), named_before=frozenset({("claim-1", "n9"), ("", "n8")}))
    assert encode(one) == (
        '{"pod":"pod-1","since":"2026-01-01T00:00:00Z",'
        '"nodes":{"n1":{"disk-n1":[0]},"n2":{"disk-n2":[0]}},"volumes":[["pvc-1",10737418240]],'
        '"older":[["","n8"],["claim-1","n9"]]}'
    )


def test_volumes_of_a_pod_share_the_name_of_their_disk_and_may_differ_in_size_by_node() -> None:
    on_nodes = {"n1": {"b": ("d1", 1), "a": ("d1", 2), "c": ("d2", 3)}, "n2": {"a": ("d1", 5)}}
    nodes = {node: _placed(node, on_node) for node, on_node in on_nodes.items()}
    one = replace(hold("p"), nodes=nodes)
    found = json.loads(encode(one))
    assert [["a", 2], ["a", 5], ["b", 1], ["c", 3]] == found["volumes"]
    assert {"n1": {"d1": [0, 2], "d2": [3]}, "n2": {"d1": [1]}} == found["nodes"]
    assert one == decode(encode(one))


def test_a_plan_and_a_hold_are_never_taken_for_each_other() -> None:
    """Not even those of one name, nor by a line that is both."""
    one, other = plan("x"), hold("x", "n1")
    assert ("plan:x", "hold:x") == (key_of(one), key_of(other))
    assert (one, other) == (decode(encode(one)), decode(encode(other)))
    with pytest.raises(MalformedRequestError):
        decode(json.dumps({**json.loads(encode(one)), **json.loads(encode(other))}))


STORED, ANSWER = plan("v0", "d1", "d2", "d2"), hold("p", "n1", "n2", volume="v0", far={"w": ("d1", "d2")})


@pytest.mark.parametrize(
    ("former", "now", "says_less"),
    [
        (STORED, plan("v0", "d2"), True),
        (STORED, plan("v0", "d1", "d3"), False),
        (STORED, plan("v0", "d1", "d1"), False),
        (STORED, plan("v0", "d1", pods=2), False),
        (STORED, replace(plan("v0", "d1"), uid="other"), False),
        (ANSWER, ANSWER.narrowed("n1"), True),
        (ANSWER, replace(ANSWER, anywhere={"w": ANSWER.anywhere["w"][:1]}), True),
        (ANSWER, replace(ANSWER, nodes={"n1": ANSWER.nodes["n1"], "n2": {}}), True),  # type: ignore[index]
        (ANSWER, hold("p", "n1", far={"w": ("d1", "d2")}), False),
        (ANSWER, hold("p", "n1", "n2", "n3", far={"w": ("d1", "d2")}), False),
        (ANSWER, hold("p", "n1", "n2", far={"w": ("d1", "d3")}), False),
        (ANSWER, replace(ANSWER, nodes=None), False),
        (ANSWER, replace(ANSWER, named_before=frozenset({("claim", "n1")})), False),
        (ANSWER, replace(ANSWER, since_utc=ANSWER.since_utc + timedelta(seconds=1)), False),
    ],
    ids=[
        "a place has ended",
        "another place",
        "twice there",
        "another pod",
        "another volume",
        "a node is chosen",
        "a place anywhere has ended",
        "a place on a node has ended",
        "fewer nodes",
        "more nodes",
        "another place anywhere",
        "whatever node",
        "older",
        "another answer",
    ],
)
def test_it_only_shrinks_where_places_have_ended_or_a_node_is_chosen(
    former: Entry, now: Entry, says_less: bool
) -> None:
    assert says_less is only_shrinks(now, encode(now), encode(former))
    assert not only_shrinks(now, encode(now), encode(now))
    assert not only_shrinks(now, encode(now), None)
    assert not only_shrinks(now, encode(now), "{")


PLAN, HOLD = json.loads(encode(plan("v0"))), json.loads(encode(hold("p", "n1")))
DEEP = "[" * 10_000


def lacking(line: Mapping[str, Any], name: str) -> str:
    return json.dumps({key: value for key, value in line.items() if key != name})


DAMAGED = {
    "not-json": "{",
    "another-type": "[]",
    "null": "null",
    "nothing": "{}",
    "deep": DEEP,
    "deep-below": f'{{"x":{DEEP}',
    "deep-pod": f'{{"pod":{DEEP}',
    "surrogate": '{"volume":"\\ud800"}',
    "control-character": json.dumps(PLAN).replace("v0", "v\x01"),
    "long": json.dumps({**PLAN, "pods": ["p" * 100] * (MAX_LINE_BYTES // 100)}),
    "plan-number-as-text": json.dumps({**PLAN, "places": [["n", "d", "10"]]}),
    "plan-fraction": json.dumps({**PLAN, "places": [["n", "d", 1.5]]}),
    "plan-truth": json.dumps({**PLAN, "places": [["n", "d", True]]}),
    "plan-no-uid": json.dumps({**PLAN, "uid": ""}),
    "plan-lacks-a-field": lacking(PLAN, "pods"),
    "plan-unknown-field": json.dumps({**PLAN, "until": 5}),
    "plan-negative": json.dumps({**PLAN, "places": [["n", "d", -1]]}),
    "plan-no-bytes": json.dumps({**PLAN, "places": [["n", "d", 0]]}),
    "plan-huge": json.dumps({**PLAN, "places": [["n", "d", 2**63]]}),
    "plan-long-node": json.dumps({**PLAN, "places": [["n" * 254, "d", 1]]}),
    "plan-many-places": json.dumps({**PLAN, "places": [["n", "d", 1]] * (MAX_PLACES + 1)}),
    "plan-100,000-places": json.dumps({**PLAN, "places": [["n", "d", 1]] * 100_000}),
    "plan-no-time": json.dumps({**PLAN, "since": "yesterday"}),
    "plan-local-time": json.dumps({**PLAN, "since": "2026-01-01T00:00:00"}),
    "plan-time-before-all": json.dumps({**PLAN, "since": "0001-01-01T00:00:00+14:00"}),
    "hold-no-pod": json.dumps({**HOLD, "pod": ""}),
    "hold-null-pod": json.dumps({**HOLD, "pod": None}),
    "hold-lacks-its-pod": lacking(HOLD, "pod"),
    "hold-lacks-its-nodes": lacking(HOLD, "nodes"),
    "hold-lacks-its-volumes": lacking(HOLD, "volumes"),
    "hold-lacks-its-time": lacking(HOLD, "since"),
    "hold-local-time": json.dumps({**HOLD, "since": "2026-01-01T00:00:00"}),
    "hold-time-before-all": json.dumps({**HOLD, "since": "0001-01-01T00:00:00+14:00"}),
    "hold-unknown-field": json.dumps({**HOLD, "until": 5}),
    "hold-no-node": json.dumps({**HOLD, "nodes": {"": {"d": [0]}}}),
    "hold-no-disk": json.dumps({**HOLD, "nodes": {"n1": {"": [0]}}}),
    "hold-volume-before-the-first": json.dumps({**HOLD, "nodes": {"n1": {"d": [-1]}}}),
    "hold-volume-after-the-last": json.dumps({**HOLD, "nodes": {"n1": {"d": [1]}}}),
    "hold-two-places": json.dumps({**HOLD, "nodes": {"n1": {"d": [0], "e": [0]}}}),
    "hold-two-sizes": json.dumps({**HOLD, "volumes": [["v", 1], ["v", 2]], "nodes": {"n1": {"d": [0, 1]}}}),
    "hold-no-bytes": json.dumps({**HOLD, "volumes": [["v0", 0]]}),
    "hold-many-places": json.dumps({**HOLD, "anywhere": {"v": [["n", "d", 1]] * (MAX_PLACES + 1)}}),
    "hold-older-alone": json.dumps({**HOLD, "older": [["claim"]]}),
    "hold-long-choice": json.dumps({**HOLD, "chosen": "n" * 254}),
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_is_damaged_is_no_entry(line: str) -> None:
    with pytest.raises(MalformedRequestError):
        decode(line)


@given(st.sampled_from([encode(plan("v0", "d1", "d2")), encode(hold("p", "n1", "n2", far={"w": ("d1",)}))]), st.data())
def test_half_a_line_is_no_entry(line: str, data: st.DataObject) -> None:
    with pytest.raises(MalformedRequestError):
        decode(line[: data.draw(st.integers(0, len(line) - 1))])


def test_a_hundred_offers_stand_in_few_kilobytes_whatever_the_number_of_volumes() -> None:
    """A line has a thousand at most."""

    def size(nodes: int, volumes: int) -> int:
        uuid = "0f4be7aa-4a5b-8c7d-0123-{:012d}"
        on_nodes = {
            f"worker-{node:04d}": {
                f"pvc-{uuid.format(volume)}": Place(f"worker-{node:04d}", uuid.format(2 * node + volume % 2), 10 * GIB)
                for volume in range(volumes)
            }
            for node in range(nodes)
        }
        return len(encode(replace(hold(uuid.format(0)), nodes=on_nodes)))

    assert 400 > size(4, 1)
    assert 6_100 > size(100, 1)
    assert size(100, 50) < MAX_LINE_BYTES
    assert size(1_000, 1) < MAX_LINE_BYTES < size(1_200, 1)
