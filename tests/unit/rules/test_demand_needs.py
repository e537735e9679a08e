"""How large volumes count, whose demand they are, and what they ask of nodes and disks besides room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.world.world import World
from controller.model.longhorn import (
    BackingImage,
    Backup,
    DiskNeeds,
    EngineImage,
    ImageNeeds,
    LonghornSettings,
    TopologyTerm,
)
from controller.model.parse import backup_facts
from controller.model.versions import behaviour_of
from controller.model.workload import PersistentVolume
from controller.rules.demand import Missing, VolumeDemand, demand_of_claim
from controller.rules.provisioning import backup_name
from tests.fakes.builders import DRIVER, EPOCH, GIB, ONE_LOCAL, pod, replica, storage_class, volume
from tests.unit.rules.asking import (
    FAILED,
    OLD,
    SETTINGS,
    bound,
    claim,
    demand,
    with_volume,
    world,
)

# Sizes


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (0, 10 << 20),
        (1, 10 << 20),
        (10 << 20, 10 << 20),
        ((10 << 20) + 1, 12 << 20),
        (12 << 20, 12 << 20),
        (2**63 - 1, 2**63 - (2 << 20)),
    ],
)
def test_sizes_are_rounded_as_longhorn_rounds_them(requested: int, expected: int) -> None:
    assert expected == demand(world(), claim(requested_bytes=requested)).size_bytes


def test_an_existing_volume_counts_with_its_own_size_and_what_was_written() -> None:
    made = with_volume(gib=5, actual_size_bytes=3 * GIB)
    found = demand(made, bound(made))
    assert (5 * GIB, 3 * GIB) == (found.size_bytes, found.required_bytes)


def with_source() -> World:
    """A volume of 9 GiB, bound to the claim "source" of the same namespace."""
    made = world()
    made.put_volume("src", volume("src", 9))
    made.put_pv("pv-src", PersistentVolume("pv-src", DRIVER, "src", "us", "ns/source", GIB, EPOCH))
    made.put_claim("ns/source", claim(uid="us", name="source", volume_name="pv-src"))
    return made


@pytest.mark.parametrize(
    ("of_claim", "of_class", "gib"),
    [
        ("PersistentVolumeClaim/source", "", 1),  # that, too, is refused when it asks for another size
        ("PersistentVolumeClaim/unknown", "", 1),
        ("PersistentVolumeClaim/unbound", "", 1),
        ("VolumeSnapshot/of-source", "", 1),  # Longhorn takes no other request than the source's size
        ("", "", 1),
        ("", "vol://src", 9),
        ("", "snap://src/s1", 9),
        ("", "vol://unknown", 1),
        ("", "bak://src/b1", 1),
        ("", "src", 1),
    ],
)
def test_a_clone_by_its_class_has_the_size_of_its_source_where_that_is_known(
    of_claim: str, of_class: str, gib: int
) -> None:
    made = with_source()
    made.put_claim("ns/unbound", claim(uid="uu", name="unbound"))
    made.put_class("sc", storage_class("sc", {"dataSource": of_class} if of_class else {}))
    found = demand(made, claim(data_source=of_claim))
    assert (gib * GIB, 0) == (found.size_bytes, found.required_bytes)


def test_a_clone_that_asks_for_another_size_than_its_source_never_comes() -> None:
    made = with_source()
    for gib, is_made in ((9, True), (1, False), (8, False), (10, False)):
        found = demand(made, claim(requested_bytes=gib * GIB, data_source="PersistentVolumeClaim/source"))
        never = f"a clone has to request exactly the size of its source, 9 GiB, not {gib} GiB"
        assert (gib * GIB, "" if is_made else never) == (found.size_bytes, found.never)


MIB = 1024**2
NEEDS = "StorageClass sc: with parameters.{} a volume needs at least {}"


@pytest.mark.parametrize(
    ("given", "of_claim", "mib", "never"),
    [
        ({"backingImage": "i"}, {}, 511, NEEDS.format("backingImage i", "513 MiB, not 512 MiB")),
        ({"backingImage": "i"}, {}, 513, ""),
        ({"backingImage": "unsized"}, {}, 10, ""),
        ({"backingImage": "unknown"}, {}, 10, ""),
        ({"encrypted": "true"}, {}, 16, NEEDS.format("encrypted true", "18 MiB, not 16 MiB")),
        ({"encrypted": "true"}, {}, 17, ""),
        ({"encrypted": "false"}, {}, 16, ""),
        ({"fsType": "xfs"}, {}, 298, NEEDS.format("fsType xfs", "300 MiB, not 298 MiB")),
        ({"csi.storage.k8s.io/fstype": "xfs"}, {}, 298, NEEDS.format("fsType xfs", "300 MiB, not 298 MiB")),
        ({"fsType": "xfs"}, {}, 299, ""),
        ({"fsType": "xfs"}, {"form": ("Block", "")}, 10, ""),
        ({"fsType": "ext4"}, {}, 10, ""),
    ],
)
def test_a_claim_that_asks_for_less_than_its_volume_needs_never_comes(
    given: dict[str, str], of_claim: dict[str, Any], mib: int, never: str
) -> None:
    """Longhorn rounds up to 2 MiB before it looks."""
    made = world(**given)
    made.put_backing_image("i", BackingImage("i", real_size_bytes=GIB, virtual_size_bytes=513 * MIB))
    made.put_backing_image("unsized", BackingImage("unsized"))
    assert never == demand(made, claim(requested_bytes=mib * MIB, **of_claim)).never


def test_of_a_data_engine_that_is_off_no_new_volume_comes_and_those_that_exist_stay() -> None:
    off = LonghornSettings(makes_v2=False)
    for engine, never in (("v1", ""), ("v2", "Longhorn's setting v2-data-engine is off, and it makes no such volume")):
        assert never == demand(world(dataEngine=engine), claim(), off).never
    made = with_volume(needs=DiskNeeds(data_engine="v2"))
    assert "" == demand(made, bound(made), off).never


@pytest.mark.parametrize("owner", ["another", ""])
def test_a_claim_that_says_another_ones_volume_is_its_own_tells_nothing_of_it(owner: str) -> None:
    made = with_source()
    made.put_pv("pv-src", PersistentVolume("pv-src", DRIVER, "src", owner, "other/claim", GIB, EPOCH))
    found = demand(made, claim(data_source="PersistentVolumeClaim/source"))
    assert (GIB, "", "") == (found.size_bytes, found.never, found.facts.data_source)


# Volumes that are restored from a backup, before they are there

URL = "s3://bucket@region/?backup=backup-1&volume=vol-1"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (URL, "backup-1"),
        ("nfs://host:/path?volume=vol-1&backup=backup-2", "backup-2"),
        ("s3://bucket@region/?volume=vol-1", ""),
        ("s3://bucket@region/", ""),
        ("s3://bucket@region/?backup=../nodes/n1", ""),
        ("s3://bucket@region/?backup=a&backup=b", ""),
        (f"s3://b/?backup={'a' * 254}", ""),
        ("", ""),
    ],
)
def test_a_backup_is_found_by_the_name_in_its_url(url: str, name: str) -> None:
    assert name == backup_name(url)


def backup(gib: float = 30, url: str = URL) -> Backup:
    return Backup("backup-1", url, int(gib * GIB))


def restored(known: Backup | None, url: str = URL) -> VolumeDemand:
    """A claim of 10 GiB whose class restores that backup."""
    made = world(fromBackup=url)
    if known is not None:
        made.put_backup(known.name, known)
    return demand(made, claim(requested_bytes=10 * GIB))


@pytest.mark.parametrize(("backup_gib", "gib"), [(30, 30), (5, 10), (10, 10)])
def test_the_larger_of_backup_and_request_counts(backup_gib: int, gib: int) -> None:
    found = restored(backup(backup_gib))
    assert (gib * GIB, "", URL) == (found.size_bytes, found.unread_backup, found.facts.from_backup)


def test_a_backups_size_is_rounded_as_a_volumes() -> None:
    assert 30 * GIB + 2 * 1024**2 == restored(Backup("backup-1", URL, 30 * GIB + 1)).size_bytes


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(None, id="not read yet"),
        pytest.param(backup(0), id="without a size"),
        pytest.param(backup(url="s3://other/?backup=backup-1&volume=vol-1"), id="of another target"),
        pytest.param(backup(url=""), id="without a url"),
    ],
)
def test_while_the_size_is_not_known_the_request_counts_and_the_demand_says_so(known: Backup | None) -> None:
    found = restored(known)
    assert (10 * GIB, "backup-1") == (found.size_bytes, found.unread_backup)


@pytest.mark.parametrize("url", [URL.replace("/?", "?"), "s3://bucket@region/?volume=vol-1&backup=backup-1"])
def test_one_url_is_written_in_several_ways(url: str) -> None:
    assert 30 * GIB == restored(backup(), url).size_bytes


def test_a_backup_that_is_not_there_yet_is_missing_and_asked_for_all_the_same() -> None:
    made = world(fromBackup=URL)
    made.put_claim("ns/c", claim(requested_bytes=10 * GIB))
    entry = pod("p", "c")
    demands, missing = made.demands_of(entry)
    assert ([10 * GIB], [Missing("backup", "", "backup-1")]) == ([one.size_bytes for one in demands], missing)
    made.put_backup("backup-1", backup(0))  # there is nothing more to be read
    assert [] == made.demands_of(entry)[1]


def test_what_is_read_of_a_backup() -> None:
    status = {"url": URL, "volumeSize": str(30 * GIB), "size": "1"}
    assert backup() == backup_facts({"metadata": {"name": "backup-1"}, "status": status})
    assert Backup("backup-1", "", 0) == backup_facts({"metadata": {"name": "backup-1"}})


# Populators


@pytest.mark.parametrize("kind", ["DataVolume", "VolumeImportSource", "VolumeCloneSource", "VolumeUploadSource"])
def test_a_claim_that_a_populator_fills_asks_for_nothing_and_its_prime_claim_does(kind: str) -> None:
    made = world(**ONE_LOCAL)
    assert demand_of_claim(claim(data_source=f"{kind}/x"), made, SETTINGS) is None
    assert "pvc-prime" == demand(made, claim(uid="prime", name="prime-u")).volume


def test_a_volume_that_a_populator_hands_on_is_at_every_moment_the_demand_of_one_claim() -> None:
    made = world(**ONE_LOCAL)
    prime, target = claim(uid="p", name="prime-u", volume_name="pvc-p"), claim(data_source="VolumeImportSource/x")
    pv = PersistentVolume("pvc-p", DRIVER, "pvc-p", "p", "ns/prime-u", GIB, EPOCH)
    made.put_volume("pvc-p", volume("pvc-p"))
    made.put_claim("ns/prime-u", prime)
    made.put_claim("ns/c", target)

    def owners() -> list[str]:
        found = (demand_of_claim(entry, made, SETTINGS) for entry in made.claims.values())
        return [entry.key for entry in found if isinstance(entry, VolumeDemand)]

    made.put_pv("pvc-p", pv)
    assert ["p"] == owners()
    made.put_pv("pvc-p", replace(pv, claim_uid="u", claim_key="ns/c"))
    assert ["p"] == owners()
    made.put_claim("ns/c", replace(target, volume_name="pvc-p"))
    assert ["u"] == owners()
    made.put_claim("ns/prime-u", None)
    assert ["u"] == owners()


def test_a_pv_promised_to_a_claim_by_name_alone_is_that_claims() -> None:
    made = with_volume()
    made.put_pv("pv", PersistentVolume("pv", DRIVER, "vol", "", "ns/c", GIB, EPOCH))
    assert "u" == demand(made, claim(volume_name="pv")).key


# Needs: selectors, engines, backing images, topology


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ()),
        ("ssd", ("ssd",)),
        ("b,a", ("a", "b")),
        ("ssd, fast", (" fast", "ssd")),
        ("a,", ("", "a")),
        ("", ("",)),  # one empty selector, which nothing fulfils
    ],
)
def test_selectors_are_split_at_commas_and_not_trimmed(text: str | None, expected: tuple[str, ...]) -> None:
    for name, field in (("nodeSelector", "node_selector"), ("diskSelector", "disk_selector")):
        made = world() if text is None else world(**{name: text})
        assert expected == getattr(demand(made, claim()).needs, field)


def test_an_existing_volumes_needs_are_its_own() -> None:
    needs = DiskNeeds(("node",), ("disk",), "v2", (TopologyTerm("z1"),))
    made = with_volume(needs=needs)
    assert needs == demand(made, bound(made)).needs


def test_the_engine_image_is_the_volumes_and_of_a_new_one_longhorns_default() -> None:
    made = world()
    assert "" == demand(made, claim()).needs.engine_image
    made.put_engine_image("ei-1", EngineImage("ei-1", "engine:1", "deployed", frozenset({"n1"})))
    made.put_engine_image("ei-2", EngineImage("ei-2", "engine:2", "deployed", frozenset({"n1", "n2"})))
    assert "engine:2" == demand(made, claim()).needs.engine_image  # on most nodes
    made.put_settings(replace(SETTINGS, default_engine_image="engine:1"))
    assert "engine:1" == demand(made, claim()).needs.engine_image
    v2 = demand(world(dataEngine="v2"), claim()).needs
    assert ("v2", "") == (v2.data_engine, v2.engine_image)
    made.put_volume("vol", volume("vol", image="engine:0"))
    assert "engine:0" == demand(made, bound(made)).needs.engine_image


def test_a_backing_images_selectors_become_needs() -> None:
    image = BackingImage("img", ("node",), ("disk",), real_size_bytes=3 * GIB)
    existing = with_volume(backing_image="img")
    for made, of in ((world(backingImage="img"), claim()), (existing, bound(existing))):
        unknown = demand(made, of)
        assert (ImageNeeds(name="img"), None) == (unknown.needs.image, unknown.image)
        made.put_backing_image("img", image)
        known = demand(made, of)
        assert (ImageNeeds(("node",), ("disk",), "img"), image) == (known.needs.image, known.image)


def test_an_image_that_is_made_with_the_volume_has_the_classes_selectors() -> None:
    given = {"backingImageNodeSelector": "a,b", "backingImageDiskSelector": "c"}
    assert ImageNeeds(("a", "b"), ("c",), "img") == demand(world(backingImage="img", **given), claim()).needs.image
    assert demand(world(**given), claim()).needs.image is None
    empty = {"backingImageNodeSelector": "", "backingImageDiskSelector": ""}
    assert ImageNeeds(name="img") == demand(world(backingImage="img", **empty), claim()).needs.image


@pytest.mark.parametrize(("value", "expected"), [("zonal", "zone"), ("regional", "region"), ("", ""), ("any", "")])
def test_a_new_volume_may_be_bound_to_the_chosen_nodes_topology(value: str, expected: str) -> None:
    assert expected == demand(world(volumeTopology=value), claim()).follows


def test_strict_topology_asks_nothing_of_us() -> None:
    assert demand(world(**ONE_LOCAL), claim()) == demand(world(**ONE_LOCAL, strictTopology="true"), claim())


@pytest.mark.parametrize(
    ("parameter", "field"),
    [
        ("replicaSoftAntiAffinity", "soft_anti_affinity"),
        ("replicaZoneSoftAntiAffinity", "zone_soft_anti_affinity"),
        ("replicaDiskSoftAntiAffinity", "disk_soft_anti_affinity"),
        ("replicaAutoBalance", "auto_balance"),
    ],
)
def test_a_classes_anti_affinity_is_the_new_volumes(parameter: str, field: str) -> None:
    assert "ignored" == getattr(demand(world(), claim()).facts, field)
    for value in ("enabled", "disabled"):
        assert value == getattr(demand(world(**{parameter: value}), claim()).facts, field)


@pytest.mark.parametrize(
    ("engine", "settings", "expected"),
    [("v1", OLD, "enabled"), ("v2", OLD, "ignored"), ("v2", SETTINGS, "enabled")],
)
def test_older_releases_dropped_a_v2_classes_soft_anti_affinity(
    engine: str, settings: LonghornSettings, expected: str
) -> None:
    made = world(dataEngine=engine, replicaSoftAntiAffinity="enabled")
    assert expected == demand(made, claim(), settings).facts.soft_anti_affinity
    made = world(dataEngine=engine, replicaSoftAntiAffinity="disabled")
    assert "disabled" == demand(made, claim(), settings).facts.soft_anti_affinity


# Linked clones


@pytest.mark.parametrize(
    ("source", "settings", "is_found"),
    [
        ({"healthy_at": EPOCH}, SETTINGS, True),
        ({"healthy_at": ""}, SETTINGS, False),
        ({**FAILED}, SETTINGS, False),
        ({"healthy_at": EPOCH, "eviction_requested": True}, SETTINGS, False),
        (
            {"healthy_at": EPOCH, "eviction_requested": True},
            LonghornSettings(behaviour=behaviour_of("v1.12.0")),
            True,
        ),
    ],
)
def test_a_linked_clone_goes_to_the_disks_of_its_sources_healthy_replicas(
    source: dict[str, Any], settings: LonghornSettings, is_found: bool
) -> None:
    made = with_source()
    made.put_replica("s", replica("s", "src", on="n1", **source))
    made.put_class("sc", storage_class("sc", {"cloneMode": "linked-clone"}))
    found = demand(made, claim(data_source="PersistentVolumeClaim/source"), settings)
    assert (frozenset({"n1-d1"}) if is_found else frozenset()) == found.clone_disks
    made.put_volume("vol", volume("vol", clone_mode="linked-clone", data_source="snap://src/s1"))
    assert found.clone_disks == demand(made, bound(made), settings).clone_disks


def test_other_volumes_go_to_any_disk() -> None:
    made = with_source()
    assert demand(made, claim(data_source="PersistentVolumeClaim/source")).clone_disks is None
    made.put_volume("vol", volume("vol", clone_mode="linked-clone", data_source="vol://src"))
    assert demand(made, bound(made), OLD).clone_disks is None  # it knows no linked clones
