"""Everything that can be wrong with an installation, tried side by side, one line for each finding.

What changes nothing is tried for real: pods and placements by dry runs, the extender by a question for which nothing is
held. What the caller has no right to try is skipped, and the right is named.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from controller.clock import Clock
from controller.errors import ConfigError, ForbiddenError, SchedulerError
from controller.installation.certificates import try_bundles, try_extender_chain, try_webhook_chain
from controller.installation.gate import try_gate, try_placement, try_settings
from controller.installation.leader import try_copies, try_endpoints, try_leader, try_webhook_copies
from controller.installation.longhorn import try_csi_driver, try_longhorn
from controller.installation.paths import try_extender, try_growth, try_pod
from controller.installation.rights import try_rights
from controller.installation.site import (
    CheckOutcome,
    CheckResult,
    CheckTarget,
    Document,
    Site,
    Try,
    failure,
    missing_right,
    ok,
    skipped,
)
from controller.installation.wiring import try_leases, try_profiles, try_schedulers, try_wiring
from controller.kube.api import KubeApi, find, why_unreachable
from controller.kube.resources import NAMESPACES

LOOK_SECONDS: Final = 1.0
AT_ONCE: Final = 8
BAD: Final = (CheckOutcome.WARNING, CheckOutcome.FAILURE)
TRIES: Final[Mapping[Try, str]] = {
    try_longhorn: "longhorn",
    try_csi_driver: "csi driver",
    try_settings: "settings",
    try_leader: "leader",
    try_copies: "copies",
    try_webhook_copies: "webhook copies",
    try_endpoints: "endpoints",
    try_wiring: "wiring",
    try_schedulers: "kube-scheduler",
    try_profiles: "profiles",
    try_leases: "leases",
    try_extender: "extender",
    try_pod: "webhook",
    try_growth: "growth",
    try_gate: "gate",
    try_placement: "placement",
    try_extender_chain: "certificate",
    try_webhook_chain: "certificate",
    try_bundles: "ca bundle",
    try_rights: "rights",
}
"""In the order of their lines, with the word for what is tried."""
SAME: Final = {
    "certificate-expiry": "certificate",
    "growth-unchecked": "growth",
    "mode": "settings",
    "plain-http": "certificate",
    "setting": "settings",
}
"""The leader's words for what a try finds as well; others are the same."""


def check_installation(
    api: KubeApi,
    clock: Clock,
    target: CheckTarget,
    document: Document,
    *,
    wait_seconds: float = 0.0,
    pause: Callable[[float], None] = time.sleep,
    tries: Mapping[Try, str] = TRIES,
) -> Iterator[CheckResult]:
    """Yields each line when it is final. What fails is tried again until `wait_seconds` are over: right after an
    installation the leader has yet to be elected.

    Threads: its own for the tries. Blocks: as said. I/O: the API server, the extender, the leader. Errors: ClusterError
    if the API server cannot be reached, ConfigError for a namespace that does not exist.
    """
    with suppress(ForbiddenError):
        if find(api, NAMESPACES, None, target.namespace) is None:
            raise ConfigError(f"--namespace: there is no namespace {target.namespace}")
    deadline, open_tries, told = clock.now() + wait_seconds, list(tries), set[str]()
    while True:
        problems, found = _look(Site(api, clock, target, document), {one: tries[one] for one in open_tries})
        is_over = clock.now() >= deadline
        for one, results in found.items():
            if is_over or not _fails(results):
                open_tries.remove(one)
                told |= {result.what for result in results if result.outcome in BAD}
                yield from results
        covered = told | {result.what for results in found.values() for result in results if result.outcome in BAD}
        left = [one for one in problems if SAME.get(one.what, one.what) not in covered]
        if is_over or not (open_tries or _fails(left)):
            yield from left
            return
        pause(LOOK_SECONDS)


def _look(site: Site, tries: Mapping[Try, str]) -> tuple[Sequence[CheckResult], Mapping[Try, Sequence[CheckResult]]]:
    """What the leader says, and the lines of each try."""
    problems = [*_of_overview(site)]  # first: it is read once, by one thread
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="check") as pool:
        lines = pool.map(lambda one: _results_of(site, one, tries[one]), tries)
        return problems, dict(zip(tries, lines, strict=True))


def _fails(results: Collection[CheckResult]) -> bool:
    return any(result.outcome is CheckOutcome.FAILURE for result in results)


def _results_of(site: Site, one: Try, what: str) -> Sequence[CheckResult]:
    """The lines of one try, whatever it meets."""
    results = list[CheckResult]()
    try:
        results.extend(one(site))
    except ForbiddenError as error:
        right = missing_right(error)
        is_lacking = f"not looked at: may not {right}"
        hint = "somebody else refuses what is tried: see the message"
        results.append(skipped(what, is_lacking) if right else failure(what, str(error), hint))
    except (SchedulerError, OSError, ValueError, http.client.HTTPException) as error:
        text = str(error) if isinstance(error, SchedulerError) else why_unreachable(error)
        results.append(failure(what, text, "docs/operations.md, What happens when"))
    return results


def _of_overview(site: Site) -> Iterator[CheckResult]:
    """What the leader itself sees: missed and stuck pods, disks, certificates in use, and more."""
    if isinstance(site.overview, str):
        yield skipped("status", f"the leader's own view was not looked at: {site.overview}")
        return
    problems = site.overview.get("problems") or ()
    for one in problems:
        outcome = CheckOutcome.FAILURE if one.get("severity") == "failure" else CheckOutcome.WARNING
        yield CheckResult(str(one.get("what")), outcome, str(one.get("text")), str(one.get("hint")))
    if not problems:
        yield ok("status", "the leader sees no problem")
