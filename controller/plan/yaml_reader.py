"""YAML as Kubernetes' own tools read it: one document, keys are strings, times stay text. Uses the C library where
there is one.

The values are made of the parser's events, one after the other: PyYAML's own tree of nodes takes sixty times the text's
memory. An alias shares the value that it stands for, and counts as if that were written out once more: so neither many
small aliases nor one within itself can stand for much more than the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import yaml
from yaml.constructor import SafeConstructor

from controller.plan.complaints import InputError

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DEPTH: Final = 200
MAX_DIGITS: Final = 100
ALIAS_ALLOWANCE: Final = 1024**2  # characters that aliases may stand for besides as many as the text has
_TAG: Final = "tag:yaml.org,2002:"
_INTEGER: Final = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NO_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: Final[Mapping[str, bool | None]] = {"~": None, "": None} | {
    spelt: value
    for word, value in {**SafeConstructor.bool_values, "null": None}.items()
    for spelt in (word, word.capitalize(), word.upper())
}


def load_yaml(text: str) -> object:
    """The one document in `text`; InputError with line and column for what is no YAML."""
    try:
        return _Reader(text).document()
    except (yaml.YAMLError, ValueError) as error:
        raise InputError("", "", f"is not YAML: {_in_a_line(error)}") from error


def load_all_yaml(text: str) -> Iterator[object]:
    """Every document in `text`; InputError as for one."""
    try:
        yield from _Reader(text).documents()
    except (yaml.YAMLError, ValueError) as error:
        raise InputError("", "", f"is not YAML: {_in_a_line(error)}") from error


def _in_a_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem}, line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    return " ".join(str(error).split())


def _problem(text: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=event.start_mark)


class _Value(NamedTuple):
    """`size` counts its characters and values, what aliases stand for among them; `height`, the levels that it has."""

    value: Any
    size: int
    height: int


class _Reader:
    """Raw values out of events. `depth` is the number of lists and mappings around a value."""

    def __init__(self, text: str) -> None:
        parser = _Parser(text)
        self._next: Callable[[], Any] = parser.get_event
        self._anchors: dict[str, _Value | None] = {}  # None: not finished yet
        self._aliased, self._most_aliased = 0, len(text) + ALIAS_ALLOWANCE

    def document(self) -> Any:
        """The value of the one document; None where there is none."""
        self._next()  # the stream's start
        if isinstance(event := self._next(), yaml.StreamEndEvent):
            return None
        found = self._rest_of_document()
        if not isinstance(event := self._next(), yaml.StreamEndEvent):
            raise _problem("but found another document", event)
        return found

    def documents(self) -> Iterator[Any]:
        """The value of each document; an anchor holds within its own."""
        self._next()  # the stream's start
        while not isinstance(self._next(), yaml.StreamEndEvent):
            yield self._rest_of_document()
            self._anchors.clear()

    def _rest_of_document(self) -> Any:
        """The value of the document that has begun."""
        found = self._value(self._next(), 0).value
        self._next()  # the document's end
        return found

    def _value(self, event: Any, depth: int) -> _Value:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased_value(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            found = _Value(_scalar(event), 1 + len(event.value), 0)
        else:
            _check_start(event, depth)
            found = (self._mapping if isinstance(event, yaml.MappingStartEvent) else self._list)(depth + 1)
        if event.anchor is not None and self._anchors[event.anchor] is None:
            self._anchors[event.anchor] = found
        return found

    def _aliased_value(self, event: Any, depth: int) -> _Value:
        if event.anchor not in self._anchors:
            raise _problem(f"nothing is called {event.anchor!r}", event)
        found = self._anchors[event.anchor]
        if found is None:
            raise _problem(f"{event.anchor!r} contains itself", event)
        self._aliased += found.size
        if self._aliased > self._most_aliased:
            raise _problem(f"aliases stand for more than {self._most_aliased} characters", event)
        if depth + found.height > MAX_DEPTH:
            raise _problem(f"nested deeper than {MAX_DEPTH} levels", event)
        return found

    def _list(self, depth: int) -> _Value:
        found, size, height = [], 1, 1
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            entry = self._value(event, depth)
            found.append(entry.value)
            size, height = size + entry.size, max(height, entry.height + 1)
        return _Value(found, size, height)

    def _mapping(self, depth: int) -> _Value:
        found, size, height = dict[str, Any](), 1, 1
        merged: list[dict[str, Any]] = []
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if isinstance(event, yaml.CollectionStartEvent):
                raise _problem("a key is no string", event)
            key = self._value(event, depth)
            is_merge = _is_plain(event) and event.value == "<<"
            if is_merge and merged:
                raise _problem("'<<' stands there twice", event)
            if not is_merge:
                _check_key(key.value, found, event)
            value_event = self._next()
            entry = self._value(value_event, depth)
            if is_merge:
                merged = _mappings(entry.value, value_event)
            else:
                found[key.value] = entry.value
            size, height = size + key.size + entry.size, max(height, entry.height + 1)
        for source in merged:  # an earlier one takes precedence, and the mapping's own keys over all
            for name, inherited in source.items():
                found.setdefault(name, inherited)
        return _Value(found, size, height)


def _check_start(event: Any, depth: int) -> None:
    """Whether a list or mapping may begin there."""
    kind = "map" if isinstance(event, yaml.MappingStartEvent) else "seq"
    if event.tag not in (None, "!", _TAG + kind):
        raise _problem(f"the tag {event.tag!r} is not read", event)
    if depth >= MAX_DEPTH:
        raise _problem(f"nested deeper than {MAX_DEPTH} levels", event)


def _check_key(key: Any, found: Mapping[str, Any], event: Any) -> None:
    if isinstance(key, list | dict):
        raise _problem("a key is no string", event)
    if not isinstance(key, str):
        raise _problem(f"the key {key} is no string", event)
    if key in found:
        raise _problem(f"{key[:80]!r} stands there twice", event)


def _mappings(value: Any, event: Any) -> list[dict[str, Any]]:
    """What `<<` takes in: a mapping, or a list of them."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, dict) for entry in found):
        raise _problem("'<<' takes in what is no mapping", event)
    return found


def _is_plain(event: Any) -> bool:
    """Whether a scalar has neither quotes nor a tag, so that its form decides its type."""
    return isinstance(event, yaml.ScalarEvent) and event.tag is None and bool(event.implicit[0])


def _scalar(event: Any) -> Any:
    text: str = event.value
    if _is_plain(event):
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return _integer(text, event)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _NO_NUMBER.fullmatch(text):
            raise _problem(f"{text} is no number", event)
        return text
    tag = "str" if event.tag in (None, "!") else event.tag.removeprefix(_TAG)
    read = _TAGGED.get(tag)
    if read is None:
        raise _problem(f"the tag {event.tag!r} is not read", event)
    try:
        return read(text, event)
    except (KeyError, ValueError) as error:
        raise _problem(f"{text[:80]!r} is no {tag}", event) from error


def _integer(text: str, event: Any) -> int:
    """Digits beyond what any field can hold are refused: Python would spend minutes on them, or refuse to print
    them."""
    if len(text) > MAX_DIGITS:
        raise _problem("a number of too many digits", event)
    digits = text.replace("_", "")
    unsigned = digits.lstrip("+-")
    is_octal = unsigned[:1] == "0" and unsigned[1:2].isdigit()
    return int(digits, 8 if is_octal else 0)


_TAGGED: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "str": lambda text, _: text,
    "timestamp": lambda text, _: text,
    "int": _integer,
    "float": lambda text, _: float(text),
    "bool": lambda text, _: bool(_WORDS[text]),
    "null": lambda text, _: _WORDS[text] and None,
}
