"""Code blocks and sections of the documentation's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def links_of(text: str) -> list[tuple[str, str]]:
    """The files, as they are written, and the anchors that a page's links and pictures lead to; nothing of the web."""
    targets = [target for target in LINK.findall(FENCE.sub("", text)) if "://" not in target]
    return [(name, anchor) for name, _, anchor in (target.partition("#") for target in targets)]


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them: a second one of a name gets a number."""
    anchors: list[str] = []
    for heading in HEADING.findall(FENCE.sub("", text)):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        anchors.append(f"{name}-{anchors.count(name)}" if name in anchors else name)
    return set(anchors)


def yaml_blocks(text: str) -> Iterator[str]:
    for indent, language, body in FENCE.findall(text):
        if language == "yaml":
            yield re.sub(f"^{indent}", "", body, flags=re.MULTILINE)


def section_of(text: str, heading: str) -> str:
    """From `heading` to the next one of its rank or a higher one."""
    rank = len(heading) - len(heading.lstrip("#"))
    return re.split(rf"^#{{1,{rank}}} ", text.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
