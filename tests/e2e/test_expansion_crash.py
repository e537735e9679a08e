"""A leader that dies while it writes an expansion on three nodes. A webhook of the test's own holds one of its writes,
and the leader is frozen before that is let through: what it wrote is then on record, and it has not heard of it. The
next leader takes that for an expansion which it may have told of, on all nodes or on none."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import grpc
import pytest

from tests.cluster.client import Object
from tests.e2e.disk_callers import NAME
from tests.e2e.disk_history import OBJECTS, RECORD, Place, moments, most, taken
from tests.e2e.disk_site import NODES, RECORDS, WAIT_SECONDS, Site, caller_certificate
from tests.e2e.neighbours import ForeignWebhook
from tests.e2e.programs import QUICK_LEASE, Controller
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.webhooks import VALIDATING
from tests.fakes.rpc_client import CallFailedError, DiskSchedulerClient, MountedMaterial
from tests.longhorn.options import GIB
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(300)]

LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
GROWTH_SECONDS: Final = 60.0  # docs/disk-scheduler.md
LOOK_SECONDS: Final = 15.0  # to look whether it is stored, and to write the record
HELD_SECONDS: Final = 20.0  # below what the API server waits
WHERE: Final = NODES[:3]
_sizes = itertools.count(20)


class HeldWrites(ForeignWebhook):
    """Holds the writes of one node's record until they are let through, or refused. Threads: any."""

    def __init__(self, site: Site) -> None:
        self._node, self._is_allowed = "", False
        self.came, self._goes_on = threading.Event(), threading.Event()
        rule = {"operations": ["CREATE", "UPDATE"], "apiGroups": ["scheduling.longhorn.io"], "apiVersions": ["*"]}
        super().__init__(
            site.api,
            site.folder,
            "held-writes",
            self._answer,
            collection=VALIDATING,
            operation="",
            resource="",
            rules=[{**rule, "resources": ["nodediskallocations"]}],
            timeoutSeconds=30,
        )

    def hold(self, node: str) -> None:
        self.came.clear()
        self._goes_on.clear()
        self._node = node

    def let_go(self, *, allowed: bool) -> None:
        self._node, self._is_allowed = "", allowed
        self._goes_on.set()

    def _answer(self, _: str, request: Object) -> Object:
        if request["name"] != self._node:
            return {"allowed": True}
        self.came.set()
        self._goes_on.wait(HELD_SECONDS)
        return {"allowed": self._is_allowed}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site.start(tmp_path_factory.mktemp("site")) as found:
        for replica, node in zip(found.add_volume("v", 10, replicas=3), WHERE, strict=True):
            found.place(replica, node)
        found.add_volume("told", 10)
        yield found


@pytest.fixture(scope="module")
def writes(site: Site) -> Iterator[HeldWrites]:
    with HeldWrites(site) as found:
        yield found


@pytest.mark.parametrize(
    "landed",
    range(4),
    ids=["none", "the first", "the second", "all"],
)
def test_a_leader_that_dies_between_the_writes_of_an_expansion(site: Site, writes: HeldWrites, landed: int) -> None:
    """After so many writes it is killed. The record is never below what an object or a told caller has. What is on
    record on one node, the next leader has on record on all of them, and tells whoever asks again."""
    leader = first_leader(site)
    told = site.outcome(site.ask(["replica told told-r-0"], 1)).given
    assert told.items() <= site.on_record().items()
    since = int(site.api.list(RECORDS)["metadata"]["resourceVersion"])
    follower = site.start_leader(*QUICK_LEASE)
    wait_until(follower.answers_ready, "a ready follower", WAIT_SECONDS)
    size = next(_sizes) * GIB
    with ThreadPoolExecutor(1) as pool:
        writes.hold(WHERE[max(landed - 1, 0)])
        call = pool.submit(refusal, site, size)
        assert writes.came.wait(WAIT_SECONDS), "the write did not come"
        leader.freeze()
        if landed:
            writes.let_go(allowed=True)
            wait_until(lambda: grown(site, size) == list(WHERE[:landed]), f"{landed} nodes that grew", WAIT_SECONDS)
        leader.stop(kill=True)
        site.leaders.remove(leader)
        writes.let_go(allowed=False)
        assert call.result(WAIT_SECONDS) in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert list(WHERE[:landed]) == grown(site, size)
    follower.wait_leading()
    if landed:
        wait_until(lambda: grown(site, size) == list(WHERE), "all nodes that grew", WAIT_SECONDS)
        assert told == site.outcome(site.ask(["replica told told-r-0"], 1)).given
        with caller(site) as client:
            again = client.expand_volume("v", size)
        assert again.already_allocated
        assert set(WHERE) == {one.node for one in again.allocations}
    assert [] == below(site, since, told)


def test_growth_that_nobody_goes_on_with_ends_after_a_minute(site: Site) -> None:
    """Also with the leader after the one that granted it."""
    leader = first_leader(site)
    size = next(_sizes) * GIB
    assert len(WHERE) == len(site.outcome(site.ask([f"expand v {size}"], 1)).given)
    assert list(WHERE) == grown(site, size)
    follower = site.start_leader(*QUICK_LEASE)
    wait_until(follower.answers_ready, "a ready follower", WAIT_SECONDS)
    leader.stop(kill=True)
    site.leaders.remove(leader)
    follower.wait_leading()
    began = time.monotonic()
    assert list(WHERE) == grown(site, size)
    told = site.outcome(site.ask(["replica told told-r-0"], 1)).given
    expected = {**taken(site.api, *OBJECTS), **told}
    wait_until(lambda: site.on_record() == expected, f"on record {expected}", GROWTH_SECONDS + LOOK_SECONDS)
    took = time.monotonic() - began
    print(f"\nended {took:.1f} s after the next leader began")
    assert took > GROWTH_SECONDS / 2


def below(site: Site, since: int, told: dict[Place, int]) -> list[tuple[int, Place, int, int]]:
    """Moments after that revision at which the record had less of a place than an object or somebody who was told."""
    found = []
    for version, now in moments(site.cluster, RECORD, *OBJECTS):
        record = most(places for (kind, _), places in now.items() if kind == RECORD)
        needed = most([told, *(places for (kind, _), places in now.items() if kind != RECORD)])
        lacking = (place for place, need in needed.items() if record.get(place, 0) < need)
        found += [(version, place, record.get(place, 0), needed[place]) for place in lacking if version > since]
    return found


@contextmanager
def caller(site: Site) -> Iterator[DiskSchedulerClient]:
    folder = caller_certificate(site.api, site.folder)
    with DiskSchedulerClient(site.address, NAME, MountedMaterial(folder)) as client:
        yield client


def first_leader(site: Site) -> Controller:
    """It has no predecessor, whose expansions would be waited for."""
    while site.leaders:
        site.leaders.pop().stop()
    site.api.delete(LEASES)
    leader = site.start_leader(*QUICK_LEASE)
    leader.wait_leading()
    return leader


def refusal(site: Site, size: int) -> grpc.StatusCode | None:
    """What is said to somebody who asks once."""
    with caller(site) as client:
        try:
            client.expand_volume("v", size, seconds=HELD_SECONDS)
        except CallFailedError as error:
            return error.code
    return None


def grown(site: Site, size: int) -> list[str]:
    """The nodes where the record has that size of the volume."""
    return sorted(node for (_, node, _), there in site.on_record().items() if there == size)
