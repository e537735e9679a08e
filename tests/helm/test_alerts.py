"""Every alert fires while its fault lasts, and no longer, by `promtool test rules`. The series are the program's."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.helm.alerts import ALERTS, Alert, alerts, groups, metrics_in, seconds
from tests.helm.chart import Helm, Values
from tests.helm.staged_faults import FAULTS, Scrape, Staged

PREFIX: Final = "LonghornScheduler"
BEFORE: Final = 10  # minutes, and scrapes
MORE: Final = 6  # minutes after which a fault that lasts has fired, or one that was mended has resolved
Series = dict[str, list[str]]

by_name = {alert.name.removeprefix(PREFIX): alert for alert in alerts()}


def test_every_alert_has_a_fault_that_causes_it() -> None:
    assert by_name.keys() == FAULTS.keys()


def cases() -> Iterator[Any]:
    for name, staged in FAULTS.items():
        for one in staged:
            yield pytest.param(by_name[name], one, id=f"{name}-{one.stage.__name__}")


@pytest.mark.parametrize(("alert", "staged"), list(cases()))
def test_an_alert_fires_while_its_fault_lasts(promtool: Path, tmp_path: Path, alert: Alert, staged: Staged) -> None:
    window = max([0, *(seconds(word) for word in re.findall(r"\[(\d+[smh])\]", alert.expression))]) // 60
    lasts, after = alert.wait_seconds // 60 + MORE, max(window, 1) + MORE
    series: Series = {}
    fault = staged.stage()
    scrape = next(fault)
    take(series, scrape, alert, 0, BEFORE)
    go_on = next(fault)
    for minute in range(BEFORE, BEFORE + lasts):
        if go_on is not None:
            go_on()
        take(series, scrape, alert, minute, 1)
    assert [] == list(fault)
    take(series, scrape, alert, BEFORE + lasts, after + 1)
    fires = {
        "exp_labels": {"severity": alert.severity, **(staged.labels or {})},
        "exp_annotations": wording(alert, staged),
    }
    looks: dict[int, list[Any]] = {BEFORE - 1: [], BEFORE + lasts - 1: [fires], BEFORE + lasts + after: []}
    document = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": " ".join(values)} for name, values in series.items()],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": expected}
                    for minute, expected in looks.items()
                ],
            }
        ],
    }
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr


def take(series: Series, scrape: Scrape, alert: Alert, minute: int, count: int) -> None:
    """Adds what is seen from that minute on, so many times. What is not shown has no value then."""
    metrics = metrics_in(alert.expression)
    for number, text in enumerate(scrape()):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in metrics:
                    labels = {**sample.labels, "instance": f"pod-{number}"}
                    name = f"{sample.name}{{{','.join(f'{key}={value!r}' for key, value in labels.items())}}}"
                    values = series.setdefault(name.replace("'", '"'), [])
                    values += ["_"] * (minute - len(values)) + [f"{sample.value:g}"] * count


def wording(alert: Alert, staged: Staged) -> dict[str, str]:
    """What it says of that fault."""
    found = dict(alert.annotations)
    text = re.sub(r"{{ \$value [^}]*}}|{{ \$value }}", staged.shows, found["description"])
    found["description"] = re.sub(r"{{ \$labels\.(\w+) }}", lambda name: (staged.labels or {})[name[1]], text)
    return found


def test_the_rules_are_checked_as_they_are_and_as_the_chart_renders_them(
    promtool: Path, helm: Helm, tmp_path: Path
) -> None:
    values: Values = {"monitoring": {"prometheusRule": {"enabled": True}}}
    (rendered,) = helm.objects(values, "PrometheusRule")
    assert groups() == rendered["spec"]["groups"]
    overrides = {f"{PREFIX}NoRoom": {"for": "2h", "labels": {"severity": "info"}}}
    changed = {"runbookUrl": "https://docs.example.com/runbook/", "disabled": [f"{PREFIX}Bypassed"]}
    values["monitoring"]["prometheusRule"] |= {"overrides": overrides, **changed}
    (other,) = helm.objects({**values, "webhook": {"enabled": False}}, "PrometheusRule")
    (group,) = other["spec"]["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    assert f"{PREFIX}Bypassed" not in rules
    assert ("2h", {"severity": "info"}) == (rules[f"{PREFIX}NoRoom"]["for"], rules[f"{PREFIX}NoRoom"]["labels"])
    assert rules[f"{PREFIX}NoRoom"]["annotations"]["runbook_url"].startswith("https://docs.example.com/runbook/#long")
    for number, spec in enumerate((rendered["spec"], other["spec"])):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump({"groups": spec["groups"]}))
        done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stdout + done.stderr
