"""One line of the log that programs can read: a few constant words, then facts by name.

In text it is `filter pod=team/app decision=offered ms=1.2`; in JSON each fact is a key of the line's object. The forms
are those of `controller.process.logs`, which makes harmless what callers wrote.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

NAMESPACE: Final = "namespace"
MILLISECONDS: Final = "milliseconds"
MOST_CHARACTERS: Final = 2_048  # of one fact
MOST_ITEMS: Final = 50  # of a list, or of counts


@dataclass(frozen=True, slots=True)
class LogLine:
    """What `say` logs. As a text, facts come in their order, "-" for what is empty; a text with blanks is quoted,
    counts are `reason:2,other:1`, and a namespace stands before the name that follows it."""

    words: str
    fields: Mapping[str, object]

    def __str__(self) -> str:
        parts, namespace = [self.words], ""
        for name, value in self.plain().items():
            if name == NAMESPACE:
                namespace = f"{value}/" if value else ""
                continue
            parts.append(f"{'ms' if name == MILLISECONDS else name}={_text(value, namespace)}")
            namespace = ""
        return " ".join(parts)

    def plain(self) -> dict[str, Any]:
        """The facts as JSON has them."""
        return {name: _plain(value) for name, value in self.fields.items()}


def say(log: logging.Logger, words: str, level: int = logging.INFO, /, **fields: object) -> None:
    """Log these words and facts. A fact is a text, a number, a list, counts by reason, or an error."""
    if log.isEnabledFor(level):
        log.log(level, LogLine(words, fields))


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(value[name]) for name in sorted(value)[:MOST_ITEMS]}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value[:MOST_ITEMS]]
    text = str(value)
    more = len(text) - MOST_CHARACTERS
    return text if more <= 0 else f"{text[:MOST_CHARACTERS]}... and {more} more characters"


def _text(value: object, namespace: str = "") -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, dict):
        value = ",".join(f"{name}:{count}" for name, count in value.items())
    if isinstance(value, list):
        value = ",".join(map(str, value))
    text = f"{namespace}{'' if value is None else value}"
    is_bare = text.isprintable() and not any(char in text for char in ' "=')
    return (text or "-") if is_bare else json.dumps(text, ensure_ascii=False)
