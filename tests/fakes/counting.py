"""Calls of functions, counted."""

from __future__ import annotations

from typing import Any

import pytest


def counted(monkeypatch: pytest.MonkeyPatch, where: Any, *names: str) -> list[str]:
    """A list with one entry for each call of those functions."""
    seen: list[str] = []
    for name in names:
        function = getattr(where, name)

        def counting(*args: Any, name: str = name, function: Any = function, **more: Any) -> Any:
            seen.append(name)
            return function(*args, **more)

        monkeypatch.setattr(where, name, counting)
    return seen
