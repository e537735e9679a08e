"""What Longhorn makes of a class and a claim, what it refuses, and what its webhook says to a claim that changes."""

from __future__ import annotations

import pytest

from tests.longhorn import locality, paths
from tests.longhorn.admission import claim_problem
from tests.longhorn.classes import refusal, volume_spec
from tests.longhorn.state import SearchState
from tests.longhorn_rules import objects as worlds
from tests.longhorn_rules.objects import GIB, Raw, disk, node, replica

SETTINGS = {"default-replica-count": '{"v1":"3","v2":"2"}', "default-data-locality": "disabled"}


def claim(request: str = "10Gi", *, modes: tuple[str, ...] = ("ReadWriteOnce",), volume: str = "v") -> Raw:
    resources = {"requests": {"storage": request}}
    return {"spec": {"accessModes": list(modes), "resources": resources, "volumeName": volume}}


@pytest.mark.parametrize(
    ("parameters", "part"),
    [
        ({"dataLocality": "strict-local", "numberOfReplicas": "2"}, "exactly one replica"),
        ({"dataLocality": "strict-local"}, "exactly one replica"),  # unset counts as the default, which is 3
        ({"dataLocality": ""}, "dataLocality"),
        ({"dataLocality": "best_effort"}, "dataLocality"),
        ({"numberOfReplicas": "21"}, "numberOfReplicas"),
        ({"numberOfReplicas": "0"}, "numberOfReplicas"),
        ({"numberOfReplicas": "many"}, "numberOfReplicas"),
        ({"frontend": "scsi"}, "frontend"),
    ],
)
def test_some_classes_never_get_a_volume(parameters: dict[str, str], part: str) -> None:
    assert part in refusal(parameters, claim(), SETTINGS)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"numberOfReplicas": "20"},
        {"dataLocality": "strict-local", "numberOfReplicas": "1"},
        {"dataLocality": "best-effort"},
        {"frontend": "iscsi"},
    ],
)
def test_others_do(parameters: dict[str, str]) -> None:
    assert "" == refusal(parameters, claim(), SETTINGS)


def test_a_strict_local_volume_is_not_shared_unless_it_migrates() -> None:
    strict, shared = {"dataLocality": "strict-local", "numberOfReplicas": "1"}, claim(modes=("ReadWriteMany",))
    assert "shared" in refusal(strict, shared, SETTINGS)
    assert "" == refusal({**strict, "migratable": "true"}, shared, SETTINGS)


def test_what_the_class_leaves_open_comes_from_settings() -> None:
    spec = volume_spec({}, claim(), SETTINGS)
    assert (3, "disabled", "blockdev") == (spec["numberOfReplicas"], spec["dataLocality"], spec["frontend"])
    assert 2 == volume_spec({"dataEngine": "v2"}, claim(), SETTINGS)["numberOfReplicas"]


def test_csi_publishes_block_devices_only() -> None:
    published = {
        frontend: locality.has_device({"spec": volume_spec({"frontend": frontend}, claim(), SETTINGS)})
        for frontend in ("blockdev", "ublk", "iscsi", "nvmf")
    }
    assert {"blockdev": True, "ublk": True, "iscsi": False, "nvmf": False} == published


# Longhorn's webhook for claims


def problem(old: Raw, new: Raw, *, driver: str = paths.DRIVER, replicas: tuple[Raw, ...] = ()) -> str:
    """As its webhook says on a disk of 100 GiB, 80 of them taken."""
    pv = {"spec": {"csi": {"driver": driver, "volumeHandle": "v"}}}
    full = node("a", disk(100 * GIB, scheduled=80 * GIB))
    return claim_problem(
        old,
        new,
        lambda name: pv if name else None,
        lambda _: worlds.volume(10 * GIB),
        lambda _: SearchState(nodes={"a": full}, replicas=replicas, settings={}),
    )


PLACED = (replica("r", "a-d1", size=10 * GIB),)


def test_a_claim_grows_as_far_as_its_replicas_disks_have_room() -> None:
    assert "" == problem(claim(), claim("30Gi"), replicas=PLACED)
    assert "cannot schedule" in problem(claim(), claim("30.1Gi"), replicas=PLACED)
    assert "" == problem(claim(), claim("300Gi"), replicas=(replica("r"),))  # placed nowhere yet


def test_a_claim_without_a_volume_does_not_change_its_size() -> None:
    assert "no volume" in problem(claim(volume=""), claim("11Gi", volume=""))
    assert "" == problem(claim(volume=""), claim())


def test_other_drivers_claims_are_passed_over() -> None:
    assert "" == problem(claim(), claim("300Gi"), driver="other.example.org", replicas=PLACED)
