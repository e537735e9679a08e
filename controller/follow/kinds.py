"""The kinds of objects that the controller follows, and how each becomes facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from controller.kube import resources
from controller.kube.resources import Resource
from controller.model import parse
from controller.model.reader import Raw
from controller.model.workload import Pod


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of objects that is followed, and what the allocator calls it."""

    name: str
    resource: Resource
    parse: Callable[[Raw], Any]
    in_longhorn: bool = False  # lives in Longhorn's namespace, known by its name alone
    is_live: bool = False  # read live where the store lacks it


def interesting_pod(raw: Raw) -> Pod | None:
    """Pods that concern us: those with a claim, and those that ask for the extender. The rest is not kept."""
    pod = parse.pod_facts(raw)
    return pod if pod.volumes or pod.is_opted_in else None


# A kind that the cluster does not have (its CRD is absent) has no objects: its store is in sync, and empty.
KINDS: Final = (
    Kind("pod", resources.PODS, interesting_pod, is_live=True),
    Kind("claim", resources.CLAIMS, parse.claim_facts, is_live=True),
    Kind("pv", resources.VOLUMES, parse.pv_facts, is_live=True),
    Kind("class", resources.STORAGE_CLASSES, parse.class_facts, is_live=True),
    Kind("kube_node", resources.NODES, parse.kube_node_facts),
    Kind("node", resources.LONGHORN_NODES, parse.node_facts, in_longhorn=True),
    Kind("volume", resources.LONGHORN_VOLUMES, parse.volume_facts, in_longhorn=True, is_live=True),
    Kind("replica", resources.LONGHORN_REPLICAS, parse.replica_facts, in_longhorn=True),
    Kind("backing_image", resources.LONGHORN_BACKING_IMAGES, parse.backing_image_facts, in_longhorn=True),
    Kind("engine_image", resources.LONGHORN_ENGINE_IMAGES, parse.engine_image_facts, in_longhorn=True),
    Kind("instance_manager", resources.LONGHORN_INSTANCE_MANAGERS, parse.instance_manager_facts, in_longhorn=True),
)
