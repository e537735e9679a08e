"""One live read of an object that our stores do not show, or show without what should be there by now.

What the API server says goes to the allocator by the same verb as the watch's events. A read and a watch race: the
answer of a read may be older than what the watch has delivered meanwhile, and nothing would ever correct it. So the
newer one counts: the store, once its resource version has reached that of the answer, or the answer itself, which the
watch will overtake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from controller.allocator.verbs.observe import Events
from controller.errors import ClusterError, MalformedRequestError, NotFoundError
from controller.follow.kinds import FollowedKind
from controller.model.reader import read, version_number

_ROUNDS: Final = 100


class LiveReads(Protocol):
    """Reads one object from the API server; the allocator has it before the call returns. Whether it is there."""

    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool: ...


class KnownStore(Protocol):
    """A store of facts, as far as a live read compares itself with it."""

    @property
    def resource_version(self) -> str: ...
    def get(self, key: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class LiveKind:
    """How one kind is read. `read(namespace, name, timeout_seconds)` gives the raw object or raises ClusterError.
    `store`: None for a kind that is not watched, of which what is read is the latest."""

    kind: FollowedKind[Any]
    read: Callable[[str, str, float], Mapping[str, Any]]
    store: KnownStore | None
    store_namespace: str = ""  # of a namespaced kind whose allocator key is the name alone


class LiveReader:
    """Reads single objects and hands them to the allocator.

    Threads: any. Blocks: for one call to the API server. I/O: that call.
    """

    def __init__(self, kinds: Mapping[str, LiveKind], events: Events) -> None:
        self._kinds, self._events = kinds, events

    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        """Reads one object and hands it to the allocator. Returns whether it exists; ClusterError when that cannot be
        found out."""
        row = self._kinds[kind]
        store_namespace = namespace or row.store_namespace
        try:
            raw = row.read(store_namespace, name, timeout_seconds)
        except NotFoundError:
            return False
        facts = read(row.kind.parse, raw)
        if isinstance(facts, MalformedRequestError):
            raise ClusterError(f"{kind} {namespace}/{name} cannot be read: {facts}") from facts
        store_key = f"{store_namespace}/{name}" if store_namespace else name
        key = f"{namespace}/{name}" if namespace else name
        self._hand_over(row, key, store_key, facts, _version(raw))
        return True

    def _hand_over(self, row: LiveKind, key: str, store_key: str, facts: object, version: int) -> None:
        """Tells the allocator the newer of the answer and the store's facts, until these no longer change meanwhile."""

        def latest() -> object:
            store = row.store
            if store is None or version_number(store.resource_version) < version:
                return facts
            return store.get(store_key)

        for _ in range(_ROUNDS):
            told = latest()
            row.kind.observe(self._events, key, told, None)
            if latest() == told:
                return
        raise ClusterError(f"{row.kind.name} {key} changes faster than it can be read")


def _version(raw: Mapping[str, Any]) -> int:
    metadata = raw.get("metadata")
    return version_number(metadata.get("resourceVersion")) if isinstance(metadata, Mapping) else 0
