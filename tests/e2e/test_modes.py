"""Ways in and out: bypass, a scheduler that may ignore us, the enhancement text's own configuration, bad input."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e import scheduling, workloads
from tests.e2e.harness import GIB, Cell, Scene

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

BYPASS_SECONDS = 60.0  # a deadline for slow machines: what is promised to users is 10 s
MANY = 50
CONFIG_MAP = ("configmap", "longhorn-scheduler-extender", "-n", "longhorn-system")


def test_one_patch_to_bypass_lets_fifty_refused_pods_through(
    scene: Scene, make_cell: Callable[..., Cell], record_property: Callable[[str, object], None]
) -> None:
    cell = make_cell(disks_gib=(10,), fillers=0)
    cell.stateful_set(replicas=MANY)
    cell.wait_refused(MANY, 120)

    patch = {"data": {"scheduler-extender-bypass": "true"}}
    done = scene.cluster.kubectl("patch", *CONFIG_MAP, "--type=merge", "-p", json.dumps(patch))
    assert 0 == done.returncode, done.stderr
    patched = time.monotonic()
    try:
        cell.wait_bound(MANY, BYPASS_SECONDS)
        record_property("seconds until all were bound", round(time.monotonic() - patched, 1))
        scene.controllers[-1].wait_ledger_empty()
    finally:
        scene.set_settings(bypass="false")


def test_pods_pass_a_scheduler_that_may_ignore_an_extender_that_is_away(scene: Scene, cell: Cell) -> None:
    scene.stop_controllers()
    name = "forgiving-scheduler"
    config = {**scene.extender_config(ignorable=True), "profiles": [{"schedulerName": name}]}
    scene.cluster.start_scheduler(config, name=name)
    try:
        cell.stateful_set(scheduler=name)
        cell.wait_bound(16, 60)
    finally:
        scene.cluster.stop_scheduler(name)


def test_the_configuration_of_the_enhancement_text_works_word_for_word(scene: Scene, cell: Cell) -> None:
    if scene.cluster.services.dns is None:
        pytest.skip("this machine has one loopback address only, so there is no cluster DNS")
    ours = scene.extender_config()
    scene.cluster.restart_scheduler(scheduling.PROPOSAL_WORD_FOR_WORD)
    try:
        cell.stateful_set()
        cell.wait_ready(16, 120)
    finally:
        scene.cluster.restart_scheduler(ours)
    report = scene.judge(cell)
    assert [] == report.complaints()
    assert dict.fromkeys(cell.nodes, 4) == report.pods_per_node()
    scene.controllers[-1].wait_ledger_empty()


def pod_body(**changes: Any) -> bytes:
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": []}}
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": ["n1"], **changes}).encode()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (pod_body(Pod=None), "Pod"),
        (pod_body(Pod={"metadata": {"name": "p", "namespace": "default"}}), "uid"),
        (pod_body(NodeNames=None), "NodeNames"),
        (pod_body(NodeNames=[1]), "NodeNames"),
    ],
)
def test_a_call_that_cannot_be_read_is_refused_by_its_field_and_holds_nothing(
    scene: Scene, body: bytes, field: str
) -> None:
    answer = scene.filter({}, [], body=body)
    assert 400 == answer.status
    assert field in answer.body["Error"]
    scene.controllers[-1].wait_ledger_empty(0)


def test_a_pod_that_does_not_exist_gets_an_error_and_holds_nothing(scene: Scene, cell: Cell) -> None:
    ghost = workloads.pod("ghost", "c")
    ghost["metadata"] |= {"namespace": cell.namespace, "uid": "u"}
    answer = scene.filter(ghost, cell.nodes)
    assert (200, []) == (answer.status, answer.passed)
    assert "does not exist" in answer.body["Error"]
    scene.controllers[-1].wait_ledger_empty(0)


def test_nodes_that_do_not_exist_are_refused_one_by_one(scene: Scene, cell: Cell) -> None:
    cell.claim("c")
    cell.pod("p", "c", schedulerName="nobody")
    answer = cell.filter("p", ["nowhere", cell.nodes[0]])
    assert ([cell.nodes[0]], ["nowhere"]) == (answer.passed, list(answer.refused))


def test_a_claim_that_does_not_exist_asks_for_nothing(scene: Scene, cell: Cell) -> None:
    cell.pod("p", "missing", schedulerName="nobody")
    answer = cell.filter("p")
    assert (cell.nodes, {}) == (answer.passed, cell.promised(scene.controllers[-1]))


def test_an_absurd_size_fits_nowhere(scene: Scene, cell: Cell) -> None:
    cell.claim("c", gib=8 * 2**20)
    cell.pod("p", "c", schedulerName="nobody")
    answer = cell.filter("p")
    assert ([], sorted(cell.nodes)) == (answer.passed, sorted(answer.refused))
    assert {} == cell.promised(scene.controllers[-1])


def test_the_metrics_of_the_enhancement_text_stand_on_the_page_with_their_labels(scene: Scene, cell: Cell) -> None:
    cell.stateful_set(replicas=1)
    cell.wait_ready(1)
    controller = scene.controllers[-1]
    controller.wait_ledger_empty()

    families = {family.name: family for family in text_string_to_metric_families(controller.page("/metrics"))}
    prefix = "longhorn_scheduler_extender_"
    (heartbeat,) = families[f"{prefix}heartbeat"].samples
    assert ("gauge", {"node": f"node-of-{controller.name}"}, 1.0) == (
        families[f"{prefix}heartbeat"].type,
        heartbeat.labels,
        heartbeat.value,
    )
    for name, label in (
        ("filter_duration_seconds", None),
        ("pod_scheduling_wait_duration_seconds", "pod_scheduled"),
        ("node_reservation_duration_seconds", "replicas_scheduled"),
    ):
        family = families[prefix + name]
        assert "histogram" == family.type
        counts = [sample for sample in family.samples if sample.name.endswith("_count")]
        assert sum(sample.value for sample in counts) >= 1
        assert {frozenset({label} if label else ())} == {frozenset(sample.labels) for sample in counts}
    held = families[f"{prefix}hold_bytes"]
    assert sum(sample.value for sample in held.samples) < GIB
