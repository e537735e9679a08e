"""Why nodes are not offered to a pod, with the numbers that decided: for people, never for kube-scheduler.

Its sentences go into the Event that `kubectl describe` shows with the pod, and everybody who may read the pod can read
that. So only objects of the pod's own namespace are named; those of others are told as a number and a sum.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeAlias

from controller.allocator.choose.explain import explain
from controller.allocator.choose.pod_fit import PodFit, wanted_by
from controller.allocator.choose.shape import bars_copy, check_node_of
from controller.allocator.choose.shortfall import nearest_miss, too_large
from controller.allocator.choose.verdict import Judgement, Lack, Verdict, unsuitable
from controller.allocator.choose.wanted import NothingTaken
from controller.allocator.plans.plan import Source
from controller.allocator.plans.shared_claims import NodeLimit
from controller.allocator.plans.table import Table
from controller.allocator.world.world import World
from controller.model.longhorn import Disk, LonghornNode
from controller.model.quantity import bytes_text
from controller.model.workload import Pod
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import check_disk_for, check_disk_open, check_node_for
from controller.rules.reasons import Reason, Refusal, Rejection

MOST_NODES: Final = 200  # nodes that are judged; they represent the rest
MOST_NAMES: Final = 3

_Kind: TypeAlias = tuple[str, Reason]  # what is counted: nodes or disks, by reason
_SEVERITY: Final = (Verdict.UNSUITABLE, Verdict.FULL, Verdict.CONTENDED, Verdict.SURE)


def judge_nodes(fit: PodFit, names: Sequence[str]) -> dict[str, Judgement]:
    """The judgement on each node as if it were the only candidate; but where the restart rule holds, nodes without the
    pod's data are unsuitable."""
    found = dict[str, Judgement]()
    for members in _alike(fit, names):
        passed, closed = fit.open_among(members[:1])
        found.update(fit.judge_all(members))
        if not passed:
            found.update((name, _worse(closed[members[0]], found[name])) for name in members)
    home = fit.restart_among(names)
    for name, judgement in found.items():
        if home and name not in home and judgement.verdict is not Verdict.UNSUITABLE:
            found[name] = unsuitable(Reason.REPLICA_ELSEWHERE)
        elif judgement.verdict is Verdict.CONTENDED:
            found[name] = (fit.pack_first((name,)) or (name, judgement))[1]
    return found


def _alike(fit: PodFit, names: Sequence[str]) -> Iterable[Sequence[str]]:
    """The nodes in groups, of which one judgement on the pod's volumes that are bound to no node holds for all."""
    groups = dict[tuple[str, str, bool], list[str]]()
    follows = any(demand.follows for demand in fit.needing_disks())
    for name in names:
        node = fit.world.nodes.get(name)
        where = (node.zone, node.region) if node is not None and follows else ("", "")
        groups.setdefault((*where, node is None), []).append(name)
    return groups.values()


def _worse(one: Judgement, other: Judgement) -> Judgement:
    return min(one, other, key=lambda judgement: _SEVERITY.index(judgement.verdict))


# In sentences


def account_of(fit: PodFit, table: Table, pod: Pod, names: Sequence[str]) -> str:
    """Why the pod cannot use any of the nodes, the most frequent reason first, each with the numbers of one node; "" if
    one has room by now."""
    kept_on = table.kept_on(pod.uid)
    looked_at = names[:MOST_NODES]
    judgements = judge_nodes(fit, looked_at)
    if any(judgement.is_sure for judgement in judgements.values()):
        return ""
    lack = next((one.lack for one in judgements.values() if one.lack is not None), None)
    judged = {name: one for name, one in judgements.items() if one.lack is None}  # else no node is to blame
    counts: Counter[_Kind] = Counter(("node", one.reason or Reason.CONTENDED) for one in judged.values())
    examples: dict[_Kind, str] = {}
    for kind, (name, disk) in _nearest(fit, judged).items():
        examples[kind] = _example(fit, table, name, disk, judged[name])
        if kind[1] is Reason.CONTENDED:
            examples[kind] += _whose(fit, table, pod.namespace, name)
    more = len(names) - len(looked_at)
    waits = f"; room is kept for it on node {kept_on} because it has waited a long time" if kept_on else ""
    wanted = ", ".join(f"{demand.claim} {bytes_text(demand.size_bytes)}" for demand in fit.demands[:MOST_NAMES])
    never = too_large(fit.world, fit.demands)
    why = ""
    if never is not None:
        asks, most = bytes_text(never.demand.size_bytes), bytes_text(never.largest_bytes)
        why = f"It can never fit: {never.demand.claim} requests {asks}, and the largest disk takes at most {most}. "
    of_lack = _words_of_lack(fit, lack) if lack is not None else ""
    words = "; ".join(filter(None, (of_lack, _in_words(counts, examples, 0 if lack is not None else more))))
    return f"{why}No Longhorn room for {wanted}: {words}{waits}"


def _nearest(fit: PodFit, judged: Mapping[str, Judgement]) -> Mapping[_Kind, tuple[str, str]]:
    """For each reason a node that is refused for it, the one that lacks the fewest bytes, with the disk that lacks
    them; "" where bytes do not decide."""
    found = dict[_Kind, tuple[float, str, str]]()
    for name, judgement in judged.items():
        kind = "node", judgement.reason or Reason.CONTENDED
        is_of_room = judgement.verdict is not Verdict.UNSUITABLE and not fit.budget.is_spent()
        miss = nearest_miss(fit, name) if is_of_room else None
        entry = (miss.missing_bytes, name, miss.disk.name) if miss is not None else (math.inf, name, "")
        if kind not in found or entry[0] < found[kind][0]:
            found[kind] = entry
    return {kind: (name, disk) for kind, (_, name, disk) in found.items()}


def account_of_disks(refusals: Iterable[Refusal], more: int) -> tuple[Mapping[str, int], str]:
    """The number of nodes and disks by reason, the most frequent first; and the same in words, each with the numbers of
    one, that which lacks the fewest bytes. `more`: how many nodes were not looked at."""
    counts: Counter[_Kind] = Counter()
    examples: dict[_Kind, str] = {}
    for one in sorted(refusals, key=lambda one: one.rejection.missing_bytes or math.inf):
        kind = "disk" if one.disk else "node", one.rejection.reason
        counts[kind] += 1
        examples.setdefault(kind, _with_node(one))
    reasons = Counter[str]()
    for (_, reason), count in counts.items():
        reasons[reason.value] += count
    return dict(reasons.most_common()), _in_words(counts, examples, more)


def _in_words(counts: Counter[_Kind], examples: Mapping[_Kind, str], more: int) -> str:
    parts = [
        f"{count} {kind[0] if count == 1 else kind[0] + 's'} {kind[1]} ({examples[kind]})"
        for kind, count in counts.most_common()
    ]
    return "; ".join(parts) + (f"; {more} more nodes" if more else "")


def account_of_limit(limit: NodeLimit) -> str:
    """Why other users of its claims leave the pod none of the candidates."""
    if limit.waits:
        return "Another pod that uses one of its claims is being scheduled; its node is not known yet."
    where = ", ".join(sorted(limit.nodes or ())[:MOST_NAMES]) or "different nodes"
    return f"Other pods use its volumes on {where}, and Longhorn attaches them to no further node."


def _with_node(refusal: Refusal) -> str:
    """Its message, with the node's name; one about a node itself has it already."""
    text = refusal.rejection.message
    return f"{refusal.node}, {text}" if refusal.disk else text


def _example(fit: PodFit, table: Table, name: str, disk: str, judgement: Judgement) -> str:
    """The message about that disk of the node, else about any, which says more than the one about the node."""
    found = refusals_of(fit, table, name, judgement)
    of_disks = sorted((entry for entry in found if entry.disk), key=lambda entry: entry.disk != disk)
    return _with_node((of_disks or list(found))[0]) if found else name


def _whose(fit: PodFit, table: Table, namespace: str, name: str) -> str:
    """The volumes whose plans and holds are in the way there, the largest first: the namespace's own by name, others as
    a number and a sum."""
    own, others = list[str](), list[int]()
    for volume, size in sorted(_others_on(fit, table, name).items(), key=lambda entry: (-entry[1], entry[0])):
        claim = fit.world.claim_of_volume(volume)
        if claim is not None and claim.namespace == namespace:
            own.append(f"{claim.key} {bytes_text(size)}")
        else:
            others.append(size)
    parts = own[:MOST_NAMES]
    if len(own) > MOST_NAMES:
        parts.append(f"{len(own) - MOST_NAMES} more of this namespace")
    if others:
        volumes = "volume" if len(others) == 1 else "volumes"
        parts.append(f"{len(others)} {volumes} of other namespaces {bytes_text(sum(others))}")
    return f": {', '.join(parts)}" if parts else ""


def _others_on(fit: PodFit, table: Table, name: str) -> Mapping[str, int]:
    """Bytes that plans and holds of others than the pod take on that node, by volume."""
    own = {demand.volume for demand in fit.demands}
    return {volume: size for volume, size in table.bytes_by_volume(name).items() if volume not in own}


# As refusals


def refusals_of(fit: PodFit, table: Table, name: str, judgement: Judgement) -> tuple[Refusal, ...]:
    """All rejections, of the node and of its disks, that explain the judgement, sorted."""
    found = set(_refusals(fit, table, name, judgement))
    return tuple(
        sorted(found, key=lambda entry: (entry.node, entry.disk, entry.rejection.reason, entry.rejection.message))
    )


def _refusals(fit: PodFit, table: Table, name: str, judgement: Judgement) -> Iterator[Refusal]:
    reason = judgement.reason or Reason.CONTENDED
    if reason is Reason.NEVER_PLACED:
        for demand in fit.demands:
            if demand.never:
                yield _of_node(name, reason, f"claim {demand.claim}: {demand.never}")
        return
    if reason is Reason.BACKING_IMAGE_SIZE_UNKNOWN:
        for demand, unsized in fit.unsized():
            yield _of_node(name, reason, f"claim {demand.claim}: {unsized.message}")
        return
    if judgement.lack is not None:
        yield from _of_lack(fit, name, reason, judgement.lack)
        return
    if reason is Reason.REPLICA_ELSEWHERE:
        for demand in fit.local:
            if name not in demand.usable_nodes and demand.placed_nodes:
                where = ", ".join(sorted(demand.usable_nodes or demand.placed_nodes))
                yield _of_node(name, reason, f"{demand.volume}: its data is on {where}")
        return
    wanted = fit.wanted_on(name)
    demands = fit.local if isinstance(wanted, Judgement) else wanted
    if judgement.verdict is Verdict.CONTENDED:
        yield _of_node(name, reason, _why_contended(fit, table, name, reason, demands))
        return
    found = list(_by_rules(fit, name, demands))
    yield from found
    if not found or judgement.verdict is Verdict.FULL:
        together = [*demands, *(one for one in fit.needing_disks() if one.volume in fit.anywhere)]
        sizes = ", ".join(f"{demand.claim} {bytes_text(demand.size_bytes)}" for demand in together)
        yield _of_node(name, reason, f"the node's disks cannot take these together: {sizes}")


def _of_lack(fit: PodFit, name: str, reason: Reason, lack: Lack) -> Iterator[Refusal]:
    """Why that node, a Longhorn node, takes no further copy of a volume that is bound to none."""
    demand = lack.demand
    for one in _lacking(fit, lack, (name,)):
        if one.node in ("", name):
            yield Refusal(name, one.disk, _for_volume(demand, one.rejection))
    if _copies_found(lack):
        yield _of_node(name, reason, f"{demand.volume}: {_copies_found(lack)}")


def _lacking(fit: PodFit, lack: Lack, names: Iterable[str]) -> tuple[Refusal, ...]:
    """Why these nodes, and those of the volume's other copies, take no further one."""
    world = fit.world
    own = {one.node for one in lack.places}.union(one.node for one in world.replicas_of(lack.demand.volume).values())
    among = own.union(names) & world.nodes.keys()
    return explain(wanted_by(lack), world, NothingTaken(), fit.now_utc, among).found.refusals


def _words_of_lack(fit: PodFit, lack: Lack) -> str:
    nodes = fit.world.nodes
    refusals = _lacking(fit, lack, islice(nodes, MOST_NODES))
    _, why = account_of_disks(refusals, max(0, len(nodes) - MOST_NODES))
    return "; ".join(filter(None, (_copies_found(lack), why)))


def _copies_found(lack: Lack) -> str:
    """How many copies find a disk, where that is not enough; "" if none does."""
    if not lack.places:
        return ""
    setting = "allow-volume-creation-with-degraded-availability"
    return f"only {len(lack.places)} of {lack.demand.copies} copies find a disk, and {setting} is false"


def _why_contended(fit: PodFit, table: Table, name: str, reason: Reason, demands: Sequence[VolumeDemand]) -> str:
    if reason is Reason.BACKING_IMAGE:
        images = sorted({demand.image.name for demand in demands if demand.image is not None})
        return f"no room for backing image {', '.join(images)} besides the volumes"
    if reason is Reason.KEPT:
        places = (place for hold in table.holds(Source.KEPT_ROOM) for _, place in hold.places())
        kept = sum(place.size_bytes for place in places if place.node == name)
        return f"{bytes_text(kept)} are kept there for a pod that has waited a long time"
    if reason is Reason.NOT_EVALUATED:
        return "the search stopped at its limit"
    taken = fit.taken_on(name)
    if taken and demands:
        return f"{bytes_text(taken)} are promised on this node"
    return "no disks have room for its volumes that may go to any node, beside its other volumes and what is promised"


def _by_rules(fit: PodFit, name: str, demands: Sequence[VolumeDemand]) -> Iterator[Refusal]:
    world = fit.world
    node = world.nodes.get(name)
    if node is None or not world.has_node(name):
        yield _of_node(name, Reason.NO_LONGHORN_NODE, "no node of that name is known to both Kubernetes and Longhorn")
        return
    for demand in demands:
        rejection = check_node_for(
            node, demand.needs, world.settings.space, engines=world.engines, kube_nodes=world.kube_nodes or None
        )
        if rejection is not None:
            yield Refusal(name, "", _for_volume(demand, rejection))
            continue
        room = world.room(name)
        reason = check_node_of(world, room, demand, fit.now_utc) if room is not None else None
        if reason is not None:
            yield _of_node(name, reason, f"{demand.volume}: the node already has a replica of it")
            continue
        if not node.disks:
            yield _of_node(name, Reason.NO_USABLE_DISK, f"{demand.volume}: the node has no disk")
        for disk in node.disks:
            rejected = _check_disk(world, node, disk, demand)
            if rejected is not None:
                yield Refusal(name, disk.name, _for_volume(demand, rejected))


def _check_disk(world: World, node: LonghornNode, disk: Disk, demand: VolumeDemand) -> Rejection | None:
    is_repeated = world.is_repeated_disk(node.name, disk.uuid)
    rejection = check_disk_open(disk, is_repeated=is_repeated, sources=demand.clone_disks)
    if rejection is not None:
        return rejection
    if bars_copy(world, disk.uuid, demand):
        return Rejection(Reason.DISK_ANTI_AFFINITY, f"{disk.name}: already has a replica of it")
    scheduled, space = world.scheduled_on(disk), world.settings.space
    return check_disk_for(disk, demand.needs, demand.size_bytes, demand.required_bytes, scheduled, space)


def _for_volume(demand: VolumeDemand, rejection: Rejection) -> Rejection:
    return replace(rejection, message=f"{demand.volume}: {rejection.message}")


def _of_node(name: str, reason: Reason, message: str) -> Refusal:
    return Refusal(name, "", Rejection(reason, f"{name}: {message}"))
