"""The prioritize verb: how good each node that passed is, 0 to 10.

Source: kube-scheduler's `extender/v1` types: ExtenderArgs in, as for filter, a HostPriorityList out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.log_line import say
from extender import wire
from extender.coschedule import CoScheduling
from extender.preconditions import Preconditions

log = logging.getLogger(__name__)


class _HostPriority(msgspec.Struct, rename={"host": "Host", "score": "Score"}, gc=False):
    host: str
    score: int


_ENCODER: Final = msgspec.json.Encoder()


def encode_priorities(scores: Mapping[str, int]) -> bytes:
    return _ENCODER.encode([_HostPriority(name, score) for name, score in scores.items()])


class PriorityService:
    """Answers the prioritize verb. Nothing is held, and it needs no filter call before it.

    Threads: any. Blocks: as Preconditions does. I/O: live reads of what the stores do not have.
    """

    def __init__(self, allocator: Allocator, preconditions: Preconditions, co_scheduler: CoScheduling) -> None:
        self._allocator, self._preconditions, self._co_scheduler = allocator, preconditions, co_scheduler

    def prioritize(self, args: wire.FilterArgs) -> bytes:
        """The encoded answer. Raises NotReadyError, PodFailedError as the other verbs do."""
        checks = self._preconditions
        term = checks.begin()
        scores: Mapping[str, int] = dict.fromkeys(args.candidates, 0)
        if checks.mode is not Mode.BYPASS and args.pod.has_claims:
            checks.check_fresh()
            checks.know_pod(args.pod)
            served = self._co_scheduler.scores(args.pod, args.candidates)
            scores = served or checks.ask(lambda: self._allocator.score_nodes(args.pod.uid, args.candidates))
        reply = encode_priorities(scores)
        checks.check_term(term)
        what = {"namespace": args.pod.namespace, "pod": args.pod.name, "uid": args.pod.uid}
        say(log, "prioritize", logging.DEBUG, **what, candidates=len(scores), best=max(scores.values(), default=0))
        return reply
