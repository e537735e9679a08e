"""A place that was chosen is legal, and no longer once any rule is broken there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.explain import explain
from controller.allocator.choose.legal import legal
from controller.allocator.choose.wanted import Wanted, replica_to_come
from controller.allocator.world.world import World
from controller.model.longhorn import Disk, EngineImage, InstanceManager, LonghornNode, TopologyTerm
from controller.model.places import Place
from controller.rules.eligibility import EXT_LIMIT_BYTES, minimal_available
from controller.rules.reasons import Reason, Rejection
from tests.fakes.builders import LATER
from tests.oracle.worlds import NOW
from tests.unit.choose.random_worlds import questions

ANTI_AFFINITY: Final = (Reason.NODE_ANTI_AFFINITY, Reason.ZONE_ANTI_AFFINITY, Reason.DISK_ANTI_AFFINITY)


@dataclass
class Case:
    """A place that was chosen, to be spoiled."""

    world: World
    wanted: Wanted
    place: Place
    free_bytes: int

    @property
    def node(self) -> LonghornNode:
        return self.world.nodes[self.place.node]

    @property
    def disk(self) -> Disk:
        return next(one for one in self.node.disks if one.uuid == self.place.disk_uuid)

    def check(self) -> Rejection | None:
        volume, replica, planned = self.wanted.volume, self.wanted.replica, self.wanted.planned
        return legal(volume, replica, self.place, planned, self.world, self.free_bytes, NOW)

    def with_node(self, **fields: Any) -> Any:
        return instead(self.world.put_node, self.node, replace(self.node, **fields))

    def with_disk(self, **fields: Any) -> Any:
        spoiled = replace(self.disk, **fields)
        disks = tuple(
            spoiled if one.uuid == spoiled.uuid or one.name == spoiled.name else one for one in self.node.disks
        )
        return self.with_node(disks=disks)

    @contextmanager
    def but(self, **fields: Any) -> Iterator[None]:
        """With other fields of the case itself."""
        before = {name: getattr(self, name) for name in fields}
        vars(self).update(fields)
        yield
        vars(self).update(before)

    def with_volume(self, **fields: Any) -> Any:
        return self.but(wanted=replace(self.wanted, volume=replace(self.wanted.volume, **fields)))

    def with_needs(self, **fields: Any) -> Any:
        return self.with_volume(needs=replace(self.wanted.volume.needs, **fields))

    @contextmanager
    def with_sibling(self, disk_uuid: str, *, planned: bool, **flags: Any) -> Iterator[None]:
        """Another copy on the node of the place, of a volume with these flags."""
        volume = replace(self.wanted.volume, auto_balance="disabled", **flags)
        if planned:
            place = Place(self.place.node, disk_uuid, 1)
            with self.but(wanted=replace(self.wanted, volume=volume, planned=(place,))):
                yield
            return
        there = replace(replica_to_come(volume), name="moved", node=self.place.node, disk_uuid=disk_uuid)
        self.world.put_replica("moved", replace(there, healthy_at=LATER))
        with self.but(wanted=replace(self.wanted, volume=volume)):
            yield
        self.world.put_replica("moved", None)


@contextmanager
def instead(put: Callable[[str, Any], object], before: Any, now: Any) -> Iterator[None]:
    """Another object in place of that one, or none."""
    put(before.name, now)
    yield
    put(before.name, before)


Break = Callable[[Case], Any]


def on_the_node(planned: bool) -> Break:
    flags = {"soft_anti_affinity": "disabled", "zone_soft_anti_affinity": "enabled"}
    return lambda case: case.with_sibling("elsewhere", planned=planned, disk_soft_anti_affinity="enabled", **flags)


def in_the_zone(planned: bool) -> Break:
    flags = {"zone_soft_anti_affinity": "disabled", "disk_soft_anti_affinity": "enabled"}
    return lambda case: case.with_sibling("elsewhere", planned=planned, **flags)


def on_the_disk(planned: bool) -> Break:
    flags = {"soft_anti_affinity": "enabled", "zone_soft_anti_affinity": "enabled"}
    return lambda case: case.with_sibling(
        case.place.disk_uuid, planned=planned, disk_soft_anti_affinity="disabled", **flags
    )


@contextmanager
def a_disk_of_the_same_uuid(case: Case) -> Iterator[None]:
    with case.with_node(disks=(*case.node.disks, replace(case.disk, name="twin"))):
        yield


@contextmanager
def without_engine(case: Case) -> Iterator[None]:
    """Every image is on other nodes alone."""
    images = dict(case.world.engines.images or {})
    spoiled = [replace(one, nodes=one.nodes - {case.place.node}) for one in images.values()]
    for one in (*spoiled, EngineImage("other", "other", "deployed", frozenset())):
        case.world.put_engine_image(one.name, one)
    yield
    case.world.put_engine_image("other", None)
    for one in images.values():
        case.world.put_engine_image(one.name, one)


@contextmanager
def without_manager(case: Case) -> Iterator[None]:
    """Every manager of the node has stopped."""
    managers = (case.world.engines.managers or {}).get(case.place.node, ())
    for one in (*managers, InstanceManager("other", case.place.node, "v1", "im", "running")):
        case.world.put_instance_manager(one.name, replace(one, state="error"))
    yield
    case.world.put_instance_manager("other", None)
    for one in managers:
        case.world.put_instance_manager(one.name, one)


def bound_elsewhere(case: Case) -> Any:
    bound = replace(case.wanted.replica, hard_node_affinity="another-node")
    return case.but(wanted=replace(case.wanted, replica=bound))


def without_image(case: Case) -> Any:
    return instead(case.world.put_backing_image, case.world.backing_images[case.wanted.volume.backing_image], None)


def v2_switched_off(case: Case) -> Any:
    before = case.world.kube_nodes[case.place.node]
    return instead(case.world.put_kube_node, before, replace(before, disables_v2=True))


def most_that_is_too_little(case: Case) -> int:
    return minimal_available(case.disk, case.world.settings.space) + case.wanted.volume.actual_size_bytes


def always(_: Case) -> bool:
    return True


def has_v1(case: Case) -> bool:
    return case.wanted.volume.needs.data_engine == "v1"


def shares_nodes(case: Case) -> bool:
    """Whether tags may be passed over, on a node with a copy."""
    return any(one.node == case.place.node for one in case.world.replicas_of(case.wanted.volume.name).values()) or bool(
        case.wanted.planned
    )


# How to break a rule, and where there is such a rule to break.
BREAKS: Final[dict[str, tuple[Break, Callable[[Case], bool]]]] = {
    "node gone": (lambda case: instead(case.world.put_node, case.node, None), always),
    "node going": (lambda case: case.with_node(deleting=True), always),
    "node not ready": (lambda case: case.with_node(ready=False), always),
    "node not schedulable": (lambda case: case.with_node(schedulable=False), always),
    "node closed": (lambda case: case.with_node(allow_scheduling=False), always),
    "node's tags": (lambda case: case.with_needs(node_selector=("no-such",)), lambda case: not shares_nodes(case)),
    "topology": (lambda case: case.with_needs(topology=(TopologyTerm(zone="no-such"),)), always),
    "bound elsewhere": (bound_elsewhere, lambda case: case.wanted.volume.data_locality != "strict-local"),
    "strict-local elsewhere": (
        lambda case: case.with_volume(data_locality="strict-local", node_id="another-node"),
        always,
    ),
    "engine image gone": (without_engine, has_v1),
    "instance manager gone": (without_manager, always),
    "v2 switched off": (v2_switched_off, lambda case: not has_v1(case) and bool(case.world.kube_nodes)),
    "linked clone without a source": (
        lambda case: case.with_volume(clone_mode="linked-clone", data_source="vol://no-such"),
        lambda case: case.world.settings.behaviour.has_linked_clones,
    ),
    "disk gone": (lambda case: case.with_node(disks=()), always),
    "disk replaced": (lambda case: case.with_disk(uuid="another-uuid"), always),
    "disk of the same UUID": (a_disk_of_the_same_uuid, always),
    "disk closed": (lambda case: case.with_disk(allow_scheduling=False), always),
    "disk evicting": (lambda case: case.with_disk(eviction_requested=True), always),
    "disk not schedulable": (lambda case: case.with_disk(schedulable=False), always),
    "disk's type": (lambda case: case.with_disk(type="block" if case.disk.type != "block" else "filesystem"), always),
    "disk's tags": (lambda case: case.with_needs(disk_selector=("no-such",)), always),
    "file system's limit": (
        lambda case: case.with_volume(size_bytes=EXT_LIMIT_BYTES),
        lambda case: has_v1(case) and case.disk.filesystem == "ext4",
    ),
    "too little available": (lambda case: case.with_disk(available_bytes=most_that_is_too_little(case)), always),
    "bytes short by one": (lambda case: case.but(free_bytes=case.place.size_bytes - 1), always),
    "a byte too few taken": (
        lambda case: case.but(place=replace(case.place, size_bytes=case.place.size_bytes - 1)),
        always,
    ),
    "backing image gone": (without_image, lambda case: bool(case.wanted.volume.backing_image)),
    "sibling on the node": (on_the_node(planned=False), always),
    "sibling planned on the node": (on_the_node(planned=True), always),
    "sibling in the zone": (in_the_zone(planned=False), always),
    "sibling planned in the zone": (in_the_zone(planned=True), always),
    "sibling on the disk": (on_the_disk(planned=False), always),
    "sibling planned on the disk": (on_the_disk(planned=True), always),
}
SELDOM: Final = ("v2 switched off", "backing image gone")


def test_each_place_that_is_chosen_is_legal_until_any_rule_is_broken_there() -> None:
    broken: Counter[str] = Counter()
    for world, wanted, taken in questions(44, 300):
        found = Chooser(world).choose(wanted, taken, NOW)
        if found.place is None:
            continue
        room = world.room(found.place.node)
        assert room is not None
        seen = next(one.free_bytes for one in room.disks if one.name == found.disk)
        free = seen - taken.taken_bytes(found.place.node, found.place.disk_uuid)
        case = Case(world, wanted, found.place, free)
        assert case.check() is None
        for name, (spoil, applies) in BREAKS.items():
            if applies(case):
                with spoil(case):
                    assert case.check() is not None, name
                broken[name] += 1
        assert case.check() is None
    assert [] == [name for name in BREAKS if broken[name] < (1 if name in SELDOM else 40)], broken


def test_every_candidate_is_legal_and_what_is_refused_by_a_rule_is_not() -> None:
    """But for anti-affinity, which also orders the tries, and for fresh copies on other disks, which old releases
    count."""
    refused: Counter[Reason] = Counter()
    legal_ones = 0
    for world, asked_for, taken in questions(45, 300):
        wanted = replace(asked_for, only=None)
        told = explain(wanted, world, taken, NOW)
        names = {(node.name, disk.name): disk.uuid for node in world.nodes.values() for disk in node.disks}

        def check(node: str, disk: str, wanted: Wanted = wanted, told: Any = told, world: World = world) -> Any:
            known = told.figures.get((node, disk))
            uuid = next(one.uuid for one in world.nodes[node].disks if one.name == disk)
            more = 0 if known is None else known.image_bytes
            place = Place(node, uuid, wanted.volume.size_bytes + more)
            free = 0 if known is None else known.free_bytes
            return Case(world, wanted, place, free).check()

        for one in told.found.candidates:
            assert check(one.node, one.disk) is None
            legal_ones += 1
        for refusal in told.found.refusals:
            reason = refusal.rejection.reason
            known = told.figures.get((refusal.node, refusal.disk))
            fits = known is not None and wanted.volume.size_bytes + known.image_bytes <= known.free_bytes
            is_of_old_release = reason is Reason.INSUFFICIENT_STORAGE and fits
            if reason in ANTI_AFFINITY or not refusal.node or is_of_old_release:
                continue
            for node, disk in names:
                if node == refusal.node and refusal.disk in ("", disk):
                    assert check(node, disk) is not None, refusal
                    refused[reason] += 1
    assert legal_ones > 300
    assert len(refused) >= 12, refused


@pytest.mark.parametrize("evicting", [True, False])
def test_a_copy_that_is_evicted_gives_way(evicting: bool) -> None:
    for world, wanted, taken in questions(44, 20):
        found = Chooser(world).choose(wanted, taken, NOW)
        if found.place is None or any(one.node for one in world.replicas_of(wanted.volume.name).values()):
            continue
        case = Case(world, replace(wanted, planned=()), found.place, found.place.size_bytes)
        with case.with_sibling(
            "elsewhere", planned=False, soft_anti_affinity="disabled", zone_soft_anti_affinity="enabled"
        ):
            there = world.replicas_of(wanted.volume.name)["moved"]
            world.put_replica("moved", replace(there, eviction_requested=evicting))
            assert evicting is (case.check() is None)
