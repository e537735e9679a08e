"""`record {crd,check}`: the record of what is allocated on Longhorn's disks.

`crd` prints the CustomResourceDefinition of NodeDiskAllocation. `check` compares the record with Longhorn's objects and
changes nothing; exit code 1 if they differ. The leader writes what differs within seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from controller.allocator.allocator import Allocator
from controller.clock import SystemClock
from controller.kube.api import ClientKubeApi, KubeApi, listed
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_NODES, LONGHORN_REPLICAS, LONGHORN_VOLUMES
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import Replica, Volume
from controller.model.parse import backing_image_facts, node_facts, replica_facts, volume_facts
from controller.process.command_line import EXIT_FINDING, EXIT_WELL
from controller.process.flags import access, namespace
from controller.record.backends import found_backend
from controller.record.definition import allocation_crd


def check(api: KubeApi, namespace: str) -> int:
    """Print each difference between the record and Longhorn's objects on a line. Returns the exit code."""
    backend = found_backend(api, namespace)
    _say(f"backend={backend.name}")
    objects, found = _Objects(api, namespace), 0
    records = {one.record.node: one.record for one in backend.records()}
    for node, wanted in sorted(objects.on_record(records.keys()).items()):
        record = records.get(node)
        problems = [f"not understood: {record.problem}"] if record is not None and record.problem else []
        problems += objects.differences(wanted, record.allocations if record is not None else ())
        found += len(problems)
        for problem in problems:
            _say(f"{node}: {problem}")
    _say(f"differences={found}")
    return EXIT_FINDING if found else EXIT_WELL


class _Objects:
    """Longhorn's objects as they are now. MalformedRequestError if one of them cannot be parsed."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        def all_of(kind: Any, facts_of: Callable[[Any], Any]) -> dict[str, Any]:
            return {one.name: one for one in map(facts_of, listed(api, kind, namespace))}

        self._nodes = all_of(LONGHORN_NODES, node_facts)
        self._replicas: dict[str, Replica] = all_of(LONGHORN_REPLICAS, replica_facts)
        self._volumes: dict[str, Volume] = all_of(LONGHORN_VOLUMES, volume_facts)
        self._images = all_of(LONGHORN_BACKING_IMAGES, backing_image_facts)
        self._allocator = allocator = Allocator(SystemClock())
        for name, node in self._nodes.items():
            allocator.observe_node(name, node)
        for name, replica in self._replicas.items():
            allocator.observe_replica(name, replica)
        for name, image in self._images.items():
            allocator.observe_backing_image(name, image)

    def on_record(self, nodes: Iterable[str]) -> dict[str, tuple[Allocation, ...]]:
        """What should be on record, for all of Longhorn's nodes and for these."""
        return self._allocator.record.of_nodes({*nodes, *self._nodes})

    def differences(self, wanted: Sequence[Allocation], there: Sequence[Allocation]) -> Iterator[str]:
        """What the record lacks, and what it has beyond what objects show or are about to show."""
        sizes, have = {one.key: one.size_bytes for one in wanted}, {one.key: one.size_bytes for one in there}
        for one in wanted:
            if have.get(one.key, -1) < one.size_bytes:
                yield f"lacks {_text(one)}, has {have.get(one.key, 0)}"
        for one in there:
            if sizes.get(one.key, -1) < one.size_bytes and not self._is_to_come(one):
                yield f"has {_text(one)}, and objects show {max(0, sizes.get(one.key, 0))}"

    def _is_to_come(self, one: Allocation) -> bool:
        """Whether the object exists and may show as many bytes at any moment."""
        replica = self._replicas.get(one.name) if one.purpose is Purpose.REPLICA else None
        if replica is None:
            return one.purpose is Purpose.BACKING_IMAGE and one.name in self._images
        volume = self._volumes.get(replica.volume)
        is_here = not replica.is_placed or replica.disk_uuid == one.disk_uuid
        return is_here and volume is not None and volume.size_bytes >= one.size_bytes


def _text(one: Allocation) -> str:
    return f"{one.purpose} {one.name} disk={one.disk_uuid} bytes={one.size_bytes}"


def _say(line: str) -> None:
    click.echo(line)


@click.group("record")
def command() -> None:
    """Check the record of allocations."""


@command.command("crd")
def _crd() -> None:
    """Print the CustomResourceDefinition of NodeDiskAllocation."""
    _say(json.dumps(allocation_crd(), indent=2))


@command.command("check")
@access
@namespace
def _check(kubeconfig: str, context: str, namespace: str) -> int:
    """Compare the record with Longhorn's objects. Exit code 1 if they differ."""
    return check(ClientKubeApi.load(kubeconfig, context), namespace)
