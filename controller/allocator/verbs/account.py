"""Why a pod was refused, in a sentence or two with numbers: for the Event that `kubectl describe` shows with the pod.

Everybody who may read the pod can read the Event. So only objects of the pod's own namespace are named; those of others
are told as a number and a sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from controller.allocator.judge.never import too_large
from controller.allocator.judge.node import Judge, Judgement, Verdict
from controller.allocator.promises.users import Tie
from controller.allocator.verbs.explain import refusals_of
from controller.allocator.verbs.fit import judge_nodes
from controller.allocator.world.world import World
from controller.model.quantity import bytes_text
from controller.model.workload import Claim
from controller.rules.reasons import Reason, Refusal

MOST_NODES: Final = 200  # nodes that are judged; they represent the rest
MOST_NAMES: Final = 3

_Kind: TypeAlias = tuple[str, Reason]  # what is counted: nodes or disks, by reason


def account_of(
    judge: Judge, namespace: str, names: Sequence[str], kept_on: str = "", *, allows_stranding: bool = False
) -> str:
    """What prevents a pod of `namespace` from using `names`, the most frequent reason first, each with one node's
    numbers; "" when a node has room by now. `kept_on`: where room is kept for the pod until it fits."""
    looked_at = names[:MOST_NODES]
    judgements = judge_nodes(judge, looked_at, allows_stranding=allows_stranding)
    if any(judgement.verdict is Verdict.SURE for judgement in judgements.values()):
        return ""
    counts: Counter[_Kind] = Counter()
    examples: dict[_Kind, str] = {}
    for name, judgement in judgements.items():
        kind = "node", judgement.reason or Reason.CONTENDED
        counts[kind] += 1
        if kind not in examples:
            examples[kind] = _example(judge, name, judgement)
            if kind[1] is Reason.CONTENDED:
                examples[kind] += _of_whom(judge, namespace, name)
    more = len(names) - len(looked_at)
    waits = f"; room is kept for it on node {kept_on} because it has waited a long time" if kept_on else ""
    wanted = ", ".join(f"{demand.claim} {bytes_text(demand.size_bytes)}" for demand in judge.demands[:MOST_NAMES])
    never = too_large(judge.world, judge.demands)
    why = ""
    if never is not None:
        asks, most = bytes_text(never.demand.size_bytes), bytes_text(never.largest_bytes)
        why = f"It can never fit: {never.demand.claim} requests {asks}, and the largest disk takes at most {most}. "
    return f"{why}No Longhorn room for {wanted}: {_told(counts, examples, more)}{waits}"


def account_of_disks(refusals: Iterable[Refusal], more: int) -> tuple[Mapping[str, int], str]:
    """How many nodes and disks there are by reason, the most frequent one first; and the same in words, with the
    numbers of one each. `more`: nodes that were not looked at."""
    counts: Counter[_Kind] = Counter()
    examples: dict[_Kind, str] = {}
    for one in refusals:
        kind = "disk" if one.disk else "node", one.rejection.reason
        counts[kind] += 1
        text = one.rejection.message
        examples.setdefault(kind, f"{one.node}, {text}" if one.disk else text)
    reasons = Counter[str]()
    for (_, reason), count in counts.items():
        reasons[reason.value] += count
    return dict(reasons.most_common()), _told(counts, examples, more)


def _told(counts: Counter[_Kind], examples: Mapping[_Kind, str], more: int) -> str:
    parts = [
        f"{count} {kind[0] if count == 1 else kind[0] + 's'} {kind[1]} ({examples[kind]})"
        for kind, count in counts.most_common()
    ]
    return "; ".join(parts) + (f"; {more} more nodes" if more else "")


def account_of_tie(tie: Tie) -> str:
    """Why other users of a claim leave the pod none of the nodes that were asked about."""
    if tie.waits:
        return "Another pod that uses one of its claims is being scheduled; its node is not known yet."
    where = ", ".join(sorted(tie.nodes or ())[:MOST_NAMES]) or "different nodes"
    return f"Other pods use its volumes on {where}, and a volume can be attached to only one node at a time."


def _example(judge: Judge, name: str, judgement: Judgement) -> str:
    """The numbers of that node; a disk's say more than the node's own."""
    found = refusals_of(judge, name, judgement)
    of_disks = [entry for entry in found if entry.disk]
    return (of_disks or list(found))[0].rejection.message if found else name


def _of_whom(judge: Judge, namespace: str, name: str) -> str:
    """Whose promises are in the way there: the namespace's own by name, the largest first; the others together."""
    own, others = [], []
    for one in sorted(judge.pending.on(name), key=lambda promise: (-promise.size_bytes, promise.volume)):
        claim = _claim_of(judge.world, one.volume)
        if claim is not None and claim.namespace == namespace:
            own.append(f"{claim.key} {bytes_text(one.size_bytes)}")
        else:
            others.append(one)
    parts = own[:MOST_NAMES]
    if len(own) > MOST_NAMES:
        parts.append(f"{len(own) - MOST_NAMES} more of this namespace")
    if others:
        count = len({one.volume for one in others})
        size = bytes_text(sum(one.size_bytes for one in others))
        parts.append(f"{count} {'volume' if count == 1 else 'volumes'} of other namespaces {size}")
    return f": {', '.join(parts)}" if parts else ""


def _claim_of(world: World, volume: str) -> Claim | None:
    """The claim of a promise; None for a Longhorn volume without one."""
    return world.claim_by_uid(volume) or world.claim_of_volume(volume)
