"""All that the allocator remembers beside the ledger, because no object of the cluster shows it.

| what | why it cannot be derived |
|---|---|
| answers | which pods were given a yes, and when: until their choice shows, nothing in the cluster tells |
| superseded | what a claim's selected node says may be older than our last answer, and carries no time |
| doubtful | where anybody may ask, it is superseded only while what was answered is held |
| offered | an older choice that the watches tell late narrows what is held, and then the newer one is told |
| answered | a claim's owner can write its selected node: it is kube-scheduler's where we had said yes to the pod |
| refused | we said no to the pod the last time, so that nobody is about to bind it |
| inherited | the leader before may have said that yes |
| former | the same of all pods that were there when we began, whose scheduler has bound them since, or before |
| unchosen | answers of a namespace that came to nothing, by which it would hold many nodes for one volume |
| unstored | an expansion that was admitted and never stored would keep room as often as it is asked for |
| unproven_until | how long a claim has counted by its owner's word alone, whatever came and went meanwhile |
| approvals | preemption may evict for a pod on these nodes; its nomination names one of them later |
| kept_until | until when room is kept for a pod; afterwards others have their turn |
| turns | one pod at a time finds its nodes free of new promises |
| spent | a level-triggered ledger would make again what has ended by time |

All of it is lost with the leader, and its successor does without (see `Holds.hold_everywhere`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Final

from controller.allocator.promises.promise import Promise
from controller.allocator.promises.turns import Turns

LAG_SECONDS: Final = 1.0  # a choice of a pod answered this much later proves that ours should have come
QUIET_SECONDS: Final = 2.0  # no choice of anybody for so long: nothing is under way
# Longer than the grace periods in common use (30 s by default, one to three minutes for databases), and the time after
# which kube-scheduler looks at a sleeping pod by itself. A victim that takes longer holds its place without our help.
APPROVAL_SECONDS: Final = 300.0
UNCHOSEN_SECONDS: Final = 60.0  # that answers are remembered which nobody acted on
MOST_UNCHOSEN: Final = 3  # of a namespace in that time, until its pods are offered one node each
KEPT_SECONDS: Final = 600.0  # that room is kept for one pod
BIND_SECONDS: Final = 600.0  # that kube-scheduler waits for a volume to be provisioned, before it asks again
UNSTORED_SECONDS: Final = 600.0  # that an expansion is remembered that was admitted and never stored
REST_SECONDS: Final = 600.0  # without kept room, for a pod for which it was kept long enough
MOST_APPROVALS: Final = 1_000  # at a time; the oldest is forgotten first
_NO_NODES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Approval:
    """Nodes on which pods may be evicted for this one; `serial` orders approvals."""

    nodes: frozenset[str]
    until: float
    serial: int
    is_nominated: bool = False  # its nomination named one of them already


@dataclass(frozen=True, slots=True)
class Unstored:
    """An expansion to `size_bytes` that was held and never stored. It counts for its namespace, with `growth_bytes`."""

    namespace: str
    growth_bytes: int
    size_bytes: int
    until: float


@dataclass(slots=True)
class Memory:
    """See the table above. Threads: none of its own; the allocator's lock guards it."""

    answers: Answers
    approvals: dict[str, Approval] = field(default_factory=dict)  # by pod uid, the earliest first
    kept_until: dict[str, float] = field(default_factory=dict)  # pod uid -> until when room is, or was, kept for it
    turns: Turns = field(default_factory=Turns)
    # Pod uid -> uids of claims with the node that they named.
    _superseded: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    _nominated: dict[str, str] = field(default_factory=dict)  # pod uid -> its nomination when it was answered
    _doubtful: set[str] = field(default_factory=set)  # uids of pods of which nobody knows who asked about them
    # Pod uid -> the nodes of our last answer, or of all that add up, and whether a volume of it may find no disk there.
    _offered: dict[str, tuple[frozenset[str], bool]] = field(default_factory=dict)
    _answered: dict[str, frozenset[str]] = field(default_factory=dict)  # pod uid -> nodes of all our answers
    refused: set[str] = field(default_factory=set)  # pod uids
    inherited: dict[str, float] = field(default_factory=dict)  # pod uid -> until when it may be about to be bound
    former: set[str] = field(default_factory=set)  # uids of pods that were there before us
    unproven_until: dict[str, float] = field(default_factory=dict)  # claim uid -> when its selected node stops counting
    _unstored: dict[str, Unstored] = field(default_factory=dict)  # by volume, the earliest end first
    _spent: dict[str, dict[str, Hashable]] = field(default_factory=dict)  # volume -> claimant -> in which situation
    _approved: int = 0

    def forget_pod(self, pod_uid: str, now: float) -> None:
        self.turns.end(pod_uid, now)
        self._doubtful.discard(pod_uid)
        for known in (self.approvals, self.kept_until, self._superseded, self._nominated, self._offered):
            known.pop(pod_uid, None)
        self._answered.pop(pod_uid, None)
        self.inherited.pop(pod_uid, None)
        self.former.discard(pod_uid)
        self.refused.discard(pod_uid)

    def is_resting(self, pod_uid: str, now: float) -> bool:
        """Whether no room is kept for the pod now, since it was for as long as it is for anybody."""
        end = self.kept_until.get(pod_uid, -math.inf)
        return end <= now < end + REST_SECONDS

    def keep_until(self, pod_uid: str, now: float) -> float:
        """When the room ends that is kept for the pod from now on, however often it was given up meanwhile."""
        end = self.kept_until.get(pod_uid, -math.inf)
        if end <= now:
            end = self.kept_until[pod_uid] = now + KEPT_SECONDS
        return end

    # Answers, and what is older than they are

    def answer_anew(
        self, pod_uid: str, selected: Collection[tuple[str, str]], nomination: str, *, adds_up: bool = False
    ) -> None:
        """The pod is answered from scratch: what these claims (by uid, with their selected node) and its nomination say
        by now is older than that. `adds_up`: unless a stranger asked."""
        self.supersede(pod_uid, selected, adds_up=adds_up)
        if adds_up:
            self._doubtful.add(pod_uid)
        else:
            self._offered.pop(pod_uid, None)
        if nomination or pod_uid in self._nominated:
            self._nominated[pod_uid] = nomination

    def supersede(self, pod_uid: str, selected: Collection[tuple[str, str]], *, adds_up: bool = False) -> None:
        """What these claims say by now is older than an answer."""
        if selected:
            self._superseded[pod_uid] = self._superseded.get(pod_uid, frozenset()) | frozenset(selected)
        if selected and adds_up:
            self._doubtful.add(pod_uid)

    def believe_again(self, pod_uid: str) -> bool:
        """Nobody acted on an answer whose caller is not known, so what it superseded counts again. Returns whether
        there was anything."""
        if pod_uid not in self._doubtful:
            return False
        self._doubtful.discard(pod_uid)
        self._superseded.pop(pod_uid, None)
        self._nominated.pop(pod_uid, None)
        return True

    def offer(self, pod_uid: str, nodes: Collection[str], *, falls_back: bool, adds_up: bool = False) -> None:
        before, fell_back = self._offered.get(pod_uid, (_NO_NODES, False)) if adds_up else (_NO_NODES, False)
        self._offered[pod_uid] = before.union(nodes), fell_back or falls_back

    def offer_again(self, pod_uid: str, node: str) -> None:
        """Of what was offered the pod is told this node alone."""
        if pod_uid in self._offered:
            self._offered[pod_uid] = frozenset({node}), self._offered[pod_uid][1]

    def let_through(self, pod_uid: str, nodes: Collection[str]) -> None:
        """The pod may go to these nodes, whether anything is held there or not."""
        self.refused.discard(pod_uid)
        self._answered[pod_uid] = self._answered.get(pod_uid, frozenset()).union(nodes)

    def was_let_through(self, pod_uid: str, node: str) -> bool:
        """Whether any answer of ours has let the pod go to that node."""
        return node in self._answered.get(pod_uid, ())

    def inherit(self, pod_uid: str, now: float) -> None:
        """The leader before may have let the pod go to any node, and kube-scheduler may be about to bind it."""
        self.inherited[pod_uid] = now + BIND_SECONDS

    def end_inherited(self, now: float) -> list[str]:
        """Forget whom the leader before may have let through long ago; their uids."""
        over = [uid for uid, until in self.inherited.items() if until <= now]
        for uid in over:
            del self.inherited[uid]
        return over

    def note_unstored(self, volume: str, namespace: str, growth_bytes: int, size_bytes: int, now: float) -> None:
        """An expansion of that volume was held, and the hold has ended without it."""
        self._unstored.pop(volume, None)
        self._unstored[volume] = Unstored(namespace, growth_bytes, size_bytes, now + UNSTORED_SECONDS)

    def note_stored(self, volume: str, size_bytes: int) -> None:
        """The cluster shows that size of the volume as requested, so the expansion was meant."""
        found = self._unstored.get(volume)
        if found is not None and found.size_bytes <= size_bytes:
            del self._unstored[volume]

    def is_unstored(self, volume: str, now: float) -> bool:
        """Whether the last expansion of that volume, not long ago, was held and never stored."""
        self._forget_unstored(now)
        return volume in self._unstored

    def unstored_bytes(self, namespace: str, now: float) -> int:
        """Of all such expansions in that namespace. Costs: a look at all there are."""
        self._forget_unstored(now)
        return sum(one.growth_bytes for one in self._unstored.values() if one.namespace == namespace)

    def _forget_unstored(self, now: float) -> None:
        while self._unstored and (first := next(iter(self._unstored))) and self._unstored[first].until <= now:
            del self._unstored[first]

    def falls_back(self, pod_uid: str) -> bool | None:
        """Whether a volume of the pod may find no disk on the offered node beside its other ones; None if it was not
        answered by us."""
        return self._offered[pod_uid][1] if pod_uid in self._offered else None

    def offered(self, pod_uid: str) -> frozenset[str]:
        """The nodes on which our last answer to the pod held something for it."""
        return self._offered[pod_uid][0] if pod_uid in self._offered else frozenset()

    def is_superseded(self, pod_uid: str, claim_uid: str, node: str) -> bool:
        return (claim_uid, node) in self._superseded.get(pod_uid, ())

    def is_old_nomination(self, pod_uid: str, node: str) -> bool:
        return bool(node) and self._nominated.get(pod_uid) == node

    # What has ended by time

    def spend(self, promise: Promise) -> None:
        self._spent.setdefault(promise.volume, {})[promise.claimant] = promise.situation

    def is_spent(self, volume: str, claimant: str, situation: Hashable) -> bool:
        """Whether that promise has ended by time in this situation; it may be made again in another one."""
        by_claimant = self._spent.get(volume)
        if by_claimant is None or claimant not in by_claimant:
            return False
        if by_claimant[claimant] == situation:
            return True
        self.forget_spent(volume, claimant)
        return False

    def spent_claimants(self, volume: str) -> list[str]:
        return list(self._spent.get(volume, ()))

    def forget_spent(self, volume: str, claimant: str = "") -> None:
        """Of that claimant; of all without one."""
        by_claimant = self._spent.get(volume, {})
        by_claimant.pop(claimant, None)
        if volume in self._spent and not (claimant and by_claimant):
            del self._spent[volume]

    # Preemption

    def approve(self, pod_uid: str, nodes: Collection[str], now: float, *, adds_up: bool = False) -> None:
        """Pods may be evicted for this one on any of `nodes`; what was approved for it before ends, unless it adds
        up."""
        self.approvals = {uid: entry for uid, entry in self.approvals.items() if now < entry.until}
        old = self.approvals.get(pod_uid)
        if adds_up and old is not None:
            nodes = old.nodes.union(nodes)
        if not nodes:
            self.approvals.pop(pod_uid, None)
            return
        if old is None:
            if len(self.approvals) >= MOST_APPROVALS:
                del self.approvals[next(iter(self.approvals))]
            self._approved += 1
        serial = old.serial if old is not None else self._approved  # a pod that is there already keeps its turn
        is_nominated = adds_up and old is not None and old.is_nominated
        self.approvals[pod_uid] = Approval(frozenset(nodes), now + APPROVAL_SECONDS, serial, is_nominated)


class Answers:
    """Which pods were given a yes that is not chosen yet, and how far choices have come in."""

    def __init__(self) -> None:
        self._answered: dict[str, float] = {}  # pod uid -> when
        self._first: dict[str, float] = {}  # of these, where answers add up: the first one
        self._foreign: set[str] = set()  # of these: answered by the leader before, if at all
        self._doubted: set[str] = set()  # of these: the pod went, or its choice was withdrawn
        self._serials: dict[str, int] = {}  # of these: the call that made the holds
        self._namespaces: dict[str, str] = {}  # of these
        self._unchosen: dict[str, deque[float]] = {}  # namespace -> when its last answers ended
        self._front = float("-inf")  # latest answer whose choice was seen
        self._last_choice = float("-inf")

    def __len__(self) -> int:
        """Pods whose choice has not been seen, of those that we answered."""
        return len(self._answered) - len(self._foreign)

    def is_foreign(self, pod_uid: str) -> bool:
        """Whether the leader before us may have answered the pod, and we have not yet."""
        return pod_uid in self._foreign

    def answered(
        self, pod_uid: str, namespace: str, now: float, *, is_ours: bool = True, adds_up: bool = False
    ) -> None:
        """`is_ours` false: the leader before us may have answered, so its durations are not ours to tell. `adds_up`: a
        choice that is seen may be due to any answer since the first."""
        if adds_up:
            self._first.setdefault(pod_uid, self._answered.get(pod_uid, now))
        else:
            self._first.pop(pod_uid, None)
        self._answered[pod_uid] = now
        self._namespaces[pod_uid] = namespace
        self._doubted.discard(pod_uid)
        if is_ours:
            self._foreign.discard(pod_uid)
        else:
            self._foreign.add(pod_uid)

    def name_call(self, pod_uid: str, serial: int) -> None:
        """The holds of an answered pod were made by that call, and only it may take them back."""
        if pod_uid in self._answered:
            self._serials[pod_uid] = serial

    def is_of_call(self, pod_uid: str, serial: int) -> bool:
        return self._serials.get(pod_uid) == serial

    def doubted(self, pod_uid: str, now: float) -> None:
        """The promise need not last for its full time, only until a choice under way would have been seen."""
        self._answered.setdefault(pod_uid, now)
        self._doubted.add(pod_uid)

    def chosen(self, pod_uid: str, now: float) -> float | None:
        """A choice was seen: the seconds since the answer, or None when there was none."""
        first = self._first.get(pod_uid)
        at, is_foreign = self._forget(pod_uid)
        if at is None:
            return None
        at = at if first is None else first
        self._last_choice = now
        if is_foreign:
            return None
        self._front = max(self._front, at)
        return now - at

    def ended(self, pod_uid: str, now: float) -> float | None:
        namespace = self._namespaces.get(pod_uid)
        at, is_foreign = self._forget(pod_uid)
        if at is None or is_foreign:
            return None
        if namespace is not None:
            self._unchosen = {name: ends for name, ends in self._unchosen.items() if now - ends[-1] < UNCHOSEN_SECONDS}
            self._unchosen.setdefault(namespace, deque(maxlen=MOST_UNCHOSEN)).append(now)
        return now - at

    def come_to_nothing(self, namespace: str, now: float) -> bool:
        """Whether the last answers to pods of that namespace led to no choice, not long ago."""
        ends = self._unchosen.get(namespace)
        return ends is not None and len(ends) == MOST_UNCHOSEN and now - ends[0] < UNCHOSEN_SECONDS

    def _forget(self, pod_uid: str) -> tuple[float | None, bool]:
        self._doubted.discard(pod_uid)
        self._serials.pop(pod_uid, None)
        self._namespaces.pop(pod_uid, None)
        self._first.pop(pod_uid, None)
        is_foreign = pod_uid in self._foreign
        self._foreign.discard(pod_uid)
        return self._answered.pop(pod_uid, None), is_foreign

    def oldest(self, now: float) -> float:
        """Seconds since the oldest answer that is still waiting for a choice; 0 without one."""
        return max((now - at for at in self._answered.values()), default=0.0)

    def due(self, now: float, timeout: float, cap: float) -> list[tuple[str, bool]]:
        """Pods whose holds may end by time, and whether the cap says so."""
        return [
            (uid, now - at >= cap) for uid, at in self._answered.items() if self._is_due(uid, at, now, timeout, cap)
        ]

    def is_due(self, pod_uid: str, now: float, timeout: float, cap: float) -> bool:
        at = self._answered.get(pod_uid)
        return at is not None and self._is_due(pod_uid, at, now, timeout, cap)

    def _is_due(self, pod_uid: str, at: float, now: float, timeout: float, cap: float) -> bool:
        is_over = now - at >= timeout or pod_uid in self._doubted
        return now - at >= cap or (is_over and self._has_passed(at, now))

    def _has_passed(self, at: float, now: float) -> bool:
        return self._front >= at + LAG_SECONDS or now - max(self._last_choice, at) >= QUIET_SECONDS
