"""What a manager that asks for room writes into Longhorn's objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller.rpc import disk_scheduler_pb2 as pb
from tests.cluster.client import ApiClient, ignored_when_gone
from tests.e2e.scheduling import NAMESPACE
from tests.longhorn import paths
from tests.longhorn.install import ensure


def made_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": f"{paths.GROUP}/{paths.VERSION}", "kind": kind, "metadata": metadata, "spec": spec}


def make_volume(api: ApiClient, name: str, size_bytes: int, replicas: int, *, copies: int = 0) -> list[str]:
    """A volume with unplaced replicas, whose names these are; what is there already stays. `copies`: that it is to
    have, if more than those."""
    spec = {"size": str(size_bytes), "numberOfReplicas": copies or replicas}
    spec |= {"dataLocality": "disabled", "frontend": "blockdev"}
    ensure(api, paths.longhorn("volumes", NAMESPACE), made_object("Volume", name, spec))
    return [make_replica(api, name, number, size_bytes) for number in range(replicas)]


def make_replica(api: ApiClient, volume: str, number: int, size_bytes: int, **more: str) -> str:
    """Its name. `more`: of its spec, as where it is placed."""
    name = f"{volume}-r-{number}"
    spec = {"volumeName": volume, "volumeSize": str(size_bytes), "active": True, **more}
    ensure(api, paths.longhorn("replicas", NAMESPACE), made_object("Replica", name, spec))
    return name


def unplaced_replica(name: str, volume: str, size_bytes: int, **place: str) -> dict[str, Any]:
    """As Longhorn makes it; without a place unless one is given."""
    spec = {"volumeName": volume, "volumeSize": str(size_bytes), "active": True, "nodeID": "", "diskID": "", **place}
    made = made_object("Replica", name, spec)
    labels = {"longhornvolume": volume, "longhornnode": spec["nodeID"], "longhorndiskuuid": spec["diskID"]}
    made["metadata"]["labels"] = labels
    return made


def drop_volume(api: ApiClient, name: str, replicas: int) -> None:
    for number in range(replicas):
        with ignored_when_gone():
            api.delete(paths.longhorn("replicas", NAMESPACE, f"{name}-r-{number}"))
    with ignored_when_gone():
        api.delete(paths.longhorn("volumes", NAMESPACE, name))


def write_given(api: ApiClient, words: Sequence[str], found: Sequence[pb.Allocation]) -> None:
    """What was given, as a manager writes it."""

    def patch(plural: str, name: str, **spec: Any) -> None:
        api.patch(paths.longhorn(plural, NAMESPACE, name), {"spec": spec})

    if words[0] in ("replica", "new"):
        (one,) = found
        patch("replicas", one.name, **place_of(one.name, one.node, one.disk, one.disk_uuid))
    elif words[0] == "image":
        patch("backingimages", words[1], diskFileSpecMap={found[0].disk_uuid: {}})
    else:
        patch("volumes", words[1], size=words[2])
        for one in found:
            patch("replicas", one.name, volumeSize=words[2])


def place_of(replica: str, node: str, disk: str, uuid: str) -> dict[str, str]:
    """What a placed Replica says of its place."""
    directory = f"{replica}-{uuid}"
    return {"nodeID": node, "diskID": uuid, "diskPath": f"/var/lib/longhorn/{disk}", "dataDirectoryName": directory}
