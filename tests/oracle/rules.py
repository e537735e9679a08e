"""Every rule of placement as something that can be taken away: a rule decides where its absence changes the answer.

A rule yields the edits that take it away. No edit: it says nothing in this world. Edits go to the raw objects and are
undone, so that nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.longhorn.plan import Question
from tests.longhorn.state import is_true

Edit = tuple[Any, str, Any]  # map, key, value
Rule = Callable[[Question], Iterator[Edit]]
GOOD: Final = [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "True"}]
V2_LABEL: Final = "node.longhorn.io/disable-v2-data-engine"


def _nodes(question: Question) -> Iterator[Any]:
    return iter(question.state.nodes.values())


def _disks(question: Question) -> Iterator[tuple[Any, Any]]:
    """Spec and status."""
    for node in _nodes(question):
        for name, status in node["status"]["diskStatus"].items():
            if name in node["spec"]["disks"]:
                yield node["spec"]["disks"][name], status


def _setting(name: str, value: str) -> Rule:
    def rule(question: Question) -> Iterator[Edit]:
        if name in question.state.settings:
            yield question.state.settings, name, value

    return rule


def _node_condition(kind: str) -> Rule:
    def rule(question: Question) -> Iterator[Edit]:
        for node in _nodes(question):
            found = node["status"]["conditions"]
            if not is_true(found, kind):
                yield (
                    node["status"],
                    "conditions",
                    [entry for entry in GOOD if entry["type"] == kind] + list(found or ()),
                )

    return rule


def _node_closed(question: Question) -> Iterator[Edit]:
    for node in _nodes(question):
        if not node["spec"].get("allowScheduling"):
            yield node["spec"], "allowScheduling", True


def _node_deleted(question: Question) -> Iterator[Edit]:
    for node in _nodes(question):
        if node["metadata"].get("deletionTimestamp"):
            yield node["metadata"], "deletionTimestamp", ""


def _v2_label(question: Question) -> Iterator[Edit]:
    if question.state.kube_nodes is not None:
        yield vars(question.state), "kube_nodes", None


def asked(question: Question) -> Any:
    """The first replica that is asked for."""
    name = question.details["replicas"][0]
    return next(raw for raw in question.state.replicas if raw["metadata"]["name"] == name)


def _asked(field: str) -> Rule:
    """Of the replica in question, where the field says anything."""

    def rule(question: Question) -> Iterator[Edit]:
        if asked(question)["spec"].get(field):
            yield asked(question)["spec"], field, ""

    return rule


def _replicas(field: str, value: Any) -> Rule:
    """Of the volume, where the field says anything."""

    def rule(question: Question) -> Iterator[Edit]:
        for replica in question.state.replicas:
            if replica["spec"].get(field):
                yield replica["spec"], field, value

    return rule


def _volume(field: str) -> Rule:
    def rule(question: Question) -> Iterator[Edit]:
        if question.volume["spec"].get(field):
            yield question.volume["spec"], field, None

    return rule


def _state(field: str) -> Rule:
    def rule(question: Question) -> Iterator[Edit]:
        if getattr(question.state, field) is not None:
            yield vars(question.state), field, None

    return rule


def _image(field: str) -> Rule:
    """The backing image's selector, as if it asked for what the volume asks for."""

    def rule(question: Question) -> Iterator[Edit]:
        for image in question.state.backing_images.values():
            yield image["spec"], field, question.volume["spec"].get(field)

    return rule


def _clone_source(field: str, value: Any) -> Rule:
    def rule(question: Question) -> Iterator[Edit]:
        for source in question.state.source_replicas:
            if bool(source["spec"].get(field)) != bool(value):
                yield source["spec"], field, value

    return rule


def _disk_closed(question: Question) -> Iterator[Edit]:
    for spec, _ in _disks(question):
        if not spec.get("allowScheduling"):
            yield spec, "allowScheduling", True


def _disk_evicting(question: Question) -> Iterator[Edit]:
    for spec, _ in _disks(question):
        if spec.get("evictionRequested"):
            yield spec, "evictionRequested", False


def _disk_condition(question: Question) -> Iterator[Edit]:
    for _, status in _disks(question):
        if not is_true(status["conditions"], "Schedulable"):
            yield status, "conditions", GOOD


def _disk_type(question: Question) -> Iterator[Edit]:
    wanted = "block" if question.volume["spec"]["dataEngine"] == "v2" else "filesystem"
    for spec, _ in _disks(question):
        if spec.get("diskType") != wanted:
            yield spec, "diskType", wanted


def _file_system(question: Question) -> Iterator[Edit]:
    for _, status in _disks(question):
        yield status, "filesystemType", ""


def _missing_disk(question: Question) -> Iterator[Edit]:
    for node in _nodes(question):
        for name in node["status"]["diskStatus"].keys() - node["spec"]["disks"].keys():
            spec = {"allowScheduling": True, "diskType": "filesystem", "storageReserved": 0, "tags": []}
            yield node["spec"]["disks"], name, spec


def _scheduled(question: Question) -> Iterator[Edit]:
    for _, status in _disks(question):
        yield status, "storageScheduled", -(2**61)


def _reserved(question: Question) -> Iterator[Edit]:
    for spec, _ in _disks(question):
        if spec.get("storageReserved"):
            yield spec, "storageReserved", 0


def _minimal(question: Question) -> Iterator[Edit]:
    yield question.state.settings, "storage-minimal-available-percentage", "-1000000"


def _blank(question: Question) -> Iterator[Edit]:
    for _, status in _disks(question):
        for name in ("storageMaximum", "storageAvailable"):
            if status.get(name, 0) <= 0:
                yield status, name, 2**50


def _actual(question: Question) -> Iterator[Edit]:
    if question.volume["status"].get("actualSize"):
        yield question.volume["status"], "actualSize", 0


def _fresh(question: Question) -> Iterator[Edit]:
    """As if every disk listed all of the volume's replicas, without their bytes."""
    names = [replica["metadata"]["name"] for replica in question.state.replicas]
    for _, status in _disks(question):
        yield status, "scheduledReplica", dict.fromkeys(names, 0)


def _deleting_replicas(question: Question) -> Iterator[Edit]:
    for replica in question.state.replicas:
        if replica["metadata"].get("deletionTimestamp"):
            yield replica["metadata"], "deletionTimestamp", ""


def _exhausted_retries(question: Question) -> Iterator[Edit]:
    for replica in question.state.replicas:
        if replica["spec"].get("failedAt") and (replica["spec"].get("rebuildRetryCount") or 0) >= 5:
            yield replica["spec"], "rebuildRetryCount", 0


def _due(question: Question) -> Iterator[Edit]:
    if question.volume["status"].get("robustness") == "degraded":
        yield question.volume["status"], "robustness", "healthy"


def _zones(question: Question) -> Iterator[Edit]:
    for node in _nodes(question):
        yield node["status"], "zone", node["metadata"]["name"]


def _unavailable_neighbours(question: Question) -> Iterator[Edit]:
    """Bring every node back as a place that takes nothing: its replicas count as used then."""
    for node in _nodes(question):
        if not node["spec"].get("allowScheduling") or not is_true(node["status"]["conditions"], "Ready"):
            yield node["spec"], "allowScheduling", True
            yield node["status"], "conditions", GOOD
            yield node["status"], "diskStatus", {}


def _release(question: Question) -> Iterator[Edit]:
    if question.state.release != (1, 13, 0):
        yield vars(question.state), "release", (1, 13, 0)


def _flag(field: str, setting: str, default: bool, at_volume: bool) -> Rule:
    """The soft flag turned round, where it is effective."""

    def rule(question: Question) -> Iterator[Edit]:
        own, settings = question.volume["spec"].get(field), question.state.settings
        if (own in ("enabled", "disabled")) == at_volume:
            if at_volume:
                yield question.volume["spec"], field, "disabled" if own == "enabled" else "enabled"
            else:
                yield settings, setting, "false" if question.state.flag(setting, default) else "true"

    return rule


FLAGS: Final = (
    ("node", "replicaSoftAntiAffinity", "replica-soft-anti-affinity", False),
    ("zone", "replicaZoneSoftAntiAffinity", "replica-zone-soft-anti-affinity", True),
    ("disk", "replicaDiskSoftAntiAffinity", "replica-disk-soft-anti-affinity", True),
)
SOFT: Final[Mapping[str, Rule]] = {
    f"{what} soft anti-affinity, {'volume' if at_volume else 'setting'}": _flag(field, setting, default, at_volume)
    for what, field, setting, default in FLAGS
    for at_volume in (True, False)
}
UNAVAILABLE: Final = "nodes are unavailable"
NO_DISK: Final = "disks are unavailable"
TAGS: Final = "tags not fulfilled"
SPACE: Final = "insufficient storage"
CLONE: Final = "linked clone replica cannot be satisfied"
ENGINE: Final = "none of the node candidates contains a ready engine image"
# By name; with the reason that Longhorn gives for it, "" if none.
PLACEMENT: Final[Mapping[str, tuple[str, Rule]]] = {
    "node not Ready": (UNAVAILABLE, _node_condition("Ready")),
    "node not Schedulable": (UNAVAILABLE, _node_condition("Schedulable")),
    "node's allowScheduling": (UNAVAILABLE, _node_closed),
    "node being deleted": (UNAVAILABLE, _node_deleted),
    "v2 engine disabled on node": (UNAVAILABLE, _v2_label),
    "hard node affinity": ("hard affinity cannot be satisfied", _asked("hardNodeAffinity")),
    "topology requirement": ("topology requirement cannot be satisfied", _volume("topologyRequirement")),
    "linked clone": (CLONE, _volume("cloneMode")),
    "linked clone: named source": (CLONE, _asked("linkedCloneSrcReplicaName")),
    "linked clone: failed source": (CLONE, _clone_source("failedAt", "")),
    "linked clone: evicting source": (CLONE, _clone_source("evictionRequested", False)),
    "linked clone: source never healthy": (CLONE, _clone_source("healthyAt", "x")),
    "engine image": (ENGINE, _state("engine_images")),
    "instance manager": (ENGINE, _state("instance_managers")),
    "default instance manager image": (ENGINE, _setting("default-instance-manager-image", "")),
    "volume's node selector": (TAGS, _volume("nodeSelector")),
    "volume's disk selector": (TAGS, _volume("diskSelector")),
    "backing image's node selector": (TAGS, _image("nodeSelector")),
    "backing image's disk selector": (TAGS, _image("diskSelector")),
    "empty node selector": (TAGS, _setting("allow-empty-node-selector-volume", "true")),
    "empty disk selector": (TAGS, _setting("allow-empty-disk-selector-volume", "true")),
    "disk's allowScheduling": (NO_DISK, _disk_closed),
    "disk evicting": (NO_DISK, _disk_evicting),
    "disk not Schedulable": (NO_DISK, _disk_condition),
    "disk type": (NO_DISK, _disk_type),
    "disk in status only": ("", _missing_disk),
    "file-system limit": ("incompatible volume size", _file_system),
    "over-provisioning": (SPACE, _scheduled),
    "reserved bytes": (SPACE, _reserved),
    "minimal available": (SPACE, _minimal),
    "no maximum or nothing available": (SPACE, _blank),
    "volume's real bytes": (SPACE, _actual),
    "fresh replicas": (SPACE, _fresh),
    "replica placed already": ("replica already scheduled", _asked("nodeID")),
    "replica failed unused": ("unused failed replica is not supported", _asked("failedAt")),
    "replica evicting": ("", _replicas("evictionRequested", False)),
    "replica being deleted": ("", _deleting_replicas),
    "failed replica without retries": ("", _exhausted_retries),
    "replacement due": ("", _due),
    "shared zones": ("", _zones),
    "replicas on unavailable nodes": ("", _unavailable_neighbours),
    "volume's auto-balance": ("", _volume("replicaAutoBalance")),
    "auto-balance setting": ("", _setting("replica-auto-balance", "disabled")),
    "disk pressure percentage": ("", _setting("replica-auto-balance-disk-pressure-percentage", "0")),
    "best-effort near its node": ("", _volume("dataLocality")),
    "older or unknown release": ("", _release),
}


def _failed_grow(question: Question) -> Iterator[Edit]:
    for replica in question.state.replicas:
        if replica["spec"].get("nodeID") and replica["spec"].get("failedAt"):
            yield replica["spec"], "nodeID", ""


def _several(question: Question) -> Iterator[Edit]:
    seen = set()
    for replica in question.state.replicas:
        place = (replica["spec"].get("nodeID"), replica["spec"].get("diskID"))
        if place in seen:
            yield replica["spec"], "nodeID", ""
        seen.add(place)


def _lost(question: Question) -> Iterator[Edit]:
    known = {
        (node["metadata"]["name"], node["status"]["diskStatus"][name].get("diskUUID"))
        for node in _nodes(question)
        for name in node["status"]["diskStatus"].keys() & node["spec"]["disks"].keys()
    }
    for replica in question.state.replicas:
        if replica["spec"].get("nodeID") and (replica["spec"]["nodeID"], replica["spec"].get("diskID")) not in known:
            yield replica["spec"], "nodeID", ""


def _stuck(question: Question) -> Iterator[Edit]:
    yield question.volume["status"], "robustness", ""
    yield question.volume["status"], "cloneStatus", None
    yield question.volume["status"], "conditions", []
    yield question.volume["spec"], "frontend", ""
    if question.volume["spec"]["dataEngine"] == "v2" and question.state.release is not None:
        yield vars(question.state), "release", max(question.state.release, (1, 10, 0))


def _physical(question: Question) -> Iterator[Edit]:
    if question.state.release is None or question.state.release >= (1, 11, 0):
        yield vars(question.state), "release", (1, 10, 2)


GROWTH: Final[Mapping[str, tuple[str, Rule]]] = {
    "physical space (growth)": (SPACE, _physical),
    "over-provisioning (growth)": (SPACE, _scheduled),
    "minimal available (growth)": (SPACE, _minimal),
    "reserved bytes (growth)": (SPACE, _reserved),
    "disk of a replica is gone (growth)": ("disk not found", _lost),
    "volume cannot grow as it is": ("", _stuck),
    "failed replicas grow": ("", _failed_grow),
    "several replicas on a disk (growth)": ("", _several),
    "older or unknown release (growth)": ("", _release),
}
