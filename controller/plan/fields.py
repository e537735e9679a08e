"""What Kubernetes' API server and Longhorn's webhooks would have refused, although no reader of facts complains about
it.

The running extender reads such values as best it can: a newer Longhorn may have new words. So does the planner; but its
objects may have been written by people, so it says which field is odd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from controller.errors import MalformedRequestError
from controller.model.longhorn import LonghornNode, Replica, Volume
from controller.model.quantity import quantity_bytes
from controller.model.reader import Raw, flag_at, list_at, mapping_at, read, shown, text_at
from controller.model.workload import Claim, StorageClass
from controller.rules.locality import locality_of
from controller.rules.provisioning import check_class

# Words that a newer Longhorn may add to: a status, by kind and path.
WORDS: Final[Mapping[str, tuple[tuple[str, frozenset[str]], ...]]] = {
    "Volume": (
        ("status.state", frozenset({"creating", "attached", "detached", "attaching", "detaching", "deleting"})),
        ("status.robustness", frozenset({"healthy", "degraded", "faulted", "unknown"})),
        (
            "status.cloneStatus.state",
            frozenset({"initiated", "copy-completed-awaiting-healthy", "completed", "failed"}),
        ),
        ("spec.frontend", frozenset({"blockdev", "iscsi", "nvmf", "ublk"})),
    ),
    "EngineImage": (("status.state", frozenset({"pending", "deploying", "deployed", "incompatible", "error"})),),
    "InstanceManager": (
        ("status.currentState", frozenset({"starting", "running", "stopping", "stopped", "error", "unknown"})),
        ("spec.type", frozenset({"aio", "engine", "replica"})),
    ),
}
_STATUSES: Final = ("True", "False", "Unknown")


def odd_fields(raw: Raw, facts: object) -> Iterator[MalformedRequestError]:
    """A complaint for each word in a status of Longhorn's that no release has there (an empty one is no word), and for
    the first field that could not exist in a cluster."""
    for path, words in WORDS.get(raw["kind"], ()):
        *way, name = path.split(".")
        value = text_at(mapping_at(raw, "", *way), ".".join(way), name)
        if value and value not in words:
            yield MalformedRequestError(path, f"is not one of {', '.join(sorted(words))}: {shown(value)}")
    problem = read(partial(_check_fields, facts), raw)
    if problem is not None:
        yield problem


def _check_fields(facts: object, raw: Raw) -> None:
    """Raises MalformedRequestError for the first field that could not exist in a cluster."""
    _check_meta(mapping_at(raw, "", "metadata"))
    status = mapping_at(raw, "", "status")
    _check_conditions(status, "status")
    for kind, check in _CHECKS.items():
        if isinstance(facts, kind):
            check(raw, facts)


def _check_meta(meta: Raw) -> None:
    for name in ("namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"):
        text_at(meta, "metadata", name)
    for name in ("labels", "annotations"):
        mapping_at(meta, "metadata", name)


def _check_conditions(status: Raw, path: str) -> None:
    for index, entry in enumerate(list_at(status, path, "conditions")):
        where = f"{path}.conditions[{index}]"
        condition = mapping_at(entry, where)
        for name in ("type", "status"):
            if not text_at(condition, where, name):
                raise MalformedRequestError(f"{where}.{name}", "is missing")
        if condition["status"] not in _STATUSES:
            problem = f"is not one of {', '.join(_STATUSES)}: {shown(condition['status'])}"
            raise MalformedRequestError(f"{where}.status", problem)


def _check_node(raw: Raw, node: LonghornNode) -> None:
    for name, disk in mapping_at(raw, "", "status", "diskStatus").items():
        _check_conditions(mapping_at(disk, f"status.diskStatus.{name}"), f"status.diskStatus.{name}")
    for entry in node.disks:
        if entry.reserved_bytes < 0:
            raise MalformedRequestError(f"spec.disks.{entry.name}.storageReserved", f"{entry.reserved_bytes} < 0")


def _check_replica(raw: Raw, replica: Replica) -> None:
    _check_size(raw, "volumeSize")
    if not replica.volume:
        raise MalformedRequestError("spec.volumeName", "is missing")


def _check_volume(raw: Raw, volume: Volume) -> None:
    _check_size(raw, "size")
    flag_at(mapping_at(raw, "", "spec"), "spec", "encrypted")
    if volume.actual_size_bytes < 0:
        raise MalformedRequestError("status.actualSize", f"{volume.actual_size_bytes} < 0")
    if locality_of(volume).has_one_copy and volume.replica_count != 1:
        raise MalformedRequestError(
            "spec.numberOfReplicas", f"data locality {volume.data_locality} needs 1, not {volume.replica_count}"
        )


def _check_size(raw: Raw, name: str) -> None:
    value = mapping_at(raw, "", "spec").get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise MalformedRequestError(f"spec.{name}", f"is not a string of decimal bytes: {shown(value)}")


def _check_claim(raw: Raw, _claim: Claim) -> None:
    request = mapping_at(raw, "", "spec", "resources", "requests").get("storage")
    if request is not None and quantity_bytes(request, "spec.resources.requests.storage") < 0:
        raise MalformedRequestError("spec.resources.requests.storage", f"{shown(request)} < 0")


_CHECKS: Final[Mapping[type, Callable[[Raw, Any], None]]] = {
    LonghornNode: _check_node,
    Replica: _check_replica,
    Volume: _check_volume,
    Claim: _check_claim,
    StorageClass: lambda _, facts: check_class(facts),
}
