"""A live read against a store that the watch moves at the worst moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import pytest

from controller.errors import ClusterError, NotFoundError, UnavailableError
from controller.follow.kinds import Kind
from controller.follow.live import LiveKind, LiveReader
from controller.kube.resources import CLAIMS
from controller.model.parse import class_facts
from controller.model.reader import Raw
from tests.fakes.builders import TestCluster

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


class Seen:
    def __init__(self) -> None:
        self.facts: list[tuple[str, str, object | None]] = []

    def kind(self, name: str, parse: Callable[[Raw], Any] = itemgetter("text")) -> Kind[Any]:
        def observe(_events: object, key: str, facts: object, _gone: object) -> None:
            self.facts.append((name, key, facts))

        return Kind(name, CLAIMS, parse, observe)


def raw(version: int, text: str) -> dict[str, Any]:
    return {"metadata": {"name": "o", "resourceVersion": str(version)}, "text": text}


def reader(
    store: MovingStore, seen: Seen, answer: Mapping[str, Any] | Exception, store_namespace: str = ""
) -> LiveReader:
    def read(namespace: str, name: str, timeout_seconds: float) -> Mapping[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    kinds = {name: LiveKind(seen.kind(name), read, store, store_namespace) for name in ("claim", "volume")}
    return LiveReader(kinds, NOBODY)


def test_an_object_that_the_watch_has_not_passed_yet_is_handed_over() -> None:
    store, seen = MovingStore(), Seen()

    assert reader(store, seen, raw(9, "new")).refresh("claim", "ns", "o", 1)
    assert seen.facts == [("claim", "ns/o", "new")]


def test_a_store_that_is_further_than_the_answer_speaks() -> None:
    store, seen = MovingStore(), Seen()
    store.resource_version, store.items["ns/o"] = "20", "newest"

    assert reader(store, seen, raw(9, "old")).refresh("claim", "ns", "o", 1)
    assert seen.facts == [("claim", "ns/o", "newest")]


def test_an_object_that_the_watch_has_seen_go_stays_gone() -> None:
    store, seen = MovingStore(), Seen()
    store.resource_version = "20"

    reader(store, seen, raw(9, "ghost")).refresh("claim", "ns", "o", 1)

    assert seen.facts == [("claim", "ns/o", None)]


def test_a_store_that_moves_in_between_has_the_last_word() -> None:
    store, seen = MovingStore(), Seen()
    store.resource_version, store.items["ns/o"] = "10", "first"
    store.on_get = [lambda: None, lambda: store.items.update({"ns/o": "second"})]

    reader(store, seen, raw(9, "old")).refresh("claim", "ns", "o", 1)

    assert seen.facts[-1] == ("claim", "ns/o", "second")


def test_longhorns_objects_are_known_by_name_and_stored_with_their_namespace() -> None:
    store, seen = MovingStore(), Seen()
    store.resource_version, store.items["longhorn-system/v"] = "20", "stored"

    reader(store, seen, raw(9, "read"), "longhorn-system").refresh("volume", "", "v", 1)

    assert seen.facts == [("volume", "v", "stored")]


def test_what_is_not_there_is_no_failure_and_what_cannot_be_read_is_one() -> None:
    store, seen = MovingStore(), Seen()

    assert not reader(store, seen, NotFoundError("404")).refresh("claim", "ns", "o", 1)
    with pytest.raises(UnavailableError):
        reader(store, seen, UnavailableError("503")).refresh("claim", "ns", "o", 1)
    kind = LiveKind(seen.kind("class", class_facts), lambda *_: {"metadata": {"name": 3}}, store)
    with pytest.raises(ClusterError, match=r"metadata\.name"):
        LiveReader({"class": kind}, NOBODY).refresh("class", "", "o", 1)
    assert seen.facts == []
