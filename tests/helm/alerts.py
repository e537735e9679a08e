"""The chart's alerts: the rules themselves, the names that their expressions read, and the page that lists them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.cluster.cache import REPOSITORY

ALERTS: Final = REPOSITORY / "helm" / "longhorn-scheduler-extender" / "files" / "alerts.yaml"
PAGE: Final = REPOSITORY / "docs" / "metrics.md"
RUNBOOK: Final = REPOSITORY / "docs" / "runbook.md"
OTHERS: Final = {"apiserver_admission_webhook_fail_open_count"}  # of the API server
_BLOCK: Final = re.compile(r"(?<=^```promql\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
_METRIC: Final = re.compile(r"\b((?:longhorn|apiserver|process)_\w+)")


@dataclass(frozen=True, slots=True)
class Alert:
    """`wait_seconds`: for how long its expression has to hold."""

    name: str
    expression: str
    wait_seconds: int
    severity: str
    annotations: dict[str, str]


def alerts() -> list[Alert]:
    return [
        Alert(
            rule["alert"], rule["expr"], seconds(rule.get("for", "0s")), rule["labels"]["severity"], rule["annotations"]
        )
        for group in groups()
        for rule in group["rules"]
    ]


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"]
    return found


def seconds(duration: str) -> int:
    """Of "90s", "5m" or "1h"."""
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def metrics_in(expression: str) -> set[str]:
    return set(_METRIC.findall(expression))


def family_of(metric: str) -> str:
    """The name under which a page shows what an expression calls so."""
    return re.sub(r"(?<=_seconds)_(bucket|count|sum)$", "", metric)


def page() -> str:
    """docs/metrics.md with the present alerts."""
    return _BLOCK.sub(lambda _: "".join(_watched()), PAGE.read_text())


def _watched() -> Iterator[str]:
    for alert in alerts():
        wait = f" for {alert.wait_seconds // 60} min" if alert.wait_seconds else ""
        lines = textwrap.wrap(alert.expression, 116, break_long_words=False, break_on_hyphens=False)
        yield f"# {alert.name}: {alert.severity}{wait}\n" + "".join(f"{line}\n" for line in lines)
