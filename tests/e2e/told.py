"""What the product told during a run, for the checker."""

from __future__ import annotations

from typing import Final

from tests.e2e.checker import ToldPods
from tests.e2e.harness import Cell

LOST_EVENT: Final = "LonghornPlaceLost"
REMOTE_EVENT: Final = "LonghornRemoteFallback"


def told_in(cell: Cell) -> ToldPods:
    """By the Events of the cell's present run."""
    lost, remote = set[str](), set[str]()
    for event in cell.events():
        about = event["involvedObject"]
        if event["reason"] == LOST_EVENT:
            lost.add(f"{about['namespace']}/{about['name']}")
        if event["reason"] == REMOTE_EVENT:
            remote.add(about.get("uid", ""))
    return ToldPods(frozenset(lost), frozenset(remote))
