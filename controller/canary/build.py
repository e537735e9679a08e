"""Builds the part of the controller that finds out whether kube-scheduler asks the extender."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from controller.canary.pod import Canaries
from controller.canary.proof import WiringProof, lease_of
from controller.canary.prover import WiringProver
from controller.clock import Clock
from controller.errors import ClusterError
from controller.kube.api import KubeApi
from controller.kube.informer import Informer
from controller.kube.recorder import Recorder, Target
from controller.kube.resources import LEASES
from controller.kube.store import Store
from controller.model.reader import Raw, mapping_at, text_at
from controller.model.workload import Pod
from controller.process.flags import split_names
from controller.process.worker import Group
from controller.settings import LiveSettings, ProcessSettings

CALL_SECONDS: Final = 3.0

_log = logging.getLogger(__name__)


class LeaseWatch(Group):
    """Watches the Leases of the schedulers that are checked, and no others.

    The process does not depend on this store: without the right to read them, canaries are sent only by time.
    """

    def __init__(self, api: KubeApi, clock: Clock, proof: WiringProof, namespace: str) -> None:
        wanted = {lease_of(scheduler, namespace) for scheduler in proof.schedulers}
        informers = []
        for where in sorted({key.partition("/")[0] for key in wanted}):
            store: Store[str] = Store(f"lease-{where}", lambda raw: _holder(raw, wanted))
            store.subscribe(proof.leases_changed)
            informers.append(Informer(api, LEASES, store, clock, namespace=where))
        super().__init__(informers)


def _holder(raw: Raw, wanted: set[str]) -> str | None:
    """The holder of a Lease among `wanted`; None for other Leases, and if nobody holds it."""
    meta = mapping_at(raw, "", "metadata")
    key = f"{text_at(meta, 'metadata', 'namespace')}/{text_at(meta, 'metadata', 'name')}"
    return (text_at(mapping_at(raw, "", "spec"), "spec", "holderIdentity") or None) if key in wanted else None


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
    prover = WiringProver(proof, canaries, clock, serving=serving, live=live, tell=tell)
    return proof, prover, LeaseWatch(api, clock, proof, settings.namespace)
