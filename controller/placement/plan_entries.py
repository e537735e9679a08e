"""Plans as text in ConfigMaps: in which of them a plan stands, how it looks there, and how all of that is read back,
whatever somebody else has made of it.

A plan stands in one of the ConfigMaps, in any of them. One key of each has all of its plans, a line of compact JSON
each: with a key for each plan, the API server's account of who owns which field would make a write several times as
slow. What is damaged costs its line, and other keys are not ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from controller.allocator.plans.plan import Plan
from controller.errors import MalformedRequestError
from controller.model.names import TERM_ANNOTATION
from controller.model.places import Place
from controller.model.quantity import MAX_BYTES

Raw = Mapping[str, Any]
SHARDS: Final = 16
KEY: Final = "plans"
MAX_LINE_BYTES: Final = 64 * 1024  # about 1,700 pods that claim one volume
MAX_PLACES: Final = 100  # Longhorn's own limit is 20 copies
LABELS: Final[Mapping[str, str]] = {
    "app.kubernetes.io/name": "longhorn-scheduler-extender",
    "app.kubernetes.io/component": "plans",
}
_NAME: Final = "longhorn-scheduler-extender-plans"
_KEPT: Final = ("labels", "annotations", "finalizers", "ownerReferences")  # of the metadata, whoever wrote it
_SHOWN: Final = 5  # of a kind of problem


def shard_name(index: int) -> str:
    """What the ConfigMap of that number is called."""
    return f"{_NAME}-{index}"


_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
_Bytes = Annotated[int, msgspec.Meta(ge=1, le=MAX_BYTES)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A plan as it is written."""

    volume: _Text
    uid: _Text
    places: Annotated[tuple[tuple[_Text, _Text, _Bytes], ...], msgspec.Meta(max_length=MAX_PLACES)]
    pods: tuple[_Text, ...]
    since: Annotated[datetime, msgspec.Meta(tz=True)]


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Entry)


def encode(plan: Plan) -> str:
    """The plan's line: compact JSON, the same for equal plans."""
    places = tuple((one.node, one.disk_uuid, one.size_bytes) for one in plan.places)
    return _encoder.encode(_Entry(plan.volume, plan.uid, places, plan.pods, plan.since_utc)).decode()


def decode(line: str) -> Plan:
    """The plan that the line says. Raises MalformedRequestError."""
    if len(line) > MAX_LINE_BYTES:
        raise MalformedRequestError("", f"has more than {MAX_LINE_BYTES} bytes")
    try:
        found = _decoder.decode(line)
        since_utc = found.since.astimezone(UTC)
    except (msgspec.MsgspecError, UnicodeError, OverflowError) as error:
        raise MalformedRequestError("", str(error)) from error
    places = tuple(Place(node, disk_uuid, size_bytes) for node, disk_uuid, size_bytes in found.places)
    return Plan(found.volume, found.uid, places, found.pods, since_utc)


def text_of(lines: Iterable[str]) -> str:
    """The value under our key."""
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Content:
    """One ConfigMap as it was read. `text`: the value under our key, None where there is none that is a text. `others`:
    `metadata`, `data` and `binaryData` as far as they are not ours; they stay. `damaged`: lines that are no plans.
    `problems`: for people."""

    uid: str
    version: str
    plans: Mapping[str, Plan]
    text: str | None
    others: Mapping[str, Mapping[str, Any]]
    others_bytes: int
    is_immutable: bool
    damaged: int
    problems: tuple[str, ...]


def read(raw: Raw) -> Content:
    """What the ConfigMap holds. What cannot be read is told, and never a plan."""
    meta, data, binary = (_mapping(raw.get(name)) for name in ("metadata", "data", "binaryData"))
    text = data.get(KEY)
    plans, damaged, problems = _plans_in(text if isinstance(text, str) else "")
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
        problems.append(f"it has keys that are not ours: {_some(foreign)}")
    labels = _mapping(meta.get("labels"))
    if any(labels.get(name) != value for name, value in LABELS.items()):
        problems.append("its labels are not ours")
    if raw.get("immutable"):
        problems.append("it is immutable, and has to be made again")
    return Content(
        uid=str(meta.get("uid", "")),
        version=str(meta.get("resourceVersion", "")),
        plans=plans,
        text=text if isinstance(text, str) and KEY not in binary else None,
        others=others,
        others_bytes=sum(
            len(key) + size_of(str(value)) for name in ("data", "binaryData") for key, value in others[name].items()
        ),
        is_immutable=bool(raw.get("immutable")),
        damaged=damaged,
        problems=tuple(problems),
    )


def _plans_in(text: str) -> tuple[dict[str, Plan], int, list[str]]:
    """By volume, how many lines are none, and what is wrong with the first of those. Of a volume with two plans there
    is none: nobody knows which of them holds."""
    found, damaged, problems = list[Plan](), 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        try:
            found.append(decode(line))
        except MalformedRequestError as error:
            damaged += 1
            if damaged <= _SHOWN:
                problems.append(f"line {number}: {error}")
    if damaged > _SHOWN:
        problems.append(f"so are {damaged - _SHOWN} more lines")
    twice = {volume for volume, count in Counter(plan.volume for plan in found).items() if count > 1}
    problems += several_plans(twice)
    return {plan.volume: plan for plan in found if plan.volume not in twice}, damaged + len(twice), problems


def several_plans(volumes: Collection[str]) -> list[str]:
    """That there are several plans for each of these, if there are any; for people."""
    return [f"several plans stand for a volume: {_some(sorted(volumes))}"] if volumes else []


def body(index: int, mark: str, text: str, others: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The whole ConfigMap. `mark`: what the term of its writer is told by."""
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


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _mapping(raw: object) -> Raw:
    return raw if isinstance(raw, Mapping) else {}
