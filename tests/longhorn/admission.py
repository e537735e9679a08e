"""What Longhorn's own validating webhook says to an update of a claim: `webhook/resources/persistentvolumeclaim`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.longhorn import paths
from tests.longhorn.expansion import check_space
from tests.longhorn.quantity import quantity_bytes
from tests.longhorn.state import SearchState

Raw = dict[str, Any]
Find = Callable[[str], Raw | None]  # an object by its name


def claim_problem(old: Raw, new: Raw, pv: Find, volume: Find, state: Callable[[str], SearchState]) -> str:
    """Why the update is refused; "" if it is not.

    It looks at space only, for sizes as the claim asks for them, and reserves nothing. A volume without a placed
    replica passes, and so does one in a state in which it does not grow.
    """
    before, after = _requested(old), _requested(new)
    if before == after:
        return ""
    found = pv(str(new["spec"].get("volumeName") or ""))
    if found is None:
        return "the claim has no volume yet"
    csi = found["spec"].get("csi") or {}
    if csi.get("driver") != paths.DRIVER:
        return ""
    name = str(csi["volumeHandle"])
    present = volume(name)
    if present is None:
        return f"there is no volume {name}"
    present = {**present, "spec": {**present["spec"], "size": str(before)}}
    for disk in check_space(state(name), present, after):
        if disk.reason:
            return f"cannot schedule {disk.growth_bytes} more bytes to disk {disk.disk} of node {disk.node}"
    return ""


def _requested(claim: Raw) -> int:
    return quantity_bytes(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0"))
