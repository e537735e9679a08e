"""Which pods opt in to the scheduler extender: for the webhook, which sees pods as they are created, and for the
leader, which counts those that the webhook missed."""

from __future__ import annotations

from dataclasses import dataclass

from controller.model import names
from controller.model.workload import Claim, PersistentVolume, StorageClass


@dataclass(frozen=True, slots=True)
class OptInPolicy:
    """Which pods are considered."""

    scheduler_names: frozenset[str] = frozenset(names.SCHEDULER_NAMES.split(","))
    excluded_namespaces: frozenset[str] = frozenset({"kube-system", "longhorn-system"})
    only_marked: bool = False  # pods without the mark `true`, their own or their namespace's, are left alone

    def leaves_alone(self, namespace: str, scheduler: str) -> str:
        """Return in one word why pods of that namespace and scheduler never opt in; "" if they may."""
        if namespace in self.excluded_namespaces:
            return "namespace"
        return "" if (scheduler or names.DEFAULT_SCHEDULER) in self.scheduler_names else "scheduler"

    def refuses(self, mark: str) -> str:
        """Return in one word why a pod with that mark, its own or its namespace's, stays out; "" if it does not."""
        if mark == "false":
            return "opted-out"
        return "not-marked" if self.only_marked and mark != "true" else ""


def uses_longhorn(claim: Claim, pv: PersistentVolume | None, storage_class: StorageClass | None) -> bool | None:
    """Whether the claim's volume is Longhorn's; None while that may still become so. `pv` and `storage_class`: those
    that the claim names, None if they are not known."""
    if claim.volume_name:
        return None if pv is None else pv.driver in names.LONGHORN_DRIVERS
    if claim.class_name == "" or storage_class is None:  # "": waits for a volume made by hand, of whatever driver
        return None
    return storage_class.provisioner == names.LONGHORN_DRIVER
