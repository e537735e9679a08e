"""Code blocks and sections of the documentation's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def yaml_blocks(text: str) -> Iterator[str]:
    for indent, language, body in FENCE.findall(text):
        if language == "yaml":
            yield re.sub(f"^{indent}", "", body, flags=re.MULTILINE)


def section_of(text: str, heading: str) -> str:
    """From `heading` to the next one of its rank or a higher one."""
    rank = len(heading) - len(heading.lstrip("#"))
    return re.split(rf"^#{{1,{rank}}} ", text.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
