"""The second kube-scheduler that `render-scheduler-config --for second` prints, with the rights of its own manifest."""

from __future__ import annotations

import yaml

from tests.e2e.harness import Scene
from tests.e2e.scheduling import NAMESPACE
from tests.unit.scheduler_config.asking import IMAGE, ask


def where(scene: Scene) -> list[str]:
    """Words of the command that lead to this scene."""
    host, port = scene.address
    return ["--service-address", host, "--port", str(port), "--cluster-kubeconfig", str(scene.kubeconfig)]


def second(scene: Scene, name: str, *words: str) -> str:
    """Apply all of its manifest but what the test runs itself; its configuration, for its service account."""
    text = ask("--for", "second", "--image", IMAGE, "--scheduler-name", name, *where(scene), *words, get=None).text
    checked = scene.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=text)
    assert (0, "") == (checked.returncode, checked.stderr)
    objects = list(yaml.safe_load_all(text))
    (secret,) = [found for found in objects if found["kind"] == "Secret"]
    wanted = [found for found in objects if found["kind"] != "Deployment"]
    applied = scene.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(wanted))
    assert 0 == applied.returncode, applied.stderr
    account = scene.cluster.service_account_kubeconfig(NAMESPACE, name, scene.cluster.state_dir / f"{name}.kubeconfig")
    (config,) = secret["stringData"].values()
    # In a pod the account's token is found without a file.
    return str(config).replace("clientConnection:\n", f"clientConnection:\n  kubeconfig: {account}\n", 1)
