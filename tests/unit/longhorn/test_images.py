"""Copies of backing images, as the stand-in's controller makes them: each is asked for first, and given back last."""

from __future__ import annotations

from typing import cast

import pytest

from tests.longhorn import paths
from tests.longhorn.asked import AskedScheduler, GivenDisk
from tests.longhorn.images import BackingImages
from tests.longhorn.options import GIB
from tests.unit.longhorn.stage import NAMESPACE, LonghornStage, Raw


class DiskGiver:
    """Gives the disks that it has, and writes down what it is told."""

    def __init__(self, *uuids: str) -> None:
        self.left, self.heard = list(uuids), list[str]()

    def schedule_backing_image(self, image: str, size_bytes: int) -> GivenDisk | None:
        self.heard.append(f"{image} {size_bytes // GIB} GiB")
        return GivenDisk("a", self.left.pop(0)) if self.left else None

    def deallocate_backing_image(self, image: str, disk_uuid: str) -> None:
        self.heard.append(f"{image} gone from {disk_uuid}")


class ImageStage:
    def __init__(self, *uuids: str) -> None:
        self.giver = DiskGiver(*uuids)
        self.stage = LonghornStage(copy=5.0, finalize=3.0, retry_seconds=30.0)
        BackingImages(self.stage.world, cast(AskedScheduler, self.giver))

    def make(self, copies: int) -> None:
        raw: Raw = {"metadata": {"name": "i"}, "spec": {"minNumberOfCopies": copies}, "status": {"realSize": 2 * GIB}}
        self.stage.api.create(paths.longhorn("backingimages", NAMESPACE), raw)

    def change(self, **spec: object) -> None:
        self.stage.change("backingimages", "i", lambda raw: raw["spec"].update(spec))

    def maps(self) -> tuple[list[str], list[str]]:
        raw = self.stage.get("backingimages", "i")
        return sorted(raw["spec"].get("diskFileSpecMap", {})), sorted(raw["status"].get("diskFileStatusMap", {}))


def test_as_many_copies_are_asked_for_as_the_image_wants_and_each_is_ready_later() -> None:
    image = ImageStage("u1", "u2", "u3")
    image.make(2)
    image.stage.run(4)
    assert (["i 2 GiB"] * 2, (["u1", "u2"], [])) == (image.giver.heard, image.maps())
    image.stage.run(1)
    assert (["u1", "u2"], ["u1", "u2"]) == image.maps()
    image.change(minNumberOfCopies=3)
    image.stage.run(5)
    assert (["i 2 GiB"] * 3, (["u1", "u2", "u3"],) * 2) == (image.giver.heard, image.maps())


def test_a_refused_copy_is_asked_for_again_after_a_while() -> None:
    image = ImageStage()
    image.make(1)
    image.stage.run(29)
    image.giver.left.append("u1")
    assert (["i 2 GiB"], ([], [])) == (image.giver.heard, image.maps())
    image.stage.run(1)
    assert (["i 2 GiB"] * 2, (["u1"], [])) == (image.giver.heard, image.maps())


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_copy_that_is_taken_out_is_given_back_once_the_status_shows_it_no_more(is_ready: bool) -> None:
    image = ImageStage("u1", "u2")
    image.make(2)
    image.stage.run(5 if is_ready else 2)
    image.giver.heard.clear()
    image.change(minNumberOfCopies=1, diskFileSpecMap={"u1": {}})
    image.stage.run(2.5)
    assert ([], ["u1"]) == (image.giver.heard, image.maps()[0])
    image.stage.run(0.5)
    assert ["i gone from u2"] == image.giver.heard
    assert (["u1"], ["u1"]) == image.maps()


def test_a_deleted_image_lasts_as_long_as_its_copies() -> None:
    image = ImageStage("u1", "u2")
    image.make(2)
    image.stage.run(5)
    image.giver.heard.clear()
    path = paths.longhorn("backingimages", NAMESPACE, "i")
    image.stage.api.delete(path)
    image.stage.run(2)
    assert ([], (["u1", "u2"],) * 2) == (image.giver.heard, image.maps())
    image.stage.run(1)
    assert (["i gone from u1", "i gone from u2"], None) == (image.giver.heard, image.stage.api.get_or_none(path))
