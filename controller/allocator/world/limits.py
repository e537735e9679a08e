"""How much the disks could take if they were empty: what is larger than that exists nowhere, whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterable

from controller.model.longhorn import LonghornNode, SpacePolicy
from controller.rules.eligibility import provisioning_limit


class Limits:
    """By node, the largest limit of one disk, and the sum of all. The figures of a disk that is not ready are zero,
    which says nothing of its size. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._by_node: dict[str, tuple[int, int]] = {}  # largest, sum; of nodes with a disk that is known
        self._largest: int | None = 0
        self.total = 0

    def put(self, name: str, node: LonghornNode | None, space: SpacePolicy) -> None:
        largest, total = self._by_node.pop(name, (0, 0))
        self.total -= total
        if largest == self._largest:
            self._largest = None
        disks = node.disks if node is not None else ()
        limits = [max(0, provisioning_limit(disk, space)) for disk in disks if disk.ready and disk.maximum_bytes > 0]
        if limits:
            self._by_node[name] = max(limits), sum(limits)
            self.total += sum(limits)
            if self._largest is not None:
                self._largest = max(self._largest, *limits)

    def put_all(self, nodes: Iterable[LonghornNode], space: SpacePolicy) -> None:
        for node in nodes:
            self.put(node.name, node, space)

    def of(self, name: str) -> int:
        """The largest disk's limit on that node; 0 while none is known."""
        return self._by_node.get(name, (0, 0))[0]

    @property
    def largest(self) -> int:
        """The largest disk's limit anywhere; 0 while none is known."""
        if self._largest is None:
            self._largest = max((largest for largest, _ in self._by_node.values()), default=0)
        return self._largest

    def can_hold(self, size_bytes: int, name: str = "") -> bool:
        """Whether a disk of that node, or of any without a name, could take so much, as far as that is known."""
        limit = self.of(name) if name else self.largest
        return not limit or size_bytes <= limit
