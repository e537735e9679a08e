"""The names of all metrics that alerts and panels may read."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry

from controller.assembly.assemble import Controller
from controller.assembly.gauges import page_of
from tests.fakes.apiserver import FakeApiServer
from tests.helm.alerts import OTHERS
from tests.unit.assembly.processes import settings_of
from tests.unit.webhook.stage import WebhookStage


def names_of(registry: CollectorRegistry) -> set[str]:
    return {one.name + ("_total" if one.type == "counter" else "") for one in registry.collect()}


def names_of_disks() -> set[str]:
    """Those that the controller's page has besides its registry's."""
    return set(re.findall(r"^# TYPE (\w+) gauge$", page_of(()).decode(), re.MULTILINE))


def shown_metrics() -> set[str]:
    """What both programs show, and the API server."""
    controller = Controller(settings_of(), "identity", FakeApiServer()).metrics.registry
    return names_of(controller) | names_of_disks() | names_of(WebhookStage().webhook.metrics.registry) | OTHERS
