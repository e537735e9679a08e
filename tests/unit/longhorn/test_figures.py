"""What a disk's figures sum up, and when a write may trust what the informer shows."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.cluster.client import ApiError
from tests.longhorn.figures import count
from tests.longhorn.world import change, set_condition
from tests.unit.longhorn.worlds import GIB, Raw


def ready_disk(**figures: object) -> Raw:
    disk: Raw = {"diskUUID": "u1", **figures}
    set_condition(disk, "Ready", "True")
    return disk


def replica(name: str, uuid: str, gib: int, **spec: object) -> Raw:
    labels = {"longhorndiskuuid": uuid}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"volumeSize": str(gib * GIB), **spec}}


def image(name: str, uuid: str, gib: int) -> Raw:
    return {
        "metadata": {"name": name},
        "spec": {"diskFileSpecMap": {uuid: {}}},
        "status": {"realSize": gib * GIB},
    }


def test_replicas_and_images_of_the_disk_are_summed_and_listed() -> None:
    disk = ready_disk()
    replicas = [replica("a", "u1", 10), replica("b", "u2", 20), replica("c", "u1", 30)]
    assert count(disk, replicas, [image("i", "u1", 5), image("j", "u2", 7)])
    assert 45 * GIB == disk["storageScheduled"]
    assert {"a": 10 * GIB, "c": 30 * GIB} == disk["scheduledReplica"]
    assert {"i": 5 * GIB} == disk["scheduledBackingImage"]


def test_a_failed_an_evicting_an_inactive_and_a_deleting_replica_count_in_full() -> None:
    deleting = replica("d", "u1", 4)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    disk = ready_disk()
    count(
        disk,
        [
            replica("a", "u1", 1, failedAt="2026-01-01T00:00:00Z"),
            replica("b", "u1", 2, evictionRequested=True),
            replica("c", "u1", 3, active=False),
            deleting,
        ],
        [],
    )
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


def test_equal_figures_are_no_change() -> None:
    disk = ready_disk()
    replicas = [replica("a", "u1", 1)]
    assert count(disk, replicas, [])
    assert not count(disk, replicas, [])
    assert count(disk, [], [])


class Server:
    """One object with a resource version, and a record of what was asked for. Threads: one."""

    def __init__(self, version: int, value: str) -> None:
        self.stored: Raw | None = {"metadata": {"resourceVersion": str(version)}, "value": value}
        self.calls: list[str] = []

    def get_or_none(self, path: str) -> Raw | None:
        self.calls.append("get")
        return copy.deepcopy(self.stored)

    def replace(self, path: str, raw: Raw) -> Raw:
        self.calls.append("put")
        if self.stored is None:
            raise ApiError(404, "NotFound", "gone")
        version = self.stored["metadata"]["resourceVersion"]
        if raw["metadata"]["resourceVersion"] != version:
            raise ApiError(409, "Conflict", "stale")
        self.stored = {**raw, "metadata": {"resourceVersion": str(int(version) + 1)}}
        return copy.deepcopy(self.stored)


def put(value: str) -> Callable[[Raw], bool]:
    def edit(raw: Raw) -> bool:
        is_new = bool(raw["value"] != value)
        raw["value"] = value
        return is_new

    return edit


def try_change(server: Server, edit: Callable[[Raw], bool], known: Raw | None) -> Raw | None:
    return change(server, "/x/y", edit, known=known)  # type: ignore[arg-type]


def test_a_write_on_what_is_known_needs_no_read() -> None:
    server = Server(7, "old")
    known = copy.deepcopy(server.stored)
    changed = try_change(server, put("new"), known)
    assert (["put"], "new") == (server.calls, (changed or {})["value"])
    assert known is not None
    assert "old" == known["value"]  # the informer's copy stays as it is


def test_a_write_on_what_is_stale_is_made_again_on_what_is_there() -> None:
    server = Server(7, "old")
    known = {"metadata": {"resourceVersion": "6"}, "value": "older"}
    changed = try_change(server, lambda raw: put(f"{raw['value']}+")(raw), known)
    assert (["put", "get", "put"], "old+") == (server.calls, (changed or {})["value"])


def test_that_nothing_is_to_be_written_is_never_believed_without_a_read() -> None:
    server = Server(7, "old")
    changed = try_change(server, put("new"), {"metadata": {"resourceVersion": "6"}, "value": "new"})
    assert (["get", "put"], "new") == (server.calls, (changed or {})["value"])
    assert ["get", "put", "get"] == (try_change(server, put("new"), None) and server.calls)


def test_what_is_known_and_gone_is_gone() -> None:
    server = Server(7, "old")
    known, server.stored = server.stored, None
    assert try_change(server, put("new"), known) is None
