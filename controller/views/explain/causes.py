"""The one true cause in a sentence: of all nodes where one rule decides, else with the figures of the nearest miss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from controller.allocator.choose.explain import DiskFigures
from controller.model.quantity import bytes_text
from controller.rules.demand import VolumeDemand
from controller.rules.reasons import Reason
from controller.views.explain.nodes import Barrier, Sight, apart_by, figures_of, missing_tags, twin_bytes

SHARED_UUID: Final = "DisksShareUUID"
MOST_NAMES: Final = 3


def cause_of(sight: Sight, found: Sequence[Barrier], whose: tuple[str, str]) -> tuple[str, str]:
    """Return the cause and a sentence with its figures. `found`: the nearest first; `whose`: what finds no place, and
    its verb."""
    nearest, what = found[0], whose[0]
    demand, why = nearest.demand, nearest.why
    if nearest.reason is Reason.NEVER_PLACED and demand is not None:
        return nearest.reason, f"Longhorn refuses the volume of claim {demand.claim}: {demand.never}."
    if not nearest.node:
        return nearest.reason, f"{what} finds no disk: {why}."
    of_all = _of_copies(sight, found) or _of_tags(sight, found)
    if of_all:
        return nearest.reason, f"{what} finds no place: {of_all}."
    if nearest.disk is not None and nearest.missing_bytes and nearest.reason is not Reason.TOO_FULL:
        cause, text = _of_room(sight, found, whose)
    else:
        cause, text = nearest.reason, f"{what} {_unusable(sight, found)}"
    counts = Counter(one.reason for one in found)
    if len(counts) > 1:
        rest = (f"{reason.text.removeprefix('Longhorn: ')} ({count})" for reason, count in counts.most_common())
        text = f"{text} All {len(found)} nodes, by reason: {', '.join(rest)}."
    return cause, text


def _are_alike(found: Sequence[Barrier]) -> bool:
    """Whether several nodes are refused with the same words."""
    return len(found) > 1 and len({(one.reason, one.why, one.missing_bytes) for one in found}) == 1


def _of_copies(sight: Sight, found: Sequence[Barrier]) -> str:
    """That other copies are wherever one could lie; "" if anything else counts."""
    kind = apart_by(sight.world, found)
    if not kind:
        return ""
    names = {sight.world.nodes[one.node].zone for one in found} if kind == "zone" else {one.node for one in found}
    where = f"each of the {len(names)} {kind}s" if len(names) > 1 else f"the only {kind}, {min(names) or 'unnamed'},"
    return f"{where} has one already, and copies may not share a {kind}"


def _of_tags(sight: Sight, found: Sequence[Barrier]) -> str:
    """The tags that are nowhere; "" if anything else counts."""
    needs, kinds = found[0].demand.needs if found[0].demand is not None else None, {one.reason for one in found}
    nodes = [node for one in found if (node := sight.world.nodes.get(one.node)) is not None]
    of_node = kinds == {Reason.NODE_TAGS}
    if needs is None or len(nodes) < 2 or not (of_node or kinds == {Reason.DISK_TAGS}):
        return ""
    owners = nodes if of_node else [disk for node in nodes for disk in node.disks]
    lacking = set.intersection(*(set(missing_tags(one.tags, needs, of_node=of_node)) for one in owners))
    if not lacking:
        return ""
    which = f"none of the {len(nodes)} nodes has" if of_node else f"no disk of the {len(nodes)} nodes has"
    tags = f"{'tags' if len(lacking) > 1 else 'tag'} {', '.join(sorted(lacking))}"
    return f"{which} the {tags} that {_who_asks(sight, found[0].demand)} asks for"


def _who_asks(sight: Sight, demand: VolumeDemand | None) -> str:
    """Whose the tags are: of the class, before there is a volume."""
    claim = sight.world.claim_by_uid(demand.key) if demand is not None and not demand.exists else None
    return f"StorageClass {claim.class_name}" if claim is not None and claim.class_name else "the volume"


def _unusable(sight: Sight, found: Sequence[Barrier]) -> str:
    nearest = found[0]
    node, disk = nearest.node, nearest.disk
    where = f"disk {disk.name} of node {node}" if disk is not None else f"node {node}"
    text = f"cannot use {where}: {nearest.why}."
    if _are_alike(found):
        text = f"can use none of the {len(found)} nodes, all for one reason: {nearest.why}."
    if disk is not None and nearest.reason is Reason.TOO_FULL:
        free = figures_of(sight, node, disk).free_bytes
        if free > 0:
            text = f"{text} By Longhorn's count {bytes_text(free)} are free: snapshots or other data fill it."
    return text


def _of_room(sight: Sight, found: Sequence[Barrier], whose: tuple[str, str]) -> tuple[str, str]:
    nearest, disk = found[0], found[0].disk
    assert disk is not None
    figures = figures_of(sight, nearest.node, disk)
    beside = f", as on all {len(found)} nodes" if _are_alike(found) else ", the nearest one" if len(found) > 1 else ""
    text = (
        f"{' '.join(whose)} {bytes_text(nearest.missing_bytes)} on disk {disk.name} of node {nearest.node}{beside}: "
        f"{_shares(figures)}."
    )
    if nearest.has_twins:
        return SHARED_UUID, f"{text} {_of_twins(sight, nearest.node, disk.uuid)}"
    if nearest.demand is None or nearest.reason in (Reason.BACKING_IMAGE, Reason.KEPT):
        text = f"{text} {nearest.why[0].upper()}{nearest.why[1:]}."
    return nearest.reason, text


def _shares(figures: DiskFigures) -> str:
    """What is free of the disk, and who has the rest."""
    used, taken, limit = figures.limit_bytes - figures.room_bytes, figures.taken_bytes, bytes_text(figures.limit_bytes)
    shares = [f"{bytes_text(used)} used"] if used else []
    shares += [f"{bytes_text(taken)} promised to others"] if taken else []
    if not shares:
        return f"all of its {limit} are free"
    return f"{bytes_text(max(0, figures.free_bytes))} of its {limit} are free, {' and '.join(shares)}"


def _of_twins(sight: Sight, node: str, uuid: str) -> str:
    others = ", ".join(sorted(set(sight.world.nodes_of_disk(uuid)) - {node})[:MOST_NAMES])
    elsewhere = bytes_text(twin_bytes(sight, node, uuid))
    return (
        f"The disk has the same UUID as one of {others}, as cloned nodes have: Longhorn counts {elsewhere} "
        "here that lie there."
    )
