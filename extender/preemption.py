"""The preempt verb: which nodes may lose pods so that another one gets their place.

Evicting pods frees no Longhorn space: their claims, and so their replicas, stay. Default preemption does not know that
and asks an extender only if it has this verb. So a node where the pod's volumes find no room without any eviction is
taken out of the candidates, before anybody is evicted for nothing.

Source: kube-scheduler's `extender/v1` types and `pkg/scheduler/extender.go` (ProcessPreemption). With
`nodeCacheCapable` the victims come by their uids, without it as whole pods; the answer always has uids. A candidate
whose list of victims is empty cannot be answered: kube-scheduler 1.36 takes an empty list in the answer for an error,
so it is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from controller.allocator.outcome import Mode
from controller.errors import MalformedRequestError
from extender import wire
from extender.preconditions import Preconditions

_META: Final = "NodeNameToMetaVictims"
_WHOLE: Final = "NodeNameToVictims"
_GO_KEYS: Final = {
    "pods": "Pods",
    "violations": "NumPDBViolations",
    "uid": "UID",
    "meta_victims": _META,
}
_KEYS: Final = {"pod": "Pod", _META.lower(): _META, _WHOLE.lower(): _WHOLE}

log = logging.getLogger(__name__)


class _MetaPod(msgspec.Struct, rename=_GO_KEYS, gc=False):
    uid: str = ""


class _MetaVictims(msgspec.Struct, rename=_GO_KEYS):
    pods: list[_MetaPod] | None = None
    violations: int = 0


class _Victims(msgspec.Struct, rename=_GO_KEYS):
    pods: list[wire.PodHead] | None = None
    violations: int = 0


class _Result(msgspec.Struct, rename=_GO_KEYS):
    meta_victims: dict[str, _MetaVictims]


_KINDS: Final = {_META: dict[str, _MetaVictims | None] | None, _WHOLE: dict[str, _Victims | None] | None}
_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Victims:
    """Whom a node would lose, by uid, and how many disruption budgets that would break."""

    pod_uids: tuple[str, ...]
    violations: int


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    pod: wire.PodRef
    candidates: Mapping[str, Victims]  # by node


def decode_preemption_args(body: bytes) -> PreemptionArgs:
    """The request in `body`; MalformedRequestError names the field that is wrong. Unknown fields mean nothing."""
    fields = wire.decode_fields(body, _KEYS)
    pod = wire.decode_pod(fields.get("Pod"))
    if _META not in fields and _WHOLE not in fields:
        raise MalformedRequestError(_META, f"is missing, and so is {_WHOLE}")
    found: dict[str, Victims] = {}
    for field, kind in _KINDS.items():
        if field in fields and not found:
            found = _victims(field, wire.decode_as(kind, fields[field], field))
    return PreemptionArgs(pod, found)


def _victims(field: str, by_node: Mapping[str, _MetaVictims | _Victims | None] | None) -> dict[str, Victims]:
    found = {}
    for node, entry in (by_node or {}).items():
        if not node:
            raise MalformedRequestError(field, "has a node without a name")
        if entry is not None:
            found[node] = Victims(_uids(field, node, [pod.uid for pod in entry.pods or ()]), entry.violations)
    return found


def _uids(field: str, node: str, uids: Sequence[str]) -> tuple[str, ...]:
    for index, uid in enumerate(uids):
        if not uid:
            raise MalformedRequestError(f"{field}.{node[:253]}.Pods[{index}]", "has no uid")
    return tuple(uids)


def encode_preemption_result(candidates: Mapping[str, Victims], kept: Collection[str]) -> bytes:
    """The candidates that stay, with all their victims."""
    return _ENCODER.encode(
        _Result(
            {
                node: _MetaVictims([_MetaPod(uid) for uid in victims.pod_uids], victims.violations)
                for node, victims in candidates.items()
                if node in kept
            }
        )
    )


class Allocator(Protocol):
    def nodes_with_room(self, pod_uid: str, candidates: Collection[str]) -> Collection[str]: ...


class PreemptionObserver(Protocol):
    """Told after every answer, outside all locks."""

    def preempted(self, kept: int, dropped: int) -> None: ...


class PreemptionService:
    """Answers the preempt verb. Nothing is held: kube-scheduler filters the pod again once its victims are gone.

    Threads: any. Blocks: as Preconditions does. I/O: live reads of what the stores do not have.
    """

    def __init__(self, allocator: Allocator, preconditions: Preconditions, observer: PreemptionObserver) -> None:
        self._allocator, self._preconditions, self._observer = allocator, preconditions, observer

    def preempt(self, args: PreemptionArgs) -> bytes:
        """The encoded answer. Raises as `ExtenderService.filter_pod` does."""
        checks, pod = self._preconditions, args.pod
        term = checks.begin()
        kept: Collection[str] = [node for node, victims in args.candidates.items() if victims.pod_uids]
        if checks.mode is not Mode.BYPASS and pod.has_claims:
            checks.check_fresh()
            checks.know_pod(pod.uid, pod.namespace, pod.name)
            checks.know_objects(pod.uid)
            kept = self._allocator.nodes_with_room(pod.uid, kept)
        reply = encode_preemption_result(args.candidates, frozenset(kept))
        checks.check_term(term)
        self._observer.preempted(len(kept), len(args.candidates) - len(kept))
        log.info("preempt pod=%s uid=%s candidates=%d kept=%d", pod.key, pod.uid, len(args.candidates), len(kept))
        return reply
