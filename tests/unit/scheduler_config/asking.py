"""The command `render-scheduler-config`, called as the program calls it.

`python -m tests.unit.scheduler_config.asking` writes the golden files anew; look at the difference before it is kept.
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from certs.authority import LeafSpec, check_client, make_authority, sign
from controller.clock import SystemClock
from controller.commands import scheduler_config
from controller.errors import NotFoundError
from controller.kube.resources import SECRETS, SERVICES, Resource
from controller.scheduler_config import command
from controller.scheduler_config.config import Rendered
from controller.scheduler_config.from_cluster import Get
from controller.scheduler_config.options import SERVICE
from tests.fakes.clock import VirtualClock

GOLDEN = Path(__file__).parent / "golden"
CASES: dict[str, list[str]] = {
    "kubeadm": [],
    "k3s": ["--part", "wiring"],
    "rke2": ["--service-address", "fd00:10::7", "--ignorable", "--certificate-dir", "/etc/extender"],
}
CLUSTER_IP = "10.96.0.7"


@cache
def secret() -> dict[str, bytes]:
    """What the leader keeps for kube-scheduler."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ca = make_authority("ca", timedelta(days=900), now)
    leaf = sign(ca, LeafSpec("client", timedelta(days=800), is_client=True), now)
    return {"ca.crt": ca.certificate, "tls.crt": leaf.certificate, "tls.key": leaf.key}


def cluster(resource: Resource, namespace: str, name: str) -> dict[str, Any]:
    """One object of a cluster in which the leader has made its Secrets."""
    if (resource, name) == (SERVICES, SERVICE):
        return {"spec": {"clusterIP": CLUSTER_IP}}
    if (resource, name) == (SECRETS, command.CLIENT_SECRET):
        return {"data": {key: b64encode(content).decode() for key, content in secret().items()}}
    raise NotFoundError(f"{namespace}/{name}")


def ask(*words: str, get: Get | None = cluster, told: list[str] | None = None) -> Rendered:
    """What the command prints to these words. Raises ConfigError, and what click raises.

    `get` None: the cluster that the words name is read; `told` gets what is said meanwhile.
    """
    options = scheduler_config.command.make_context("render-scheduler-config", [*words]).params
    notes = told if told is not None else []
    clock = VirtualClock() if get is not None else SystemClock()  # what a living cluster holds is of now
    check = partial(check_client, now_utc=clock.now_utc())
    return command.render(SimpleNamespace(**options), notes.append, check, get)


def whole(*words: str) -> str:
    """All that is printed, with names in the place of certificates and checksums, which are others in each run."""
    text = command.printed(ask(*words), "")
    for name, content in secret().items():
        text = text.replace(b64encode(content).decode(), f"BASE64-OF-{name}")
    return re.sub("[0-9a-f]{64}", "SHA256", text)


def config(*words: str) -> dict[str, Any]:
    """The KubeSchedulerConfiguration alone, read back."""
    document: dict[str, Any] = yaml.safe_load(ask(*words, "--part", "config").text)
    return document


def golden(platform: str) -> str:
    return (GOLDEN / f"{platform}.yaml").read_text()


def main() -> None:
    for platform, words in CASES.items():
        (GOLDEN / f"{platform}.yaml").write_text(whole("--for", platform, *words))
    (GOLDEN / "talos.yaml").write_text(whole("--for", "talos").partition("cluster:\n")[0])


if __name__ == "__main__":
    main()
