"""`python -m controller.allocations`: what it finds, what it repairs, and its exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.allocations import command
from controller.allocations.backends import NodeDiskAllocationBackend
from controller.kube.resources import LONGHORN_NODES, LONGHORN_REPLICAS, NODE_DISK_ALLOCATIONS
from controller.model.names import RECORDED_ANNOTATION
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.unit.allocations.stage import NAMESPACE, add_image, add_replica, entry, longhorn, on_record


class Commands:
    def __init__(self, api: FakeApiServer) -> None:
        self.api, self.backend = api, NodeDiskAllocationBackend(api, NAMESPACE)

    def check(self) -> int:
        return command.check(self.backend, self.api, NAMESPACE)

    def repair(self, *, rewrites: bool = False) -> int:
        return command.repair(self.backend, self.api, NAMESPACE, VirtualClock(), rewrites=rewrites)


@pytest.fixture
def commands() -> Commands:
    api = longhorn()
    api.page_size = 1
    add_replica(api, "r1", 10, "n1")
    add_replica(api, "r2", 20, "n2", "d2")
    add_image(api, "i1", 7, "n1-d1", "n3-d1")
    return Commands(api)


def test_what_exists_is_adopted(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == commands.check()
    assert "no-entry=4" in capsys.readouterr().out
    assert 0 == commands.repair()
    assert 0 == commands.check()
    assert {"r1": 10, "i1": 7} == on_record(commands.backend, "n1")
    assert {"r2": 20} == on_record(commands.backend, "n2")
    assert {"i1": 7} == on_record(commands.backend, "n3")


def test_a_half_finished_expansion_and_a_lost_object(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands.repair()
    there = commands.backend.read("n1")
    commands.backend.write(there, [entry("r1", 99), entry("ghost")], 4)
    commands.api.delete(LONGHORN_REPLICAS, NAMESPACE, "r2")
    capsys.readouterr()
    assert 0 == commands.repair()
    said = capsys.readouterr().out
    assert ["expansion-unfinished=1", "no-entry=1", "object-gone=2"] == said.splitlines()[-3:]
    assert 0 == commands.check()
    assert 4 == commands.backend.read("n1").record.term


def test_what_a_replica_waits_for_that_has_no_disk_yet_stays(commands: Commands) -> None:
    commands.repair()
    spec = {"volumeName": "v", "volumeSize": "10", "nodeID": "", "diskID": "", "active": True}
    commands.api.put(LONGHORN_REPLICAS, NAMESPACE, {"metadata": {"name": "waits"}, "spec": spec})
    there = commands.backend.read("n1")
    commands.backend.write(there, [*there.record.allocations, entry("waits")], 4)
    assert (0, 0) == (commands.check(), commands.repair())
    assert "waits" in on_record(commands.backend, "n1")


def test_each_record_keeps_its_term_whatever_anothers_is(commands: Commands) -> None:
    commands.repair()
    late = commands.backend.read("n1")
    commands.backend.write(late, late.record.allocations, 2**52)
    other = commands.backend.read("n2")
    commands.backend.write(other, [entry("ghost", node="n2")], 4)
    assert 0 == commands.repair()
    assert {"r2": 20} == on_record(commands.backend, "n2")
    assert [2**52, 4] == [commands.backend.read(node).record.term for node in ("n1", "n2")]


def test_what_a_longhorn_node_has_lost_is_said(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands.repair()
    mark = {"metadata": {"annotations": {RECORDED_ANNOTATION: "3"}}}
    commands.api.patch(LONGHORN_NODES, NAMESPACE, "n3", mark)
    assert (1, 1) == (commands.check(), commands.repair())
    assert "n3: unreadable in Longhorn's Node" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spec", "path"),
    [({"diskAllocations": {"d1": "garbage"}}, "spec.diskAllocations"), ({"term": 2**63 - 1}, "spec.term")],
)
def test_what_cannot_be_read_is_written_anew_only_on_request(
    commands: Commands, capsys: pytest.CaptureFixture[str], spec: dict[str, Any], path: str
) -> None:
    commands.repair()
    raw = commands.api.get(NODE_DISK_ALLOCATIONS, NAMESPACE, "n1")
    raw["spec"] = spec
    commands.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, raw)
    assert 1 == commands.check()
    assert 1 == commands.repair()
    assert f"n1: unreadable: {path}" in capsys.readouterr().out
    assert 0 == commands.repair(rewrites=True)
    assert 0 == commands.check()
    assert {"r1": 10, "i1": 7} == on_record(commands.backend, "n1")


def test_the_definition_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == command.main(["crd"])
    assert "CustomResourceDefinition" == json.loads(capsys.readouterr().out)["kind"]


def test_a_kubeconfig_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == command.main(["check", "--kubeconfig", "/nowhere"])
    assert "/nowhere" in capsys.readouterr().err
