"""YAML as Kubernetes' own tools read it: one document, keys are strings, times stay text. Uses the C library where
there is one.

The values are made of the parser's events, one after the other: PyYAML's own tree of nodes takes sixty times the text's
memory. An alias shares the value that it stands for, and counts as if that were written out once more: so neither many
small aliases nor one within itself can stand for much more than the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from controller.plan.complaints import InputError

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DEPTH: Final = 200
MAX_DIGITS: Final = 100
ALIAS_ALLOWANCE: Final = 1024**2  # characters that aliases may stand for besides as many as the text has
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = object()  # the key `<<`
_INTEGER: Final = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NO_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: Final[Mapping[str, bool | None]] = {
    **{spelt: value for word, value in (("yes", True), ("true", True), ("on", True), ("no", False), ("false", False),
       ("off", False), ("null", None)) for spelt in (word, word.capitalize(), word.upper())},
    "~": None,
    "": None,
}  # fmt: skip


class _Problem(Exception):
    """What is wrong, and where."""

    def __init__(self, text: str, event: Any) -> None:
        super().__init__(text)
        self.problem, self.problem_mark = text, event.start_mark


@dataclass(slots=True)
class _Level:
    """A list or mapping that is being filled. `size` is what was counted before it, `height` the levels below it."""

    container: list[Any] | dict[str, Any]
    anchor: str | None
    size: int
    key: Any = None
    has_key: bool = False
    merged: list[Any] = field(default_factory=list)
    height: int = 1


@dataclass(frozen=True, slots=True)
class _Anchored:
    """A finished value that aliases stand for, how many characters it counts as, and how many levels it has."""

    value: Any
    size: int
    height: int


class _Builder:
    """Raw values out of events. `size` counts characters and values, what aliases stand for among them."""

    def __init__(self, text_length: int) -> None:
        self._levels: list[_Level] = []
        self._anchors: dict[str, _Anchored | None] = {}  # None: not finished yet
        self._size, self._aliased = 0, 0
        self._most_aliased = text_length + ALIAS_ALLOWANCE
        self.root: Any = None

    def take(self, event: Any) -> None:
        match event:
            case yaml.ScalarEvent():
                self._size += 1 + len(event.value)
                value = _scalar(event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = _Anchored(value, 1 + len(event.value), 0)
                self._put(value, 0, event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._open(event)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._close(event)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise _Problem(f"nothing is called {event.anchor!r}", event)
        found = self._anchors[event.anchor]
        if found is None:
            raise _Problem(f"{event.anchor!r} contains itself", event)
        self._size += found.size
        self._aliased += found.size
        if self._aliased > self._most_aliased:
            raise _Problem(f"aliases stand for more than {self._most_aliased} characters", event)
        if len(self._levels) + found.height > MAX_DEPTH:
            raise _Problem(f"nested deeper than {MAX_DEPTH} levels", event)
        self._put(found.value, found.height, event)

    def _open(self, event: Any) -> None:
        is_map = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if is_map else "seq")):
            raise _Problem(f"the tag {event.tag!r} is not read", event)
        if len(self._levels) >= MAX_DEPTH:
            raise _Problem(f"nested deeper than {MAX_DEPTH} levels", event)
        if self._levels and isinstance(self._levels[-1].container, dict) and not self._levels[-1].has_key:
            raise _Problem("a key is no string", event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._levels.append(_Level({} if is_map else [], event.anchor, self._size))
        self._size += 1

    def _close(self, event: Any) -> None:
        level = self._levels.pop()
        for source in level.merged:  # an earlier one takes precedence, and the mapping's own keys over all
            for key, value in source.items():
                level.container.setdefault(key, value)  # type: ignore[union-attr]
        if level.anchor is not None and self._anchors[level.anchor] is None:
            self._anchors[level.anchor] = _Anchored(level.container, self._size - level.size, level.height)
        self._put(level.container, level.height, event)

    def _put(self, value: Any, height: int, event: Any) -> None:
        """Puts a finished value in its place: an item, a key, or a key's value."""
        if not self._levels:
            self.root = value
            return
        level = self._levels[-1]
        level.height = max(level.height, height + 1)
        if isinstance(level.container, list):
            level.container.append(value)
        elif not level.has_key:
            level.key, level.has_key = self._key(level, value, event), True
        elif level.key is _MERGE:
            level.merged += _mappings(value, event)
            level.has_key = False
        else:
            level.container[level.key] = value
            level.has_key = False

    def _key(self, level: _Level, value: Any, event: Any) -> Any:
        if _is_plain(event) and event.value == "<<":
            if level.merged:
                raise _Problem("'<<' stands there twice", event)
            return _MERGE
        if not isinstance(value, str):
            raise _Problem(
                "a key is no string" if isinstance(value, list | dict) else f"the key {value} is no string", event
            )
        if value in level.container:
            raise _Problem(f"{value[:80]!r} stands there twice", event)
        return value


def _mappings(value: Any, event: Any) -> list[dict[str, Any]]:
    """What `<<` takes in: a mapping, or a list of them."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, dict) for entry in found):
        raise _Problem("'<<' takes in what is no mapping", event)
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
            raise _Problem(f"{text} is no number", event)
        return text
    tag = "str" if event.tag in (None, "!") else event.tag.removeprefix(_TAG)
    read = _TAGGED.get(tag)
    if read is None:
        raise _Problem(f"the tag {event.tag!r} is not read", event)
    try:
        return read(text, event)
    except (KeyError, ValueError) as error:
        raise _Problem(f"{text[:80]!r} is no {tag}", event) from error


def _integer(text: str, event: Any) -> int:
    """Digits beyond what any field can hold are refused: Python would spend minutes on them, or refuse to print
    them."""
    if len(text) > MAX_DIGITS:
        raise _Problem("a number of too many digits", event)
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


def load_yaml(text: str) -> object:
    """The one document in `text`; InputError with line and column for what is no YAML."""
    builder = _Builder(len(text))
    try:
        for event in _events(text):
            builder.take(event)
    except (yaml.YAMLError, _Problem, ValueError) as error:
        raise InputError("", "", f"is not YAML: {_one_line(error)}") from error
    found: object = builder.root
    return found


def _events(text: str) -> Iterator[Any]:
    """Those of the one document."""
    parser = _Parser(text)
    documents = 0
    try:
        while parser.check_event():
            event = parser.get_event()
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise _Problem("but found another document", event)
            yield event
    finally:
        parser.dispose()


def _one_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return (
        f"{problem}, line {mark.line + 1}, column {mark.column + 1}" if mark is not None else " ".join(problem.split())
    )
