"""Every rule of placement as something that can be taken away: a rule decides where its absence changes the answer.

A rule yields the edits that take it away. No edit: it says nothing in this world. Edits go to the raw objects and are
undone, so that nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import not_
from typing import Any, Final

from tests.longhorn.plan import Question
from tests.longhorn.release import NEWEST
from tests.longhorn.state import is_true

Edit = tuple[Any, str, Any]  # map, key, value
Rule = Callable[[Question], Iterator[Edit]]
Places = Callable[[Question], Iterable[Any]]
GOOD: Final = [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "True"}]


def each(places: Places, field: str, value: Any, when: Callable[[Any], bool] = bool) -> Rule:
    """That field of all those maps gets the value, where `when` holds of what it says: where it says anything."""

    def rule(question: Question) -> Iterator[Edit]:
        for where in places(question):
            if when(where.get(field)):
                yield where, field, value

    return rule


def several(*rules: Rule) -> Rule:
    return lambda question: (edit for rule in rules for edit in rule(question))


def always(_: Any) -> bool:
    return True


def is_known(value: Any) -> bool:
    return value is not None


def _nodes(question: Question) -> Iterator[Any]:
    return iter(question.state.nodes.values())


def _disks(question: Question) -> Iterator[tuple[Any, Any]]:
    """Spec and status."""
    for node in _nodes(question):
        for name, status in node["status"]["diskStatus"].items():
            if name in node["spec"]["disks"]:
                yield node["spec"]["disks"][name], status


def _node_part(part: str) -> Places:
    return lambda question: (node[part] for node in _nodes(question))


def _disk_specs(question: Question) -> Iterator[Any]:
    return (spec for spec, _ in _disks(question))


def _disk_statuses(question: Question) -> Iterator[Any]:
    return (status for _, status in _disks(question))


def _volume_part(part: str) -> Places:
    return lambda question: [question.volume[part]]


def _state(question: Question) -> list[Any]:
    return [vars(question.state)]


def _settings(question: Question) -> list[Any]:
    return [question.state.settings]


def _replica_part(part: str) -> Places:
    return lambda question: (replica[part] for replica in question.state.replicas)


def _sources(question: Question) -> Iterator[Any]:
    return (source["spec"] for source in question.state.source_replicas)


def asked(question: Question) -> Any:
    """The first replica that is asked for."""
    name = question.details["replicas"][0]
    return next(raw for raw in question.state.replicas if raw["metadata"]["name"] == name)


def _asked(question: Question) -> list[Any]:
    return [asked(question)["spec"]]


def _node_condition(kind: str) -> Rule:
    def rule(question: Question) -> Iterator[Edit]:
        for node in _nodes(question):
            found = node["status"]["conditions"]
            if not is_true(found, kind):
                good = [entry for entry in GOOD if entry["type"] == kind]
                yield node["status"], "conditions", good + list(found or ())

    return rule


def _image(field: str) -> Rule:
    """The backing image's selector, as if it asked for what the volume asks for."""

    def rule(question: Question) -> Iterator[Edit]:
        for image in question.state.backing_images.values():
            yield image["spec"], field, question.volume["spec"].get(field)

    return rule


def _disk_type(question: Question) -> Iterator[Edit]:
    wanted = "block" if question.volume["spec"]["dataEngine"] == "v2" else "filesystem"
    return each(_disk_specs, "diskType", wanted, lambda found: bool(found != wanted))(question)


def _missing_disk(question: Question) -> Iterator[Edit]:
    for node in _nodes(question):
        for name in node["status"]["diskStatus"].keys() - node["spec"]["disks"].keys():
            spec = {"allowScheduling": True, "diskType": "filesystem", "storageReserved": 0, "tags": []}
            yield node["spec"]["disks"], name, spec


def _is_nothing(figure: int | None) -> bool:
    return (figure or 0) <= 0


def _fresh(question: Question) -> Iterator[Edit]:
    """As if every disk listed all of the volume's replicas, without their bytes."""
    names = [replica["metadata"]["name"] for replica in question.state.replicas]
    return each(_disk_statuses, "scheduledReplica", dict.fromkeys(names, 0), always)(question)


def _exhausted_retries(question: Question) -> Iterator[Edit]:
    for replica in question.state.replicas:
        if replica["spec"].get("failedAt") and (replica["spec"].get("rebuildRetryCount") or 0) >= 5:
            yield replica["spec"], "rebuildRetryCount", 0


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


RELEASE: Final = each(_state, "release", NEWEST, lambda release: bool(release != NEWEST))
SCHEDULED: Final = each(_disk_statuses, "storageScheduled", -(2**61), always)
RESERVED: Final = each(_disk_specs, "storageReserved", 0)
MINIMAL: Final = each(_settings, "storage-minimal-available-percentage", "-1000000", always)


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
FILE_SYSTEM: Final = each(_disk_statuses, "filesystemType", "", always)
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
    "node's allowScheduling": (UNAVAILABLE, each(_node_part("spec"), "allowScheduling", True, not_)),
    "node being deleted": (UNAVAILABLE, each(_node_part("metadata"), "deletionTimestamp", "")),
    "v2 engine disabled on node": (UNAVAILABLE, each(_state, "kube_nodes", None, is_known)),
    "hard node affinity": ("hard affinity cannot be satisfied", each(_asked, "hardNodeAffinity", "")),
    "topology requirement": (
        "topology requirement cannot be satisfied",
        each(_volume_part("spec"), "topologyRequirement", None),
    ),
    "linked clone": (CLONE, each(_volume_part("spec"), "cloneMode", None)),
    "linked clone: named source": (CLONE, each(_asked, "linkedCloneSrcReplicaName", "")),
    "linked clone: failed source": (CLONE, each(_sources, "failedAt", "")),
    "linked clone: evicting source": (CLONE, each(_sources, "evictionRequested", False)),
    "linked clone: source never healthy": (CLONE, each(_sources, "healthyAt", "x", not_)),
    "engine image": (ENGINE, each(_state, "engine_images", None, is_known)),
    "instance manager": (ENGINE, each(_state, "instance_managers", None, is_known)),
    "default instance manager image": (ENGINE, each(_settings, "default-instance-manager-image", "", is_known)),
    "volume's node selector": (TAGS, each(_volume_part("spec"), "nodeSelector", None)),
    "volume's disk selector": (TAGS, each(_volume_part("spec"), "diskSelector", None)),
    "backing image's node selector": (TAGS, _image("nodeSelector")),
    "backing image's disk selector": (TAGS, _image("diskSelector")),
    "empty node selector": (TAGS, each(_settings, "allow-empty-node-selector-volume", "true", is_known)),
    "empty disk selector": (TAGS, each(_settings, "allow-empty-disk-selector-volume", "true", is_known)),
    "disk's allowScheduling": (NO_DISK, each(_disk_specs, "allowScheduling", True, not_)),
    "disk evicting": (NO_DISK, each(_disk_specs, "evictionRequested", False)),
    "disk not Schedulable": (
        NO_DISK,
        each(_disk_statuses, "conditions", GOOD, lambda found: not is_true(found, "Schedulable")),
    ),
    "disk type": (NO_DISK, _disk_type),
    "disk in status only": ("", _missing_disk),
    "file-system limit": ("incompatible volume size", FILE_SYSTEM),
    "over-provisioning": (SPACE, SCHEDULED),
    "reserved bytes": (SPACE, RESERVED),
    "minimal available": (SPACE, MINIMAL),
    "no maximum or nothing available": (
        SPACE,
        several(
            each(_disk_statuses, "storageMaximum", 2**50, _is_nothing),
            each(_disk_statuses, "storageAvailable", 2**50, _is_nothing),
        ),
    ),
    "volume's real bytes": (SPACE, each(_volume_part("status"), "actualSize", 0)),
    "fresh replicas": (SPACE, _fresh),
    "replica placed already": ("replica already scheduled", each(_asked, "nodeID", "")),
    "replica failed unused": ("unused failed replica is not supported", each(_asked, "failedAt", "")),
    "replica evicting": ("", each(_replica_part("spec"), "evictionRequested", False)),
    "replica being deleted": ("", each(_replica_part("metadata"), "deletionTimestamp", "")),
    "failed replica without retries": ("", _exhausted_retries),
    "replacement due": (
        "",
        each(_volume_part("status"), "robustness", "healthy", lambda found: bool(found == "degraded")),
    ),
    "shared zones": ("", _zones),
    "replicas on unavailable nodes": ("", _unavailable_neighbours),
    "volume's auto-balance": ("", each(_volume_part("spec"), "replicaAutoBalance", None)),
    "auto-balance setting": ("", each(_settings, "replica-auto-balance", "disabled", is_known)),
    "disk pressure percentage": ("", each(_settings, "replica-auto-balance-disk-pressure-percentage", "0", is_known)),
    "best-effort near its node": ("", each(_volume_part("spec"), "dataLocality", None)),
    "older or unknown release": ("", RELEASE),
}


def _failed_grow(question: Question) -> Iterator[Edit]:
    for replica in question.state.replicas:
        if replica["spec"].get("nodeID") and replica["spec"].get("failedAt"):
            yield replica["spec"], "nodeID", ""


def _twice(question: Question) -> Iterator[Edit]:
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


def _v2_grows(question: Question) -> Iterator[Edit]:
    if question.volume["spec"]["dataEngine"] == "v2" and question.state.release is not None:
        yield vars(question.state), "release", max(question.state.release, (1, 10, 0))


def _all_placed(question: Question) -> Iterator[Edit]:
    """As if those without a place were not there."""
    if any(not replica["spec"].get("nodeID") for replica in question.state.replicas):
        placed = [replica for replica in question.state.replicas if replica["spec"].get("nodeID")]
        yield vars(question.state), "replicas", placed


def _ready_disks(question: Question) -> Iterator[Edit]:
    return each(_disk_statuses, "conditions", GOOD, lambda found: not is_true(found, "Ready"))(question)


def _moving(state: Any) -> bool:
    return state not in (None, "", "attached", "detached")


PHYSICAL: Final = each(_state, "release", (1, 10, 2), lambda release: release is None or release >= (1, 11, 0))
GROWTH: Final[Mapping[str, tuple[str, Rule]]] = {
    "physical space (growth)": (SPACE, PHYSICAL),
    "over-provisioning (growth)": (SPACE, SCHEDULED),
    "minimal available (growth)": (SPACE, MINIMAL),
    "reserved bytes (growth)": (SPACE, RESERVED),
    "disk of a replica is gone (growth)": ("disk not found", _lost),
    "file-system limit (growth)": ("incompatible volume size", FILE_SYSTEM),
    "faulted (growth)": ("", each(_volume_part("status"), "robustness", "", lambda found: bool(found == "faulted"))),
    "clone (growth)": ("", each(_volume_part("status"), "cloneStatus", {"state": "completed"}, always)),
    "restore (growth)": ("", each(_volume_part("status"), "restoreRequired", False)),
    "standby (growth)": ("", each(_volume_part("status"), "isStandby", False)),
    "state (growth)": ("", each(_volume_part("status"), "state", "", _moving)),
    "migration (growth)": ("", each(_volume_part("spec"), "migrationNodeID", "")),
    "frontend (growth)": ("", each(_volume_part("spec"), "frontend", "")),
    "engine (growth)": ("", _v2_grows),
    "condition Scheduled (growth)": ("", each(_volume_part("status"), "conditions", [])),
    "unplaced replicas (growth)": ("", _all_placed),
    "disk not Ready (growth)": ("", _ready_disks),
    "failed replicas grow": ("", _failed_grow),
    "several replicas on a disk (growth)": ("", _twice),
    "older or unknown release (growth)": ("", RELEASE),
}
