"""Which events are older than what the stores have already: watches repeat themselves, and live reads run ahead."""

from __future__ import annotations

from collections.abc import Mapping

from controller.allocator.world.world import World


def is_outdated(world: World, kind: str, key: str, facts: object | None, gone: object | None) -> bool:
    """Whether the stores know better already: a later version of the object, or the next one of that name, which has
    later versions than all of the former."""
    stores: Mapping[str, Mapping[str, object]] = {"claim": world.claims, "pv": world.pvs, "volume": world.volumes}
    known = world.pod_by_key(key) if kind == "pod" else stores.get(kind, {}).get(key)
    if known is None:
        return False
    if facts is None:
        return gone is not None and _identity(gone) != _identity(known)
    return _version(facts) < _version(known)


def _identity(facts: object) -> str:
    return getattr(facts, "uid", "")


def _version(facts: object) -> int:
    return getattr(facts, "version", 0)
