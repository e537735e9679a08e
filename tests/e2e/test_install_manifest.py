"""A real API server takes the manifests of the documents, every field of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
INSTALLED_IN = "longhorn-system"


def manifest_for(name: str, namespace: str) -> str:
    """The manifest with its namespace replaced, as the page tells those to do who have another one."""
    return (EXAMPLES / name).read_text().replace(INSTALLED_IN, namespace)


@pytest.mark.parametrize("name", ["install.yaml", "webhook.yaml"])
def test_the_manifest_is_taken_whole(cluster: Cluster, make_namespace: Callable[..., str], name: str) -> None:
    namespace = make_namespace("install")
    manifest = manifest_for(name, namespace)
    done = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-", input=manifest)
    assert (0, "") == (done.returncode, done.stderr)
    documents: list[dict[str, Any]] = [item for item in yaml.safe_load_all(manifest) if item]
    assert len(documents) == len(done.stdout.split())
