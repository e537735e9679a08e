"""What the leader knows, as documents: one question after the other, so that nobody's curiosity takes its time.

Facts come as `Allocator.look` gives them, a moment old; all that is worked out from them is worked out without the
allocator's lock.
"""

from __future__ import annotations

import threading

from controller.allocator.allocator import Allocator
from controller.views.capacity import capacity_of
from controller.views.documents import Capacity, Explanation
from controller.views.explain.holders import MaySee
from controller.views.explain.pod import explain_pod
from controller.views.explain.volume import explain_claim, explain_volume
from controller.views.overview import OverviewParts, parts_of


class Views:
    """The documents of the status port that follow from the allocator.

    Threads: any. Blocks: for the question before, half a second for thousands of nodes. I/O: none.
    """

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._turn = threading.Lock()

    def parts(self) -> OverviewParts:
        """Return the part of `/overview` that the allocator has."""
        with self._turn:
            return parts_of(self._allocator.look())

    def capacity(self) -> Capacity:
        """Return `/capacity`."""
        with self._turn:
            return capacity_of(self._allocator.look())

    def explain_pod(self, namespace: str, name: str, may_see: MaySee) -> Explanation:
        """Return `/explain/pods/...`. `may_see`: whether the caller may know of the pods of that namespace; volumes of
        others are summed up. For a pod that is not known the state is "gone"."""
        with self._turn:
            return explain_pod(self._allocator.look(), namespace, name, may_see)

    def explain_claim(self, namespace: str, name: str, may_see: MaySee) -> Explanation:
        """Return `/explain/claims/...`, as `explain_pod`."""
        with self._turn:
            return explain_claim(self._allocator.look(), namespace, name, may_see)

    def explain_volume(self, name: str, may_see: MaySee) -> Explanation:
        """Return `/explain/volumes/...`, of the Longhorn volume with that name, as `explain_pod`."""
        with self._turn:
            return explain_volume(self._allocator.look(), name, may_see)
