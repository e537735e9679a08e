"""Log lines on standard error: plain text for people, or one JSON object per line for collectors.

Names, messages and bodies that callers sent end up in log lines, so this is where they are made harmless: what is not
printable is escaped, and no record is longer than it needs to be. What others write to standard error (tracebacks,
warnings, libraries) comes out in the same form.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from datetime import UTC, datetime
from typing import IO, Final

from controller.log_line import LogLine

TEXT: Final = "%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"
FORMS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
MESSAGE_LIMIT: Final = 8_192  # characters; a caller's request may be many megabytes
_INDENT: Final = "  "  # of a traceback's lines, so that none looks like a record of its own

stray = logging.getLogger("stderr")


def escaped(text: str) -> str:
    """One line: whatever is not printable (line ends, terminal codes, NUL, directions of writing) as `\\x1b`,
    `\\u202e` and the like."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _message_of(record: logging.LogRecord) -> str:
    text = record.getMessage()
    more = len(text) - MESSAGE_LIMIT
    return text if more <= 0 else f"{text[:MESSAGE_LIMIT]}... and {more} more characters"


def _time_of(record: logging.LogRecord) -> str:
    """RFC 3339, in UTC."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """A record is one line; the lines of a traceback below it are indented."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002
        return _time_of(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = _message_of(record)
        return escaped(super().formatMessage(record))

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802
        return "\n".join(_INDENT + escaped(line) for line in super().formatException(ei).split("\n"))


class JsonFormatter(logging.Formatter):
    """Time, level, thread, logger, message; the facts of a LogLine; the traceback where there is one. ASCII alone."""

    def format(self, record: logging.LogRecord) -> str:
        told = record.msg if isinstance(record.msg, LogLine) else None
        line = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "thread": record.threadName,
            "logger": record.name,
            "message": told.words if told is not None else _message_of(record),
        }
        line |= {name: value for name, value in (told.plain() if told is not None else {}).items() if name not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class StrayLines(io.TextIOBase):
    """Stands in for `sys.stderr`: each line that is printed there becomes a log record.

    Threads: any. Blocks: never. I/O: by the log's handler.
    """

    def __init__(self, real: IO[str]) -> None:
        self._real, self._mine = real, threading.local()

    def write(self, text: str) -> int:
        mine = self._mine
        if getattr(mine, "is_writing", False):
            return len(text)  # the handler complains of its own failure
        *lines, mine.rest = (getattr(mine, "rest", "") + text).split("\n")
        mine.is_writing = True
        try:
            for line in filter(None, lines):
                stray.warning("%s", line)
        finally:
            mine.is_writing = False
        return len(text)

    def fileno(self) -> int:
        return self._real.fileno()


def keeps_log() -> bool:
    """Whether `configure_logging` has been called."""
    return isinstance(sys.stderr, StrayLines)


def configure_logging(level: str, form: str) -> None:
    """All that this process says goes to standard error, in that form, from that level on. What is none of FORMS or
    LEVELS counts as "text" and "info": that it is wrong can then be said. To be called before gRPC is imported: its C
    library prints what peers send, and looks once whether it may."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    stderr = sys.__stderr__ or sys.stderr
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper() if level in LEVELS else logging.INFO)
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    logging.getLogger("kubernetes").setLevel(logging.WARNING)
    sys.stderr = StrayLines(stderr)
