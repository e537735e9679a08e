"""Whether somebody leads, whether copies stand by, and whether the Services lead to the leader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from controller.errors import ForbiddenError
from controller.installation.site import (
    CONTROLLER,
    WEBHOOK,
    CheckResult,
    Site,
    failure,
    first_of,
    missing_right,
    ok,
    skipped,
    warning,
)
from controller.kube.api import Raw, find, listed
from controller.kube.resources import DEPLOYMENTS, ENDPOINT_SLICES
from controller.model.reader import condition_at

SERVICE_LABEL: Final = "kubernetes.io/service-name"
LOOK: Final = "kubectl -n {} get pods -l app.kubernetes.io/name={}; see the log of those that are not ready"


def try_leader(site: Site) -> Iterator[CheckResult]:
    """Whether the Lease is fresh, and its holder a pod that is ready."""
    yield _of_lease(site)


def _of_lease(site: Site) -> CheckResult:
    where, look = f"{site.namespace}/{site.settings.lease}", LOOK.format(site.namespace, CONTROLLER)
    if not site.lease.resource_version:
        return failure("leader", f"there is no Lease {where}: no copy has led yet", look)
    if not site.holder:
        return failure("leader", f"nobody leads: the Lease {where} has no holder", look)
    seconds = site.silent_seconds(site.lease)
    if site.is_left(site.lease):
        return failure("leader", f"nobody leads: {site.holder} has not renewed the Lease for {seconds:.0f} s", look)
    text = f"{site.holder} leads, and renewed its Lease {seconds:.0f} s ago"
    try:
        pod = _leading_pod(site)
    except ForbiddenError as error:
        return ok("leader", f"{text}; the pod itself was not looked at: may not {missing_right(error)}")
    if pod is None:
        return failure("leader", f"{site.holder} holds the Lease {where}, and there is no such pod", look)
    if not is_ready(pod):
        return failure("leader", f"{site.holder} leads, and its pod is not ready", look)
    return ok("leader", text)


def _leading_pod(site: Site) -> Raw | None:
    return next((pod for pod in site.controllers if pod["metadata"]["name"] == site.holder), None)


def try_copies(site: Site) -> Iterator[CheckResult]:
    """Whether the controller has another copy to take over."""
    yield _of_copies(
        site, "copies", CONTROLLER, site.controllers, "controller", "while it restarts, opted-in pods wait"
    )


def try_webhook_copies(site: Site) -> Iterator[CheckResult]:
    if not site.has_webhook:
        yield skipped("webhook copies", "the controller runs without the webhook (--webhook-tls-mode=off)")
        return
    without = "while it restarts, pods and growth go unchecked"
    yield _of_copies(site, "webhook copies", WEBHOOK, site.webhooks, "webhook", without)


def _of_copies(site: Site, what: str, name: str, pods: Sequence[Raw], values: str, without: str) -> CheckResult:
    look = LOOK.format(site.namespace, name)
    ready = [pod for pod in pods if is_ready(pod)]
    if not pods:
        why = f"kubectl -n {site.namespace} describe deployment {name}: how many are wanted, and why there are none"
        return failure(what, f"there is no pod of {name}", why)
    if not ready:
        return failure(what, f"none of the {len(pods)} pods of {name} is ready", look)
    deployment = find(site.api, DEPLOYMENTS, site.namespace, name)
    wanted = int(deployment["spec"].get("replicas", 1)) if deployment is not None else len(pods)
    if len(ready) < wanted:
        late = first_of(pod["metadata"]["name"] for pod in pods if pod not in ready)
        return warning(
            what, f"{len(ready)} of {wanted} pods of {name} are ready" + (f", not {late}" * bool(late)), look
        )
    if len(ready) == 1:
        more = f"chart: {values}.replicas=2"
        return warning(what, f"there is one pod of {name} only: {without}", f"run two ({more})")
    nodes = {str(pod["spec"].get("nodeName")) for pod in ready}
    if len(nodes) == 1:
        text = f"all {len(ready)} pods of {name} are on the node {first_of(nodes)}: {without} when it is lost"
        return warning(what, text, f"delete one once another node takes it (chart: {values}.nodeSelector, tolerations)")
    images = {str(pod["spec"]["containers"][0].get("image")) for pod in ready}
    if len(images) > 1:
        wait = f"if no upgrade is under way: kubectl -n {site.namespace} rollout status deployment/{name}"
        return warning(what, f"the pods of {name} run several images: {first_of(images)}", wait)
    return ok(what, f"{len(ready)} pods of {name} are ready, on {first_of(nodes)}, with {first_of(images)}")


def try_endpoints(site: Site) -> Iterator[CheckResult]:
    """Whether both Services lead to the leader and nowhere else."""
    services, pod = (site.settings.service, site.settings.replica_scheduler_service), None
    with suppress(ForbiddenError):
        pod = _leading_pod(site)
    address = str((pod or {}).get("status", {}).get("podIP") or "")
    found = {service: dict(_addresses(site, service)) for service in services}
    if not any(found.values()) and not (site.live.enabled or site.live.bypass):
        yield skipped("endpoints", "no Service leads to a pod while the extender is switched off")
        return
    hint = "docs/operations.md, What happens when; kubectl -n {} get endpointslices -l {}={}"
    lost = False
    for service, addresses in found.items():
        look, expected = hint.format(site.namespace, SERVICE_LABEL, service), address or next(iter(addresses), "")
        if not addresses:
            yield failure("endpoints", f"the Service {service} leads to no pod", look)
        elif others := {f"{one} ({slice_})" for one, slice_ in addresses.items() if one != expected}:
            text = f"the Service {service} leads elsewhere than to the leader {expected}: {first_of(others)}"
            yield failure("endpoints", text, f"delete an EndpointSlice that is not the leader's; {look}")
        else:
            continue
        lost = True
    if not lost:
        yield ok("endpoints", f"{' and '.join(services)} lead to {address or 'one pod'} and nowhere else")


def _addresses(site: Site, service: str) -> Iterator[tuple[str, str]]:
    """Every address to which the Service leads, and the slice that says so."""
    for raw in listed(site.api, ENDPOINT_SLICES, site.namespace, labelSelector=f"{SERVICE_LABEL}={service}"):
        for endpoint in raw.get("endpoints") or ():
            for address in endpoint.get("addresses") or ():
                yield str(address), str(raw["metadata"]["name"])


def is_ready(pod: Raw) -> bool:
    return condition_at(pod.get("status") or {}, "status", "Ready") is True
