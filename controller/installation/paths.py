"""The ways between API server, webhook, leader and kube-scheduler, each tried for real: by dry runs of pods, and by a
question to the extender.

The question is kube-scheduler's own, about a pod without volumes, over the Service and with kube-scheduler's
certificate; nothing is held for it.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from certs.layout import BUNDLE, CERTIFICATE, KEY
from certs.secret import data_of
from controller.admission.configurations import GROWTH_CHECK
from controller.admission.configurations import PODS as PODS_ENTRIES
from controller.admission.growth_path import reaches_leader
from controller.canary.pod import dry_run_pod
from controller.errors import ForbiddenError
from controller.installation.leader import is_ready
from controller.installation.site import CheckResult, Site, failure, ok, skipped
from controller.kube.api import find, why_unreachable
from controller.kube.resources import MUTATING_WEBHOOKS, PODS, SECRETS, VALIDATING_WEBHOOKS, Resource
from controller.model.names import (
    EXTENDER_RESOURCE,
    LEADER_ANSWERS,
    LEADER_IS_SILENT,
    MUTATING_CONFIGURATION,
    VALIDATING_CONFIGURATION,
)
from controller.process.flags import split_names
from controller.settings import PLAIN_HTTP

NAME: Final = "longhorn-scheduler-extender-check"
SERVICE_PORT: Final = 9504
CALL_SECONDS: Final = 5.0
OPEN_9443: Final = (
    "let the API server in to port 9443 of the webhook's pods (NetworkPolicy, firewall), and see their log; "
    "docs/install.md, Platforms"
)
NO_WEBHOOK: Final = "none of the webhook's pods is ready: see the line about webhook copies"
OPEN_9505: Final = (
    "let the webhook's pods in to port 9505 of the controller's pods (NetworkPolicy), and see the webhook's log; "
    "docs/admission.md, Expansions"
)

_OFF: Final = {
    MUTATING_WEBHOOKS: ("webhook", "pods do not opt in"),
    VALIDATING_WEBHOOKS: ("growth", "growth is not checked"),
}


def try_pod(site: Site) -> Iterator[CheckResult]:
    """Whether a pod with a claim opts in: a dry run."""
    live = site.live
    is_on = bool(live.enabled) and live.opt_in != "off"
    if lacks := _lacks_entry(site, MUTATING_WEBHOOKS, MUTATING_CONFIGURATION, PODS_ENTRIES, is_on=is_on):
        yield lacks
        return
    where = site.target.test_namespace
    scheduler = site.target.scheduler_name or split_names(site.settings.scheduler_names)[0]
    # The claim does not exist, and may become Longhorn's.
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": NAME}}]
    body = dry_run_pod(NAME, where, {}, {"schedulerName": scheduler, "volumes": volumes})
    made = site.api.create(PODS, where, body, dry_run=True)
    amount = (made["spec"]["containers"][0].get("resources") or {}).get("requests", {}).get(EXTENDER_RESOURCE)
    if amount != "1":
        text = f"a pod with a claim in {where} does not get {EXTENDER_RESOURCE}: the webhook is not asked, or fails"
        marked = f"is {where} marked to stay out (docs/admission.md)? Else {OPEN_9443}"
        yield failure("webhook", text, marked if _has_ready_webhook(site) else NO_WEBHOOK)
    else:
        yield ok("webhook", f"a pod with a claim in {where} gets {EXTENDER_RESOURCE}")


def try_growth(site: Site) -> Iterator[CheckResult]:
    """Whether the review of a growth reaches the leader: a dry run."""
    live = site.live
    is_on = bool(live.enabled) and live.expansion_policy != "off"
    if lacks := _lacks_entry(site, VALIDATING_WEBHOOKS, VALIDATING_CONFIGURATION, GROWTH_CHECK, is_on=is_on):
        yield lacks
        return
    answers = reaches_leader(site.api, site.target.test_namespace)
    if answers is None:
        text = "the API server does not reach the webhook, so the growth of volumes is not checked"
        yield failure("growth", text, OPEN_9443 if _has_ready_webhook(site) else NO_WEBHOOK)
    elif answers:
        yield ok("growth", LEADER_ANSWERS)
    else:
        yield failure("growth", f"{LEADER_IS_SILENT}, so the growth of volumes is not checked", OPEN_9505)


def _has_ready_webhook(site: Site) -> bool:
    try:
        return any(map(is_ready, site.webhooks))
    except ForbiddenError:
        return True  # as far as the caller may know


def _lacks_entry(site: Site, kind: Resource, configuration: str, entry: str, *, is_on: bool) -> CheckResult | None:
    """Why the API server does not ask the webhook; None if it does. `is_on`: whether the settings want it to."""
    what, off = _OFF[kind]
    if not site.has_webhook:
        return skipped(what, "there is no webhook")
    found = find(site.api, kind, None, configuration)
    if found is None:
        again = "apply the manifest again, or upgrade the Helm release"
        return failure(what, f"there is no {kind.kind} {configuration}", again)
    if entry in [one.get("name") for one in found.get("webhooks") or ()]:
        return None
    if not is_on:
        return skipped(what, f"{off}: it is switched off")
    why = "see the lines about leader, wiring and longhorn; docs/admission.md, When pods opt in"
    return failure(what, f"{off}: the leader has not entered it in the {kind.kind} {configuration}", why)


def try_extender(site: Site) -> Iterator[CheckResult]:
    """Whether the extender answers over its Service, as kube-scheduler asks it."""
    live = site.live
    if not (live.enabled or live.bypass):
        yield skipped("extender", "it answers nobody while it is switched off")
        return
    server_name = f"{site.settings.service}.{site.namespace}.svc"
    address = site.target.address or f"{server_name}:{SERVICE_PORT}"
    try:
        yield _asked(site, address, server_name)
    except socket.gaierror:
        if site.target.address or site.target.is_inside:
            raise
        yield skipped("extender", "the Service's name is known only inside the cluster", "helm test tries it there")
    except (OSError, ValueError, http.client.HTTPException) as error:
        see = "docs/operations.md, A pod stays pending: the row about the extender's URL; docs/certificates.md"
        yield failure("extender", f"{address}: {why_unreachable(error)}", see)


def _asked(site: Site, address: str, server_name: str) -> CheckResult:
    nodes, is_plain = [NAME], site.settings.tls_mode == PLAIN_HTTP
    metadata = {"name": NAME, "namespace": site.target.test_namespace, "uid": NAME}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "check"}]}}
    context = None if is_plain else _context(site)
    status, body = _post(address, server_name, context, {"Pod": pod, "NodeNames": nodes})
    see = "does a pod lead? See its log; docs/operations.md, What happens when"
    if status != 200:
        text = body[:200].decode(errors="replace").strip()
        return failure("extender", f"{address} answers {status}: {text}", see)
    answer = json.loads(body)
    if answer.get("Error") or answer.get("NodeNames") != nodes:
        return failure("extender", f"{address} refuses a pod without volumes: {answer.get('Error') or answer}", see)
    return ok("extender", f"{address} answers" + (", over plain HTTP" if is_plain else ""))


def _post(address: str, server_name: str, context: ssl.SSLContext | None, document: object) -> tuple[int, bytes]:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=CALL_SECONDS)
    try:
        connection.connect()
        if context is not None:
            connection.sock = context.wrap_socket(connection.sock, server_hostname=server_name)
        connection.request("POST", "/filter", json.dumps(document), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _context(site: Site) -> ssl.SSLContext:
    name = site.settings.tls_client_secret
    files = data_of(site.api.get(SECRETS, site.namespace, name)) or {}
    missing = [key for key in (BUNDLE, CERTIFICATE, KEY) if not files.get(key)]
    if missing:
        raise ValueError(f"the Secret {site.namespace}/{name} has no {missing[0]}")
    context = ssl.create_default_context(cadata=files[BUNDLE].decode("ascii", errors="replace"))
    with tempfile.TemporaryDirectory() as folder:  # ssl takes keys from files alone
        for key in (CERTIFICATE, KEY):
            (Path(folder) / key).write_bytes(files[key])
        context.load_cert_chain(Path(folder) / CERTIFICATE, Path(folder) / KEY)
    return context
