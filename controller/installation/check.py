"""Tries an installation out, as `helm test` does: a pod through the webhook, and a question to the extender.

The pod is created with `dryRun=All`: all of admission looks at it, and nothing is stored. The question is
kube-scheduler's own, about a pod without volumes, over the Service and with kube-scheduler's certificate; nothing is
held for it. What cannot be tried yet is reported as such, and is no failure.
"""

from __future__ import annotations

import http.client
import json
import ssl
import tempfile
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.admission.configurations import PODS as PODS_ENTRIES
from controller.clock import Clock
from controller.errors import ClusterError, NotFoundError
from controller.kube.api import KubeApi
from controller.kube.resources import MUTATING_WEBHOOKS, PODS, SECRETS
from controller.model.names import EXTENDER_RESOURCE, MUTATING_CONFIGURATION

NAME: Final = "longhorn-scheduler-extender-check"
LOOK_SECONDS: Final = 1.0
CALL_SECONDS: Final = 5.0
CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """What is tried. `address`: host:port of the extender, `server_name`: what its certificate is for; `client_secret`:
    "" for plain HTTP."""

    namespace: str
    test_namespace: str
    scheduler_name: str
    address: str
    server_name: str
    client_secret: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What came of one try: `ok`, `skipped` or `failed`."""

    what: str
    outcome: str
    text: str

    @property
    def is_well(self) -> bool:
        return self.outcome != "failed"

    @property
    def line(self) -> str:
        return f"{self.outcome}: {self.what}: {self.text}"


def check_installation(
    api: KubeApi,
    clock: Clock,
    target: CheckTarget,
    *,
    wait_seconds: float,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[CheckResult]:
    """Each try as it is done. What fails is tried again until `wait_seconds` are over: right after an installation the
    leader has yet to be elected.

    Threads: one. Blocks: as said. I/O: the API server and the extender.
    """
    deadline = clock.now() + wait_seconds
    for what, attempt in (("extender", _try_extender), ("webhook", _try_webhook)):
        while True:
            try:
                outcome, text = attempt(api, target)
            except (ClusterError, OSError, ValueError, http.client.HTTPException) as error:
                outcome, text = "failed", f"{type(error).__name__}: {error}"
            if outcome != "failed" or clock.now() >= deadline:
                break
            pause(LOOK_SECONDS)
        yield CheckResult(what, outcome, text)


def _try_webhook(api: KubeApi, target: CheckTarget) -> tuple[str, str]:
    try:
        entries = api.get(MUTATING_WEBHOOKS, None, MUTATING_CONFIGURATION).get("webhooks") or []
    except NotFoundError:
        return "skipped", f"there is no {MUTATING_WEBHOOKS.kind} {MUTATING_CONFIGURATION}"
    if PODS_ENTRIES not in [entry.get("name") for entry in entries]:
        return "skipped", "pods do not opt in while the extender is switched off or kube-scheduler is not wired"
    made = api.create(PODS, target.test_namespace, _pod(target), dry_run=True)
    containers = made["spec"]["containers"]
    amount = (containers[0].get("resources") or {}).get("requests", {}).get(EXTENDER_RESOURCE)
    if amount != "1":
        return "failed", f"a pod with a claim in {target.test_namespace} does not get {EXTENDER_RESOURCE}"
    return "ok", f"a pod with a claim in {target.test_namespace} gets {EXTENDER_RESOURCE}"


def _pod(target: CheckTarget) -> dict[str, Any]:
    """A pod with a claim that does not exist, which may become Longhorn's; it meets the `restricted` Pod Security
    Standard."""
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"name": NAME, "namespace": target.test_namespace},
        "spec": {
            "schedulerName": target.scheduler_name,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "check",
                    "image": f"{NAME}:never-pulled",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": NAME}}],
        },
    }


def _try_extender(api: KubeApi, target: CheckTarget) -> tuple[str, str]:
    nodes = [NAME]
    pod = {
        "metadata": {"name": NAME, "namespace": target.test_namespace, "uid": NAME},
        "spec": {"containers": [{"name": "check"}]},
    }
    status, body = _post(api, target, "/filter", {"Pod": pod, "NodeNames": nodes})
    if status != 200:
        return "failed", f"{target.address} answers {status}: {body[:200].decode(errors='replace').strip()}"
    answer = json.loads(body)
    if answer.get("Error") or answer.get("NodeNames") != nodes:
        return "failed", f"{target.address} refuses a pod without volumes: {answer.get('Error') or answer}"
    return "ok", f"{target.address} answers" + ("" if target.client_secret else ", over plain HTTP")


def _post(api: KubeApi, target: CheckTarget, path: str, document: object) -> tuple[int, bytes]:
    host, _, port = target.address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=CALL_SECONDS)
    try:
        connection.connect()
        if target.client_secret:
            connection.sock = _context(api, target).wrap_socket(connection.sock, server_hostname=target.server_name)
        connection.request("POST", path, json.dumps(document), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _context(api: KubeApi, target: CheckTarget) -> ssl.SSLContext:
    data = api.get(SECRETS, target.namespace, target.client_secret).get("data") or {}
    missing = [key for key in (CA, CERTIFICATE, KEY) if not data.get(key)]
    if missing:
        raise ValueError(f"the Secret {target.namespace}/{target.client_secret} has no {missing[0]}")
    try:
        files = {key: b64decode(data[key], validate=True) for key in (CA, CERTIFICATE, KEY)}
    except Base64Error as error:
        raise ValueError(f"the Secret {target.namespace}/{target.client_secret}: {error}") from error
    context = ssl.create_default_context(cadata=files[CA].decode("ascii", errors="replace"))
    with tempfile.TemporaryDirectory() as folder:  # ssl takes keys from files alone
        for key in (CERTIFICATE, KEY):
            (Path(folder) / key).write_bytes(files[key])
        context.load_cert_chain(Path(folder) / CERTIFICATE, Path(folder) / KEY)
    return context
