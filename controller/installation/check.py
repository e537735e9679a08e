"""Tries an installation out, as `helm test` does: a question to the extender, a pod through the webhook, the way of a
growth's review to the leader, and a look at the gate.

Pods are created with `dryRun=All`: all of admission looks at them, and nothing is stored. The question is
kube-scheduler's own, about a pod without volumes, over the Service and with kube-scheduler's certificate; nothing is
held for it. The gate stands where its policy, binding and account are there and a leader renews it: the leader proves
by itself that others are refused. What cannot be tried yet is reported as such, and is no failure.
"""

from __future__ import annotations

import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certs.layout import BUNDLE, CERTIFICATE, KEY
from certs.secret import data_of
from controller.admission.configurations import GROWTH_CHECK
from controller.admission.configurations import PODS as PODS_ENTRIES
from controller.admission.growth_path import SILENT_TEXT, reaches_leader
from controller.canary.pod import dry_run_pod
from controller.clock import Clock
from controller.errors import ClusterError
from controller.kube.api import KubeApi, Raw, find, why_unreachable
from controller.kube.resources import (
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    PODS,
    POLICIES,
    POLICY_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from controller.model.names import (
    EXTENDER_RESOURCE,
    GATE,
    LEADER_ANSWERS,
    MUTATING_CONFIGURATION,
    RENEWED_ANNOTATION,
    VALIDATING_CONFIGURATION,
)
from controller.model.times import utc_time
from controller.placement.gate import NO_TIME
from controller.placement.gate_policy import SILENT_SECONDS, Enforcement
from controller.settings import AUTHORITY, PLACEMENT, live_settings, places_replicas, setting_notes

NAME: Final = "longhorn-scheduler-extender-check"
LOOK_SECONDS: Final = 1.0
CALL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """What is tried. `address`: host:port of the extender, `server_name`: what its certificate is for; `client_secret`:
    "" for plain HTTP; `config_map`: that of the live settings."""

    namespace: str
    test_namespace: str
    scheduler_name: str
    address: str
    server_name: str
    client_secret: str
    config_map: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What came of one try: `ok`, `skipped` or `failed`; or what was `noted` beside them."""

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
    """Yields the result of each try when it is done. What fails is tried again until `wait_seconds` are over: right
    after an installation the leader has yet to be elected.

    Threads: one. Blocks: as said. I/O: the API server and the extender.
    """
    deadline = clock.now() + wait_seconds
    for what, attempt in (
        ("extender", _try_extender),
        ("webhook", _try_webhook),
        ("growth", _try_growth),
        ("gate", _try_gate),
    ):
        while True:
            try:
                outcome, text = attempt(api, target)
            except (ClusterError, OSError, ValueError, http.client.HTTPException) as error:
                outcome, text = "failed", why_unreachable(error)
                if isinstance(error, OSError):
                    text = f"{target.address}: {text}"
            if outcome != "failed" or clock.now() >= deadline:
                break
            pause(LOOK_SECONDS)
        yield CheckResult(what, outcome, text)
    yield from _notes(api, target)


def _try_webhook(api: KubeApi, target: CheckTarget) -> tuple[str, str]:
    off = "pods do not opt in while the extender is switched off or kube-scheduler is not wired"
    if lacks := _lacks_entry(api, MUTATING_WEBHOOKS, MUTATING_CONFIGURATION, PODS_ENTRIES, off):
        return "skipped", lacks
    made = api.create(PODS, target.test_namespace, _pod(target), dry_run=True)
    containers = made["spec"]["containers"]
    amount = (containers[0].get("resources") or {}).get("requests", {}).get(EXTENDER_RESOURCE)
    if amount != "1":
        return "failed", f"a pod with a claim in {target.test_namespace} does not get {EXTENDER_RESOURCE}"
    return "ok", f"a pod with a claim in {target.test_namespace} gets {EXTENDER_RESOURCE}"


def _try_growth(api: KubeApi, target: CheckTarget) -> tuple[str, str]:
    off = "growth is not checked while the extender or its setting for that is off"
    if lacks := _lacks_entry(api, VALIDATING_WEBHOOKS, VALIDATING_CONFIGURATION, GROWTH_CHECK, off):
        return "skipped", lacks
    answers = reaches_leader(api, target.test_namespace)
    if answers is None:
        return "failed", "the API server does not reach the webhook, so the growth of volumes is not checked"
    return ("ok", LEADER_ANSWERS) if answers else ("failed", SILENT_TEXT)


def _lacks_entry(api: KubeApi, kind: Resource, configuration: str, entry: str, off: str) -> str:
    """Why the API server does not ask the webhook; "" if it does. `off`: what it means that the entry is left out."""
    found = find(api, kind, None, configuration)
    if found is None:
        return f"there is no {kind.kind} {configuration}"
    return "" if entry in [one.get("name") for one in found.get("webhooks") or []] else off


def _pod(target: CheckTarget) -> Raw:
    """A pod with a claim that does not exist, which may become Longhorn's."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": NAME}}]
    spec = {"schedulerName": target.scheduler_name, "volumes": volumes}
    return dry_run_pod(NAME, target.test_namespace, {}, spec)


def _notes(api: KubeApi, target: CheckTarget) -> Iterator[CheckResult]:
    """Lines of the settings that may be taken out; none where they cannot be read."""
    try:
        notes = setting_notes(_data_of_settings(api, target))
    except (ClusterError, OSError):
        notes = ()
    for note in notes:
        yield CheckResult("settings", "noted", f"{note.name}: {note.text}")


def _data_of_settings(api: KubeApi, target: CheckTarget) -> dict[str, str] | None:
    found = find(api, CONFIG_MAPS, target.namespace, target.config_map)
    return found.get("data") or {} if found is not None else None


def _try_gate(api: KubeApi, target: CheckTarget) -> tuple[str, str]:
    data = _data_of_settings(api, target)
    if data is None:
        where = f"{target.namespace}/{target.config_map}"
        return "skipped", f"there is no ConfigMap {where}, which says whether the extender is switched on"
    live, _ = live_settings(data, {})
    if not live.enabled or live.bypass:
        return "skipped", "Longhorn places while the extender is switched off or in bypass"
    if not places_replicas(live):
        return "skipped", f"by {PLACEMENT} and {AUTHORITY} the leader does not place"
    found: dict[Resource, Raw] = {}
    for resource, namespace in ((POLICIES, None), (POLICY_BINDINGS, None), (SERVICE_ACCOUNTS, target.namespace)):
        raw = find(api, resource, namespace, GATE)
        if raw is None:
            return "failed", f"there is no {resource.kind} {GATE}, so Longhorn places as well"
        found[resource] = raw
    renewed = (found[SERVICE_ACCOUNTS]["metadata"].get("annotations") or {}).get(RENEWED_ANNOTATION)
    now_utc = api.server_utc()
    if not renewed or now_utc is None:
        return "failed", "no leader has renewed it yet" if not renewed else NO_TIME
    seconds = max(0, round((now_utc - utc_time(renewed)).total_seconds()))
    if seconds > SILENT_SECONDS:
        return "failed", f"no leader has renewed it for {seconds} s, so Longhorn places"
    audits = Enforcement.AUDIT in found[POLICY_BINDINGS]["spec"]["validationActions"]
    return "ok", f"renewed {seconds} s ago; what others place is {'noted' if audits else 'refused'}"


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
    files = data_of(api.get(SECRETS, target.namespace, target.client_secret)) or {}
    missing = [key for key in (BUNDLE, CERTIFICATE, KEY) if not files.get(key)]
    if missing:
        raise ValueError(f"the Secret {target.namespace}/{target.client_secret} has no {missing[0]}")
    context = ssl.create_default_context(cadata=files[BUNDLE].decode("ascii", errors="replace"))
    with tempfile.TemporaryDirectory() as folder:  # ssl takes keys from files alone
        for key in (CERTIFICATE, KEY):
            (Path(folder) / key).write_bytes(files[key])
        context.load_cert_chain(Path(folder) / CERTIFICATE, Path(folder) / KEY)
    return context
