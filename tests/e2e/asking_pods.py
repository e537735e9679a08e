"""Pods that the extender is asked about by hand, as kube-scheduler would, where there is no Longhorn."""

from __future__ import annotations

from tests.e2e import workloads
from tests.e2e.disk_site import Site
from tests.e2e.forms import Form, encode, post
from tests.e2e.harness import CLASSES
from tests.e2e.history_facts import SELECTED_NODE
from tests.waiting import wait_until

CORE = "/api/v1/namespaces/default"
CLASS = "waiting"


class AskingPods:
    """So many pods with a claim each, of a local volume of one copy. A node that is offered is written into the claim
    as the choice, and the room there is promised from then on: nobody makes the volume.

    Threads: one at a time.
    """

    def __init__(self, site: Site, nodes: list[str], count: int, gib: int) -> None:
        self._site, self._trust = site, site.trust
        self.waiting: dict[str, bytes] = {}  # by name, the request about it
        self.refused: dict[str, dict[str, str]] = {}  # by name, why each node was refused last
        api = site.api
        api.create(CLASSES, workloads.storage_class(CLASS))
        wait_until(lambda: api.get_or_none(f"{CORE}/serviceaccounts/default") is not None, "a ServiceAccount", 30)
        for number in range(count):
            name = f"asks{number}"
            api.create(f"{CORE}/persistentvolumeclaims", workloads.claim(name, CLASS, gib))
            pod = api.create(f"{CORE}/pods", workloads.pod(name, name))
            self.waiting[name] = encode(Form.NAMES, pod, nodes, {})

    def ask(self, count: int = 0) -> int:
        """About each that waits, or so many of them; how many were offered a node."""
        names = list(self.waiting)[: count or None]
        for name in names:
            answer = post(self._site.extender, "/filter", self.waiting[name], self._trust)
            assert 200 == answer.status, answer
            self.refused.pop(name, None)
            if answer.passed:
                del self.waiting[name]
                chosen = {"metadata": {"annotations": {SELECTED_NODE: answer.passed[0]}}}
                self._site.api.patch(f"{CORE}/persistentvolumeclaims/{name}", chosen)
            else:
                self.refused[name] = answer.refused
        return len(names) - len(self.waiting.keys() & set(names))
