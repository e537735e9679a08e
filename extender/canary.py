"""Filter calls as evidence: each shows that its scheduler is wired, and one about the leader's canary is refused.

A canary passes no node in any mode, bypass too: nothing that proves the wiring may ever be placed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from controller.canary.proof import Recognition
from controller.log_line import say
from extender import wire
from extender.preconditions import PodFailedError
from extender.service import FilterAnswers

REFUSAL: Final = "Longhorn: this pod only tests whether kube-scheduler asks the extender; it is never placed"
STRAY: Final = "Longhorn: this canary is not from this leader; it will be removed soon"

_log = logging.getLogger(__name__)


class Terms(Protocol):
    """The term that an answer would belong to, and whether it still does: both raise NotReadyError. `knows_callers`: it
    is a scheduler that asks."""

    knows_callers: bool

    def begin(self) -> int: ...
    def check_term(self, term: int) -> None: ...


class CanaryEvidence(Protocol):
    def recognise(self, pod_uid: str, pod_namespace: str, pod_name: str) -> Recognition: ...
    def heard(self, scheduler: str, pod_uid: str, pod_key: str, *, is_sure: bool) -> None: ...


class CanaryFilter:
    """Answers about canaries itself, everything else by `inner`.

    Threads: any. Blocks: as `inner` does; about a canary while its uid is on its way, a second at most. I/O: none.
    """

    def __init__(self, inner: FilterAnswers, terms: Terms, evidence: CanaryEvidence) -> None:
        self._inner, self._terms, self._evidence = inner, terms, evidence

    def check_ready(self) -> None:
        self._inner.check_ready()

    def filter_pod(self, args: wire.FilterArgs, is_client_gone: Callable[[], bool]) -> bytes:
        """As ExtenderService.filter_pod. PodFailedError for a canary that is not this leader's."""
        term = self._terms.begin()
        pod = args.pod
        match self._evidence.recognise(pod.uid, pod.namespace, pod.name):
            case (Recognition.OURS | Recognition.LATE) as which:
                # A late one is refused like the other: an error would stand in two logs as if an attempt had failed.
                say(_log, "filter", canary=args.scheduler_name, uid=pod.uid, decision=which.name.lower())
                reply = wire.encode_refusal(args, REFUSAL)
                self._terms.check_term(term)
                return reply
            case Recognition.STRAY:
                raise PodFailedError(STRAY)
        is_sure = self._terms.knows_callers
        self._evidence.heard(args.scheduler_name, pod.uid, pod.key, is_sure=is_sure)
        return self._inner.filter_pod(args, is_client_gone)
