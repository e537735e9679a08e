"""The map for the next owner names what there is: packages, threads, locks, functions, files, and words in use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.unit.pages import FENCE, ROOT, section_of

PRODUCT = ("controller", "extender", "webhook", "certs")
MAP = (ROOT / "docs" / "architecture.md").read_text()
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
GUIDES = [ROOT / "docs" / "architecture.md", ROOT / "docs" / "decisions.md", ROOT / "CONTRIBUTING.md"]

STEP = re.compile(r"^ *([\w/.-]+\.py) +(\w+)", re.MULTILINE)
THREAD = re.compile(
    r"""(?:Worker|StatusServer)\(\s*f?"([\w-]+)|thread(?:_name_prefix)?(?:: str)? ?= ?"([\w-]+)|"""
    r"""\bend\.name, end\.daemon = "([\w-]+)"""
)
LOCK = re.compile(r"threading\.(?:Lock|RLock|Condition|Semaphore|BoundedSemaphore)\(")
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?)`")
ELSEWHERE = ("demo-output/", "longhorn.io/")  # names with a slash that are no paths of the clone


def rows(heading: str, text: str = MAP) -> list[list[str]]:
    """The cells of the table rows of that section, the heads of its tables among them."""
    lines = [line for line in section_of(text, heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def sources() -> Iterator[tuple[str, str]]:
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


def packages() -> set[str]:
    found = {path.parent.relative_to(ROOT) for name in PRODUCT for path in (ROOT / name).rglob("__init__.py")}
    return {".".join(path.parts) for path in found} | {"release", "bench", "tests"}


def threads(text: str) -> set[str]:
    return {name for found in THREAD.findall(text) for name in found if name}


def names_in(source: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}


def test_every_package_is_on_the_map_and_nothing_else() -> None:
    assert packages() == {name for row in rows("## Map of packages")[1:] for name in codes(row[0])}


def test_every_thread_is_on_the_map_and_nothing_else() -> None:
    named = {name for row in rows("## Processes and threads")[1:] for name in codes(row[0])}
    assert {name for _, text in sources() for name in threads(text)} == named


def test_every_file_with_a_lock_is_on_the_map_and_nothing_else() -> None:
    named = {name for row in rows("## Locks")[1:] for name in codes(row[0])}
    assert {path for path, text in sources() if LOCK.search(text)} == named


def test_every_step_of_a_walk_is_there() -> None:
    steps = [step for _, language, body in FENCE.findall(MAP) if language == "walk" for step in STEP.findall(body)]
    assert len(steps) > 30
    assert [] == [
        (path, name)
        for path, name in steps
        if not (ROOT / path).exists() or name not in names_in((ROOT / path).read_text())
    ]


def test_every_line_of_a_walk_is_a_step() -> None:
    walks = [body for _, language, body in FENCE.findall(MAP) if language == "walk"]
    assert len(walks) >= 3
    assert [] == [line for body in walks for line in body.splitlines() if not STEP.match(line)]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_path_that_a_guide_names_is_there(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    named = [name for name in PATH.findall(text) if not name.startswith(ELSEWHERE)]
    assert [] == [name for name in named if not (ROOT / name).exists()]


def test_every_word_of_the_glossary_is_used() -> None:
    used = "\n".join(text for _, text in sources()).lower().replace("_", " ")
    words = re.findall(r"\*\*([^*]+)\*\*", GLOSSARY)
    assert len(words) > 30
    assert [] == [word for word in words if not re.search(rf"\b{re.escape(word.lower())}", used)]


def test_the_linters_before_a_commit_are_those_of_make_lint() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (code,) = re.findall(r"^CODE := \$\(wildcard (.+)\)$", makefile, re.MULTILINE)
    _, _, rest = makefile.partition("\nlint: ")
    recipe = rest.partition("\n\n")[0].splitlines()[1:]
    commands = [line.strip().lstrip("@") for line in recipe]
    for name, value in (("$(RUN)", ".venv/bin/python"), ("$(VENV)", ".venv"), ("$(CODE)", code)):
        commands = [command.replace(name, value) for command in commands]
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert ["local"] == [repo["repo"] for repo in config["repos"]]
    assert commands == [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]


def test_the_checks_here_can_fail() -> None:
    assert {"a", "b", "c-d", "metrics", "informer-"} == threads(
        'Worker("a", x) thread="b" thread_name_prefix="c-d" StatusServer("metrics") Worker(f"informer-{kind}")'
    )
    assert LOCK.search("self._x = threading.Condition(threading.Lock())")
    assert [("a/b.py", "c")] == STEP.findall("  a/b.py    c   what it does\n")
    assert ["a/b.py", "a/"] != PATH.findall("`a/b.py` `a` `c d/e`")
    assert ["a/b.py"] == PATH.findall("`a/b.py` `a` `c d/e`")
    assert {"one", "Two"} == names_in("class Two:\n  def one(self): ...\n")
