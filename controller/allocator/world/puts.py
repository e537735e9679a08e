"""Which kinds of facts the world keeps, beside pods, claims and nodes, whose changes mean more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from controller.allocator.world.world import World

PUTS: Final[Mapping[str, Callable[[World, str, Any], Iterable[str]]]] = {  # claims that the change touches
    "pv": World.put_pv,
    "class": World.put_class,
    "volume": World.put_volume,
    "replica": World.put_replica,
    "backing_image": World.put_backing_image,
    "engine_image": World.put_engine_image,
    "instance_manager": World.put_instance_manager,
}
