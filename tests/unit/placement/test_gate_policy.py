"""The policies that the leader expects are those of the manifest, with the times that the documents name."""

from __future__ import annotations

import re
from datetime import date, timedelta

import yaml

from controller.kube.resources import POLICIES, POLICY_BINDINGS, SERVICE_ACCOUNTS
from controller.model.names import FENCE, GATE, GUARD
from controller.placement.gate_policy import (
    AHEAD_SECONDS,
    MOST_SECONDS,
    SILENT_SECONDS,
    YOUNG_SECONDS,
    expected_bindings,
    expected_policies,
)
from controller.settings import ProcessSettings
from tests.cluster.cache import REPOSITORY

NAMESPACE, ACCOUNT = ProcessSettings().namespace, "longhorn-scheduler-extender"
MANIFEST = list(yaml.safe_load_all((REPOSITORY / "docs" / "examples" / "install.yaml").read_text()))
EXPECTED = expected_policies(NAMESPACE, ACCOUNT)


def specs(kind: str) -> dict[str, object]:
    return {one["metadata"]["name"]: one["spec"] for one in MANIFEST if one["kind"] == kind}


def test_the_manifest_has_them_and_the_leader_makes_the_gates_binding() -> None:
    stored, bound = specs(POLICIES.kind), specs(POLICY_BINDINGS.kind)
    assert {GATE, FENCE, GUARD} == EXPECTED.keys()
    for name, spec in EXPECTED.items():
        assert spec == stored[name], name
    expected = expected_bindings(NAMESPACE)
    assert [expected[FENCE], expected[GUARD], None] == [bound.get(name) for name in (FENCE, GUARD, GATE)]


def test_the_gates_times_are_those_of_the_leader() -> None:
    text = str(specs(POLICIES.kind)[GATE])
    assert ["5s", "45s", "30s", "120s"] == re.findall(r'duration\("(.*?)"\)', text)
    assert (5, 45, 30, 120) == (AHEAD_SECONDS, SILENT_SECONDS, YOUNG_SECONDS, MOST_SECONDS)


def test_an_upgrade_finds_no_stamps_to_reset() -> None:
    (account,) = (one for one in MANIFEST if one["kind"] == SERVICE_ACCOUNTS.kind and one["metadata"]["name"] == GATE)
    assert "annotations" not in account["metadata"]
    assert account["automountServiceAccountToken"] is False


def test_a_stamp_is_a_day_that_there_is() -> None:
    """CEL's `timestamp` raises for others, and an error is a refusal."""
    (form,) = (one["expression"] for one in EXPECTED[GATE]["variables"] if one["name"] == "form")
    pattern = re.compile("".join(re.findall(r'"(.*?)"', form)))
    days = {str(date(2023, 1, 1) + timedelta(days=number)) for number in range(6 * 365)}
    others = {f"{year}-{month:02}-{day:02}" for year in range(2023, 2028) for month in range(14) for day in range(33)}
    others |= {"2100-02-29", "0000-01-01", "1970-01-01"}
    read = {day for day in days | others if pattern.search(f"{day}T23:59:59Z")}
    assert days == read
    odd = ("2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00.5Z", "")
    assert [] == [text for text in odd if pattern.search(text)]
