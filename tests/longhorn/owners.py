"""Which node a volume belongs to: the manager there looks after it, and attaches it for work of Longhorn's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.longhorn.state import Raw, is_true


def is_ready(node: Raw | None) -> bool:
    return node is not None and is_true((node.get("status") or {}).get("conditions"), "Ready")


def pick(nodes: Mapping[str, Raw], choice: Callable[[int], int], owner: str = "") -> str:
    """The present owner while its node is ready, else any ready node; "" if there is none."""
    if is_ready(nodes.get(owner)):
        return owner
    ready = sorted(name for name, node in nodes.items() if is_ready(node))
    return ready[choice(len(ready))] if ready else ""
