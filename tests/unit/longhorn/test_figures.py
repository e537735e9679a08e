"""What a disk's figures sum up, and when a write may trust what the informer shows."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

from tests.longhorn.figures import count
from tests.longhorn.world import change, set_condition
from tests.longhorn_rules.objects import GIB, LONG_AGO, Raw
from tests.unit.longhorn.memory import MemoryApi


def ready_disk(**figures: object) -> Raw:
    disk: Raw = {"diskUUID": "u1", **figures}
    set_condition(disk, "Ready", "True")
    return disk


def replica(name: str, uuid: str, gib: int, **spec: object) -> Raw:
    labels = {"longhorndiskuuid": uuid}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"volumeSize": str(gib * GIB), **spec}}


def image(name: str, uuid: str, gib: int) -> Raw:
    on_disk: Raw = {"spec": {"diskFileSpecMap": {uuid: {}}}, "status": {"realSize": gib * GIB}}
    return {"metadata": {"name": name}, **on_disk}


def test_replicas_and_images_of_the_disk_are_summed_and_listed() -> None:
    disk = ready_disk()
    replicas = [replica("a", "u1", 10), replica("b", "u2", 20), replica("c", "u1", 30)]
    assert count(disk, replicas, [image("i", "u1", 5), image("j", "u2", 7)])
    assert 45 * GIB == disk["storageScheduled"]
    assert {"a": 10 * GIB, "c": 30 * GIB} == disk["scheduledReplica"]
    assert {"i": 5 * GIB} == disk["scheduledBackingImage"]


def test_a_failed_an_evicting_an_inactive_and_a_deleting_replica_count_in_full() -> None:
    deleting = replica("d", "u1", 4)
    deleting["metadata"]["deletionTimestamp"] = LONG_AGO
    failed, evicting = replica("a", "u1", 1, failedAt=LONG_AGO), replica("b", "u1", 2, evictionRequested=True)
    disk = ready_disk()
    count(disk, [failed, evicting, replica("c", "u1", 3, active=False), deleting], [])
    assert 10 * GIB == disk["storageScheduled"]


def test_the_label_counts_and_a_disk_without_uuid_has_nothing() -> None:
    labelled_elsewhere = replica("a", "u2", 1, diskID="u1")
    disk = ready_disk()
    count(disk, [labelled_elsewhere], [])
    assert 0 == disk["storageScheduled"]
    nameless = ready_disk(diskUUID="")
    count(nameless, [replica("unplaced", "", 1)], [])
    assert ({}, 0) == (nameless["scheduledReplica"], nameless["storageScheduled"])


def test_a_disk_that_is_not_ready_has_no_sums_but_keeps_its_images() -> None:
    disk = ready_disk(scheduledBackingImage={"i": GIB}, scheduledReplica={"a": GIB}, storageScheduled=2 * GIB)
    set_condition(disk, "Ready", "False", "DiskNotReady")
    assert count(disk, [replica("a", "u1", 1)], [])
    assert (0, {}) == (disk["storageScheduled"], disk["scheduledReplica"])
    assert {"i": GIB} == disk["scheduledBackingImage"]


PATH = "/api/v1/configmaps/one"


def holding(value: str) -> tuple[Mock, Raw]:
    """An API server with one object of that value, and the object as it is there."""
    api = MemoryApi()
    return Mock(wraps=api), api.create("/api/v1/configmaps", {"metadata": {"name": "one"}, "value": value})


def calls(api: Mock) -> list[str]:
    return [name for name, *_ in api.method_calls]


def stale(raw: Raw, value: str) -> Raw:
    return {"metadata": {**raw["metadata"], "resourceVersion": "0"}, "value": value}


def put(value: str) -> Callable[[Raw], bool]:
    def edit(raw: Raw) -> bool:
        is_new = bool(raw["value"] != value)
        raw["value"] = value
        return is_new

    return edit


def test_a_write_on_what_is_stale_is_made_again_on_what_is_there() -> None:
    api, there = holding("old")
    changed = change(api, PATH, lambda raw: put(f"{raw['value']}+")(raw), known=stale(there, "older"))
    assert (["replace", "get_or_none", "replace"], "old+") == (calls(api), (changed or {})["value"])


def test_that_nothing_is_to_be_written_is_never_believed_without_a_read() -> None:
    api, there = holding("old")
    changed = change(api, PATH, put("new"), known=stale(there, "new"))
    assert (["get_or_none", "replace"], "new") == (calls(api), (changed or {})["value"])
    change(api, PATH, put("new"))
    assert ["get_or_none", "replace", "get_or_none"] == calls(api)
