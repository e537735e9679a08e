"""The webhook configurations as objects: every field that the API server would fill in is said."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from controller.admission.configurations import (
    CLAIMS,
    GROWTH_CHECK,
    MARKED_PODS,
    PODS,
    SHARE_MANAGERS,
    VOLUMES,
    WantedEntries,
    WebhookPlace,
    mutating,
    validating,
    with_authorities,
)

PLACE = WebhookPlace("longhorn-system", "longhorn-scheduler-webhook", ("kube-system", "edge"))
EVERYTHING = WantedEntries(("default-scheduler", "mine"), share_managers=True, expansion="allow")
FILLED_IN = ("matchPolicy", "namespaceSelector", "objectSelector", "timeoutSeconds", "failurePolicy", "sideEffects")


def by_name(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in entries}


def condition(entry: dict[str, Any], name: str) -> str:
    return str(next(each["expression"] for each in entry["matchConditions"] if each["name"] == name))


def test_each_entry_says_what_the_api_server_would_fill_in() -> None:
    for entry in [*mutating(EVERYTHING, PLACE), *validating(EVERYTHING, PLACE)]:
        assert set(FILLED_IN) <= entry.keys()
        assert ["v1"] == entry["admissionReviewVersions"]
        assert all("scope" in rule for rule in entry["rules"])
        assert {"namespace", "name", "path", "port"} == entry["clientConfig"]["service"].keys()
    for entry in mutating(EVERYTHING, PLACE):
        assert "IfNeeded" == entry["reinvocationPolicy"]


def test_only_what_is_wanted_is_there() -> None:
    assert [] == mutating(WantedEntries(), PLACE) + validating(WantedEntries(), PLACE)
    assert {PODS, MARKED_PODS} == by_name(mutating(WantedEntries(("a",)), PLACE)).keys()
    assert {SHARE_MANAGERS} == by_name(mutating(WantedEntries(share_managers=True), PLACE)).keys()
    assert {CLAIMS, VOLUMES, GROWTH_CHECK} == by_name(validating(WantedEntries(expansion="allow"), PLACE)).keys()


def test_pods_are_waited_for_shortly_and_go_on_without_us() -> None:
    entry = by_name(mutating(EVERYTHING, PLACE))[PODS]
    assert (3, "Ignore", "None") == (entry["timeoutSeconds"], entry["failurePolicy"], entry["sideEffects"])
    (names, mark) = entry["namespaceSelector"]["matchExpressions"]
    assert ["edge", "kube-system", "longhorn-system"] == names["values"]
    assert ("NotIn", "scheduling.longhorn.io/opt-in") == (mark["operator"], mark["key"])
    assert '["default-scheduler", "mine"]' in condition(entry, "asks-a-wired-scheduler")


def test_share_managers_are_found_in_longhorns_namespace_alone() -> None:
    entry = by_name(mutating(EVERYTHING, PLACE))[SHARE_MANAGERS]
    assert (2, "Ignore") == (entry["timeoutSeconds"], entry["failurePolicy"])
    assert {"kubernetes.io/metadata.name": "longhorn-system"} == entry["namespaceSelector"]["matchLabels"]
    assert {"longhorn.io/component": "share-manager"} == entry["objectSelector"]["matchLabels"]


@pytest.mark.parametrize(("expansion", "policy"), [("allow", "Ignore"), ("deny", "Fail")])
def test_the_setting_decides_what_becomes_of_expansions_without_us(expansion: str, policy: str) -> None:
    entries = by_name(validating(WantedEntries(expansion=expansion), PLACE))
    for entry in (entries[CLAIMS], entries[VOLUMES]):
        assert (policy, 5, "NoneOnDryRun") == (entry["failurePolicy"], entry["timeoutSeconds"], entry["sideEffects"])
    checked = entries[GROWTH_CHECK]
    assert {"scheduling.longhorn.io/growth-check": "true"} == checked["objectSelector"]["matchLabels"]
    assert ("Ignore", "None") == (checked["failurePolicy"], checked["sideEffects"])


def test_no_entry_stands_without_authorities() -> None:
    entries = mutating(EVERYTHING, PLACE)
    assert [] == with_authorities(entries, b"", [])
    given = with_authorities(entries, b"PEM", [])
    assert [base64.b64encode(b"PEM").decode()] * 3 == [entry["clientConfig"]["caBundle"] for entry in given]
    assert "caBundle" not in entries[0]["clientConfig"]


def test_while_the_authorities_are_not_known_an_entry_keeps_its_own() -> None:
    standing = with_authorities(mutating(WantedEntries(("a",)), PLACE), b"OLD", [])
    kept = by_name(with_authorities(mutating(EVERYTHING, PLACE), b"", standing))
    assert {PODS, MARKED_PODS} == kept.keys()
    assert base64.b64encode(b"OLD").decode() == kept[PODS]["clientConfig"]["caBundle"]
    assert "mine" in condition(kept[PODS], "asks-a-wired-scheduler")


def test_a_name_with_quotes_stays_one_text() -> None:
    entry = by_name(mutating(WantedEntries(('a"] || true || ["',)), PLACE))[PODS]
    assert condition(entry, "asks-a-wired-scheduler").endswith(r'in ["a\"] || true || [\""]')
