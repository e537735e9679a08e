"""The policies that the leader expects are those of the manifest, with the times that the documents name."""

from __future__ import annotations

import copy
import re
from datetime import date, timedelta

import pytest

from controller.kube.resources import POLICY_BINDINGS, SERVICE_ACCOUNTS
from controller.model.names import FENCE, GATE, GUARD
from controller.placement.gate_policy import (
    POLICY_DIGESTS,
    SILENT_SECONDS,
    digest_of,
    expected_bindings,
    without_defaults,
)
from controller.settings import ProcessSettings
from tests.unit.placement.gate_stage import ACCOUNT, MANIFEST, NAMESPACE, SPECS

USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"


def test_the_manifest_has_them_and_the_leader_makes_the_gates_binding() -> None:
    assert ProcessSettings().namespace == NAMESPACE
    assert POLICY_DIGESTS == {name: digest_of(SPECS[name], USER) for name in (GATE, FENCE, GUARD)}
    bound = {one["metadata"]["name"]: one["spec"] for one in MANIFEST if one["kind"] == POLICY_BINDINGS.kind}
    expected = expected_bindings(NAMESPACE)
    assert [expected[FENCE], expected[GUARD], None] == [bound.get(name) for name in (FENCE, GUARD, GATE)]


def test_a_policy_is_told_from_any_other_but_not_by_the_leaders_name_or_what_the_api_server_adds() -> None:
    one = copy.deepcopy(SPECS[FENCE])
    (rule,) = one["matchConstraints"]["resourceRules"]
    assert digest_of(one, USER) == digest_of({**one, "failurePolicy": "Fail"}, USER)
    renamed = {**one, "matchConditions": [{"name": "is-ours", "expression": 'user == "a:b"'}]}
    other = {**one, "matchConditions": [{"name": "is-ours", "expression": 'user == "c:d"'}]}
    assert digest_of(renamed, "a:b") == digest_of(other, "c:d") != digest_of(renamed, "c:d")
    rule["scope"] = "Cluster"
    assert digest_of(one, USER) != POLICY_DIGESTS[FENCE]


def test_the_gates_times_are_those_of_the_documents_and_of_the_leader() -> None:
    text = str(SPECS[GATE])
    assert ["5s", f"{SILENT_SECONDS}s", "30s", "120s"] == re.findall(r'duration\("(.*?)"\)', text)
    assert 45 == SILENT_SECONDS


def test_an_upgrade_finds_no_stamps_to_reset() -> None:
    (account,) = (one for one in MANIFEST if one["kind"] == SERVICE_ACCOUNTS.kind and one["metadata"]["name"] == GATE)
    assert "annotations" not in account["metadata"]
    assert account["automountServiceAccountToken"] is False


def test_a_stamp_is_a_day_that_there_is() -> None:
    """CEL's `timestamp` raises for others, and an error is a refusal."""
    (form,) = (one["expression"] for one in SPECS[GATE]["variables"] if one["name"] == "form")
    pattern = re.compile("".join(re.findall(r'"(.*?)"', form)))
    days = {str(date(2023, 1, 1) + timedelta(days=number)) for number in range(6 * 365)}
    others = {f"{year}-{month:02}-{day:02}" for year in range(2023, 2028) for month in range(14) for day in range(33)}
    others |= {"2100-02-29", "0000-01-01", "1970-01-01"}
    read = {day for day in days | others if pattern.search(f"{day}T23:59:59Z")}
    assert days == read
    odd = ("2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00.5Z", "")
    assert [] == [text for text in odd if pattern.search(text)]


RULE = {"resources": ["replicas"]}


@pytest.mark.parametrize(
    ("stored", "is_right"),
    [
        ({"rules": [RULE]}, True),
        ({"rules": [{**RULE, "scope": "*"}], "objectSelector": {}, "matchPolicy": "Equivalent"}, True),
        ({"rules": [{**RULE, "scope": "Cluster"}]}, False),
        ({"rules": [RULE], "objectSelector": {"matchLabels": {"a": "b"}}}, False),
        ({"rules": [RULE], "excludeResourceRules": [RULE]}, False),
        ({"rules": [RULE, RULE]}, False),
        ({"rules": []}, False),
        ({}, False),
    ],
)
def test_what_the_api_server_adds_is_no_change(stored: dict[str, object], is_right: bool) -> None:
    assert is_right is ({"rules": [RULE]} == without_defaults(stored))
