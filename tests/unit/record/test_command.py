"""`record`: what it says, and its exit codes."""

from __future__ import annotations

import json

import pytest

from controller.errors import NotFoundError
from controller.kube.resources import CRDS, LONGHORN_REPLICAS, NODE_DISK_ALLOCATIONS
from controller.process.command_line import run_command
from controller.record import command
from controller.record.backends import LonghornNodeBackend, NodeDiskAllocationBackend
from tests.unit.record.stage import (
    NAMESPACE,
    RecordApi,
    add_image,
    add_replica,
    add_volume,
    entry,
    image_entry,
    longhorn,
    nodes_crd,
    set_field,
    write,
)


class Command:
    """Over a cluster whose record is as it is to be."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self._capsys = longhorn(), capsys
        self.api.page_size = 1
        self.api.put(CRDS, None, nodes_crd(has_field=False))
        self.backend = NodeDiskAllocationBackend(self.api, NAMESPACE)
        add_replica(self.api, "r1", 10, "n1")
        add_replica(self.api, "r2", 20, "n2", "d2")
        add_image(self.api, "i1", 7, "n1-d1")
        write(self.backend, entry("r1"), image_entry("i1"))
        write(self.backend, entry("r2", 20, "n2", "d2"), node="n2")

    def check(self) -> tuple[int, list[str]]:
        before = self.api.version
        code = command.check(self.api, NAMESPACE)
        assert before == self.api.version
        return code, self._capsys.readouterr().out.splitlines()

    def finds(self, *lines: str) -> None:
        assert (1, [f"backend={self.backend.name}", *lines, f"differences={len(lines)}"]) == self.check()


@pytest.fixture
def checks(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_a_record_that_is_as_it_is_to_be(checks: Command) -> None:
    assert (0, ["backend=node-disk-allocation", "differences=0"]) == checks.check()


def test_what_the_record_lacks(checks: Command) -> None:
    write(checks.backend, entry("r1", 4))
    add_replica(checks.api, "r3", 5, "n3")
    checks.finds(
        "n1: lacks backing-image i1 disk=n1-d1 bytes=7, has 0",
        "n1: lacks replica r1 disk=n1-d1 bytes=10, has 4",
        "n3: lacks replica r3 disk=n3-d1 bytes=5, has 0",
    )


def test_what_it_has_beyond_the_objects(checks: Command) -> None:
    write(checks.backend, entry("r1", 99), image_entry("i1"), image_entry("gone"))
    write(checks.backend, entry("ghost", 5, "left"), node="left")
    checks.api.delete(LONGHORN_REPLICAS, NAMESPACE, "r2")
    checks.finds(
        "left: has replica ghost disk=left-d1 bytes=5, and objects show 0",
        "n1: has backing-image gone disk=n1-d1 bytes=7, and objects show 0",
        "n1: has replica r1 disk=n1-d1 bytes=99, and objects show 10",
        "n2: has replica r2 disk=n2-d2 bytes=20, and objects show 0",
    )


def test_what_may_come_at_any_moment_is_no_difference(checks: Command) -> None:
    """A replica that waits for its disk, one that grows with its volume, and a copy of an image."""
    add_volume(checks.api, "v", 99)
    add_replica(checks.api, "waits", 10, "")
    write(checks.backend, entry("r1", 99), image_entry("i1"), image_entry("i1", disk="d2"), entry("waits", disk="d2"))
    assert 0 == checks.check()[0]
    write(checks.backend, entry("r1", 100), image_entry("i1"))
    checks.finds("n1: has replica r1 disk=n1-d1 bytes=100, and objects show 10")


def test_what_is_damaged_is_said(checks: Command) -> None:
    set_field(checks.api, checks.backend, "n2", {"n2-d2": {"replicas": {"r2": 20, "r3": "x"}}})
    why = "spec.diskAllocations.n2-d2.replicas.r3: is not a number of bytes"
    checks.finds(f"n2: not understood: {why}")


def test_it_looks_where_the_record_is(checks: Command) -> None:
    checks.api.put(CRDS, None, nodes_crd(has_field=True))
    checks.backend = LonghornNodeBackend(checks.api, NAMESPACE)  # type: ignore[assignment]
    assert 1 == checks.check()[0]
    write(checks.backend, entry("r1"), image_entry("i1"))
    write(checks.backend, entry("r2", 20, "n2", "d2"), node="n2")
    assert (0, ["backend=longhorn-node", "differences=0"]) == checks.check()


def test_a_cluster_without_a_place_for_it_is_a_failure() -> None:
    api = RecordApi()
    api.put(CRDS, None, nodes_crd(has_field=False))
    api.absent.add(NODE_DISK_ALLOCATIONS.plural)
    with pytest.raises(NotFoundError):
        command.check(api, NAMESPACE)


def test_the_definition_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run_command(command.command, ["crd"])
    assert "CustomResourceDefinition" == json.loads(capsys.readouterr().out)["kind"]


def test_a_kubeconfig_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run_command(command.command, ["check", "--kubeconfig", "/nowhere"])
    assert "/nowhere" in capsys.readouterr().err
