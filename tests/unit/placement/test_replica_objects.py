"""What is written into Replica objects, to the letter, and when nothing is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from controller.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    NotLeaderError,
    SchedulerError,
    UnavailableError,
)
from controller.kube.resources import LONGHORN_REPLICAS
from controller.model.longhorn import Replica
from controller.model.names import HELD_ANNOTATION, LEFT_ANNOTATION
from controller.placement.objects import ReplicaObjects
from tests.fakes.apiserver import FakeApiServer
from tests.unit.placement.placer_stage import NAMESPACE, TERM, Raw, place_write, put_replica, uid_of

NAME = "v-r-1"
UID = uid_of(NAME)
SINCE = "2026-01-01T00:00:00Z"
HELD_PATH = "/metadata/annotations/" + HELD_ANNOTATION.replace("/", "~1")
LEFT_PATH = "/metadata/annotations/" + LEFT_ANNOTATION.replace("/", "~1")
SAME = [{"op": "test", "path": "/metadata/uid", "value": UID}, {"op": "test", "path": "/spec/nodeID", "value": ""}]
PLACED = [
    {"op": "add", "path": "/spec/nodeID", "value": "n1"},
    {"op": "add", "path": "/spec/diskID", "value": "n1-d1"},
    {"op": "add", "path": "/spec/diskPath", "value": "/disks/n1"},
    {"op": "add", "path": "/spec/dataDirectoryName", "value": "v-xxxxxxxx"},
]
LABELS = [
    {"op": "add", "path": "/metadata/labels/longhornnode", "value": "n1"},
    {"op": "add", "path": "/metadata/labels/longhorndiskuuid", "value": "n1-d1"},
]
HELD = {"op": "add", "path": HELD_PATH, "value": SINCE}
LEFT = {"op": "add", "path": LEFT_PATH, "value": "no-room"}
UNHELD = {"op": "remove", "path": HELD_PATH}


class RecordingApi(FakeApiServer):
    """`sent`: the body of each patch, and under which field manager."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[Any, str]] = []

    def patch(self, resource: Any, namespace: Any, name: str, body: Any, **more: Any) -> Raw:
        assert more["kind"] == ("json" if isinstance(body, list) else "merge")
        told = json.loads(re.sub('"v-[0-9a-f]{8}"', '"v-xxxxxxxx"', json.dumps(body)))
        self.sent.append((told, more["field_manager"]))
        return super().patch(resource, namespace, name, body, **more)


@pytest.fixture
def api() -> RecordingApi:
    found = RecordingApi()
    put_replica(found, NAME)
    return found


def objects(api: FakeApiServer) -> ReplicaObjects:
    return ReplicaObjects(api, NAMESPACE, lambda: TERM)


def nothing() -> None:
    pass


def raw_of(api: FakeApiServer) -> Raw:
    return api.get(LONGHORN_REPLICAS, NAMESPACE, NAME)


def bodies(api: RecordingApi) -> list[Any]:
    return [body for body, _ in api.sent]


Call = Callable[[ReplicaObjects], Replica]
MARKS: dict[str, tuple[Call, list[Raw]]] = {
    "hold": (lambda found: found.hold(NAME, UID, SINCE, nothing), [HELD]),
    "release": (lambda found: found.hold(NAME, UID, None, nothing), [UNHELD]),
    "leave": (lambda found: found.leave(NAME, UID, "no-room", nothing), [LEFT]),
}
PLACES: dict[str, tuple[Call, list[Raw]]] = {
    "place": (lambda found: found.place(place_write(NAME), nothing), [*PLACED, *LABELS]),
    "place for good": (
        lambda found: found.place(place_write(NAME, affinity="n1"), nothing),
        [*PLACED, {"op": "add", "path": "/spec/hardNodeAffinity", "value": "n1"}, *LABELS],
    ),
    "place a held one": (
        lambda found: found.place(place_write(NAME, is_held=True), nothing),
        [*PLACED, *LABELS, UNHELD],
    ),
}
WRITES = {**PLACES, **MARKS}


# The patch


@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_one_patch_that_tests_that_the_replica_is_the_same_and_has_no_node(
    api: RecordingApi, write: str
) -> None:
    call, changes = WRITES[write]
    before = "2025-12-31T23:59:00Z"
    put_replica(api, NAME, {"annotations": {HELD_ANNOTATION: before, "kept": "yes"}})
    found = call(objects(api))

    assert [([*SAME, *changes], f"longhorn-scheduler-extender-{TERM}")] == api.sent
    assert (("n1", "n1-d1") if write in PLACES else ("", "")) == (found.node, found.disk_uuid)
    held = {"hold": SINCE, "release": "", "place a held one": ""}.get(write, before)
    assert (held, write == "leave") == (found.held, found.is_left)


def test_no_two_places_have_the_same_directory(api: RecordingApi) -> None:
    names = set[str]()
    for _ in range(3):
        put_replica(api, NAME)
        objects(api).place(place_write(NAME), nothing)
        names.add(raw_of(api)["spec"]["dataDirectoryName"])
    assert 3 == len(names)


def test_the_place_of_a_held_replica_takes_its_mark_off(api: RecordingApi) -> None:
    put_replica(api, NAME, {"annotations": {HELD_ANNOTATION: SINCE, "kept": "yes"}})
    objects(api).place(place_write(NAME, is_held=True), nothing)

    assert [[*SAME, *PLACED, *LABELS, UNHELD]] == bodies(api)
    assert {"kept": "yes"} == raw_of(api)["metadata"]["annotations"]


# Other shapes


@pytest.mark.parametrize("missing", [("labels",), ("annotations",), ("labels", "annotations"), ()], ids="+".join)
def test_a_replica_without_labels_annotations_or_a_field_for_its_node_is_written_all_the_same(
    api: RecordingApi, missing: tuple[str, ...]
) -> None:
    spec = {} if missing else {"nodeID": None, "diskID": None}
    put_replica(api, NAME, dict.fromkeys(missing), **spec)
    objects(api).hold(NAME, UID, SINCE, nothing)
    assert SINCE == raw_of(api)["metadata"]["annotations"][HELD_ANNOTATION]

    put_replica(api, NAME, dict.fromkeys(missing), **spec)
    objects(api).place(place_write(NAME), nothing)
    assert ("n1", "n1") == (raw_of(api)["spec"]["nodeID"], raw_of(api)["metadata"]["labels"]["longhornnode"])


def test_such_a_write_is_under_the_version_that_was_read(api: RecordingApi) -> None:
    version = put_replica(api, NAME, {"labels": None})["metadata"]["resourceVersion"]
    objects(api).place(place_write(NAME), nothing)

    spec = {one["path"].removeprefix("/spec/"): one["value"] for one in PLACED}
    labels = {"longhornnode": "n1", "longhorndiskuuid": "n1-d1"}
    merged = {"spec": spec, "metadata": {"labels": labels, "resourceVersion": version}}
    assert [[*SAME, *PLACED, *LABELS], merged] == bodies(api)


def test_a_mark_that_has_gone_by_itself_need_not_be_taken_off(api: RecordingApi) -> None:
    objects(api).hold(NAME, UID, None, nothing)
    assert {"kept": "yes"} == raw_of(api)["metadata"]["annotations"]

    put_replica(api, NAME, {"annotations": None})
    objects(api).place(place_write(NAME, is_held=True), nothing)
    assert "n1" == raw_of(api)["spec"]["nodeID"]


def test_what_changes_between_that_read_and_its_write_is_a_conflict(api: RecordingApi) -> None:
    put_replica(api, NAME, {"labels": None})

    def overtake(verb: str, _resource: object) -> None:
        if verb == "patch" and len(api.sent) == 2:  # the first did not fit, and it was read
            api.work()
            put_replica(api, NAME, {"labels": None}, nodeID="n2")

    api.fail = overtake
    with pytest.raises(ConflictError):
        objects(api).place(place_write(NAME), nothing)
    assert "n2" == raw_of(api)["spec"]["nodeID"]


# Not written


@pytest.mark.parametrize("call", WRITES)
@pytest.mark.parametrize(
    "other", [{"nodeID": "n2", "diskID": "n2-d1"}, {"uid": "another"}], ids=["it has a node", "it was made again"]
)
@pytest.mark.parametrize("has_annotations", [True, False])
def test_what_has_a_node_or_is_another_one_stays(
    api: RecordingApi, call: str, other: Raw, has_annotations: bool
) -> None:
    meta = {} if has_annotations else {"annotations": None}
    if "uid" in other:
        put_replica(api, NAME, {**meta, **other})
    else:
        put_replica(api, NAME, meta, **other)
    before = raw_of(api)
    with pytest.raises(ConflictError):
        WRITES[call][0](objects(api))
    assert before == raw_of(api)


@pytest.mark.parametrize("call", WRITES)
def test_what_is_gone_is_said_to_be(api: RecordingApi, call: str) -> None:
    api.delete(LONGHORN_REPLICAS, NAMESPACE, NAME)
    with pytest.raises(NotFoundError):
        WRITES[call][0](objects(api))
    assert objects(api).look(NAME) is None


@pytest.mark.parametrize(
    ("error", "times"), [(ForbiddenError("403"), 1), (UnavailableError("503"), 1), (ConflictError("409"), 2)], ids=str
)
def test_what_the_api_server_refuses_or_does_not_answer_is_not_sent_again_and_again(
    api: RecordingApi, error: SchedulerError, times: int
) -> None:
    """A conflict may be one of shape: it is looked at once."""
    api.fail_with(error, "patch")
    with pytest.raises(type(error)):
        objects(api).place(place_write(NAME), nothing)
    assert times == len(api.sent)


def test_the_term_is_asked_right_before_each_write(api: RecordingApi) -> None:
    put_replica(api, NAME, {"labels": None})
    asked = list[int]()
    objects(api).place(place_write(NAME), lambda: asked.append(len(api.sent)))
    assert [0, 1] == asked

    def ended() -> None:
        raise NotLeaderError("it has ended")

    put_replica(api, NAME)
    with pytest.raises(NotLeaderError):
        objects(api).place(place_write(NAME), ended)
    with pytest.raises(NotLeaderError):
        objects(api).hold(NAME, UID, SINCE, ended)
    assert (2, "") == (len(api.sent), raw_of(api)["spec"]["nodeID"])
