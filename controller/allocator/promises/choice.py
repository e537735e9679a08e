"""Has the cluster chosen a node for this pod, and for which of its volumes? One pure function, asked on every event, on
every filter call and by a new leader.

Signals of kube-scheduler, the surest first: `spec.nodeName`, about all volumes; the annotation
`volume.kubernetes.io/selected-node` of a claim, about that claim's volume; `status.nominatedNodeName`, about none. What
is not about a volume may only narrow a hold of ours that names the node: preemption nominates nodes that were never
checked, and a claim of several pods may carry another one's choice. Binding clears the nomination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from controller.model.workload import Claim, PersistentVolume, Pod

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Choice:
    """`is_bound`: it is about every volume of the pod. `about`: uids of claims whose own annotation says so.
    `is_current` false: by annotations of bound claims alone, which stay for ever. `is_unclear`: so, and another claim's
    volume, which cannot be seen yet, may have been made later for another node."""

    node: str
    is_bound: bool = False
    about: frozenset[str] = _NOTHING
    is_current: bool = True
    is_unclear: bool = False


def choice_of(
    pod: Pod,
    claims: Iterable[Claim],
    pv_of: Callable[[str], PersistentVolume | None],
    *,
    is_used_by_others: Callable[[Claim], bool] = lambda _claim: False,
    is_superseded: Callable[[Claim], bool] = lambda _claim: False,
    is_old_nomination: Callable[[str], bool] = lambda _node: False,
) -> Choice | None:
    """The present choice for `pod`, or None.

    The annotation stays on bound claims for ever. It then speaks only for a pod that is older than the volume, in whole
    seconds, as timestamps have them, since that pod must have caused it; never for claims of several nodes, whose later
    users are free; and not when the pod was answered anew since (`is_superseded`). If they name several nodes, the
    volume that was made last decides, if only that no other node is the one. The annotation of a claim with other users
    speaks of that claim alone, which is the claim's own promise, not this pod's.
    """
    if pod.node_name:
        return Choice(pod.node_name, is_bound=True)
    current: dict[str, set[str]] = {}  # node -> uids of unbound claims
    past: dict[str, set[str]] = {}  # the same of bound ones
    is_unclear = False
    made: dict[str, tuple[str, int]] = {}  # node -> when the last volume was made for it
    for claim in claims:
        if not claim.selected_node or is_used_by_others(claim) or is_superseded(claim):
            continue
        if not claim.volume_name:
            current.setdefault(claim.selected_node, set()).add(claim.uid)
            continue
        pv = pv_of(claim.volume_name)
        if pv is None:
            is_unclear = True
            continue
        if pod.created_utc >= pv.created_utc:
            continue
        if not claim.is_shared:
            past.setdefault(claim.selected_node, set()).add(claim.uid)
        # Times are whole seconds; of two volumes of the same one, the later one has the later version.
        made[claim.selected_node] = max((pv.created_utc, pv.version), made.get(claim.selected_node, ("", 0)))
    node = next(iter(current), "") or max(made, key=made.__getitem__, default="")
    about = current.get(node, set()) | past.get(node, set())
    if about:
        is_current = node in current
        is_unclear = is_unclear and not is_current
        return Choice(node, about=frozenset(about), is_current=is_current, is_unclear=is_unclear)
    if pod.nominated_node and not is_old_nomination(pod.nominated_node):
        return Choice(pod.nominated_node)
    return None
