"""What lies on each disk, now and at each moment of the API server's history, by the record, by Longhorn's objects, and
by claims whose node is chosen. Nothing of the product's is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from tests.cluster.client import ApiClient
from tests.cluster.cluster import Cluster
from tests.e2e.disk_site import RECORDS, Disks, disks_of
from tests.e2e.history_facts import SELECTED_NODE
from tests.e2e.history_tail import HistoryTail
from tests.e2e.scheduling import NAMESPACE
from tests.longhorn import paths
from tests.longhorn.quantity import quantity_bytes

RECORD: Final = "NodeDiskAllocation"
OBJECTS: Final = ("Replica", "BackingImage")
CLAIM: Final = "PersistentVolumeClaim"
COLLECTIONS: Final = {
    RECORD: RECORDS,
    "Replica": paths.longhorn("replicas", NAMESPACE),
    "BackingImage": paths.longhorn("backingimages", NAMESPACE),
    CLAIM: paths.CLAIMS,
}
Place = tuple[str, str, str]  # name, node, and the disk's name


def taken(api: ApiClient, *kinds: str) -> dict[Place, int]:
    """What these kinds say now."""
    disks = disks_of(api)
    of_kind = partial(_taken_by, disks=disks)
    return most(of_kind(kind, raw) for kind in kinds for raw in api.list(COLLECTIONS[kind])["items"])


def most(maps: Iterable[Mapping[Place, int]]) -> dict[Place, int]:
    """Of what several say of one place, the most counts."""
    found: dict[Place, int] = {}
    for members in maps:
        for place, size in members.items():
            found[place] = max(size, found.get(place, 0))
    return found


def sums(places: Mapping[Place, int]) -> Counter[tuple[str, str]]:
    """By node and disk."""
    found: Counter[tuple[str, str]] = Counter()
    for (_, node, disk), size in places.items():
        found[node, disk] += size
    return found


def moments(cluster: Cluster, *kinds: str) -> Iterator[tuple[int, dict[tuple[str, str], dict[Place, int]]]]:
    """After each change that the API server has made up to now: its revision, and what each object of these kinds
    says. The same map is changed and given again."""
    disks, now = disks_of(cluster.api()), dict[tuple[str, str], dict[Place, int]]()
    for entry in HistoryTail(cluster.history).read(cluster.history_caught_up()):
        assert entry["type"] != "GAP", entry
        if entry["kind"] in kinds and entry.get("object") is not None:
            kind, raw = entry["kind"], entry["object"]
            now[kind, raw["metadata"]["name"]] = {} if entry["type"] == "DELETED" else _taken_by(kind, raw, disks)
            yield int(entry["rv"]), now


def peaks(cluster: Cluster, *kinds: str) -> Counter[tuple[str, str]]:
    """The most that each disk ever held, by whichever of these kinds says more of a place."""
    found: Counter[tuple[str, str]] = Counter()
    for _, now in moments(cluster, *kinds):
        found |= sums(most(now.values()))
    return found


def _taken_by(kind: str, raw: Any, disks: Disks) -> dict[Place, int]:
    return dict(_places(kind, raw, disks))


def _places(kind: str, raw: Any, disks: Disks) -> Iterator[tuple[Place, int]]:
    name, spec = raw["metadata"]["name"], raw.get("spec") or {}
    if kind == "Replica" and spec.get("diskID"):
        yield (name, *disks[spec["diskID"]]), int(spec["volumeSize"])
    if kind == "BackingImage":
        for uuid in spec.get("diskFileSpecMap") or ():
            yield (name, *disks[uuid]), int(raw["status"]["realSize"])
    if kind == RECORD:
        for uuid, lists in (spec.get("diskAllocations") or {}).items():
            for sizes in lists.values():
                for entry, size in sizes.items():
                    yield (entry, name, disks[uuid][1]), int(size)
    node = (raw["metadata"].get("annotations") or {}).get(SELECTED_NODE)
    if kind == CLAIM and node:
        ((_, disk),) = [one for one in disks.values() if one[0] == node]  # which it lands on, were there several?
        yield (name, node, disk), quantity_bytes(spec["resources"]["requests"]["storage"])
