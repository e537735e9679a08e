"""Longhorn's own VolumeAttachments: one for each shared volume, with a ticket for everybody who wants it attached."""

from __future__ import annotations

from typing import Final

from tests.longhorn import locality, paths
from tests.longhorn.install import ensure
from tests.longhorn.world import LonghornWorld, Raw, put

CSI: Final = "csi-attacher"
SHARE_MANAGER: Final = "share-manager-controller"


def are_kept(world: LonghornWorld, volume: Raw | None) -> bool:
    """Whether the volume is attached by tickets here: it is served by a share-manager, and these are imitated."""
    return world.options.share_managers and volume is not None and locality.is_served(volume)


def of_kind(attachment: Raw | None, kind: str) -> dict[str, str]:
    """Nodes by the names of the tickets of that kind."""
    found = ((attachment or {}).get("spec") or {}).get("attachmentTickets") or {}
    return {name: str(ticket.get("nodeID") or "") for name, ticket in found.items() if ticket.get("type") == kind}


def hold(world: LonghornWorld, volume: str, name: str, kind: str, node: str) -> None:
    """Put the ticket, also in the place of one of that name for another node."""
    spec: Raw = {"volume": volume, "attachmentTickets": {}}
    body = paths.longhorn_object("VolumeAttachment", volume, world.options.namespace, spec=spec)
    ensure(world.api, world.longhorn("volumeattachments"), body)
    ticket = {"id": name, "type": kind, "nodeID": node, "parameters": {"disableFrontend": "false"}}

    def edit(raw: Raw) -> bool:
        return put(raw["spec"].setdefault("attachmentTickets", {}), **{name: ticket})

    world.change(world.longhorn("volumeattachments", volume), edit)


def release(world: LonghornWorld, volume: str, *names: str) -> None:
    def edit(raw: Raw) -> bool:
        tickets = raw["spec"].get("attachmentTickets") or {}
        gone = [name for name in names if tickets.pop(name, None) is not None]
        return bool(gone)

    world.change(world.longhorn("volumeattachments", volume), edit)


def set_attached(raw: Raw) -> bool:
    """What a Kubernetes VolumeAttachment says once the volume can be used; whether it may still say so."""
    if raw["metadata"].get("deletionTimestamp"):
        return False
    raw["status"] = {**(raw.get("status") or {}), "attached": True}
    return True
