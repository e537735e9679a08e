"""`python -m controller.allocations {crd,check,repair,move}`: the record of what is allocated on Longhorn's disks.

`crd` prints the CustomResourceDefinition of NodeDiskAllocation. `check` compares the record with Longhorn's objects and
changes nothing; exit code 1 where they differ. `repair` brings the record to what the objects show, and makes one where
there is none; `--unreadable` writes records anew that cannot be read. `move` takes the record to the other place. All
but `crd` and `check` are for times when nobody allocates.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from controller.allocations.backends import (
    LonghornNodeBackend,
    NodeDiskAllocationBackend,
    RecordBackend,
    StoredRecord,
    found_backend,
)
from controller.allocations.definition import allocation_crd
from controller.allocations.expected import LonghornObjects, expected_among, surplus_of
from controller.allocations.moving import move_records
from controller.allocations.repair import Repair, by_node, plan_repairs
from controller.allocations.writer import RecordWriter
from controller.clock import Clock, SystemClock
from controller.errors import SchedulerError
from controller.kube.api import ClientKubeApi, KubeApi, listed
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_NODES, LONGHORN_REPLICAS
from controller.model.allocations import Drop, NodeRecord
from controller.model.parse import backing_image_facts, node_facts, replica_facts
from controller.process.flags import add_version

EXIT_DIFFERS: Final = 1
EXIT_FAILED: Final = 2
REPAIR_SECONDS: Final = 60.0
_BACKENDS: Final = {one.name: one for one in (LonghornNodeBackend, NodeDiskAllocationBackend)}


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(args)
    if options.command == "crd":
        _say(json.dumps(allocation_crd(), indent=2))
        return 0
    try:
        api = ClientKubeApi.load(options.kubeconfig)
        if options.command == "move":
            other = next(name for name in _BACKENDS if name != options.to)
            target = _BACKENDS[options.to](api, options.namespace)
            found = move_records(_BACKENDS[other](api, options.namespace), target, _say)
            _say(f"moved={found.moved}" + (f" stayed={found.stayed}" if found.stayed else ""))
            return EXIT_DIFFERS if found.stayed else 0
        backend = found_backend(api, options.namespace)
        _say(f"backend={backend.name}")
        if options.command == "check":
            return check(backend, api, options.namespace)
        return repair(backend, api, options.namespace, SystemClock(), rewrites=options.unreadable)
    except SchedulerError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILED


def check(backend: RecordBackend, api: KubeApi, namespace: str) -> int:
    records, objects = backend.records(), objects_of(api, namespace)
    problems = _say_problems(records) + _say_lost(backend, objects)
    found = planned([one.record for one in records], objects)
    _say_repairs(found)
    return EXIT_DIFFERS if found or problems else 0


def repair(backend: RecordBackend, api: KubeApi, namespace: str, clock: Clock, *, rewrites: bool) -> int:
    """`rewrites`: what cannot be read is written anew; else it stays as it is, and the exit code says so. Each record
    keeps its term, whoever gave it that."""
    records, objects = backend.records(), objects_of(api, namespace)
    problems = _say_problems(records) + _say_lost(backend, objects)
    terms = {one.record.node: one.record.term for one in records}

    def writer_of(node: str) -> RecordWriter:
        return RecordWriter(backend, lambda: terms.get(node, 0), clock)

    if rewrites:
        shown = objects.shown()
        for node in (stored.record.node for stored in records if stored.record.problem):
            mine = [one for one in shown if one.node == node]
            if writer_of(node).rewrite(node, mine, clock.now() + REPAIR_SECONDS):
                _say(f"{node}: rewritten")
        records = backend.records()
        problems = _say_lost(backend, objects)
    found = planned([one.record for one in records], objects)
    for frees in (False, True):  # a crash leaves too much on record, never too little
        for node, members in by_node(one for one in found if isinstance(one.change, Drop) is frees):
            writer_of(node).commit([one.change for one in members], clock.now() + REPAIR_SECONDS)
    _say_repairs(found)
    return EXIT_DIFFERS if problems else 0


def planned(records: Sequence[NodeRecord], objects: LonghornObjects) -> list[Repair]:
    """As the leader's, of entries that have waited for long; what replicas wait for that have no disk yet stays."""
    shown = objects.shown()
    return plan_repairs(records, shown, expected_among(surplus_of(records, shown), objects, shown))


def objects_of(api: KubeApi, namespace: str) -> LonghornObjects:
    """MalformedRequestError where one of them cannot be read. Without the volumes, which say no more of what waits than
    that it may grow."""
    return LonghornObjects(
        nodes=[node_facts(raw) for raw in listed(api, LONGHORN_NODES, namespace)],
        replicas=[replica_facts(raw) for raw in listed(api, LONGHORN_REPLICAS, namespace)],
        volumes={},
        images=[backing_image_facts(raw) for raw in listed(api, LONGHORN_BACKING_IMAGES, namespace)],
    )


def _say_problems(records: Sequence[StoredRecord]) -> int:
    found = [one.record for one in records if one.record.problem]
    for record in found:
        _say(f"{record.node}: unreadable: {record.problem}")
    return len(found)


def _say_lost(backend: RecordBackend, objects: LonghornObjects) -> int:
    """Longhorn Nodes that have carried a record and do not any more, where the record is kept elsewhere by now."""
    if isinstance(backend, LonghornNodeBackend):
        return 0
    records = (one.record for one in objects.nodes if one.record is not None)
    lost = [(one.node, one.problem) for one in records if one.problem]
    for node, problem in lost:
        _say(f"{node}: unreadable in Longhorn's Node, to be taken off by hand: {problem}")
    return len(lost)


def _say_repairs(found: Sequence[Repair]) -> None:
    for one in found:
        what = one.allocation
        _say(f"{what.node}/{what.disk_uuid}: {one.reason} {what.purpose} {what.name} bytes={what.size_bytes}")
    for reason, count in sorted(Counter(one.reason for one in found).items()):
        _say(f"{reason}={count}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controller.allocations", description=(__doc__ or "").split("\n")[0]
    )
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("crd", "print the CustomResourceDefinition"),
        ("check", "compare the record with Longhorn's objects"),
        ("repair", "change the record to what the objects show"),
        ("move", "move the record to another kind of object"),
    ):
        command = commands.add_parser(name, help=text)
        if name == "crd":
            continue
        command.add_argument("--kubeconfig", help="kubeconfig for the API server (default: the pod's service account)")
        command.add_argument(
            "--namespace", default="longhorn-system", help="Longhorn's namespace (default: %(default)s)"
        )
        if name == "repair":
            command.add_argument("--unreadable", action="store_true", help="rewrite records that cannot be read")
        if name == "move":
            command.add_argument(
                "--to", required=True, choices=sorted(_BACKENDS), help="where the record is kept from then on"
            )
    return parser
