"""The checker of recorded histories, rule by rule, on histories made up here."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.checker import HistoryError
from tests.e2e.explained import Recorded
from tests.e2e.history_facts import DiskFacts, bytes_of, volume_bytes
from tests.fakes.histories import GIB, History, history


def promised_at_end(made: History) -> int:
    return made.check().series[-1].node_bytes["n1"] // GIB


def test_replicas_up_to_the_limit_are_no_violation_and_one_byte_more_is() -> None:
    made = history()
    for number in range(4):
        made.replica(f"r{number}", f"v{number}", "n1", "n1-d0")
    assert [] == made.check().violations

    rv = made.put(
        "Replica",
        "r4",
        {"spec": {"volumeName": "v4", "nodeID": "n1", "diskID": "n1-d0", "volumeSize": "1"}},
        namespace="longhorn-system",
    )

    (violation,) = made.check().violations
    assert ("node n1", rv, 1) == (violation.place, violation.rv, violation.over_bytes)
    assert {f"replica r{number}" for number in range(5)} == {item.name for item in violation.items}


def test_a_replica_that_has_no_disk_yet_counts_nothing() -> None:
    made = history()
    made.replica("r", "v", "n1", "")
    assert 0 == promised_at_end(made)


def test_a_violation_lasts_until_it_ends_and_keeps_its_worst_amount() -> None:
    made = history(100)
    made.replica("a", "va", "n1", "n1-d0")
    made.replica("b", "vb", "n1", "n1-d0", gib=10)
    made.replica("c", "vc", "n1", "n1-d0", gib=20)
    made.gone("Replica", "c")
    made.gone("Replica", "b")
    made.replica("d", "vd", "n1", "n1-d0", gib=1)

    assert [30 * GIB, 1 * GIB] == [violation.over_bytes for violation in made.check().violations]


def test_reserved_bytes_and_over_provisioning_shape_the_limit_with_truncation() -> None:
    made = history()
    made.node("n1", 400, reserved_gib=100)
    made.put("Setting", "storage-over-provisioning-percentage", {"value": "33"}, namespace="longhorn-system")

    assert {"n1": int(300 * GIB * 33 / 100)} == made.check().node_limits


def test_selected_node_counts_while_the_claim_is_unbound_even_without_a_pod() -> None:
    made = history()
    made.claim("c", selected="n1")
    assert 100 == promised_at_end(made)


def test_a_claim_without_a_choice_counts_nothing() -> None:
    made = history()
    made.claim("c")
    made.pod("p", "c")
    assert 0 == promised_at_end(made)


def test_the_annotation_of_a_bound_claim_speaks_only_for_a_pod_that_is_older_than_the_volume() -> None:
    made = history()
    made.pod("p", "c")
    made.claim("c", selected="n1")
    made.pv("pv", "v")
    made.claim("c", selected="n1", pv="pv")
    assert 100 == promised_at_end(made)

    made.gone("Pod", "p")
    assert 0 == promised_at_end(made)

    made.pod("p", "c")
    assert 0 == promised_at_end(made)


def test_a_bound_pod_chooses_for_its_claim_until_the_replica_is_placed_anywhere() -> None:
    made = history()
    made.claim("c", pv="pv")
    made.pv("pv", "v")
    made.pod("p", "c", node="n1")
    made.replica("r", "v")
    assert 100 == promised_at_end(made)

    made.replica("r", "v", "n2", "n2-d0")
    assert 0 == promised_at_end(made)


def test_a_placed_replica_and_the_claim_behind_it_are_counted_once() -> None:
    made = history()
    made.claim("c", pv="pv")
    made.pv("pv", "v")
    made.pod("p", "c", node="n1")
    made.replica("r", "v", "n1", "n1-d0")
    assert 100 == promised_at_end(made)


def test_the_replica_of_a_claim_that_is_not_bound_yet_belongs_to_it() -> None:
    made = history()
    made.claim("c", selected="n1")
    uid = made.lines[-1]["object"]["metadata"]["uid"]
    made.replica("r", f"pvc-{uid}", "n1", "n1-d0")
    assert 100 == promised_at_end(made)


def test_two_pods_of_one_claim_count_once_and_where_longhorn_attaches_it() -> None:
    made = history()
    made.node("n2", 400)
    made.claim("c", pv="pv")
    made.pv("pv", "v")
    made.volume("v", node="n2")
    made.pod("p", "c", node="n1")
    made.pod("q", "c", node="n2")

    assert {"n1": 0, "n2": 100 * GIB} == made.check().series[-1].node_bytes


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_chooses_nothing(phase: str) -> None:
    made = history()
    made.claim("c", pv="pv")
    made.pv("pv", "v")
    made.pod("p", "c", node="n1", phase=phase)
    assert 0 == promised_at_end(made)


def test_a_deleted_pod_still_counts_on_its_node_but_not_if_it_was_never_bound() -> None:
    made = history()
    made.claim("c", pv="pv")
    made.pv("pv", "v")
    made.pod("p", "c", node="n1", deleting=True)
    assert 100 == promised_at_end(made)

    unbound = history()
    unbound.pod("p", "c")
    unbound.claim("c", selected="n1")
    unbound.pv("pv", "v")
    unbound.claim("c", selected="n1", pv="pv")
    unbound.pod("p", "c", deleting=True)
    assert 0 == promised_at_end(unbound)


@pytest.mark.parametrize(
    ("locality", "replicas", "counts"),
    [("best-effort", "1", True), ("strict-local", "1", True), ("best-effort", "2", False), ("disabled", "1", False)],
)
def test_only_volumes_of_one_copy_beside_their_pod_are_demand_on_a_node(
    locality: str, replicas: str, counts: bool
) -> None:
    made = history()
    made.storage_class(locality=locality, replicas=replicas)
    made.claim("c", selected="n1")
    assert (100 if counts else 0) == promised_at_end(made)


def test_a_class_that_leaves_locality_and_copies_open_takes_longhorns_settings() -> None:
    made = history()
    made.storage_class(locality="", replicas="")
    made.claim("c", selected="n1")
    assert 0 == promised_at_end(made)

    made.put("Setting", "default-data-locality", {"value": "best-effort"}, namespace="longhorn-system")
    made.put("Setting", "default-replica-count", {"value": '{"v1":"1","v2":"3"}'}, namespace="longhorn-system")
    assert 100 == promised_at_end(made)


def test_what_the_volume_says_wins_over_claim_and_class() -> None:
    made = history()
    made.storage_class(locality="disabled")
    made.claim("c", gib=1, selected="n1")
    uid = made.lines[-1]["object"]["metadata"]["uid"]
    made.volume(f"pvc-{uid}", gib=7)
    assert 7 == promised_at_end(made)

    made.volume(f"pvc-{uid}", gib=7, replicas=2)
    assert 0 == promised_at_end(made)


def test_shared_claims_and_other_drivers_are_no_demand() -> None:
    made = history()
    made.put("StorageClass", "other", {"provisioner": "example.com/disk"})
    made.claim("a", selected="n1", storageClassName="other")
    made.claim("b", selected="n1", accessModes=["ReadWriteMany"])
    made.claim("c", selected="n1", storageClassName="missing")
    assert 0 == promised_at_end(made)


def test_an_ephemeral_volume_is_a_claim_named_after_pod_and_volume() -> None:
    made = history()
    made.claim("p-scratch", pv="pv")
    made.pv("pv", "v")
    made.put(
        "Pod", "p", {"spec": {"nodeName": "n1", "volumes": [{"name": "scratch", "ephemeral": {}}]}}, namespace="ns"
    )
    assert 100 == promised_at_end(made)


def test_of_several_disks_each_answers_for_its_replicas_and_the_node_for_the_sum() -> None:
    made = history(100, 100)
    made.replica("a", "va", "n1", "n1-d0", gib=80)
    made.replica("b", "vb", "n1", "n1-d0", gib=30)
    assert ["disk n1-d0 of n1"] == [violation.place for violation in made.check().violations]

    made = history(100, 100)
    made.replica("a", "va", "n1", "n1-d0", gib=80)
    made.claim("c", gib=110, selected="n1")
    assert [] == made.check().violations
    made.claim("d", gib=11, selected="n1")
    assert ["node n1"] == [violation.place for violation in made.check().violations]


def test_a_violation_elsewhere_is_not_judged_when_nodes_are_given() -> None:
    made = history()
    made.node("n2", 10)
    made.replica("a", "va", "n2", "n2-d0")
    assert 1 == len(made.check().violations)
    assert [] == made.check(nodes={"n1"}).violations


def test_what_came_before_is_known_but_not_judged_when_a_revision_is_given() -> None:
    made = history()
    made.replica("a", "va", "n1", "n1-d0", gib=300)
    made.replica("b", "vb", "n1", "n1-d0", gib=300)
    made.pod("p")
    before = made.gone("Replica", "b")
    assert [] == made.check(after=before).violations
    assert {} == made.check(after=before).pods

    rv = made.replica("c", "vc", "n1", "n1-d0", gib=101)
    assert [rv] == [violation.rv for violation in made.check(after=before).violations]


def test_a_ready_pod_whose_only_replica_is_elsewhere_is_a_locality_miss() -> None:
    made = history()
    for name, node in (("here", "n1"), ("away", "n2")):
        made.claim(f"c-{name}", pv=f"pv-{name}")
        made.pv(f"pv-{name}", f"v-{name}")
        made.replica(f"r-{name}", f"v-{name}", node, f"{node}-d0")
        made.ready_pod(name, f"c-{name}", node="n1")

    report = made.check()
    assert ["ns/here"] == [pod.key for pod in report.local]
    assert [("ns/away", ("ns/c-away",))] == [(pod.key, pod.missed) for pod in report.misses]
    assert ["ns/away ready on n1 away from ns/c-away"] == report.complaints()


def test_pods_are_counted_with_their_times_and_refusals() -> None:
    made = history()
    made.refused_pod("p", "c")
    made.refused_pod("p", "c")
    made.pod("p", "c")
    made.refused_pod("p", "c")
    made.refused_pod("p", "c", "d")
    bound = made.pod("p", "c", node="n1")
    ready = made.ready_pod("p", "c", node="n1")
    made.pod("stuck")

    report = made.check()
    assert [(2, 1000.0 + bound, 1000.0 + ready)] == [(pod.refusals, pod.bound_at, pod.ready_at) for pod in report.bound]
    assert {"n1": 1} == report.pods_per_node()
    assert 2 == len(report.pods)
    assert 1 == len(report.refused)
    assert {} == made.check(namespaces={"other"}).pods


def test_the_series_has_a_sample_for_every_change_of_what_is_promised() -> None:
    made = history()
    made.replica("a", "va", "n1", "n1-d0")
    made.pod("unrelated")
    made.gone("Replica", "a")

    report = made.check()
    assert [0, 100, 0] == [sample.node_bytes["n1"] // GIB for sample in report.series if sample.node_bytes]
    assert {"n1": 100 * GIB} == report.peaks()


def test_a_recreated_object_of_the_same_name_is_a_new_one() -> None:
    made = history()
    made.claim("c", selected="n1")
    made.gone("PersistentVolumeClaim", "c")
    assert 0 == promised_at_end(made)
    made.claim("c")
    assert 0 == promised_at_end(made)


def test_a_gap_in_a_kind_that_matters_cannot_be_judged() -> None:
    made = history()
    made.lines.append(
        {"rv": 99, "type": "GAP", "kind": "Lease", "group": "coordination.k8s.io", "at": 0, "object": None}
    )
    made.check()
    made.lines.append({"rv": 100, "type": "GAP", "kind": "Replica", "group": "longhorn.io", "at": 0, "object": None})
    with pytest.raises(HistoryError, match="Replica"):
        made.check()


def test_a_history_that_never_recorded_replicas_cannot_be_judged() -> None:
    made = history()
    made.lines = [line for line in made.lines if line["kind"] != "Replica"]
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


def test_volume_sizes_are_rounded_as_longhorn_does() -> None:
    assert [10 * 2**20, 12 * 2**20, 100 * GIB] == [
        volume_bytes(1),
        volume_bytes(10 * 2**20 + 1),
        volume_bytes(100 * GIB),
    ]


def test_the_limit_is_rounded_where_longhorns_floats_round_it() -> None:
    """Whole numbers would give one byte less in the first line, one more in the second."""
    assert (2**46 + 37) * 199 // 100 + 1 == DiskFacts("d", 2**46 + 37, 0).limit_bytes(199)
    assert (2**48 + 6) * 150 // 100 - 1 == DiskFacts("d", 2**48 + 6, 0).limit_bytes(150)


@pytest.mark.parametrize(
    ("locality", "replicas", "gib"), [("strict-local", 1, 100), ("best-effort", 1, 100), ("best-effort", 2, 0)]
)
def test_a_volume_tells_itself_whether_it_lives_beside_its_pod(locality: str, replicas: int, gib: int) -> None:
    made = history()
    made.claim("c", pv="pv", storageClassName="")
    made.pv("pv", "v")
    made.volume("v", locality=locality, replicas=replicas)
    made.pod("p", "c", node="n1")
    assert gib == promised_at_end(made)


def test_a_class_of_another_driver_is_no_demand_whatever_its_parameters_say() -> None:
    made = history()
    parameters = {"dataLocality": "best-effort", "numberOfReplicas": "1"}
    made.put("StorageClass", "lh", {"provisioner": "example.com/disk", "parameters": parameters})
    made.claim("c", selected="n1")
    assert 0 == promised_at_end(made)


@pytest.mark.parametrize(("value", "gib"), [("1", 100), ("3", 0), ('{"v1":"3","v2":"1"}', 0)])
def test_a_class_that_leaves_only_copies_open_takes_those_of_the_first_engine(value: str, gib: int) -> None:
    made = history()
    made.storage_class(replicas="")
    made.put("Setting", "default-replica-count", {"value": value}, namespace="longhorn-system")
    made.claim("c", selected="n1")
    assert gib == promised_at_end(made)


def test_a_replica_without_a_disk_is_not_beside_its_pod() -> None:
    made = history()
    made.claim("c", pv="pv")
    made.pv("pv", "v")
    made.replica("r", "v", "n1", "")
    made.ready_pod("p", "c", node="n1")
    assert ["ns/p"] == [pod.key for pod in made.check().misses]


def test_a_ready_pod_without_a_local_volume_is_neither_local_nor_a_miss() -> None:
    made = history()
    made.ready_pod("p", node="n1")
    report = made.check()
    assert ([], [], 1) == (report.local, report.misses, len(report.ready))


def test_a_pod_is_ready_when_it_first_was_and_refused_once_until_it_is_not() -> None:
    made = history()
    first = made.ready_pod("p", node="n1")
    made.pod("p", node="n1")
    made.ready_pod("p", node="n1")
    made.refused_pod("q", "c")
    made.refused_pod("q", "c", "d")  # something else of it changes

    report = made.check()
    assert [1000.0 + first] == [pod.ready_at for pod in report.ready]
    assert [1] == [pod.refusals for pod in report.refused]


def bound_without_disk(**volume: Any) -> History:
    made = history()
    made.claim("c", pv="pv")
    made.pv("pv", "v")
    made.volume("v", **volume)
    made.pod("p", "c", node="n1")
    made.wait(100)
    made.storage_class("later")  # tells the time
    return made


@pytest.mark.parametrize("volume", [{}, {"locality": "disabled"}, {"locality": "disabled", "replicas": 3}])
def test_a_pod_that_is_bound_for_long_without_a_disk_for_its_volume_is_a_complaint(
    volume: dict[str, Any],
) -> None:
    made = bound_without_disk(**volume)
    assert ["ns/p bound to n1, no disk for ns/c"] == made.check(no_disk_seconds=60).complaints()
    assert [] == made.check().without_disk  # not for so long

    made.replica("r1", "v", "n1", "n1-d0")
    made.replica("r2", "v")
    assert [] == made.check(no_disk_seconds=60).complaints()


def test_a_shared_claim_without_a_disk_is_a_complaint_of_each_pod_that_is_bound() -> None:
    made = bound_without_disk(locality="disabled")
    made.claim("c", pv="pv", accessModes=["ReadWriteMany"])
    made.pod("q", "c")
    made.pod("r", "c", node="n2")
    made.wait(100)
    made.storage_class("later again")
    assert {"ns/p", "ns/r"} == {pod.key for pod in made.check(no_disk_seconds=60).without_disk}


def test_pods_that_go_or_are_done_need_no_disk_any_more() -> None:
    ends: list[dict[str, Any]] = [{"deleting": True}, {"phase": "Succeeded"}]
    for end in ends:
        made = bound_without_disk()
        made.pod("p", "c", node="n1", **end)
        assert [] == made.check(no_disk_seconds=60).complaints()
    made = bound_without_disk()
    made.gone("Pod", "p")
    assert [] == made.check(no_disk_seconds=60).complaints()


def test_volumes_of_other_drivers_need_no_disk_of_longhorns() -> None:
    made = bound_without_disk()
    made.put("PersistentVolume", "pv", {"spec": {"csi": {"driver": "example.com", "volumeHandle": "v"}}})
    assert [] == made.check(no_disk_seconds=60).complaints()


@pytest.mark.parametrize("told", ["remote", "at_discretion"])
def test_a_pod_that_was_told_may_run_away_from_its_replica(told: str) -> None:
    made = history()
    for name in ("told", "not-told"):
        made.claim(f"c-{name}", pv=f"pv-{name}")
        made.pv(f"pv-{name}", f"v-{name}")
        made.replica(f"r-{name}", f"v-{name}", "n2", "n2-d0")
        made.ready_pod(name, f"c-{name}", node="n1")
    uids = frozenset({made.uid("Pod", "told")})
    report = made.check(recorded=Recorded(remote=uids) if told == "remote" else Recorded(at_discretion=uids))
    assert ["ns/not-told ready on n1 away from ns/c-not-told"] == report.complaints()
    assert {"ns/told", "ns/not-told"} == {pod.key for pod in report.misses}


@pytest.mark.parametrize("locality", ["disabled", "best-effort"])
def test_volumes_that_may_go_anywhere_count_with_every_replica_that_has_a_disk(locality: str) -> None:
    made = history(100)
    made.node("n2", 100)
    made.volume("v", 60, locality=locality, replicas=3)
    made.claim("c", 60, pv="pv", accessModes=["ReadWriteMany"])
    made.pv("pv", "v")
    made.replica("r1", "v", "n1", "n1-d0", 60)
    made.replica("r2", "v", "n2", "n2-d0", 60)
    made.replica("r3", "v", gib=60)
    assert {"n1": 60 * GIB, "n2": 60 * GIB} == made.check().series[-1].node_bytes
    made.replica("r3", "v", "n1", "n1-d0", 60)
    assert [20 * GIB] == [violation.over_bytes for violation in made.check().violations]
