"""The documents of the status port: what each part of the process knows, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final, Protocol

from controller.admission.build import AdmissionWorker
from controller.allocator.allocator import Allocator
from controller.assembly.certificates import CertificateWorker, WebhookChain, transport_status
from controller.assembly.lifecycle import Lifecycle
from controller.assembly.problems import ProcessFacts, problems_of
from controller.assembly.status_access import explained
from controller.canary.proof import WiringProof
from controller.clock import Clock
from controller.election.elector import Elector
from controller.errors import NotLeaderError
from controller.follow.stores import Stores
from controller.model.times import rfc3339
from controller.placement.build import PlacementParts
from controller.process.common_metrics import store_entries
from controller.process.named_part import NamedPart
from controller.process.status_app import Answer, Asked
from controller.process.version import product_version
from controller.process.worker import Worker, worker_entries
from controller.record.keeper import RecordKeeper
from controller.settings import ProcessSettings
from controller.views.decisions import DecisionLog
from controller.views.documents import Capacity, DecisionEntry, Explanation, Overview
from controller.views.overview import OverviewParts
from controller.views.views import Views
from controller.workers.support import SupportWatch

MOST_REPLICAS: Final = 200  # whose names are told


class ReportedParts(Protocol):
    """The parts of the process that the documents tell of; in the product `Controller`."""

    settings: ProcessSettings
    identity: str
    clock: Clock
    allocator: Allocator
    stores: Stores
    lifecycle: Lifecycle
    elector: Elector
    support: SupportWatch
    proof: WiringProof
    admission: AdmissionWorker
    placement: PlacementParts
    record: RecordKeeper
    rpc: NamedPart
    certificates: CertificateWorker
    webhook_chain: WebhookChain
    decisions: DecisionLog
    views: Views
    parts: Sequence[NamedPart]

    @property
    def workers(self) -> Sequence[Worker]: ...
    def is_leading(self) -> bool: ...


class StatusDocuments:
    """Each document is made anew, from the parts' own views. Threads: any. Blocks: never. I/O: none."""

    def __init__(self, process: ReportedParts, published: Callable[[], str]) -> None:
        """`published`: why what callers need is not published; "" if it is."""
        self._process, self._published = process, published

    def answers(self) -> Mapping[str, Answer]:
        """By path, for `StatusApp`."""
        return {
            "/status": lambda _: self.status(),
            "/overview": lambda _: self.overview(),
            "/decisions": self.decisions,
            "/capacity": lambda _: self.capacity(),
            "/explain/": self.explain,
        }

    def decisions(self, asked: Asked) -> Sequence[DecisionEntry]:
        return self._process.decisions.after(asked.number("after"), asked.number("last"))

    def capacity(self) -> Capacity:
        """NotLeaderError on a follower."""
        self._check_leading()
        return self._process.views.capacity()

    def explain(self, asked: Asked) -> Explanation:
        """NotLeaderError on a follower, NotFoundError for another path."""
        one = explained(asked.path)
        self._check_leading()
        views = self._process.views
        if one.kind == "volumes":
            return views.explain_volume(one.name, asked.sees)
        explain = views.explain_pod if one.kind == "pods" else views.explain_claim
        return explain(one.namespace, one.name, asked.sees)

    def _check_leading(self) -> None:
        process = self._process
        if not process.is_leading():
            holder = process.elector.holder
            other = f"the leader is {holder}" if holder and holder != process.identity else "nobody leads at the moment"
            raise NotLeaderError(f"this copy does not lead; {other}")

    def overview(self) -> Overview:
        process = self._process
        found, placer = process.views.parts(), process.placement.placer.figures()
        release = process.support.current
        replicas = [one for one in process.stores.by_kind["replica"].values() if not one.node]
        ages = [one.age_seconds for one in process.stores.states() if one.age_seconds < inf]
        now_utc = process.clock.now_utc()
        return Overview(
            time=rfc3339(now_utc),
            identity=process.identity,
            node=process.settings.node_name,
            is_leading=process.is_leading(),
            holder=process.elector.holder,
            term=process.lifecycle.term,
            since=process.lifecycle.since,
            mode=process.lifecycle.mode,
            version=product_version(),
            longhorn=(release.version or "unknown") if release is not None else "",
            gate=process.placement.gate.figures().state,
            wiring={one.scheduler: one.state for one in process.proof.findings()},
            problems=problems_of(self._facts(found)),
            totals=found.totals,
            disks=found.disks,
            waiting=found.waiting,
            more_waiting=found.more_waiting,
            plans=found.plans,
            more_plans=found.more_plans,
            held_replicas=sorted(one.name for one in replicas if one.held)[:MOST_REPLICAS],
            left_replicas=sorted(one.name for one in replicas if one.is_left)[:MOST_REPLICAS],
            waiting_replicas=placer.waiting,
            workers={name: one["problem"] or "well" for name, one in worker_entries(process.workers).items()},
            oldest_data_seconds=round(max(ages, default=0.0), 3),
        )

    def _facts(self, found: OverviewParts) -> ProcessFacts:
        process = self._process
        configured, release = process.lifecycle.configured, process.support.current
        gate, plans = process.placement.gate.figures(), process.placement.plans.figures()
        record, placer = process.record.figures(), process.placement.placer.figures()
        is_leading = process.is_leading()
        return ProcessFacts(
            leader=self._why_no_leader(),
            mode=process.lifecycle.mode,
            gate=gate.state,
            gate_problem=gate.problem,
            findings=process.proof.findings(),
            settings=configured.problems if configured is not None else {},
            certificates=(*process.certificates.problems, *process.webhook_chain.problems),
            ends={**process.certificates.expiries(), **process.webhook_chain.expiries()},
            plain_http=transport_status(process.settings)["gives_up"],
            stuck=len(process.admission.stuck),
            missed=process.admission.missed.by_scheduler(),
            disks_over=found.disks_over,
            shared_disks=found.shared_disks,
            quarantined=found.quarantined,
            unwritten=plans.unwritten,
            plans=plans.problem if is_leading else "",
            stores=process.stores.states(),
            workers=[worker.state() for worker in process.workers],
            growth=process.admission.growth_path.problem,
            webhooks=process.admission.reconciler.problems,
            rpc=process.rpc.status()["problem"],
            longhorn=release.support.problem if release is not None else "",
            record=record.problem,
            unreadable=record.unreadable,
            placing=placer.problem if is_leading else "",
            published=self._published(),
        )

    def _why_no_leader(self) -> str:
        process = self._process
        if process.is_leading():
            return ""
        holder = process.elector.holder
        if not holder:
            return "Nobody leads: no pod with a Longhorn volume is scheduled."
        return "This copy holds the Lease, and does not answer yet." if holder == process.identity else ""

    def status(self) -> Mapping[str, Any]:
        """What `/status` shows: all that the parts say of themselves. Each entry is quick, takes only its owner's lock,
        and fits JSON."""
        process = self._process
        snapshot, configured = process.allocator.snapshot(), process.lifecycle.configured
        return {
            "identity": process.identity,
            "node": process.settings.node_name,
            "is_leading": process.is_leading(),
            "holder": process.elector.holder,
            "term": process.lifecycle.term,
            "mode": process.lifecycle.mode,
            "longhorn": process.support.current,
            "transport": transport_status(process.settings),
            "wiring": process.proof.status(),
            **{one.name: one.status() for one in process.parts},
            "workers": worker_entries(process.workers),
            "settings": configured.live if configured else None,
            "longhorn_settings": configured.longhorn if configured else None,
            "settings_problems": configured.problems if configured else {},
            "settings_notes": configured.notes if configured else {},
            "certificates": {name: round(seconds) for name, seconds in process.certificates.expiries().items()},
            "certificate_problems": process.certificates.problems,
            "held": {"count": snapshot.held_count, "bytes": snapshot.held_bytes},
            "planned": {"count": snapshot.planned_count, "bytes": snapshot.planned_bytes},
            "oldest_hold_seconds": round(snapshot.oldest_hold_seconds, 3),
            "refused_pods": snapshot.refused_count,
            "quarantined": snapshot.quarantined,
            "promises": snapshot.promises,
            "disks_over": snapshot.disks_over,
            "shared_disks": snapshot.shared_disks,
            "counters": snapshot.counters,
            "stores": store_entries(process.stores.states(), lambda kind: process.stores.by_kind[kind].bad),
        }
