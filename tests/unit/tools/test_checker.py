"""The checker of recorded histories, rule by rule, on histories made up here."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.checker import HistoryError, ToldPods
from tests.e2e.history_facts import DiskFacts, bytes_of, volume_bytes
from tests.fakes.histories import history
from tests.judge.chronicle import GIB

BOUND = "claim c pv=pv; pv pv v; pod p c node=n1; "
WITHOUT_DISK = "claim c pv=pv; pv pv v; volume v{}; pod p c node=n1; wait 100; storage_class later"  # tells the time

# What is promised on n1, and n2, in GiB wherever the steps say so.
PROMISED = {
    "a replica that has no disk yet counts nothing": "replica r v n1 -; = 0",
    "a selected node counts while the claim is unbound and a pod waits for it": (
        "claim c selected=n1; = 0; pod p c; = 100; remove Pod p; = 0"
    ),
    "a claim without a choice counts nothing": "claim c; pod p c; = 0",
    "the annotation of a bound claim speaks only for a pod that is older than the volume": (
        "pod p c; claim c selected=n1; pv pv v; claim c selected=n1 pv=pv; = 100; remove Pod p; = 0; pod p c; = 0"
    ),
    "a bound pod chooses for its claim until the replica is placed anywhere": (
        f"{BOUND}replica r v; = 100; replica r v n2 n2-d0; = 0"
    ),
    "a placed replica and the claim behind it are counted once": f"{BOUND}replica r v n1 n1-d0; = 100",
    "the replica of a claim that is not bound yet belongs to it": "claim c selected=n1; replica r @c n1 n1-d0; = 100",
    "two pods of one claim count once and where Longhorn attaches it": (
        f"node n2 400; {BOUND}volume v node=n2; pod q c node=n2; = 0 100"
    ),
    "a finished pod chooses nothing": f"{BOUND}= 100; pod p c node=n1 phase=Succeeded; = 0; "
    "pod p c node=n1; = 100; pod p c node=n1 phase=Failed; = 0",
    "a deleted pod still counts on its node": f"{BOUND}pod p c node=n1 deleting=1; = 100",
    "a deleted pod that was never bound does not": (
        "pod p c; claim c selected=n1; pv pv v; claim c selected=n1 pv=pv; pod p c deleting=1; = 0"
    ),
    "only volumes of one copy beside their pod are demand on a node": (
        "pod p c; claim c selected=n1; = 100; storage_class lh strict-local; = 100; "
        "storage_class lh best-effort 2; = 0; storage_class lh disabled; = 0"
    ),
    "a class that leaves locality and copies open takes Longhorn's settings": (
        "pod p c; storage_class lh - -; claim c selected=n1; = 0; "
        "setting default-data-locality best-effort; setting default-replica-count 1; = 100; "
        'setting default-replica-count 3; = 0; setting default-replica-count {"v1":"1","v2":"3"}; = 100; '
        'setting default-replica-count {"v1":"3","v2":"1"}; = 0'
    ),
    "what the volume says wins over claim and class": (
        "pod p c; storage_class lh disabled; claim c 1 selected=n1; volume @c 7; = 7; volume @c 7 replicas=2; = 0"
    ),
    "a volume tells itself whether it lives beside its pod": (
        "claim c pv=pv storageClassName=-; pv pv v; pod p c node=n1; volume v locality=strict-local; = 100; "
        "volume v; = 100; volume v replicas=2; = 0"
    ),
    "shared claims and other drivers are no demand": (
        "storage_class other provisioner=example.com/disk; claim a selected=n1 storageClassName=other; "
        "claim b selected=n1 accessModes=ReadWriteMany,; claim c selected=n1 storageClassName=missing; = 0"
    ),
    "an ephemeral volume is a claim named after pod and volume": (
        "claim p-scratch pv=pv; pv pv v; pod p node=n1 ephemeral=scratch,; = 100"
    ),
    "a recreated object of the same name is a new one": (
        "claim c selected=n1; remove PersistentVolumeClaim c; = 0; claim c; = 0"
    ),
    "volumes that may go anywhere count with every replica that has a disk": (
        "node n2 400; volume v 60 locality=disabled replicas=3; claim c 60 pv=pv accessModes=ReadWriteMany,; pv pv v; "
        "replica r1 v n1 n1-d0 60; replica r2 v n2 n2-d0 60; replica r3 v gib=60; = 60 60; "
        "replica r3 v n1 n1-d0 60; = 120 60"
    ),
}


@pytest.mark.parametrize("steps", PROMISED.values(), ids=PROMISED)
def test_it_counts_what_is_promised(steps: str) -> None:
    made = history()
    for step in steps.split("; "):
        if not step.startswith("= "):
            made.play(step)
            continue
        expected = [int(gib) * GIB for gib in step.split()[1:]]
        assert expected == list(made.check().series[-1].node_bytes.values()), step


@pytest.mark.parametrize(
    ("disks", "steps", "expected"),
    [
        pytest.param((100,), "replica a va n1 n1-d0", {}, id="up to the limit"),
        pytest.param(
            (100,),
            "replica a va n1 n1-d0; replica b vb n1 n1-d0 10; replica c vc n1 n1-d0 20; remove Replica c; "
            "remove Replica b; replica d vd n1 n1-d0 1",
            {"node n1": [30, 1]},
            id="each lasts until it ends and keeps its worst amount",
        ),
        pytest.param(
            (100, 100),
            "replica a va n1 n1-d0 80; replica b vb n1 n1-d0 30",
            {"disk n1-d0 of n1": [10]},
            id="of several disks each answers for its replicas",
        ),
        pytest.param(
            (100, 100),
            "replica a va n1 n1-d0 80; pod p c d; claim c 110 selected=n1; claim d 11 selected=n1",
            {"node n1": [1]},
            id="the node answers for the sum",
        ),
        pytest.param(
            (100, 100),
            "replica a va n1 n1-d0 150; pod p c; claim c 100 selected=n1; replica b vb n1 n1-d1 1",
            {"disk n1-d0 of n1": [50], "node n1": [1]},
            id="but not for what one of its disks has too much",
        ),
        pytest.param(
            (100, 100),
            "replica a va n1 n1-d0 80; replica b vb n1 n1-d1 80; node n1 50 100; replica c vc n1 n1-d1 20",
            {},
            id="nor for a disk that has become smaller",
        ),
    ],
)
def test_it_finds_the_places_that_are_promised_too_much(
    disks: tuple[int, ...], steps: str, expected: dict[str, list[int]]
) -> None:
    found: dict[str, list[int]] = {}
    for violation in history(*disks, steps=steps).check().violations:
        found.setdefault(violation.place, []).append(violation.over_bytes // GIB)
    assert expected == found


def test_one_byte_more_than_the_limit_is_a_violation_and_says_what_lies_there() -> None:
    made = history(steps="replica r0 v0 n1 n1-d0 300")
    spec = {"volumeName": "v1", "nodeID": "n1", "diskID": "n1-d0", "volumeSize": str(100 * GIB + 1)}
    made.store("Replica", "r1", spec=spec)

    (violation,) = made.check().violations
    assert ("node n1", made.rv, 1) == (violation.place, violation.rv, violation.over_bytes)
    assert ["replica r0", "replica r1"] == [item.name for item in violation.items]


def test_reserved_bytes_and_over_provisioning_shape_the_limit_with_truncation() -> None:
    made = history(steps="node n1 400 reserved=100; setting storage-over-provisioning-percentage 33")
    assert {"n1": int(300 * GIB * 33 / 100)} == made.check().node_limits


def test_only_the_nodes_and_the_time_that_are_asked_for_are_judged() -> None:
    made = history(steps="node n2 10; replica a va n2 n2-d0")
    assert 1 == len(made.check().violations)
    assert [] == made.check(nodes={"n1"}).violations

    made = history(steps="replica a va n1 n1-d0 300; replica b vb n1 n1-d0 300; pod p")
    made.remove("Replica", "b")
    before = made.rv
    assert ([], {}) == (made.check(after=before).violations, made.check(after=before).pods)
    made.replica("c", "vc", "n1", "n1-d0", gib=101)
    assert [made.rv] == [violation.rv for violation in made.check(after=before).violations]


AWAY, BARE = "ns/p ready on n1 away from ns/c", "ns/p bound to n1, no disk for ns/c"
PLACED = "; replica r1 v n1 n1-d0; replica r2 v"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(f"{BOUND}replica r v n1 n1-d0; ready_pod p c node=n1", [], id="ready beside its replica"),
        pytest.param(f"{BOUND}replica r v n2 n2-d0; ready_pod p c node=n1", [AWAY], id="ready away from it"),
        pytest.param(f"{BOUND}replica r v n1 -; ready_pod p c node=n1", [AWAY], id="ready before it has a disk"),
        pytest.param("ready_pod p node=n1", [], id="ready without a volume"),
        pytest.param(WITHOUT_DISK.format(""), [BARE], id="bound for long without a disk"),
        pytest.param(WITHOUT_DISK.format(" locality=disabled"), [BARE], id="the same, where it may go anywhere"),
        pytest.param(WITHOUT_DISK.format(" locality=disabled replicas=3"), [BARE], id="the same, with three copies"),
        pytest.param(WITHOUT_DISK.format(" replicas=3") + PLACED, [], id="one of its copies has a disk"),
        pytest.param(WITHOUT_DISK.format("") + "; pod p c node=n1 deleting=1", [], id="it goes"),
        pytest.param(WITHOUT_DISK.format("") + "; pod p c node=n1 phase=Succeeded", [], id="it is done"),
        pytest.param(WITHOUT_DISK.format("") + "; remove Pod p", [], id="it is gone"),
        pytest.param(WITHOUT_DISK.format("") + "; pv pv v driver=example.com", [], id="a volume of another driver"),
        pytest.param(
            WITHOUT_DISK.format("") + "; claim c pv=pv accessModes=ReadWriteMany,; pod q c; pod r c node=n2; wait 100; "
            "storage_class again",
            [BARE, "ns/r bound to n2, no disk for ns/c"],
            id="every bound pod of a shared claim",
        ),
    ],
)
def test_it_complains_of_pods_whose_data_is_elsewhere_or_nowhere(steps: str, expected: list[str]) -> None:
    made = history(steps=steps)
    assert expected == made.check(no_disk_seconds=60).complaints()
    assert [] == made.check(no_disk_seconds=300).without_disk, "not for so long"


def test_a_pod_that_was_told_may_run_away_from_its_replica() -> None:
    made = history(steps=f"{BOUND}replica r v n2 n2-d0; ready_pod p c node=n1")
    report = made.check(told=ToldPods(remote=frozenset({made.uid("Pod", "p")})))
    assert ([], ["ns/p"]) == (report.complaints(), [pod.key for pod in report.misses])
    assert [AWAY] == made.check(told=ToldPods(remote=frozenset({"another"}))).complaints()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param("replica r v n1 n1-d0 80; node n1 50", [], id="it falls below what is there"),
        pytest.param("replica r v n1 n1-d0 80; setting storage-over-provisioning-percentage 50", [], id="of all disks"),
        pytest.param("replica r v n1 n1-d0 80; node n1 50; node n1 40; node n1 60", [], id="more than once"),
        pytest.param("replica r v n1 n1-d0 80; node n1 50; replica s w n1 n1-d0 1", [31], id="and something comes"),
        pytest.param("replica r v n1 n1-d0 80; node n1 50; pod p c; claim c 1 selected=n1", [31], id="is chosen"),
        pytest.param(
            "replica r v n1 n1-d0 80; node n1 50; remove Replica r; replica r v n1 n1-d0 80", [30], id="what has gone"
        ),
        pytest.param(
            "replica r v n1 n1-d0 60; replica s w n1 n1-d0 40; node n1 50; remove Replica s; replica s w n1 n1-d0 30",
            [40],
            id="less than what has gone",
        ),
    ],
)
def test_a_limit_that_falls_is_nobodys_fault_unless_something_comes_then(steps: str, expected: list[int]) -> None:
    found = history(100, steps=steps).check().violations
    assert expected == [violation.over_bytes // GIB for violation in found]


LOST = "pod p c; claim c 60 selected=n1; {}replica r v n1 n1-d0 50"


@pytest.mark.parametrize(
    ("steps", "told", "is_wrong"),
    [
        pytest.param(LOST.format(""), "ns/c", False, id="it was told"),
        pytest.param(LOST.format(""), "ns/d", True, id="another one was told"),
        pytest.param(LOST.format("pod q d; claim d 60 selected=n1; "), "ns/c", True, id="more than what was told"),
    ],
)
def test_what_was_told_that_it_lost_its_place_counts_no_more(steps: str, told: str, *, is_wrong: bool) -> None:
    made = history(100, steps=steps)
    assert ["node n1"] == [violation.place for violation in made.check().violations]
    report = made.check(told=ToldPods(lost=frozenset({told})))
    assert is_wrong is bool(report.complaints())
    assert is_wrong is not bool(report.lost)


def test_pods_are_counted_with_the_times_when_they_first_were_and_their_refusals() -> None:
    made = history(steps="refused_pod p c; refused_pod p c; pod p c; refused_pod p c; refused_pod p c d")
    made.pod("p", "c", node="n1")
    bound = made.rv
    made.ready_pod("p", "c", node="n1")
    ready = made.rv
    made.play("pod p c node=n1; ready_pod p c node=n1; pod stuck")

    report = made.check()
    assert [(2, 1000.0 + bound, 1000.0 + ready)] == [(pod.refusals, pod.bound_at, pod.ready_at) for pod in report.bound]
    assert ({"n1": 1}, 2, 1) == (report.pods_per_node(), len(report.pods), len(report.refused))
    assert {} == made.check(namespaces={"other"}).pods


def test_the_series_has_a_sample_for_every_change_of_what_is_promised() -> None:
    report = history(steps="replica a va n1 n1-d0; pod unrelated; remove Replica a").check()
    assert [0, 100, 0] == [sample.node_bytes["n1"] // GIB for sample in report.series if sample.node_bytes]
    assert {"n1": 100 * GIB} == report.peaks()


def test_a_history_with_a_gap_in_a_kind_that_matters_or_without_it_cannot_be_judged() -> None:
    made = history()
    gap: dict[str, Any] = {"rv": 99, "type": "GAP", "at": 0, "object": None}
    made.entries.append({**gap, "kind": "Lease", "group": "coordination.k8s.io"})
    made.check()
    made.entries.append({**gap, "kind": "Replica", "group": "longhorn.io"})
    with pytest.raises(HistoryError, match="Replica"):
        made.check()
    made.entries = [line for line in made.entries if line["kind"] != "Replica"]
    with pytest.raises(HistoryError, match="Replica"):
        made.check()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100Gi", 100 * GIB), ("1e3", 1000), ("1.5Ki", 1536), ("2k", 2000), ("1M", 10**6), ("1500m", 2), (7, 7)],
)
def test_quantities_become_bytes(text: str | int, expected: int) -> None:
    assert expected == bytes_of(text)


@pytest.mark.parametrize("text", ["", "Gi", "1e3Ki4", "ten"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        bytes_of(text)


def test_sizes_and_limits_are_rounded_as_longhorn_does() -> None:
    """Whole numbers would give one byte less in the first limit, one more in the second."""
    mib = 2**20
    assert [10 * mib, 12 * mib, 100 * GIB] == [volume_bytes(1), volume_bytes(10 * mib + 1), volume_bytes(100 * GIB)]
    assert (2**46 + 37) * 199 // 100 + 1 == DiskFacts("d", 2**46 + 37, 0).limit_bytes(199)
    assert (2**48 + 6) * 150 // 100 - 1 == DiskFacts("d", 2**48 + 6, 0).limit_bytes(150)
