"""The ring of decisions: bounded, in order, and fed by the parts that decide."""

from __future__ import annotations

import threading

import pytest

from controller.views.decisions import MOST_CHARACTERS, DecisionLog
from tests.fakes.clock import VirtualClock


def test_an_entry_tells_what_was_noted_and_when() -> None:
    clock = VirtualClock()
    log = DecisionLog(clock)
    clock.advance(0.25)
    text, reasons = "0 of 3 nodes passed", {"b": 2, "a": 1}
    log.note("filter", "Pod team/app", "refused", reasons=reasons, text=text, milliseconds=1.26)
    (entry,) = log.after()
    told = entry.serial, entry.time, entry.kind, entry.about, entry.decision
    assert (1, "2026-01-01T00:00:00.250Z", "filter", "Pod team/app", "refused") == told
    assert ([("a", 1), ("b", 2)], "0 of 3 nodes passed", 1.3) == (
        [*entry.reasons.items()],
        entry.text,
        entry.milliseconds,
    )


@pytest.mark.parametrize(
    ("after", "serials"),
    [
        (0, [4, 5, 6]),  # older ones have made room
        (3, [4, 5, 6]),
        (5, [6]),
        (6, []),
        (7, [4, 5, 6]),  # of a process before this one
        (-1, [4, 5, 6]),
    ],
)
def test_what_is_kept_is_bounded_and_read_from_a_serial_on(after: int, serials: list[int]) -> None:
    log = DecisionLog(VirtualClock(), kept=3)
    for _ in range(6):
        log.note("wake", "Pod team/app", "woken")
    assert serials == [entry.serial for entry in log.after(after)]


@pytest.mark.parametrize(("after", "last", "serials"), [(0, 2, [4, 5]), (4, 2, [5]), (5, 2, []), (0, 9, [3, 4, 5])])
def test_a_reader_of_the_newest_gets_no_more(after: int, last: int, serials: list[int]) -> None:
    log = DecisionLog(VirtualClock(), kept=3)
    for number in range(5):
        log.note("filter", f"Pod a/{number}", "offered")
    assert serials == [entry.serial for entry in log.after(after, last)]


def test_long_names_of_callers_are_not_kept_whole() -> None:
    log = DecisionLog(VirtualClock())
    log.note("filter", f"Pod a/{'x' * 1024**2}", "nothing-needed", text="y" * 1024**2)
    (entry,) = log.after()
    assert entry.about.startswith("Pod a/x")
    assert (MOST_CHARACTERS, MOST_CHARACTERS) == (len(entry.about), len(entry.text))


def test_any_thread_may_note_and_read() -> None:
    log, threads, each = DecisionLog(VirtualClock(), kept=4_000), 4, 500
    seen: list[int] = []

    def note() -> None:
        for _ in range(each):
            log.note("filter", "", "offered")

    makers = [threading.Thread(target=note) for _ in range(threads)]
    for maker in makers:
        maker.start()
    while any(maker.is_alive() for maker in makers):
        seen += [entry.serial for entry in log.after(seen[-1] if seen else 0)]
    for maker in makers:
        maker.join()
    seen += [entry.serial for entry in log.after(seen[-1] if seen else 0)]
    assert [*range(1, threads * each + 1)] == seen
