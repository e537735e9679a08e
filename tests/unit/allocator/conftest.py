"""What tests of growth begin with."""

from __future__ import annotations

import pytest

from tests.unit.allocator.growing import Growing


@pytest.fixture
def stage() -> Growing:
    """A copy of the volume `A`, of 100 GiB, lies on n1, the only node, with a disk of 400 GiB; its claim is `a`."""
    stage = Growing()
    stage.add("a", 100)
    return stage
