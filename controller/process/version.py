"""Which version of the product runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

PACKAGE: Final = "longhorn-scheduler-extender"


def product_version() -> str:
    """As it was installed; "unknown" when it runs from its sources alone."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"
