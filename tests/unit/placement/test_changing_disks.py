"""What is on record by a disk's name stays with that disk, whatever it is called since, and whatever has its name."""

from __future__ import annotations

from typing import Any

import pytest

from controller.errors import PreconditionError
from controller.kube.resources import LONGHORN_NODES
from controller.model.allocations import Allocation, Drop, Purpose, Put
from tests.fakes.builders import GIB
from tests.unit.placement.late import SECONDS, free_gib
from tests.unit.placement.stage import NAMESPACE, PlacingLeader, ReplicaCell

FIRST = "n1-d1"


def show_disks(leader: PlacingLeader, **uuids: str) -> None:
    """The node's disks from now on, by their names: the first one, and others of 10 GiB."""
    raw = leader.cell.api.get(LONGHORN_NODES, NAMESPACE, "n1")
    spec, status = raw["spec"]["disks"], raw["status"]["diskStatus"]
    wanted, known = next(iter(spec.values())), next(iter(status.values()))

    def shown(uuid: str) -> dict[str, Any]:
        size = (100 if uuid == FIRST else 10) * GIB
        return {**known, "diskUUID": uuid, "storageMaximum": size, "storageAvailable": size}

    raw["spec"]["disks"] = dict.fromkeys(uuids, wanted)
    raw["status"]["diskStatus"] = {name: shown(uuid) for name, uuid in uuids.items()}
    leader.cell.api.put(LONGHORN_NODES, NAMESPACE, raw)
    leader.see()


SWAPPED = {"d1": "other", "d2": FIRST}


@pytest.mark.parametrize("steps", [[SWAPPED], [{"d2": FIRST}, SWAPPED]], ids=["at once", "in two steps"])
def test_what_was_given_stays_on_its_disk_when_another_one_gets_its_name(steps: list[dict[str, str]]) -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = PlacingLeader(cell)
    leader.giving.place("v", first, SECONDS)
    leader.see()
    for disks in steps:
        show_disks(leader, **disks)
    assert not leader.giving.place("w", second, SECONDS).allocations
    with pytest.raises(PreconditionError, match="deallocate it"):  # another leader may take it for the other disk's
        leader.giving.place("v", first, SECONDS)


def test_what_was_given_does_not_go_to_another_disk_in_the_place_of_its_own() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v", 60)
    leader = PlacingLeader(cell)
    leader.giving.place("v", name, SECONDS)
    leader.see()
    show_disks(leader, d1="other")
    with pytest.raises(PreconditionError, match="deallocate it"):
        leader.giving.place("v", name, SECONDS)
    show_disks(leader, d1=FIRST)
    assert FIRST == leader.giving.place("v", name, SECONDS).disk_uuid


@pytest.mark.parametrize("purpose", list(Purpose))
@pytest.mark.parametrize(("former", "present"), [(60, 40), (40, 60)])
def test_of_two_entries_by_a_disks_former_and_present_name_the_larger_counts(
    purpose: Purpose, former: int, present: int
) -> None:
    leader = PlacingLeader(ReplicaCell(n1=100))
    leader.commit(Put(Allocation(purpose, "one", "n1", "d1", former * GIB)))
    show_disks(leader, x1=FIRST)
    leader.commit(Put(Allocation(purpose, "one", "n1", "x1", present * GIB)))
    free = [free_gib(leader.see())]
    for name in ("d1", "x1"):
        leader.commit(Drop(purpose, "one", "n1", name))
        free.append(free_gib(leader.see()))
    assert [40, 100 - present, 100] == free
