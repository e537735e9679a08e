"""How long the leader's plans and holds take to be written and loaded (`python -m bench.plan_objects`).

On the embedded control plane. Each round begins without any ConfigMap: a commit of COMMIT holds with few offers each,
and one of as many with MANY; once they have ended a commit of COMMIT plans, PLANS of them written at once, another
commit beside those, then the load of a new leader. A write has all that stands in its ConfigMap, so that the second
commit tells what a change costs a leader with more plans than it is likely to have. What a small change
of one small ConfigMap takes there at the same time is the unit of the ratios. Printed as one JSON object: milliseconds,
medians over the rounds and quartiles, and ratios; and the verdicts, which go to standard error as well.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from bench.served import quartiles, timed
from bench.verdicts import Verdict, add_report_only, report
from controller.allocator.plans.plan import Hold, Plan, Source
from controller.clock import SystemClock
from controller.errors import NotFoundError
from controller.kube.api import ClientKubeApi
from controller.kube.resources import CONFIG_MAPS
from controller.model.places import Place
from controller.placement.plan_entries import SHARDS, Entry, hold_key, shard_name
from controller.placement.plan_objects import PlanObjects
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.longhorn.options import GIB

NAMESPACE = "longhorn-system"
UNIT = "unit"  # the small ConfigMap
UNITS = 20  # of its changes a round
PLANS, COMMIT, COPIES = 10_000, 100, 3
FEW, MANY = 4, 100  # offers of a hold
HELD, HELD_MANY = "commit_holds", "commit_holds_of_many_offers"
FIRST, WRITTEN, BESIDE, LOADED, SMALL = "commit_first", "written", "commit_beside", "loaded", "small_change"
PLANS_MS, COMMIT_MS = 1_000.0, 50.0  # asked of us: written and loaded; one commit


def plans(prefix: str, count: int) -> Iterator[Plan]:
    now_utc = SystemClock().now_utc().replace(microsecond=0)
    for number in range(count):
        name = f"pvc-{prefix}-{number:08d}-4a5b-8c7d-0123456789ab"
        disks = [(number * COPIES + copy) % 3_000 for copy in range(COPIES)]
        places = tuple(Place(f"worker-{disk:04d}", f"{disk:08d}-1b2c-4d5e-8f90-abcdef012345", GIB) for disk in disks)
        yield Plan(name, f"{number:08d}-0000-4000-8000-000000000000", places, (f"{number:08d}-pod",), now_utc)


def holds(prefix: str, count: int, offers: int) -> Iterator[Hold]:
    """Holds of pods with one volume, each on a disk of its own on each node offered."""
    now_utc = SystemClock().now_utc().replace(microsecond=0)
    for number in range(count):
        volume = f"pvc-{prefix}-{number:08d}-4a5b-8c7d-0123456789ab"
        disks = {f"worker-{node:04d}": f"{node:08d}-1b2c-4d5e-8f90-{number:012d}" for node in range(offers)}
        nodes = {node: {volume: Place(node, disk_uuid, GIB)} for node, disk_uuid in disks.items()}
        yield Hold(f"{number:08d}-{prefix}-4000-8000-000000000000", Source.FILTER, nodes, {}, 0.0, now_utc)


def clear(api: ClientKubeApi) -> None:
    for index in range(SHARDS):
        with suppress(NotFoundError):
            api.delete(CONFIG_MAPS, NAMESPACE, shard_name(index))


def committed(objects: PlanObjects, entries: Iterable[Entry]) -> float:
    """What it takes until all entries are stored."""
    made = list(entries)

    def commit() -> None:
        objects.put(*made)
        assert objects.flush(60.0), objects.figures()

    return timed(commit)


def one_round(api: ClientKubeApi, number: int) -> Iterator[tuple[str, float]]:
    def leader() -> PlanObjects:
        return PlanObjects(api, NAMESPACE, SystemClock(), lambda _term: None)

    clear(api)
    objects = leader()
    objects.load(2 * number)
    for name, offers in ((HELD, FEW), (HELD_MANY, MANY)):
        yield name, committed(objects, holds("held", COMMIT, offers))
        objects.remove(*(hold_key(one.pod) for one in holds("held", COMMIT, offers)))
        objects.flush(60.0)
    yield FIRST, committed(objects, plans("first", COMMIT))
    yield WRITTEN, committed(objects, plans("many", PLANS - COMMIT))
    yield BESIDE, committed(objects, plans("beside", COMMIT))
    following = leader()
    yield LOADED, timed(lambda: following.load(2 * number + 1))
    assert PLANS + COMMIT == following.figures().plans
    for change in range(UNITS):
        body = {"data": {"changed": f"{number}-{change}"}}
        yield SMALL, timed(lambda body=body: api.patch(CONFIG_MAPS, NAMESPACE, UNIT, body))  # type: ignore[misc]


def measure(rounds: int) -> dict[str, Any]:
    took = defaultdict[str, list[float]](list)
    with Cluster.start(
        ClusterOptions(name=f"bench-plans-{os.getpid()}", start_scheduler=False, record_history=False)
    ) as cluster:
        cluster.create_namespace(NAMESPACE)
        api = ClientKubeApi.load(str(cluster.layout.kubeconfig("admin")))
        api.create(CONFIG_MAPS, NAMESPACE, {"metadata": {"name": UNIT}, "data": {}})
        for number in range(rounds + 1):
            for name, seconds in one_round(api, number):
                if number:  # the first one warms up
                    took[name].append(seconds)
    unit = statistics.median(took[SMALL])
    ratios = {name: round(statistics.median(values) / unit, 2) for name, values in took.items()}
    return {
        **{name: quartiles(values) for name, values in took.items()},
        "to_a_small_change": ratios,
        "written_and_loaded_ms": round(1_000 * sum(map(statistics.median, (took[WRITTEN], took[LOADED]))), 1),
    }


def judged(found: dict[str, Any]) -> list[Verdict]:
    both = found["written_and_loaded_ms"]
    verdicts = [Verdict(f"{PLANS} plans written and loaded: {both:.0f} ms", both <= PLANS_MS, f"{PLANS_MS:.0f} ms")]
    for name, what in ((FIRST, "plans"), (HELD, f"holds of {FEW} offers"), (HELD_MANY, f"holds of {MANY} offers")):
        took = found[name]["median_ms"]
        text = f"a commit of {COMMIT} {what}: {took:.0f} ms, {found['to_a_small_change'][name]} small changes"
        verdicts.append(Verdict(text, took <= COMMIT_MS, f"{COMMIT_MS:.0f} ms"))
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    add_report_only(parser)
    options = parser.parse_args()
    found = measure(options.rounds)
    return report(found, judged(found), is_report_only=options.report_only)


if __name__ == "__main__":
    sys.exit(main())
