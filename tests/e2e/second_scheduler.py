"""The second kube-scheduler of docs/examples/second-scheduler.yaml, with the rights that this file gives it."""

from __future__ import annotations

from typing import Any

import yaml

from tests.cluster.cache import REPOSITORY
from tests.e2e.harness import Scene
from tests.e2e.scheduling import NAMESPACE

FILE = REPOSITORY / "docs" / "examples" / "second-scheduler.yaml"
ITS_NAME = "longhorn-scheduler"


def second(scene: Scene, name: str, *, all_pods: bool = False) -> str:
    """Apply all of the file under that name but what the test runs itself; the configuration, for its account."""
    text = FILE.read_text().replace(ITS_NAME, name).replace(f"{name}-extender", f"{ITS_NAME}-extender")
    checked = scene.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=text)
    assert (0, "") == (checked.returncode, checked.stderr)
    objects = list(yaml.safe_load_all(text))
    wanted = [found for found in objects if found["kind"] != "Deployment"]
    applied = scene.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(wanted))
    assert 0 == applied.returncode, applied.stderr
    (config,) = (yaml.safe_load(one["data"]["config.yaml"]) for one in objects if one["kind"] == "ConfigMap")
    account = scene.cluster.service_account_kubeconfig(NAMESPACE, name, scene.cluster.state_dir / f"{name}.kubeconfig")
    config["clientConnection"]["kubeconfig"] = str(account)  # in a pod the account's token is found without a file
    _lead_to(scene, config["extenders"][0])
    if all_pods:
        (resource,) = config["extenders"][0].pop("managedResources")
        fit = {"name": "NodeResourcesFit", "args": {"ignoredResources": [resource["name"]]}}
        config["profiles"][0]["pluginConfig"] = [fit]
    return yaml.safe_dump(config)


def _lead_to(scene: Scene, extender: dict[str, Any]) -> None:
    """To this scene's address, with the certificate that the Deployment mounts."""
    host, port = scene.address
    extender["urlPrefix"] = f"https://{host}:{port}"
    secret = scene.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/longhorn-scheduler-extender-client")["data"]
    for name, key in (("ca", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key")):
        del extender["tlsConfig"][f"{name}File"]
        extender["tlsConfig"][f"{name}Data"] = secret[key]
