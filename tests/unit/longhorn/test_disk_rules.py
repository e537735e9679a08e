"""Which disks of a tried node the stand-in takes."""

from __future__ import annotations

import pytest

from tests.unit.longhorn.worlds import GIB, Raw, ask, disk, failed, node, places, reasons, replica, volume

TIB, EIB = 1024**4, 1024**6


@pytest.mark.parametrize(
    "unfit", [disk(allowScheduling=False), disk(evictionRequested=True), disk(schedulable="False")]
)
def test_an_unavailable_disk_is_refused(unfit: tuple[Raw, Raw]) -> None:
    answer = ask([node("a", disk(), unfit)])
    assert ["a-d1"] == places(answer)
    assert [("d2", "disks are unavailable")] == [(entry.disk, entry.reason) for entry in answer.refusals]


def test_a_disk_in_spec_or_status_alone_is_passed_over() -> None:
    a = node("a", disk(), disk(), disk())
    del a["spec"]["disks"]["d2"]
    del a["status"]["diskStatus"]["d3"]
    assert ["a-d1"] == places(ask([a]))


@pytest.mark.parametrize(("engine", "expected"), [("v1", ["a-d1"]), ("v2", ["a-d2"])])
def test_the_disks_type_must_serve_the_engine(engine: str, expected: list[str]) -> None:
    assert expected == places(ask([node("a", disk(), disk(diskType="block"))], volume(dataEngine=engine)))


@pytest.mark.parametrize(
    ("filesystem", "size", "expected"),
    [
        ("ext4", 16 * TIB - 1, True),
        ("ext4", 16 * TIB, False),
        ("ext3", 16 * TIB, False),
        ("xfs", 16 * TIB, True),
        ("xfs", 8 * EIB - 2, True),
        ("xfs", 8 * EIB - 1, False),
        ("", 8 * EIB - 1, True),
    ],
)
def test_the_file_system_bounds_the_size(filesystem: str, size: int, expected: bool) -> None:
    answer = ask([node("a", disk(2**62, filesystem=filesystem, scheduled=-(2**62)))], volume(size))
    assert expected == bool(places(answer))
    assert expected == ("incompatible volume size" not in reasons(answer))


@pytest.mark.parametrize(
    ("selector", "allow_empty", "expected"),
    [
        ([], "true", ["a-d1", "a-d2", "a-d3"]),
        ([], "false", ["a-d1"]),
        (["ssd"], "false", ["a-d2", "a-d3"]),
        (["ssd", "nvme"], "true", ["a-d3"]),
        (["SSD"], "true", []),
    ],
)
def test_disk_tags(selector: list[str], allow_empty: str, expected: list[str]) -> None:
    nodes = [node("a", disk(), disk(tags=("ssd",)), disk(tags=("nvme", "ssd")))]
    settings = {"allow-empty-disk-selector-volume": allow_empty}
    assert expected == places(ask(nodes, volume(diskSelector=selector), settings=settings))


@pytest.mark.parametrize(("size", "expected"), [(300, ["a-d1"]), (301, [])])
def test_a_replica_of_the_same_volume_counts_before_the_figures_show_it(size: int, expected: list[str]) -> None:
    settings = {"replica-soft-anti-affinity": "true"}
    nodes = [node("a", disk(400))]
    assert expected == places(ask(nodes, volume(size), [replica("r", "a-d1", size=100)], settings=settings))


def test_a_replica_that_the_figures_show_counts_once() -> None:
    nodes = [node("a", disk(400, scheduled=100, replicas={"r": 100}))]
    settings = {"replica-soft-anti-affinity": "true"}
    assert ["a-d1"] == places(ask(nodes, volume(300), [replica("r", "a-d1", size=100)], settings=settings))


def test_an_unplaced_replica_is_not_on_a_disk_that_has_no_uuid_yet() -> None:
    young = node("a", disk(400))
    del young["status"]["diskStatus"]["d1"]["diskUUID"]
    assert [""] == places(ask([young], volume(400), new=replica("new", size=400)))


@pytest.mark.parametrize(("actual", "expected"), [(299 * GIB, True), (300 * GIB, False)])
def test_the_volumes_real_bytes_must_leave_the_minimum(actual: int, expected: bool) -> None:
    assert expected == bool(places(ask([node("a", disk(400 * GIB))], volume(GIB, actual=actual))))


# Disk anti-affinity. Both replicas may share the node, so that the disks alone decide.

SHARED = {"replica-soft-anti-affinity": "true"}
HARD = {**SHARED, "replica-disk-soft-anti-affinity": "false"}


def test_disks_without_a_replica_win() -> None:
    nodes = [node("a", disk(), disk())]
    assert ["a-d2"] == places(ask(nodes, replicas=[replica("r", "a-d1")], settings=SHARED))


def test_without_a_free_disk_soft_takes_all_and_hard_none() -> None:
    nodes, there = [node("a", disk(), disk())], [replica("r1", "a-d1"), replica("r2", "a-d2"), replica("r3", "a-d2")]
    assert ["a-d1", "a-d2"] == places(ask(nodes, replicas=there, settings=SHARED))
    assert [] == places(ask(nodes, replicas=there, settings=HARD))


@pytest.mark.parametrize(
    ("flag", "setting", "expected"),
    [
        ("ignored", "false", []),
        ("ignored", "true", ["a-d1"]),
        ("enabled", "false", ["a-d1"]),
        ("disabled", "true", []),
    ],
)
def test_the_volumes_own_disk_flag_wins(flag: str, setting: str, expected: list[str]) -> None:
    settings = {**SHARED, "replica-disk-soft-anti-affinity": setting}
    wanted = volume(replicaDiskSoftAntiAffinity=flag)
    assert expected == places(ask([node("a")], wanted, [replica("r", "a-d1")], settings=settings))


def test_a_failed_replica_takes_its_disk_only_while_it_may_come_back() -> None:
    nodes = [node("a", disk(), disk())]
    assert ["a-d2"] == places(ask(nodes, replicas=[failed("r", "a-d1")], settings=SHARED))
    assert ["a-d1", "a-d2"] == places(ask(nodes, replicas=[failed("r", "a-d1", rebuildRetryCount=5)], settings=SHARED))


def test_a_deleting_replica_still_takes_its_disk_though_not_its_node() -> None:
    nodes = [node("a", disk(), disk())]
    assert ["a-d2"] == places(ask(nodes, replicas=[replica("r", "a-d1", deleting=True)]))


def test_a_setting_that_is_no_truth_value_is_named() -> None:
    for text in ("", "yes", "tRue"):
        with pytest.raises(ValueError, match="replica-disk-soft-anti-affinity"):
            ask([node("a")], settings={"replica-disk-soft-anti-affinity": text})


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_truth_is_spelled_as_go_reads_it(text: str) -> None:
    assert ["a-d1"] == places(
        ask(
            [node("a", tags=("x",))],
            settings={"allow-empty-node-selector-volume": text, "replica-soft-anti-affinity": "F"},
        )
    )
