"""A live read against a store that the watch moves at the worst moments, and that the allocator takes every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest

from controller.allocator.outcome import Decision
from controller.errors import ClusterError, NotFoundError, UnavailableError
from controller.follow.kinds import KINDS, FollowedKind
from controller.follow.live import LiveKind, LiveReader
from controller.follow.stores import Stores
from controller.kube.resources import CLAIMS
from controller.model.longhorn import BackingImage
from controller.model.reader import Raw
from controller.model.workload import class_facts
from controller.rules.reasons import Reason
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import LATEST, TestCluster, volume
from tests.fakes.clock import VirtualClock

NOBODY = TestCluster().allocator  # the kinds of these tests tell it nothing


class MovingStore:
    """A store at a resource version; `on_get` may move it, as an informer's thread would."""

    def __init__(self) -> None:
        self.resource_version = "5"
        self.items: dict[str, Any] = {}
        self.on_get: list[Callable[[], None]] = []

    def get(self, key: str) -> Any:
        if self.on_get:
            self.on_get.pop(0)()
        return self.items.get(key)


class LiveReading:
    """A store, the objects that a read finds, and what the allocator was told."""

    def __init__(self) -> None:
        self.store = MovingStore()
        self.told: list[tuple[str, str, object | None]] = []

    def refresh(
        self,
        kind: str,
        answer: Mapping[str, Any] | Exception,
        *where: str,
        in_namespace: str = "",
        parse: Callable[[Raw], Any] = itemgetter("text"),
    ) -> bool:
        def read(namespace: str, name: str, timeout_seconds: float) -> Mapping[str, Any]:
            if isinstance(answer, Exception):
                raise answer
            return answer

        def tell(_events: object, key: str, facts: object, _gone: object) -> None:
            self.told.append((kind, key, facts))

        row = LiveKind(FollowedKind(kind, CLAIMS, parse, tell), read, self.store, in_namespace)
        namespace, name = where or ("ns", "o")
        return LiveReader({kind: row}, NOBODY).refresh(kind, namespace, name, 1)


@pytest.fixture
def scene() -> LiveReading:
    return LiveReading()


def raw(version: int, text: str) -> dict[str, Any]:
    return {"metadata": {"name": "o", "resourceVersion": str(version)}, "text": text}


@pytest.mark.parametrize(
    ("version", "items", "facts"),
    [
        pytest.param("5", {}, "read", id="that is older says nothing"),
        pytest.param("20", {"ns/o": "newest"}, "newest", id="that is further speaks"),
        pytest.param("20", {}, None, id="that has seen the object go keeps it gone"),
    ],
)
def test_a_store(scene: LiveReading, version: str, items: dict[str, Any], facts: str | None) -> None:
    scene.store.resource_version, scene.store.items = version, items
    assert scene.refresh("claim", raw(9, "read"))
    assert scene.told == [("claim", "ns/o", facts)]


def test_a_store_that_moves_in_between_has_the_last_word(scene: LiveReading) -> None:
    store = scene.store
    store.resource_version, store.items["ns/o"] = "10", "first"
    store.on_get = [lambda: None, lambda: store.items.update({"ns/o": "second"})]
    scene.refresh("claim", raw(9, "old"))
    assert scene.told[-1] == ("claim", "ns/o", "second")


def test_longhorns_objects_are_known_by_name_and_stored_with_their_namespace(scene: LiveReading) -> None:
    scene.store.resource_version, scene.store.items["longhorn-system/v"] = "20", "stored"
    scene.refresh("volume", raw(9, "read"), "", "v", in_namespace="longhorn-system")
    assert scene.told == [("volume", "v", "stored")]


def test_what_is_not_there_is_no_failure_and_what_cannot_be_read_is_one(scene: LiveReading) -> None:
    assert not scene.refresh("claim", NotFoundError("404"))
    with pytest.raises(UnavailableError):
        scene.refresh("claim", UnavailableError("503"))
    with pytest.raises(ClusterError, match=r"metadata\.name"):
        scene.refresh("class", {"metadata": {"name": 3}}, parse=class_facts)
    assert scene.told == []


# The kinds


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_allocator_takes_the_loss_of_an_object_of_every_kind(kind: FollowedKind[Any]) -> None:
    allocator = TestCluster().allocator
    version = allocator.version
    kind.observe(allocator, "ns/never-seen", None, None)
    is_told = kind.name not in ("record", "setting")
    assert is_told is (allocator.version != version)


@pytest.mark.parametrize("name", ["pod", "claim", "pv", "volume", "replica", "backing_image"])
def test_an_older_event_does_not_undo_what_was_read_live_and_a_deletion_does(name: str) -> None:
    (kind,) = (one for one in KINDS if one.name == name)
    allocator, spec = TestCluster().allocator, {"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}
    old, new = (
        kind.parse({"metadata": {"name": "o", "namespace": "ns", "resourceVersion": version}, "spec": spec})
        for version in ("8", "9")
    )
    versions = list[int]()
    for facts, gone in ((new, None), (old, None), (None, new)):
        kind.observe(allocator, "ns/o", facts, gone)
        versions.append(allocator.version)
    assert versions[0] == versions[1] < versions[2]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_can_be_read_live_by_its_name(kind: FollowedKind[Any]) -> None:
    api, told = FakeApiServer(), list[str]()
    stores = Stores(api, VirtualClock(), "longhorn-system", "any")
    row = stores.live_kinds()[kind.name]
    observed = replace(row.kind, parse=lambda raw: raw, observe=lambda _events, key, _facts, _gone: told.append(key))
    reader = LiveReader({kind.name: replace(row, kind=observed)}, NOBODY)
    namespace = "" if kind.in_longhorn or not kind.resource.is_namespaced else "ns"
    assert not reader.refresh(kind.name, namespace, "o", 1.0)
    where = "longhorn-system" if kind.in_longhorn else namespace or None
    for name in ("n", "o", "p"):
        api.put(kind.resource, where, {"metadata": {"name": name}})
    assert reader.refresh(kind.name, namespace, "o", 1.0)
    assert [f"{namespace}/o" if namespace else "o"] == told


def test_a_backing_images_tags_decide_once_it_is_known() -> None:
    cluster = TestCluster()
    cluster.add_node("n1")
    cluster.add_pod("p")
    name = cluster.run("p", "p", "n2")
    cluster.drop_pod("p")
    cluster.allocator.observe_volume(name, volume(name, backing_image="img"))
    cluster.add_pod("again", "p", created=LATEST)
    assert Decision.OFFERED == cluster.filter("again", "n1").decision
    cluster.allocator.observe_backing_image("img", BackingImage("img", node_selector=("gpu",)))
    assert {"n1": Reason.NODE_TAGS} == cluster.filter("again", "n1").refused
    cluster.allocator.observe_backing_image("img", BackingImage("img"))
    assert Decision.OFFERED == cluster.filter("again", "n1").decision
