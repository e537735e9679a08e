"""Where Longhorn puts a replica: a pure function of raw objects, written straight from what its scheduler does.

Source: Longhorn's `scheduler/replica_scheduler.go` and its enhancement documents, in our own words. Nothing is shared
with the product, so that a mistake in one is not hidden by the same mistake in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

Raw = Mapping[str, Any]
TIB = 1024**4
_K = TypeVar("_K")


@dataclass(frozen=True)
class Candidate:
    """A disk that Longhorn would take."""

    node: str
    disk: str
    uuid: str
    path: str


@dataclass(frozen=True)
class Refusal:
    node: str
    disk: str
    reason: str
    message: str


@dataclass
class State:
    """The world that Longhorn's informers show it: possibly stale."""

    nodes: Mapping[str, Raw]
    replicas: Sequence[Raw]  # of this volume
    settings: Mapping[str, str]
    engine_images: Sequence[Raw] | None = None
    instance_managers: Sequence[Raw] | None = None
    backing_images: Mapping[str, Raw] = field(default_factory=dict)
    kube_nodes: Mapping[str, Raw] = field(default_factory=dict)
    source_replicas: Sequence[Raw] = ()  # of the volume that a linked clone is made of
    now: datetime | None = None

    def flag(self, name: str, default: bool) -> bool:
        return self.settings.get(name, str(default)).lower() in ("1", "t", "true")

    def number(self, name: str, default: int) -> int:
        return int(self.settings.get(name, default))


@dataclass
class Answer:
    candidates: list[Candidate]
    refusals: list[Refusal]


def is_true(conditions: Iterable[Raw] | None, kind: str) -> bool:
    return any(entry.get("type") == kind and entry.get("status") == "True" for entry in conditions or ())


def find_candidates(state: State, volume: Raw, replica: Raw) -> Answer:
    """All disks that the scheduler would choose among for `replica`, and why others were refused."""
    spec = volume["spec"]
    refusals: list[Refusal] = []
    nodes = _node_candidates(state, spec, replica, refusals)
    if not nodes:
        return Answer([], refusals)
    for group, use_tags in _tries(state, volume, nodes):
        tagged = [name for name in group if not use_tags or _has_node_tags(state, spec, nodes[name], refusals)]
        found = _disks(state, volume, {name: nodes[name] for name in tagged}, refusals)
        if found:
            return Answer(sorted(found, key=lambda entry: (entry.node, entry.disk)), refusals)
    return Answer([], refusals)


# Nodes


def _node_candidates(state: State, spec: Raw, replica: Raw, refusals: list[Refusal]) -> dict[str, Raw]:
    nodes = {}
    for name, node in sorted(state.nodes.items()):
        problem = _node_problem(state, spec, name, node)
        if problem:
            refusals.append(Refusal(name, "", *problem))
        else:
            nodes[name] = node
    wanted = replica["spec"].get("hardNodeAffinity")
    if wanted:
        nodes = {name: node for name, node in nodes.items() if name == wanted}
        if not nodes:
            refusals.append(Refusal(wanted, "", "hard affinity cannot be satisfied", f"needs node {wanted}"))
    terms = spec.get("topologyRequirement") or []
    if nodes and terms:
        nodes = {name: node for name, node in nodes.items() if any(_matches(term, node) for term in terms)}
        if not nodes:
            refusals.append(Refusal("", "", "topology requirement cannot be satisfied", "no node matches"))
    return _with_engine(state, spec, nodes, refusals)


def _node_problem(state: State, spec: Raw, name: str, node: Raw) -> tuple[str, str] | None:
    status = node.get("status") or {}
    unavailable = "nodes are unavailable"
    if node["metadata"].get("deletionTimestamp"):
        return unavailable, "node is being deleted"
    if not is_true(status.get("conditions"), "Ready"):
        return unavailable, "node is not ready"
    if not is_true(status.get("conditions"), "Schedulable"):
        return unavailable, "node is not schedulable"
    if not (node.get("spec") or {}).get("allowScheduling"):
        return unavailable, "node does not allow scheduling"
    if spec.get("dataEngine") == "v2" and state.kube_nodes:
        kube = state.kube_nodes.get(name)
        labels = (kube or {"metadata": {}})["metadata"].get("labels") or {}
        if kube is None or labels.get("node.longhorn.io/disable-v2-data-engine") == "true":
            return unavailable, "node does not run the v2 engine"
    if spec.get("cloneMode") == "linked-clone" and not any(_is_source(entry, name) for entry in state.source_replicas):
        return "linked clone replica cannot be satisfied", "no healthy source replica on the node"
    return None


def _is_source(replica: Raw, node: str) -> bool:
    spec = replica["spec"]
    placed = spec.get("nodeID") == node and spec.get("diskID")
    return bool(placed and spec.get("healthyAt") and not spec.get("failedAt") and not spec.get("evictionRequested"))


def _matches(term: Raw, node: Raw) -> bool:
    status = node.get("status") or {}
    return all(not term.get(part) or term[part] == status.get(part, "") for part in ("zone", "region"))


def _with_engine(state: State, spec: Raw, nodes: dict[str, Raw], refusals: list[Refusal]) -> dict[str, Raw]:
    engine = spec.get("dataEngine") or "v1"
    if state.instance_managers is not None:
        running = {
            entry["spec"].get("nodeID")
            for entry in state.instance_managers
            if (entry["spec"].get("dataEngine") or "v1") == engine
            and (entry.get("status") or {}).get("currentState") == "running"
            and (engine == "v2" or _is_default_manager(state, entry))
        }
        nodes = {name: node for name, node in nodes.items() if name in running}
    if state.engine_images is not None and engine == "v1":
        ready = {
            name
            for entry in state.engine_images
            if entry["spec"].get("image") == spec.get("image")
            and (entry.get("status") or {}).get("state") in ("deployed", "deploying")
            for name, is_there in ((entry.get("status") or {}).get("nodeDeploymentMap") or {}).items()
            if is_there
        }
        nodes = {name: node for name, node in nodes.items() if name in ready}
    if not nodes:
        refusals.append(Refusal("", "", "none of the node candidates contains a ready engine image", "none ready"))
    return nodes


def _is_default_manager(state: State, manager: Raw) -> bool:
    default = state.settings.get("default-instance-manager-image")
    return not default or manager["spec"].get("image") == default


def _has_node_tags(state: State, spec: Raw, node: Raw, refusals: list[Refusal]) -> bool:
    tags = set((node.get("spec") or {}).get("tags") or ())
    allow_empty = state.flag("allow-empty-node-selector-volume", True)
    for selector in _selectors(state, spec, "nodeSelector"):
        if not _tags_match(tags, selector, allow_empty):
            refusals.append(Refusal(node["metadata"]["name"], "", "tags not fulfilled", f"node has {sorted(tags)}"))
            return False
    return True


def _selectors(state: State, spec: Raw, name: str) -> list[Sequence[str]]:
    found: list[Sequence[str]] = [spec.get(name) or ()]
    image = state.backing_images.get(spec.get("backingImage") or "")
    if image is not None:
        found.append(image["spec"].get(name) or ())
    return found


def _tags_match(tags: set[str], selector: Sequence[str], allow_empty: bool) -> bool:
    return set(selector) <= tags if selector else allow_empty or not tags


# Used nodes and zones, and the order of tries


def _tries(state: State, volume: Raw, nodes: Mapping[str, Raw]) -> Iterable[tuple[list[str], bool]]:
    """Groups of nodes to try, one after the other, and whether node tags count there."""
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
    pressed = {name for name in used if balances and _is_pressed(state, nodes[name])}
    unused = [name for name in nodes if name not in used or name in pressed]
    yield [name for name in nodes if _zone(nodes[name]) not in zones], True
    only_evicting = [name for name in used if all(used[name])]
    if not _soft(state, spec, "replicaZoneSoftAntiAffinity", "replica-zone-soft-anti-affinity", True):
        yield [name for name in only_evicting if balances or all(zones[_zone(nodes[name])])], True
        return
    yield unused, True
    if _soft(state, spec, "replicaSoftAntiAffinity", "replica-soft-anti-affinity", False):
        yield list(used), False
    else:
        yield only_evicting, True


def _occupies(state: State, volume: Raw, replica: Raw) -> bool:
    if replica["metadata"].get("deletionTimestamp"):
        return False
    if not replica["spec"].get("failedAt"):
        return True
    return is_reusable(replica) and not replacement_is_due(state, volume)


def is_reusable(replica: Raw) -> bool:
    spec = replica["spec"]
    return bool(
        spec.get("failedAt")
        and spec.get("nodeID")
        and spec.get("diskID")
        and int(spec.get("rebuildRetryCount") or 0) < 5
        and not spec.get("evictionRequested")
    )


def replacement_is_due(state: State, volume: Raw) -> bool:
    status = volume.get("status") or {}
    since = status.get("lastDegradedAt")
    if status.get("robustness") != "degraded" or not since or state.now is None:
        return False
    wait = timedelta(seconds=state.number("replica-replenishment-wait-interval", 600))
    return state.now > datetime.fromisoformat(since.replace("Z", "+00:00")) + wait


def _zone(node: Raw) -> str:
    return str((node.get("status") or {}).get("zone") or "")


def _soft(state: State, spec: Raw, name: str, setting: str, default: bool) -> bool:
    own = spec.get(name)
    return own == "enabled" if own in ("enabled", "disabled") else state.flag(setting, default)


def _auto_balance(state: State, spec: Raw) -> str:
    own = spec.get("replicaAutoBalance") or "ignored"
    return str(own if own != "ignored" else state.settings.get("replica-auto-balance", "disabled"))


def _is_pressed(state: State, node: Raw) -> bool:
    percentage = state.number("replica-auto-balance-disk-pressure-percentage", 90)
    if percentage <= 0:
        return False
    for name, status in ((node.get("status") or {}).get("diskStatus") or {}).items():
        maximum = int(status.get("storageMaximum") or 0)
        reserved = int(((node["spec"].get("disks") or {}).get(name) or {}).get("storageReserved") or 0)
        free = int(status.get("storageAvailable") or 0) - reserved
        if maximum > 0 and max(0, free * 100 // maximum) < 100 - percentage:
            return True
    return False


# Disks


def _disks(state: State, volume: Raw, nodes: Mapping[str, Raw], refusals: list[Refusal]) -> list[Candidate]:
    found = []
    for name, node in nodes.items():
        specs = node["spec"].get("disks") or {}
        statuses = (node.get("status") or {}).get("diskStatus") or {}
        for disk in sorted(specs.keys() & statuses.keys()):
            problem = _disk_problem(state, volume, specs[disk], statuses[disk])
            if problem:
                refusals.append(Refusal(name, disk, *problem))
            else:
                status = statuses[disk]
                found.append(Candidate(name, disk, status.get("diskUUID", ""), specs[disk].get("path", "")))
    return _spread(state, volume, found)


def _disk_problem(state: State, volume: Raw, spec: Raw, status: Raw) -> tuple[str, str] | None:
    wanted = volume["spec"]
    engine = wanted.get("dataEngine") or "v1"
    if not spec.get("allowScheduling") or spec.get("evictionRequested"):
        return "disks are unavailable", "scheduling is not allowed or the disk is evicting"
    if not is_true(status.get("conditions"), "Schedulable"):
        return "disks are unavailable", "condition Schedulable is not True"
    if (spec.get("diskType") or "filesystem") != ("block" if engine == "v2" else "filesystem"):
        return "disks are unavailable", f"type {spec.get('diskType')} does not serve engine {engine}"
    size = int(wanted.get("size") or 0)
    if engine == "v1" and not _file_system_takes(status.get("filesystemType") or "", size):
        return "incompatible volume size", f"{size} bytes on {status.get('filesystemType')}"
    tags = set(spec.get("tags") or ())
    allow_empty = state.flag("allow-empty-disk-selector-volume", True)
    for selector in _selectors(state, wanted, "diskSelector"):
        if not _tags_match(tags, selector, allow_empty):
            return "tags not fulfilled", f"disk has {sorted(tags)}"
    required = int((volume.get("status") or {}).get("actualSize") or 0)
    return space_problem(state, spec, status, size, required, _fresh_bytes(state, status))


def _file_system_takes(kind: str, size: int) -> bool:
    if kind.startswith("ext"):
        return size < 16 * TIB
    return size < 8 * 1024**6 - 1 if kind == "xfs" else True


def _fresh_bytes(state: State, status: Raw) -> int:
    """Replicas of the same volume on that disk that its figures do not list yet."""
    listed = status.get("scheduledReplica") or {}
    return sum(
        int(replica["spec"].get("volumeSize") or 0)
        for replica in state.replicas
        if replica["spec"].get("diskID") == status.get("diskUUID") and replica["metadata"]["name"] not in listed
    )


def space_problem(state: State, spec: Raw, status: Raw, size: int, required: int, fresh: int) -> tuple[str, str] | None:
    """The two formulas, in 64-bit floats and truncated as Longhorn computes them."""
    maximum, available = int(status.get("storageMaximum") or 0), int(status.get("storageAvailable") or 0)
    reserved, scheduled = int(spec.get("storageReserved") or 0), int(status.get("storageScheduled") or 0) + fresh
    floor = int(float(maximum) * float(state.number("storage-minimal-available-percentage", 25)) / 100)
    limit = int(float(maximum - reserved) * float(state.number("storage-over-provisioning-percentage", 100)) / 100)
    if maximum <= 0 or available <= 0:
        return "insufficient storage", f"maximum {maximum}, available {available}"
    if not available - required > floor:
        return "insufficient storage", f"available {available} - required {required} <= minimal {floor}"
    if not size + scheduled <= limit:
        return "insufficient storage", f"size {size} + scheduled {scheduled} > limit {limit}"
    return None


def _spread(state: State, volume: Raw, found: list[Candidate]) -> list[Candidate]:
    """Disks without a replica of the volume win; without any, all of them or none."""
    taken = {
        replica["spec"].get("diskID")
        for replica in state.replicas
        if not replica["spec"].get("failedAt") or is_reusable(replica)
    }
    free = [entry for entry in found if entry.uuid not in taken]
    soft = _soft(state, volume["spec"], "replicaDiskSoftAntiAffinity", "replica-disk-soft-anti-affinity", True)
    return free or (found if soft else [])


# Which one


def choose(state: State, volume: Raw, candidates: Sequence[Candidate], pick: Callable[[int], int]) -> Candidate | None:
    """The candidate that Longhorn takes; `pick(n)` decides ties and failures, which are arbitrary in Longhorn."""
    attached_to = volume["spec"].get("nodeID")
    if volume["spec"].get("dataLocality") == "best-effort" and attached_to and not _has_replica_on(state, attached_to):
        near = [entry for entry in candidates if entry.node == attached_to]
        candidates = near or candidates
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    size = int(volume["spec"].get("size") or 0)
    usable = {entry: _usable(state, entry) for entry in candidates}
    by_node: dict[str, int] = {}
    for entry in candidates:
        by_node[entry.node] = by_node.get(entry.node, 0) + usable[entry]
    node = _best(by_node, size, list(by_node), pick)
    if node is not None:
        disk = _best(usable, size, [entry for entry in candidates if entry.node == node], pick)
        if disk is not None:
            return disk
    return candidates[pick(len(candidates))]


def _has_replica_on(state: State, node: str) -> bool:
    return any(
        replica["spec"].get("nodeID") == node and not replica["spec"].get("failedAt") for replica in state.replicas
    )


def _usable(state: State, candidate: Candidate) -> int:
    node = state.nodes[candidate.node]
    status = node["status"]["diskStatus"][candidate.disk]
    reserved = int(node["spec"]["disks"][candidate.disk].get("storageReserved") or 0)
    return max(0, int(status.get("storageAvailable") or 0) - reserved - int(status.get("storageScheduled") or 0))


def _best(usable: Mapping[_K, int], size: int, among: Sequence[_K], pick: Callable[[int], int]) -> _K | None:
    scores: dict[_K, float] = {}
    for key in among:
        if usable[key] >= size:
            after = [room - size if other == key else room for other, room in usable.items()]
            mean = sum(after) / len(after)
            scores[key] = (max(after) - min(after)) / mean if mean > 0 else float("inf")
    if not scores:
        return None
    lowest = min(scores.values())
    ties = [key for key, score in scores.items() if score == lowest]
    return ties[pick(len(ties))] if lowest < float("inf") else None
