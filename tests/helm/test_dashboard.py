"""A Prometheus that scrapes both programs answers every query of the dashboard, and takes every rule."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client import CollectorRegistry

from controller.process.status_port import StatusServer, create_metrics_app
from tests.helm.alerts import ALERTS, family_of, metrics_in
from tests.helm.chart import CHART, Helm
from tests.ports import HOST, free_port
from tests.unit.assembly.processes import Page
from tests.unit.shown_metrics import shown_metrics
from tests.unit.webhook.stage import WebhookStage
from tests.waiting import wait_until

DASHBOARD: Final = CHART / "files" / "dashboard.json"
VARIABLES: Final = {"$__rate_interval": "1m", "$node": ".*"}
READY_SECONDS: Final = 60.0


def queries() -> Iterator[Any]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for number, target in enumerate(panel.get("targets", ())):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression, panel["title"]
            yield pytest.param(expression, id=f"{panel['title']}-{number}")


class Prometheus:
    """As its HTTP API answers."""

    def __init__(self, port: int) -> None:
        self._address = f"http://{HOST}:{port}/api/v1"

    def get(self, path: str, **parameters: str) -> Any:
        address = f"{self._address}/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=20) as answer:
            found = json.load(answer)
        assert "success" == found["status"], found
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def has_looked_twice(self) -> bool:
        try:
            found = self.query("min(count_over_time(process_cpu_seconds_total[1m]))")
        except OSError:
            return False
        return bool(found) and float(found[0]["value"][1]) >= 2 and len(self.query("up == 1")) == 2


def busy_leader() -> Page:
    """It has disks, a scheduler, a hold, a certificate and room."""
    page = Page()
    page.cluster.add_node("n2", free_gib=200)
    page.cluster.add_pod("a", gib=50)
    page.cluster.filter("a", "n1", "n2")
    page.controller.proof.begin()
    page.controller.certificates.expiries = lambda: {"server": 3600.0}  # type: ignore[method-assign]
    page.controller.gauges.run_once()
    return page


@pytest.fixture(scope="module")
def asked(prometheus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped both programs twice, and has the alerts."""
    folder = tmp_path_factory.mktemp("prometheus")
    leader = busy_leader()
    pages = ((leader.registry, leader.controller.gauges.page), (WebhookStage().webhook.metrics.registry, bytes))
    with ExitStack() as stack:
        ports = [served(stack, registry, rendered) for registry, rendered in pages]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {"job_name": "ours", "static_configs": [{"targets": [f"{HOST}:{port}" for port in ports]}]}
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        port = free_port()
        command = [
            *(str(prometheus), f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"),
            *(f"--web.listen-address={HOST}:{port}", "--log.level=warn"),
        ]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        found = Prometheus(port)
        wait_until(found.has_looked_twice, "two scrapes", READY_SECONDS)
        yield found


def served(stack: ExitStack, registry: CollectorRegistry, rendered: Callable[[], bytes]) -> int:
    app = create_metrics_app(registry, problem=str, is_ready=bool, rendered=rendered)
    server = StatusServer("metrics", app, HOST, 0)
    server.start()
    stack.callback(server.stop)
    return server.port


@pytest.mark.parametrize("expression", list(queries()))
def test_every_query_of_the_dashboard_is_answered(asked: Prometheus, expression: str) -> None:
    assert asked.query(expression)


def test_the_nodes_that_the_dashboard_offers_are_there(asked: Prometheus) -> None:
    (offered,) = (one for one in json.loads(DASHBOARD.read_text())["templating"]["list"] if one["name"] == "node")
    words = re.fullmatch(r"label_values\((\w+), (\w+)\)", offered["query"]["query"])
    assert words is not None
    assert {"n1", "n2"} == set(asked.get(f"label/{words[2]}/values", **{"match[]": words[1]}))


def test_prometheus_evaluates_every_alert(asked: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in asked.get("rules")["groups"] for rule in group["rules"]]

    wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()), "rules that were evaluated", READY_SECONDS)
    assert [] == [(rule["name"], rule.get("lastError")) for rule in rules() if rule["health"] != "ok"]
    assert len(rules()) > 30


def test_the_dashboard_reads_metrics_that_there_are_and_the_chart_brings_it(helm: Helm) -> None:
    read = {family_of(name) for query in queries() for name in metrics_in(query.values[0])}
    assert len(read) > 30
    assert set() == read - shown_metrics()
    values = {"monitoring": {"dashboard": {"enabled": True}}}
    (made,) = [one for one in helm.objects(values, "ConfigMap") if "grafana_dashboard" in one["metadata"]["labels"]]
    assert json.loads(DASHBOARD.read_text()) == json.loads(made["data"]["longhorn-scheduler-extender.json"])
