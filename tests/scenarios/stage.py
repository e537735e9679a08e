"""The language of transcripts: what happens to a small cluster, line by line, and what must come of it.

A file holds scenes, with an empty line between two. A scene begins with `# a sentence that says what it promises`; one
that begins with `# Given` is played before each scene below it, down to the next such one. A line is a command, and
behind `->` what must come of it, with `...` for whatever else is told there. `each X: a | b` plays the scene with `a`
in the place of X, then with `b`. Sizes are GiB, times seconds, `-` is no node. A pod P that names no claims has a claim
P; the class of a claim that names none is best-effort with one copy.

The cluster, and what its objects say:

    node N D1 [D2 ...]        a node with disks of those sizes, also for what it has become
    press N, relieve N        its disks come under pressure, or out of it
    set WORD VALUE            a setting, of ours or of Longhorn's
    class K LOCALITY [COPIES] [PARAMETER=VALUE]    a StorageClass; `-`: it does not say
    claim C S [K] [shared]    a claim, of several nodes when shared
    pod P [C ...]             a pending pod; `again P [C ...]`: one that is made again, after its volumes
    remove P, delete P        the pod goes; the pod goes with its claim, volume and replica
    has C S N [DISK]          a claim with its volume placed there; `job P S N`: a pod runs, and its volume goes with it
    change KIND NAME FIELD VALUE  a fact of a node or pod, or of a claim's claim, pv, volume or replica
    hand C D                  the volume of C is handed on to D, by its PV and then D, as populators do
    resize KIND C S           claim, pv, volume or replica says that size
    touch KIND NAME           an object changes in a way that means nothing
    lose KIND NAME            an object goes; the second replica of C is replica C/2

The scheduler, provisioning and Longhorn:

    filter P [S] on N ...     -> the nodes offered, or none; then `node Reason` of those refused. S makes the pod
    probe S on N ...          -> the same for a pod that has just come and goes again
    strangers                 from here on anybody may ask, and answers add up
    account P on N ...        -> what a person reads of the pod
    room P on N ...           -> the nodes that preemption is told to have room
    choose C N                the scheduler's choice shows in the claim; `nominate P N` the same in the pod
    see KIND C [late]         of the provisioned volume this is seen: claim (that it is bound), pv, volume, replica;
                              its PV may be later than others
    provision C [late]        all of these; then `bind P N`, `attach C N [attached]`, `place C N [NUMBER]`
    run C N                   all this, from the choice to the placed replica
    refuse C N                attached to the node, and Longhorn says that it cannot place the replica
    grow C S [dry] [volume]   -> what a growth is answered, where the volume's own review asks and not the claim's

The leader, where it places Replicas:

    stray C S [COPIES]        a claim of no pod, with its volume and replicas, which may lie anywhere
    put C [NUMBER [T]]        -> the disk that it decides on, and which plans go for it, or what it does with the copy
                              instead, and why; asked every second, T long. The place is written from then on
    fail C [NUMBER]           its write fails

Whoever places asks, while `allocation_authority` is disk-scheduler:

    schedule C [NUMBER]       -> the node and disk that the replica is given, on record at once, or why not

Time, leadership, and what is told:

    advance T                 time passes, second by second, with the sweeper's work; `stall T`: without it
    figures                   nodes report what lies on them
    leader [first|lost]       another leader takes over with what this one has stored; there was none before; or all of
                              that is lost; `off`, `on`: the extender is switched
    ledger                    -> claim node size state [growth]; ...
    places                    -> claim disk size; ... of all that is held or planned; disks are called N-D1, N-D2
    told                     -> what the owners of claims are told: claim what; ...
    claimants                 -> who claims any room: pods by their uids
    due                       -> what time may end, with what is read before
    wakes                     -> the pods that are woken, in that order
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from controller.allocator.outcome import Decision, FilterOutcome, Mode, ReplicaTurn, TakenBytes
from controller.allocator.plans.ends import GROWTH
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.errors import NotSyncedError, PreconditionError
from tests.fakes import builders
from tests.fakes.builders import GIB, LATER
from tests.scenarios.objects import StageObjects

_PLAIN: Final = (Decision.OFFERED, Decision.REFUSED, Decision.CONTENDED)  # what the nodes say of themselves
PATIENCE_SECONDS: Final = 5.0  # of one who asks for a disk
NOW_UTC: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)  # when the leader decides on replicas


class Stage(StageObjects):
    """Plays the lines of one scene on a made-up cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, ReplicaTurn] = {}  # by replica, the leader's last decision

    def play(self, line: str) -> str:
        """Do what the line says; what came of it, as the transcript would write it."""
        verb, *words = line.split()
        return str(getattr(self, f"do_{verb}")(*words) or "")

    # What the scheduler asks, and how much a volume may grow

    def do_filter(self, pod: str, *words: str) -> str:
        *sizes, _on = words[: words.index("on") + 1]
        if pod not in self.cluster.pods:
            self.add_pod(pod, gib=float(*sizes))
        try:
            outcome = self.cluster.filter(pod, *words[len(sizes) + 1 :])
        except NotSyncedError:
            return "not known yet"
        if outcome.decision is not Decision.CHOSEN:
            for volume in self.cluster.pods[pod].volumes:
                self.chosen.pop(volume.claim, None)  # it is older than the answer
        return _told(outcome)

    def do_probe(self, size: str, *words: str) -> str:
        self.cluster.add_pod("probe", gib=float(size), created=LATER)
        told = self.do_filter("probe", *words)
        self.cluster.drop_pod("probe")
        self.cluster.drop_claim("probe")
        return told

    def do_strangers(self) -> None:
        self.cluster.adds_up = True

    def do_account(self, pod: str, _on: str, *nodes: str) -> str:
        return self.cluster.allocator.account_of(self.cluster.pods[pod].uid, nodes)

    def do_room(self, pod: str, _on: str, *nodes: str) -> str:
        uid = self.cluster.pods[pod].uid
        found = self.cluster.allocator.nodes_with_room(uid, list(nodes), adds_up=self.cluster.adds_up)
        return " ".join(sorted(found)) or "none"

    def do_grow(self, claim: str, size: str, *words: str) -> str:
        facts = self.cluster.claims[claim]
        asks = ("", "") if "volume" in words else (facts.namespace, facts.name)
        request = GrowthRequest(facts.volume_name, int(float(size) * GIB), *asks, is_dry_run="dry" in words)
        outcome = self.cluster.allocator.expansions.hold(request)
        if not outcome.obstacles:
            return str(outcome.verdict)
        told = [
            " ".join(filter(None, (one.node, one.disk, f"{one.missing_bytes // GIB}", one.rejection.reason)))
            for one in outcome.obstacles
        ]
        so_far = "not yet" if outcome.verdict is GrowthVerdict.ADMITTED else f"at most {outcome.largest_bytes // GIB}"
        return f"{outcome.verdict}, {so_far}: {'; '.join(told)}"

    # The leader, where it places Replicas

    def do_stray(self, claim: str, size: str, copies: str = "1") -> None:
        self.do_class(f"stray-{copies}", "disabled", copies)
        self.do_claim(claim, size, f"stray-{copies}")
        self.do_provision(claim)

    def do_put(self, claim: str, number: str = "1", seconds: str = "0") -> str:
        name, places = self.key("replica", f"{claim}/{number}"), self.cluster.allocator.places
        turn = places.turn_of(name, NOW_UTC)
        for _ in range(int(seconds)):
            self.cluster.clock.advance(1)
            turn = places.turn_of(name, NOW_UTC)
        self.turns[name] = turn
        if turn.write is None:
            return f"{turn.step} {turn.reason}".rstrip()
        plans = f" {turn.write.how}" if turn.write.how in (TakenBytes.MOVED, TakenBytes.DISPLACED) else ""
        return turn.write.place.disk_uuid + plans

    def do_fail(self, claim: str, number: str = "1") -> None:
        name = self.key("replica", f"{claim}/{number}")
        turn = self.turns[name]
        if turn.write is not None:
            self.cluster.allocator.places.failed(turn.write, builders.replica(name, turn.volume, self.size(claim)))

    # Whoever places asks

    def do_schedule(self, claim: str, number: str = "1") -> str:
        name, calls = self.key("replica", f"{claim}/{number}"), self.cluster.allocator.allocations
        try:
            given = calls.place_replica(name, PATIENCE_SECONDS)
        except PreconditionError as error:
            return f"not yet: {error}"
        if given.obstacles:
            return "; ".join(f"{one.node} {one.rejection.reason}" for one in given.obstacles)
        (one,) = given.allocations
        self.placed[claim, number] = one.node
        return f"{one.node} {calls.known.disk_names([one])[0]}"

    # Time, leadership, and what is told

    def do_advance(self, seconds: str) -> None:
        self.cluster.pass_time(int(seconds))

    def do_stall(self, seconds: str) -> None:
        self.cluster.clock.advance(float(seconds))

    def do_figures(self) -> None:
        self.cluster.let_figures_follow()

    def do_leader(self, how: str = "") -> None:
        if how == "first":
            self.cluster.allocator.end_term()
            self.cluster.allocator.begin_term(has_predecessor=False)
        else:
            self.cluster.change_leader(loses=how == "lost")

    def do_off(self) -> None:
        self.cluster.allocator.set_mode(Mode.BYPASS)

    def do_on(self) -> None:
        self.cluster.allocator.set_mode(Mode.ACTIVE)

    def do_ledger(self) -> str:
        rows = []
        for one in self.cluster.allocator.snapshot().promises:
            claim = one.claim.removeprefix("ns/") or one.volume.removeprefix("pvc-uid-")
            growth = " growth" if one.kind == "growth" else ""
            rows.append(f"{claim} {one.node} {one.size_bytes // GIB} {one.state}{growth}")
        return "; ".join(sorted(rows)) or "empty"

    def do_places(self) -> str:
        table, names = self.cluster.allocator._table, self.world.claim_names().of
        taken = [place for hold in table.holds() for place in hold.places()]
        taken += [(plan.volume, place) for plan in table.plans() for place in plan.places]
        rows = {(names(volume), place.disk_uuid, place.size_bytes // GIB) for volume, place in taken}
        return "; ".join(f"{claim.removeprefix('ns/')} {disk} {size}" for claim, disk, size in sorted(rows)) or "none"

    def do_told(self) -> str:
        told = filter(self.cluster.allocator.is_so, self.cluster.allocator.drain_claim_events())
        return "; ".join(sorted(f"{one.name} {one.kind}" for one in told)) or "none"

    def do_claimants(self) -> str:
        return " ".join(sorted(self.cluster.claimants())) or "nobody"

    def do_due(self) -> str:
        rows = []
        for due in self.cluster.allocator.due():
            who = due.volume if due.claimant == GROWTH else due.claimant
            reads = ", ".join(f"{kind} {key.removeprefix('ns/')}" for kind, key in due.reads)
            rows.append(f"{who}: {reads}" + (", or without" if due.is_capped else ""))
        return "; ".join(rows) or "nothing"

    def do_wakes(self) -> str:
        return " ".join(wakeup.name for wakeup in self.cluster.plan_wakeups()) or "nobody"

    def promised(self, node: str) -> float:
        """What the cluster itself has promised on the node: placed replicas, and chosen volumes without one."""
        here = [self.size(claim) for (claim, _), where in self.placed.items() if where == node]
        for claim, where in self.chosen.items():
            facts = self.cluster.claims[claim]
            is_local = self.kinds[facts.class_name][0] != "disabled" and not facts.is_shared
            if where == node and is_local and self.users(claim) and self.placed.get((claim, "1"), "-") == "-":
                here.append(self.size(claim))
        return sum(here)


def _told(outcome: FilterOutcome) -> str:
    kind = "" if outcome.decision in _PLAIN else f"{outcome.decision}: "
    refused = [f"{node} {reason}" for node, reason in sorted(outcome.refused.items())]
    return "; ".join([kind + (" ".join(sorted(outcome.passed)) or "none"), *refused])
