"""Runs every transcript of this folder, and each once more with a change of leader after every line.

A line is a command, and behind `->` what must come of it. Sizes are GiB, times seconds, and a pod's claim has its name:

    node N D1 [D2 ...]      a node with disks of those sizes
    filter P S on N ...     -> the nodes offered, or none; then `node Reason` of those refused
    share C S P ...         a claim of several nodes that those pods, still to come, use beside their own
    choose P N              the scheduler's choice shows in the claim; `select C N` the same of a shared claim
    touch P                 the pod's claim changes in a way that means nothing
    press N, relieve N      the node's disks come under pressure, or out of it
    provision P, bind P N, attach P N, place P N      what follows it; `run P N` does all of these
    refuse P N              attached to the node, and Longhorn says that it cannot place the replica
    remove P, delete P      the pod goes; the pod goes with its claim, volume and replica
    advance T               time passes, second by second, with the sweeper's work
    ledger                  -> claim node size state; ...

With changes of leader only safety is checked: no node is promised more than its disks hold.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.allocator.outcome import FilterOutcome
from controller.model.longhorn import Disk
from tests.fakes.builders import GIB, TestCluster, disk, node

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


class Stage:
    """Plays the lines of one transcript on a made-up cluster."""

    def __init__(self) -> None:
        self.cluster = TestCluster()
        self.room: dict[str, int] = {}
        self.disks: dict[str, list[Disk]] = {}
        self.sizes: dict[str, float] = {}
        self.chosen: dict[str, str] = {}
        self.placed: dict[str, str] = {}
        self.shared: dict[str, list[str]] = {}  # claims, by pod

    def play(self, line: str) -> str:
        """Do what the line says; what came of it, as the transcript would write it."""
        verb, *words = line.split()
        return str(getattr(self, f"do_{verb}")(*words) or "")

    def do_node(self, name: str, *sizes: str) -> None:
        self.disks[name] = [disk(f"d{index}", float(size)) for index, size in enumerate(sizes, start=1)]
        self.cluster.add_node(name, *self.disks[name])
        self.room[name] = sum(int(size) for size in sizes)

    def do_press(self, name: str) -> None:
        pressed = [replace(entry, schedulable=False, is_under_pressure=True) for entry in self.disks[name]]
        self.cluster.put_node(node(name, *pressed))

    def do_relieve(self, name: str) -> None:
        self.cluster.put_node(node(name, *self.disks[name]))

    def do_share(self, claim: str, size: str, *pods: str) -> None:
        self.cluster.add_class("shared", dataLocality="disabled", numberOfReplicas="1")
        self.cluster.add_claim(claim, float(size), class_name="shared", shared=True)
        for pod in pods:
            self.shared.setdefault(pod, []).append(claim)

    def do_filter(self, pod: str, size: str, _on: str, *nodes: str) -> str:
        if pod not in self.cluster.pods:
            self.cluster.add_pod(pod, pod, *self.shared.get(pod, ()), gib=float(size))
            self.sizes[pod] = float(size)
        return _told(self.cluster.filter(pod, *nodes))

    def do_choose(self, pod: str, node: str) -> None:
        self.cluster.select_node(pod, node)
        self.chosen[pod] = node

    def do_select(self, claim: str, node: str) -> None:
        self.cluster.select_node(claim, node)

    def do_touch(self, pod: str) -> None:
        claim = self.cluster.claims[pod]
        self.cluster.set_claim(replace(claim, requested_bytes=claim.requested_bytes - 1))

    def do_provision(self, pod: str) -> None:
        self.cluster.provision(pod)

    def do_bind(self, pod: str, node: str) -> None:
        self.cluster.bind(pod, node)

    def do_attach(self, pod: str, node: str) -> None:
        self.cluster.attach(self.volume(pod), node, self.sizes[pod], state="attaching")

    def do_refuse(self, pod: str, node: str) -> None:
        self.cluster.attach(self.volume(pod), node, self.sizes[pod], state="attaching", scheduled=False)

    def do_place(self, pod: str, node: str) -> None:
        self.cluster.place(self.volume(pod), node, self.sizes[pod])
        self.placed[pod] = node

    def do_run(self, pod: str, node: str) -> None:
        self.do_provision(pod)
        self.do_bind(pod, node)
        self.do_attach(pod, node)
        self.do_place(pod, node)

    def do_remove(self, pod: str) -> None:
        self.cluster.drop_pod(pod)

    def do_delete(self, pod: str) -> None:
        self.cluster.delete_volume(pod)
        self.chosen.pop(pod, None)
        self.placed.pop(pod, None)

    def do_advance(self, seconds: str) -> None:
        self.cluster.pass_time(int(seconds))

    def do_ledger(self) -> str:
        rows = [
            f"{promise.claim.split('/')[1]} {promise.node} {promise.size_bytes // GIB} {promise.state}"
            for promise in self.cluster.allocator.snapshot().promises
        ]
        return "; ".join(sorted(rows)) or "empty"

    def volume(self, pod: str) -> str:
        return f"pvc-{self.cluster.claims[pod].uid}"

    def promised(self, node: str) -> float:
        """What the cluster itself has promised on the node: placed replicas, and chosen volumes without one."""
        here = {pod for pod, where in self.placed.items() if where == node}
        here |= {pod for pod, where in self.chosen.items() if where == node and pod not in self.placed}
        return sum(self.sizes[pod] for pod in here)


def _told(outcome: FilterOutcome) -> str:
    refused = [f"{node} {reason}" for node, reason in sorted(outcome.refused.items())]
    return "; ".join([" ".join(sorted(outcome.passed)) or "none", *refused])


def lines_of(path: Path) -> list[tuple[str, str | None]]:
    found = []
    for line in path.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text:
            command, arrow, expected = text.partition("->")
            found.append((command.strip(), expected.strip() if arrow else None))
    return found


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_transcript_is_what_happens(path: Path) -> None:
    stage = Stage()
    for command, expected in lines_of(path):
        told = stage.play(command)
        assert expected is None or (command, expected) == (command, told)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_change_of_leader_after_every_line_promises_nothing_twice(path: Path) -> None:
    stage = Stage()
    for command, _ in lines_of(path):
        if command.startswith("choose"):
            _, pod, node = command.split()
            offered = stage.play(f"filter {pod} 1 on {node}").partition(";")[0]
            if node not in offered.split():
                continue  # the new leader did not offer it, so no scheduler chooses it
        elif command.split()[0] in ("provision", "bind", "attach", "place", "run", "refuse"):
            if command.split()[1] not in stage.chosen:
                continue
        stage.play(command)
        stage.cluster.allocator.begin_term()
        for node, room in stage.room.items():
            assert stage.promised(node) <= room
