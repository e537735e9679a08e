"""Quantities as Kubernetes writes them, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import MalformedRequestError
from controller.model.quantity import MAX_BYTES, bytes_text, exact_bytes_text, quantity_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100Gi", 100 * 1024**3),
        ("1.5Gi", 3 * 512 * 1024**2),
        ("1G", 10**9),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("5", 5),
        (7, 7),
        ("0", 0),
        ("-1", -1),
        ("+1", 1),
        (".5Ki", 512),
        ("5.", 5),
        ("100m", 1),
        ("1500000u", 2),
        ("1500000000n", 2),
        ("1.1", 2),
        ("8Ei", MAX_BYTES),
        ("9e99", MAX_BYTES),
        ("-9e99", -MAX_BYTES),
    ],
)
def test_a_quantity_is_whole_bytes_rounded_up(text: object, expected: int) -> None:
    assert expected == quantity_bytes(text, "f")


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1e3Ki", "Gi", "1gi", "1GiB", "0x10", "1_000", "∞", "1e", None, True, 1.5, [], "9" * 65]
)
def test_what_is_no_quantity_is_refused_with_the_fields_name(text: object) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        quantity_bytes(text, "spec.resources.requests.storage")
    assert "spec.resources.requests.storage" == caught.value.field


@given(st.integers(0, MAX_BYTES))
def test_plain_bytes_are_themselves(count: int) -> None:
    assert count == quantity_bytes(str(count), "f")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (1, "1 byte"), (1024, "1 KiB"), (3 * 512 * 1024**2, "1.5 GiB")]
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert text == bytes_text(count)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (3 * 512 * 1024**2, "1.5 GiB"),
        (4 * 1024**3 // 3, "1.33 GiB (1431655765 bytes)"),
        (1024, "1 KiB"),
        (17, "17 bytes"),
    ],
)
def test_a_size_that_somebody_may_type_is_told_to_the_byte(count: int, text: str) -> None:
    assert text == exact_bytes_text(count)
