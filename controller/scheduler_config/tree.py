"""YAML that keeps its comments: reads one document, writes it in its own style, and comments on additions."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from controller.errors import ConfigError

_Collection = TypeVar("_Collection", CommentedMap, CommentedSeq)
_NO_FOLDING: Final = 2**30  # columns: a certificate stays on one line


@dataclass(frozen=True, slots=True)
class Layout:
    """How a document is indented, in columns."""

    mapping: int = 2
    sequence: int = 4  # from a key to the text of its list's items
    dash: int = 2  # from a key to the dashes


def parse(text: str, source: str) -> CommentedMap:
    """The only mapping in block style in `text`; otherwise ConfigError says what `text` holds."""
    try:
        documents = [document for document in _yaml(Layout()).load_all(text) if document is not None]
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"{source}: is not YAML: {_in_a_line(error)}") from error
    if len(documents) > 1:
        raise ConfigError(f"{source}: holds {len(documents)} documents, of which kube-scheduler reads only the first")
    if not documents or not isinstance(documents[0], CommentedMap):
        raise ConfigError(f"{source}: holds no mapping")
    if is_flow(documents[0]):
        raise ConfigError(f"{source}: is JSON, which cannot hold comments; convert it to YAML first")
    return documents[0]


def write(document: Any, layout: Layout) -> str:
    buffer = io.StringIO()
    _yaml(layout).dump(document, buffer)
    return buffer.getvalue()


def read_again(text: str, source: str) -> Any:
    """What another library reads, by the rules of YAML 1.1, in the only document that is not empty; ConfigError."""
    try:
        found = next((document for document in yaml.safe_load_all(text) if document is not None), None)
        plain(found)
        return found
    except RecursionError as error:
        raise ConfigError(f"{source}: holds an anchor that contains itself") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{source}: is not YAML 1.1, which kube-scheduler reads: {_in_a_line(error)}") from error


def difference(written: Any, meant: Any, before: Any, path: str = "") -> str:
    """The first path where neither what was meant was written, nor what stood there before; empty: there is none.

    `written` and `before` are read by YAML 1.1 and `meant` by 1.2: `yes`, `0755` and `12:30:00` are other values there,
    but what nobody touched is the same as before, whatever it is.
    """
    if written in (meant, before):
        return ""
    if isinstance(written, dict) and isinstance(meant, dict):
        names = {key: f"{path}.{key}" if path else str(key) for key in {**written, **meant}}
    elif isinstance(written, list) and isinstance(meant, list) and len(written) == len(meant):
        names = {index: f"{path}[{index}]" for index in range(len(written))}
    else:
        return path
    found = (difference(_at(written, key), _at(meant, key), _at(before, key), name) for key, name in names.items())
    return next(filter(None, found), "")


def _at(node: Any, key: Any) -> Any:
    """What is there; where nothing is, a value that is no other's."""
    try:
        return node[key]
    except (LookupError, TypeError):
        return object()


def layout_of(document: CommentedMap) -> Layout:
    """How the document is indented, by the first mapping in a mapping and the first list that it has."""
    mapping = sequence = dash = None
    pending: list[Any] = [document]
    while pending and (mapping is None or sequence is None):
        node = pending.pop(0)
        children = [child for child in _values(node) if _is_block(child)]
        pending += children
        if not isinstance(node, CommentedMap):
            continue
        for child in children:
            if isinstance(child, CommentedMap) and mapping is None:
                mapping = child.lc.col - node.lc.col
            elif isinstance(child, CommentedSeq) and sequence is None and _is_block(child[0]):
                dash = child.lc.col - node.lc.col
                sequence = child[0].lc.col - node.lc.col
    default = Layout()
    return Layout(mapping or default.mapping, sequence or default.sequence, default.dash if dash is None else dash)


def put(node: CommentedMap, key: str, value: object, why: str, column: int) -> None:
    """Sets a key; where it is new, `why` stands in a comment above it, at that column."""
    if key in node or is_flow(node):
        node[key] = value
        return
    tail = _take_tail(node)
    node[key] = value
    if why:
        node.yaml_set_comment_before_after_key(key, before=why, indent=column)
    _give_tail(node, tail)


def explained(values: Mapping[str, Any], why: Mapping[str, str], column: int, layout: Layout) -> CommentedMap:
    """A new mapping at that column; what `why` says of a key stands in a comment above it. The first key of a list's
    item must have none: it would belong to the item before."""
    made = CommentedMap()
    for key, value in values.items():
        if isinstance(value, dict):
            made[key] = explained(value, why, column + layout.mapping, layout)
        elif isinstance(value, list):
            made[key] = CommentedSeq(explained(item, why, column + layout.sequence, layout) for item in value)
        else:
            made[key] = value
        if key in why:
            made.yaml_set_comment_before_after_key(key, before=why[key], indent=column)
    return made


def append(items: CommentedSeq, value: CommentedMap) -> None:
    """Adds an item; comments below the last one then stand below the new one."""
    tail = _take_tail(items)
    items.append(value)
    _give_tail(items, tail)


def replace(items: CommentedSeq, index: int, value: CommentedMap) -> None:
    """Exchanges an item and its comments; comments below it stay."""
    tail = _take_tail(items[index])
    items[index] = value
    _give_tail(value, tail)


def mapping_at(document: CommentedMap, key: str) -> CommentedMap:
    """The mapping under that key, in block style; where there is none an empty one, not part of the document yet: `put`
    it there once it is filled, so that comments at the document's end stay there."""
    return in_block_style(document.get(key) or CommentedMap())


def is_flow(node: object) -> bool:
    return isinstance(node, CommentedMap | CommentedSeq) and node.fa.flow_style() is True


def in_block_style(node: _Collection) -> _Collection:
    if is_flow(node):
        node.fa.set_block_style()
    return node


def copy_of(node: Any) -> Any:
    """The same once more, quotes and style too, without its comments and anchors."""
    made: Any
    if isinstance(node, CommentedMap):
        made = CommentedMap((key, copy_of(value)) for key, value in node.items())
    elif isinstance(node, CommentedSeq):
        made = CommentedSeq(copy_of(item) for item in node)
    else:
        return plain(node) if getattr(node, "anchor", None) and node.anchor.value else node
    if is_flow(node):
        made.fa.set_flow_style()
    return made


def plain(node: Any) -> Any:
    """The same as plain dictionaries, lists and scalars."""
    if isinstance(node, dict):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(item) for item in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _yaml(layout: Layout) -> YAML:
    made = YAML()
    made.preserve_quotes = True
    made.brace_single_entry_mapping_in_flow_sequence = True
    made.width = _NO_FOLDING
    made.indent(mapping=layout.mapping, sequence=layout.sequence, offset=layout.dash)
    return made


def _in_a_line(error: Exception) -> str:
    text = str(error).split("\nTo suppress")[0]
    return " ".join(text.split())


def _values(node: Any) -> list[Any]:
    return list(node.values() if isinstance(node, CommentedMap) else node)


def _is_block(node: object) -> bool:
    return isinstance(node, CommentedMap | CommentedSeq) and bool(node) and not is_flow(node)


def _last_leaf(node: Any) -> tuple[Any, Any, int]:
    """Who holds the last scalar (or flow collection) below `node`, its key there, and where its comment is kept."""
    while True:
        key = list(node)[-1] if isinstance(node, CommentedMap) else len(node) - 1
        child = node[key]
        if not _is_block(child):
            return node, key, 2 if isinstance(node, CommentedMap) else 0
        node = child


def _take_tail(node: Any) -> Any:
    """Takes away the comments below `node`, which the library keeps with its last scalar; None if there are none."""
    if not node:
        return None
    holder, key, place = _last_leaf(node)
    comment = holder.ca.items.get(key)
    token = comment[place] if comment else None
    if token is None:
        return None
    beside, _, below = token.value.partition("\n")
    if beside and not below:
        return None
    tail = type(token)("\n" + below, token.start_mark, None)
    if beside:
        token.value = beside + "\n"
    else:
        comment[place] = None
    return tail


def _give_tail(node: Any, tail: Any) -> None:
    if tail is None:
        return
    holder, key, place = _last_leaf(node)
    comment = holder.ca.items.setdefault(key, [None, None, None, None])
    if comment[place] is None:
        comment[place] = tail
    else:
        comment[place].value = comment[place].value.rstrip("\n") + tail.value
