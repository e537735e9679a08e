"""Which failed replica Longhorn brings back instead of making a new one: written straight from its rules.

The product's prediction is compared with it, too.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from tests.longhorn.placement import (
    has_tags,
    node_problem,
    selectors,
    source_disks,
    spread,
    tags_match,
    tries,
    with_engine,
)
from tests.longhorn.release import at_least
from tests.longhorn.space import DiskFigures
from tests.longhorn.state import Candidate, Raw, SearchState, has_reusable_data, is_true

PRESSURE: Final = "DiskPressure"


def find_reusable(state: SearchState, volume: Raw, *, wanted_node: str = "", v2: bool | None = None) -> str | None:
    """Name of the replica that is brought back, or None. `v2`: what the setting for v2 volumes says, None: nothing.

    Nothing is asked about space, as the replica's bytes are there already. For anti-affinity all failed ones are as if
    they were not there.
    """
    if volume["spec"].get("dataEngine") == "v2":
        default = at_least(state.release, (1, 10, 0))
        if not (default if v2 is None else v2):
            return None
    able = [raw for raw in state.replicas if _is_able(state, volume, raw, wanted_node)]
    nodes = {raw["spec"]["nodeID"]: state.nodes[raw["spec"]["nodeID"]] for raw in able}
    healthy = replace(state, replicas=[raw for raw in state.replicas if not raw["spec"].get("failedAt")])
    for _, group, use_tags in tries(healthy, volume, nodes):
        names = [name for name in group if not use_tags or has_tags(state, volume["spec"], nodes[name], [])]
        found = [
            Candidate(raw["spec"]["nodeID"], "", raw["spec"]["diskID"], "")
            for raw in able
            if raw["spec"]["nodeID"] in names
        ]
        kept = {(entry.node, entry.uuid) for entry in spread(healthy, volume, found)}
        if kept:
            there = [raw for raw in able if (raw["spec"]["nodeID"], raw["spec"]["diskID"]) in kept]
            return str(max(there, key=_failed_at)["metadata"]["name"])
    return None


def _failed_at(raw: Raw) -> tuple[datetime, str]:
    return datetime.fromisoformat(raw["spec"]["failedAt"].replace("Z", "+00:00")), raw["metadata"]["name"]


def _is_able(state: SearchState, volume: Raw, raw: Raw, wanted_node: str) -> bool:
    place, uuid = raw["spec"].get("nodeID"), raw["spec"].get("diskID")
    if not raw["spec"].get("active") or not has_reusable_data(raw) or wanted_node not in ("", place):
        return False
    node = state.nodes.get(place)
    if node is None or node_problem(state, volume["spec"], place, node):
        return False
    if not with_engine(state, volume["spec"], raw, {place: node}):
        return False
    if volume["spec"].get("cloneMode") == "linked-clone" and at_least(state.release, (1, 10, 0)):
        if (place, uuid) not in source_disks(state, raw):
            return False
    for name, status in ((node.get("status") or {}).get("diskStatus") or {}).items():
        spec = (node["spec"].get("disks") or {}).get(name)
        if spec is not None and status.get("diskUUID") == uuid:
            return _takes_back(state, volume, spec, status)
    return False


def _takes_back(state: SearchState, volume: Raw, spec: Raw, status: Raw) -> bool:
    if not spec.get("allowScheduling") or spec.get("evictionRequested"):
        return False
    if not is_true(status.get("conditions"), "Ready"):
        return False
    tags = set(spec.get("tags") or ())
    allow_empty = state.flag("allow-empty-disk-selector-volume", True)
    if not all(tags_match(tags, wanted, allow_empty) for wanted in selectors(state, volume["spec"], "diskSelector")):
        return False
    if is_true(status.get("conditions"), "Schedulable"):
        return True
    conditions = status.get("conditions") or ()
    is_pressed = any(entry["type"] == "Schedulable" and entry.get("reason") == PRESSURE for entry in conditions)
    disk = DiskFigures.of(state, spec, status)
    return is_pressed and disk.available > disk.floor
