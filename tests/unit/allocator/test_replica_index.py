"""Replicas by volume and by disk: an index is changed in place, and a copy of it never with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from controller.allocator.world.replicas import ReplicaIndex
from controller.model.longhorn import Replica

NAMES, VOLUMES, DISKS = ("r1", "r2", "r3", "r4"), ("v1", "v2"), ("", "d1", "d2")


@dataclass(slots=True)
class Pair:
    """An index, and what it has to show."""

    index: ReplicaIndex = field(default_factory=lambda: ReplicaIndex(lambda _: None))
    model: dict[str, Replica] = field(default_factory=dict)

    def put(self, name: str, replica: Replica | None) -> None:
        self.index.put(name, replica)
        self.model.pop(name, None)
        if replica is not None:
            self.model[name] = replica

    def check(self) -> None:
        shown = list(self.model.values())
        for volume in VOLUMES:
            assert [one for one in shown if one.volume == volume] == list(self.index.of(volume).values())
        for disk in DISKS[1:]:
            assert [one for one in shown if one.disk_uuid == disk] == list(self.index.on(disk))


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, Replica | None]]:
    """Replicas that come, move and go; a name without a place for one, "copy", takes a copy."""
    name = st.sampled_from((*NAMES, "copy"))
    found = []
    for key in draw(st.lists(name, max_size=30)):
        made = Replica(key, draw(st.sampled_from(VOLUMES)), 1, disk_uuid=draw(st.sampled_from(DISKS)))
        found.append((key, draw(st.sampled_from((made, made, None)))))
    return found


@given(steps())
def test_an_index_shows_what_was_put_and_a_copy_what_was_there(given_steps: list[tuple[str, Replica | None]]) -> None:
    pair, copies = Pair(), list[Pair]()
    for name, replica in given_steps:
        if name == "copy":
            copies.append(Pair(pair.index.copy(), dict(pair.model)))
        else:
            pair.put(name, replica)
        for one in (pair, *copies):
            one.check()
