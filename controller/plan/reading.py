"""Bytes to raw documents, JSON or YAML, and what reading and answering them may cost.

Every limit that is reached is an InputError, so a process that goes through thousands of lines survives each of them.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from controller.plan.complaints import InputError
from controller.plan.yaml_reader import MAX_DIGITS, load_all_yaml, load_yaml
from controller.settings import MEBIBYTE

MOST_BYTES: Final = 512 * MEBIBYTE  # of one document
MEMORY_FACTOR: Final = 10
# What may be added to ten times the input: the program itself is the rest of 200 MiB.
_MEMORY_BYTES: Final = 150 * MEBIBYTE
_MEMORY: Final = Path("/proc/self/statm")


class MemoryBound:
    """Limits the memory that answering takes, by the length of the longest document so far.

    The kernel enforces it: memory beyond the limit is not given, and whoever asks for it gets an InputError. Where the
    system does not say how much is in use, as on macOS, there is no limit. Threads: the main one. I/O: none but that.
    """

    def __init__(self) -> None:
        self._start_bytes = _data_bytes()
        self._longest = 0

    @contextmanager
    def of(self, input_bytes: int) -> Iterator[None]:
        """For one document of that length."""
        self._longest = max(self._longest, input_bytes)
        before = resource.getrlimit(resource.RLIMIT_DATA)
        if self._start_bytes:
            most = self._start_bytes + MEMORY_FACTOR * self._longest + _MEMORY_BYTES
            limits = [most, *(limit for limit in before if limit != resource.RLIM_INFINITY)]
            resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
        try:
            yield
        except MemoryError:
            resource.setrlimit(resource.RLIMIT_DATA, before)  # else there may be none to say so
            problem = f"takes more memory than 200 MiB and {MEMORY_FACTOR} times its size"
            raise InputError("", "", problem) from None
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """What the process uses, as the kernel counts it for the limit; 0 where it does not say."""
    try:
        return int(_MEMORY.read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def read_document(stream: IO[bytes]) -> bytes:
    """All of the stream; InputError for one without end."""
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _too_long()
    return data


def read_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """The lines that are not blank, with their numbers from 1; None for one that is too long."""
    number = 0
    while line := stream.readline(MOST_BYTES + 1):
        number += 1
        is_whole = len(line) <= MOST_BYTES
        while not is_whole and not line.endswith(b"\n") and line:
            line = stream.readline(MEBIBYTE)
        if not is_whole:
            yield number, None
        elif line.strip():
            yield number, line


def _too_long() -> InputError:
    return InputError("", "", f"is longer than {MOST_BYTES // MEBIBYTE} MiB")


def parse_line(line: bytes | None) -> object:
    """The JSON document of one line."""
    if line is None:
        raise _too_long()
    return _json(_text(line).strip())


def parse_document(data: bytes) -> object:
    """JSON by its first character, else YAML, of which JSON is a part."""
    text = _text(data)
    return _json(text) if text.lstrip()[:1] == "{" else load_yaml(text)


def parse_documents(data: bytes) -> Iterator[object]:
    """All documents of a file: one of JSON by its first character, else those of YAML."""
    text = _text(data)
    return iter((_json(text),)) if text.lstrip()[:1] in ("{", "[") else load_all_yaml(text)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("", "", f"is not UTF-8 text: byte {error.start} {error.reason}") from error


def _json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise InputError("", "", f"is not JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        twin = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{twin[:80]!r} stands there twice")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)
