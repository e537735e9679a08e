"""What becomes of a claim or a Longhorn volume: where its copies are, why some are missing, why it does not grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.wanted import Wanted, check_image, view_of
from controller.allocator.verbs.place import has_placed
from controller.allocator.verbs.views import Look
from controller.model.longhorn import LonghornNode, Replica, Volume
from controller.model.names import LONGHORN_DRIVERS
from controller.model.quantity import bytes_text, exact_bytes_text
from controller.model.workload import Claim, Pod
from controller.rules.demand import Missing, VolumeDemand, demand_of_volume, is_longhorns
from controller.rules.growth import ExpansionPlan, plan_expansion
from controller.rules.placing import Wait, check_replacement, check_time, is_replacement, wait_seconds
from controller.rules.reasons import Reason, Rejection
from controller.views.documents import Explanation
from controller.views.explain.case import CopyCase
from controller.views.explain.causes import cause_of
from controller.views.explain.changes import in_words, sentence
from controller.views.explain.holders import MaySee
from controller.views.explain.nodes import Sight, answers, barriers_of_copy
from controller.views.explain.places import volume_answer
from controller.views.explain.pod import GONE, LET_THROUGH, NOT_OURS, RUNS, WAITS, explain_pod, gone

NOT_LONGHORNS: Final = "not-longhorn"
_WHY_NOT_YET: Final = {
    Wait.DELETED: "The volume or its copy is being deleted.",
    Wait.SHARDED: "Its data lies in shards, which Longhorn places.",
    Wait.FAILED: "The copy failed before it was ever healthy, and Longhorn deletes it.",
    Wait.INACTIVE: "The copy is the inactive twin of another one, and lies where that does.",
    Wait.NOT_ATTACHED: "Its copies are placed once the volume is attached to a node.",
    Wait.REPLACEMENT: "A failed copy may come back; a new one is placed once Longhorn gives that up.",
    Wait.REUSE: "A failed copy comes back, so that no new one is placed.",
}


def explain_claim(look: Look, namespace: str, name: str, may_see: MaySee) -> Explanation:
    """Return the explanation; of state "gone" where no such claim is known."""
    claim = look.world.claim(namespace, name)
    if claim is None:
        return gone("PersistentVolumeClaim", namespace, name)
    told = _told_of_claim(look, claim) if claim.volume_name else _told_of_unbound(look, claim, may_see)
    if told is not None:
        return told
    pv = look.world.pvs[claim.volume_name]
    found = explain_volume(look, pv.handle, may_see)
    return replace(found, kind="PersistentVolumeClaim", namespace=namespace, name=name)


def _claim(
    claim: Claim, state: str, cause: str, text: str, demand: VolumeDemand | None = None, look: Look | None = None
) -> Explanation:
    volumes = (volume_answer(look, demand),) if demand is not None and look is not None else ()
    kind = "PersistentVolumeClaim"
    return Explanation(kind, claim.namespace, claim.name, state, "", cause, text, "", volumes, (), 0)


def _told_of_claim(look: Look, claim: Claim) -> Explanation | None:
    """What is said of a claim that names a volume which is not Longhorn's, or not its own; None for others."""
    pv = look.world.pv(claim.volume_name)
    if pv is None:
        return _claim(claim, WAITS, "missing-pv", f"Its PersistentVolume {claim.volume_name} does not exist.")
    if pv.claim_uid not in ("", claim.uid) or pv.claim_key not in ("", claim.key):
        text = f"Its PersistentVolume {claim.volume_name} belongs to another claim."  # of which it may know nothing
        return _claim(claim, WAITS, "pv-of-another", text)
    if pv.driver not in LONGHORN_DRIVERS:
        text = f"Its volume is not Longhorn's, but of {pv.driver or 'no CSI driver'}."
        return _claim(claim, NOT_OURS, NOT_LONGHORNS, text)
    if look.world.volume(pv.handle) is None:
        return _claim(claim, WAITS, "missing-volume", f"Longhorn has no volume {pv.handle}.")
    return None


def _told_of_unbound(look: Look, claim: Claim, may_see: MaySee) -> Explanation:
    world = look.world
    if claim.is_deleting:
        return _claim(claim, GONE, "deleted", "The claim is being deleted.")
    demand = world.demand_for(claim)
    if isinstance(demand, Missing):
        what = {"class": "StorageClass", "pv": "PersistentVolume"}.get(demand.kind, demand.kind)
        text = f"It needs {what} {demand.name}, which does not exist."
        return _claim(claim, WAITS, f"missing-{demand.kind}", text)
    if demand is None:
        if is_longhorns(claim, world):
            text = "A populator fills its volume, or one that exists is bound to it; nothing is placed for it."
            return _claim(claim, NOT_OURS, "filled-by-others", text)
        name = claim.class_name if claim.class_name is not None else "the default class"
        text = f"Its class ({name or 'none'}) is not Longhorn's." if not claim.has_selector else "It has a selector."
        return _claim(claim, NOT_OURS, NOT_LONGHORNS, text)
    if demand.never:
        return _claim(claim, WAITS, Reason.NEVER_PLACED, f"Longhorn refuses its volume: {demand.never}.", demand, look)
    pods = [pod for pod in world.pods_of_claim(claim.key) if not pod.is_over]
    if not pods:
        text = "No pod uses it, so nothing is planned for it."
        return _claim(claim, WAITS, "unused", text, demand, look)
    return _as_its_pod(look, claim, demand, pods, may_see)


def _as_its_pod(look: Look, claim: Claim, demand: VolumeDemand, pods: Sequence[Pod], may_see: MaySee) -> Explanation:
    """What is said of the oldest pod that uses it."""
    pod = min(pods, key=lambda one: (one.created_utc, one.uid))
    found = explain_pod(look, pod.namespace, pod.name, may_see)
    state = LET_THROUGH if found.state == RUNS else found.state
    text = f"Its volume is made for pod {pod.key}. {found.text}"
    volumes = tuple(one for one in found.volumes if one.claim == claim.key) or (volume_answer(look, demand),)
    kind = "PersistentVolumeClaim"
    return replace(found, kind=kind, name=claim.name, state=state, text=text, volumes=volumes)


# Volumes


def explain_volume(look: Look, name: str, may_see: MaySee) -> Explanation:
    """Return the explanation; of state "gone" where Longhorn has no such volume."""
    volume = look.world.volume(name)
    if volume is None:
        return gone("Volume", "", name)
    demand = demand_of_volume(volume, look.world, look.world.settings)
    claim = look.world.claim_of_volume(name)
    demand = replace(demand, claim=claim.key if claim is not None else "")
    answer = volume_answer(look, demand)
    told = Explanation("Volume", "", name, RUNS, "", "", "", "", (answer,), (), 0)
    if volume.deleting:
        return replace(told, state=GONE, cause="deleted", text="The volume is being deleted.")
    if volume.robustness == "faulted":
        text = "All its copies have failed, so that it cannot be attached. Bring the node of one back, or salvage it."
        return replace(told, state=WAITS, cause=Reason.FAULTED, text=text)
    unplaced = [one for one in look.world.replicas_of(name).values() if not one.node and not one.deleting]
    if unplaced:
        return _explain_copy(look, told, demand, min(unplaced, key=lambda one: one.name), may_see)
    return _explain_growth(look, told, volume) or _explain_placed(look, told, demand)


def _explain_copy(
    look: Look, told: Explanation, demand: VolumeDemand, replica: Replica, may_see: MaySee
) -> Explanation:
    """Why that copy has no disk."""
    world, volume = look.world, demand.facts
    not_yet = check_time(volume, replica, world.settings)
    planned = look.table.places(volume.name)
    if not_yet is None and is_replacement(replica):
        not_yet = check_replacement(view_of(world, Wanted(volume, replica), look.now_utc, world.engines), volume)
    if planned and (not_yet is None or not_yet.wait is Wait.NOT_ATTACHED):
        text = "Its copies' places are planned; the leader writes them into the Replicas."
        return replace(told, state=LET_THROUGH, cause="planned", text=text)
    if not_yet is not None:
        seconds = f" That is in {not_yet.seconds:.0f} s." if not_yet.seconds else ""
        return replace(told, state=WAITS, cause=not_yet.wait, text=f"{_WHY_NOT_YET[not_yet.wait]}{seconds}")
    is_first = not has_placed(world, volume.name, or_failed=True)
    unsized = check_image(world.backing_image(volume.backing_image)) if is_first else None
    if unsized is not None:
        return replace(told, state=WAITS, cause=unsized.reason, text=f"{unsized.message}.")
    case = CopyCase(look, demand, replica, is_first, world, look.table)
    if case.fits():
        text = "There is a disk for its missing copy; it is placed in a moment."
        return replace(told, state=WAITS, cause="being-placed", text=text)
    sight = Sight(look, world, look.table, case.taken, frozenset((volume.name,)))
    found = barriers_of_copy(sight, case.wanted, demand, case.taken, Chooser(world))
    nodes, more = answers(sight, found, may_see)
    which = "first copy" if is_first else "missing copy"
    if not found:
        return replace(told, state=WAITS, cause=Reason.NO_ROOM_IN_CLUSTER, text=f"No disk takes its {which}.")
    cause, text = cause_of(sight, found, (f"The {which} ({bytes_text(volume.size_bytes)})", "lacks"))
    change = in_words(case, found)
    return replace(told, state=WAITS, cause=cause, text=text, change=change, nodes=nodes, more_nodes=more)


def _explain_placed(look: Look, told: Explanation, demand: VolumeDemand) -> Explanation:
    """What is said of a volume whose Replicas all have disks."""
    volume, where = demand.facts, f"attached to node {demand.facts.node_id}" if demand.facts.node_id else "detached"
    if demand.copies:
        view = view_of(look.world, Wanted(volume, Replica(f"{volume.name}-new-", volume.name, 0)), look.now_utc)
        seconds, missing = wait_seconds(view, volume), f"{demand.copies} of {volume.replica_count} copies are missing"
        if not volume.node_id:
            text = f"{missing}. Longhorn makes them once the volume is attached."
            return replace(told, state=WAITS, cause="detached", text=text)
        if seconds is not None:
            text = f"{missing}. {_WHY_NOT_YET[Wait.REPLACEMENT]} That is in {max(0.0, seconds):.0f} s."
            return replace(told, state=WAITS, cause=Wait.REPLACEMENT, text=text)
        limit = look.world.settings.concurrent_rebuild_limit
        why = f"Longhorn rebuilds at most {limit} at a time on a node." if limit else "Rebuilding is switched off."
        return replace(told, state=WAITS, cause="rebuild-pending", text=f"{missing}. {why}")
    if volume.robustness == "degraded":
        text = f"It is {where} and degraded: its copies have their disks, and not all are up to date yet."
        return replace(told, cause="degraded", text=text)
    count = sum(1 for one in look.world.replicas_of(volume.name).values() if one.is_usable)
    text = f"It is {where}; {count} of {volume.replica_count} copies lie on their disks."
    return replace(told, cause="healthy" if volume.node_id else "detached", text=text)


# Growth


def _explain_growth(look: Look, told: Explanation, volume: Volume) -> Explanation | None:
    """Why the volume does not grow to what the cluster asks for; None if it does, or nothing is asked for."""
    world, shown = look.world, look.world.volumes[volume.name]
    asked, growth = world.asked_bytes(shown), look.growths.get(volume.name)
    if growth is not None:
        until = "its claim asks for it" if growth.is_held else "Longhorn has grown it"
        text = f"Room is held for it to grow to {bytes_text(growth.size_bytes)}, until {until}."
        return replace(told, cause="growing", text=text)
    if asked <= shown.size_bytes:
        return None
    replicas, space = world.replicas_of(volume.name).values(), world.settings.space
    plan = plan_expansion(world.nodes, shown, replicas, asked, space, world.settings.behaviour)
    node, disk, rejection = _obstacle(plan)
    if rejection is None:
        text = f"It is to grow to {bytes_text(asked)}; Longhorn has not begun."
        return replace(told, cause="growing", text=text)
    where = f" on disk {disk} of node {node}" if disk else ""
    text = f"It cannot grow to {bytes_text(asked)}{where}: {rejection.message}."
    changes = list[str]()
    if rejection.missing_bytes:
        nodes = {**world.nodes, node: _freed(world.nodes[node], disk, rejection)}
        if plan_expansion(nodes, shown, replicas, asked, space, world.settings.behaviour).admitted:
            changes.append(f"free {bytes_text(rejection.missing_bytes)}{where}")
    if plan.largest_bytes > shown.size_bytes:
        changes.append(f"request at most {exact_bytes_text(plan.largest_bytes)}")
    return replace(told, state=WAITS, cause=rejection.reason, text=text, change=sentence(changes))


def _obstacle(plan: ExpansionPlan) -> tuple[str, str, Rejection | None]:
    """What keeps the volume from that size, what lasts first, with the names of node and disk."""
    for one in (*plan.never, *plan.not_now):
        return one.node, one.disk, one.rejection
    found = [(one.rejection.missing_bytes, one.node, one.disk, one.rejection) for one in plan.disks if one.rejection]
    return max(found, key=lambda row: row[:3])[1:] if found else ("", "", None)


def _freed(node: LonghornNode, disk: str, rejection: Rejection) -> LonghornNode:
    """The node with so many bytes more on that disk as are missing there."""
    more, is_scheduled = rejection.missing_bytes, rejection.reason is Reason.INSUFFICIENT_STORAGE
    disks = (
        one
        if one.name != disk
        else replace(one, scheduled_bytes=one.scheduled_bytes - more)
        if is_scheduled
        else replace(one, available_bytes=one.available_bytes + more)
        for one in node.disks
    )
    return replace(node, disks=tuple(disks))
