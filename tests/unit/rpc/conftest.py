"""The certificates of one authority, for all tests of a module, a leader with them, and its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.settings import DISK_SCHEDULER
from tests.fakes.rpc_client import DiskSchedulerClient
from tests.unit.rpc.leaders import NAME, Chain, DiskScene, FakeRecord, Leader


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain()


@pytest.fixture
def leader(chain: Chain) -> Iterator[Leader]:
    with Leader(chain) as found:
        yield found


@pytest.fixture
def client(chain: Chain, leader: Leader) -> Iterator[DiskSchedulerClient]:
    with DiskSchedulerClient(leader.address, NAME, lambda: chain.disk_client) as found:
        yield found


@pytest.fixture
def record(leader: Leader) -> FakeRecord:
    found = leader.record = FakeRecord(leader)
    allocator = leader.cluster.allocator
    allocator.configure(replace(allocator._live, allocation_authority=DISK_SCHEDULER), allocator._world.settings)
    return found


@pytest.fixture
def scene(leader: Leader, record: FakeRecord, client: DiskSchedulerClient) -> DiskScene:
    leader.cluster.add_nodes(n1=100)
    return DiskScene(leader, record, client)
