"""Copies of backing images on the real API server, for a Longhorn that asks first; and a replica that comes back. What
counts is read from the API server and summed up here, by nothing of the product's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from grpc import StatusCode

from tests.cluster.client import Object
from tests.e2e.conftest import DELAYS
from tests.e2e.disk_callers import NAME
from tests.e2e.disk_site import recorded, start_asked_leader
from tests.e2e.harness import Scene
from tests.e2e.manager_writes import made_object
from tests.e2e.programs import leader_address
from tests.e2e.scheduling import NAMESPACE
from tests.fakes.rpc_client import CallFailedError, DiskSchedulerClient, MountedMaterial, NoRoomError
from tests.longhorn import paths
from tests.longhorn.longhorn import disk_uuid
from tests.longhorn.options import GIB, LonghornOptions
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(300)]

NODES = ("n1", "n2", "n3", "n4")
DISK_GIB, IMAGE_GIB = 100, 30  # three copies fit on each disk
SECONDS = 30.0
FREED = [f'rpc_calls_total{{call="DeallocateBackingImage",outcome="{one}"}}' for one in ("freed", "nothing-to-free")]
GIVEN = 'rpc_calls_total{call="ScheduleBackingImage",outcome="allocated"}'
Place = tuple[str, str, str]  # name, node and disk


class ImageSite:
    """A scene whose Longhorn asks where copies of images go, and four nodes with a disk each."""

    def __init__(self, scene: Scene, folder: Path, told: Path) -> None:
        self.scene, self.api = scene, scene.api
        scene.set_settings(allocation_authority="disk-scheduler")
        for name in NODES:
            scene.cluster.add_node(name)
            scene.longhorn.add_node(name, (DISK_GIB,))
        self.leader, certificate = start_asked_leader(scene, folder, told)
        self.client = DiskSchedulerClient(leader_address(scene.cluster), NAME, MountedMaterial(certificate))
        wait_until(self._answers, "a disk scheduler that answers", SECONDS)

    def _answers(self) -> bool:
        try:
            self.client.reuse_failed_replica("unknown")
        except CallFailedError as error:
            return error.code is not StatusCode.UNAVAILABLE
        return True

    def add(self, name: str) -> None:
        """One that wants a copy on each node."""
        spec = {"minNumberOfCopies": len(NODES)}
        made = self.api.create(image_path(), made_object("BackingImage", name, spec))
        made["status"] = {"realSize": IMAGE_GIB * GIB, "size": IMAGE_GIB * GIB}
        self.api.replace(f"{image_path(name)}/status", made)

    def on_record(self) -> set[Place]:
        """Whose sum never exceeds a disk."""
        found = recorded(self.api)
        assert set(found.values()) <= {IMAGE_GIB * GIB}
        sums = Counter(node for _, node, _ in found)
        assert all(count * IMAGE_GIB <= DISK_GIB for count in sums.values()), sums
        return set(found)

    def settled(self, **counts: int) -> set[Place]:
        """Once all copies are ready, and exactly these are on record: so many of each image, or `total`."""

        def found() -> set[Place]:
            record, images = self.on_record(), self.api.list(image_path())["items"]
            shown, ready = (set[Place]().union(*(places(one, part) for one in images)) for part in ("spec", "status"))
            copies = Counter(name for name, _, _ in shown)
            is_wanted = len(shown) == counts["total"] if "total" in counts else copies == counts
            return shown if is_wanted and shown == ready == record else set()

        return wait_until(found, f"settled copies {counts}", SECONDS)


def image_path(name: str = "") -> str:
    return paths.longhorn("backingimages", NAMESPACE, name)


def places(image: Object, part: str) -> set[Place]:
    """Where its spec has copies, or its status."""
    field = {"spec": "diskFileSpecMap", "status": "diskFileStatusMap"}[part]
    uuids = (image.get(part) or {}).get(field) or {}
    return {(image["metadata"]["name"], node, "disk1") for node in NODES if disk_uuid(node, "disk1") in uuids}


@pytest.fixture(scope="module")
def image_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageSite]:
    folder = tmp_path_factory.mktemp("images")
    told, delays = folder / "asked.json", replace(DELAYS, copy=(0.1, 0.5), finalize=1.5)
    options = LonghornOptions(delays=delays, retry_seconds=0.5, resync_seconds=1.0, disk_scheduler=str(told))
    with Scene.start(options, run_scheduler=False) as scene:
        yield ImageSite(scene, folder, told)


def test_copies_of_images_take_what_fits_and_give_it_back_when_they_are_gone(image_site: ImageSite) -> None:
    """Four images that want a copy on each of four disks, where three copies fit."""
    names = ["i1", "i2", "i3", "i4"]
    for name in names:
        image_site.add(name)
    full = image_site.settled(total=12)

    leaver, node, disk = min(full)
    (waiting,) = (name for name in names if (name, node, disk) not in full)
    with pytest.raises(NoRoomError) as refused:
        image_site.client.schedule_backing_image(waiting)
    missing = {(one.node, one.missing_bytes) for one in refused.value.refusals.refusals if one.missing_bytes}
    assert (node, (3 * IMAGE_GIB + IMAGE_GIB - DISK_GIB) * GIB) in missing

    left = sum(name == leaver for name, _, _ in full) - 1
    spec = {"minNumberOfCopies": left, "diskFileSpecMap": {disk_uuid(node, disk): None}}
    image_site.scene.longhorn.pause()  # else the file may be gone at the next look
    image_site.api.patch(image_path(leaver), {"spec": spec})
    with pytest.raises(CallFailedError, match="still names disk"):
        image_site.client.deallocate_backing_image(leaver, disk_uuid(node, disk))
    image = image_site.api.get(image_path(leaver))
    assert (False, True) == tuple((leaver, node, disk) in places(image, part) for part in ("spec", "status"))
    image_site.scene.longhorn.resume()

    def is_handed_on() -> bool:
        """It is on record for as long as its file is there, and the one that waits for its room gets that then."""
        record, image = image_site.on_record(), image_site.api.get(image_path(leaver))
        if (leaver, node, disk) in places(image, "status"):
            assert (leaver, node, disk) in record
        return (waiting, node, disk) in record

    wait_until(is_handed_on, "the room of a copy that went", SECONDS)
    assert {*full, (waiting, node, disk)} - {(leaver, node, disk)} == image_site.settled(total=12)

    names.remove(leaver)
    image_site.api.delete(image_path(names.pop()))
    image_site.settled(**dict.fromkeys(names, len(NODES)), **{leaver: left})
    for name in (leaver, *names):
        image_site.api.delete(image_path(name))
    wait_until(lambda: not image_site.on_record(), "an empty record", SECONDS)
    given, freed = image_site.leader.counted(GIVEN), sum(map(image_site.leader.counted, FREED))
    assert 12 < given <= freed
    assert 0 == image_site.leader.status()["allocations"]["unmatched"]


def test_a_failed_replica_comes_back_where_it_lies(image_site: ImageSite) -> None:
    image_site.scene.longhorn.pause()  # it would make and remove replicas by itself
    volume = {"size": str(10 * GIB), "numberOfReplicas": 2, "dataLocality": "disabled", "frontend": "blockdev"}
    image_site.api.create(paths.longhorn("volumes", NAMESPACE), made_object("Volume", "v", volume))
    for name, node, failed_at in (("v-r-1", "n1", "2026-01-01T00:00:00Z"), ("v-r-2", "n2", "")):
        place = {"nodeID": node, "diskID": disk_uuid(node, "disk1"), "failedAt": failed_at, "active": True}
        spec = {"volumeName": "v", "volumeSize": volume["size"], **place}
        image_site.api.create(paths.longhorn("replicas", NAMESPACE), made_object("Replica", name, spec))

    def reused() -> tuple[str, ...]:
        try:
            one = image_site.client.reuse_failed_replica("v").allocation
        except NoRoomError:
            return ()
        return one.name, one.node, one.disk, one.disk_uuid

    found = wait_until(reused, "a replica that comes back", SECONDS)
    assert ("v-r-1", "n1", "disk1", disk_uuid("n1", "disk1")) == found
    assert 10 * GIB == recorded(image_site.api)["v-r-1", "n1", "disk1"]
    spent = {"spec": {"rebuildRetryCount": 5}}
    image_site.api.patch(paths.longhorn("replicas", NAMESPACE, "v-r-1"), spent)
    wait_until(lambda: not reused(), "the refusal of a replica whose rebuild failed five times", SECONDS)
