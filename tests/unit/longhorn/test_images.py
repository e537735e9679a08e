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


class ImageStage(LonghornStage):
    """One image, `i`, of 2 GiB, whose copies are given these disks."""

    def __init__(self, *uuids: str) -> None:
        super().__init__(copy=5.0, finalize=3.0, retry_seconds=30.0)
        self.giver = DiskGiver(*uuids)
        BackingImages(self.world, cast(AskedScheduler, self.giver))

    def make(self, copies: int) -> None:
        raw: Raw = {"metadata": {"name": "i"}, "spec": {"minNumberOfCopies": copies}, "status": {"realSize": 2 * GIB}}
        self.api.create(paths.longhorn("backingimages", NAMESPACE), raw)

    def wants(self, copies: int, *kept: str) -> None:
        """As many copies as that from now on, on these disks if there are any named."""
        kept_spec: Raw = {"diskFileSpecMap": {uuid: {} for uuid in kept}} if kept else {}
        self.spec("backingimages", "i", minNumberOfCopies=copies, **kept_spec)

    # Checks

    def asked(self, times: int) -> None:
        assert ["i 2 GiB"] * times == self.giver.heard

    def told(self, *gone: str) -> None:
        """What it was told since the image was made: these copies are gone."""
        assert [f"i gone from {uuid}" for uuid in gone] == [line for line in self.giver.heard if "gone" in line]

    def given(self, *uuids: str) -> None:
        assert [*uuids] == sorted(self.get("backingimages", "i")["spec"].get("diskFileSpecMap", {}))

    def ready(self, *uuids: str) -> None:
        assert [*uuids] == sorted(self.get("backingimages", "i")["status"].get("diskFileStatusMap", {}))


def test_as_many_copies_are_asked_for_as_the_image_wants_and_each_is_ready_later() -> None:
    stage = ImageStage("u1", "u2", "u3")
    stage.play("make 2; run 4; asked 2; given u1 u2; ready; run 1; given u1 u2; ready u1 u2")
    stage.play("wants 3; run 5; asked 3; given u1 u2 u3; ready u1 u2 u3")


def test_a_refused_copy_is_asked_for_again_after_a_while() -> None:
    stage = ImageStage()
    stage.play("make 1; run 29; asked 1; given; ready")
    stage.giver.left.append("u1")
    stage.play("run 1; asked 2; given u1; ready")


@pytest.mark.parametrize("seconds", [5, 2], ids=["ready", "not ready yet"])
def test_a_copy_that_is_taken_out_is_given_back_once_the_status_shows_it_no_more(seconds: int) -> None:
    stage = ImageStage("u1", "u2")
    stage.play(f"make 2; run {seconds}; wants 1 u1; run 2.5; asked 2; given u1; run 0.5; told u2; given u1; ready u1")


def test_a_deleted_image_lasts_as_long_as_its_copies() -> None:
    stage, path = ImageStage("u1", "u2"), paths.longhorn("backingimages", NAMESPACE, "i")
    stage.play("make 2; run 5")
    stage.api.delete(path)
    stage.play("run 2; asked 2; given u1 u2; ready u1 u2; run 1; told u1 u2")
    assert stage.api.get_or_none(path) is None
