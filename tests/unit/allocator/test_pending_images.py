"""The backing image of what is planned or held comes with it, to disks that have none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model.longhorn import BackingImage
from tests.fakes.builders import GIB, TestCluster, disk, replica, volume

NODES = ("n1", "n2")


@pytest.fixture
def cluster() -> TestCluster:
    """100 GiB are free on each node's disk; images of 20 GiB, `here` is on n1 already, as the disk's figure tells."""
    cluster = TestCluster()
    cluster.add_nodes(n2=100)
    shown = replace(disk(free_gib=120), scheduled_images={"here": 20 * GIB}, scheduled_bytes=20 * GIB)
    cluster.add_node("n1", shown)
    for name, uuids in (("image", frozenset[str]()), ("other", frozenset()), ("here", frozenset({"n1-d1"}))):
        cluster.allocator.observe_backing_image(name, BackingImage(name, real_size_bytes=20 * GIB, disk_uuids=uuids))
        cluster.add_class(name, dataLocality="best-effort", numberOfReplicas="1", backingImage=name)
        cluster.add_class(f"{name}-roams", dataLocality="disabled", numberOfReplicas="1", backingImage=name)
    return cluster


@pytest.mark.parametrize(
    ("held", "newcomer", "most_gib"),
    [
        ("image", "longhorn", 50),  # 30 and 20 are held
        ("here", "longhorn", 70),
        ("image", "image", 30),  # each brings it, as long as it is not there
        ("image", "other", 30),
        ("image-roams", "longhorn", 50),
        ("here-roams", "longhorn", 70),
        ("image-roams", "image", 30),
        ("image-roams", "image-roams", 30),
        ("longhorn", "image-roams", 50),
        ("longhorn", "here-roams", 70),
    ],
)
def test_so_much_is_left_beside_thirty_gib(cluster: TestCluster, held: str, newcomer: str, most_gib: int) -> None:
    if "roams" in newcomer or "roams" in held:
        cluster.allocator.observe_node("n2", None)
        cluster.allocator.observe_kube_node("n2", None)
    assert cluster.ask("first", 30, "n1", class_name=held)
    assert not cluster.ask("larger", most_gib + 1, "n1", class_name=newcomer)
    assert cluster.ask("fits", most_gib, "n1", class_name=newcomer)


def test_a_volume_without_room_for_its_image_finds_no_disk(cluster: TestCluster) -> None:
    assert not cluster.ask("a", 81, *NODES, class_name="image-roams")
    assert cluster.ask("b", 80, *NODES, class_name="image-roams")


def test_two_volumes_of_one_pod_bring_it_to_their_disk_once(cluster: TestCluster) -> None:
    for name in ("a", "b", "c", "d"):
        cluster.add_claim(name, 40 if name in "ab" else 41, class_name="image")
    cluster.add_pod("too-large", "c", "d")
    assert set() == cluster.offered("too-large", "n1")
    cluster.add_pod("pair", "a", "b")
    assert {"n1"} == cluster.offered("pair", "n1")


@pytest.mark.parametrize("class_name", ["image", "image-roams"])
def test_a_pod_waits_while_the_size_of_its_image_is_not_known(cluster: TestCluster, class_name: str) -> None:
    unknown = BackingImage("image")
    cluster.allocator.observe_backing_image("image", unknown)
    cluster.add_pod("a", ("a", 81, class_name))
    refused = cluster.filter("a", *NODES)
    assert dict.fromkeys(NODES, "BackingImageSizeUnknown") == refused.refused
    assert "claim ns/a: the size of backing image image is not known" in cluster.allocator.account_of("pod-a", NODES)
    assert [] == cluster.woken()
    cluster.allocator.observe_backing_image("image", replace(unknown, real_size_bytes=20 * GIB))
    assert [] == cluster.woken()  # 101 GiB fit nowhere
    cluster.allocator.observe_backing_image("image", replace(unknown, real_size_bytes=19 * GIB))
    assert ["a"] == cluster.woken()
    assert cluster.offered("a", *NODES)


@pytest.mark.parametrize("locality", ["disabled", "best-effort"])
@pytest.mark.parametrize(("source", "is_made"), [("download", True), ("export-from-volume", True), ("upload", False)])
def test_an_image_that_is_made_along_with_its_volume_is_not_waited_for(
    cluster: TestCluster, locality: str, source: str, is_made: bool
) -> None:
    made = {"backingImage": "new", "backingImageDataSourceType": source}
    cluster.add_class("makes", dataLocality=locality, numberOfReplicas="1", **made)
    assert (set(NODES) if is_made or locality == "best-effort" else set()) == cluster.ask(
        "a", 30, *NODES, class_name="makes"
    )


def test_a_pod_whose_volume_lies_somewhere_needs_no_size_of_its_image(cluster: TestCluster) -> None:
    cluster.add_claim("a", 30, class_name="image")
    name = cluster.provision("a", backing_image="image")
    cluster.place(name, "n1", 30)
    cluster.allocator.observe_backing_image("image", BackingImage("image"))
    cluster.add_pod("a", "a")
    assert {"n1"} == cluster.offered("a", *NODES)


@pytest.mark.parametrize("locality", ["disabled", "best-effort"])
@pytest.mark.parametrize(("is_enough", "offered"), [(True, {"n1", "n2"}), (False, set[str]())])
def test_a_pod_is_kept_waiting_only_by_a_copy_without_which_it_does_not_start(
    cluster: TestCluster, locality: str, is_enough: bool, offered: set[str]
) -> None:
    """One of two copies lies somewhere. Whether that is enough, a setting says."""
    settings = replace(cluster.allocator._world.settings, degraded_availability=is_enough)
    cluster.allocator.configure(cluster.live, settings)
    cluster.add_claim("a", 30, class_name="image")
    name = cluster.provision("a", copies=2, backing_image="image", locality=locality)
    cluster.place(name, "n1", 30)
    cluster.allocator.observe_backing_image("image", BackingImage("image"))
    cluster.add_pod("a", "a")
    assert offered == cluster.offered("a", *NODES)


def come_to_n1(cluster: TestCluster) -> None:
    """The image names the disk of n1. The disk's figure tells of it later."""
    shown = BackingImage("image", real_size_bytes=20 * GIB, disk_uuids=frozenset({"n1-d1"}))
    cluster.allocator.observe_backing_image("image", shown)


def test_an_image_that_came_without_a_replica_counts_before_the_disks_figure_tells_of_it(cluster: TestCluster) -> None:
    assert cluster.ask("a", 30, "n1", class_name="longhorn")
    come_to_n1(cluster)
    assert not cluster.ask("larger", 51, "n1", class_name="longhorn")
    assert cluster.ask("fits", 50, "n1", class_name="longhorn")


def test_what_a_plan_takes_follows_what_is_known_of_its_image(cluster: TestCluster) -> None:
    """Nothing once it is there by itself."""
    assert cluster.ask("a", 30, "n1", class_name="image")
    cluster.select_node("a", "n1")
    assert {"n1": 50} == cluster.pending()
    come_to_n1(cluster)
    assert {"n1": 30} == cluster.pending()
    assert not cluster.ask("larger", 51, "n1", class_name="longhorn")
    assert cluster.ask("fits", 50, "n1", class_name="image")


@pytest.mark.parametrize(
    ("newcomer", "most_gib"), [("longhorn", 50), ("image", 50), ("image-roams", 50), ("other", 30), ("other-roams", 30)]
)
def test_the_image_of_a_replica_that_lies_there_counts_once(cluster: TestCluster, newcomer: str, most_gib: int) -> None:
    """Longhorn copies it there when the replica starts, and tells of it then: the image at once, the disk later."""
    cluster.allocator.observe_node("n2", None)
    cluster.allocator.observe_kube_node("n2", None)
    lying = replica("v-r-1", "v", 30, on="n1", backing_image="image")
    cluster.allocator.observe_volume("v", volume("v", 30, backing_image="image"))
    cluster.allocator.observe_replica("v-r-1", lying)
    cluster.let_figures_follow()
    assert not cluster.ask("larger", most_gib + 1, "n1", class_name=newcomer)
    assert cluster.ask("fits", most_gib, "n1", class_name=newcomer)
    cluster.drop_pod("fits")
    cluster.drop_claim("fits")
    come_to_n1(cluster)
    assert not cluster.ask("too much", most_gib + 1, "n1", class_name=newcomer)
    assert cluster.ask("later", most_gib, "n1", class_name=newcomer)
