"""What only the stand-in has to say of placement: the form of its answers, its draws, its command."""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.longhorn import plan
from tests.longhorn.placement import SearchState, choose, find_candidates
from tests.longhorn_rules.cases import question
from tests.longhorn_rules.objects import Raw, disk, node, replica, volume

DOCUMENT = question({"nodes": {"a": {}}})


def test_a_step_tells_choice_candidates_and_refusals_in_order_and_what_was_given_stays_as_it_was() -> None:
    nodes = {"b": {}, "a": {"disks": [{}, {}]}, "c": {"ready": "False", "disks": [{"available": 0}]}}
    asked = question({"nodes": nodes})
    before = copy.deepcopy(asked)
    (step,) = plan.answer(asked)["steps"]
    places = [
        {"node": name, "disk": where, "diskUUID": f"{name}-{where}"}
        for name, where in (("a", "d1"), ("a", "d2"), ("b", "d1"))
    ]
    assert ("new", places) == (step["replica"], step["candidates"])
    assert step["scheduled"] in places
    assert [("c", "", "nodes are unavailable")] == [(e["node"], e["disk"], e["reason"]) for e in step["refusals"]]
    assert before == asked


def test_the_message_names_the_numbers() -> None:
    asked = question({"nodes": {"a": {"disks": [{"maximum": 250, "scheduled": 151}]}}, "volume": {"size": 100}})
    assert "size 100 + scheduled 151 > limit 250" == plan.answer(asked)["steps"][0]["refusals"][0]["message"]


# Draws. Longhorn takes any of several that are as good.


@pytest.mark.parametrize(
    ("nodes", "size"),
    [
        pytest.param([node("a"), node("b")], 1, id="equal ones"),
        pytest.param([node(name, disk(100, scheduled=100)) for name in "ab"], 50, id="none has room"),
        pytest.param([node("a", disk(100)), node("b", disk(100, scheduled=100))], 100, id="nothing left on average"),
    ],
)
@pytest.mark.parametrize(("pick", "expected"), [(lambda _: 0, "a"), (lambda count: count - 1, "b")])
def test_one_of_several_is_drawn(nodes: list[Raw], size: int, pick: Callable[[int], int], expected: str) -> None:
    new, wanted = replica("new", size=size), volume(size)
    settings = {"storage-over-provisioning-percentage": "300"}
    state = SearchState(nodes={entry["metadata"]["name"]: entry for entry in nodes}, replicas=[new], settings=settings)
    found = choose(state, wanted, find_candidates(state, wanted, new).candidates, pick)
    assert found is not None
    assert expected == found.node


def test_an_unplaced_replica_is_not_on_a_disk_that_has_no_uuid_yet() -> None:
    young, new = node("a", disk(400)), replica("new", size=400)
    del young["status"]["diskStatus"]["d1"]["diskUUID"]
    found = find_candidates(SearchState(nodes={"a": young}, replicas=[new], settings={}), volume(400), new)
    assert [""] == [entry.uuid for entry in found.candidates]


# The command; see tests/unit/plan/test_command.py, too


def test_a_file_that_cannot_be_read_ends_with_2(tmp_path: Path) -> None:
    broken = tmp_path / "question.yaml"
    broken.write_text("a: [")
    assert [2, 2] == [plan.main([str(path)]) for path in (broken, tmp_path / "absent")]


def test_a_bad_line_does_not_end_the_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    good = json.dumps(DOCUMENT)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{good}\n\n{{\n{{}}\n{'[' * 100_000}\n{good}\n"))
    assert 0 == plan.main(["--lines", "-"])
    first, *bad, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert plan.answer(DOCUMENT) == first == last
    assert ["error"] * 3 == [key for line in bad for key in line]
