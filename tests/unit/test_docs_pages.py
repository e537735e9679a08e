"""The pages as a whole: each opens with its use, is found from the entry, and shows commands that there are."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import certs.cli
import controller.cli
import controller.plan.command
import controller.record.command
import webhook.cli
from tests.unit.pages import FENCE, PAGES, ROOT, links_of, page_id

Main = Callable[[Sequence[str]], int]
DOCS = ROOT / "docs"
ENTRY = DOCS / "README.md"
GUIDES = [page for page in PAGES if DOCS in page.parents]
PROGRAMS: dict[str, Main] = {
    "longhorn-scheduler-extender": controller.cli.main,
    "longhorn-scheduler-webhook": webhook.cli.main,
    "python -m controller": controller.cli.main,
    "python -m controller.plan": controller.plan.command.main,
    "python -m controller.record": controller.record.command.main,
    "python -m certs": certs.cli.main,
}
ALIASES = {"render": "longhorn-scheduler-extender render-scheduler-config"}  # of docs/kube-scheduler.md
NAMES = "|".join(re.escape(name) for name in sorted([*PROGRAMS, *ALIASES], key=len, reverse=True))
COMMAND = re.compile(rf"(?:^|-- |`|bin/|\| )({NAMES})(?![\w./-])((?: +[^\s|;#`)>]+)*)", re.MULTILINE)
MODULE = re.compile(r"python -m ([\w.]*\w)")
TARGET = re.compile(r"(?:^|`|; )make ([a-z][a-z0-9-]*)", re.MULTILINE)
# What reads as a translation: a number for each of something, and images that English does not have.
ODD = re.compile(
    r"in (?:nobody|each other|one another)'s way|\b(?:be|are|is) rid of|the midst of|see to it"
    r"|\bone (?:image|object|entry|row|line|record|answer) a (?:line|node|volume|pod|call|disk|row)\b"
    r"|puts? (?:\w+ ){1,4}out of force|\bma(?:kes?|de|king) place\b|\brun(?:s|ning)? away from",
    re.IGNORECASE,
)


def shown(text: str) -> str:
    """What a page shows as commands: its blocks of console lines, with long ones joined, and its inline code."""
    blocks = [body for _, language, body in FENCE.findall(text) if language in {"console", "sh", ""}]
    inline = re.findall(r"`[^`\n]+`", FENCE.sub("", text))
    return "\n".join([*(re.sub(r" *\\\n *", " ", re.sub(r"^ +", "", b, flags=re.MULTILINE)) for b in blocks), *inline])


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    for name, rest in COMMAND.findall(shown(text)):
        line = f"{ALIASES.get(name, name)} {rest} "
        program = max((known for known in PROGRAMS if line.startswith(f"{known} ")), key=len)
        words = line.removeprefix(program).split()
        if words and not words[0].startswith(("...", "[")):
            yield program, words


def misused(main: Main, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Those of the words that the help of that command does not know."""
    sub = [word for word in words[:1] if re.fullmatch("[a-z-]+", word) and not word.startswith("-")]
    with pytest.raises(SystemExit) as ended:
        main([*sub, "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) | {"--help"}
    if ended.value.code:
        return sub
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]


def test_what_pods_show_is_quoted_as_it_is() -> None:
    """The texts that begin with `Longhorn: `, which kube-scheduler writes into a pod's condition."""
    sources = [ROOT / "controller" / "rules" / "reasons.py", *(ROOT / "extender").glob("*.py")]
    said = "\n".join(path.read_text() for path in sources)
    quoted = {text for page in PAGES for text in re.findall(r"`(Longhorn: [^`]+)`", page.read_text())}
    assert quoted
    assert [] == sorted(text for text in quoted if text not in said)


@pytest.mark.parametrize("page", GUIDES, ids=page_id)
def test_a_page_begins_with_what_you_can_do_after_it(page: Path) -> None:
    title, opening = page.read_text().split("\n\n", 2)[:2]
    assert title.startswith("# ")
    assert opening.startswith("After this page ")


def test_every_page_is_found_from_the_entry() -> None:
    found, left = set(), [ENTRY]
    while left:
        page = left.pop()
        if page not in found and page.suffix == ".md" and (DOCS in page.parents or page == ENTRY):
            found.add(page)
            left += [(page.parent / name).resolve() for name, _ in links_of(page.read_text()) if name]
    assert {page for page in PAGES if DOCS in page.parents} == found
    listed = {(DOCS / name).resolve() for name, _ in links_of(ENTRY.read_text())}
    assert [] == [page_id(page) for page in GUIDES if page not in {*listed, ENTRY}]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_commands_that_a_page_shows_are_there(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for program, words in commands(page.read_text()):
        assert [] == misused(PROGRAMS[program], words, capsys), (program, words)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_targets_and_modules_that_a_page_names_are_there(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = shown(page.read_text())
    assert set() == set(TARGET.findall(text)) - targets
    assert [] == [name for name in MODULE.findall(text) if importlib.util.find_spec(name) is None]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_prose_has_no_idioms_that_english_lacks(page: Path) -> None:
    assert [] == [found.group() for found in ODD.finditer(FENCE.sub("", page.read_text()).replace("\n", " "))]


def test_the_checks_here_can_fail(capsys: pytest.CaptureFixture[str]) -> None:
    text = "```console\nkubectl exec x -- longhorn-scheduler-extender \\\n  status --nothing 1\n```\n"
    text += "`python -m certs shew`"
    assert [
        ("longhorn-scheduler-extender", ["status", "--nothing", "1"]),
        ("python -m certs", ["shew"]),
    ] == list(commands(text))
    assert ["--nothing"] == misused(controller.cli.main, ["status", "--nothing", "1"], capsys)
    assert ["shew"] == misused(certs.cli.main, ["shew"], capsys)
    assert ["all"] == TARGET.findall("`make all`")
    assert ODD.search("they stand in nobody's way")
    assert ODD.search("one image a line")
    assert not ODD.search("one pod at a time")
