"""A real API server takes the manifest of docs/install.md, every field of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

MANIFEST = Path(__file__).resolve().parents[2] / "docs" / "examples" / "install.yaml"
INSTALLED_IN = "longhorn-system"


def manifest_for(namespace: str) -> str:
    """The manifest with its namespace replaced, as the page tells those to do who have another one."""
    return MANIFEST.read_text().replace(INSTALLED_IN, namespace)


def test_the_manifest_is_taken_whole(cluster: Cluster, make_namespace: Callable[..., str]) -> None:
    namespace = make_namespace("install")
    manifest = manifest_for(namespace)
    done = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-", input=manifest)
    assert (0, "") == (done.returncode, done.stderr)
    documents: list[dict[str, Any]] = [item for item in yaml.safe_load_all(manifest) if item]
    assert len(documents) == len(done.stdout.split())
