"""Copies of backing images: those that come along with replicas; or those that an image asks for, for each of which a
disk scheduler is asked first, and told once it is gone.

An image's sizes are given by whoever makes it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from tests.longhorn import paths
from tests.longhorn.asked import AskedScheduler
from tests.longhorn.locality import is_deleting
from tests.longhorn.world import Busy, LonghornWorld, Raw, let_go

READY: Final = {"state": "ready", "progress": 100}


class ImagesOfReplicas:
    """The disk that a replica starts on gets a copy of its volume's image, and keeps it.

    Threads: the reflector's and the pool's.
    """

    def __init__(self, world: LonghornWorld) -> None:
        self._world = world
        self._busy = Busy()
        world.listen("replicas", self._on_replica)

    def _on_replica(self, verb: str, raw: Raw) -> None:
        image, uuid = raw["spec"].get("backingImage"), raw["spec"].get("diskID")
        if verb != "DELETED" and image and uuid and self._busy.begin("copy", f"{image}/{uuid}"):
            self._world.after("start", self._come, str(image), str(uuid))

    def _come(self, image: str, uuid: str) -> None:
        def edit(raw: Raw) -> bool:
            copies = raw["spec"].setdefault("diskFileSpecMap", {})
            is_new = uuid not in copies
            copies.setdefault(uuid, {"evictionRequested": False, "dataEngine": raw["spec"].get("dataEngine", "v1")})
            return is_new

        if self._world.change(self._world.longhorn("backingimages", image), edit) is not None:
            self._world.after("copy", self._show, image, uuid)

    def _show(self, image: str, uuid: str) -> None:
        def edit(raw: Raw) -> bool:
            raw.setdefault("status", {})["diskFileStatusMap"] = {**_files(raw), uuid: READY}
            return True

        self._world.change(self._world.longhorn("backingimages", image), edit, status=True)


class BackingImages:
    """An image gets as many copies as it asks for, one after the other. A copy that is taken out of the spec, or whose
    image is deleted, shows in the status until it is gone.

    Threads: the reflector's and the pool's; one at a time asks for one image.
    """

    def __init__(self, world: LonghornWorld, asked: AskedScheduler) -> None:
        self._world, self._asked = world, asked
        self._locks: dict[str, threading.Lock] = {}
        self._busy = Busy()
        world.listen("images", self._on_image)

    def _on_image(self, verb: str, raw: Raw) -> None:
        name = str(raw["metadata"]["name"])
        if verb == "DELETED":
            self._world.timers.now(self._gone, name, sorted(_named(raw)))
        elif self._busy.begin("turn", name):
            self._world.timers.now(self._turn, name, "turn")

    def _turn(self, name: str, why: str) -> None:
        self._busy.end(why, name)
        with self._locks.setdefault(name, threading.Lock()):
            image = self._world.api.get_or_none(self._path(name))
            if image is not None:
                self._settle(name, image)

    def _settle(self, name: str, image: Raw) -> None:
        there, wanted = _files(image).keys(), set() if is_deleting(image) else _named(image)
        for uuid in wanted ^ there:
            delay = "copy" if uuid in wanted else "finalize"
            if self._busy.begin(delay, f"{name}/{uuid}"):
                self._world.after(delay, self._follow, delay, name, uuid)
        if is_deleting(image):
            if not there:
                self._world.change(self._path(name), lambda raw: let_go(raw, paths.FINALIZER))
        elif _bytes(image) and len(wanted) < int(image["spec"].get("minNumberOfCopies") or 1):
            self._place(name, image)

    def _place(self, name: str, image: Raw) -> None:
        """The event of its write leads to the next one."""
        place = self._asked.schedule_backing_image(name, _bytes(image))
        if place is None:
            if self._busy.begin("retry", name):
                self._world.timers.after(self._world.options.retry_seconds, self._turn, name, "retry")
            return

        def edit(raw: Raw) -> bool:
            raw["metadata"]["finalizers"] = [paths.FINALIZER]
            copies = raw["spec"].setdefault("diskFileSpecMap", {})
            copies[place.uuid] = {"evictionRequested": False, "dataEngine": raw["spec"].get("dataEngine", "v1")}
            return not is_deleting(raw)

        written = self._world.change(self._path(name), edit)
        if written is None or is_deleting(written):
            self._gone(name, [place.uuid])

    def _follow(self, delay: str, name: str, uuid: str) -> None:
        """The status shows that copy, or shows it no more, as the spec has it."""
        self._busy.end(delay, f"{name}/{uuid}")

        def edit(raw: Raw) -> bool:
            files = _files(raw)
            is_shown = uuid in files
            if uuid in _named(raw) and not is_deleting(raw):
                files[uuid] = READY
            else:
                files.pop(uuid, None)
            raw.setdefault("status", {})["diskFileStatusMap"] = files
            return is_shown != (uuid in files)

        image = self._world.change(self._path(name), edit, status=True)
        if image is None or uuid not in _named(image):
            self._gone(name, [uuid])

    def _gone(self, name: str, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self._asked.deallocate_backing_image(name, uuid)

    def _path(self, name: str) -> str:
        return self._world.longhorn("backingimages", name)


def _named(image: Raw) -> set[str]:
    return set(image["spec"].get("diskFileSpecMap") or {})


def _files(image: Raw) -> Raw:
    return dict((image.get("status") or {}).get("diskFileStatusMap") or {})


def _bytes(image: Raw) -> int:
    return int((image.get("status") or {}).get("realSize") or 0)
