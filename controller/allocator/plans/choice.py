"""Which node kube-scheduler has chosen for a pod, by what the objects show: one pure function for every event, for
every filter call and for a new leader.

It reads `spec.nodeName`; else the annotation `volume.kubernetes.io/selected-node` of the pod's claims; else
`status.nominatedNodeName`. The annotation stays on a claim for ever, and whoever may edit the claim can write it. So
the last two count only for a pod that was answered yes, if they name an offered node and changed since the answer.
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
    """Return the node that is chosen for `pod` now, or "". `claims` are the pod's own. The annotation of a claim that
    is used by others, too, does not count: it may be meant for another pod.

    The annotation of a bound claim counts only if the pod is older than the volume, by timestamps in whole seconds:
    only then did this pod cause it. While that PV is not seen, the former choice stands. If claims name several nodes,
    unbound claims decide, else the volume that was made last.
    """
    if pod.node_name:
        return pod.node_name
    if answer is None:
        return ""
    is_unclear, named = False, list[tuple[bool, str, int, str]]()
    for claim in claims:
        node = claim.selected_node
        if not _is_news(answer, claim.uid, node) or is_used_by_others(claim):
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


def nodes_named(pod: Pod, claims: Iterable[Claim]) -> frozenset[tuple[str, str]]:
    """Return the nodes that claims (by UID) and the nomination ("") name already: no news after an answer given now."""
    said = {(claim.uid, claim.selected_node) for claim in claims if claim.selected_node}
    return frozenset(said | ({("", pod.nominated_node)} if pod.nominated_node else set()))


def _is_news(answer: Hold, claim_uid: str, node: str) -> bool:
    return bool(node) and answer.includes(node) and (claim_uid, node) not in answer.named_before
