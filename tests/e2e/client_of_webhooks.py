"""What an API server shows to webhooks, by the documented files of docs/security.md, "Reviews"."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from certs.authority import LeafSpec, Pair, make_authority, sign
from tests.cluster.cache import REPOSITORY
from tests.unit.serving.tls_files import DAY, now

EXAMPLES: Final = REPOSITORY / "docs" / "examples"
PKI: Final = "/etc/kubernetes/pki/"


def write_files(folder: Path) -> dict[str, str]:
    """What a control plane node has: the authority of the API server's certificate, that, and a stranger's. The API
    server's flags."""
    authority = make_authority("front-proxy-ca", DAY, now())
    (folder / "front-proxy-ca.crt").write_bytes(authority.certificate)
    _write_leaf(folder, "front-proxy-client", authority)
    _write_leaf(folder, "stranger", make_authority("front-proxy-ca", DAY, now()))
    kubeconfig, control = folder / "kubeconfig.yaml", folder / "admission-control.yaml"
    kubeconfig.write_text((EXAMPLES / "admission-kubeconfig.yaml").read_text().replace(PKI, f"{folder}/"))
    written = yaml.safe_load((EXAMPLES / control.name).read_text())
    for plugin in written["plugins"]:
        plugin["configuration"]["kubeConfigFile"] = str(kubeconfig)
    control.write_text(yaml.safe_dump(written))
    return {"admission-control-config-file": str(control)}


def _write_leaf(folder: Path, name: str, authority: Pair) -> None:
    leaf = sign(authority, LeafSpec("front-proxy-client", DAY, is_client=True), now())
    (folder / f"{name}.crt").write_bytes(leaf.certificate)
    (folder / f"{name}.key").write_bytes(leaf.key)
