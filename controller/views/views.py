"""What the leader knows, as documents: one question after the other, so that nobody's curiosity takes its time.

Facts come as `Allocator.look` gives them, a moment old; all that is worked out from them is worked out without the
allocator's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from controller.allocator.allocator import Allocator
from controller.allocator.verbs.views import Look
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
        self._turn = threading.Lock()  # guards the field below, too
        self._parts: tuple[float, OverviewParts] | None = None  # of the look of that moment

    def parts(self) -> OverviewParts:
        """Return the part of `/overview` that the allocator has; made once for each look, as pages ask again and
        again."""
        with self._turn:
            look = self._allocator.look()
            if self._parts is None or self._parts[0] != look.now:
                self._parts = look.now, parts_of(look)
            return self._parts[1]

    def capacity(self) -> Capacity:
        """Return `/capacity`."""
        with self._turn:
            return capacity_of(self._allocator.look())

    def explain_pod(self, namespace: str, name: str, may_see: MaySee) -> Explanation:
        """Return `/explain/pods/...`. `may_see`: whether the caller may know of the pods of that namespace; volumes of
        others are summed up. It may block: nobody else waits for it. For a pod that is not known the state is
        "gone"."""
        return self._explained(lambda look, sees: explain_pod(look, namespace, name, sees), namespace, may_see)

    def explain_claim(self, namespace: str, name: str, may_see: MaySee) -> Explanation:
        """Return `/explain/claims/...`, as `explain_pod`."""
        return self._explained(lambda look, sees: explain_claim(look, namespace, name, sees), namespace, may_see)

    def explain_volume(self, name: str, may_see: MaySee) -> Explanation:
        """Return `/explain/volumes/...`, of the Longhorn volume with that name, as `explain_pod`."""
        return self._explained(lambda look, sees: explain_volume(look, name, sees), "", may_see)

    def _explained(
        self, explain: Callable[[Look, MaySee], Explanation], namespace: str, may_see: MaySee
    ) -> Explanation:
        """Explained a second time where it has turned out which other namespaces the caller has to be asked about."""
        known = {"": may_see("")}
        if not known[""]:
            known.setdefault(namespace, may_see(namespace))
        others = dict[str, None]()

        def sees(wanted: str) -> bool:
            if known[""] or wanted in known:
                return known[""] or known[wanted]
            others[wanted] = None
            return False

        with self._turn:
            look = self._allocator.look()
            found = explain(look, sees)
        known.update({one: may_see(one) for one in (*others,)})
        if not any(known[one] for one in others):
            return found
        with self._turn:
            return explain(look, sees)  # the same: another one might have namespaces that nobody was asked about
