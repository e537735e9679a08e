"""The text form of plans and holds in ConfigMaps, which are read back whatever somebody else has made of them.

An entry is in exactly one of the ConfigMaps, whichever that is. All entries of a ConfigMap are under one key, each as a
line of compact JSON: with a key for each entry, the API server's record of who owns which field (managedFields) would
make a write several times as slow. A damaged line costs that entry alone, and other keys are left as they are.

    {"volume":"pvc-1","uid":"…","places":[["n1","<disk>",10737418240]],"pods":["…"],"since":"…"}
    {"pod":"…","since":"…","nodes":{"n1":{"<disk>":[0]},"n2":{"<disk>":[0]}},"volumes":[["pvc-1",10737418240]]}

In a hold, `nodes` maps each disk to the indices of those `volumes` that have a place on it. So an offer takes little
more than the names of its node and disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from controller.allocator.plans.plan import Hold, Plan, Source
from controller.errors import MalformedRequestError
from controller.model.names import TERM_ANNOTATION
from controller.model.places import Place
from controller.model.quantity import MAX_BYTES

Entry = Plan | Hold
Raw = Mapping[str, Any]
SHARDS: Final = 16
KEY: Final = "plans"
MAX_LINE_BYTES: Final = 64 * 1024  # about 1,700 pods that claim one volume, or 1,000 offers to one pod
MAX_PLACES: Final = 100  # of a volume; Longhorn's own limit is 20 copies
LABELS: Final[Mapping[str, str]] = {
    "app.kubernetes.io/name": "longhorn-scheduler-extender",
    "app.kubernetes.io/component": "plans",
}
_NAME: Final = "longhorn-scheduler-extender-plans"
_HOLD: Final = "hold:"
_KEPT: Final = ("labels", "annotations", "finalizers", "ownerReferences")  # of the metadata, whoever wrote it
_SHOWN: Final = 5  # of a kind of problem


def shard_name(index: int) -> str:
    """The name of the ConfigMap with that number."""
    return f"{_NAME}-{index}"


def plan_key(volume: str) -> str:
    """The key of the volume's plan among all entries."""
    return f"plan:{volume}"


def hold_key(pod: str) -> str:
    """The key of the hold of the pod with that uid among all entries."""
    return f"{_HOLD}{pod}"


def is_hold(key: str) -> bool:
    return key.startswith(_HOLD)


def key_of(entry: Entry) -> str:
    return hold_key(entry.pod) if isinstance(entry, Hold) else plan_key(entry.volume)


_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
_Name = Annotated[str, msgspec.Meta(max_length=253)]  # "": there is none
_Bytes = Annotated[int, msgspec.Meta(ge=1, le=MAX_BYTES)]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]
_Places = Annotated[tuple[tuple[_Text, _Text, _Bytes], ...], msgspec.Meta(max_length=MAX_PLACES)]
_OnNode = dict[_Text, tuple[Annotated[int, msgspec.Meta(ge=0)], ...]]  # disk UUID -> numbers in `volumes`


class _PlanLine(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON form of a plan."""

    volume: _Text
    uid: _Text
    places: _Places
    pods: tuple[_Text, ...]
    since: _Time


class _HoldLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The JSON form of a hold. `volumes`: name and bytes of those that have a place on any of the `nodes`."""

    pod: _Text
    since: _Time
    nodes: dict[_Text, _OnNode] | None
    volumes: tuple[tuple[_Text, _Bytes], ...] = ()
    anywhere: dict[_Text, _Places] = {}
    older: tuple[tuple[_Name, _Name], ...] = ()
    chosen: _Name = ""


class _Either(msgspec.Struct):
    """The field by which a hold is told from a plan, which has no field of that name."""

    pod: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_encoder: Final = msgspec.json.Encoder()
_either: Final = msgspec.json.Decoder(_Either)
_plans: Final = msgspec.json.Decoder(_PlanLine)
_holds: Final = msgspec.json.Decoder(_HoldLine)


def encode(entry: Entry) -> str:
    """The entry's line of compact JSON, the same for equal entries. Of a hold it lacks `since`, which is in this
    process's monotonic seconds, and `until` and `keeps_out`, which mean nothing for an answer."""
    if isinstance(entry, Hold):
        return _encoder.encode(_hold_line(entry)).decode()
    line = _PlanLine(entry.volume, entry.uid, _tuples(entry.places), entry.pods, entry.since_utc)
    return _encoder.encode(line).decode()


def decode(line: str) -> Entry:
    """The plan or hold in that line. Raises MalformedRequestError."""
    if len(line) > MAX_LINE_BYTES:
        raise MalformedRequestError("", f"has more than {MAX_LINE_BYTES} bytes")
    try:
        if _either.decode(line).pod is msgspec.UNSET:
            plan = _plans.decode(line)
            return Plan(plan.volume, plan.uid, _places(plan.places), plan.pods, plan.since.astimezone(UTC))
        return _hold_of(_holds.decode(line))
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError) as error:
        raise MalformedRequestError("", str(error)) from error


def _hold_line(hold: Hold) -> _HoldLine:
    nodes = hold.nodes
    on_nodes = () if nodes is None else nodes.values()
    volumes = sorted({(volume, place.size_bytes) for on_node in on_nodes for volume, place in on_node.items()})
    numbers = {volume: number for number, volume in enumerate(volumes)}
    return _HoldLine(
        pod=hold.pod,
        since=hold.since_utc,
        nodes=None if nodes is None else {node: _by_disk(nodes[node], numbers) for node in sorted(nodes)},
        volumes=tuple(volumes),
        anywhere={volume: _tuples(hold.anywhere[volume]) for volume in sorted(hold.anywhere)},
        older=tuple(sorted(hold.named_before)),
        chosen=hold.chosen,
    )


def _by_disk(on_node: Mapping[str, Place], numbers: Mapping[tuple[str, int], int]) -> _OnNode:
    numbered = [(numbers[volume, one.size_bytes], one.disk_uuid) for volume, one in on_node.items()]
    found = dict[str, tuple[int, ...]]()
    for number, disk_uuid in sorted(numbered):
        found[disk_uuid] = (*found.get(disk_uuid, ()), number)
    return found


def _hold_of(line: _HoldLine) -> Hold:
    """Raises MalformedRequestError."""
    nodes = line.nodes
    return Hold(
        pod=line.pod,
        source=Source.FILTER,
        nodes=None if nodes is None else {node: _on_node(node, nodes[node], line.volumes) for node in nodes},
        anywhere={volume: _places(tuples) for volume, tuples in line.anywhere.items()},
        since=0.0,
        since_utc=line.since.astimezone(UTC),
        named_before=frozenset(line.older),
        chosen=line.chosen,
    )


def _on_node(node: str, disks: _OnNode, volumes: Sequence[tuple[str, int]]) -> dict[str, Place]:
    found = dict[str, Place]()
    for disk_uuid, numbers in disks.items():
        for number in numbers:
            if number >= len(volumes):
                raise MalformedRequestError("", f"there is no volume {number} for node {node}")
            volume, size_bytes = volumes[number]
            if volume in found:
                raise MalformedRequestError("", f"there are two places for {volume} on node {node}")
            found[volume] = Place(node, disk_uuid, size_bytes)
    return found


def _tuples(places: Iterable[Place]) -> tuple[tuple[str, str, int], ...]:
    return tuple((one.node, one.disk_uuid, one.size_bytes) for one in places)


def _places(tuples: Iterable[tuple[str, str, int]]) -> tuple[Place, ...]:
    return tuple(Place(node, disk_uuid, size_bytes) for node, disk_uuid, size_bytes in tuples)


def only_shrinks(entry: Entry, line: str, former: str | None) -> bool:
    """Whether the entry's line differs from the `former` one in nothing but places that have ended, or the choice of
    one of the nodes that were offered."""
    if former is None or former == line:
        return False
    try:
        old = decode(former)
    except MalformedRequestError:
        return False
    return _without_places(entry) == _without_places(old) and _places_of(entry) <= _places_of(old)


def _without_places(entry: Entry) -> Entry:
    """The entry without its places and the choice of a node."""
    return replace(entry, places=()) if isinstance(entry, Plan) else replace(entry.narrowed(""), since=0.0)


def _places_of(entry: Entry) -> Counter[object]:
    return Counter(entry.places if isinstance(entry, Plan) else entry.places())


@dataclass(frozen=True, slots=True)
class Content:
    """One ConfigMap as it was read. `version`: its resourceVersion, "" if it does not exist. `entries`: by key;
    `lines`: the same as we would encode them. `text`: the value under our key, None without one that is text.
    `others`: what of `metadata`, `data` and `binaryData` is not ours, and is kept. `damaged`: the number of lines that
    are no entry. `problems`: in words, for people."""

    uid: str
    version: str
    entries: Mapping[str, Entry]
    lines: Mapping[str, str]
    text: str | None
    others: Mapping[str, Mapping[str, Any]]
    others_bytes: int
    is_immutable: bool
    damaged: int
    problems: tuple[str, ...]


_GONE: Final = Content("", "", {}, {}, None, {}, 0, False, 0, ("is gone, and is made again",))


def read(raw: Raw | None) -> Content:
    """The content of that ConfigMap; None: it does not exist. What cannot be read is a problem, never an entry."""
    if raw is None:
        return _GONE
    meta, data, binary = (_mapping(raw.get(name)) for name in ("metadata", "data", "binaryData"))
    text = data.get(KEY)
    entries, damaged, problems = _entries_in(text if isinstance(text, str) else "")
    if KEY in binary or not isinstance(text, str | None):
        damaged += 1
        problems.append(f"the value of {KEY} is not a text")
    others = {
        "metadata": {name: meta[name] for name in _KEPT if meta.get(name)},
        "data": {key: value for key, value in data.items() if key != KEY},
        "binaryData": {key: value for key, value in binary.items() if key != KEY},
    }
    foreign = sorted({*others["data"], *others["binaryData"]})
    if foreign:
        problems.append(f"it has keys that are not ours: {_shortened(foreign)}")
    labels = _mapping(meta.get("labels"))
    if any(labels.get(name) != value for name, value in LABELS.items()):
        problems.append("its labels are not ours")
    if raw.get("immutable"):
        problems.append("it is immutable, and has to be made again")
    return Content(
        uid=str(meta.get("uid", "")),
        version=str(meta.get("resourceVersion", "")),
        entries=entries,
        lines={key: encode(entry) for key, entry in entries.items()},
        text=text if isinstance(text, str) and KEY not in binary else None,
        others=others,
        others_bytes=sum(
            len(key) + utf8_bytes(str(value)) for name in ("data", "binaryData") for key, value in others[name].items()
        ),
        is_immutable=bool(raw.get("immutable")),
        damaged=damaged,
        problems=tuple(problems),
    )


def _entries_in(text: str) -> tuple[dict[str, Entry], int, list[str]]:
    """The entries by key, the number of damaged lines, and the problems of the first of those. Entries with the same
    key are all dropped, since nobody knows which of them is true."""
    found, damaged, problems = list[tuple[str, Entry]](), 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        try:
            entry = decode(line)
        except MalformedRequestError as error:
            damaged += 1
            if damaged <= _SHOWN:
                problems.append(f"line {number}: {error}")
        else:
            found.append((key_of(entry), entry))
    if damaged > _SHOWN:
        problems.append(f"so are {damaged - _SHOWN} more lines")
    twice = {key for key, count in Counter(key for key, _ in found).items() if count > 1}
    problems += duplicates_problem(twice)
    return {key: entry for key, entry in found if key not in twice}, damaged + len(twice), problems


def duplicates_problem(keys: Collection[str]) -> list[str]:
    """The problem that each of these keys has several entries; nothing for no keys."""
    return [f"there are several entries for {_shortened(sorted(keys))}"] if keys else []


def config_map(index: int, mark: str, text: str, others: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The whole ConfigMap as it is sent. `mark`: identifies the term of its writer. `others`: as in `Content`."""
    meta = others.get("metadata", {})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **meta,
            "name": shard_name(index),
            "labels": {**_mapping(meta.get("labels")), **LABELS},
            "annotations": {**_mapping(meta.get("annotations")), TERM_ANNOTATION: mark},
        },
        "data": {**others.get("data", {}), KEY: text},
        "binaryData": dict(others.get("binaryData", {})),
    }


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _mapping(raw: object) -> Raw:
    return raw if isinstance(raw, Mapping) else {}
