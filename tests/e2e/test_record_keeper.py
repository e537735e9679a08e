"""The leader's record on the real API server: it adopts what exists, and writes over what anybody does to it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest

from controller.allocator.plans import given as given_places
from controller.model.records import OURS as OURS_IN_NODES
from tests.cluster.client import ApiError, Object
from tests.cluster.cluster import Cluster
from tests.e2e import hurried
from tests.e2e.disk_site import DISK_GIB, NODES, RECORDS, WAIT_SECONDS, Site, disks_of, install_record
from tests.e2e.harness import CONFIG_MAP
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE
from tests.longhorn import paths
from tests.longhorn.longhorn import add_node, disk_uuid, set_disk
from tests.longhorn.options import GIB, DiskOptions
from tests.waiting import wait_equal, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodediskallocations.scheduling.longhorn.io"
NODE_CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodes.longhorn.io"
ROLE: Final = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/longhorn-scheduler-extender-record"
PREFIX: Final = "scheduler-extender-allocation"
AUTHORITY: Final = f"{PREFIX}-authority"
LONGHORN: Final = "longhorn"
OURS: Final = "disk-scheduler"
MANY: Final = 40
SIZES: Final = {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}}
FIELD_OF_NODES: Final = {  # as Longhorn's proposal prints it
    "type": "object",
    "additionalProperties": {"type": "object", "properties": {"replicas": SIZES, "backingImages": SIZES}},
}


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(cluster, tmp_path_factory.mktemp("site"))
    found.api.patch(CONFIG_MAP, {"data": {"scheduler-extender-placement": "longhorn"}})  # nobody places by itself
    yield found
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
        start_leader(site)
    (leading,) = site.leaders
    leading.wait_leading()
    wait_for_record(site, shown(site))
    return leading


def start_leader(site: Site) -> Controller:
    """One that soon gives up what somebody was told who does not write it."""
    return site.start_leader(*hurried.flags_of(given_places, WRITTEN_SECONDS=5.0), module=hurried.__name__)


def configure(site: Site, authority: str) -> None:
    site.api.patch(CONFIG_MAP, {"data": {AUTHORITY: authority}})
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
    wait_equal(expected, lambda: on_record(site), WAIT_SECONDS)


def on_record(site: Site) -> dict[tuple[str, str, str], int]:
    try:
        return site.on_record()
    except (ApiError, AttributeError):
        return {}  # there is no such kind at the moment, or garbage in it


def status(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = site.leaders[0].status()["allocations"]
    return found


def edit(site: Site, node: str, sizes: dict[str, int | None]) -> None:
    """By hand, of the disk d1; None takes the entry out."""
    site.api.patch(f"{RECORDS}/{node}", {"spec": {"diskAllocations": {disk_uuid(node, "d1"): {"replicas": sizes}}}})


def asked(site: Site, volume: str, replica: str) -> dict[tuple[str, str, str], int]:
    """What that replica is given by name."""
    outcome = site.outcome(site.ask([f"replica {volume} {replica}"], 1))
    assert not outcome.refused, outcome.why
    return outcome.given


def test_what_exists_is_adopted_and_what_goes_is_forgotten(site: Site, leader: Controller) -> None:
    assert "node-disk-allocation" == status(site)["place"]
    (replica,) = site.add_volume("second", 20)
    site.place(replica, "n1")
    wait_for_record(site, shown(site))
    site.api.delete(paths.longhorn("replicas", NAMESPACE, replica))
    wait_for_record(site, shown(site))
    wait_until(lambda: status(site)["entries"] == len(NODES), "as many entries", WAIT_SECONDS)
    assert (True, {}, 0) == tuple(status(site)[name] for name in ("is_kept", "unreadable", "unmatched"))


@pytest.mark.parametrize(
    "sizes",
    [
        {"first-n1-r-0": None},
        {"first-n1-r-0": GIB},
        {"first-n1-r-0": 90 * GIB},
        {"nobodys": GIB},
        {"first-n2-r-0": GIB},
    ],
    ids=["taken out", "lowered", "raised", "added", "of another node"],
)
def test_what_somebody_edits_is_written_over(site: Site, leader: Controller, sizes: dict[str, int | None]) -> None:
    edit(site, "n1", sizes)
    wait_for_record(site, shown(site))


def test_a_place_that_was_given_is_written_again_when_somebody_takes_it_out(site: Site, leader: Controller) -> None:
    (replica,) = site.add_volume("given", 10)
    configure(site, OURS)
    given = asked(site, "given", replica)
    ((_, node, _),) = given
    edit(site, node, {replica: None})
    wait_for_record(site, {**shown(site), **given})
    edit(site, node, {replica: None, "nobodys": 80 * GIB})
    assert given == asked(site, "given", replica)
    wait_for_record(site, {**shown(site), **given})
    assert (1, 1) == (status(site)["unmatched"], leader.counted("allocation_record_unmatched"))
    site.api.delete(paths.longhorn("replicas", NAMESPACE, replica))
    wait_for_record(site, shown(site))


def test_a_record_that_is_deleted_is_made_anew(site: Site, leader: Controller) -> None:
    uid = site.api.get(f"{RECORDS}/n1")["metadata"]["uid"]
    site.api.delete(f"{RECORDS}/n1")
    wait_for_record(site, shown(site))
    assert uid != site.api.get(f"{RECORDS}/n1")["metadata"]["uid"]


def test_a_definition_that_is_deleted_and_made_anew_brings_the_record_back(site: Site, leader: Controller) -> None:
    """Also what was given by name: the leader knows it by itself."""
    (replica,) = site.add_volume("kept", 10)
    configure(site, OURS)
    given = asked(site, "kept", replica)
    site.api.delete(CRD)
    wait_until(lambda: site.api.get_or_none(CRD) is None, "end of the definition", WAIT_SECONDS)
    wait_until(lambda: status(site)["entries"] == 0, "an empty record", WAIT_SECONDS)
    install_record(site.cluster)
    wait_for_record(site, {**shown(site), **given})
    site.api.delete(paths.longhorn("replicas", NAMESPACE, replica))
    wait_for_record(site, shown(site))


@pytest.mark.long
def test_garbage_is_read_around_and_written_anew(site: Site, leader: Controller) -> None:
    """The schema lets none in; so somebody has replaced the definition before. A leader that begins knows what was
    given in the part that it understands."""
    places = {name: site.add_volume(name, 10) for name in ("w1", "w2", "w3", "w4")}
    configure(site, OURS)
    given = {volume: asked(site, volume, replica) for volume, (replica,) in places.items()}
    nodes = {node: volume for volume, members in given.items() for _, node, _ in members}
    assert set(NODES) == nodes.keys()
    crd = site.api.get(CRD)
    anything: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = anything
    site.api.replace(CRD, crd)

    def spoil(node: str, disks: Object) -> bool:
        try:
            site.api.patch(f"{RECORDS}/{node}", {"spec": {"diskAllocations": disks}})
        except ApiError:
            return False  # the old schema is still at work
        return True

    def all_given(*volumes: str) -> dict[tuple[str, str, str], int]:
        return {place: size for volume in volumes for place, size in given[volume].items()}

    wait_until(lambda: spoil("n1", {"d1": ["garbage"]}), "garbage that is taken", WAIT_SECONDS)
    wait_for_record(site, {**shown(site), **all_given(*places)})
    assert given[nodes["n1"]] == asked(site, nodes["n1"], places[nodes["n1"]][0])
    leader.stop(kill=True)
    site.leaders.clear()
    assert spoil("n1", {"d1": ["garbage"]})
    assert spoil("n2", {disk_uuid("n2", "d1"): ["garbage"]})
    following = start_leader(site)
    following.wait_leading()
    wait_for_record(site, {**shown(site), **all_given(*(nodes[name] for name in ("n1", "n3", "n4")))})
    assert "record not understood node=n2" in following.log.read_text()
    for (replica,) in places.values():
        site.api.delete(paths.longhorn("replicas", NAMESPACE, replica))
    wait_for_record(site, shown(site))
    assert {} == status(site)["unreadable"]
    install_record(site.cluster)


def test_the_authority_changes_both_ways(site: Site, leader: Controller) -> None:
    """What was given and no object shows is forgotten when Longhorn decides again."""
    (replica,) = site.add_volume("asked", 10)
    request = [f"replica asked {replica}"]
    assert {"FAILED_PRECONDITION": 1} == dict(site.outcome(site.ask(request, 1)).refused)
    configure(site, OURS)
    given = asked(site, "asked", replica)
    assert [replica] == [name for name, _, _ in given]
    assert {**shown(site), **given} == on_record(site)
    configure(site, LONGHORN)
    assert {"FAILED_PRECONDITION": 1} == dict(site.outcome(site.ask(request, 1)).refused)
    wait_for_record(site, shown(site))
    ((_, node, _),) = given
    site.place(replica, node)
    configure(site, OURS)
    assert given == asked(site, "asked", replica)
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
    """A leader in a cluster whose Longhorn Nodes have the field for the record since a moment ago, and that was asked
    for room before."""
    before = site.api.get(NODE_CRD)
    changed = copy.deepcopy(before)
    for version in changed["spec"]["versions"]:
        fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        fields["diskAllocations"] = FIELD_OF_NODES
    rights = site.api.get(ROLE)  # to which the chart adds this by allocationRecord.inLonghornNodes
    more = {"apiGroups": ["longhorn.io"], "resources": ["nodes"], "verbs": ["get", "update", "patch"]}
    site.api.patch(ROLE, {"rules": [*rights["rules"], more]})
    configure(site, OURS)
    site.api.replace(NODE_CRD, changed)
    yield leader
    configure(site, LONGHORN)
    before["metadata"] = site.api.get(NODE_CRD)["metadata"]
    site.api.replace(NODE_CRD, before)
    wait_until(lambda: status(site)["place"] == "node-disk-allocation", "the former place", 2 * WAIT_SECONDS)
    wait_for_record(site, shown(site))
    site.api.patch(ROLE, {"rules": rights["rules"]})


def spec_field(site: Site, node: str) -> Object:
    found: Object = site.api.get(paths.longhorn("nodes", NAMESPACE, node))["spec"].get("diskAllocations") or {}
    return found


def in_nodes(site: Site) -> dict[tuple[str, str, str], int]:
    """What is ours there."""
    disks = disks_of(site.api)
    return {
        (name, node, disks[key.removeprefix(OURS_IN_NODES)][1]): size
        for node in NODES
        for key, lists in spec_field(site, node).items()
        if key.startswith(OURS_IN_NODES)
        for name, size in lists["replicas"].items()
    }


def foreign_in(site: Site, node: str) -> Object:
    return {key: one for key, one in spec_field(site, node).items() if not key.startswith(OURS_IN_NODES)}


def wait_in_nodes(site: Site, expected: dict[tuple[str, str, str], int]) -> None:
    wait_equal(expected, lambda: in_nodes(site), 2 * WAIT_SECONDS)


@pytest.mark.long
def test_a_record_moves_to_longhorns_nodes_where_foreign_entries_are_left_alone(
    site: Site, knowing_nodes: Controller
) -> None:
    (replica,) = site.add_volume("noted", 10)
    given = asked(site, "noted", replica)
    ((_, node, _),) = given
    foreign = {  # by the disks' names, as Longhorn's proposal has it; a name may be a UUID, and its disk may be gone
        name: {"replicas": {"theirs": 70 * GIB}, "backingImages": {"image": GIB}}
        for name in ("d1", "gone", disk_uuid(node, "d1"))
    }

    def writes_foreign() -> bool:
        site.api.patch(paths.longhorn("nodes", NAMESPACE, node), {"spec": {"diskAllocations": foreign}})
        return "d1" in spec_field(site, node)  # the new schema is at work

    wait_until(writes_foreign, "a field that is kept", WAIT_SECONDS)
    wait_in_nodes(site, {**shown(site), **given})
    assert "longhorn-node" == status(site)["place"]
    wait_until(lambda: not site.api.list(RECORDS)["items"], "no record of our own kind", WAIT_SECONDS)
    assert foreign == foreign_in(site, node)
    (more,) = site.add_volume("beside", 30)
    site.place(more, node)
    wait_in_nodes(site, {**shown(site), **given})
    assert foreign == foreign_in(site, node)

    set_disk(site.api, NAMESPACE, node, "d1", DiskOptions(maximum_bytes=DISK_GIB * GIB))  # a manager drops the field
    wait_in_nodes(site, {**shown(site), **given})
    assert given == asked(site, "noted", replica)
    knowing_nodes.stop(kill=True)
    site.leaders.clear()
    start_leader(site).wait_leading()
    assert given == asked(site, "noted", replica)
    configure(site, LONGHORN)
    assert writes_foreign()
    for name in (replica, more):
        site.api.delete(paths.longhorn("replicas", NAMESPACE, name))
    wait_in_nodes(site, shown(site))
    assert foreign == foreign_in(site, node)


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
    successor = start_leader(site)
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
