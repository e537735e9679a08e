"""Plans and the Lease on the real API server: many plans, late writes of a former leader, what the server refuses, and
a Lease that somebody has written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.plan_objects import plans
from controller.allocator.plans.plan import Plan
from controller.clock import SystemClock
from controller.election.elector import LARGEST_TERM, Elector, Timing
from controller.election.gate import Gate
from controller.errors import ClusterError, NotLeaderError
from controller.kube.api import ClientKubeApi
from controller.kube.lease import LeaseClient
from controller.kube.resources import CONFIG_MAPS, LEASES
from controller.model.places import Place
from controller.placement.plan_entries import KEY, SHARDS, shard_name
from controller.placement.plan_objects import PlanObjects
from controller.placement.plan_shard import MAX_SHARD_BYTES
from tests.cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_numbers = itertools.count(1)
PLANS = 10_000
MOST_BYTES = 1024 * 1024  # of a ConfigMap's values
VOLUME = "pvc-1"
NAME = shard_name(0)  # has the plans of one that has few


class Term:
    """Ends when it is told to."""

    def __init__(self) -> None:
        self.is_over = False

    def check(self, _term: int) -> None:
        if self.is_over:
            raise NotLeaderError("another process leads")


class HeldUpApi(ClientKubeApi):
    """Something happens between the decision to write and the arrival of the first write."""

    meanwhile: Callable[[], None] | None = None

    def replace(self, *args: Any, **more: Any) -> dict[str, Any]:
        self._hold_up()
        return super().replace(*args, **more)

    def create(self, *args: Any, **more: Any) -> dict[str, Any]:
        self._hold_up()
        return super().create(*args, **more)

    def _hold_up(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> HeldUpApi:
    return HeldUpApi.load(str(cluster.layout.kubeconfig("admin")))  # type: ignore[return-value]


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    name = f"plans-{next(_numbers)}"
    cluster.create_namespace(name)
    yield name
    cluster.api().delete(f"/api/v1/namespaces/{name}")


def plan(*disks: str) -> Plan:
    now_utc = SystemClock().now_utc().replace(microsecond=0)
    return Plan(VOLUME, "uid", tuple(Place("n", disk, 1) for disk in disks), ("pod",), now_utc)


def leader(api: ClientKubeApi, namespace: str, check: Callable[[int], None] = lambda _term: None) -> PlanObjects:
    return PlanObjects(api, namespace, SystemClock(), check)


def test_ten_thousand_plans_are_written_and_loaded(api: HeldUpApi, namespace: str) -> None:
    made = {one.volume: one for one in plans("many", PLANS)}
    objects = leader(api, namespace)
    objects.load(1)
    for one in made.values():
        objects.put(one)
    assert objects.flush(60.0)
    assert SHARDS == objects.figures().commits
    found = leader(api, namespace).load(2)
    assert made == {one.volume: one for one in found.plans}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_late_write_of_a_former_leader_is_refused(api: HeldUpApi, namespace: str, is_deleted: bool) -> None:
    term, later = Term(), plan("d2")
    former, following = leader(api, namespace, term.check), leader(api, namespace)
    former.load(1)
    former.put(plan("d1"))
    if is_deleted:
        api.delete(CONFIG_MAPS, namespace, NAME)

    def take_over() -> None:
        term.is_over = True
        assert () == following.load(1).plans
        following.put(later)
        assert following.flush(30.0)

    api.meanwhile = take_over
    assert not former.flush(30.0)
    assert (later,) == leader(api, namespace).load(2).plans


def test_what_others_leave_there_costs_nothing_but_what_they_destroyed(api: HeldUpApi, namespace: str) -> None:
    objects = leader(api, namespace)
    objects.load(1)
    objects.put(plan("d1"))
    assert objects.flush(30.0)
    for spoil in (
        lambda: api.delete(CONFIG_MAPS, namespace, NAME),
        lambda: api.patch(CONFIG_MAPS, namespace, NAME, {"data": {KEY: "{"}}),
        lambda: api.patch(CONFIG_MAPS, namespace, NAME, {"data": {KEY: None}, "binaryData": {KEY: "AAAA"}}),
        lambda: api.patch(CONFIG_MAPS, namespace, NAME, {"data": {"theirs": "x"}, "immutable": True}),
    ):
        spoil()
        objects.put(plan("d2"))
        assert objects.flush(30.0)
        objects.put(plan("d1"))
        assert objects.flush(30.0)
        found = leader(api, namespace).load(2)
        assert (("d1",),) == tuple(tuple(place.disk_uuid for place in one.places) for one in found.plans)
    assert api.get(CONFIG_MAPS, namespace, NAME)["data"]["theirs"] == "x"


def test_the_api_server_takes_a_full_config_map_and_no_more_than_its_limit(api: HeldUpApi, namespace: str) -> None:
    """Which is why ours lies below it. Text with quotes, as that of plans, is longer on its way. A body that is far too
    large may be cut off instead of answered."""
    objects = leader(api, namespace)
    objects.load(1)
    raw = api.get(CONFIG_MAPS, namespace, NAME)
    full = '"' * MAX_SHARD_BYTES
    raw = api.replace(CONFIG_MAPS, namespace, NAME, {**raw, "data": {KEY: full}})
    for size, code in ((MOST_BYTES + 1, "422"), (4 * MOST_BYTES, "413|EOF|reset|Broken pipe")):
        with pytest.raises(ClusterError, match=code):
            api.replace(CONFIG_MAPS, namespace, NAME, {**raw, "data": {KEY: '"' * size}})
    assert full == api.get(CONFIG_MAPS, namespace, NAME)["data"][KEY]


def test_without_a_namespace_there_are_no_plans_and_that_is_told(api: HeldUpApi) -> None:
    objects = leader(api, "nowhere")
    assert () == objects.load(1).plans
    assert "cannot be read or made" in objects.figures().last_problem


# The Lease


@pytest.mark.parametrize(
    ("written", "terms"),
    [
        pytest.param({"leaseTransitions": LARGEST_TERM}, [0, 1, 2], id="a term without a successor"),
        pytest.param({"acquireTime": None, "renewTime": "1999-12-31T23:59:59.000000Z"}, [0], id="times of the past"),
        pytest.param(
            {"renewTime": "9999-12-31T23:59:59.000000Z", "leaseDurationSeconds": LARGEST_TERM},
            [0],
            id="times of the future",
        ),
        pytest.param(None, [0, 1, 2], id="a Lease that is gone"),
    ],
)
def test_a_lease_that_somebody_has_written_keeps_nobody_from_leading(
    api: HeldUpApi, namespace: str, written: dict[str, Any] | None, terms: list[int]
) -> None:
    clock, begun = SystemClock(), list[int]()
    gate = Gate(clock)

    def began(term: int, _has_predecessor: bool) -> None:
        begun.append(term)
        gate.open()

    def elector(name: str) -> Elector:
        leases = LeaseClient(api, namespace, "lock", clock)
        return Elector(leases, gate, clock, name, Timing(), on_started=began, on_stopped=lambda: None)

    one = elector("a")
    one.run_once()
    for _ in range(2):
        if written is None:
            api.delete(LEASES, namespace, "lock")
        else:
            api.patch(LEASES, namespace, "lock", {"spec": written})
        one.run_once()
        gate.check()
    assert terms == begun
    one.let_go()
    elector("b").run_once()
    gate.check()
    assert begun[-1] == terms[-1] + 1
