"""Where a JSON patch changes something (RFC 6901)."""

from __future__ import annotations


def pointer(*steps: str | int) -> str:
    """The JSON pointer of those keys and indices."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
