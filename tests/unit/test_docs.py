"""What the documents say of names, tables, links and manifests is what the code and the files say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from controller.allocator.outcome import REASONS as WAITS
from controller.allocator.outcome import Decision
from controller.allocator.verbs.grow import GrowthVerdict
from controller.assembly.assemble import Controller
from controller.assembly.metrics import FAILURES
from controller.canary.proof import Outcome
from controller.canary.prover import REPORTS
from controller.placement.gate import GateFigures, GateState
from controller.placement.placer import PlacementFigures, status_of
from controller.placement.plan_objects import PlanFigures
from controller.process.common_metrics import PREFIX
from controller.rpc.metrics import OUTCOMES as RPC_OUTCOMES
from controller.rules.reasons import Reason
from controller.settings import LIVE_FIELDS, LiveSettings, ProcessSettings, live_settings
from controller.workers.teller import FAULT, LET_THROUGH, NO_PLACE, NO_ROOM, OF_CLAIMS
from extender.coschedule import APART
from tests.fakes.apiserver import FakeApiServer
from tests.unit.pages import FENCE, PAGES, ROOT, anchors_of, links_of, page_id, section_of, yaml_blocks
from tests.unit.shown_metrics import names_of, names_of_disks
from tests.unit.webhook.stage import WebhookStage
from webhook import metrics as webhook_metrics
from webhook.settings import WebhookSettings

DOCS = ROOT / "docs"
METRICS = (DOCS / "metrics.md").read_text()
OF_BOTH = "## Of both programs"
OF_PROCESSES = set(re.findall(r"`(process_\w+)`", METRICS))
OTHERS = [ROOT / "helm" / "longhorn-scheduler-extender" / "README.md", ROOT / "tests" / "longhorn" / "README.md"]
OPERATIONS = (DOCS / "operations.md").read_text()
GATE_OFF = GateFigures(GateState.OFF, "", None, None, 0, 0, 0, {})
MANIFESTS = sorted((DOCS / "examples").glob("*.yaml"))


def first_cells(text: str, heading: str) -> list[str]:
    """The first cells, without code marks, of the tables of that section."""
    return re.findall(r"^\| `([^`|]+)` \|", section_of(text, heading), re.MULTILINE)


def documents_of(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for name, anchor in links_of(page.read_text()):
        file = page.parent / name if name else page
        if not file.exists() or (anchor and anchor not in anchors_of(file.read_text())):
            broken.append(f"{name}#{anchor}")
    assert [] == broken


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_yaml_in_pages_is_yaml(page: Path) -> None:
    for block in yaml_blocks(page.read_text()):
        assert isinstance(yaml.safe_load(block), dict)


@pytest.mark.parametrize("path", MANIFESTS, ids=page_id)
def test_manifests_are_kubernetes_objects(path: Path) -> None:
    documents = documents_of(path)
    assert documents
    for document in documents:
        assert {"apiVersion", "kind"} <= document.keys()
        assert "metadata" in document or path.name.startswith("admission-")  # kube-apiserver's own files


def types_against_their_names(registry: CollectorRegistry) -> list[str]:
    """Metrics whose type is not the one that the page reads from the name's end."""
    found = {family.name: family.type for family in registry.collect() if family.type != "counter"}  # else _total
    return [name for name, kind in found.items() if (kind == "histogram") != name.endswith("_duration_seconds")]


def test_every_metric_is_documented_and_nothing_else() -> None:
    settings = ProcessSettings(pod_name="p", pod_ip="127.0.0.1")
    registry = Controller(settings, "identity", FakeApiServer()).metrics.registry
    proposed = first_cells(METRICS, "## Of Longhorn's enhancement proposal")
    ours = first_cells(METRICS, OF_BOTH) + first_cells(METRICS, "## Of the controller")
    documented = {*proposed, *(f"{PREFIX}_{name}" for name in ours), *OF_PROCESSES}
    assert names_of(registry) | names_of_disks() == documented
    assert [] == types_against_their_names(registry)


def test_every_metric_of_the_webhook_is_documented_and_nothing_else() -> None:
    registry = WebhookStage().webhook.metrics.registry
    ours = first_cells(METRICS, OF_BOTH) + first_cells(METRICS, "## Of the webhook")
    assert names_of(registry) == {*(f"{webhook_metrics.PREFIX}_{name}" for name in ours), *OF_PROCESSES}
    assert [] == types_against_their_names(registry)


@pytest.mark.parametrize(
    ("heading", "metric", "values"),
    [
        ("## Of the controller", "decisions_total", Decision),
        ("## Of the controller", "failures_total", FAILURES),
        ("## Of the controller", "rpc_calls_total", RPC_OUTCOMES),
        ("## Of the controller", "canaries_total", Outcome),
        ("## Of the webhook", "pod_reviews_total", webhook_metrics.POD_OUTCOMES),
        ("## Of the webhook", "share_manager_reviews_total", webhook_metrics.SHARE_MANAGER_OUTCOMES),
        ("## Of the webhook", "expansion_reviews_total", webhook_metrics.EXPANSION_OUTCOMES),
        ("## Of the webhook", "live_reads_total", webhook_metrics.READ_OUTCOMES),
        ("## Of the webhook", "failures_total", webhook_metrics.FAILURES),
    ],
)
def test_every_value_of_a_label_is_documented(heading: str, metric: str, values: Iterable[str]) -> None:
    (row,) = [line for line in section_of(METRICS, heading).splitlines() if line.startswith(f"| `{metric}`")]
    assert set(values) <= set(re.findall(r"`([^`]+)`", row))


def test_the_reason_of_every_event_is_documented() -> None:
    table = section_of(OPERATIONS, "## Events")
    sources = "".join(path.read_text() for name in ("controller", "extender") for path in (ROOT / name).rglob("*.py"))
    named = re.findall(r'^\w*REASON: Final = "(\w+)"', sources, re.MULTILINE)
    assert len(named) > 5
    told = {reason for reason, _ in (*OF_CLAIMS.values(), *LET_THROUGH.values())}
    expected = {*named, *told, *(reason for reason, _ in REPORTS.values()), NO_ROOM, NO_PLACE, FAULT, APART}
    assert [] == [reason for reason in sorted(expected) if f"`{reason}`" not in table]


def test_all_that_the_status_document_says_of_placement_is_documented() -> None:
    shown = {*status_of(PlacementFigures(), lambda _replica: {}), *asdict(GATE_OFF), *asdict(PlanFigures())}
    table = section_of((DOCS / "status.md").read_text(), "## What it shows of placement")
    assert set() == shown - set(re.findall(r"`(\w+)`", table))


def test_all_that_a_replica_may_wait_for_is_documented() -> None:
    text = section_of((DOCS / "rules" / "placement.md").read_text(), "## What a Replica waits for")
    named = {name for cell in re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE) for name in re.findall("`(.+?)`", cell)}
    assert set(WAITS) == named


def test_every_verdict_on_an_expansion_is_an_outcome_of_a_call() -> None:
    assert {verdict.value for verdict in GrowthVerdict} <= set(RPC_OUTCOMES)


def test_every_reason_is_documented_with_its_text() -> None:
    section = section_of((DOCS / "rules" / "refusals.md").read_text(), "## Reasons")
    rows = re.findall(r"^(\w+)  +(.+)$", section, re.MULTILINE)
    assert [(reason.value, reason.text.removeprefix("Longhorn: ")) for reason in Reason] == rows


def rows_of(text: str) -> dict[str, str]:
    """First cell to second cell, without code marks, of all table rows that begin with code."""
    return dict(re.findall(r"^\| `([^`|]+)` \| *`?([^`|]*?)`?(?: \w+)? *\|", text, re.MULTILINE))


def test_live_settings_are_documented_with_their_defaults() -> None:
    rows = rows_of((DOCS / "settings.md").read_text())
    named = {name: default for name, default in rows.items() if name.startswith("scheduler-extender-")}
    assert set(LIVE_FIELDS) == set(named)
    assert (LiveSettings(), ()) == live_settings(named, {})


@pytest.mark.parametrize(
    ("heading", "settings", "from_environment"),
    [
        ("## The process", ProcessSettings(), {"pod_name", "pod_ip", "node_name"}),
        ("## The webhook", WebhookSettings(), set()),
    ],
)
def test_flags_are_documented_with_their_defaults(
    heading: str, settings: ProcessSettings | WebhookSettings, from_environment: set[str]
) -> None:
    text = (DOCS / "settings.md").read_text()
    rows = rows_of(section_of(text, "## Both programs") + section_of(text, heading))
    names = {
        field.name: field.name.upper() if field.name in from_environment else "--" + field.name.replace("_", "-")
        for field in fields(settings)
    }
    assert {shown: str(getattr(settings, name)) for name, shown in names.items()} == rows


def test_the_checks_here_can_fail() -> None:
    text = "# A b, c\n[x](y.md#z) ![p](q.svg)\n```yaml\na: 1\n```\n## T\n| `one` | two |\n## U\n| `three` | four |\n"
    text += "## T\n"
    assert {"a-b-c", "t", "u", "t-1"} == anchors_of(text)
    assert [("y.md", "z"), ("q.svg", "")] == links_of(text)
    assert ["a: 1\n"] == list(yaml_blocks(text))
    assert ["one"] == first_cells(text, "## T")


def test_each_line_of_who_can_do_what_names_a_test_that_is_there() -> None:
    table = section_of((DOCS / "security.md").read_text(), "## Who can do what")
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 15
    for line in lines:
        tried = line.rstrip(" |").rpartition("|")[2]
        named = re.findall(r"`([a-z0-9_/]+\.(?:py|txt))`", tried)
        assert named or tried.strip() == "the four lines above", line
        assert [] == [name for name in named if not (ROOT / "tests" / name).exists()], line


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_lines_of_prose_are_short(page: Path) -> None:
    """Tables and what is shown as it stands aside."""
    prose = FENCE.sub("", page.read_text()).splitlines()
    assert [] == [line for line in prose if len(line) > 120 and not line.lstrip().startswith("|")]
