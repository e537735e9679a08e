"""What is looked at of an installation, each thing once, and the lines in which it is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from controller.canary.leases import LATE_SECONDS
from controller.clock import Clock
from controller.errors import ForbiddenError, SchedulerError
from controller.kube.api import CALL_SECONDS, KubeApi, Raw, find
from controller.kube.lease import LeaseClient, LeaseRecord
from controller.kube.resources import CONFIG_MAPS, PODS
from controller.model.times import utc_time
from controller.settings import TLS_OFF, UNREAD, LiveSettings, ProcessSettings, flag_of, live_settings

CONTROLLER: Final = "longhorn-scheduler-extender"  # by the pods' label, and of the Deployment and the account
WEBHOOK: Final = "longhorn-scheduler-webhook"
_DENIED: Final = re.compile(r'cannot (\w+) (resource "([\w/.-]+)" in API group "([\w.-]*)"|path "([^"]+)")')

Document = Callable[[str], Mapping[str, Any]]
"""The leader's JSON document of a path, as "/overview". Raises SchedulerError or OSError."""


class CheckOutcome(StrEnum):
    """What came of a try. `SKIPPED`: it could not be made, or there is nothing to try."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line. `what`: a short constant word, as in "gate"; `hint`: what to do, "" where there is nothing."""

    what: str
    outcome: CheckOutcome
    text: str
    hint: str = ""


def ok(what: str, text: str) -> CheckResult:
    return CheckResult(what, CheckOutcome.OK, text)


def warning(what: str, text: str, hint: str) -> CheckResult:
    return CheckResult(what, CheckOutcome.WARNING, text, hint)


def failure(what: str, text: str, hint: str) -> CheckResult:
    return CheckResult(what, CheckOutcome.FAILURE, text, hint)


def skipped(what: str, text: str, hint: str = "") -> CheckResult:
    return CheckResult(what, CheckOutcome.SKIPPED, text, hint)


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """What is tried. `test_namespace`: where the dry runs' pods would be; `scheduler_name`: theirs, "" for the first of
    `--scheduler-names`. `address`: HOST:PORT of the extender in place of its Service, or "". `is_inside`: whether this
    runs in the cluster, where the Service's name is known."""

    namespace: str
    test_namespace: str = "default"
    scheduler_name: str = ""
    address: str = ""
    is_inside: bool = False


class Site:
    """One look at an installation. What is read of the API server is read when it is first asked for.

    Threads: any; two that ask at once read twice. I/O: the API server, and the leader through `document`. Errors:
    ClusterError of every property.
    """

    def __init__(self, api: KubeApi, clock: Clock, target: CheckTarget, document: Document) -> None:
        self.api, self.target, self._clock, self._document = api, target, clock, document
        self.namespace = target.namespace

    @property
    def now_utc(self) -> datetime:
        """By the API server's clock, else this machine's."""
        return self.api.server_utc() or self._clock.now_utc()

    @cached_property
    def controllers(self) -> Sequence[Raw]:
        """The controller's pods that are not ending."""
        return self._pods(CONTROLLER)

    @cached_property
    def webhooks(self) -> Sequence[Raw]:
        return self._pods(WEBHOOK)

    def _pods(self, name: str) -> Sequence[Raw]:
        page = self.api.list_page(PODS, self.namespace, labelSelector=f"app.kubernetes.io/name={name}")
        return [pod for pod in page.items if not pod["metadata"].get("deletionTimestamp")]

    @cached_property
    def settings(self) -> ProcessSettings:
        """The flags with which the newest of the controller's pods runs; the defaults where they cannot be seen."""
        try:
            pods = sorted(self.controllers, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
        except ForbiddenError:
            pods = []
        containers = pods[-1]["spec"]["containers"] if pods else [{}]
        return started_with(containers[0].get("args") or (), self.namespace)

    @property
    def has_webhook(self) -> bool:
        return self.settings.webhook_tls_mode != TLS_OFF

    @cached_property
    def lease(self) -> LeaseRecord:
        """The leader's."""
        return self.lease_of(self.namespace, self.settings.lease)

    @property
    def holder(self) -> str:
        """The name of the pod that leads; "" if none does."""
        return self.lease.holder.rpartition("_")[0]

    def lease_of(self, namespace: str, name: str) -> LeaseRecord:
        return LeaseClient(self.api, namespace, name, self._clock).read(CALL_SECONDS)

    def silent_seconds(self, lease: LeaseRecord) -> float:
        """How long ago it was renewed. ValueError where it does not say when."""
        return max(0.0, (self.now_utc - utc_time(lease.renewed_utc)).total_seconds())

    def is_left(self, lease: LeaseRecord) -> bool:
        """Whether its holder renews it no more. ValueError as of `silent_seconds`."""
        return self.silent_seconds(lease) > lease.duration_seconds + LATE_SECONDS

    @cached_property
    def data(self) -> Mapping[str, str] | None:
        """The ConfigMap's data; None if it does not exist."""
        found = find(self.api, CONFIG_MAPS, self.namespace, self.settings.config_map)
        return (found.get("data") or {}) if found is not None else None

    @property
    def live(self) -> LiveSettings:
        """The live settings, as a leader that starts now would read them."""
        return live_settings(self.data, {}, UNREAD)[0]

    @cached_property
    def overview(self) -> Mapping[str, Any] | str:
        """The leader's own view (`/overview`), or why it cannot be had."""
        try:
            return self._document("/overview")
        except (SchedulerError, OSError, ValueError) as error:
            return str(error) or repr(error)


def started_with(words: Iterable[str], namespace: str) -> ProcessSettings:
    """The settings that a controller's arguments name, the defaults for others."""
    given, flag = dict[str, str](), ""
    for word in words:
        name, _, value = str(word).partition("=")
        if flag:
            given[flag], flag = str(word), ""
        elif value:
            given[name] = value
        elif name.startswith("--"):
            flag = name
    defaults, chosen = replace(ProcessSettings(), namespace=namespace, tls_mode="self"), dict[str, Any]()
    for field in fields(defaults):
        text = given.get(flag_of(field.name), "")
        is_number = isinstance(getattr(defaults, field.name), int)
        if text and (not is_number or text.isdecimal()):
            chosen[field.name] = int(text) if is_number else text
    return replace(defaults, **{**chosen, "namespace": namespace})


def missing_right(error: ForbiddenError) -> str:
    """The right that the caller lacks, as in "list pods"; "" where something else refused the call."""
    found = _DENIED.search(str(error))
    if found is None:
        return ""
    verb, _, resource, group, path = found.groups()
    return f"{verb} {path or '.'.join(filter(None, (resource, group)))}"


def first_of(names: Iterable[str], most: int = 5) -> str:
    """A few of the names, and how many there are besides."""
    found = sorted(names)
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


Try = Callable[[Site], Iterator[CheckResult]]
