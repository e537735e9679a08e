"""The webhook's manifest grants what the process reads, and nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from webhook.settings import WebhookSettings

MANIFEST = Path(__file__).resolve().parents[3] / "docs" / "examples" / "webhook.yaml"
FOLLOW = {"list", "watch"}


def documents(kind: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(MANIFEST.read_text()) if document["kind"] == kind]


def granted(kind: str) -> dict[str, set[str]]:
    """Resource, with its group and the names that it is bound to, to verbs."""
    found: dict[str, set[str]] = {}
    for document in documents(kind):
        for rule in document["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        key = ".".join(filter(None, (resource, group))) + (f"/{name}" if name else "")
                        found.setdefault(key, set()).update(rule["verbs"])
    return found


def test_it_follows_claims_volumes_namespaces_and_classes_of_the_whole_cluster() -> None:
    read_as_well = ("persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io")
    expected = dict.fromkeys(read_as_well, FOLLOW | {"get"}) | {"namespaces": FOLLOW}
    assert expected == granted("ClusterRole")


def test_in_longhorns_namespace_it_reads_settings_attachments_and_its_own_secrets() -> None:
    settings = WebhookSettings()
    assert {
        f"configmaps/{settings.config_map}": FOLLOW,
        "settings.longhorn.io": FOLLOW,
        "volumeattachments.longhorn.io": {"get"},
        f"secrets/{settings.tls_secret}": {"get"},
        f"secrets/{settings.tls_client_secret}": {"get"},
    } == granted("Role")


def test_the_ports_are_those_that_the_process_listens_on() -> None:
    (deployment,), (service,) = documents("Deployment"), documents("Service")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    settings = WebhookSettings()
    assert {"https": settings.port, "metrics": settings.metrics_port} == {
        port["name"]: port["containerPort"] for port in container["ports"]
    }
    assert [("https", 443)] == [(port["targetPort"], port["port"]) for port in service["spec"]["ports"]]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > settings.drain_seconds + 10  # what is in flight has time after that
