"""Where one copy of a volume surely finds room, asked of thousands of nodes at once: the score's preferred room."""

from __future__ import annotations

from collections.abc import Sequence

from controller.allocator.judge.node import Judge, Verdict
from controller.allocator.judge.plain import PlainPod
from controller.allocator.world.eligible import check_node_of
from controller.model.demand import VolumeDemand
from controller.rules.eligibility import disk_takes


def nodes_for_copy(judge: Judge, demand: VolumeDemand, names: Sequence[str]) -> list[str] | None:
    """Those of `names` that have a usable replica of the volume, or surely room for one. None when the judge's budget
    was spent before all of them were looked at."""
    usable = demand.usable_nodes
    found = [name for name in names if name in usable] if usable else []
    rest = [name for name in names if name not in usable] if usable else names
    more = _plainly(judge, demand, rest)
    return None if more is None else found + more


def _plainly(judge: Judge, demand: VolumeDemand, names: Sequence[str]) -> list[str] | None:
    """As a filter call judges a pod of one such local volume, where the volume is plain and new."""
    plain = PlainPod.of(judge.world, (demand,), judge.pending)
    if plain is None:
        return _one_by_one(judge, demand, names)
    sure = []
    for name, easy in plain.easy(names).items():
        judgement = easy
        if judgement is None:
            if judge.budget.is_spent():
                return None
            judgement = plain.judge(name, judge.now) or judge.judge_room(name, (demand,))
        if judgement.verdict is Verdict.SURE:
            sure.append(name)
    return sure


def _one_by_one(judge: Judge, demand: VolumeDemand, names: Sequence[str]) -> list[str] | None:
    held = frozenset(replica.disk_uuid for replica in judge.world.replicas_of(demand.volume).values())
    sure = []
    for name in names:
        if judge.budget.is_spent():
            return None
        is_sure = _look(judge, demand, name, held)
        if is_sure is None:
            is_sure = judge.judge_room(name, (demand,)).verdict is Verdict.SURE
        if is_sure:
            sure.append(name)
    return sure


def _look(judge: Judge, demand: VolumeDemand, name: str, held: frozenset[str]) -> bool | None:
    """Whether some disk takes the copy even if all that is pending came to it, or no disk does; None between them.
    `held` are the disks with replicas of the volume, where it takes a closer look."""
    world, pending, size = judge.world, judge.pending, demand.size_bytes
    room = world.room(name)
    if room is None or room.rejection is not None or not world.has_node(name):
        return False
    if check_node_of(world, room, demand, judge.now_utc) is not None:
        return False
    if demand.image is not None or demand.clone_disks is not None:
        return None
    need, space = size + pending.roaming_bytes + pending.bound_bytes(name), world.settings.space
    found: bool | None = False
    for disk in room.disks:
        if disk.free_bytes < size or not disk_takes(disk, demand.needs, size, demand.required_bytes, space):
            continue
        if disk.free_bytes >= need and disk.uuid not in held:
            return True
        found = None
    return found
