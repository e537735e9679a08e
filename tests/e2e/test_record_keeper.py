"""The leader's record on the real API server: it adopts what exists, and what anybody does to it is noticed."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.cluster.cache import REPOSITORY
from tests.cluster.client import ApiError, Object
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e.disk_site import DISK_GIB, NODES, RECORDS, WAIT_SECONDS, Site, disks_of
from tests.e2e.harness import CONFIG_MAP
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE
from tests.longhorn import paths
from tests.longhorn.longhorn import add_node, disk_uuid, set_disk
from tests.longhorn.options import GIB, DiskOptions
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodediskallocations.scheduling.longhorn.io"
NODE_CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodes.longhorn.io"
ROLE: Final = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/longhorn-scheduler-extender-record"
PREFIX: Final = "scheduler-extender-allocation"
LONGHORN: Final = {f"{PREFIX}-authority": "longhorn", f"{PREFIX}-grace": "3"}
OURS: Final = {f"{PREFIX}-authority": "disk-scheduler", f"{PREFIX}-grace": "600"}
MANY: Final = 40


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Cluster.start(ClusterOptions(start_scheduler=False)) as cluster:
        found = Site(cluster, tmp_path_factory.mktemp("site"))
        try:
            yield found
        finally:
            found.stop()


@pytest.fixture
def leader(site: Site) -> Controller:
    """One that is in charge, with replicas that Longhorn has placed, on record."""
    configure(site, LONGHORN)
    if not site.api.list(paths.longhorn("replicas", NAMESPACE))["items"]:
        for name in NODES:
            (replica,) = site.add_volume(f"first-{name}", 10)
            site.place(replica, name)
    if not site.leaders:
        site.start_leader()
    (leading,) = site.leaders
    leading.wait_leading()
    wait_for_record(site, shown(site))
    return leading


def configure(site: Site, settings: dict[str, str]) -> None:
    site.api.patch(CONFIG_MAP, {"data": settings})
    authority = settings[f"{PREFIX}-authority"]
    for one in site.leaders:
        wait_until(lambda: one.status()["settings"]["allocation_authority"] == authority, authority, WAIT_SECONDS)  # noqa: B023


def shown(site: Site) -> dict[tuple[str, str, str], int]:
    """What the Replica objects take, by name, node and disk."""
    replicas = site.api.list(paths.longhorn("replicas", NAMESPACE))["items"]
    return {
        (one["metadata"]["name"], one["spec"]["nodeID"], "d1"): int(one["spec"]["volumeSize"])
        for one in replicas
        if one["spec"].get("nodeID")
    }


def wait_for_record(site: Site, expected: dict[tuple[str, str, str], int]) -> None:
    try:
        wait_until(lambda: on_record(site) == expected, "such a record", WAIT_SECONDS)
    except TimeoutError:
        raise AssertionError(f"expected {expected}, on record {on_record(site)}; {status(site)}") from None


def on_record(site: Site) -> dict[tuple[str, str, str], int]:
    try:
        return site.on_record()
    except (ApiError, AttributeError):
        return {}  # there is no such kind at the moment, or garbage in it


def status(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = site.leaders[0].status()["allocations"]
    return found


def repaired(leader: Controller, reason: str) -> int:
    return leader.counted(f'allocation_record_repairs_total{{reason="{reason}"}}')


def edit(site: Site, node: str, sizes: dict[str, int | None]) -> None:
    """By hand, of the disk d1; None takes the entry out."""
    site.api.patch(f"{RECORDS}/{node}", {"spec": {"diskAllocations": {disk_uuid(node, "d1"): {"replicas": sizes}}}})


def test_what_exists_is_adopted_and_what_goes_is_forgotten(site: Site, leader: Controller) -> None:
    assert "node-disk-allocation" == status(site)["place"]
    assert len(NODES) <= repaired(leader, "no-entry")
    (replica,) = site.add_volume("second", 20)
    site.place(replica, "n1")
    wait_for_record(site, shown(site))
    site.api.delete(paths.longhorn("replicas", NAMESPACE, replica))
    wait_for_record(site, shown(site))
    assert (True, len(NODES)) == (status(site)["is_kept"], status(site)["entries"])


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"first-n1-r-0": None}, "no-entry"),
        ({"first-n1-r-0": GIB}, "size-differs"),
        ({"first-n1-r-0": 90 * GIB}, "expansion-unfinished"),
        ({"nobodys": GIB}, "object-gone"),
        ({"first-n2-r-0": GIB}, "disk-moved"),
    ],
    ids=["taken out", "lowered", "raised", "added", "of another node"],
)
def test_what_somebody_edits_is_put_right(
    site: Site, leader: Controller, sizes: dict[str, int | None], reason: str
) -> None:
    before = repaired(leader, reason)
    edit(site, "n1", sizes)
    wait_until(lambda: repaired(leader, reason) > before, reason, WAIT_SECONDS)
    wait_for_record(site, shown(site))


def test_a_record_that_is_deleted_is_made_anew(site: Site, leader: Controller) -> None:
    uid = site.api.get(f"{RECORDS}/n1")["metadata"]["uid"]
    site.api.delete(f"{RECORDS}/n1")
    wait_for_record(site, shown(site))
    assert uid != site.api.get(f"{RECORDS}/n1")["metadata"]["uid"]


def test_a_definition_that_is_deleted_and_made_anew_brings_the_record_back(site: Site, leader: Controller) -> None:
    site.api.delete(CRD)
    wait_until(lambda: site.api.get_or_none(CRD) is None, "end of the definition", WAIT_SECONDS)
    wait_until(lambda: status(site)["entries"] == 0, "an empty record", WAIT_SECONDS)
    site.install_record()
    wait_for_record(site, shown(site))


@pytest.mark.long
def test_garbage_is_told_and_stays_until_longhorn_decides(site: Site, leader: Controller) -> None:
    """The schema lets none in; so somebody has replaced the definition before."""
    (waits,) = site.add_volume("waits", 10)
    crd = site.api.get(CRD)
    anything: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = anything
    site.api.replace(CRD, crd)
    configure(site, OURS)
    garbage = {"spec": {"diskAllocations": {"d1": ["garbage"]}}}

    def is_taken() -> bool:
        try:
            site.api.patch(f"{RECORDS}/n1", garbage)
        except ApiError:
            return False  # the old schema is still at work
        return True

    wait_until(is_taken, "garbage that is taken", WAIT_SECONDS)
    wait_until(lambda: list(status(site)["unreadable"]) == ["n1"], "record that cannot be read", WAIT_SECONDS)
    assert 1 == leader.counted("allocation_record_unreadable")
    others = site.outcome(site.ask([f"replica waits {waits}"], 1))
    assert "n1" not in {node for _, node, _ in others.given}
    assert ["garbage"] == site.api.get(f"{RECORDS}/n1")["spec"]["diskAllocations"]["d1"]
    configure(site, LONGHORN)
    wait_until(lambda: repaired(leader, "unreadable") == 1, "rewritten record", WAIT_SECONDS)
    site.api.delete(paths.longhorn("replicas", NAMESPACE, waits))
    wait_for_record(site, shown(site))
    assert {} == status(site)["unreadable"]
    site.install_record()


def test_the_authority_changes_both_ways(site: Site, leader: Controller) -> None:
    """What the leader gave stays on record after the change, until its object shows it or is gone."""
    (replica,) = site.add_volume("asked", 10)
    request = [f"replica asked {replica}"]
    assert {"FAILED_PRECONDITION": 1} == dict(site.outcome(site.ask(request, 1)).refused)
    configure(site, OURS)
    given = site.outcome(site.ask(request, 1)).given
    assert [replica] == [name for name, _, _ in given]
    assert {**shown(site), **given} == on_record(site)
    configure(site, LONGHORN)
    assert {"FAILED_PRECONDITION": 1} == dict(site.outcome(site.ask(request, 1)).refused)
    assert {**shown(site), **given} == on_record(site)
    ((_, node, _),) = given
    site.place(replica, node)
    configure(site, OURS)
    assert given == site.outcome(site.ask(request, 1)).given
    site.api.delete(paths.longhorn("replicas", NAMESPACE, replica))
    configure(site, LONGHORN)
    wait_for_record(site, shown(site))


@pytest.mark.long
def test_a_mirror_that_is_switched_off_is_left_as_it_is(site: Site, leader: Controller) -> None:
    site.api.patch(CONFIG_MAP, {"data": {f"{PREFIX}-record": "false"}})
    try:
        wait_until(lambda: not status(site)["is_kept"], "no record", WAIT_SECONDS)
        edit(site, "n1", {"nobodys": GIB})
        (replica,) = site.add_volume("unseen", 10)
        site.place(replica, "n2")
        wait_until(lambda: status(site)["entries"] == len(NODES) + 1, "seen edit", WAIT_SECONDS)
    finally:
        site.api.patch(CONFIG_MAP, {"data": {f"{PREFIX}-record": None}})
    assert (replica, "n2", "d1") not in on_record(site)
    wait_for_record(site, shown(site))
    site.api.delete(paths.longhorn("replicas", NAMESPACE, replica))
    wait_for_record(site, shown(site))


@pytest.fixture
def knowing_nodes(site: Site, leader: Controller) -> Iterator[Controller]:
    """A leader in a cluster whose Longhorn Nodes have the field for the record, which was moved there."""
    site.api.patch(CONFIG_MAP, {"data": {f"{PREFIX}-record": "false"}})
    leader.stop()
    site.leaders.remove(leader)
    before = site.api.get(NODE_CRD)
    changed = copy.deepcopy(before)
    for version in changed["spec"]["versions"]:
        fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        fields["diskAllocations"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    site.api.replace(NODE_CRD, changed)
    rights = site.api.get(ROLE)  # to which the chart adds this by allocationRecord.inLonghornNodes
    more = {"apiGroups": ["longhorn.io"], "resources": ["nodes"], "verbs": ["get", "update", "patch"]}
    site.api.patch(ROLE, {"rules": [*rights["rules"], more]})
    wait_until(lambda: moved(site, "longhorn-node"), "a record that the Nodes keep", WAIT_SECONDS)
    site.api.patch(CONFIG_MAP, {"data": {f"{PREFIX}-record": None}})
    leading = site.start_leader()
    leading.wait_leading()
    yield leading
    leading.stop()
    site.leaders.clear()
    assert moved(site, "node-disk-allocation")
    before["metadata"] = site.api.get(NODE_CRD)["metadata"]
    site.api.replace(NODE_CRD, before)
    site.api.patch(ROLE, {"rules": rights["rules"]})


def moved(site: Site, place: str) -> bool:
    """By the command. What the new schema does not keep yet stays where it is."""
    command = [sys.executable, "-m", "controller.allocations", "move", "--to", place]
    access = ["--kubeconfig", str(site.cluster.layout.kubeconfig("admin"))]
    done = subprocess.run([*command, *access], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0


def in_nodes(site: Site) -> dict[tuple[str, str, str], int]:
    nodes = site.api.list(paths.longhorn("nodes", NAMESPACE))["items"]
    disks = disks_of(site.api)
    return {
        (name, node["metadata"]["name"], disks[uuid][1]): size
        for node in nodes
        for uuid, lists in node["spec"].get("diskAllocations", {}).items()
        for name, size in lists["replicas"].items()
    }


@pytest.mark.long
def test_longhorns_nodes_carry_the_record_and_one_that_a_manager_drops_is_told(
    site: Site, knowing_nodes: Controller
) -> None:
    wait_until(lambda: status(site)["place"] == "longhorn-node", "the place", WAIT_SECONDS)
    (replica,) = site.add_volume("noted", 10)
    site.place(replica, "n1")
    wait_until(lambda: in_nodes(site) == shown(site), "a record in the Nodes", WAIT_SECONDS)
    assert {} == on_record(site)
    configure(site, OURS)
    disk = DiskOptions(maximum_bytes=DISK_GIB * GIB)
    set_disk(site.api, NAMESPACE, "n1", "d1", disk, typed=False)
    assert in_nodes(site) == shown(site)
    set_disk(site.api, NAMESPACE, "n1", "d1", disk)  # as today's manager does
    wait_until(lambda: list(status(site)["unreadable"]) == ["n1"], "a lost record", WAIT_SECONDS)
    assert "dropped it" in status(site)["unreadable"]["n1"]
    (waits,) = site.add_volume("asks", 10)
    given = site.outcome(site.ask([f"replica asks {waits}"], 1)).given
    assert "n1" not in {one for _, one, _ in given}
    site.api.delete(paths.longhorn("replicas", NAMESPACE, waits))
    site.api.delete(paths.longhorn("replicas", NAMESPACE, replica))
    configure(site, LONGHORN)
    wait_until(lambda: in_nodes(site) == shown(site), "a record that is written anew", WAIT_SECONDS)
    assert 1 == repaired(knowing_nodes, "unreadable")


@pytest.mark.long
def test_a_leader_that_dies_between_its_writes_has_its_work_ended_by_the_next(site: Site, leader: Controller) -> None:
    """Adoption on many nodes, killed after the first ones. The record never has more than the objects show."""
    configure(site, LONGHORN)
    site.api.patch(CONFIG_MAP, {"data": {f"{PREFIX}-record": "false"}})
    wait_until(lambda: not status(site)["is_kept"], "no record", WAIT_SECONDS)
    for number in range(MANY):
        name = f"m{number}"
        site.cluster.add_node(name)
        add_node(site.api, NAMESPACE, name, {"d1": DiskOptions(maximum_bytes=DISK_GIB * GIB)})
        (replica,) = site.add_volume(f"on-{name}", 10)
        site.place(replica, name)
    successor = site.start_leader()
    wait_until(successor.answers_ready, "a ready follower", WAIT_SECONDS)
    before = len(on_record(site))
    site.api.patch(CONFIG_MAP, {"data": {f"{PREFIX}-record": None}})
    wait_until(lambda: len(on_record(site)) > before, "the first writes", WAIT_SECONDS)
    leader.stop(kill=True)
    site.leaders.remove(leader)
    some = on_record(site)
    assert before < len(some) < before + MANY, "killed too late"
    assert some.items() <= shown(site).items()
    successor.wait_leading()
    wait_for_record(site, shown(site))
