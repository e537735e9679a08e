"""Releases of Longhorn, as far as they place replicas differently."""

from __future__ import annotations

import re
from typing import Final

Release = tuple[int, int, int]
NEWEST: Final[Release] = (1, 13, 0)
_FORM: Final = re.compile(r"v([0-9]+)\.([0-9]+)\.([0-9]+)(?:[-+].*)?")


def release_of(text: str) -> Release | None:
    """`v1.12.1`, with any suffix dropped; None if it is nothing of that kind."""
    found = _FORM.fullmatch(text.strip())
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def at_least(release: Release | None, wanted: Release) -> bool:
    """One that nobody can tell behaves as the newest does."""
    return release is None or release >= wanted
