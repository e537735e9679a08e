"""Write kubeconfig files."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.pki import KeyPair


def write_kubeconfig(
    path: Path, url: str, authority: bytes, *, user: str, pair: KeyPair | None = None, token: str | None = None
) -> Path:
    """A kubeconfig with everything inline and one context, readable by the owner alone."""
    credentials: dict[str, Any] = {}
    if pair is not None:
        credentials = {"client-certificate-data": _b64(pair.certificate), "client-key-data": _b64(pair.key)}
    if token is not None:
        credentials["token"] = token
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test-cluster",
        "clusters": [
            {"name": "test-cluster", "cluster": {"server": url, "certificate-authority-data": _b64(authority)}}
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "test-cluster", "context": {"cluster": "test-cluster", "user": user}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
