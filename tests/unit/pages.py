"""Code blocks of the documentation's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def yaml_blocks(text: str) -> Iterator[str]:
    for indent, language, body in FENCE.findall(text):
        if language == "yaml":
            yield re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
