"""The preempt verb: on which nodes pods may be evicted for another one.

Evicting pods frees no Longhorn space: their claims, and so their replicas, stay. Default preemption does not know that
and asks an extender only if it has this verb. So a node where the pod's volumes find no room without any eviction is
taken out of the candidates, before anybody is evicted for nothing. So is one where the pod may not run, since its
shared volumes are served elsewhere.

Source: kube-scheduler's `extender/v1` types and `pkg/scheduler/extender.go` (ProcessPreemption). With
`nodeCacheCapable` the victims come by their uids, without it as whole pods; the answer always has uids. A candidate
whose list of victims is empty cannot be answered: kube-scheduler 1.36 takes an empty list in the answer for an error,
so the candidate is left out.

The keys of the victims' own objects (`Pods`, `NumPDBViolations`, `UID`) are Go field names, too, so they are read in
any letter case like the outer ones; of two spellings of one key, the later one counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

import msgspec

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.errors import MalformedRequestError, NotSyncedError
from controller.views.decisions import NoteDecision, log_decision
from extender import wire
from extender.coschedule import CoScheduling
from extender.preconditions import PodFailedError, Preconditions, RefusalListener

_META: Final = "NodeNameToMetaVictims"
_WHOLE: Final = "NodeNameToVictims"
_GO_KEYS: Final = {
    "pod": "Pod",
    "meta": _META,
    "whole": _WHOLE,
    "pods": "Pods",
    "violations": "NumPDBViolations",
    "uid": "UID",
}
_KEYS: Final = {"pod": "Pod", _META.lower(): _META, _WHOLE.lower(): _WHOLE}
_INNER: Final = {"pods": "Pods", "numpdbviolations": "NumPDBViolations"}
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what Go can read back

_PODS_PER_NODE: Final = 20  # at most, on average: a kubelet takes 110, and a tenth of the nodes is asked about


# As kube-scheduler writes them. An object with any other key is read more slowly, since that key may be one of these
# in another spelling.
class _Args(msgspec.Struct, rename=_GO_KEYS, forbid_unknown_fields=True):
    pod: msgspec.Raw = msgspec.Raw(b"null")
    meta: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    whole: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _MetaPod(wire.Counted, rename=_GO_KEYS, forbid_unknown_fields=True):
    uid: str = ""


class _MetaVictims(wire.Counted, rename=_GO_KEYS, forbid_unknown_fields=True):
    pods: list[_MetaPod] | None = None
    violations: _Int64 = 0


class _Victims(wire.Counted, rename=_GO_KEYS, forbid_unknown_fields=True):
    pods: list[wire.PodHead] | None = None
    violations: _Int64 = 0


_KINDS: Final = {_META: dict[str, _MetaVictims] | None, _WHOLE: dict[str, _Victims] | None}
_OBJECTS: Final = dict[str, dict[str, msgspec.Raw] | None] | None
_META_PODS: Final = list[dict[str, msgspec.Raw]] | None
_WHOLE_PODS: Final = list[wire.PodHead] | None
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


def decode_preemption_args(body: bytes, size: wire.ClusterSize = wire.ANY_SIZE) -> PreemptionArgs:
    """The request in `body`; MalformedRequestError names the field that is wrong. Unknown fields mean nothing."""
    size.begin(_PODS_PER_NODE)
    fields = _fields(body)
    pod = wire.decode_pod(fields.get("Pod"))
    if _META not in fields and _WHOLE not in fields:
        raise MalformedRequestError(_META, f"is missing, and so is {_WHOLE}")
    found: dict[str, Victims] = {}
    for field, kind in _KINDS.items():
        if field in fields and not found:
            try:
                by_node = wire.decode_as(kind, fields[field], field)
            except MalformedRequestError as error:
                wire.check_fields(fields[field], error)
                by_node = _any_case(field, fields[field])
            size.check(field, len(by_node or ()))
            found = _victims(field, by_node)
    return PreemptionArgs(pod, found)


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        args = wire.decode_as(_Args, body, "")
    except MalformedRequestError as error:
        wire.check_fields(body, error)
        return wire.decode_fields(body, _KEYS)
    fields = {"Pod": args.pod, _META: args.meta, _WHOLE: args.whole}
    return {name: raw for name, raw in fields.items() if raw is not msgspec.UNSET}


def _any_case(field: str, raw: msgspec.Raw) -> dict[str, _MetaVictims | _Victims | None]:
    """The victims by node, with the keys of their objects in any letter case."""
    found: dict[str, _MetaVictims | _Victims | None] = {}
    for node, entry in (wire.decode_as(_OBJECTS, raw, field) or {}).items():
        if entry is None:
            found[node] = None
            continue
        path = f"{field}.{node[:253]}"
        inner = {_INNER.get(key.casefold(), ""): value for key, value in entry.items()}
        count = _decoded(_Int64, inner, "NumPDBViolations", path, 0)
        if field == _WHOLE:
            found[node] = _Victims(_decoded(_WHOLE_PODS, inner, "Pods", path, None), count)
        else:
            pods = _decoded(_META_PODS, inner, "Pods", path, None)
            found[node] = _MetaVictims(
                pods and [_meta_pod(pod, f"{path}.Pods[{index}]") for index, pod in enumerate(pods)], count
            )
    return found


def _meta_pod(pod: Mapping[str, msgspec.Raw], path: str) -> _MetaPod:
    return _MetaPod(_decoded(str, {key.casefold(): value for key, value in pod.items()}, "uid", path, ""))


def _decoded(kind: Any, fields: Mapping[str, msgspec.Raw], name: str, path: str, default: object) -> Any:
    return wire.decode_as(kind, fields[name], f"{path}.{name}") if name in fields else default


def _victims(field: str, by_node: Mapping[str, _MetaVictims | _Victims | None] | None) -> dict[str, Victims]:
    found = {}
    for node, entry in (by_node or {}).items():
        if not node:
            raise MalformedRequestError(field, "has a node without a name")
        if entry is None:
            continue
        uids = tuple(pod.uid for pod in entry.pods or ())
        if "" in uids:
            raise MalformedRequestError(f"{field}.{node[:253]}.Pods[{uids.index('')}]", "has no uid")
        found[node] = Victims(uids, entry.violations)
    return found


def encode_preemption_result(candidates: Mapping[str, Victims], kept: Collection[str]) -> bytes:
    """The candidates that stay, with all their victims."""
    found = {
        node: {"Pods": [{"UID": uid} for uid in victims.pod_uids], "NumPDBViolations": victims.violations}
        for node, victims in candidates.items()
        if node in kept
    }
    return _ENCODER.encode({_META: found})


class PreemptionObserver(Protocol):
    """Told after every answer, outside all locks. In the product `LeaderMetrics` of controller.assembly, which must
    not be imported here."""

    def preempted(self, kept: int, dropped: int) -> None: ...


class PreemptionService:
    """Answers the preempt verb. Nothing is held: kube-scheduler filters the pod again once its victims are gone. Until
    then the allocator keeps the room of the node that is nominated.

    Threads: any. Blocks: as Preconditions does. I/O: live reads of what the stores do not have.
    """

    def __init__(
        self,
        allocator: Allocator,
        preconditions: Preconditions,
        observer: PreemptionObserver,
        listener: RefusalListener,
        co_scheduler: CoScheduling,
        note: NoteDecision = log_decision,
    ) -> None:
        self._allocator, self._preconditions, self._co_scheduler = allocator, preconditions, co_scheduler
        self._observer, self._listener, self._note = observer, listener, note

    def preempt(self, args: PreemptionArgs) -> bytes:
        """The encoded answer. Raises as `ExtenderService.filter_pod` does."""
        checks, pod = self._preconditions, args.pod
        term = checks.begin()
        asked = [node for node, victims in args.candidates.items() if victims.pod_uids]
        kept: Collection[str] = asked
        if checks.mode is not Mode.BYPASS and pod.has_claims:
            kept = self._where_it_may_run(pod, asked)
        reply = encode_preemption_result(args.candidates, frozenset(kept))
        checks.check_term(term)
        self._observer.preempted(len(kept), len(args.candidates) - len(kept))
        if asked and not kept:
            self._listener.refused(pod.uid, pod.namespace, pod.name)
        text = f"pods may be evicted on {len(kept)} of {len(args.candidates)} nodes"
        facts = {"uid": pod.uid, "candidates": len(args.candidates), "kept": len(kept)}
        self._note("preempt", f"Pod {pod.key}", "kept" if kept else "none", text=text, facts=facts)
        return reply

    def _where_it_may_run(self, pod: wire.PodRef, asked: Sequence[str]) -> Collection[str]:
        """The nodes where pods may be evicted. After an error of this verb, kube-scheduler does not ask again by
        itself, as it does after one of filter. So a pod that we failed is woken, like one that other pods' promises
        keep out."""
        checks = self._preconditions
        try:
            checks.check_fresh()
            checks.know_pod(pod)
            narrowed = self._co_scheduler.narrow(pod, asked)
            left, adds_up = narrowed.candidates, not checks.knows_callers
            kept = checks.ask(lambda: self._allocator.nodes_with_room(pod.uid, left, adds_up=adds_up))
            self._co_scheduler.ended(pod, narrowed, passed=bool(kept))
            return kept
        except (NotSyncedError, PodFailedError):
            self._allocator.preemption_failed(pod.uid, asked)
            raise
