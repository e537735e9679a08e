"""Log lines: nothing that a caller wrote makes a line of its own, or reaches a terminal as a command."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from controller.allocator.outcome import Decision
from controller.log_line import say
from controller.process.logs import MESSAGE_LIMIT, JsonFormatter, StrayLines, TextFormatter, escaped, stray
from controller.rules.reasons import Reason

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


FACTS: Final = {
    "namespace": "ns",
    "pod": "a",
    "decision": Decision.REFUSED,
    "reasons": {Reason.CONTENDED: 2, Reason.DISK_NOT_READY: 1},
    "nodes": ["n1", "n2"],
    "is_new": True,
    "error": None,
    "text": 'it said "no"',
    "milliseconds": 1.2345,
}


def test_facts_stand_behind_the_words_in_text_and_are_keys_in_json(make_log: MakeLog) -> None:
    log = make_log(TextFormatter())
    say(log.logger, "filter", **FACTS)
    assert log.text.endswith(
        " stderr: filter pod=ns/a decision=refused reasons=Contended:2,DiskNotReady:1 nodes=n1,n2 is_new=true error=- "
        'text="it said \\"no\\"" ms=1.2\n'
    )
    log = make_log(JsonFormatter())
    say(log.logger, "filter", logging.WARNING, **FACTS)
    line = json.loads(log.text)
    assert ("warning", "stderr", "filter") == (line["level"], line["logger"], line["message"])
    told = FACTS | {"decision": "refused", "reasons": {"Contended": 2, "DiskNotReady": 1}, "milliseconds": 1.234}
    assert told == {name: line[name] for name in told}


def test_times_have_their_zone(log: Log, make_log: MakeLog) -> None:
    log.logger.info("one")
    found = re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", log.text)
    assert found is not None
    assert abs(datetime.now(UTC) - datetime.fromisoformat(found.group())) < timedelta(hours=1)


def test_what_a_caller_wrote_forges_no_fact(make_log: MakeLog) -> None:
    for evil in (EVIL, "a decision=offered", 'a" decision="offered', "a=b"):
        log = make_log(TextFormatter())
        say(log.logger, "filter", pod=evil, decision="refused")
        (line,) = log.text.removesuffix("\n").split("\n")
        assert line.isprintable()
        # As a program reads it: quoted values first.
        found = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line.partition("filter ")[2])
        assert ["pod", "decision"] == [name for name, _ in found] and ("decision", "refused") == found[1]
        log = make_log(JsonFormatter())
        say(log.logger, "filter", pod=evil, level="forged", message="forged")
        line = json.loads(log.text)
        assert (evil, "info", "filter") == (line["pod"], line["level"], line["message"])


def test_a_fact_has_an_end(log: Log) -> None:
    say(log.logger, "filter", pod="x" * 10**6, nodes=["n"] * 10**5, reasons={f"r{n}": 1 for n in range(10**5)})
    assert len(log.text) < 2 * MESSAGE_LIMIT


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
