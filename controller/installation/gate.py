"""Whether the gate stands, and whether a placement by somebody else is refused; and what the settings say.

The gate stands where its policy, binding and account are there and a leader renews it. That it refuses is tried by a
dry run with the caller's own rights; where there is no Replica to try it on, the leader's proof counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.errors import ForbiddenError, NotFoundError
from controller.installation.site import CheckResult, Site, failure, missing_right, ok, skipped, warning
from controller.kube.api import Raw, find
from controller.kube.resources import LONGHORN_REPLICAS, POLICIES, POLICY_BINDINGS, SERVICE_ACCOUNTS, Resource
from controller.model.names import GATE, HELD_ANNOTATION, LEFT_ANNOTATION, RENEWED_ANNOTATION
from controller.model.times import utc_time
from controller.placement.gate import NO_TIME
from controller.placement.gate_policy import SILENT_SECONDS, Enforcement
from controller.placement.objects import NODE_LABEL
from controller.settings import AUTHORITY, ENABLED, PLACEMENT, UNREAD, live_settings, places_replicas, setting_notes

AGAIN: Final = "apply the manifest again, or upgrade the Helm release; docs/operations.md, Placement"
SETTINGS_HINT: Final = "docs/settings.md, Live settings"
CANDIDATES: Final = 50
SWITCH_ON: Final = "helm upgrade ... --set settings.enabled=true, or scheduler-extender-enabled in the ConfigMap"


def try_settings(site: Site) -> Iterator[CheckResult]:
    """Whether the extender is on, and every line of its ConfigMap is used."""
    where = f"{site.namespace}/{site.settings.config_map}"
    if site.data is None:
        yield failure("settings", f"there is no ConfigMap {where}", "docs/operations.md, Settings that are not used")
        return
    live, problems = live_settings(site.data, {}, UNREAD)
    for one in problems:
        hint = SWITCH_ON if one.name == ENABLED and one.value is None else SETTINGS_HINT
        yield failure("settings", f"{one.name}: {one.text}", hint)
    for one in setting_notes(site.data):
        yield warning("settings", f"{one.name}: {one.text}", f"take the line out of the ConfigMap {where}")
    if live.bypass:
        text = "bypass: every pod is let through unchecked, and Longhorn places"
        yield warning("settings", text, "docs/operations.md, Let everything through now")
    elif live.enabled is False:
        yield warning("settings", "the extender is switched off", SWITCH_ON)
    elif not problems:
        yield ok("settings", f"the extender is switched on; every line of {where} is used")


def _why_none(site: Site) -> str:
    """Why there is to be no gate; "" if there is."""
    live = site.live
    if not live.enabled or live.bypass:
        return "Longhorn places while the extender is switched off or in bypass"
    return "" if places_replicas(live) else f"by {PLACEMENT} and {AUTHORITY} the leader does not place"


def try_gate(site: Site) -> Iterator[CheckResult]:
    yield _of_gate(site)


def _of_gate(site: Site) -> CheckResult:
    if none := _why_none(site):
        return skipped("gate", none)
    found: dict[Resource, Raw] = {}
    for resource, namespace in ((POLICIES, None), (POLICY_BINDINGS, None), (SERVICE_ACCOUNTS, site.namespace)):
        raw = find(site.api, resource, namespace, GATE)
        if raw is None:
            hint = AGAIN if resource != POLICY_BINDINGS else f"the leader makes it: see its log and its rights; {AGAIN}"
            return failure("gate", f"there is no {resource.kind} {GATE}, so Longhorn places as well", hint)
        found[resource] = raw
    renewed = (found[SERVICE_ACCOUNTS]["metadata"].get("annotations") or {}).get(RENEWED_ANNOTATION)
    now_utc = site.api.server_utc()
    see = "does a pod lead? See its log; docs/operations.md, Placement"
    if not renewed or now_utc is None:
        return failure("gate", "no leader has renewed it yet" if not renewed else NO_TIME, see)
    seconds = max(0, round((now_utc - utc_time(renewed)).total_seconds()))
    if seconds > SILENT_SECONDS:
        return failure("gate", f"no leader has renewed it for {seconds} s, so Longhorn places", see)
    audits = Enforcement.AUDIT in found[POLICY_BINDINGS]["spec"]["validationActions"]
    return ok("gate", f"renewed {seconds} s ago; what others place is {'noted' if audits else 'refused'}")


def try_placement(site: Site) -> Iterator[CheckResult]:
    """Whether a placement by somebody else is refused: the dry run of one, or the leader's word."""
    none = _why_none(site)
    if none or site.live.placement == "audit":
        yield skipped("placement", none or "placement is audit: others may place, and it is noted")
        return
    try:
        found = _refused(site)
        yield found if found is not None else _word_of_leader(site, "no Replica waits for a disk: nothing to try it on")
    except ForbiddenError as error:
        if not (right := missing_right(error)):
            raise
        yield _word_of_leader(site, f"not tried: may not {right}")


def _refused(site: Site) -> CheckResult | None:
    """None where there is no Replica to try it on."""
    page = site.api.list_page(LONGHORN_REPLICAS, site.namespace, limit=CANDIDATES, labelSelector=f"{NODE_LABEL}=")
    name = next((str(raw["metadata"]["name"]) for raw in page.items if _is_held(raw)), "")
    if not name:
        return None
    body = {"spec": {"nodeID": "longhorn-scheduler-extender-check"}}
    try:
        site.api.patch(LONGHORN_REPLICAS, site.namespace, name, body, dry_run=True)
    except ForbiddenError as error:
        if f"'{GATE}'" in str(error):
            return ok("placement", f"a dry run that places {name} is refused")
        raise
    except NotFoundError:
        return None
    return failure("placement", f"a dry run that places {name} is not refused: others may place replicas", AGAIN)


def _is_held(raw: Raw) -> bool:
    """Whether the gate refuses others its first place however long it waits."""
    annotations = raw["metadata"].get("annotations") or {}
    is_unplaced = not (raw.get("spec") or {}).get("nodeID")
    return is_unplaced and HELD_ANNOTATION in annotations and LEFT_ANNOTATION not in annotations


def _word_of_leader(site: Site, why: str) -> CheckResult:
    """What the leader's own proof says, where nothing could be tried; `why` not."""
    if isinstance(site.overview, str):
        return skipped("placement", why)
    match state := site.overview.get("gate"):
        case "enforced":
            return ok("placement", "the leader has proven by a dry run that others are refused")
        case "unproven":
            return skipped("placement", f"unproven by the leader, too; {why}")
        case _:
            return failure("placement", f"the leader says of the gate: {state}", AGAIN)
