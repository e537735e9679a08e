"""The one true cause in a sentence, with the figures of the nearest miss and its node."""

from __future__ import annotations

from typing import Final

from controller.model.quantity import bytes_text
from controller.rules.reasons import Reason
from controller.views.explain.nodes import Barrier, Sight, figures_of, twin_bytes

SHARED_UUID: Final = "DisksShareUUID"
MOST_NAMES: Final = 3


def cause_of(sight: Sight, nearest: Barrier, whose: tuple[str, str]) -> tuple[str, str]:
    """Return the cause and a sentence with its figures. `whose`: what finds no place, and its verb."""
    demand, disk, missing = nearest.demand, nearest.disk, nearest.missing_bytes
    if nearest.reason is Reason.NEVER_PLACED and demand is not None:
        return nearest.reason, f"Longhorn refuses the volume of claim {demand.claim}: {demand.never}."
    (what, lacks), why = whose, _bare(nearest)
    if not nearest.node:
        return nearest.reason, f"{what} finds no disk: {why}."
    where = f"disk {disk.name} of node {nearest.node}" if disk is not None else f"node {nearest.node}"
    if disk is None or not missing or nearest.reason is Reason.TOO_FULL:
        return nearest.reason, f"{what} cannot use {where}: {why}."
    figures = figures_of(sight, nearest.node, disk)
    used, free = bytes_text(figures.limit_bytes - figures.room_bytes), bytes_text(max(0, figures.free_bytes))
    taken = f" and {bytes_text(figures.taken_bytes)} promised to others" if figures.taken_bytes else ""
    text = (
        f"{what} {lacks} {bytes_text(missing)} on {where}, the nearest one: {free} of its "
        f"{bytes_text(figures.limit_bytes)} are free, {used} used{taken}."
    )
    if nearest.has_twins:
        return SHARED_UUID, f"{text} {_of_twins(sight, nearest.node, disk.uuid)}"
    if demand is None or nearest.reason in (Reason.BACKING_IMAGE, Reason.KEPT):
        text = f"{text} {why[0].upper()}{why[1:]}."
    return nearest.reason, text


def _bare(nearest: Barrier) -> str:
    """Its text without the names of volume, node and disk before it, which the sentence has."""
    volume, disk = nearest.demand.volume if nearest.demand is not None else "", nearest.disk
    text = nearest.text
    for name in (nearest.node, volume, nearest.node, disk.name if disk is not None else ""):
        text = text.removeprefix(f"{name}: ") if name else text
    return text


def _of_twins(sight: Sight, node: str, uuid: str) -> str:
    others = ", ".join(sorted(set(sight.world.nodes_of_disk(uuid)) - {node})[:MOST_NAMES])
    elsewhere = bytes_text(twin_bytes(sight, node, uuid))
    return (
        f"The disk has the same UUID as one of {others}, as cloned nodes have, so that Longhorn counts here what lies "
        f"there as well: {elsewhere}."
    )
