"""Why a pod waits, or where its volumes are and why there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from controller.allocator.choose.pod_fit import PodFit
from controller.allocator.choose.shortfall import too_large
from controller.allocator.choose.verdict import Judgement
from controller.allocator.outcome import MOST_CLAIMS, Mode
from controller.allocator.plans.shared_claims import NO_LIMIT
from controller.allocator.verbs.account import account_of_limit
from controller.allocator.verbs.views import Look
from controller.model.quantity import bytes_text
from controller.model.workload import Pod
from controller.rules.demand import Missing, VolumeDemand
from controller.rules.reasons import Reason
from controller.views.documents import Explanation, NodeAnswer, VolumeAnswer
from controller.views.explain.case import PodCase
from controller.views.explain.causes import MOST_NAMES, cause_of
from controller.views.explain.changes import in_words
from controller.views.explain.holders import MaySee
from controller.views.explain.nodes import Barrier, Sight, answers, barriers
from controller.views.explain.places import volume_answer
from controller.views.overview import GATED, QUARANTINED, UNWIRED, WHY_UNASKED, is_quarantined

_PENDING = "If it stays pending, kube-scheduler has another reason, which its condition PodScheduled tells."
WAITS, LET_THROUGH, RUNS, NOT_OURS, GONE = "waits", "let-through", "runs", "not-ours", "gone"


def explain_pod(look: Look, namespace: str, name: str, may_see: MaySee) -> Explanation:
    """Return the explanation; of state "gone" where no such pod is known."""
    pod = look.world.pod_by_key(f"{namespace}/{name}")
    if pod is None:
        return gone("Pod", namespace, name, "It is gone, or names no claim and does not ask for the extender.")
    demands, missing = look.world.demands_of(pod)
    known = _over(pod) or _bound(pod) or _unasked(look, pod) or _broken(look, pod) or _unknown(missing)
    hold = look.table.hold(pod.uid)
    if known is None and (hold is not None or _is_planned(look, pod, demands)):
        nodes = len(hold.nodes) if hold is not None and hold.nodes is not None and not hold.chosen else 0
        where = f"on {nodes} nodes" if nodes > 1 else "on one node" if nodes else "and kube-scheduler's choice is seen"
        text = f"It was let through {where}; its volumes' places are kept for it. If it stays pending, kube-scheduler"
        known = _Known(
            LET_THROUGH, "let-through", f"{text} has another reason, which its condition PodScheduled tells."
        )
    if known is not None:
        volumes = tuple(volume_answer(look, demand, hold) for demand in demands)
        return _told(pod, *known, volumes=volumes)
    return _explain_waiting(look, pod, may_see)


def gone(kind: str, namespace: str, name: str, why: str = "") -> Explanation:
    """Return the explanation of an object that is not known."""
    what = f"{namespace}/{name}" if namespace else name
    text = f"The leader knows no {kind} {what}. {why}".rstrip()
    return Explanation(kind, namespace, name, GONE, "", "unknown", text, "", (), (), 0)


def _told(
    pod: Pod,
    state: str,
    cause: str,
    text: str,
    change: str = "",
    volumes: Sequence[VolumeAnswer] = (),
    nodes: Sequence[NodeAnswer] = (),
    more: int = 0,
) -> Explanation:
    since = pod.created_utc
    return Explanation("Pod", pod.namespace, pod.name, state, since, cause, text, change, volumes, nodes, more)


# Pods of which no node is asked


class _Known(NamedTuple):
    state: str
    cause: str
    text: str
    change: str = ""


def _over(pod: Pod) -> _Known | None:
    if pod.is_finished:
        return _Known(GONE, "finished", "The pod has finished, and needs its volumes no more.")
    return _Known(GONE, "deleted", "The pod is being deleted.") if pod.is_deleting else None


def _bound(pod: Pod) -> _Known | None:
    return _Known(RUNS, "bound", f"The pod is bound to node {pod.node_name}.") if pod.node_name else None


def _unasked(look: Look, pod: Pod) -> _Known | None:
    if look.mode is Mode.BYPASS:
        return _Known(NOT_OURS, "bypass", "The extender is bypassed: it lets every pod pass, and holds no room.")
    if look.mode is not Mode.ACTIVE:
        return _Known(NOT_OURS, str(look.mode), f"The extender answers nobody: its mode is {look.mode}.")
    if not pod.is_opted_in:
        return _not_opted_in(look, pod)
    name = pod.scheduler_name
    if look.schedulers is not None and name not in look.schedulers:
        text = f"Its scheduler {name!r} is not in --scheduler-names, so it gets no answer."
        return _Known(NOT_OURS, "other-scheduler", text, f"Add {name} to --scheduler-names of both programs.")
    if pod.is_gated:
        return _Known(NOT_OURS, GATED, WHY_UNASKED[GATED], "Remove them.")
    if pod.lacks_extender:
        change = "Give the extender to kube-scheduler's configuration, on every control-plane node."
        return _Known(NOT_OURS, UNWIRED, WHY_UNASKED[UNWIRED], change)
    if len(pod.volumes) > MOST_CLAIMS:
        text = f"It names {len(pod.volumes)} claims; more than {MOST_CLAIMS} get no answer."
        return _Known(WAITS, "too-many-claims", text)
    return None


def _not_opted_in(look: Look, pod: Pod) -> _Known:
    if not look.world.uses_longhorn(pod):
        return _Known(NOT_OURS, "no-longhorn-volume", "None of its volumes is Longhorn's, so nobody asks about it.")
    text = "It does not ask for longhorn.io/scheduler-extender, so that nobody asks the extender about it"
    mark = f"; its mark is {pod.opt_in_mark!r}" if pod.opt_in_mark else ""
    return _Known(NOT_OURS, "not-opted-in", f"{text}{mark}.", "Make it anew: the webhook opts new pods in.")


def _broken(look: Look, pod: Pod) -> _Known | None:
    if not is_quarantined(look, pod):
        return None
    text = "The pod, or one of its claims, broke an internal rule of the extender, a fault of ours; it is tried again"
    return _Known(WAITS, QUARANTINED, f"{text} within five minutes. The leader's log has the details.")


def _unknown(missing: Sequence[Missing]) -> _Known | None:
    one = next((one for one in missing if one.kind != "backup"), None)
    if one is None:
        return None
    return _Known(WAITS, f"missing-{one.kind}", f"It needs {one.text}, which does not exist.", f"Make {one.text}.")


def _is_planned(look: Look, pod: Pod, demands: Sequence[VolumeDemand]) -> bool:
    plans = (look.table.plan(demand.volume) for demand in demands)
    return any(plan is not None and pod.uid in plan.pods for plan in plans)


# Pods that wait


def _explain_waiting(look: Look, pod: Pod, may_see: MaySee) -> Explanation:
    case = PodCase.of(look, pod)
    fit = case.fit()
    judgements = case.judge(fit)
    if not judgements:
        return _in_use(case)
    if any(judgement.is_sure for judgement in judgements.values()):
        return _has_room(case, judgements)
    found = barriers(case, fit, judgements)
    nearest = found[0]
    nodes, more = answers(Sight.of(case, fit), found, may_see)
    change = in_words(case, found)
    volumes = tuple(_volume(look, demand, nearest) for demand in case.demands)
    cause, text = _cause(case, fit, found, judgements)
    return _told(pod, WAITS, cause, text, change, volumes, nodes, more)


def _volume(look: Look, demand: VolumeDemand, nearest: Barrier) -> VolumeAnswer:
    if nearest.demand is None or nearest.demand.volume != demand.volume or demand.is_local:
        return volume_answer(look, demand)
    return volume_answer(look, demand, None, nearest.reason, f"{nearest.node}: {nearest.why}")


def _in_use(case: PodCase) -> Explanation:
    """Other pods of its claims leave the pod no node."""
    pod, look = case.pod, case.look
    volumes = tuple(volume_answer(look, demand) for demand in case.demands)
    if not case.names:
        text = "Longhorn has no node."
        return _told(pod, WAITS, Reason.NO_LONGHORN_NODE, text, volumes=volumes)
    text = account_of_limit(case.limit)
    if case.limit.waits:
        return _told(pod, WAITS, Reason.CONTENDED, text, volumes=volumes)
    users = (look.world.pods[uid] for uid in look.world.sharing(pod))
    names = sorted({one.name for one in users if one.node_name and not one.is_over})
    who = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    change = f"End or delete {who}." if replace(case, limit=NO_LIMIT).fits() else ""
    return _told(pod, WAITS, Reason.IN_USE_ELSEWHERE, f"{text} They are: {who}.", change, volumes)


def _has_room(case: PodCase, judgements: Mapping[str, Judgement]) -> Explanation:
    """The pod would be let through now."""
    pod, look = case.pod, case.look
    sure = [name for name, judgement in judgements.items() if judgement.is_sure]
    where = f"{len(sure)} of {len(judgements)} nodes, among them {sure[0]}"
    volumes = tuple(volume_answer(look, demand) for demand in case.demands)
    if pod.uid in look.refused:
        text = f"There is room for its volumes now, on {where}; the leader wakes it, and kube-scheduler asks again."
        return _told(pod, WAITS, "room-now", text, volumes=volumes)
    text = f"The extender has not refused it: its volumes find room on {where}. {_PENDING}"
    return _told(pod, WAITS, "has-room", text, volumes=volumes)


def _cause(
    case: PodCase, fit: PodFit, found: Sequence[Barrier], judgements: Mapping[str, Judgement]
) -> tuple[str, str]:
    """The cause, and the sentence about it, with what else narrows the pod's choice."""
    demand, count = found[0].demand, _copies(case, fit, judgements)
    cause, text = cause_of(Sight.of(case, fit), found, _what(fit, demand, is_further=bool(count)))
    return cause, " ".join(filter(None, (_never(case), count, text, _asked(case, demand))))


def _asked(case: PodCase, demand: VolumeDemand | None) -> str:
    """That kube-scheduler's other rules leave few nodes to a volume that follows its pod; "" if they leave all."""
    count, left = len(case.world.nodes), len(case.world.nodes.keys() & set(case.names))
    if left == count or (demand is not None and not demand.is_local):
        return ""
    return (
        f"kube-scheduler asked about {left} of the {count} nodes: selectors, taints, cordons and the like decide that."
    )


def _never(case: PodCase) -> str:
    found = too_large(case.world, case.demands)
    if found is None:
        return ""
    asks, most = bytes_text(found.demand.size_bytes), bytes_text(found.largest_bytes)
    return f"It can never fit: claim {found.demand.claim} requests {asks}, and the largest disk takes {most}."


def _copies(case: PodCase, fit: PodFit, judgements: Mapping[str, Judgement]) -> str:
    """How many copies find a disk, where more are needed at once."""
    lack = next((one.lack for one in judgements.values() if one.lack is not None), None)
    if lack is None or case.world.settings.degraded_availability or lack.demand.copies < 2:
        return ""
    lack = case.lack(fit, lack.demand) or lack
    count, copies = len(lack.places), lack.demand.copies
    setting = "allow-volume-creation-with-degraded-availability"
    return f"Only {count} of {copies} copies find a disk, and all have to, since {setting} is false."


def _what(fit: PodFit, demand: VolumeDemand | None, *, is_further: bool) -> tuple[str, str]:
    """What is placed, and the verb for it. `is_further`: a copy beside those that find a disk."""
    if demand is not None:
        what = "A further copy of claim" if is_further else "Claim"
        return f"{what} {demand.claim} ({bytes_text(demand.size_bytes)})", "lacks"
    together = bytes_text(sum(one.size_bytes for one in fit.local))
    return (
        (f"Its {len(fit.local)} volumes ({together} on the pod's node)", "lack") if fit.local else ("The pod", "lacks")
    )
