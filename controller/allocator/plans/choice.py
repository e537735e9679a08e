"""Has the cluster chosen a node for this pod? One pure function, asked on every event, on every filter call and by a
new leader.

Signals of kube-scheduler, the surest first: `spec.nodeName`; the annotation `volume.kubernetes.io/selected-node` of a
claim; `status.nominatedNodeName`. The annotation stays on claims for ever, and anybody who may edit the claim can write
it; so the last two count only for a pod that we have answered, where they name a node that was offered, and say
something else than they did before the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controller.allocator.plans.plan import Hold
from controller.model.workload import Claim, PersistentVolume, Pod


def choice_of(
    pod: Pod,
    claims: Iterable[Claim],
    answer: Hold | None,
    pv_of: Callable[[str], PersistentVolume | None],
    *,
    is_used_by_others: Callable[[Claim], bool] = lambda _claim: False,
) -> str:
    """The node that is chosen for `pod` now; "" for none. `claims` are the pod's own; of one that another pod was
    answered about the annotation may speak of that pod, and says nothing.

    An annotation of a bound claim speaks only for a pod that is older than the volume, in whole seconds, as timestamps
    have them, since that pod must have caused it; until its volume is seen, what was chosen before stands. If claims
    name several nodes, unbound ones decide, else the volume that was made last.
    """
    if pod.node_name:
        return pod.node_name
    if answer is None:
        return ""
    is_unclear, named = False, list[tuple[bool, str, int, str]]()
    for claim in claims:
        node = claim.selected_node
        if is_used_by_others(claim) or not _is_news(answer, claim.uid, node):
            continue
        pv = pv_of(claim.volume_name) if claim.volume_name else None
        if not claim.volume_name:
            named.append((True, "", 0, node))
        elif pv is None:
            is_unclear = True
        elif pod.created_utc < pv.created_utc:
            named.append((False, pv.created_utc, pv.version, node))
    if named and not (is_unclear and not max(named)[0]):
        return max(named)[-1]
    if is_unclear:
        return answer.chosen
    return pod.nominated_node if _is_news(answer, "", pod.nominated_node) else ""


def said_before(pod: Pod, claims: Iterable[Claim]) -> frozenset[tuple[str, str]]:
    """What an answer that is given now is later than."""
    said = {(claim.uid, claim.selected_node) for claim in claims if claim.selected_node}
    return frozenset(said | ({("", pod.nominated_node)} if pod.nominated_node else set()))


def _is_news(answer: Hold, claim_uid: str, node: str) -> bool:
    return bool(node) and answer.includes(node) and (claim_uid, node) not in answer.older
