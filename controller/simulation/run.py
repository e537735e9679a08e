"""The simulation itself: settings, losses with what follows, growth, then workloads, as kube-scheduler takes them.

Each pod is filtered as the extender does it, beside all that was decided before; among the nodes that pass, the one
with the best score of `prioritize` is taken, of equal ones the one with the fewest pods, then the first by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from controller.allocator.outcome import FilterOutcome
from controller.allocator.verbs.grow import GrowthOutcome, GrowthRequest, GrowthVerdict
from controller.model.quantity import bytes_text
from controller.model.times import rfc3339
from controller.model.workload import Claim
from controller.plan.complaints import InputError, Notes
from controller.simulation.documents import (
    CopyPlace,
    DiskChange,
    GrowthView,
    Placeless,
    PodOutcome,
    RebuildOutcome,
    Simulation,
    VolumeOutcome,
)
from controller.simulation.losses import Losses
from controller.simulation.queue import COMES, WAITS, QueuedPod, in_order, owner_text, queued, to_come, waits
from controller.simulation.state import IMMEDIATE, SavedCluster, State, counted
from controller.simulation.workloads import Workload, Workloads
from controller.views.documents import DiskView

POD_SECONDS: Final = 0.1  # between two pods, so that times differ
_ORDER: Final = ("pod", "claim", "volume")  # of findings
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class GrownClaim:
    """A claim that is to have that size."""

    namespace: str
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Question:
    """What if? All parts together, in this order. `text`: the same for people."""

    settings: Mapping[str, str] = field(default_factory=dict)
    fail: Sequence[str] = ()
    drain: Sequence[str] = ()
    grow: Sequence[GrownClaim] = ()
    wanted: Workloads = field(default_factory=Workloads)
    text: Sequence[str] = ()

    @property
    def is_about_waiting(self) -> bool:
        """Whether nothing but the pods that wait already can find a place or none."""
        return not (self.fail or self.drain or self.grow or self.wanted.workloads or self.wanted.claims)


def simulate(
    source: SavedCluster, question: Question, now_utc: datetime, progress: Progress = lambda _done, _all: None
) -> Simulation:
    """What would happen. InputError names flag, object and field. I/O: none. `progress`: pods that are done, of how
    many."""
    notes = Notes(is_lenient=True)
    state = State(source, now_utc, notes)
    state.nodes_needed(question.fail, "--fail")
    state.nodes_needed(question.drain, "--drain")
    return _Run(state, question).answer(source, now_utc, progress)


class _Run:
    def __init__(self, state: State, question: Question) -> None:
        self._state, self._question, self._cluster = state, question, state.cluster
        self._losses = Losses()
        self._findings = list[Placeless]()
        self._pods = list[PodOutcome]()
        self._standing = Counter[str]()  # by workload, pods that were there
        self._refused = set[tuple[str, str]]()  # owner and pod, on whose node others of the owner wait
        self._told = dict[object, str]()  # by owner and reasons, the refused pod whose sentence stands for the others
        self._unmodelled = Counter[str]()
        self._used = set[str]()  # claims of pods
        self._open = 0  # pods for which several nodes would do

    def answer(self, source: SavedCluster, now_utc: datetime, progress: Progress) -> Simulation:
        state, question = self._state, self._question
        before = self._cluster.disks()
        state.change_settings(question.settings)
        self._place_what_waits()
        waiting = [queued(raw, WAITS, owner=owner_text(raw)) for raw in state.pods.values() if waits(raw)]
        for node in question.fail:
            self._losses.fail(state, node)
        for node in question.drain:
            self._losses.drain(state, node)
        self._schedule_all([*waiting, *self._losses.moved], progress)
        rebuilds = list(self._rebuilds())
        growths = [self._grow(one) for one in question.grow]
        standing = self._bring_objects()
        self._schedule_all([one for of in question.wanted.workloads for one in self._to_come(of)], progress)
        claims = [found for claim in standing if claim.key not in self._used for found in self._standing_claim(claim)]
        self._find(rebuilds)
        return Simulation(
            time=rfc3339(now_utc),
            source=source.origin,
            question=question.text,
            findings=self._findings,
            pods=[*self._pods, *self._losses.ended],
            growths=growths,
            rebuilds=rebuilds,
            claims=claims,
            disks=_changes(before, self._cluster.disks()),
            remarks=[*source.remarks, *self._remarks(), *state.notes.lines()],
        )

    def _schedule_all(self, pods: Iterable[QueuedPod], progress: Progress) -> None:
        """One after the other, in kube-scheduler's order."""
        queue = in_order(pods)
        for number, one in enumerate(queue):
            progress(number, len(queue))
            self._pods.append(self._schedule(one))
            self._cluster.clock.advance(POD_SECONDS)

    def _place_what_waits(self) -> None:
        """Replicas that stand there without a disk are the leader's to place, before anything else comes."""
        world = self._cluster.world
        for name in list(world.volumes):
            if any(not one.node for one in world.replicas_of(name).values()):
                self._cluster.place_copies(name, tries=1)

    # What comes

    def _bring_objects(self) -> list[Claim]:
        """Adds the classes and claims that come; the claims."""
        state, wanted = self._state, self._question.wanted
        for raw in wanted.classes:
            state.add_class(raw)
        found = list[Claim]()
        for raw in wanted.claims:
            claim = state.add_claim(raw)
            if claim is None:
                self._standing[f"PersistentVolumeClaim {raw['metadata']['namespace']}/{raw['metadata']['name']}"] += 1
            else:
                self._provision_early(claim)
                found.append(claim)
        return found

    def _to_come(self, workload: Workload) -> Iterator[QueuedPod]:
        there = {**{one.key: one.raw for one in self._losses.moved}, **self._state.pods}
        return to_come(workload, there, list(self._state.places.nodes), self._standing)

    def _provision_early(self, claim: Claim) -> None:
        """A class that does not wait for a pod gives the claim its volume at once."""
        if not claim.volume_name and self._state.mode_of(claim) == IMMEDIATE:
            name = self._cluster.provision(claim)
            if name:
                self._cluster.place_copies(name)

    def _standing_claim(self, claim: Claim) -> Iterator[VolumeOutcome]:
        """A claim that no pod uses here."""
        facts = self._cluster.world.claims.get(claim.key)
        if facts is not None and facts.volume_name and self._cluster.world.volumes.get(facts.volume_name):
            found = self._volume(facts, facts.volume_name, self._cluster.places_of(facts.volume_name))
            if found.places or self._cluster.is_placed_detached(facts.volume_name):
                self._note_missing(found)
            yield found

    # One pod

    def _schedule(self, one: QueuedPod) -> PodOutcome:
        if (one.owner, one.before) in self._refused:
            self._refused.add((one.owner, one.facts.name))
            return self._outcome(one, "not-made", text=f"{one.owner} makes it once {one.before} runs")
        self._unmodelled.update(one.rules.unmodelled)
        found = self._try(one)
        if found.state == "refused":
            self._refused.add((one.owner, one.facts.name))
        return found

    def _try(self, one: QueuedPod) -> PodOutcome:
        state, leader = self._state, self._cluster.leader
        for raw in one.claims:
            claim = state.add_claim(raw)
            if claim is not None:
                self._provision_early(claim)
        problems = state.add_ephemeral(one.raw, one.facts)
        if problems:
            return self._outcome(one, "refused", reason="InvalidClaim", text="; ".join(problems))
        leader.observe_pod(one.key, one.facts)
        for claim in self._cluster.world.claims_of(one.facts):
            self._used.add(claim.key)
            self._provision_early(claim)
        lacking = self._lacking(one)
        if lacking:
            return self._outcome(one, "refused", reason="NotFound", text=lacking)
        why = state.places.why_not(one.rules)
        candidates = [name for name, text in why.items() if not text and one.only in ("", name)]
        if not candidates:
            return self._outcome(one, "refused", reason="Unschedulable", text=_no_node(why, one.only))
        if not one.facts.volumes:
            return self._bind(one, self._choice(candidates, {}))
        outcome = leader.hold_pod(one.facts.uid, candidates)
        if not outcome.passed:
            return self._refusal(one, outcome, why)
        scores = leader.score_nodes(one.facts.uid, list(outcome.passed))
        return self._bind(one, self._choice(outcome.passed, scores))

    def _lacking(self, one: QueuedPod) -> str:
        """What the pod refers to and does not exist, or has lost its data; "" if nothing."""
        world = self._cluster.world
        demands, missing = world.demands_of(one.facts)
        for demand in demands:
            if demand.volume in self._state.lost:
                return f"the data of claim {demand.claim} is lost with {self._state.lost[demand.volume]}"
        for entry in missing:
            if entry.kind == "backup":
                world.absent[entry] = self._cluster.clock.now()
                text = f"Backup {entry.name} is not known: its volumes count as large as is requested"
                self._state.notes.remark(text)
            else:
                return f"there is no {entry.text}"
        return ""

    def _choice(self, names: Collection[str], scores: Mapping[str, int]) -> str:
        places = self._state.places
        self._open += len(names) > 1
        return min(names, key=lambda name: (-scores.get(name, 0), places.count(name), name))

    def _bind(self, one: QueuedPod, node: str) -> PodOutcome:
        """The pod runs on that node, its volumes are made, attached, and their copies placed."""
        cluster, raw = self._cluster, {**one.raw, "spec": {**one.raw["spec"], "nodeName": node}}
        bound = replace(one.facts, node_name=node)
        cluster.leader.observe_pod(one.key, bound)
        self._state.pods[one.key] = raw
        self._state.places.bind(one.key, one.rules, node)
        volumes = list[VolumeOutcome]()
        for claim in cluster.world.claims_of(bound):
            name = cluster.provision(claim, node) or cluster.world.volume_of(claim.uid)
            if name not in cluster.world.volumes:
                continue
            early = [] if claim.volume_name and one.why != COMES else cluster.places_of(name)
            cluster.attach(name, node)
            new = [*early, *cluster.place_copies(name), *cluster.follow_engine(name)]
            found = self._volume(claim, name, new)
            volumes.append(found)
            self._note_missing(found)
        return self._outcome(one, "placed", node=node, volumes=volumes)

    def _volume(self, claim: Claim, name: str, new: Sequence[CopyPlace]) -> VolumeOutcome:
        cluster, missing = self._cluster, self._cluster.missing_copies(name)
        if name in self._losses.short:
            missing = 0  # told with the rebuilds
        text = cluster.why_missing(name) if missing else ""
        size = cluster.world.volumes[name].size_bytes
        return VolumeOutcome(claim.key, name, size, cluster.places_of(name), tuple(new), missing, text)

    def _note_missing(self, found: VolumeOutcome) -> None:
        if found.missing:
            copies = "1 copy finds" if found.missing == 1 else f"{found.missing} copies find"
            text = f"{copies} no disk: {found.text}" if found.text else f"{copies} no disk"
            self._findings.append(Placeless("volume", found.claim or found.volume, "CopyMissing", text))

    def _refusal(self, one: QueuedPod, outcome: FilterOutcome, why: Mapping[str, str]) -> PodOutcome:
        counts = Counter(outcome.refused.values())
        former = self._told.setdefault((one.owner, *sorted(counts.items())), one.key) if one.owner else one.key
        reason = str(counts.most_common(1)[0][0] if counts else outcome.decision)
        if former != one.key:
            return self._outcome(one, "refused", reason=reason, text=f"as {former}")
        found = self._cluster.explanation(one.facts)
        text, others = found.text, [entry for entry in why.values() if entry]
        if others:
            text = f"{text} kube-scheduler rules out {len(others)} more: {counted(others)}."
        return self._outcome(one, "refused", reason=found.cause or reason, text=text, change=found.change)

    def _outcome(
        self,
        one: QueuedPod,
        state: str,
        node: str = "",
        reason: str = "",
        text: str = "",
        change: str = "",
        volumes: Sequence[VolumeOutcome] = (),
    ) -> PodOutcome:
        if state != "placed":
            self._cluster.leader.observe_pod(one.key, None)
        return PodOutcome(
            one.facts.namespace, one.facts.name, one.owner, one.why, state, node, reason, text, change, tuple(volumes)
        )

    # Growth

    def _grow(self, one: GrownClaim) -> GrowthView:
        """Raises InputError."""
        world, key = self._cluster.world, f"{one.namespace}/{one.name}"
        claim = world.claim(one.namespace, one.name)
        if claim is None or not claim.volume_name:
            problem = "has no volume yet" if claim is not None else "does not exist"
            raise InputError("", "--grow", f"claim {key} {problem}")
        request = GrowthRequest(claim.volume_name, one.size_bytes, one.namespace, one.name)
        missing = self._cluster.leader.expansions.missing(request)
        if missing is not None:
            raise InputError("", "--grow", f"claim {key}: there is no {missing.text}")
        found = world.storage_class(claim.class_name)
        if found is not None and not found.allows_growth:
            outcome = GrowthOutcome(GrowthVerdict.REFUSED, claim.volume_name, one.size_bytes)
            return self._growth(key, outcome, f"StorageClass {found.name} has no allowVolumeExpansion")
        outcome = self._cluster.leader.expansions.hold(request, self._cluster.clock.now_utc())
        if outcome.verdict is GrowthVerdict.NOT_CHECKED:
            raise InputError("", "--grow", f"the volume of claim {key} is not Longhorn's")
        if outcome.verdict is GrowthVerdict.ADMITTED and one.size_bytes > claim.requested_bytes:
            self._cluster.leader.observe_claim(key, replace(claim, requested_bytes=one.size_bytes))
        parts = [": ".join(filter(None, (of.node, of.disk, of.rejection.message))) for of in outcome.obstacles]
        return self._growth(key, outcome, "; ".join(parts))

    def _growth(self, key: str, outcome: GrowthOutcome, text: str) -> GrowthView:
        is_refused = outcome.verdict is not GrowthVerdict.ADMITTED
        verdict, size = "refused" if is_refused else "admitted", outcome.size_bytes
        largest = outcome.largest_bytes
        if is_refused:
            most = f"; the largest size that fits is {bytes_text(largest)}" if largest else ""
            self._findings.append(Placeless("claim", key, "Growth", f"cannot grow to {bytes_text(size)}: {text}{most}"))
        return GrowthView(key, outcome.volume, size, verdict, largest, text)

    # The end

    def _rebuilds(self) -> Iterator[RebuildOutcome]:
        yield from self._losses.rebuild(self._state)
        for found in self._losses.after_drain(self._state):
            if isinstance(found, Placeless):
                self._findings.append(found)
            else:
                yield found

    def _find(self, rebuilds: Iterable[RebuildOutcome]) -> None:
        counts_waiting = self._question.is_about_waiting
        for pod in self._pods:
            if pod.state in ("refused", "not-made") and (pod.why != WAITS or counts_waiting):
                about = f"{pod.namespace}/{pod.name}"
                self._findings.append(Placeless("pod", about, pod.reason or "NotMade", pod.text, pod.change))
        for one in rebuilds:
            if one.state in ("lost", "degraded"):
                reason = "DataLost" if one.state == "lost" else "CopyMissing"
                self._findings.append(Placeless("volume", one.claim or one.volume, reason, one.text))
        self._findings.sort(key=lambda one: _ORDER.index(one.kind))

    def _remarks(self) -> Iterator[str]:
        for owner, count in sorted(self._standing.items()):
            is_one = "is there already" if count == 1 else f"has {count} pods already"
            yield f"{owner} {is_one}: only what is added comes"
        if self._open:
            yield f"for {self._open} of the pods several nodes would do: kube-scheduler may choose another one"
        for what, count in sorted(self._unmodelled.items()):
            yield f"{what} are not modelled; {count} pods have them"
        ignored = self._question.wanted.ignored
        if ignored:
            yield f"objects that find no place by themselves: {counted(ignored.elements())}"


def _no_node(why: Mapping[str, str], only: str) -> str:
    if only:
        return f"its node {only}: {why.get(only, 'is unknown')}"
    return f"0 of {len(why)} nodes: {counted(why.values())}" if why else "there are no nodes"


def _changes(before: Iterable[DiskView], after: Iterable[DiskView]) -> list[DiskChange]:
    now = {(one.node, one.disk): one for one in after}
    found = list[DiskChange]()
    for old in before:
        new = now.get((old.node, old.disk))
        state = "lost" if new is None else "closed" if new.closed else ""
        figures = _figures(new) if new is not None else (0, 0, 0)
        found.append(DiskChange(old.node, old.disk, old.uuid, *_figures(old), *figures, state))
    return found


def _figures(disk: DiskView) -> tuple[int, int, int]:
    return max(0, disk.limit_bytes), disk.used_bytes + disk.growth_bytes, disk.planned_bytes + disk.held_bytes
