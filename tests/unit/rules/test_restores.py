"""The size of a volume that is restored from a backup, before it is there."""

from __future__ import annotations

import pytest

from controller.model.longhorn import Backup
from controller.model.parse import backup_facts
from controller.rules.demand import Missing, VolumeDemand, demand_of_claim, demands_of_pod
from controller.rules.provisioning import backup_name
from tests.fakes.builders import GIB, pod
from tests.unit.rules.asking import SETTINGS, claim, world

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


def asked(known: Backup | None, *, gib: int = 10, url: str = URL) -> VolumeDemand:
    made = world(fromBackup=url)
    if known is not None:
        made.put_backup(known.name, known)
    found = demand_of_claim(claim(requested_bytes=gib * GIB), made, SETTINGS)
    assert isinstance(found, VolumeDemand)
    return found


@pytest.mark.parametrize(("backup_gib", "gib"), [(30, 30), (5, 10), (10, 10)])
def test_the_larger_of_backup_and_request_counts(backup_gib: int, gib: int) -> None:
    found = asked(backup(backup_gib))
    assert (gib * GIB, "") == (found.size_bytes, found.unread_backup)


def test_a_backups_size_is_rounded_as_a_volumes() -> None:
    assert 30 * GIB + 2 * 1024**2 == asked(Backup("backup-1", URL, 30 * GIB + 1)).size_bytes


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
    found = asked(known)
    assert (10 * GIB, "backup-1") == (found.size_bytes, found.unread_backup)


@pytest.mark.parametrize("url", [URL.replace("/?", "?"), "s3://bucket@region/?volume=vol-1&backup=backup-1"])
def test_one_url_is_written_in_several_ways(url: str) -> None:
    assert 30 * GIB == asked(backup(), url=url).size_bytes


def test_a_backup_that_is_not_there_yet_is_missing_and_asked_for_all_the_same() -> None:
    made = world(fromBackup=URL)
    made.put_claim("ns/c", claim(requested_bytes=10 * GIB))
    entry = pod("p", "c")
    demands, missing = demands_of_pod(entry, made, SETTINGS)
    assert ([10 * GIB], [Missing("backup", "", "backup-1")]) == ([one.size_bytes for one in demands], missing)
    made.put_backup("backup-1", backup(0))  # there is nothing more to be read
    assert [] == demands_of_pod(entry, made, SETTINGS)[1]


def test_what_is_read_of_a_backup() -> None:
    status = {"url": URL, "volumeSize": str(30 * GIB), "size": "1"}
    assert backup() == backup_facts({"metadata": {"name": "backup-1"}, "status": status})
    assert Backup("backup-1", "", 0) == backup_facts({"metadata": {"name": "backup-1"}})
