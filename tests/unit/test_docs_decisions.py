"""The worked examples of docs/rules say what the code decides."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from controller.model.longhorn import SpacePolicy
from controller.model.quantity import quantity_bytes
from controller.rules.eligibility import check_disk_space
from controller.rules.provisioning import rounded_volume_bytes
from controller.rules.reasons import Reason
from tests.fakes.builders import TestCluster, disk
from tests.unit.pages import ROOT

RULES = ROOT / "docs" / "rules"
ROOM = (RULES / "room.md").read_text()
NEEDS = (RULES / "needs.md").read_text()


def table(text: str, first_cell: str) -> list[list[str]]:
    """The cells of the rows of the one table whose heading begins with that cell, code marks taken off."""
    _, rest = text.split(f"\n| {first_cell} |")
    rows = []
    for line in rest.splitlines()[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    assert len(rows) > 2
    return rows


def size(text: str) -> int:
    return quantity_bytes(text, "example")


def numbers(text: str) -> list[int]:
    return [] if text == "none" else [int(part) for part in text.split(",")]


@pytest.mark.parametrize("row", table(ROOM, "disk"), ids=lambda row: row[0])
def test_a_disk_takes_a_replica_as_the_examples_say(row: list[str]) -> None:
    maximum, reserved, available, scheduled = (size(cell) for cell in row[1:5])
    facts = replace(disk(), maximum_bytes=maximum, reserved_bytes=reserved, available_bytes=available)
    space = SpacePolicy(minimal_available_pct=int(row[5]), over_provisioning_pct=int(row[6]))
    rejection = check_disk_space(facts, size(row[7]), size(row[8]), scheduled, space)
    assert row[9] == (rejection.reason if rejection else "fits")


@pytest.mark.parametrize("row", table(ROOM, "disks, free GiB"), ids=lambda row: " / ".join(row[:3]))
def test_a_pods_volumes_fit_as_the_examples_say(row: list[str]) -> None:
    cluster = TestCluster()
    cluster.add_node("n1", *(disk(f"d{index}", free) for index, free in enumerate(numbers(row[0]))))
    for index, gib in enumerate(numbers(row[1])):
        cluster.add_pod(f"other{index}", gib=gib)
        assert {"n1"} == cluster.offered(f"other{index}", "n1")
        cluster.select_node(f"other{index}", "n1")
    claims = [cluster.add_claim(f"c{index}", gib).name for index, gib in enumerate(numbers(row[2]))]
    cluster.add_pod("asking", *claims)
    outcome = cluster.filter("asking", "n1")
    assert row[3] == (outcome.refused["n1"] if outcome.refused else "passes")


@pytest.mark.parametrize("row", table(NEEDS, "request"), ids=lambda row: row[0])
def test_volumes_have_the_sizes_of_the_examples(row: list[str]) -> None:
    assert size(row[1]) == rounded_volume_bytes(size(row[0]))


def test_the_verdicts_name_reasons_that_there_are() -> None:
    named = {name for row in table(ROOM, "verdict") for name in re.findall(r"\b[A-Z]\w+", row[2])}
    assert named
    assert named <= set(Reason)
