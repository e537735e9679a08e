"""Latest facts by key, fed by one informer and read by everybody."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from controller.errors import MalformedRequestError
from controller.log_line import say
from controller.model.reader import Raw, read

Facts = TypeVar("Facts")

MAX_OWED: Final = 50_000  # changes; beyond it only each object's last one is kept for a subscriber that fails
NAMELESS: Final = "(without a name)"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change(Generic[Facts]):
    """What happened to one key; `new` None: the object is gone."""

    key: str
    old: Facts | None
    new: Facts | None


class _Subscriber(Generic[Facts]):
    """A callback and what it has not taken yet. Threads: the informer's."""

    def __init__(self, callback: Callable[[Sequence[Change[Facts]]], None]) -> None:
        self._callback = callback
        self.owed: list[Change[Facts]] = []

    def deliver(self) -> None:
        """Hands over all that is owed. If the callback raises, the error goes up, and it is owed everything again."""
        if len(self.owed) > MAX_OWED:
            self.owed = list({change.key: change for change in self.owed}.values())
        if self.owed:
            self._callback(tuple(self.owed))
            self.owed = []


class Store(Generic[Facts]):
    """One writer, many readers; changes as values. Raw objects are parsed at once and never kept.

    An object that does not parse is kept out, and `bad` names what is wrong with it: the rest goes on. A subscriber
    that fails does not keep the changes from others, and gets them again with the next ones.
    Threads: any; one informer writes. Subscribers run in its thread, after the lock is free.
    """

    def __init__(
        self, kind: str, parse: Callable[[Raw], Facts | None], sharing: Callable[[Facts, Facts], Facts] | None = None
    ) -> None:
        """`sharing`, given the old and the new facts of an object, returns the new ones with equal parts taken from the
        old ones, so that those parts need memory once."""
        self.kind = kind
        self._parse, self._sharing = parse, sharing
        self._lock = threading.Lock()  # guards _items and _bad
        self._items: dict[str, Facts] = {}
        self._bad: dict[str, str] = {}
        self._subscribers: list[_Subscriber[Facts]] = []
        self.synced = threading.Event()

    def get(self, key: str) -> Facts | None:
        with self._lock:
            return self._items.get(key)

    def values(self) -> list[Facts]:
        with self._lock:
            return list(self._items.values())

    def items(self) -> dict[str, Facts]:
        with self._lock:
            return dict(self._items)

    def __len__(self) -> int:
        with self._lock:
            return len(self._items)

    @property
    def bad(self) -> dict[str, str]:
        with self._lock:
            return dict(self._bad)

    def subscribe(self, callback: Callable[[Sequence[Change[Facts]]], None]) -> None:
        """From now on `callback` gets every change, in order; after a failure of its own, the same ones again.

        Subscribe before the informer starts.
        """
        self._subscribers.append(_Subscriber(callback))

    def replace(self, raws: Iterable[Raw]) -> list[Change[Facts]]:
        """Takes a whole list in place of what was known; returns what appeared, changed or vanished."""
        fresh: dict[str, Facts] = {}
        bad: dict[str, str] = {}
        for raw in raws:
            key, facts = self._parsed(raw, bad)
            if facts is not None:
                fresh[key] = facts
        with self._lock:
            old, self._items, self._bad = self._items, fresh, bad
        changes = [Change(key, old.get(key), fresh.get(key)) for key in sorted(old.keys() | fresh.keys())]
        return self._publish([change for change in changes if change.old != change.new])

    def apply(self, verb: str, raw: Raw) -> list[Change[Facts]]:
        """Takes one watch event; returns the change, if any fact has changed."""
        bad: dict[str, str] = {}
        key, new = self._parsed(raw, bad, is_gone=verb == "DELETED")
        with self._lock:
            old = self._items.pop(key, None)
            if new is not None:
                self._items[key] = new
            self._bad.pop(key, None)
            self._bad.update(bad)
        return self._publish([Change(key, old, new)] if old != new else [])

    def _parsed(self, raw: Raw, bad: dict[str, str], *, is_gone: bool = False) -> tuple[str, Facts | None]:
        key = read(key_of, raw)
        found = key if isinstance(key, MalformedRequestError) else read(partial(self._facts, key, is_gone), raw)
        name = NAMELESS if isinstance(key, MalformedRequestError) else key
        if not isinstance(found, MalformedRequestError):
            return name, found
        bad[name] = str(found)
        if self._bad.get(name) != bad[name]:  # not again with each heartbeat
            say(_log, "bad object", logging.WARNING, kind=self.kind, key=name, problem=found)
        return name, None

    def _facts(self, key: str, is_gone: bool, raw: Raw) -> Facts | None:
        if is_gone:
            return None
        found, old = self._parse(raw), self._items.get(key)
        return found if found is None or old is None or self._sharing is None else self._sharing(old, found)

    def _publish(self, changes: list[Change[Facts]]) -> list[Change[Facts]]:
        with ExitStack() as every_one:  # runs all, even when one of them raises
            for subscriber in reversed(self._subscribers):
                subscriber.owed.extend(changes)
                every_one.callback(subscriber.deliver)
        return changes


def key_of(raw: Raw) -> str:
    """ "namespace/name", or the name alone for objects of the whole cluster."""
    meta = raw.get("metadata")
    if not isinstance(meta, Mapping) or not meta.get("name"):
        raise MalformedRequestError("metadata.name", "is missing")
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])
