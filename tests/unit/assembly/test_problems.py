"""Each problem is told while its fault lasts, and no other; nothing is while all is well."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from controller.allocator.outcome import DiskOver, Mode, SharedDisk
from controller.assembly.problems import FAILURE, NEAR_END_SECONDS, WARNING, ProcessFacts, problems_of
from controller.canary.proof import Finding, Wiring
from controller.placement.gate import GateState
from controller.process.common_metrics import StoreState
from controller.process.worker import WorkerState

WELL = ProcessFacts()
WORKER = WorkerState("waker", 9, 1, 0.1, 0.0, "ValueError: odd", 5.0, is_gone=False)
STORE = StoreState("pod", is_synced=True, objects=3, bad=0, age_seconds=0.5)


def finding(state: Wiring) -> Finding:
    return Finding("gpu", state, "it looks for the resource on the nodes", 0.0)


FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"leader": "Nobody leads."}, FAILURE, "leader", "Nobody leads."),
    ({"mode": Mode.BYPASS}, WARNING, "mode", "Mode bypass: "),
    ({"mode": Mode.CLOSED}, WARNING, "mode", "Mode closed: "),
    ({"mode": Mode.UNKNOWN}, FAILURE, "mode", "Mode unknown: "),
    ({"gate": GateState.MISSING, "gate_problem": "no policy"}, FAILURE, "gate", "(no policy)"),
    ({"gate": GateState.AUDIT}, WARNING, "gate", "audit log"),
    ({"gate": GateState.OPENING}, WARNING, "gate", "still kept"),
    ({"gate_problem": "a dry run was refused"}, WARNING, "gate", "(a dry run was refused)"),
    ({"findings": [finding(Wiring.UNWIRED)]}, FAILURE, "wiring", "gpu does not ask the extender: it looks"),
    ({"findings": [finding(Wiring.UNKNOWN)]}, WARNING, "wiring", "not known whether gpu asks"),
    ({"settings": {"max-offers": "'x' is no number"}}, WARNING, "setting", "max-offers: 'x' is no number"),
    ({"certificates": ("ca.crt: is empty",)}, WARNING, "certificate", "ca.crt: is empty"),
    ({"ends": {"server": 3600.0}}, WARNING, "certificate-expiry", "server expires in 1 hours"),
    ({"ends": {"server": -1.0}}, FAILURE, "certificate-expiry", "server has expired"),
    ({"plain_http": "plain HTTP"}, WARNING, "plain-http", "plain HTTP"),
    ({"stuck": 2}, FAILURE, "stuck-pods", "2 pods wait in vain"),
    ({"stuck": 1}, FAILURE, "stuck-pods", "1 pod waits in vain"),
    ({"missed": {"default-scheduler": 0, "gpu": 3}}, WARNING, "missed-pods", "by scheduler: gpu: 3."),
    ({"disks_over": (DiskOver("n1", "d1", 2**30),)}, WARNING, "disks-over", "n1/d1 by 1 GiB"),
    ({"shared_disks": (SharedDisk("u", (("n1", "d1"), ("n2", "d1"))),)}, WARNING, "shared-disk", "u: n1/d1, n2/d1"),
    ({"quarantined": ("team/app",)}, WARNING, "quarantine", "team/app"),
    ({"unwritten": 3, "plans": "plans-0: it is full"}, WARNING, "plans-unwritten", "3 plans and holds are not stored"),
    ({"stores": [replace(STORE, is_synced=False)]}, FAILURE, "stale-data", "no pod is answered: pod"),
    ({"stores": [replace(STORE, age_seconds=61.0)]}, FAILURE, "stale-data", "no pod is answered: pod"),
    ({"stores": [replace(STORE, bad=1)]}, WARNING, "unreadable-objects", "1 object of kind pod"),
    ({"workers": [WORKER]}, WARNING, "worker", "waker failed: ValueError: odd"),
    ({"workers": [replace(WORKER, is_gone=True)]}, FAILURE, "worker", "thread waker has ended"),
    ({"growth": "the leader does not answer the webhook"}, FAILURE, "growth-unchecked", "does not answer the webhook"),
    ({"webhooks": ("403: may not update",)}, WARNING, "webhooks", "403: may not update"),
    ({"rpc": "cannot listen"}, WARNING, "rpc", "cannot listen"),
    ({"longhorn": "1.8 is too old"}, FAILURE, "longhorn", "1.8 is too old"),
    ({"record": "503: away"}, WARNING, "record", "503: away"),
    (
        {"unreadable": {"n1": "spec: is no object"}},
        WARNING,
        "record-unreadable",
        "n1 cannot be read: spec: is no",
    ),
    ({"placing": "the data about pod is too old"}, WARNING, "placement", "too old"),
    ({"published": "the ConfigMap does not exist"}, WARNING, "status-access", "does not exist"),
]


@pytest.mark.parametrize(("fault", "severity", "what", "text"), FAULTS, ids=[f"{row[2]}: {row[3]}" for row in FAULTS])
def test_a_fault_is_told_with_a_hint_while_it_lasts(fault: dict[str, Any], severity: str, what: str, text: str) -> None:
    (told,) = problems_of(replace(WELL, **fault))
    assert (severity, what) == (told.severity, told.what)
    assert text in told.text
    assert told.hint
    assert [] == problems_of(WELL)


def test_every_fact_can_become_a_problem() -> None:
    assert {field.name for field in fields(ProcessFacts)} == {name for row in FAULTS for name in row[0]}


@pytest.mark.parametrize(
    "normal",
    [
        {"gate": GateState.UNPROVEN},  # there is no Replica yet by which to prove it
        {"gate": GateState.OFF},
        {"gate": GateState.FOLLOWING},
        {"findings": [finding(Wiring.WIRED)]},
        {"ends": {"server": NEAR_END_SECONDS + 1, "ca-previous-1": 60.0}},
        {"missed": {"default-scheduler": 0}},
        {"unwritten": 3},  # they are being written
        {"workers": [replace(WORKER, failed_seconds_ago=60.0), replace(WORKER, failed_seconds_ago=None)]},
        {"stores": [STORE]},
    ],
    ids=", ".join,
)
def test_what_is_usual_is_no_problem(normal: dict[str, Any]) -> None:
    assert [] == problems_of(replace(WELL, **normal))


def test_failures_come_first() -> None:
    both = replace(WELL, settings={"a": "b"}, quarantined=("team/app",), longhorn="too old")
    assert ["longhorn", "setting", "quarantine"] == [one.what for one in problems_of(both)]


def test_many_names_are_summed_up() -> None:
    (told,) = problems_of(replace(WELL, quarantined=[f"team/app-{number}" for number in range(9)]))
    assert told.text.endswith("team/app-4 and 4 more.")
