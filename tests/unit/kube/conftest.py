"""An API server in memory, and a clock."""

from __future__ import annotations

import pytest

from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock


@pytest.fixture
def server() -> FakeApiServer:
    return FakeApiServer()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()
