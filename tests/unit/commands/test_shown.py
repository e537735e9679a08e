"""What people see: the cause first, plain text for programs, and nothing that a terminal would obey."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from rich.text import Text

from controller.commands.capacity import capacity_parts
from controller.commands.explain import explanation_parts
from controller.commands.status import overview_parts
from controller.commands.terminal import ago, bar, console, duration, size
from controller.views.documents import Survival
from tests.fakes import view_documents
from tests.fakes.view_documents import GIB
from tests.unit.commands.stage import LedCluster, staged

EVIL = "w\x1b]0;x\x07\r\n\u009b31m\u202e[bold red]x[/]:skull:"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LedCluster]:
    with staged(tmp_path, monkeypatch) as made:
        made.add("a")
        made.lead("a")
        yield made


def terminal(width: int = 100, *, no_color: bool = False) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    made = Console(
        file=text,
        force_terminal=True,
        width=width,
        no_color=no_color,
        color_system="standard",
        markup=False,
        emoji=False,
    )
    return made, text


def test_problems_come_first_and_a_failure_is_a_finding(stage: LedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    stage.copies["a"].documents["/overview"] = view_documents.troubled()
    assert 1 == stage.run("status")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("failure: gate: Others may place replicas")
    assert "  do: Apply the manifest again, or upgrade the Helm release." == lines[1]
    assert any(line.split()[:3] == ["shop/full", "11m", "30s"] for line in lines)
    assert "12 pods waiting" in lines and "and 3 more" in lines
    assert [line for line in lines if "n4" in line and "-15 GiB" in line and "the node is cordoned" in line]


def test_what_is_piped_has_no_colour_no_frames_and_no_folded_lines(
    stage: LedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = stage.copies["a"].documents
    documents["/overview"], documents["/capacity"] = view_documents.troubled(), view_documents.unsurvived()
    for words in ("status", "status -o wide", "explain pod shop/full", "capacity", "explain pod orders-0 -n shop"):
        stage.run(*words.split())
        out, err = capsys.readouterr()
        assert "" == err
        assert out.replace("\n", "").isascii()
        assert [] == [line for line in out.splitlines() if line != line.rstrip()]
    assert any(view_documents.WAITS["own-volumes-too-large"][2] in line for line in shown_status(stage, capsys))


def shown_status(stage: LedCluster, capsys: pytest.CaptureFixture[str]) -> list[str]:
    stage.run("status")
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("words", ["status", "explain pod shop/full", "capacity"])
def test_documents_are_printed_whole(stage: LedCluster, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    codes = {stage.run(*words.split(), *more) for more in ((), ("-o", "json"), ("-o", "yaml"))}
    assert 1 == len(codes)
    capsys.readouterr()
    stage.run(*words.split(), "-o", "json")
    as_json = json.loads(capsys.readouterr().out)
    stage.run(*words.split(), "-o", "yaml")
    assert as_json == yaml.safe_load(capsys.readouterr().out)
    if words == "status":
        assert json.loads(view_documents.encoded(view_documents.healthy())) == as_json


def test_a_process_s_own_diagnostics_are_printed_as_they_are(
    stage: LedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.copies["a"].documents["/status"] = {"is_leading": True, "workers": {}}
    assert 0 == stage.run("status", "--diagnostics")
    assert {"is_leading": True, "workers": {}} == json.loads(capsys.readouterr().out)


def test_names_from_the_cluster_are_shown_as_they_are_and_obeyed_by_nobody() -> None:
    seen = view_documents.troubled()
    waiting = replace(seen.waiting[0], name=EVIL, text=EVIL, reasons={EVIL: 1})
    problem = replace(seen.problems[0], text=EVIL, hint=EVIL, what=EVIL)
    disk = replace(seen.disks[0], node=EVIL, disk=EVIL, closed=EVIL)
    seen = replace(seen, waiting=[waiting], problems=[problem], disks=[disk], identity=EVIL, mode=EVIL)
    node = view_documents.node_answer(EVIL, reason=EVIL, text=EVIL)
    found = view_documents.explanation(name="full", text=EVIL, change=EVIL, cause=EVIL, nodes=[node])
    to, text = terminal(1_000)
    to.print(
        *overview_parts(to, seen, is_wide=True, is_all=True), *explanation_parts(to, found, is_all=True, is_wide=True)
    )
    shown = text.getvalue()
    assert r"w\x1b]0;x\x07\r\n\x9b31m\u202e[bold red]x[/]:skull:" in shown
    assert [] == [obeyed for obeyed in ("\x07", "\r", "\u009b", "\u202e", "\x1b]") if obeyed in shown]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    to, text = terminal(width)
    found = view_documents.explanation()
    to.print(
        *overview_parts(to, view_documents.troubled(), is_wide=False, is_all=False),
        *explanation_parts(to, found, is_all=False, is_wide=False),
        *capacity_parts(to, view_documents.unsurvived(), is_all=False),
    )
    shown = Text.from_ansi(text.getvalue()).plain
    assert all(len(line) <= width for line in shown.splitlines())
    assert ("█" in shown) == (width == 200)


def test_no_color_has_neither_colour_nor_frames() -> None:
    to, text = terminal(200, no_color=True)
    to.print(*overview_parts(to, view_documents.troubled(), is_wide=False, is_all=False))
    assert [] == [one for one in ("─", "█", "\x1b[31m", "\x1b[33m") if one in text.getvalue()]


def test_many_disks_are_told_by_the_fullest() -> None:
    to, text = terminal(200)
    seen = view_documents.large(50, 4)
    to.print(*overview_parts(to, seen, is_wide=False, is_all=False))
    fullest = min(seen.disks, key=lambda one: one.free_bytes)
    assert "and 170 more: --all" in text.getvalue() and fullest.node in text.getvalue()


def test_a_pod_s_cause_stands_first_then_what_would_help(stage: LedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == stage.run("explain", "pod", "full", "-n", "shop")
    out = capsys.readouterr().out.splitlines()
    assert "Pod shop/full waits since 2026-11-28T13:48:30Z: InsufficientStorage" == out[0]
    assert "N2/d1 lacks 12 GiB, and all others lack more." == out[1]
    assert "What would help: Make 12 GiB free on n2/d1, or ask for 5 GiB at most." == out[2]
    nodes = out[out.index("Nodes, the nearest first") + 2 :]
    assert ["n2", "n1", "n3", "n4"] == [line.split()[0] for line in nodes[:4]]
    assert ["stored  4 of other namespaces  90 GiB"] == [line for line in out if "of other namespaces" in line]


def test_columns_without_anything_are_left_out(stage: LedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [view_documents.node_answer("n1", missing_gib=2, disk="", text="")]
    stage.copies["a"].documents["/explain/pods/shop/full"] = view_documents.explanation(nodes=nodes)
    stage.run("explain", "pod", "shop/full")
    out = capsys.readouterr().out.splitlines()
    assert ["NODE", "VERDICT", "REASON", "MISSING"] == out[out.index("Nodes, the nearest first") + 1].split()
    assert ["WHAT", "WHOSE", "SIZE"] in [line.split() for line in out]


def test_of_a_pod_that_was_let_through_the_places_are_told(
    stage: LedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == stage.run("explain", "pod", "shop/orders-0")
    out = capsys.readouterr().out
    assert "was let through" in out and "n1/d1 (plan)    the most usable bytes of the zone's disks" in out


def test_more_nodes_than_are_shown_are_counted(stage: LedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [view_documents.node_answer(f"node-{number}", missing_gib=number + 1) for number in range(15)]
    stage.copies["a"].documents["/explain/pods/shop/full"] = view_documents.explanation(nodes=nodes, more_nodes=85)
    for words, line, last in ((), "and 90 more: --all", False), (("--all",), "and 85 more", True):
        stage.run("explain", "pod", "shop/full", *words)
        out = capsys.readouterr().out
        assert line in out.splitlines() and ("node-14" in out) == last


@pytest.mark.parametrize("words", ["pod orders-0", "pod shop/", "pod /x", "pod a/b/c", "pod shop/x -n bank", "claim x"])
def test_a_name_without_its_namespace_is_misuse(
    stage: LedCluster, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == stage.run("explain", *words.split())
    assert capsys.readouterr().err.startswith("error: NAME: ")


def test_whether_the_loss_of_a_node_is_survived_is_the_code_of_capacity(
    stage: LedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == stage.run("capacity")
    assert "The loss of n1, which has most (3 copies, 120 GiB), is survived" in capsys.readouterr().out
    stage.copies["a"].documents["/capacity"] = view_documents.unsurvived()
    assert 1 == stage.run("capacity")
    out = capsys.readouterr().out
    assert "The loss of n1, which has most (9 copies, 430 GiB), is not survived." in out
    assert "  lost, as their only copy lies there: pvc-7d1e" in out.splitlines()
    assert "215 GiB with 1 copy, 75 GiB with 2 copies" in out
    one = view_documents.capacity(view_documents.troubled().disks, survival=Survival("n1", True, 1, GIB, (), (), 0))
    stage.copies["a"].documents["/capacity"] = one
    assert 0 == stage.run("capacity")
    assert "which has most (1 copy, 1 GiB)" in capsys.readouterr().out


def test_watch_shows_the_next_look_and_goes_on_without_a_leader(
    stage: LedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        assert 2.0 == seconds
        looks += 1
        stage.copies["a"].documents["/overview"] = [view_documents.troubled(), 500, None][min(looks, 3) - 1]
        if looks > 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("controller.commands.status.time.sleep", pause)
    assert 0 == stage.run("status", "--watch")
    out = capsys.readouterr().out
    assert out.index("gate enforced") < out.index("gate missing") < out.index("/overview: 500")
    assert 2 == stage.run("status", "--watch", "-o", "json")


def test_figures_are_of_a_size_that_people_read() -> None:
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1 KiB", 3 * GIB // 2: "1.5 GiB", -15 * GIB: "-15 GiB", 2**51: "2 PiB"}
    assert sizes == {number: size(number) for number in sizes}
    lengths = {0: "0s", 59.9: "59s", 3_600: "1h", 3_661: "1h 1m", 90_061: "1d 1h"}
    assert lengths == {seconds: duration(seconds) for seconds in lengths}
    assert ("10s", "?", "?") == (
        ago("2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"),
        ago("", "2026-01-01T00:00:10Z"),
        ago("2026-01-01", "2026-01-01T00:00:10Z"),
    )


@pytest.mark.parametrize(
    ("used", "planned", "limit", "text"),
    [
        (0, 0, 100, "░░░░░░░░░░"),
        (50, 20, 100, "█████▓▓░░░"),
        (120, 50, 100, "██████████"),
        (90, 50, 100, "█████████▓"),
        (0, 0, 0, "██████████"),
    ],
)
def test_a_bar_has_its_width_whatever_lies_on_the_disk(used: int, planned: int, limit: int, text: str) -> None:
    assert text == bar(used, planned, limit, 10).plain


def test_without_a_terminal_the_console_is_plain() -> None:
    assert console().no_color and not console().is_terminal
