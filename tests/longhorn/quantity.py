"""Quantities to bytes, for the stand-in alone."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18} | {
    f"{letter}i": 1024 ** (index + 1) for index, letter in enumerate("KMGTPE")
}


def quantity_bytes(text: str | int) -> int:
    """Whole bytes, rounded up."""
    text = str(text)
    if text.endswith("m"):
        return int((Decimal(text[:-1]) / 1000).to_integral_value(ROUND_CEILING))
    for unit in sorted(_UNITS, key=len, reverse=True):
        if unit and text.endswith(unit):
            return int((Decimal(text[: -len(unit)]) * _UNITS[unit]).to_integral_value(ROUND_CEILING))
    return int(Decimal(text).to_integral_value(ROUND_CEILING))
