"""What the process knows to be wrong, for `/overview`: nothing of it is normal on a healthy installation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.allocator.outcome import DiskOver, Mode, SharedDisk
from controller.assembly.configuration import MODE_TEXTS
from controller.canary.proof import Finding, Wiring
from controller.kube.informer import STALE_SECONDS
from controller.model.quantity import bytes_text
from controller.placement.gate import TEXTS as GATE_TEXTS
from controller.placement.gate import GateState
from controller.process.common_metrics import StoreState
from controller.process.worker import WorkerState
from controller.views.documents import Problem

FAILURE, WARNING = "failure", "warning"
NEAR_END_SECONDS: Final = 7 * 86_400.0  # of a certificate: whoever renews them does so long before
FAILED_SECONDS: Final = 60.0  # for which a failed round of a worker is told
NAMED: Final = 5  # in one sentence
_FORMER: Final = "ca-previous"  # authorities that are trusted until the last one forgets them; their end is none
_OPEN_GATES: Final = {GateState.MISSING: FAILURE, GateState.AUDIT: WARNING, GateState.OPENING: WARNING}


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What the parts of the process say of themselves. `leader`: "" if all is well, else why nobody leads, or why this
    process does not yet. `ends`: of certificates, in seconds from now. `missed`: pods by scheduler. Others: a text is a
    problem, "" none."""

    leader: str = ""
    mode: Mode = Mode.ACTIVE
    gate: GateState = GateState.ENFORCED
    gate_problem: str = ""
    findings: Sequence[Finding] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    certificates: Sequence[str] = ()
    ends: Mapping[str, float] = field(default_factory=dict)
    plain_http: str = ""
    stuck: int = 0
    missed: Mapping[str, int] = field(default_factory=dict)
    disks_over: Sequence[DiskOver] = ()
    shared_disks: Sequence[SharedDisk] = ()
    quarantined: Sequence[str] = ()
    unwritten: int = 0
    plans: str = ""
    stores: Sequence[StoreState] = ()
    workers: Sequence[WorkerState] = ()
    growth: str = ""
    webhooks: Sequence[str] = ()
    rpc: str = ""
    longhorn: str = ""
    record: str = ""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    placing: str = ""
    published: str = ""


def problems_of(facts: ProcessFacts) -> list[Problem]:
    """All of them, the worst first."""
    found = [problem for look in _LOOKS for problem in look(facts)]
    return sorted(found, key=lambda one: one.severity != FAILURE)


def _leader(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.leader:
        hint = "See whether pods of the controller run and reach the API server, and their logs."
        yield Problem(FAILURE, "leader", facts.leader, hint)


def _mode(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.mode is Mode.ACTIVE:
        return
    severity = FAILURE if facts.mode is Mode.UNKNOWN else WARNING
    hint = "Set scheduler-extender-enabled to true and scheduler-extender-bypass to false in the settings' ConfigMap."
    yield Problem(severity, "mode", f"Mode {facts.mode}: {MODE_TEXTS[facts.mode]}.", hint)


def _gate(facts: ProcessFacts) -> Iterator[Problem]:
    severity = _OPEN_GATES.get(facts.gate, WARNING if facts.gate_problem else "")
    if severity:
        text = GATE_TEXTS.get(facts.gate, f"The gate is {facts.gate}")
        text += f" ({facts.gate_problem})" if facts.gate_problem else ""
        hint = "docs/rules/placement.md: bring back policy, binding and ServiceAccount by applying the manifest."
        if facts.gate is GateState.AUDIT:
            hint = "Set scheduler-extender-placement to leader to have others refused."
        yield Problem(severity, "gate", f"{text}.", hint)


def _wiring(facts: ProcessFacts) -> Iterator[Problem]:
    for one in facts.findings:
        if one.state is Wiring.UNWIRED:
            hint = "Name the extender in its configuration; render-scheduler-config prints it (docs/kube-scheduler.md)."
            yield Problem(FAILURE, "wiring", f"{one.scheduler} does not ask the extender: {one.cause}.", hint)
        elif one.state is Wiring.UNKNOWN:
            hint = "It is checked again by itself. If this lasts, see docs/operations.md, Is kube-scheduler wired."
            text = f"It is not known whether {one.scheduler} asks the extender: {one.cause}."
            yield Problem(WARNING, "wiring", text, hint)


def _settings(facts: ProcessFacts) -> Iterator[Problem]:
    for name, text in sorted(facts.settings.items()):
        hint = "Correct it in the settings' ConfigMap, or in Longhorn's settings; until then its former value counts."
        yield Problem(WARNING, "setting", f"{name}: {text}", hint)


def _certificates(facts: ProcessFacts) -> Iterator[Problem]:
    hint = "docs/certificates.md tells who renews it and how; `certs` shows the chain."
    for text in facts.certificates:
        yield Problem(WARNING, "certificate", text, hint)
    for name, seconds in sorted(facts.ends.items(), key=lambda entry: entry[1]):
        if seconds <= 0:
            yield Problem(FAILURE, "certificate-expiry", f"The certificate {name} has expired.", hint)
        elif seconds < NEAR_END_SECONDS and _FORMER not in name:
            text = f"The certificate {name} expires in {seconds / 3600:.0f} hours."
            yield Problem(WARNING, "certificate-expiry", text, hint)


def _plain_http(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.plain_http:
        hint = "Use another --tls-mode (chart: tls.mode), and put its certificates into kube-scheduler's files."
        yield Problem(WARNING, "plain-http", f"kube-scheduler is answered over {facts.plain_http}.", hint)


def _pods(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.stuck:
        text = f"{_count(facts.stuck, 'pod waits', 'pods wait')} in vain: their scheduler does not know the extender."
        hint = "Name the extender in that scheduler's configuration, or recreate the pods without the resource."
        yield Problem(FAILURE, "stuck-pods", text, hint)
    count = sum(facts.missed.values())
    if count:
        names = ", ".join(f"{scheduler}: {number}" for scheduler, number in facts.missed.items() if number)
        text = f"{_count(count, 'pod', 'pods')} with Longhorn volumes that nobody checks, by scheduler: {names}."
        hint = "Recreate them while the webhook is reachable; list further schedulers in --scheduler-names."
        yield Problem(WARNING, "missed-pods", text, hint)


def _disks(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.disks_over:
        over = sorted(facts.disks_over, key=lambda one: -one.over_bytes)
        names = _some(f"{one.node}/{one.disk} by {bytes_text(one.over_bytes)}" for one in over)
        hint = "Move or delete replicas there, add a disk, or raise the over-provisioning; nothing new is placed there."
        count = _count(len(over), "disk holds", "disks hold")
        yield Problem(WARNING, "disks-over", f"{count} more than the limit: {names}.", hint)
    for shared in facts.shared_disks:
        names = _some(f"{node}/{disk}" for node, disk in shared.disks)
        hint = "Give each disk a UUID of its own: Longhorn takes those of cloned nodes for one (docs/operations.md)."
        yield Problem(WARNING, "shared-disk", f"Disks with the same UUID {shared.uuid}: {names}.", hint)


def _quarantine(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.quarantined:
        text = f"Answered by an error after a fault of ours: {_some(facts.quarantined)}."
        hint = "Report it with the log and /status. It ends by itself within five minutes."
        yield Problem(WARNING, "quarantine", text, hint)


def _plans(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.plans:
        text = f"{_count(facts.unwritten, 'plan or hold is', 'plans and holds are')} not stored: {facts.plans}."
        hint = "A change of leader loses what is not stored. See the rights to the ConfigMaps, and their size."
        yield Problem(WARNING, "plans-unwritten", text, hint)


def _stores(facts: ProcessFacts) -> Iterator[Problem]:
    late = [one for one in facts.stores if not one.is_synced or one.age_seconds > STALE_SECONDS]
    if late:
        text = f"Not up to date, so that no pod is answered: {_some(one.kind for one in late)}."
        hint = "See whether the API server is reached, and the rights to list and watch these kinds."
        yield Problem(FAILURE, "stale-data", text, hint)
    for one in facts.stores:
        if one.bad:
            text = f"{_count(one.bad, 'object', 'objects')} of kind {one.kind} cannot be read."
            hint = "/status names them under stores, with the reason."
            yield Problem(WARNING, "unreadable-objects", text, hint)


def _workers(facts: ProcessFacts) -> Iterator[Problem]:
    for one in facts.workers:
        if one.problem:
            hint = "The liveness probe has the process started anew."
            yield Problem(FAILURE, "worker", f"{one.problem}.", hint)
        elif one.failed_seconds_ago is not None and one.failed_seconds_ago < FAILED_SECONDS:
            hint = "It is tried again by itself. The log has the trace."
            yield Problem(WARNING, "worker", f"The last round of {one.name} failed: {one.last_failure}", hint)


def _growth(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.growth:
        hint = "Let the webhook's pods reach port 9505 of the controller's pods; `helm test` tries it as well."
        yield Problem(FAILURE, "growth-unchecked", f"{facts.growth}.", hint)


def _longhorn(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.longhorn:
        hint = "docs/compatibility.md lists the releases. No new pod opts in."
        yield Problem(FAILURE, "longhorn", f"Longhorn is not supported: {facts.longhorn}.", hint)


def _record(facts: ProcessFacts) -> Iterator[Problem]:
    if facts.record:
        hint = "docs/disk-scheduler.md, The record."
        yield Problem(WARNING, "record", f"Allocations are not on record: {facts.record}.", hint)
    if facts.unreadable:
        text = (
            f"The record of {_some(sorted(facts.unreadable))} cannot be read: {next(iter(facts.unreadable.values()))}"
        )
        hint = "The leader writes it anew (docs/disk-scheduler.md, A damaged record)."
        yield Problem(WARNING, "record-unreadable", text, hint)


def _parts(facts: ProcessFacts) -> Iterator[Problem]:
    hint = "The log of the leader has the error with its time; it is tried again by itself."
    for what, texts in (
        ("webhooks", facts.webhooks),
        ("rpc", (facts.rpc,)),
        ("placement", (facts.placing,)),
        ("status-access", (facts.published,)),
    ):
        yield from (Problem(WARNING, what, text, hint) for text in texts if text)


_LOOKS: Final[Sequence[Callable[[ProcessFacts], Iterable[Problem]]]] = (
    _leader,
    _mode,
    _gate,
    _wiring,
    _pods,
    _stores,
    _growth,
    _longhorn,
    _workers,
    _certificates,
    _plain_http,
    _settings,
    _disks,
    _quarantine,
    _plans,
    _record,
    _parts,
)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _some(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")
