"""Has the cluster chosen a node for this pod? One pure function, asked on every event, on every filter call and by a
new leader.

Signals of kube-scheduler, the latest and surest first: `spec.nodeName`; the annotation
`volume.kubernetes.io/selected-node` of a claim that is not bound yet; `status.nominatedNodeName`, which comes first
in time but which preemption sets too, on nodes that were never checked, so that it may only narrow a promise that
stands already. Binding clears the nomination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from controller.model.workload import Claim, PersistentVolume, Pod


@dataclass(frozen=True, slots=True)
class Choice:
    """`narrows_only`: a nomination. `is_certain`: false when the times of pod and volume do not tell them apart, or
    when the claim has other users, of whom it may speak."""

    node: str
    narrows_only: bool = False
    is_certain: bool = True


def choice_of(
    pod: Pod,
    claims: Iterable[Claim],
    pv_of: Callable[[str], PersistentVolume | None],
    is_used_by_others: Callable[[Claim], bool] = lambda _claim: False,
) -> Choice | None:
    """The node that stands chosen for `pod`, or None.

    The annotation stays on bound claims for ever. It then speaks only for a pod that is older than the volume, since
    that pod must have caused it; never for claims of several nodes, whose later users are free.
    """
    if pod.node_name:
        return Choice(pod.node_name)
    late: Choice | None = None
    for claim in claims:
        if not claim.selected_node:
            continue
        if not claim.volume_name:
            chosen = Choice(claim.selected_node, is_certain=not is_used_by_others(claim))
            if chosen.is_certain:
                return chosen
            late = late or chosen
            continue
        pv = pv_of(claim.volume_name)
        if pv is None or claim.is_shared or pod.created_utc > pv.created_utc:
            continue
        is_certain = pod.created_utc < pv.created_utc and not is_used_by_others(claim)
        late = late or Choice(claim.selected_node, is_certain=is_certain)
    if late is not None:
        return late
    return Choice(pod.nominated_node, narrows_only=True) if pod.nominated_node else None
