"""Timestamps as Kubernetes' and Longhorn's objects carry them: RFC3339 text."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def rfc3339(moment: datetime) -> str:
    """That moment, of UTC, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_time(text: str) -> datetime:
    """The moment that an RFC3339 text names, with its zone; ValueError for anything else, the empty text included."""
    if not _RFC3339.fullmatch(text):
        raise ValueError("is not an RFC3339 time")
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError("is not an RFC3339 time") from error
