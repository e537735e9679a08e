"""docs/disk-scheduler.md: its examples run as they are written, and its tables are whole."""

from __future__ import annotations

import base64
import inspect
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from certs.authority import LeafSpec
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.client import DiskSchedulerClient, MountedMaterial
from controller.rpc.command import main
from controller.rules import library
from controller.rules.affinity import Try
from controller.rules.reasons import Reason
from tests.fakes import saved
from tests.fakes.builders import GIB, volume
from tests.unit.pages import FENCE
from tests.unit.rpc.leaders import DISK_CLIENT, NAME, Chain, FakeRecord, Leader, show
from tests.unit.serving.tls_files import DAY

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "disk-scheduler.md").read_text()
BLOCKS = [(language, body) for _, language, body in FENCE.findall(PAGE)]
PYTHON = [body for language, body in BLOCKS if language == "python"]


def rows(heading: str) -> list[str]:
    """The first cells of the table behind those words."""
    table = PAGE.split(heading, 1)[1].split("\n\n", 2)[1]
    return re.findall(r"^\| `([^`]+)` \|", table.split("|---", 1)[1], re.MULTILINE)


@pytest.fixture
def folder(chain: Chain, leader: Leader, tmp_path: Path) -> Path:
    """With the files of a client that may ask, while the leader knows a volume and a node."""
    made = chain.leaf(LeafSpec(DISK_CLIENT, DAY, is_client=True))
    for name, data in (("tls.crt", made.certificate), ("tls.key", made.key), ("ca.crt", made.client_ca)):
        (tmp_path / name).write_bytes(data)
    leader.cluster.add_node("n1")
    leader.cluster.allocator.observe_volume("pvc-1", volume("pvc-1", 10, locality="disabled"))
    return tmp_path


def test_the_client_example_runs_and_has_ten_lines(
    leader: Leader, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = PYTHON[0]
    assert 8 <= len(example.splitlines()) <= 10
    placed = example.replace('"/tls"', repr(str(folder))).replace('f"{NAME}:9504"', repr(leader.address))
    assert placed.count(str(folder)) == placed.count(leader.address) == 1
    exec(compile(placed, "example", "exec"), {})
    assert capsys.readouterr().out.startswith("n1 d1 ")


def test_the_example_that_allocates_runs(
    leader: Leader, folder: Path, record: FakeRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = PYTHON[1].replace('f"{NAME}:9504"', repr(leader.address))
    assert 1 == placed.count(leader.address)
    example, names = compile(placed, "example", "exec"), {"NAME": NAME, "FILES": folder}
    leader.cluster.add_nodes(n1=100)
    show(leader, "pvc-1", 60)
    exec(example, names)
    assert "n1 n1-d1\n" == capsys.readouterr().out
    with DiskSchedulerClient(leader.address, NAME, MountedMaterial(folder)) as client:
        client.deallocate_replica("pvc-1-r-1")
    show(leader, "pvc-1", 160)
    exec(example, names)
    assert re.match(rf"n1 d1 {60 * GIB} \w+", capsys.readouterr().out)
    leader.checks.is_leading = False
    exec(example, names)
    assert "ask again\n" == capsys.readouterr().out


def test_the_value_with_refusals_is_one() -> None:
    (value,) = re.findall(r"^echo (\S+) \| base64 -d", PAGE, re.MULTILINE)
    (refusal,) = pb.DiskRefusals.FromString(base64.b64decode(value)).refusals
    assert ("n1", "d1", pb.DiskRefusal.INSUFFICIENT_STORAGE) == (refusal.node, refusal.disk, refusal.reason)


def test_the_first_command_runs(leader: Leader, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = next(body for language, body in BLOCKS if language == "sh").splitlines()[0]
    words = shlex.split(line.replace("/tls", str(folder)))
    assert ["python", "-m", "controller.rpc"] == words[:3]
    assert 0 == main([*words[3:], "--address", leader.address])
    assert "n1" == json.loads(capsys.readouterr().out)["preferred"]["node"]


def test_the_library_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"items": [saved.node("n1")]}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(document)))
    exec(compile(PYTHON[2], "example", "exec"), {})
    assert re.fullmatch(r"(n1 \S+\n)+", capsys.readouterr().out)


def test_the_tables_name_everything() -> None:
    assert [reason.name for reason in Reason] == rows("`reason` of a refusal:")
    assert [*Try] == rows("which group of nodes decided:")
    calls = pb.DESCRIPTOR.services_by_name["DiskScheduler"].methods_by_name
    assert list(calls) == rows('"Synchronized Disk Scheduler":')
    functions = [name for name in library.__all__ if inspect.isfunction(getattr(library, name))]
    assert sorted(functions) == sorted(rows("They know nothing of promises."))
