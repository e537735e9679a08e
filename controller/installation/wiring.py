"""Whether every scheduler that is named asks the extender, and what else stands in kube-scheduler's configuration.

The leader's proof counts, from its status document or from its Events. Where kube-scheduler runs as pods, their
arguments show which copy was left out; ConfigMaps with a KubeSchedulerConfiguration show profiles that are not named.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from certs.authority import CertificateError, check_client, is_rooted_in, read_authorities
from certs.layout import BUNDLE
from certs.secret import data_of
from controller.canary.leases import lease_of
from controller.canary.proof import Wiring
from controller.canary.prover import REPORTS
from controller.errors import ForbiddenError
from controller.installation.site import (
    CheckResult,
    Site,
    failure,
    first_of,
    missing_right,
    ok,
    skipped,
    warning,
)
from controller.kube.api import find, listed
from controller.kube.resources import CONFIG_MAPS, EVENTS, PODS, SECRETS
from controller.model.names import DEFAULT_SCHEDULER, EXTENDER_RESOURCE
from controller.process.flags import split_names
from controller.settings import PLAIN_HTTP

KUBE_SYSTEM: Final = "kube-system"
KIND: Final = "KubeSchedulerConfiguration"
MOST_BYTES: Final = 200_000  # of a ConfigMap's text that is read
KEYS: Final = ("caData", "certData", "keyData")
TELL: Final = "docs/kube-scheduler.md; longhorn-scheduler-extender render-scheduler-config prints what it needs"
IS_WIRED: Final = "docs/operations.md, Is kube-scheduler wired?"


def try_wiring(site: Site) -> Iterator[CheckResult]:
    """Whether each scheduler that is named, and runs, asks the extender."""
    overview, live = site.overview, site.live
    states = _by_events(site) if isinstance(overview, str) else dict(overview.get("wiring") or {})
    if not states:
        is_due = not isinstance(overview, str) and live.enabled and live.wiring_check_every_seconds
        text = "the leader has not heard of any scheduler that is named yet"
        yield failure("wiring", text, IS_WIRED) if is_due else skipped("wiring", text, IS_WIRED)
    for scheduler, state in sorted(states.items()):
        if state == Wiring.WIRED:
            yield ok("wiring", f"{scheduler} asks the extender")
        elif state == Wiring.UNWIRED:
            yield failure("wiring", f"{scheduler} does not ask the extender, so its pods wait in vain", TELL)
        else:
            text = f"it is not known whether {scheduler} asks the extender: it has not looked at the leader's canary"
            yield failure("wiring", text, f"does it run, and reach the extender's Service? {IS_WIRED}")


def _by_events(site: Site) -> Mapping[str, str]:
    """What the leader said of each scheduler last, in its Events about the Lease."""
    reasons, found = {reason: str(state) for state, (reason, _) in REPORTS.items()}, dict[str, tuple[str, str]]()
    selector = f"involvedObject.kind=Lease,involvedObject.name={site.settings.lease}"
    for event in listed(site.api, EVENTS, site.namespace, fieldSelector=selector):
        state = reasons.get(str(event.get("reason")))
        at = str(event.get("lastTimestamp") or event.get("eventTime") or "")
        for name in split_names(site.settings.scheduler_names):
            if state and f"Scheduler {name!r} " in str(event.get("message")):
                found[name] = max(found.get(name, ("", "")), (at, state))
    return {name: state for name, (_, state) in found.items()}


def try_schedulers(site: Site) -> Iterator[CheckResult]:
    """Whether every copy of kube-scheduler that runs as a pod is started with a configuration."""
    page = site.api.list_page(PODS, KUBE_SYSTEM, labelSelector="component=kube-scheduler")
    if not page.items:
        yield skipped("kube-scheduler", "it does not run as pods of kube-system, so its arguments cannot be seen")
        return
    without = []
    for pod in page.items:
        words = [word for one in pod["spec"]["containers"] for word in (*one.get("command", ()), *one.get("args", ()))]
        if not any(word == "--config" or word.startswith("--config=") for word in words):
            without.append(str(pod["spec"].get("nodeName") or pod["metadata"]["name"]))
    if without:
        text = f"kube-scheduler is started without --config on {first_of(without)}, and so does not ask the extender"
        yield failure("kube-scheduler", text, f"{TELL}. Every control-plane node needs it")
    else:
        yield ok("kube-scheduler", f"{len(page.items)} pods of kube-scheduler are started with a configuration")


@dataclass(frozen=True, slots=True)
class FoundConfiguration:
    """A KubeSchedulerConfiguration in a ConfigMap. `entries`: of `extenders`, those that ask us."""

    where: str
    profiles: tuple[str, ...]
    entries: tuple[Mapping[str, Any], ...]


def try_profiles(site: Site) -> Iterator[CheckResult]:
    """Whether the profiles of every configuration that can be read are named, and ask; and what its keys are worth."""
    listed_names = set(split_names(site.settings.scheduler_names))
    found, lacking = list[FoundConfiguration](), list[str]()
    for namespace in dict.fromkeys((KUBE_SYSTEM, site.namespace)):
        try:
            found += _configurations(site, namespace)
        except ForbiddenError as error:
            lacking.append(f"{missing_right(error) or error} in {namespace}")
    is_well = True
    for one in found:
        for result in (*_of_profiles(one, listed_names), *_of_keys(site, one)):
            is_well = False
            yield result
    if lacking:
        yield skipped("profiles", f"not all ConfigMaps were looked at: may not {' nor '.join(lacking)}")
    elif not found:
        yield skipped("profiles", "kube-scheduler's configuration is in no ConfigMap: its file was not looked at", TELL)
    elif is_well:
        yield ok("profiles", f"every profile in {first_of(one.where for one in found)} is listed and asks")


def _configurations(site: Site, namespace: str) -> Iterator[FoundConfiguration]:
    for raw in listed(site.api, CONFIG_MAPS, namespace):
        for key, text in (raw.get("data") or {}).items():
            if KIND in str(text)[:MOST_BYTES] and (one := _configuration(str(text)[:MOST_BYTES])):
                profiles, entries = one
                yield FoundConfiguration(f"ConfigMap {namespace}/{raw['metadata']['name']} ({key})", profiles, entries)


def _configuration(text: str) -> tuple[tuple[str, ...], tuple[Mapping[str, Any], ...]] | None:
    """The names of the profiles, and the entries that are ours; None where the text is no such configuration."""
    try:
        document = yaml.safe_load(text)
        if not isinstance(document, dict) or document.get("kind") != KIND:
            return None
        profiles = [one.get("schedulerName") or DEFAULT_SCHEDULER for one in document.get("profiles") or [{}]]
        entries = [one for one in document.get("extenders") or () if _is_ours(one)]
    except (yaml.YAMLError, AttributeError, TypeError, ValueError):
        return None
    return tuple(map(str, profiles)), tuple(entries)


def _is_ours(entry: Mapping[str, Any]) -> bool:
    resources = [one.get("name") for one in entry.get("managedResources") or ()]
    return EXTENDER_RESOURCE in resources or "longhorn-scheduler-extender" in str(entry.get("urlPrefix"))


def _of_profiles(one: FoundConfiguration, names: set[str]) -> Iterator[CheckResult]:
    if not one.entries:
        if wanted := sorted(names & set(one.profiles)):
            text = f"{one.where} does not ask the extender, and has the profile {first_of(wanted)}"
            yield failure("profiles", text, TELL)
        return
    if unlisted := sorted(set(one.profiles) - names):
        text = f"{one.where} has the profile {first_of(unlisted)}, which --scheduler-names does not list: its pods go "
        text += "unchecked"
        yield warning("profiles", text, "add it to the chart's schedulerNames (--scheduler-names of both programs)")


def _of_keys(site: Site, one: FoundConfiguration) -> Iterator[CheckResult]:
    """What is wrong with the certificates that stand in the configuration itself."""
    again = f"write it anew: {TELL}; docs/certificates.md, kube-scheduler's side"
    for entry in one.entries:
        tls = entry.get("tlsConfig") or {}
        if site.settings.tls_mode == PLAIN_HTTP or not any(tls.get(name) for name in KEYS):
            continue
        files = {name: _decoded(tls.get(name)) for name in KEYS}
        try:
            for text in check_client(files, site.now_utc):
                yield warning("certificate", f"{one.where}: {text}", again)
            for text in _strange(site, files):
                yield failure("certificate", f"{one.where}: {text}", again)
        except CertificateError as error:
            yield failure("certificate", f"{one.where}: {error}", again)


def _strange(site: Site, files: Mapping[str, bytes]) -> Iterator[str]:
    """What of these is not the extender's, where its own can be read."""
    try:
        secret = find(site.api, SECRETS, site.namespace, site.settings.tls_client_secret)
    except ForbiddenError:
        return
    bundle = (data_of(secret) or {}).get(BUNDLE, b"")
    if not bundle:
        return
    ca, certificate, _ = KEYS
    present, trusted = (read_authorities(one, what=ca) for one in (bundle, files[ca]))
    if not {pair.facts.fingerprint for pair in trusted} & {pair.facts.fingerprint for pair in present}:
        yield f"{ca} has none of the extender's authorities"
    if not is_rooted_in(files[certificate], present):
        yield f"{certificate} is not signed by an authority of the extender"


def _decoded(text: object) -> bytes:
    try:
        return b64decode(str(text or ""))
    except binascii.Error:
        return b""


def try_leases(site: Site) -> Iterator[CheckResult]:
    """Whether the Lease of a scheduler that nobody runs is left behind."""
    left, seen, lacking = [], [], []
    for scheduler in split_names(site.settings.scheduler_names):
        namespace, _, name = lease_of(scheduler, site.namespace).partition("/")
        try:
            lease = site.lease_of(namespace, name)
        except ForbiddenError as error:
            lacking.append(f"{missing_right(error) or error} in {namespace}")
            continue
        if not lease.holder:
            continue
        seen.append(scheduler)
        if site.is_left(lease):
            left.append(f"{namespace}/{name}")
    if left:
        hint = f"a scheduler that is gone: kubectl -n {site.namespace} delete lease NAME; else start it. {IS_WIRED}"
        yield warning("leases", f"nobody renews the Lease {first_of(left)}, so no scheduler of that name runs", hint)
    elif lacking:
        yield skipped("leases", f"not all Leases were looked at: may not {' nor '.join(lacking)}")
    elif seen:
        yield ok("leases", f"the Leases of the schedulers that run are renewed: {first_of(seen)}")
    else:
        yield skipped("leases", "no scheduler that is named has a Lease")
