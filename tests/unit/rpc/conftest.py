"""The certificates of one authority, for all tests of a module, and a leader with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.rpc.leaders import Chain, Leader


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain()


@pytest.fixture
def leader(chain: Chain) -> Iterator[Leader]:
    with Leader(chain) as found:
        yield found
