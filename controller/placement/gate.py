"""Operates the gate: the ValidatingAdmissionPolicy by which only the leader gives a Replica its first node.

    a term:        is fenced first (`begin_term`), before anything is listed
    every 2 s:     the gate is renewed while the placer lives, and its binding made as the settings ask; a change of
                   settings wakes the worker at once
    every minute:  the gate is proven by a dry run, and compared with what it should be

The gate opens by itself when it is not renewed. So every fault here ends with Longhorn placing as without this product,
and is reported. All times in the gate are the API server's; this machine's clock only measures intervals.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from controller.allocator.outcome import Mode
from controller.clock import Clock
from controller.errors import ClusterError, ConflictError, NotFoundError, NotLeaderError, UnavailableError
from controller.log_line import say
from controller.model.names import FENCE, GATE
from controller.placement.gate_objects import GateObjects, Proof
from controller.placement.gate_policy import SILENT_SECONDS, Enforcement
from controller.process.worker import Part, Worker
from controller.settings import AUDIT, LiveSettings, places_replicas
from controller.views.decisions import NoteDecision, log_decision

EVERY_SECONDS: Final = 2.0
HEARD_SECONDS: Final = 2.0  # until a change by others is told: the settings are heard within half a second
LATE_SECONDS: Final = 10.0  # without a renewal, before that is reported
PROOF_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 10.0  # after a proof that failed or was not possible
ACTIVE_SECONDS: Final = 6.0  # for all API servers to apply a new binding
BEGIN_TRIES: Final = 3  # of writing the account, if others write it at the same time
FENCED_SECONDS: Final = 2.0  # for the fence to apply a new term
FENCE_LOOK_SECONDS: Final = 0.1
OTHER_SERVERS_SECONDS: Final = 1.0  # for the other API servers to see a new term
TERM: Final = re.compile(r"[A-Za-z0-9._-]{1,60}", re.ASCII)  # a valid name of a term
STEPS: Final = ("renewal", "binding", "policies", "proof")  # of a round
REASON: Final = "PlacementGate"
MENDED_REASON: Final = "PlacementGateMended"
BRING_BACK: Final = "upgrade the release or apply the manifest again"
NO_ACCOUNT: Final = f"ServiceAccount {GATE} does not exist: {BRING_BACK}"
NO_TIME: Final = "the answers of the API server tell no time"

_log = logging.getLogger(__name__)


class GateState(StrEnum):
    FOLLOWING = "following"  # another process leads, or none does
    ENFORCED = "enforced"
    UNPROVEN = "unproven"  # it exists or is being made, and no dry run has proven it yet
    MISSING = "missing"  # others may place
    AUDIT = "audit"
    OPENING = "opening"  # its binding has yet to be removed
    OFF = "off"


TEXTS: Final[Mapping[GateState, str]] = {
    GateState.ENFORCED: "Only the leader gives Replicas their first disk: the API server refuses everybody else",
    GateState.UNPROVEN: "Only the leader is to give Replicas their first disk; that the API server refuses everybody "
    "else is not proven yet",
    GateState.MISSING: "Longhorn may give Replicas their first disk as well: the leader only tries to be first",
    GateState.AUDIT: "The API server notes in its audit log who else gives Replicas their first disk, and refuses "
    "nobody",
    GateState.OPENING: "Longhorn is to give Replicas their disks, as the settings ask, and is still kept from it",
    GateState.OFF: "Longhorn gives Replicas their disks, as the settings ask",
}


def gate_wanted(live: LiveSettings, mode: Mode) -> Enforcement:
    """How the gate should treat others, by the settings and the mode."""
    if mode is not Mode.ACTIVE or not places_replicas(live):
        return Enforcement.NONE
    return Enforcement.AUDIT if live.placement == AUDIT else Enforcement.DENY


@dataclass(frozen=True, slots=True)
class GateFigures:
    """For metrics and the status page. Ages are in seconds, None before the first time in this term."""

    state: GateState
    problem: str
    renewed_seconds_ago: float | None
    proven_seconds_ago: float | None
    renewals: int
    failed_renewals: int
    mended: int
    proofs: Mapping[str, int]  # by outcome


@dataclass(slots=True)
class _Term:
    """One term of this process. `since`: when it began, by the API server; "" if the account could not be written."""

    name: str
    former: str
    since: str
    renewed_at: float
    bound: Enforcement | None = None  # by the binding as it was last seen or made
    bound_at: float = -math.inf
    proof: Proof | None = None  # since the binding was made
    proven_at: float = -math.inf
    prove_at: float = -math.inf
    compare_at: float = -math.inf
    has_account: bool = True
    problems: dict[str, str] = field(default_factory=lambda: dict.fromkeys(STEPS, ""))
    told: tuple[GateState, str] | None = None
    mended: dict[str, float] = field(default_factory=dict)  # what is to be told of others' changes, and since when

    @property
    def problem(self) -> str:
        return "; ".join(filter(None, self.problems.values()))


class PlacementGate(Part):
    """`is_current`: whether this process holds the Lease of that term at this moment. `is_alive`: whether the placer
    lives (`Placer.is_alive`). `wait` waits for so many seconds, or until the process ends.

    Threads: `worker`'s; `begin_term` the lifecycle's; `changed` and `figures` any. Blocks: `begin_term`, for its waits
    and calls. I/O: the account, the binding, the policies, and dry runs on a Replica.
    """

    def __init__(
        self,
        objects: GateObjects,
        clock: Clock,
        *,
        is_current: Callable[[str], bool],
        is_alive: Callable[[], bool],
        wanted: Callable[[], Enforcement],
        wait: Callable[[float], object],
        tell: Callable[[str, str, bool], None],
        note: NoteDecision = log_decision,
    ) -> None:
        """`tell` writes an Event: its reason, its text, and whether it is a warning."""
        self.worker = Worker("placement-gate", self.run_once)
        self._objects, self._clock = objects, clock
        self._is_current, self._is_alive, self._wanted = is_current, is_alive, wanted
        self._wait, self._tell, self._note = wait, tell, note
        self._term: _Term | None = None  # replaced by the lifecycle's thread, changed by the worker's
        self._former = ""  # the term before the one that began last
        self._renewals = self._failed_renewals = self._mended = 0
        self._proofs = Counter[Proof]()

    # From other threads

    def changed(self) -> None:
        """The settings have changed: run a round at once."""
        self.worker.wake()

    def begin_term(self, name: str) -> None:
        """Fence off former terms: from its return on, no write of theirs reaches a Replica. If the account does not
        exist or cannot be written, the term begins without that guarantee. If it raises, nothing may be decided:
        UnavailableError, ConflictError (others write the account all the time), NotLeaderError (the term is over)."""
        began_at = self._clock.now()
        try:
            since = self._write_term(name)
        except (UnavailableError, ConflictError):
            raise
        except ClusterError as error:
            say(_log, "the term begins without a fence", logging.WARNING, term=name, error=error)
            self._term = _Term(name, "", "", -math.inf)
            return
        if self._former:
            self._await_fence(name, self._former)
        self._wait(OTHER_SERVERS_SECONDS)
        self._term = _Term(name, self._former, since, began_at)
        self.worker.wake()

    def figures(self) -> GateFigures:
        term, now = self._term, self._clock.now()
        known = term if term is not None and self._is_current(term.name) else None
        return GateFigures(
            GateState.FOLLOWING if known is None else self._state(known, self._wanted()),
            "" if known is None else known.problem,
            _age(now, -math.inf if known is None else known.renewed_at),
            _age(now, -math.inf if known is None else known.proven_at),
            self._renewals,
            self._failed_renewals,
            self._mended,
            {proof.value: self._proofs[proof] for proof in Proof},
        )

    # The beginning of a term

    def _write_term(self, name: str) -> str:
        """Write the term into the account. Returns the API server's time of that."""
        tries = 0
        while True:
            before, tries = self._objects.stamps(), tries + 1
            if before.term != name:  # else an earlier try has written it
                self._former = before.term if TERM.fullmatch(before.term) else ""
            now = self._objects.server_time()
            if not self._is_current(name):
                raise NotLeaderError(f"term {name} is over")
            try:
                self._objects.write(before, name, now, now)
            except ConflictError:
                if tries == BEGIN_TRIES:
                    raise
            else:
                return now

    def _await_fence(self, name: str, former: str) -> None:
        """Wait until a dry run under the former term is refused, for FENCED_SECONDS at most. Without a Replica there is
        nothing that a former leader could write."""
        until = self._clock.now() + FENCED_SECONDS
        proof = self._prove_fence(former)
        while proof is Proof.ADMITTED and self._clock.now() < until and self._is_current(name):
            self._wait(FENCE_LOOK_SECONDS)
            proof = self._prove_fence(former)
        if proof in (Proof.ADMITTED, Proof.UNCLEAR):
            what = {"term": name, "proof": proof}
            say(_log, "a write of the former term was not refused by the fence", logging.WARNING, **what)

    def _prove_fence(self, former: str) -> Proof:
        try:
            return self._objects.prove_fence(former)
        except UnavailableError:
            raise
        except ClusterError as error:
            _log.warning("the fence is not proven: %s", error)
            return Proof.UNCLEAR

    # A round

    def run_once(self) -> float:
        """Do what is due. Returns the seconds until the next round."""
        term = self._term
        if term is not None and self._is_current(term.name):
            wanted = self._wanted()
            for step, do in zip(STEPS, (self._renew, self._keep_binding, self._compare, self._prove), strict=True):
                try:
                    term.problems[step] = do(term, wanted)
                except ClusterError as error:  # it must not affect the other steps
                    term.problems[step] = str(error)
            self._tell_change(term, wanted)
            self._tell_mended(term, wanted)
        return EVERY_SECONDS

    # The steps of a round: each returns its problem, or ""

    def _renew(self, term: _Term, wanted: Enforcement) -> str:
        if wanted is Enforcement.NONE:
            return ""
        if not self._is_alive():
            return self._late(term, "the placer has stopped, or what it watches comes late")
        now = self._objects.server_time()
        if not now:
            return self._late(term, NO_TIME)
        sent_at = self._clock.now()
        if not self._is_current(term.name):
            return ""
        try:
            stored = self._renewed(term, now)
        except NotFoundError:
            self._failed_renewals += 1
            term.has_account = False
            return NO_ACCOUNT
        except ClusterError as error:
            self._failed_renewals += 1
            return self._late(term, str(error))
        term.has_account = True
        if stored:
            term.renewed_at = sent_at
            self._renewals += 1
        return ""

    def _renewed(self, term: _Term, now: str) -> bool:
        """Renew the account's time stamp; if the account is not as this term wrote it, write all of it again, unless
        the term is over. Returns whether it was written."""
        try:
            stamps = self._objects.renew(term.name, now)
        except ConflictError:  # another term is there, or none
            stamps = self._objects.stamps()
        if term.since and stamps.renewed == now and (stamps.term, stamps.since) == (term.name, term.since):
            return True
        if not self._is_current(term.name):
            return False
        self._objects.write(stamps, term.name, term.since or now, now)
        if term.since:
            text = f"ServiceAccount {GATE} was changed by somebody, and is as the leader needs it again"
            term.mended.setdefault(text, self._clock.now())
        term.since = term.since or now
        return True

    def _late(self, term: _Term, why: str) -> str:
        """That problem, once it lasts."""
        return f"it is not renewed: {why}" if self._clock.now() - term.renewed_at > LATE_SECONDS else ""

    def _keep_binding(self, term: _Term, wanted: Enforcement) -> str:
        spec = self._objects.binding()
        if not self._objects.is_binding(spec, wanted):
            if not self._is_current(term.name) or self._wanted() is not wanted:
                self.worker.wake()
                return ""
            if spec is not None:  # a binding's spec is never changed: the binding is deleted and made again
                self._objects.unbind()
            if wanted is not Enforcement.NONE:
                self._objects.bind(wanted)
            if wanted is not Enforcement.NONE and term.bound is wanted:
                term.bound = None  # so that the new one is proven
                text = f"The binding of {GATE} was deleted or changed by somebody, and is made again"
                term.mended.setdefault(text, self._clock.now())
        if term.bound is not wanted:
            now = self._clock.now()
            term.bound, term.bound_at, term.proof, term.prove_at = wanted, now, None, now + EVERY_SECONDS
        return ""

    def _compare(self, term: _Term, _wanted: Enforcement) -> str:
        now = self._clock.now()
        if now < term.compare_at:
            return term.problems["policies"]
        term.compare_at = now + AGAIN_SECONDS
        problems = self._objects.problems()
        if problems:
            term.prove_at = now  # whether the gate works all the same
        else:
            term.compare_at = now + PROOF_SECONDS
        return "; ".join(problems) + (f": {BRING_BACK}" if problems else "")

    def _prove(self, term: _Term, _wanted: Enforcement) -> str:
        now = self._clock.now()
        if term.bound is not Enforcement.DENY or now - term.renewed_at > LATE_SECONDS:
            return ""
        if now < term.prove_at:
            return term.problems["proof"]
        term.prove_at = now + AGAIN_SECONDS
        found = self._objects.prove_gate()
        if found is Proof.ADMITTED and now - term.bound_at < ACTIVE_SECONDS:
            term.prove_at = now + EVERY_SECONDS
            return ""
        term.proof = found
        self._proofs[found] += 1
        if found is Proof.ADMITTED:
            return f"{GATE} did not refuse a dry run"
        if found is Proof.UNCLEAR:
            return f"a dry run was refused, and not by {GATE}"
        if found is Proof.REFUSED:
            term.proven_at = now
            if self._objects.prove_fence(term.former or f"{term.name}.none") is Proof.ADMITTED:
                return f"{FENCE} did not refuse a dry run under another term"
            term.prove_at = now + PROOF_SECONDS
        return ""

    # Telling

    def _state(self, term: _Term, wanted: Enforcement) -> GateState:
        if wanted is Enforcement.NONE:
            return GateState.OFF if term.bound is wanted else GateState.OPENING
        is_silent = self._clock.now() - term.renewed_at > SILENT_SECONDS
        if is_silent or not term.has_account or term.proof is Proof.ADMITTED or term.problems["binding"]:
            return GateState.MISSING
        if term.bound is not wanted:
            return GateState.UNPROVEN
        if wanted is Enforcement.AUDIT:
            return GateState.AUDIT
        return GateState.ENFORCED if term.proof is Proof.REFUSED else GateState.UNPROVEN

    def _tell_change(self, term: _Term, wanted: Enforcement) -> None:
        state, problem = self._state(term, wanted), term.problem
        is_passing = state is GateState.OPENING or (state is GateState.UNPROVEN and term.proof is None)
        if (state, problem) == term.told or (is_passing and not problem):
            return
        term.told = state, problem
        is_warning = (bool(problem) and state is not GateState.OFF) or state is GateState.MISSING
        text = TEXTS[state] + (f" ({problem})" if problem else "")
        self._note("gate", "", state, text=text, level=logging.WARNING if is_warning else logging.INFO)
        self._tell(REASON, text, is_warning)

    def _tell_mended(self, term: _Term, wanted: Enforcement) -> None:
        """Unless Longhorn is to place soon after: who prepares an uninstallation switches off, and takes the binding
        away before the leader has heard of it."""
        now = self._clock.now()
        if wanted is Enforcement.NONE:
            term.mended.clear()
        for text, since in list(term.mended.items()):
            if now >= since + HEARD_SECONDS:
                del term.mended[text]
                self._mended += 1
                _log.warning("placement gate: %s", text)
                self._tell(MENDED_REASON, text, True)


def _age(now: float, at: float) -> float | None:
    return None if at == -math.inf else round(now - at, 1)
