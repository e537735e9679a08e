"""The JSON that kube-scheduler and an extender exchange: ExtenderArgs in, ExtenderFilterResult out.

Source: kube-scheduler's `extender/v1` types and `pkg/scheduler/extender.go`. The keys of the outer objects are Go field
names (`Pod`, `Nodes`, `NodeNames`); Go's decoder forgives letter case and older documents show lower case, so any case
is read. What lies inside a pod or a node list has Kubernetes' own spelling.

Which of `Nodes` and `NodeNames` is sent follows `nodeCacheCapable` of the scheduler's configuration, and the scheduler
reads the answer from the same field: names in answer to full nodes are taken for an empty answer, without any error.
So the answer mirrors the form of the request:

- `NodeNames` alone: answered in `NodeNames`;
- `Nodes` alone: answered in `Nodes`, every item byte for byte as it came;
- both: they must name the same nodes, and both are answered, because the reader may look at either;
- neither: malformed. An empty list is a list, and its answer is an empty list;
- a name that stands twice, or is empty: malformed;
- more nodes than a cluster of this size may have (`ClusterSize`): malformed, before any name is looked at.

What a request costs in memory is bounded: nothing is decoded but what is read, and no more objects than a request of
that cluster may have, however small they are.

Of a key that stands there twice, in whatever letter case, the last one counts, as for Go's `encoding/json`. (From the
first, Go would fill in what a second `Pod` or `Nodes` leaves out; here the first is not looked at, and what is missing
is named.)
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from controller.errors import MalformedRequestError
from controller.rules.reasons import Reason

_GO_KEYS: Final = {
    "pod": "Pod",
    "nodes": "Nodes",
    "node_names": "NodeNames",
    "failed_nodes": "FailedNodes",
    "failed_and_unresolvable_nodes": "FailedAndUnresolvableNodes",
    "error": "Error",
}
_KEYS: Final = {"pod": "Pod", "nodes": "Nodes", "nodenames": "NodeNames"}
MOST_OBJECTS: Final = 20_000  # in one request, beside those of a cluster's nodes
MOST_FIELDS: Final = 20_000  # in a request that is not spelled as kube-scheduler spells it
_Decoded = TypeVar("_Decoded")


class _Decoding(threading.local):
    """How many more objects the request may have that this thread decodes."""

    left = 0


_decoding: Final = _Decoding()


class Counted(msgspec.Struct, gc=False):
    """An object of which a request may have many. Decoding ends at the first one too many."""

    def __post_init__(self) -> None:
        _decoding.left -= 1
        if _decoding.left < 0:
            raise MalformedRequestError("body", "has more objects than a request of this cluster can have")


class _Meta(msgspec.Struct, gc=False):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None


class _Source(msgspec.Struct, gc=False):
    """Only its presence matters."""


class _Volume(Counted, rename="camel"):
    persistent_volume_claim: _Source | None = None
    ephemeral: _Source | None = None


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    volumes: list[_Volume] | None = None
    scheduler_name: str | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta | None = None
    spec: _Spec | None = None


class _NodeMeta(msgspec.Struct, gc=False):
    name: str


class _NodeHead(Counted):
    metadata: _NodeMeta


class _NodeList(msgspec.Struct):
    items: list[_NodeHead] | None = None


class _RawNodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Args(msgspec.Struct, rename=_GO_KEYS, forbid_unknown_fields=True):
    """As kube-scheduler writes it. A request with any other key is read more slowly, since that key may be one of these
    in another spelling."""

    pod: _Pod | None = None
    nodes: _NodeList | None = None
    node_names: msgspec.Raw = msgspec.Raw(b"null")


class _RawArgs(msgspec.Struct, rename=_GO_KEYS):
    """The nodes byte for byte, of a request that has been read."""

    nodes: _RawNodeList | None = None


_ARGS: Final = msgspec.json.Decoder(_Args)
_OUTER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_POD: Final = msgspec.json.Decoder(_Pod | None)
_NODES: Final = msgspec.json.Decoder(_NodeList | None)
_NAMES: Final = msgspec.json.Decoder(list[str] | None)
_RAW_ARGS: Final = msgspec.json.Decoder(_RawArgs)
_RAW_NODES: Final = msgspec.json.Decoder(_RawNodeList | None)
_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """How many nodes we know of, and so how much a request may hold: our watch may lag behind a cluster that grows, and
    nodes may be large, but a stranger's list must not cost more than the cluster's own."""

    nodes: int

    @property
    def most_nodes(self) -> int:
        return 1_000 + 2 * self.nodes

    @property
    def most_bytes(self) -> int:
        return (4 * 1024 + 128 * self.nodes) * 1024

    def begin(self, objects_per_node: int = 1) -> None:
        """To be called before a request is decoded."""
        _decoding.left = MOST_OBJECTS + objects_per_node * self.most_nodes

    def check(self, field: str, count: int) -> None:
        """MalformedRequestError when there are more nodes than may be."""
        if count > self.most_nodes:
            raise MalformedRequestError(field, f"has more than {self.most_nodes} nodes; {self.nodes} are known")


ANY_SIZE: Final = ClusterSize(10**9)


@dataclass(frozen=True, slots=True)
class PodRef:
    """The pod that a request is about."""

    uid: str
    namespace: str
    name: str
    has_claims: bool = True  # a pod's volumes never change, so what the request says of them holds

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodHead(Counted):
    """As much of a pod as is needed to identify it."""

    metadata: _Meta | None = None

    @property
    def uid(self) -> str:
        return (self.metadata.uid or "") if self.metadata is not None else ""


@dataclass(frozen=True, slots=True)
class FilterArgs:
    """One request: the pod, the candidates in the order they came, and the form they came in."""

    pod: PodRef
    candidates: list[str]
    has_names: bool  # NodeNames was sent
    items: list[msgspec.Raw] | None  # the items of Nodes as they came, or None when Nodes was not sent
    item_names: list[str] | None = None  # their names
    scheduler_name: str = ""


class _NodesAnswer(msgspec.Struct):
    metadata: dict[str, str]
    items: list[msgspec.Raw]


class _Result(msgspec.Struct, rename=_GO_KEYS):
    """ExtenderFilterResult with Go's keys, all of them always there, as Go writes them."""

    nodes: _NodesAnswer | None
    node_names: Sequence[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


def decode_filter_args(body: bytes, size: ClusterSize = ANY_SIZE) -> FilterArgs:
    """The request in `body`; MalformedRequestError names the field that is wrong. Unknown fields mean nothing."""
    size.begin()
    raw: msgspec.Raw | None = None  # of Nodes; None: of the whole body
    try:
        args = _decode(_ARGS, body, "")
    except MalformedRequestError as error:
        check_fields(body, error)
        args, raw = _decode_any_case(body)
    pod = _checked_pod(args.pod)
    size.check("NodeNames", bytes(args.node_names).count(b",") + 1)  # none stands in a name
    names, items = _decode(_NAMES, args.node_names, "NodeNames"), None
    item_names: list[str] | None = None
    if args.nodes is not None:
        item_names = [head.metadata.name for head in args.nodes.items or ()]
        size.check("Nodes.items", len(item_names))
        nodes = _RAW_ARGS.decode(body).nodes if raw is None else _RAW_NODES.decode(raw)
        items = (nodes.items if nodes is not None else None) or []
        if names is None:
            candidates = item_names
        else:
            candidates = names
            if sorted(names) != sorted(item_names):
                raise MalformedRequestError("NodeNames", "names other nodes than Nodes")
    elif names is not None:
        candidates = names
    else:
        raise MalformedRequestError("NodeNames", "is missing, and so is Nodes")
    _check_names(candidates, "NodeNames" if names is not None else "Nodes.items")
    spec = args.pod.spec if args.pod is not None else None
    scheduler = (spec.scheduler_name if spec is not None else None) or ""
    return FilterArgs(pod, candidates, names is not None, items, item_names, scheduler)


def encode_filter_result(args: FilterArgs, passed: Sequence[str], refused: Mapping[str, Reason]) -> bytes:
    """The answer, in the form of the request.

    Refusals are all unresolvable: evicting pods frees no Longhorn space, so preemption must not be tried for them.
    """
    texts = {reason: reason.text for reason in set(refused.values())}
    if len(texts) == 1:  # the usual case, and with thousands of nodes it counts
        (text,) = texts.values()
        return _encode(args, passed, dict.fromkeys(refused, text), "")
    return _encode(args, passed, {node: texts[reason] for node, reason in refused.items()}, "")


def encode_refusal(args: FilterArgs, text: str) -> bytes:
    """An answer that refuses every candidate as unresolvable, with the same text."""
    return _encode(args, (), dict.fromkeys(args.candidates, text), "")


def encode_error(message: str, args: FilterArgs | None = None) -> bytes:
    """An answer that fails the pod's scheduling cycle without calling any node unsuitable."""
    return _encode(args, (), {}, message)


def _encode(args: FilterArgs | None, passed: Sequence[str], refused: dict[str, str], error: str) -> bytes:
    nodes = None
    if args is not None and args.items is not None:
        items = args.items
        if passed is not args.candidates:
            by_name = dict(zip(args.item_names or (), items, strict=True))  # the two lists may be in different orders
            items = [by_name[name] for name in passed]
        nodes = _NodesAnswer({}, items)
    names = passed if args is not None and args.has_names else None
    return _ENCODER.encode(_Result(nodes, names, {}, refused, error))


def _decode(decoder: msgspec.json.Decoder[_Decoded], body: bytes | msgspec.Raw, path: str) -> _Decoded:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$")
        where = at.rstrip("`").removeprefix(".")
        field = ".".join(part for part in (path, where) if part) if not where.startswith("[") else f"{path}{where}"
        raise MalformedRequestError(field or "body", problem) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequestError(path or "body", f"is not JSON: {error}") from error
    except RecursionError as error:
        raise MalformedRequestError(path or "body", "is nested too deeply") from error


def _decode_any_case(body: bytes) -> tuple[_Args, msgspec.Raw | None]:
    """The outer object with its keys in any letter case, and the nodes byte for byte."""
    found = decode_fields(body, _KEYS)
    args = _Args()
    if "Pod" in found:
        args.pod = _decode(_POD, found["Pod"], "Pod")
    if "Nodes" in found:
        args.nodes = _decode(_NODES, found["Nodes"], "Nodes")
    args.node_names = found.get("NodeNames", args.node_names)
    return args, found.get("Nodes")


def decode_fields(body: bytes, keys: Mapping[str, str]) -> dict[str, msgspec.Raw]:
    """The fields of the object in `body` that `keys` (folded case to Go's spelling) names, by Go's spelling.

    Of a field that occurs several times, the last one counts, whatever their spellings: Go's `encoding/json` sets the
    field at each of them in turn.
    """
    outer = _decode(_OUTER, body, "")
    spellings: dict[str, list[str]] = {}
    for key in outer:
        name = keys.get(key.casefold())  # the folding of Go, which also takes the long s and the sign of kelvin
        if name is not None:
            spellings.setdefault(name, []).append(key)
    order: dict[str, int] = {}
    if any(len(found) > 1 for found in spellings.values()):
        order = {key: place for place, key in enumerate(_keys_in_order(body))}
    return {name: outer[max(found, key=lambda key: order.get(key, 0))] for name, found in spellings.items()}


def check_fields(raw: bytes | msgspec.Raw, error: MalformedRequestError) -> None:
    """Raises the error with which `raw` was refused, if it has too many fields to be read in another spelling: for such
    a request no limit of its parts holds."""
    if sum(map(bytes(raw).count, (b":", b"[", b"{"))) > MOST_FIELDS:
        raise error


def _keys_in_order(body: bytes) -> list[str]:
    """The keys of the outer object; a repeated key is listed at each of its places, which a dict would not keep."""
    try:
        keys: list[str] = json.loads(body, object_pairs_hook=lambda pairs: [key for key, _ in pairs])
    except RecursionError as error:
        raise MalformedRequestError("body", "is nested too deeply") from error
    except ValueError as error:  # not UTF-8, or a number of thousands of digits, in a part that was not parsed before
        raise MalformedRequestError("body", f"cannot be read: {error}") from error
    return keys


def decode_as(kind: Any, raw: bytes | msgspec.Raw, path: str) -> Any:
    """`raw` as a value of the type `kind`; MalformedRequestError names what is wrong below `path`."""
    return _decode(msgspec.json.Decoder(kind), raw, path)


def decode_pod(raw: msgspec.Raw | None) -> PodRef:
    return _checked_pod(_decode(_POD, raw, "Pod") if raw is not None else None)


def _checked_pod(pod: _Pod | None) -> PodRef:
    if pod is None:
        raise MalformedRequestError("Pod", "is missing")
    meta = pod.metadata
    if meta is None:
        raise MalformedRequestError("Pod.metadata", "is missing")
    if not meta.uid:
        raise MalformedRequestError("Pod.metadata.uid", "is missing or empty")
    if not meta.name:
        raise MalformedRequestError("Pod.metadata.name", "is missing or empty")
    if not meta.namespace:
        raise MalformedRequestError("Pod.metadata.namespace", "is missing or empty")
    volumes = (pod.spec.volumes if pod.spec is not None else None) or ()
    has_claims = any(entry.persistent_volume_claim or entry.ephemeral for entry in volumes)
    return PodRef(meta.uid, meta.namespace, meta.name, has_claims)


def _check_names(names: list[str], field: str) -> None:
    distinct = set(names)
    if "" in distinct:
        raise MalformedRequestError(f"{field}[{names.index('')}]", "is empty")
    if len(distinct) != len(names):
        seen: set[str] = set()
        for index, name in enumerate(names):
            if name in seen:
                raise MalformedRequestError(f"{field}[{index}]", f"names the node {name[:253]!r} twice")
            seen.add(name)
