"""Where Longhorn puts a replica: a pure function of raw objects, written straight from what its scheduler does.

Source: Longhorn's `scheduler/replica_scheduler.go` and its enhancement documents, in our own words. Nothing is shared
with the product, so that a mistake in one is not hidden by the same mistake in the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from tests.longhorn.preference import choose
from tests.longhorn.release import at_least
from tests.longhorn.space import space_problem
from tests.longhorn.state import Candidate, Raw, Refusal, SearchAnswer, SearchState, has_reusable_data, is_true

__all__ = [
    "Candidate",
    "Raw",
    "Refusal",
    "SearchAnswer",
    "SearchState",
    "choose",
    "find_candidates",
    "is_true",
    "space_problem",
]

TIB: Final = 1024**4
EIB: Final = 1024**6
NODES_UNAVAILABLE: Final = "nodes are unavailable"
DISKS_UNAVAILABLE: Final = "disks are unavailable"
HARD_AFFINITY: Final = "hard affinity cannot be satisfied"
TOPOLOGY: Final = "topology requirement cannot be satisfied"
LINKED_CLONE: Final = "linked clone replica cannot be satisfied"
NO_ENGINE: Final = "none of the node candidates contains a ready engine image"
TAGS: Final = "tags not fulfilled"
SIZE: Final = "incompatible volume size"
NO_OBJECT: Final = "longhorn client operation failed"
Disks: TypeAlias = set[tuple[str, str]]  # node and disk UUID


def find_candidates(state: SearchState, volume: Raw, replica: Raw) -> SearchAnswer:
    """All disks that the scheduler would choose among for `replica`, and why others were refused.

    A refusal by anti-affinity alone has no entry, as it has no reason in Longhorn.
    """
    spec = volume["spec"]
    refusals: list[Refusal] = []
    if spec.get("backingImage") and spec["backingImage"] not in state.backing_images:
        return SearchAnswer([], [Refusal("", "", NO_OBJECT, f"there is no backing image {spec['backingImage']}")])
    status = volume.get("status") or {}
    if status.get("robustness") == "degraded" and not status.get("lastDegradedAt"):
        return SearchAnswer([], [Refusal("", "", NO_OBJECT, "the time left until replacement is not known")])
    is_clone = spec.get("cloneMode") == "linked-clone" and at_least(state.release, (1, 10, 0))
    sources = source_disks(state, replica) if is_clone else None
    nodes = _node_candidates(state, spec, replica, sources, refusals)
    candidates: list[Candidate] = []
    attempt = ""
    if nodes:
        for name_of_try, group, use_tags in tries(state, volume, nodes):
            tagged = {
                name: nodes[name] for name in group if not use_tags or has_tags(state, spec, nodes[name], refusals)
            }
            candidates = _disks(state, volume, tagged, sources, refusals)
            if candidates:
                attempt = name_of_try
                break
    candidates.sort(key=lambda entry: (entry.node, entry.disk))
    return SearchAnswer(candidates, list(dict.fromkeys(refusals)), attempt)


# Nodes


def _node_candidates(
    state: SearchState, spec: Raw, replica: Raw, sources: Disks | None, refusals: list[Refusal]
) -> dict[str, Raw]:
    """Nodes by name that pass every rule but the tags. Each rule that leaves none ends the search with its reason."""
    nodes = {}
    for name, node in sorted(state.nodes.items()):
        problem = node_problem(state, spec, name, node)
        if problem:
            refusals.append(Refusal(name, "", NODES_UNAVAILABLE, problem))
        else:
            nodes[name] = node
    if nodes and sources is not None:
        nodes = {name: node for name, node in nodes.items() if any(where == name for where, _ in sources)}
        if not nodes:
            refusals.append(Refusal("", "", LINKED_CLONE, "no candidate node holds a healthy source replica"))
    wanted = replica["spec"].get("hardNodeAffinity")
    if nodes and wanted:
        nodes = {name: node for name, node in nodes.items() if name == wanted}
        if not nodes:
            refusals.append(Refusal(wanted, "", HARD_AFFINITY, "the wanted node is not a candidate"))
    terms = spec.get("topologyRequirement") or []
    if nodes and terms:
        nodes = {name: node for name, node in nodes.items() if any(_matches(term, node) for term in terms)}
        if not nodes:
            refusals.append(Refusal("", "", TOPOLOGY, "no candidate node lies in a wanted zone or region"))
    if nodes:
        nodes = with_engine(state, spec, replica, nodes)
        if not nodes:
            refusals.append(Refusal("", "", NO_ENGINE, "no candidate node runs the engine"))
    return nodes


def node_problem(state: SearchState, spec: Raw, name: str, node: Raw) -> str | None:
    conditions = (node.get("status") or {}).get("conditions")
    if node["metadata"].get("deletionTimestamp"):
        return "node is being deleted"
    for kind in ("Ready", "Schedulable"):
        if not is_true(conditions, kind):
            return f"node's condition {kind} is not True"
    if not (node.get("spec") or {}).get("allowScheduling"):
        return "node does not allow scheduling"
    if spec.get("dataEngine") == "v2" and state.kube_nodes is not None:
        kube = state.kube_nodes.get(name)
        labels = (kube or {"metadata": {}})["metadata"].get("labels") or {}
        if kube is None or labels.get("node.longhorn.io/disable-v2-data-engine") == "true":
            return "node does not run the v2 engine"
    return None


def source_disks(state: SearchState, replica: Raw) -> Disks:
    """Node and disk UUID of every healthy replica that a linked clone may share its blocks with.

    Before 1.12.1 an evicting source served as well, and no particular one could be named.
    """
    is_choosy = at_least(state.release, (1, 12, 1))
    named = replica["spec"].get("linkedCloneSrcReplicaName") if is_choosy else None
    found = set()
    for source in state.source_replicas:
        spec = source["spec"]
        is_healthy = spec.get("healthyAt") and not spec.get("failedAt")
        if is_choosy and spec.get("evictionRequested"):
            continue
        if is_healthy and spec.get("nodeID") and spec.get("diskID") and named in (None, "", source["metadata"]["name"]):
            found.add((str(spec["nodeID"]), str(spec["diskID"])))
    return found


def _matches(term: Raw, node: Raw) -> bool:
    status = node.get("status") or {}
    return all(not term.get(part) or term[part] == status.get(part, "") for part in ("zone", "region"))


def with_engine(state: SearchState, spec: Raw, replica: Raw, nodes: dict[str, Raw]) -> dict[str, Raw]:
    engine = spec.get("dataEngine") or "v1"
    if state.instance_managers is not None:
        running = {
            entry["spec"].get("nodeID")
            for entry in state.instance_managers
            if (entry["spec"].get("dataEngine") or "v1") == engine
            and (entry.get("status") or {}).get("currentState") == "running"
            and not (entry.get("metadata") or {}).get("deletionTimestamp")
            and (engine == "v2" or _is_default_manager(state, entry))
        }
        nodes = {name: node for name, node in nodes.items() if name in running}
    if state.engine_images is not None and engine == "v1":
        image = replica["spec"].get("image") or spec.get("image")
        ready = {
            name
            for entry in state.engine_images
            if entry["spec"].get("image") == image
            and (entry.get("status") or {}).get("state") in ("deployed", "deploying")
            for name, is_there in ((entry.get("status") or {}).get("nodeDeploymentMap") or {}).items()
            if is_there
        }
        nodes = {name: node for name, node in nodes.items() if name in ready}
    return nodes


def _is_default_manager(state: SearchState, manager: Raw) -> bool:
    default = state.settings.get("default-instance-manager-image")
    return not default or manager["spec"].get("image") == default


def has_tags(state: SearchState, spec: Raw, node: Raw, refusals: list[Refusal]) -> bool:
    tags = set((node.get("spec") or {}).get("tags") or ())
    allow_empty = state.flag("allow-empty-node-selector-volume", True)
    for selector in selectors(state, spec, "nodeSelector"):
        if not tags_match(tags, selector, allow_empty):
            refusals.append(Refusal(node["metadata"]["name"], "", TAGS, f"node has {sorted(tags)}"))
            return False
    return True


def selectors(state: SearchState, spec: Raw, name: str) -> list[Sequence[str]]:
    found: list[Sequence[str]] = [spec.get(name) or ()]
    image = state.backing_images.get(spec.get("backingImage") or "")
    if image is not None:
        found.append(image["spec"].get(name) or ())
    return found


def tags_match(tags: set[str], selector: Sequence[str], allow_empty: bool) -> bool:
    return set(selector) <= tags if selector else allow_empty or not tags


# Used nodes and zones, and the order of tries


def tries(state: SearchState, volume: Raw, nodes: Mapping[str, Raw]) -> Iterable[tuple[str, list[str], bool]]:
    """Groups of nodes to try, one after the other, by name, and whether node tags count there."""
    spec = volume["spec"]
    balances = _auto_balance(state, spec) == "best-effort"
    used: dict[str, list[bool]] = {}  # node -> is each counted replica evicting
    zones: dict[str, list[bool]] = {}
    for replica in state.replicas:
        node = replica["spec"].get("nodeID") or ""
        if node not in nodes or not _occupies(state, volume, replica):
            continue
        evicting = bool(replica["spec"].get("evictionRequested"))
        used.setdefault(node, []).append(evicting)
        zones.setdefault(_zone(nodes[node]), []).append(evicting)
    # Before 1.10.2 a used node counted as unused whatever its disks' pressure.
    needs_pressure = at_least(state.release, (1, 10, 2))
    pressed = {name for name in used if balances and (not needs_pressure or _is_pressed(state, nodes[name]))}
    unused = [name for name in nodes if name not in used or name in pressed]
    yield "1", [name for name in nodes if _zone(nodes[name]) not in zones], True
    only_evicting = [name for name in used if all(used[name])]
    if not _soft(state, spec, "replicaZoneSoftAntiAffinity", "replica-zone-soft-anti-affinity", True):
        yield "2a", [name for name in only_evicting if balances or all(zones[_zone(nodes[name])])], True
        return
    if _soft(state, spec, "replicaSoftAntiAffinity", "replica-soft-anti-affinity", False):
        yield "2c unused", unused, True
        yield "2c used", list(used), False
    else:
        yield "2b unused", unused, True
        yield "2b evicting", only_evicting, True


def _occupies(state: SearchState, volume: Raw, replica: Raw) -> bool:
    if replica["metadata"].get("deletionTimestamp"):
        return False
    if not replica["spec"].get("failedAt"):
        return True
    return has_reusable_data(replica) and not replacement_is_due(state, volume)


def replacement_is_due(state: SearchState, volume: Raw) -> bool:
    status = volume.get("status") or {}
    since = status.get("lastDegradedAt")
    if status.get("robustness") != "degraded" or not since or state.now is None:
        return False
    wait = timedelta(seconds=state.number("replica-replenishment-wait-interval", 600))
    return state.now >= datetime.fromisoformat(since.replace("Z", "+00:00")) + wait


def _zone(node: Raw) -> str:
    return str((node.get("status") or {}).get("zone") or "")


def _soft(state: SearchState, spec: Raw, name: str, setting: str, default: bool) -> bool:
    own = spec.get(name)
    return own == "enabled" if own in ("enabled", "disabled") else state.flag(setting, default)


def _auto_balance(state: SearchState, spec: Raw) -> str:
    own = spec.get("replicaAutoBalance") or "ignored"
    return str(own if own != "ignored" else state.settings.get("replica-auto-balance", "disabled"))


def _is_pressed(state: SearchState, node: Raw) -> bool:
    percentage = state.number("replica-auto-balance-disk-pressure-percentage", 90)
    if percentage <= 0:
        return False
    specs = node["spec"].get("disks") or {}
    for name, status in ((node.get("status") or {}).get("diskStatus") or {}).items():
        if name not in specs:
            continue
        maximum = int(status.get("storageMaximum") or 0)
        free = int(status.get("storageAvailable") or 0) - int(specs[name].get("storageReserved") or 0)
        # A disk without a size, as one that is not ready shows, has nothing free.
        free_percentage = free * 100 // maximum if free > 0 and maximum > 0 else 0
        if free_percentage < 100 - percentage:
            return True
    return False


# Disks


def _disks(
    state: SearchState, volume: Raw, nodes: Mapping[str, Raw], sources: Disks | None, refusals: list[Refusal]
) -> list[Candidate]:
    found = []
    for name, node in nodes.items():
        specs = node["spec"].get("disks") or {}
        statuses = (node.get("status") or {}).get("diskStatus") or {}
        for disk in sorted(specs.keys() & statuses.keys()):
            status = statuses[disk]
            uuid = str(status.get("diskUUID") or "")
            if sources is not None and (name, uuid) not in sources:
                refusals.append(Refusal(name, disk, LINKED_CLONE, "the disk holds no healthy source replica"))
                continue
            problem = _disk_problem(state, volume, name, specs[disk], status)
            if problem:
                refusals.append(Refusal(name, disk, *problem))
            else:
                found.append(Candidate(name, disk, uuid, specs[disk].get("path") or ""))
    return spread(state, volume, found)


def _disk_problem(state: SearchState, volume: Raw, node: str, spec: Raw, status: Raw) -> tuple[str, str] | None:
    wanted = volume["spec"]
    engine = wanted.get("dataEngine") or "v1"
    if not spec.get("allowScheduling") or spec.get("evictionRequested"):
        return DISKS_UNAVAILABLE, "scheduling is not allowed or the disk is evicting"
    if not is_true(status.get("conditions"), "Schedulable"):
        return DISKS_UNAVAILABLE, "condition Schedulable is not True"
    if (spec.get("diskType") or "filesystem") != ("block" if engine == "v2" else "filesystem"):
        return DISKS_UNAVAILABLE, f"type {spec.get('diskType')} does not serve engine {engine}"
    size = int(wanted.get("size") or 0)
    if engine == "v1" and not file_system_takes(status.get("filesystemType") or "", size):
        return SIZE, f"{size} bytes on {status.get('filesystemType')}"
    tags = set(spec.get("tags") or ())
    allow_empty = state.flag("allow-empty-disk-selector-volume", True)
    for selector in selectors(state, wanted, "diskSelector"):
        if not tags_match(tags, selector, allow_empty):
            return TAGS, f"disk has {sorted(tags)}"
    required = int((volume.get("status") or {}).get("actualSize") or 0)
    return space_problem(state, spec, status, size, required, fresh_bytes(state, node, status))


def file_system_takes(kind: str, size: int) -> bool:
    if kind.startswith("ext"):
        return size < 16 * TIB
    return size < 8 * EIB - 1 if kind == "xfs" else True


def fresh_bytes(state: SearchState, node: str, status: Raw) -> int:
    """Replicas of the same volume on that disk that its figures do not list yet.

    Before 1.11.1 those on the whole node counted, for each of its disks; so they do where the release is not known, as
    that promises less.
    """
    per_node = state.release is None or not at_least(state.release, (1, 11, 1))
    listed = status.get("scheduledReplica") or {}
    total = 0
    for replica in state.replicas:
        spec = replica["spec"]
        is_here = spec.get("nodeID") == node and (per_node or spec.get("diskID") == status.get("diskUUID"))
        if is_here and replica["metadata"]["name"] not in listed:
            total += int(spec.get("volumeSize") or 0)
    return total


def spread(state: SearchState, volume: Raw, found: list[Candidate]) -> list[Candidate]:
    """Disks without a replica of the volume win; without any, all of them or none."""
    taken = {
        replica["spec"].get("diskID")
        for replica in state.replicas
        if not replica["spec"].get("failedAt") or has_reusable_data(replica)
    }
    free = [entry for entry in found if not entry.uuid or entry.uuid not in taken]
    soft = _soft(state, volume["spec"], "replicaDiskSoftAntiAffinity", "replica-disk-soft-anti-affinity", True)
    return free or (found if soft else [])
