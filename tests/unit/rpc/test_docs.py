"""docs/disk-scheduler.md: the calls that it shows are there, and its tables are whole."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from google.protobuf.json_format import Parse
from google.protobuf.message_factory import GetMessageClass

from controller.rpc import disk_scheduler_pb2 as pb
from controller.rules.affinity import Try
from controller.rules.reasons import Reason
from tests.unit.pages import FENCE

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "disk-scheduler.md").read_text()
SHELL = "\n".join(body for _, language, body in FENCE.findall(PAGE) if language == "sh")


def rows(heading: str) -> list[str]:
    """The first cells of the table behind those words."""
    table = PAGE.split(heading, 1)[1].split("\n\n", 2)[1]
    return re.findall(r"^\| `([^`]+)` \|", table.split("|---", 1)[1], re.MULTILINE)


def test_the_value_with_refusals_is_one() -> None:
    (value,) = re.findall(r"^echo (\S+) \| base64 -d", PAGE, re.MULTILINE)
    (refusal,) = pb.DiskRefusals.FromString(base64.b64decode(value)).refusals
    assert ("n1", "d1", pb.DiskRefusal.INSUFFICIENT_STORAGE) == (refusal.node, refusal.disk, refusal.reason)


def test_the_calls_by_hand_are_calls_of_the_service_with_fields_of_theirs() -> None:
    calls = pb.DESCRIPTOR.services_by_name["DiskScheduler"].methods_by_name
    shown = re.findall(r"-d '([^']+)' \\\n +\S+ DiskScheduler/(\w+)", SHELL)
    assert shown
    for body, name in shown:
        request = Parse(body, GetMessageClass(calls[name].input_type)())  # refuses a field that it does not have
        assert len(json.loads(body)) == len(request.ListFields())


def test_the_tables_name_everything() -> None:
    assert [*Try] == rows("which group of nodes decided:")
    calls = pb.DESCRIPTOR.services_by_name["DiskScheduler"].methods_by_name
    assert list(calls) == rows('"Synchronized Disk Scheduler":')


def test_a_reason_is_named_by_the_rule_or_among_the_exceptions() -> None:
    told = re.findall(r"`(\w+)`\s+\(`(\w+)`\)", PAGE.split("Exceptions:", 1)[1].split("\n\n", 1)[0])
    by_rule = {r: re.sub(r"(?<=.)(?=[A-Z])", "_", r.value.removeprefix("Volume")).upper() for r in Reason}
    assert [(r.name, r.value) for r, name in by_rule.items() if r.name != name] == told
    assert {r.name for r in Reason} == set(pb.DiskRefusal.Reason.keys()) - {"REASON_UNSPECIFIED"}
