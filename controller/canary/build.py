"""Builds the part of the controller that finds out whether kube-scheduler asks the extender."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from controller.canary.leases import LeaseWatch
from controller.canary.pod import Canaries
from controller.canary.proof import WiringProof
from controller.canary.prover import WiringProver
from controller.clock import Clock
from controller.errors import ClusterError
from controller.kube.api import KubeApi
from controller.kube.recorder import Recorder, Target
from controller.kube.resources import LEASES
from controller.kube.store import Store
from controller.model.workload import Pod
from controller.process.flags import split_names
from controller.settings import LiveSettings, ProcessSettings

CALL_SECONDS: Final = 3.0

_log = logging.getLogger(__name__)


class LeaseEvents:
    """Writes Events about our Lease, which every installation has for as long as it exists."""

    def __init__(self, api: KubeApi, recorder: Recorder, namespace: str, lease: str) -> None:
        self._api, self._recorder = api, recorder
        self._namespace, self._lease = namespace, lease

    def tell(self, reason: str, text: str, is_warning: bool) -> None:
        target = Target(LEASES.kind, self._namespace, self._lease, self._uid(), LEASES.api_version)
        self._recorder.note(target, reason, text, is_warning=is_warning)

    def _uid(self) -> str:
        """The Lease's uid, "" if unknown: then `kubectl describe` does not show the Event."""
        try:
            raw = self._api.get(LEASES, self._namespace, self._lease, timeout=CALL_SECONDS)
        except ClusterError as error:
            _log.warning("our Lease was not read: %s", error)
            return ""
        return str(raw["metadata"].get("uid", ""))


def build_wiring(
    api: KubeApi,
    clock: Clock,
    pods: Store[Pod],
    settings: ProcessSettings,
    *,
    serving: Callable[[], int | None],
    live: Callable[[], LiveSettings],
    tell: Callable[[str, str, bool], None],
) -> tuple[WiringProof, WiringProver, LeaseWatch]:
    """`serving`, `tell`: as for `WiringProver`. Subscribes to `pods`; starts nothing."""
    proof = WiringProof(split_names(settings.scheduler_names), settings.namespace, clock, pods.get)
    pods.subscribe(proof.pods_changed)
    canaries = Canaries(api, settings.namespace, settings.lease)
    leases = LeaseWatch(api, clock, proof, settings.namespace)
    prover = WiringProver(proof, canaries, clock, serving=serving, live=live, tell=tell, clear_leases=leases.clear)
    return proof, prover, leases
