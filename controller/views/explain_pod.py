"""Why a pod waits, or where its volumes are and why there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from controller.allocator.verbs.views import Look
from controller.views.documents import Explanation

MaySee: TypeAlias = Callable[[str], bool]  # whether the caller may know of the pods of that namespace


def explain_pod(look: Look, namespace: str, name: str, may_see: MaySee) -> Explanation:
    """Return the explanation; of state "gone" where no such pod is known."""
    pod = look.world.pod_by_key(f"{namespace}/{name}")
    if pod is None:
        return gone("Pod", namespace, name)
    state = "runs" if pod.node_name else "waits"
    del may_see
    return Explanation("Pod", namespace, name, state, pod.created_utc, "", "", "", (), (), 0)


def gone(kind: str, namespace: str, name: str) -> Explanation:
    """Return the explanation of an object that is not known."""
    what = f"{namespace}/{name}" if namespace else name
    text = f"The leader knows no {kind} {what}."
    return Explanation(kind, namespace, name, "gone", "", "unknown", text, "", (), (), 0)
