"""Whether the accounts of controller and webhook may do what the manifest lets them do, by SubjectAccessReviews."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from controller.follow.kinds import KINDS
from controller.installation.site import CONTROLLER, WEBHOOK, CheckResult, Site, failure, first_of, ok
from controller.kube import resources
from controller.kube.resources import ACCESS_REVIEWS, OUR_CONFIGURATIONS, Resource
from controller.model.names import FENCE, GATE, GUARD, STATUS_CONFIG_MAP
from controller.model.versions import OWN_SCHEDULER_CRDS
from controller.placement.plan_entries import shard_name
from controller.record.backends import NODE_CRD
from controller.settings import CERTIFICATE_MODES, PLAIN_HTTP, TLS_OFF, ProcessSettings

AT_ONCE: Final = 8
KUBE_SYSTEM: Final = "kube-system"
EVERYWHERE: Final = ""
WATCHED: Final = ("list", "watch")
KEPT: Final = ("get", "update", "delete")
HINT: Final = "apply the manifest again, or upgrade the Helm release; docs/security.md, Rights"


@dataclass(frozen=True, slots=True, order=True)
class NeededRight:
    """One verb on a kind of objects, or on the one of that `name`. `namespace`: "" for the whole cluster."""

    account: str
    verb: str
    group: str
    resource: str  # with the subresource, as in pods/status
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        kind = ".".join(filter(None, (self.resource, self.group)))
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {kind}" + (f" {self.name}" if self.name else "") + where


class _Needs:
    """Collects rights of one account."""

    def __init__(self, account: str) -> None:
        self._account, self.rights = account, set[NeededRight]()

    def add(self, where: str, kind: Resource, verbs: Iterable[str], *names: str, sub: str = "") -> None:
        plural = f"{kind.plural}/{sub}" if sub else kind.plural
        for name in names or ("",):
            self.rights |= {NeededRight(self._account, verb, kind.group, plural, name, where) for verb in verbs}


def needed_rights(settings: ProcessSettings) -> set[NeededRight]:
    """What both accounts need with these settings. Of the ConfigMaps with plans, the first stands for all."""
    own = settings.namespace
    rights = _of_controller(settings) | _of_certificates(settings)
    if settings.webhook_tls_mode == TLS_OFF:
        return rights
    needs = _Needs(WEBHOOK)
    for kind in (resources.CLAIMS, resources.VOLUMES, resources.STORAGE_CLASSES):
        needs.add(EVERYWHERE, kind, ("get", *WATCHED))
    needs.add(EVERYWHERE, resources.NAMESPACES, WATCHED)
    needs.add(own, resources.CONFIG_MAPS, WATCHED, settings.config_map)
    needs.add(own, resources.LONGHORN_SETTINGS, WATCHED)
    needs.add(own, resources.LONGHORN_ATTACHMENTS, ("get",))
    needs.add(own, resources.SECRETS, ("get",), settings.webhook_tls_secret, settings.webhook_client_tls_secret)
    return rights | needs.rights


def _of_controller(settings: ProcessSettings) -> set[NeededRight]:
    needs, own = _Needs(CONTROLLER), settings.namespace
    for kind in KINDS:
        verbs = (*(WATCHED if kind.is_followed else ()), *(("get",) if kind.is_live else ()))
        needs.add(own if kind.in_longhorn else EVERYWHERE, kind.resource, verbs)
    needs.add(own, resources.LONGHORN_REPLICAS, ("get", "patch"))
    needs.add(EVERYWHERE, resources.NAMESPACES, WATCHED)
    needs.add(EVERYWHERE, resources.PODS, ("patch",), sub="status")
    needs.add(EVERYWHERE, resources.EVENTS, ("create", "patch"))
    needs.add(EVERYWHERE, resources.CRDS, ("get",), *OWN_SCHEDULER_CRDS, NODE_CRD)
    for about, name in OUR_CONFIGURATIONS.items():
        needs.add(EVERYWHERE, about, WATCHED)
        needs.add(EVERYWHERE, about, ("get", "update"), name)
    for about in (resources.POLICIES, resources.POLICY_BINDINGS):
        needs.add(EVERYWHERE, about, ("get",), GATE, FENCE, GUARD)
    needs.add(EVERYWHERE, resources.POLICY_BINDINGS, ("create",))
    needs.add(EVERYWHERE, resources.POLICY_BINDINGS, ("delete",), GATE)
    needs.add(own, resources.SERVICE_ACCOUNTS, ("get", "patch"), GATE)
    needs.add(own, resources.CONFIG_MAPS, ("get", *WATCHED, "patch"), settings.config_map)
    needs.add(own, resources.CONFIG_MAPS, ("create",))
    needs.add(own, resources.CONFIG_MAPS, KEPT, shard_name(0))
    needs.add(own, resources.LEASES, ("create", *WATCHED))
    needs.add(own, resources.LEASES, KEPT, settings.lease)
    needs.add(KUBE_SYSTEM, resources.LEASES, WATCHED)
    needs.add(own, resources.ENDPOINT_SLICES, ("create",))
    needs.add(own, resources.ENDPOINT_SLICES, KEPT, settings.service, settings.replica_scheduler_service)
    needs.add(own, resources.PODS, ("create", "delete"))
    needs.add(own, resources.SERVICES, ("get",), settings.service)
    if settings.status_tls_port and settings.tls_mode != PLAIN_HTTP:  # who asks, what they may see, and whom to trust
        needs.add(EVERYWHERE, resources.TOKEN_REVIEWS, ("create",))
        needs.add(EVERYWHERE, ACCESS_REVIEWS, ("create",))
        needs.add(own, resources.CONFIG_MAPS, ("get", "patch"), STATUS_CONFIG_MAP)
    return needs.rights


def _of_certificates(settings: ProcessSettings) -> set[NeededRight]:
    """By who makes them: Secrets that the leader writes, or only reads."""
    needs, own = _Needs(CONTROLLER), settings.namespace
    extender = (settings.tls_secret, settings.tls_client_secret)
    webhook = (settings.webhook_tls_secret, settings.webhook_client_tls_secret, settings.replica_scheduler_tls_secret)
    for mode, leaves, authority in (
        (settings.tls_mode, extender, settings.tls_ca_secret),
        (settings.webhook_tls_mode, webhook, settings.webhook_ca_secret),
    ):
        if mode == "self":
            needs.add(own, resources.SECRETS, ("create",))
            needs.add(own, resources.SECRETS, KEPT, *leaves, authority)
        elif mode in CERTIFICATE_MODES:
            needs.add(own, resources.SECRETS, ("get",), *leaves)
    return needs.rights


def try_rights(site: Site) -> Iterator[CheckResult]:
    """One line for each account. Raises ForbiddenError where the caller may not ask about others."""
    needed = sorted(needed_rights(site.settings))

    def is_granted(right: NeededRight) -> bool:
        made = site.api.create(ACCESS_REVIEWS, None, _review(right, site.namespace))
        return bool((made.get("status") or {}).get("allowed"))

    first = is_granted(needed[0])  # a caller without the right to ask is refused once, not a hundred times
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="check-rights") as pool:
        granted = [first, *pool.map(is_granted, needed[1:])]
    for account in sorted({right.account for right in needed}):
        lacking = [
            str(right) for right, has in zip(needed, granted, strict=True) if right.account == account and not has
        ]
        if lacking:
            yield failure("rights", f"the account {account} may not {first_of(lacking)}", HINT)
        else:
            count = sum(right.account == account for right in needed)
            yield ok("rights", f"the account {account} has the {count} rights that it needs")


def _review(right: NeededRight, namespace: str) -> dict[str, object]:
    resource, _, sub = right.resource.partition("/")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "version": "*",
        "resource": resource,
        "subresource": sub,
        "name": right.name,
        "namespace": right.namespace,
    }
    user = f"system:serviceaccount:{namespace}:{right.account}"
    spec = {"user": user, "groups": groups, "resourceAttributes": attributes}
    return {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}
