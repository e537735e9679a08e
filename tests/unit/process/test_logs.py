"""Log lines: nothing that a caller wrote makes a line of its own, or reaches a terminal as a command."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable

import pytest

from controller.process.logs import MESSAGE_LIMIT, JsonFormatter, StrayLines, TextFormatter, escaped, stray

EVIL = "ns/a\n2026-01-01 00:00:00,000 INFO http x: forged\r\x1b[2J\x00\x9b\u202e\u2028\x7f é"


class Log:
    """The lines of one logger, in a form."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.logger, self.stream = stray, io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter)

    @property
    def text(self) -> str:
        return self.stream.getvalue()


MakeLog = Callable[[logging.Formatter], Log]


@pytest.fixture
def make_log(monkeypatch: pytest.MonkeyPatch) -> MakeLog:
    def make(formatter: logging.Formatter) -> Log:
        log = Log(formatter)
        monkeypatch.setattr(stray, "propagate", False)
        monkeypatch.setattr(stray, "handlers", [log.handler])
        monkeypatch.setattr(stray, "level", logging.INFO)
        return log

    return make


@pytest.fixture(params=[TextFormatter(), JsonFormatter()], ids=["text", "json"])
def log(request: pytest.FixtureRequest, make_log: MakeLog) -> Log:
    return make_log(request.param)


def test_what_a_caller_wrote_stays_within_its_line_and_is_printable(log: Log) -> None:
    log.logger.info("filter pod=%s", EVIL)
    (line,) = log.text.removesuffix("\n").split("\n")
    assert line.isprintable()
    assert "\\n2026-01-01" in line
    assert "\\u001b[2J\\u0000" in line or "\\x1b[2J\\x00" in line


def test_half_a_character_is_escaped_too() -> None:
    assert "a\\ud800b" == escaped("a\ud800b")


def test_json_says_what_was_said(make_log: MakeLog) -> None:
    log = make_log(JsonFormatter())
    log.logger.info("filter pod=%s", EVIL)
    assert f"filter pod={EVIL}" == json.loads(log.text)["message"]


def test_the_words_of_an_exception_forge_no_line(make_log: MakeLog) -> None:
    log = make_log(TextFormatter())
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.logger.exception("request failed")
    first, *rest = log.text.removesuffix("\n").split("\n")
    assert first.endswith("request failed")
    assert [] == [line for line in rest if not (line.startswith("  ") and line.isprintable())]
    assert any("forged" in line for line in rest)


def test_a_message_has_an_end(log: Log) -> None:
    log.logger.info("filter pod=%s", "x" * 10**6)
    assert len(log.text) < 2 * MESSAGE_LIMIT
    assert "more characters" in log.text


def test_what_is_printed_becomes_records(make_log: MakeLog) -> None:
    log, stderr = make_log(JsonFormatter()), StrayLines(io.StringIO())
    print("one", "two", file=stderr)
    print("three\n\nfour", end="", file=stderr)
    assert ["one two", "three"] == [json.loads(line)["message"] for line in log.text.splitlines()]


def test_what_a_failing_handler_prints_does_not_come_back_to_it(make_log: MakeLog) -> None:
    log, stderr = make_log(JsonFormatter()), StrayLines(io.StringIO())
    records = []

    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)
            print("--- Logging error ---", file=stderr)

    log.logger.handlers = [Failing()]
    print("one", file=stderr)
    assert 1 == len(records)
