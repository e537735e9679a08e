"""How much fits: by node, disk and tag, now and after the loss of a node."""

from __future__ import annotations

from controller.allocator.verbs.views import Look
from controller.model.times import rfc3339
from controller.views.documents import Capacity
from controller.views.overview import disk_views, totals_of


def capacity_of(look: Look) -> Capacity:
    """Return the document."""
    disks = disk_views(look)
    return Capacity(rfc3339(look.now_utc), totals_of(disks), (), disks, (), {}, ())
