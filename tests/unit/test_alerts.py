"""The chart's alerts: each leads to its section of the runbook, and reads what the programs show."""

from __future__ import annotations

import re

from tests.helm.alerts import RUNBOOK, alerts, family_of, metrics_in
from tests.unit.pages import anchors_of
from tests.unit.shown_metrics import shown_metrics

SEVERITIES = {"critical", "warning", "info"}


def test_every_alert_reads_metrics_that_there_are() -> None:
    known = shown_metrics()
    assert len(alerts()) > 30
    for alert in alerts():
        read = set(map(family_of, metrics_in(alert.expression)))
        assert read, alert.name
        assert set() == read - known, alert.name


def test_every_alert_is_a_section_of_the_runbook_and_no_other_section_is_there() -> None:
    text = RUNBOOK.read_text()
    assert sorted(re.findall(r"^### (.+)$", text, re.MULTILINE)) == sorted(alert.name for alert in alerts())
    for alert in alerts():
        page, _, anchor = alert.annotations["runbook_url"].partition("#")
        assert (page, True) == ("docs/runbook.md", anchor in anchors_of(text)), alert.name
        assert anchor == alert.name.lower()


def test_every_alert_says_what_it_is_about() -> None:
    for alert in alerts():
        assert alert.severity in SEVERITIES, alert.name
        assert {"summary", "description", "runbook_url"} == alert.annotations.keys(), alert.name
        assert alert.annotations["summary"].endswith("."), alert.name
        grouped = re.search(r"\bby \((\w+)\)", alert.expression)
        if grouped is not None:
            assert f"$labels.{grouped[1]}" in alert.annotations["description"], alert.name


def test_the_checks_here_can_fail() -> None:
    assert {"longhorn_scheduler_extender_x", "apiserver_y"} == metrics_in(
        'a(longhorn_scheduler_extender_x{b="c"}) + apiserver_y'
    )
    assert "longhorn_x_seconds" == family_of("longhorn_x_seconds_bucket")
    assert "longhorn_x_count" == family_of("longhorn_x_count")
