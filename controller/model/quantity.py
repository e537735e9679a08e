"""Kubernetes quantities to whole bytes and back.

The grammar is the one of the Kubernetes API conventions (`apimachinery/pkg/api/resource/quantity.go`): a signed
decimal number followed by a binary suffix (Ki to Ei), a decimal suffix (n, u, m, k to E) or a decimal exponent (e3,
E3). Fractions of a byte round up, as `Quantity.Value()` does.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from controller.errors import MalformedRequestError
from controller.model.reader import shown

MAX_BYTES: Final = 2**63 - 1
_NUMBER = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?P<suffix>(?:[eE][+-]?[0-9]{1,3})|[A-Za-z]{0,2})"
)
_BINARY: Final = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL: Final = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18),
}  # fmt: skip
_MAX_LENGTH: Final = 64


def quantity_bytes(text: object, field: str) -> int:
    """Whole bytes of the quantity `text`, fractions rounded up; MalformedRequestError names `field`.

    Capped at 2**63 - 1, as the API server caps what does not fit a signed 64-bit number.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return min(text, MAX_BYTES)
    if not isinstance(text, str) or len(text) > _MAX_LENGTH:
        raise MalformedRequestError(field, f"not a quantity: {shown(text)}")
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise MalformedRequestError(field, f"not a quantity: {text!r}")
    return _whole(Fraction(match["number"]) * _factor(match["suffix"], text, field))


def quantity_millis(text: object, field: str) -> int:
    """Thousandths of the quantity `text`, as CPUs are counted; the rest as `quantity_bytes`."""
    if isinstance(text, int) and not isinstance(text, bool):
        return min(1000 * text, MAX_BYTES)
    match = _NUMBER.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_LENGTH else None
    if match is None or not isinstance(text, str):
        raise MalformedRequestError(field, f"not a quantity: {shown(text)}")
    return _whole(1000 * Fraction(match["number"]) * _factor(match["suffix"], text, field))


def _whole(value: Fraction) -> int:
    """Rounded up, within 64 bits."""
    return max(min(-((-value.numerator) // value.denominator), MAX_BYTES), -MAX_BYTES)


def _factor(suffix: str, text: str, field: str) -> Fraction:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    if suffix in _BINARY:
        return Fraction(_BINARY[suffix])
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return Fraction(10) ** int(suffix[1:])
    raise MalformedRequestError(field, f"not a quantity: {text!r}")


def bytes_text(count: int) -> str:
    """`count` bytes for people: `100 GiB`, `1.5 GiB`, `10 MiB`, `17 bytes`; never used as input."""
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = _BINARY[suffix]
        if abs(count) >= unit:
            scaled = f"{count / unit:.2f}".rstrip("0").rstrip(".")
            return f"{scaled} {suffix}B"
    return "1 byte" if count == 1 else f"{count} bytes"


def exact_bytes_text(count: int) -> str:
    """The same, with the exact number where it is rounded, for sizes that somebody may type: `10 GiB`,
    `1.33 GiB (1430257664 bytes)`."""
    text = bytes_text(count)
    is_exact = abs(count) < _BINARY["Ki"] or quantity_bytes(text.replace(" ", "").removesuffix("B"), "size") == count
    return text if is_exact else f"{text} ({count} bytes)"
