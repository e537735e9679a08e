"""The pages as a whole: each opens with its use, is found from the entry, and shows commands that there are."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import controller.cli
import webhook.cli
from controller.process.command_line import LaterCommand
from tests.unit.pages import FENCE, PAGES, ROOT, links_of, page_id

DOCS = ROOT / "docs"
ENTRY = DOCS / "README.md"
GUIDES = [page for page in PAGES if DOCS in page.parents]
PROGRAMS: dict[str, click.Command] = {
    "longhorn-scheduler-extender": controller.cli.program,
    "kubectl longhorn_scheduling": controller.cli.program,
    "longhorn-scheduler-webhook": webhook.cli.program,
    "python -m controller": controller.cli.program,
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


class SiteLoader(yaml.SafeLoader):
    """Reads mkdocs.yml without making what it names of Python's."""


SiteLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


MOST_WORDS = 1_500
# Of pages in which one looks things up, or which one subject fills.
ALLOWED = {
    "architecture.md": 1_700,
    "disk-scheduler.md": 2_000,
    "metrics.md": 1_900,
    "operations.md": 1_800,
    "plan-format.md": 1_900,
    "security.md": 1_900,
    "settings.md": 1_900,
}


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


def misused(command: click.Command, words: Sequence[str]) -> list[str]:
    """Those of the words that the command, or the one below it that they name, does not know."""
    command = command.real if isinstance(command, LaterCommand) else command
    for place, word in enumerate(words):
        if isinstance(command, click.Group) and not word.startswith("-"):
            below = command.commands.get(word)
            return [word] if below is None else misused(below, words[place + 1 :])
        known = {*command.get_help_option_names(click.Context(command))}.union(
            *(one.opts + one.secondary_opts for one in command.params)
        )
        if word.startswith("--") and word.partition("=")[0] not in known:
            return [word]
    return []


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


def test_the_site_has_every_page_in_its_navigation_and_loads_nothing_from_elsewhere() -> None:
    """`make docs` builds it, and finds links that lead nowhere."""
    site = yaml.load((ROOT / "mkdocs.yml").read_text(), SiteLoader)

    def pages(entries: list[Any]) -> Iterator[str]:
        for entry in entries:
            for found in entry.values() if isinstance(entry, dict) else [entry]:
                yield from [found] if isinstance(found, str) else pages(found)

    assert sorted(str(page.relative_to(DOCS)) for page in GUIDES) == sorted(pages(site["nav"]))
    assert site["strict"] and site["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript"} & site.keys()
    assert [] == [page_id(page) for page in GUIDES if "```mermaid" in page.read_text()]  # its program would be


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_commands_that_a_page_shows_are_there(page: Path) -> None:
    for program, words in commands(page.read_text()):
        assert [] == misused(PROGRAMS[program], words), (program, words)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_targets_and_modules_that_a_page_names_are_there(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = shown(page.read_text())
    assert set() == set(TARGET.findall(text)) - targets
    assert [] == [name for name in MODULE.findall(text) if importlib.util.find_spec(name) is None]


@pytest.mark.parametrize("page", GUIDES, ids=page_id)
def test_a_page_is_short_enough_to_be_read(page: Path) -> None:
    assert len(page.read_text().split()) <= ALLOWED.get(str(page.relative_to(DOCS)), MOST_WORDS)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_prose_has_no_idioms_that_english_lacks(page: Path) -> None:
    assert [] == [found.group() for found in ODD.finditer(FENCE.sub("", page.read_text()).replace("\n", " "))]


def test_the_checks_here_can_fail() -> None:
    text = "```console\nkubectl exec x -- longhorn-scheduler-extender \\\n  status --nothing 1\n```\n"
    text += "`python -m controller certs shew`"
    assert [
        ("longhorn-scheduler-extender", ["status", "--nothing", "1"]),
        ("python -m controller", ["certs", "shew"]),
    ] == list(commands(text))
    assert ["--nothing"] == misused(controller.cli.program, ["status", "--nothing", "1"])
    assert ["shew"] == misused(controller.cli.program, ["certs", "shew"])
    assert ["all"] == TARGET.findall("`make all`")
    assert ODD.search("they stand in nobody's way")
    assert ODD.search("one image a line")
    assert not ODD.search("one pod at a time")
