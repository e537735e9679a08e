"""Longhorn's controllers as the stand-in plays them, on a clock that the test moves: what comes when, and why."""

from __future__ import annotations

import pytest

from tests.longhorn import paths
from tests.longhorn.eviction import ALL, POLICY
from tests.longhorn.options import GIB
from tests.unit.longhorn.stage import NAMESPACE, LonghornStage, Raw, play

TWO_AT_ONCE = (
    "stage write={} disk_figures=0.01; nodes a; volume v1 60; volume v2 60; run; attach v1 a; run 0.05; attach v2 a; "
    "run 10; holds a {}"
)
ROAMING = (
    "stage write=0.1 write_roaming=1.0; nodes a b; volume near locality=strict-local node=a; volume far {} node=a; "
    "run 0.2; = near a; = far {}; run 1; = far * healthy"
)
PLACING = {
    # `syncVolume` writes replicas in its deferred block.
    "figures follow a replica at once and its object follows the choice late": (
        "stage write=0.1 disk_figures=0.03; nodes a; volume v; attach v a; run 0.09; = v -; run 0.02; = v a; "
        "holds a 0; run 0.03; holds a 10"
    ),
    "a choice that is not written yet is not seen by the next volume": TWO_AT_ONCE.format(0.1, 120),
    "a choice that is written is seen": TWO_AT_ONCE.format(0.0, 60),
    "volumes that may lie anywhere are written later than local ones": ROAMING.format("locality=disabled", "-"),
    "so are those of two copies": ROAMING.format("replicas=2", "-,-"),
    "a volumes own replicas see each other before they are written": (
        "stage write_roaming=1.0; nodes a b c; volume v locality=disabled replicas=3; run 2; = v a,b,c"
    ),
    "a choice is lost and made once more when its replica was changed meanwhile": (
        "stage write=1.0; nodes a; volume v; attach v a; run 0.5; touch v; run 1; = v -; run 1; = v a"
    ),
    # `volume_controller.go: enqueueNodeChange`
    "replicas without a place are tried again at every event of a node": (
        "stage placement=0.01 write=0.01 disk_figures=0.01; nodes a; volume large 90; volume w1 20; volume w2 20; run; "
        "attach large a; run 1; attach w1 a; attach w2 a; run 1; = w1 -; = w2 -; delete large; run 0.1; = w1 a; = w2 a"
    ),
    "a new volume has all its replicas at once wherever they will fit": (
        "stage; nodes a b; volume v replicas=3; = v -,-,-; attach v a; run 1; = v -,a,b"
    ),
    # `replica_scheduler.go` restricts the candidates to the volume's node only where there are any.
    "a displaced best-effort volume takes the place of the next one": (
        "stage; node a 5; node b 20; node c 20; volume v1 10; volume v2 15; run; cordon c; run; attach v1 a; run 1; "
        "uncordon c; run; attach v2 b; run 1; = v1 -,b; = v2 -,c"
    ),
    # As measured: detached after 0.8 s, its PV after 1.2 s more, and a replica's place only once it is attached.
    "a new best-effort volume comes in Longhorn's order": (
        "stage preset=measured; nodes a; provision; run 0.01; = v - creating scheduled:True; run 0.7; = v - creating; "
        "run 0.2; = v - detached; run 1.0; = v - no-pv; run 0.2; = v - pv:data; pod v a; run 0.9; = v - on:; "
        "run 0.11; = v - on:a; run 0.14; = v a detached; run 6.1; = v a detached; run 0.1; = v a attached owner:a"
    ),
    "an engine is seen to run at its monitors next beat": (
        "stage start=1.0 beat=5.0; nodes a; volume v node=a; run 5.9; = v a creating; run 0.2; = v a attached"
    ),
    "no attachment comes of a frontend without a device": (
        "stage; nodes a; provision frontend=iscsi; run 1; pod v a; run 60; = v - on: frontend:iscsi"
    ),
    "an unknown locality never gets a volume": "stage; nodes a; provision dataLocality=best_effort; run 60; gone v",
    "strict-local with two copies never gets one": (
        "stage; nodes a; provision dataLocality=strict-local numberOfReplicas=2; run 60; gone v"
    ),
    "an unknown frontend never gets one": "stage; nodes a; provision frontend=scsi; run 60; gone v",
    # `reconcileVolumeCondition` passes over local replicas that wait for a node.
    "a best-effort volume counts as scheduled before anything is placed": (
        "stage; nodes a; volume v; = v - scheduled:True"
    ),
    "so does a strict-local one": "stage; nodes a; volume v locality=strict-local; = v - scheduled:True",
    "a volume stays unscheduled while it has a replica too many": (
        "stage rebuild=5.0; nodes a; node b 5; volume v node=a; run 1; attach v -; run; attach v b; run 1; "
        "= v -,a scheduled:False; resize b 100; run 1; = v a,b scheduled:False; run 5; = v b scheduled:True"
    ),
}
LEAVING = (
    "stage rebuild=5.0; nodes a; volume v locality=disabled node={0}; run 1; nodes b; "
    "spec nodes a evictionRequested=True allowScheduling=False; run 1; = v a,b; run 5; = v b on:{1}"
)
RESTORE = (
    "stage own_attach=1.0 restore=5.0; nodes a b; provision fromBackup=s3://bucket/?backup=one; run; own v b; {}"
    "run 0.5; pod v a; run 2; = v {} on:b; run 5; = v * on:a"
)
LIFE = {
    "a copy of a volume in use that is to leave goes once another is healthy": LEAVING.format("a", "a"),
    "so does that of a volume that nobody uses": LEAVING.format("-", ""),
    # `volume_expansion_controller.go: reconcile` attaches it there; then a second copy is rebuilt beside the pod.
    "growth places a volume on its owner's node whatever node a pod was promised": (
        "stage own_attach=0.8 write=0.1 start=0.1 expand=0.2 rebuild=1.0; nodes a b; volume v; own v b; run; "
        "grow v 20; run 0.1; pod v a; run 0.75; = v - on:b; run 0.1; = v b longhorns-own; "
        "run 1.3; = v a,b on:a expanded; run 2; = v a"
    ),
    "growth places it on any node where its owner's has no room": (
        "stage; nodes a; node b 5; volume v; own v b; run; grow v 20; run 1; = v a"
    ),
    "an attached volume grows where it is": (
        "stage; nodes a b; volume v node=a; own v b; run 1; grow v 20; run 1; = v a on:a expanded; holds a 20"
    ),
    "a deleted replica counts until its finalizer goes and so does its volume": (
        "stage finalize=5.0; nodes a; volume v node=a; run 1; delete v; run 4; = v a deleting; holds a 10; "
        "run 2; gone v; holds a 0"
    ),
    "a volume that never had data keeps its copies at a detach": (
        "stage; node a 1; volume v 1; run; cordon a; attach v a; run 1; detach v; run 1; = v - failed:0"
    ),
    "a failed copy comes back where it lies": (
        "stage; nodes a b; volume v replicas=2 locality=disabled; run 1; nodes c; attach v a; run 1; fail v b; run 1; "
        "= v a,b retries:0,1 healthy:2"
    ),
    "one that cannot come back is replaced only after the interval": (
        "stage retry_seconds=30.0; nodes a b; volume v replicas=2 locality=disabled; run 1; nodes c; attach v a; "
        "run 1; cordon b; fail v b; run 60; = v a,b; status v lastDegradedAt=2026-01-01T00:00:00Z; run 60; = v a,b,c"
    ),
    "a deep clone has one copy until it is filled": (
        "stage restore=5.0; nodes a b; volume v locality=disabled replicas=2 dataSource=vol://other; "
        "status v state=detached; run 4; = v * copies:1; run 3; attach v a; run 2; = v a,b retries:0,5"
    ),
    "a restore is attached to its owner and placed there": RESTORE.format("", "b"),
    "unless it is placed already": RESTORE.format("place_first v a; ", "a"),
} | {
    f"a copy without a place of a {locality} volume ends at a detach and comes again as a rebuild": (
        f"stage; nodes a; volume v replicas=2 locality={locality}; run 1; attach v a; run 1; = v -,a retries:0,0; "
        "detach v; run 1; = v a; nodes b; attach v a; run 2; = v a,b retries:0,5"
    )
    for locality in ("disabled", "best-effort")
}
CLOSED = "stage refused=0.3 rebuild=1.0; close; nodes a; "
# A volume that a pod on a uses, with its first copy there; from now on nothing gets a place.
USED = "provision dataLocality={} numberOfReplicas={}; run 1; pod v a; run 1; close; "
IN_USE = "stage refused=0.3 rebuild=1.0; nodes a b; " + USED.format("disabled", 1)
NEAR_ITS_POD = "stage refused=0.3 rebuild=1.0; nodes a b; " + USED.format("best-effort", 1)
AFFINITY = (
    "stage; nodes a b; provision dataLocality=strict-local; run 1; {}= v * affinity:; pod v b; run 1; = v b affinity:b"
)
STORED_FIRST = (
    "stage placement=0.7 write=1.0; nodes a; provision; run; pod v a; run {}; place_first v a; run 60; "
    "= v a placed-first scheduled:True attached healthy; holds a 10"
)
REFUSALS = {
    "a refused place is tried three times within a second and then after a while": (
        "stage refused=0.3 retry_seconds=30.0; nodes a; close; volume v node=a; run 1; refused 3; run 28; refused 3; "
        "run 3; refused 6"
    ),
    "a refused place is tried again at the next event": (  # a new node is more than one
        CLOSED + "volume v node=a; run 60; refused 3; nodes b; run 60; refused 6 12; open; touch v; run 1; = v a"
    ),
    "a volume without a copy loses nothing by a refusal": (
        CLOSED + "provision; run 1; pod v a; run 60; = v - detached on:a; open; nodes b; run 1; = v a attached healthy"
    ),
    "a volume whose further copy is refused cannot be detached": (
        IN_USE + "evict v; run 1; no_pod v a; run 60; = v * attached attachments:a; open; nodes c; run 1; "
        "= v * detached attachments:"
    ),
    "one that follows its node can be detached as nothing of it is placed without one": (
        NEAR_ITS_POD + "evict v; run 1; no_pod v a; run 0.1; = v * attachments:"
    ),
    "a copy that was refused ends with the detachment": (
        "stage refused=0.3 rebuild=1.0; nodes a b c; " + USED.format("best-effort", 2) + "lose_others v a; run 60; "
        "= v -,a; no_pod v a; run 1; = v a"
    ),
    "it does not show that it has grown": (
        IN_USE + "evict v; run 1; grow v 20; run 60; = v * sizes:10; open; nodes c; run 5; = v * sizes:20 expanded"
    ),
    "nobody knows how it is after it was attached away from its data": (
        NEAR_ITS_POD + "no_pod v a; run 1; pod v b; run 60; = v -,a attached unknown; open; nodes c; run 1; "
        "= v b healthy"
    ),
    "where no disk has room nothing is written and nothing freezes": (
        "stage refused=0.3 rebuild=1.0; nodes a; node b 5; " + USED.format("best-effort", 1) + "no_pod v a; run 1; "
        "pod v b; run 60; refused 0; = v -,a healthy"
    ),
    "a place that was stored before the choice stands": STORED_FIRST.format(0.5),
    "a place that was stored between the choice and its write stands": STORED_FIRST.format(1.0),
    "a copy that waits for room and is placed by somebody else is used": (
        "stage; nodes a; node b 1; node c 1; volume v locality=disabled replicas=2 node=a; run 1; "
        "= v -,a scheduled:False; place_first v b; run 1; = v a,b scheduled:True healthy"
    ),
    "the PV of a strict-local volume follows its node": AFFINITY.format(""),
    "also once its copy has a place": AFFINITY.format("place_first v b; run 1; "),
    "a refusal delays the PV's affinity": (
        CLOSED + "provision dataLocality=strict-local; run 1; pod v a; run 10; = v - affinity:; open; nodes b; run 1; "
        "= v a affinity:a"
    ),
}
PLAYS = PLACING | LIFE | REFUSALS


@pytest.mark.parametrize("steps", PLAYS.values(), ids=PLAYS)
def test_longhorn(steps: str) -> None:
    play(steps)


@pytest.mark.parametrize(("policy", "expected"), [("block-if-contains-last-replica", "a"), (ALL, "b")])
def test_copies_leave_a_cordoned_node_where_that_is_the_policy_and_none_goes_there(policy: str, expected: str) -> None:
    stage = LonghornStage("a")
    stage.api.create(paths.longhorn("settings", NAMESPACE), {"metadata": {"name": POLICY}, "value": policy})
    stage.play("volume v locality=disabled node=a; run 1; nodes b")
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    stage.api.create(paths.NODES, {"metadata": {"name": "a"}, "spec": {"unschedulable": True}, "status": status})
    stage.play(f"run 5; volume later locality=disabled; run 1; = v {expected}; = later b")


def test_a_restored_volume_is_as_large_as_its_backup_and_grows_once_it_is_filled() -> None:
    """`ControllerExpandVolume` is tried again until the volume's state lets it grow. The PV has what was asked for."""
    stage = LonghornStage("a", restore=5.0)
    url = "s3://bucket/?backup=backup-1&volume=vol-1"
    backup: Raw = {"metadata": {"name": "backup-1"}, "status": {"url": url, "volumeSize": str(20 * GIB)}}
    stage.api.create(paths.longhorn("backups", NAMESPACE), backup)
    stage.provision(fromBackup=url)
    stage.run(1)
    name, claim = stage.named("v"), paths.claim("ns", "data")
    assert str(10 * GIB) == stage.api.get(f"{paths.PVS}/{name}")["spec"]["capacity"]["storage"]
    stage.api.patch(claim, {"spec": {"volumeName": name}, "status": {"capacity": {"storage": "20Gi"}}})
    stage.api.patch(claim, {"spec": {"resources": {"requests": {"storage": "30Gi"}}}})
    stage.run(3)
    assert stage.get("volumes", "v")["status"]["restoreRequired"]
    assert str(20 * GIB) == stage.get("volumes", "v")["spec"]["size"]
    stage.run(5)
    assert str(30 * GIB) == stage.get("volumes", "v")["spec"]["size"]


@pytest.mark.parametrize(("locality", "least"), [("best-effort", 2.1), ("disabled", 0.044)])
def test_with_measured_delays_there_is_time_to_place_first(locality: str, least: float) -> None:
    """From the Replica's CREATE to its place."""
    stage = LonghornStage("a", preset="measured")
    stage.play(f"provision dataLocality={locality}; run 0.01")
    is_attached = False
    while stage.places("v") == [""]:
        if not is_attached and "pv:data" in stage.facts_of("v"):
            stage.pod("v", "a")
            is_attached = True
        stage.run(0.001)
    assert stage.timers.time >= least
