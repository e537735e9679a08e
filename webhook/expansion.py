"""Reviews of growth: of claims (PVC), and of Longhorn volumes.

The leader decides, because only it knows what is promised. This module leaves out what need not be asked, and tells the
user the result. Nothing is kept: the same review may come any number of times, to any copy of this process.

While nobody who leads answers in time, the setting `scheduler-extender-expansion-policy` decides: `allow` with a
warning, because a database that is full must be able to grow (Longhorn still makes its own check, and the leader
derives what it has to hold when it is back), or `deny`. A new leader that puts an expansion off for a minute is an
answer, and so a denial whatever the setting says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from controller.clock import Clock
from controller.errors import MalformedRequestError, TooManyReadsError
from controller.log_line import say
from controller.model.names import LEADER_ANSWERS, LEADER_IS_SILENT, LONGHORN_DRIVERS
from controller.model.quantity import exact_bytes_text, quantity_bytes
from controller.model.reader import Raw, mapping_at, text_at
from controller.model.workload import claim_facts
from controller.rpc import disk_scheduler_pb2 as pb
from webhook.leader import CrowdedError, Leader, LeaderAwayError, LeaderFailedError
from webhook.metrics import WebhookMetrics
from webhook.review import Review, encode_allowed, encode_denied
from webhook.stores import Read, RequestLookup, WebhookStores

READ_SECONDS: Final = 0.5
LEADER_SECONDS: Final = 3.5  # with the read, well inside the 5 s that the API server waits
MOST_PROBLEMS: Final = 3
POLICY: Final = "scheduler-extender-expansion-policy"
DENY: Final = "deny"
CLAIM, VOLUME = "claim", "volume"
_NO_VOLUME: Final = "growth-check"  # of which the leader only says that it checks nothing
_CROWDED: Final = "too many expansions at once"
_PASSING: Final = frozenset({"Contended", "NotEvaluated"})  # the reasons for which a little later may be enough

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AskedGrowth:
    """A growth that is asked for. `what` names the claim or volume for a person."""

    what: str
    old_bytes: int
    request: pb.HoldExpansionRequest


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    outcome: str


class ExpansionService:
    """Reviews of one kind of objects, CLAIM or VOLUME.

    Threads: any. Blocks: for READ_SECONDS and LEADER_SECONDS at most. I/O: a read where the stores lack the PV, and the
    call of the leader.
    """

    def __init__(
        self,
        kind: str,
        stores: WebhookStores,
        read: Read,
        clock: Clock,
        leader: Leader,
        policy: Callable[[], str],
        observer: WebhookMetrics,
    ) -> None:
        """`leader` may raise CrowdedError too. `policy`: "allow", "deny", or "off": then reviews are no longer sent,
        and one that still comes is answered as by "allow"."""
        self._kind, self._growth_of = kind, self._growth_of_claim if kind == CLAIM else growth_of_volume
        self._stores, self._read, self._clock = stores, read, clock
        self._leader, self._policy, self._observer = leader, policy, observer

    def review(self, review: Review) -> bytes:
        started = self._clock.now()
        try:
            answer = self._answer(review, self._growth_of(review))
        except TooManyReadsError as error:
            answer = self._by_policy(review, _CROWDED, error)
        self._observer.expansion_reviewed(self._kind, answer.outcome, self._clock.now() - started)
        return answer.body

    def failed(self, review: Review) -> bytes:
        """The answer by the policy when the webhook itself fails."""
        return self._by_policy(review, "the webhook failed").body

    def _answer(self, review: Review, growth: AskedGrowth | None) -> Answer:
        if growth is None:
            return Answer(encode_allowed(review.uid), "nothing-to-check")
        try:
            reply = self._leader.hold_expansion(growth.request, LEADER_SECONDS)
        except LeaderAwayError as error:
            return self._by_policy(review, "the leader is unavailable", error)
        except LeaderFailedError as error:
            return self._by_policy(review, "the leader failed", error)
        except CrowdedError as error:
            return self._by_policy(review, _CROWDED, error)
        if reply.verdict in (pb.HoldExpansionReply.REFUSED, pb.HoldExpansionReply.TRY_AGAIN):
            message = refusal(growth, reply)
            outcome = "refused" if reply.verdict == pb.HoldExpansionReply.REFUSED else "try-again"
            self._say(review, outcome, text=message)
            return Answer(encode_denied(review.uid, message), outcome)
        if reply.verdict != pb.HoldExpansionReply.ADMITTED:
            return Answer(encode_allowed(review.uid), "not-checked")
        if not reply.problems:
            return Answer(encode_allowed(review.uid), "admitted")
        warning = delay_warning(reply)
        self._say(review, "admitted-later", text=warning)
        return Answer(encode_allowed(review.uid, warnings=[warning]), "admitted-later")

    def _by_policy(self, review: Review, why: str, error: Exception | None = None) -> Answer:
        """`why` is for the user; what `error` says, addresses among it, is for the log only."""
        policy = self._policy()
        decision = "denied-unchecked" if policy == DENY else "allowed-unchecked"
        self._say(review, decision, logging.WARNING, because=why, error=error)
        if policy == DENY:
            message = f"Longhorn scheduler extender: the expansion cannot be checked ({why}), and {POLICY} is {DENY}"
            return Answer(encode_denied(review.uid, message), decision)
        warning = f"Longhorn scheduler extender: allowed unchecked ({why}); Longhorn's own check still applies"
        return Answer(encode_allowed(review.uid, warnings=[warning]), decision)

    def _say(self, review: Review, decision: str, level: int = logging.INFO, /, **facts: object) -> None:
        what = {"namespace": review.namespace, self._kind: review.name, "uid": review.uid}
        say(log, "review", level, **what, decision=decision, **facts)

    def _growth_of_claim(self, review: Review) -> AskedGrowth | None:
        """The growth that the review asks for; None if it asks for none, or for one of another driver's volume. The API
        server itself refuses growth of a claim that is not bound."""
        if review.resource != "persistentvolumeclaims" or review.operation != "UPDATE" or review.sub_resource:
            return None
        new, old = _requested(review.object, "object"), _requested(review.old_object, "oldObject")
        claim = claim_facts(review.object)
        if new <= old or not claim.volume_name or self._is_foreign(claim.volume_name):
            return None
        request = pb.HoldExpansionRequest(
            claim_namespace=review.namespace or claim.namespace,
            claim_name=claim.name,
            volume_name=claim.volume_name,
            size_bytes=new,
            dry_run=review.is_dry_run,
        )
        return AskedGrowth(f"claim {claim.key}", old, request)

    def _is_foreign(self, pv_name: str) -> bool:
        """Whether the volume is surely not Longhorn's. What cannot be read now may be, and the leader knows. While so
        many are asked about that no more are read, the leader is not asked either: TooManyReadsError."""
        lookup = RequestLookup(self._stores, self._read, self._clock, READ_SECONDS)
        pv = lookup.pv(pv_name)
        if lookup.was_refused:
            raise TooManyReadsError("the volume could not be read")
        return pv is not None and pv.driver not in LONGHORN_DRIVERS


class GrowthCheck:
    """Reviews of the pods by which others find out whether a growth's review reaches the leader. Each is denied, with
    the answer. Threads: any. Blocks: for LEADER_SECONDS at most. I/O: the call of the leader."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def review(self, review: Review) -> bytes:
        request = pb.HoldExpansionRequest(volume_name=_NO_VOLUME, size_bytes=1, dry_run=True)
        try:
            self._leader.hold_expansion(request, LEADER_SECONDS)
        except (LeaderAwayError, LeaderFailedError, CrowdedError) as error:
            say(log, LEADER_IS_SILENT, logging.WARNING, error=error)
            return encode_denied(review.uid, f"{LEADER_IS_SILENT}; its log says why")
        return encode_denied(review.uid, LEADER_ANSWERS)

    def failed(self, review: Review) -> bytes:
        return encode_denied(review.uid, f"{LEADER_IS_SILENT}; its log says why")


def growth_of_volume(review: Review) -> AskedGrowth | None:
    """The growth that the review of a Longhorn volume asks for; None if it asks for none."""
    if review.resource != "volumes" or review.operation != "UPDATE" or review.sub_resource:
        return None
    new, old = _size(review.object, "object"), _size(review.old_object, "oldObject")
    name = review.name or text_at(mapping_at(review.object, "object", "metadata"), "object.metadata", "name")
    if new <= old or not name:
        return None
    return AskedGrowth(
        f"volume {name}", old, pb.HoldExpansionRequest(volume_name=name, size_bytes=new, dry_run=review.is_dry_run)
    )


def _requested(raw: Raw, field: str) -> int:
    """Bytes that a claim asks for; 0 for one that names no size."""
    requests = mapping_at(raw, field, "spec", "resources", "requests")
    found = requests.get("storage")
    return 0 if found is None else quantity_bytes(found, f"{field}.spec.resources.requests.storage")


def _size(raw: Raw, field: str) -> int:
    """Bytes of a Longhorn volume: a decimal number as text; 0 without one."""
    found = mapping_at(raw, field, "spec").get("size")
    if found is None or found == "":
        return 0
    is_huge = isinstance(found, int) and abs(found) >= 10**19  # too many digits cannot be made a text at all
    text = "a number of more than 19 digits" if is_huge else str(found)
    if isinstance(found, bool) or not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise MalformedRequestError(f"{field}.spec.size", f"is not a number of bytes: {text[:40]!r}")
    return min(int(text), 2**63 - 1)


# What the user reads


def refusal(growth: AskedGrowth, reply: pb.HoldExpansionReply) -> str:
    """The text of a refusal: volume, node, disk, what is missing, and the largest size that fits now, in bytes that
    can be typed."""
    problems = [_problem(entry) for entry in reply.problems]
    more = len(problems) - MOST_PROBLEMS
    listed = "; ".join(problems[:MOST_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
    whose = f" (volume {reply.volume_name})" if growth.request.claim_name else ""
    what = f"{growth.what}{whose} to {exact_bytes_text(reply.size_bytes)}"
    if reply.verdict == pb.HoldExpansionReply.TRY_AGAIN:
        return f"Longhorn cannot grow {what} yet: {listed}. Try again in a minute."
    return f"Longhorn cannot grow {what}: {listed}. {_largest(growth, reply)}"


def delay_warning(reply: pb.HoldExpansionReply) -> str:
    """The text of a warning: what has to pass before Longhorn grows what was admitted."""
    listed = "; ".join(_problem(entry) for entry in reply.problems[:MOST_PROBLEMS])
    return f"Longhorn scheduler extender: Longhorn cannot grow the volume yet: {listed}. It tries again until it can"


def _problem(problem: pb.ExpansionProblem) -> str:
    where = ", ".join(f"{what} {name}" for what, name in (("node", problem.node), ("disk", problem.disk)) if name)
    if not where:
        return problem.message
    lacks = f" lacks {exact_bytes_text(problem.missing_bytes)}" if problem.missing_bytes else ""
    return f"{where}{lacks}: {problem.message}"


def _largest(growth: AskedGrowth, reply: pb.HoldExpansionReply) -> str:
    reasons = {problem.reason for problem in reply.problems}
    passes = bool(reasons) and reasons <= _PASSING
    again = " Try again in a minute." if passes else ""
    if reply.largest_bytes > growth.old_bytes:
        if reply.more_may_fit:
            return f"A size of {exact_bytes_text(reply.largest_bytes)} fits now, and a larger one may.{again}"
        return f"The largest size that fits now is {exact_bytes_text(reply.largest_bytes)}.{again}"
    if reply.more_may_fit:
        return f"The largest size that fits was not found in time.{again}"
    if passes:
        return f"All room may be needed by pods that are being scheduled.{again}"
    return "It cannot grow at all now."
