"""Claims that get a PersistentVolume which exists: nobody makes them a volume, and so they need no room for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.world.world import World
from controller.model.workload import Claim, PersistentVolume, claim_facts, pv_facts
from controller.rules.demand import demand_of_claim
from tests.fakes.builders import DRIVER, EPOCH, GIB, ONE_LOCAL, TestCluster
from tests.unit.rules.asking import SETTINGS, claim, demand, world

RWO = frozenset({"ReadWriteOnce"})
BLOCK, GOLD = ("Block", ""), ("Filesystem", "gold")


def spare(name: str = "old", gib: float = 1, *, of: str = "", uid: str = "", **fields: Any) -> PersistentVolume:
    """Available; kept for the claim `of`, if any."""
    key = f"ns/{of}" if of else ""
    facts = PersistentVolume(name, DRIVER, name, uid, key, int(gib * GIB), EPOCH, class_name="sc", modes=RWO)
    return replace(facts, **{"is_spare": True, **fields})


def finds(*volumes: PersistentVolume, others: tuple[Claim, ...] = (), **fields: Any) -> bool:
    """Whether the claim counts as one that is bound to one of these volumes, beside other claims."""
    made, wanted = world(**ONE_LOCAL), claim(**{"modes": RWO, **fields})
    for volume in volumes:
        made.put_pv(volume.name, volume)
    for one in (wanted, *others):
        made.put_claim(one.key, one)
    return demand_of_claim(wanted, made, SETTINGS) is None


def other(name: str, **fields: Any) -> Claim:
    return claim(**{"name": name, "uid": name, "modes": RWO, **fields})


@pytest.mark.parametrize(
    ("volume", "fields", "expected"),
    [
        (spare(), {}, True),
        (spare(gib=2), {}, True),
        (spare(gib=0.5), {}, False),
        (spare(is_spare=False), {}, False),
        (spare(class_name="another"), {}, False),
        (spare(), {"modes": RWO | {"ReadWriteMany"}}, False),
        (spare(modes=RWO | {"ReadWriteMany"}), {}, True),
        (spare(), {"form": BLOCK}, False),
        (spare(form=BLOCK), {"form": BLOCK}, True),
        (spare(), {"form": GOLD}, False),
        (spare(of="another"), {}, False),
        (spare(of="c"), {}, True),
        (spare(of="c", uid="u"), {}, True),  # just being bound
        (spare(of="c", uid="an earlier one"), {}, False),
        (spare(), {"selected_node": "n1"}, False),  # kube-scheduler has decided that it is made
    ],
)
def test_a_claim_takes_a_volume_that_suits_it(volume: PersistentVolume, fields: Any, expected: bool) -> None:
    assert expected is finds(volume, **fields)


@pytest.mark.parametrize(
    ("volumes", "others", "expected"),
    [
        ((spare(),), (other("x"),), False),
        ((spare(), spare("older")), (other("x"),), True),
        ((spare(), spare("small", 0.5)), (other("x"),), False),
        ((spare(),), (other("x", requested_bytes=2 * GIB),), True),  # the volume is too small for it
        ((spare(),), (other("x", class_name="another"),), True),
        ((spare(),), (other("x", selected_node="n1"),), True),
        ((spare(),), (other("x", is_deleting=True),), True),
        ((spare(),), (other("x", volume_name="x"),), True),
        ((spare(of="c"),), (other("x"),), True),
    ],
)
def test_it_counts_as_bound_only_where_a_volume_is_left_whoever_is_first(
    volumes: tuple[PersistentVolume, ...], others: tuple[Claim, ...], expected: bool
) -> None:
    assert expected is finds(*volumes, others=others)


def test_a_volume_counts_as_long_as_it_is_there() -> None:
    made = world(**ONE_LOCAL)
    made.put_claim("ns/c", claim(modes=RWO))
    for name in ("old", "older"):
        made.put_pv(name, spare(name))
    copied = made.copy(made._granted)
    made.put_pv("old", None)
    assert demand_of_claim(claim(modes=RWO), made, SETTINGS) is None
    made.put_pv("older", spare("older", is_spare=False))
    assert "pvc-u" == demand(made, claim(modes=RWO)).volume
    assert {} == made.spare_pvs
    assert ["old", "older"] == [one.name for one in copied.spare_pvs["sc"]]


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {"velero.io/dynamic-pv-restore": "ns.c.x2f9k"}}])
def test_nobody_makes_a_volume_for_a_claim_with_a_selector(selector: Any) -> None:
    """velero-io/velero#7946, openebs/dynamic-localpv-provisioner#285: the provisioner refuses it, empty or not, until
    somebody makes a volume that it selects."""
    spec = {"storageClassName": "sc", "resources": {"requests": {"storage": "1Gi"}}}
    raw = {"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": {**spec, "selector": selector}}
    assert demand_of_claim(claim_facts(raw), world(**ONE_LOCAL), SETTINGS) is None
    assert "pvc-u" == demand(world(**ONE_LOCAL), claim_facts({**raw, "spec": {**spec, "selector": None}})).volume


def test_what_the_two_have_to_agree_in_is_read() -> None:
    common = {"volumeMode": "Block", "volumeAttributesClassName": "gold", "accessModes": ["ReadWriteOnce"]}
    meta = {"name": "old", "annotations": {"volume.beta.kubernetes.io/storage-class": "sc"}}
    spec = {**common, "capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "ns", "name": "c"}}
    volume = pv_facts({"metadata": meta, "spec": spec, "status": {"phase": "Available"}})
    of = claim_facts({"metadata": {"name": "c", "namespace": "ns"}, "spec": common})
    assert (("Block", "gold"), RWO) == (volume.form, volume.modes) == (of.form, of.modes)
    assert ("sc", True) == (volume.class_name, volume.is_spare)
    for status, more in (("Released", {}), ("", {}), ("Available", {"deletionTimestamp": EPOCH})):
        assert not pv_facts({"metadata": {**meta, **more}, "spec": spec, "status": {"phase": status}}).is_spare


@pytest.mark.parametrize("is_seen_bound_first", [True, False])
def test_a_pod_returns_to_its_data_where_there_is_no_room_for_more(is_seen_bound_first: bool) -> None:
    """longhorn/longhorn#525, kubernetes/kubernetes#48609: the claim is made again, and its volume was kept."""
    cluster = TestCluster().add_nodes(n1=150, n2=150)
    volume = cluster.add_volume("former", on="n1")
    cluster.drop_claim("former")
    held = spare(volume, 100, class_name="longhorn")
    cluster.allocator.observe_pv(volume, held)
    made = cluster.set_claim(replace(cluster.add_claim("data"), modes=RWO))
    cluster.add_pod("p", "data")

    assert ["n1", "n2"] == sorted(cluster.filter("p", "n1", "n2").passed)
    assert [] == cluster.promised()

    taken = replace(held, claim_uid=made.uid, claim_key=made.key)
    cluster.allocator.observe_pv(volume, taken)
    cluster.change_pod("p", nominated_node="n1")
    if is_seen_bound_first:
        cluster.allocator.observe_pv(volume, replace(taken, is_spare=False))
    cluster.set_claim(replace(made, volume_name=volume))
    cluster.allocator.observe_pv(volume, replace(taken, is_spare=False))
    cluster.bind("p", "n1")
    assert [] == cluster.promised()


def test_worlds_without_such_volumes_pay_nothing() -> None:
    made = World()
    made.put_pv("bound", spare("bound", is_spare=False))
    assert {} == made.spare_pvs
