"""Every call of the allocator's public methods that `bench.lock` measures: one table, in the order in which they are
made. What the allocator offers is named nowhere else in the benchmark but in `bench.lock_world` and `bench.lock_load`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from bench.lock_world import (
    DISK_GIB,
    LIVE,
    LOCAL,
    OFFERS,
    SAMPLE,
    SETTINGS,
    SEVERAL,
    SPREAD,
    TAG,
    TAGGED,
    MadeUp,
)
from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.allocator.plans.ends import GROWTH
from controller.model.longhorn import BackingImage, InstanceManager, SpacePolicy
from controller.model.workload import KubeNode, Pod
from controller.rules.demand import Missing
from tests.fakes.builders import EPOCH

ROUND_SECONDS: Final = 10.0  # after which a wake-up round is cut short
TAGGED_NODES: Final = 5
HOLD_SECONDS, GROWTH_SECONDS, STARVING_SECONDS = 6, 61, 301  # after which what waits is over, or waited for too long
SHARED: Final = "of many pods"
HUGE: Final = 2 * DISK_GIB


@dataclass(frozen=True, slots=True)
class On:
    """`timed` is the allocator whose calls count; `made.allocator` is for preparations. `number` is the call's."""

    timed: Allocator
    made: MadeUp
    number: int

    @property
    def name(self) -> str:
        return self.made.names[self.number * 41 % len(self.made.names)]

    def names(self, count: int = SAMPLE) -> Sequence[str]:
        return self.made.some_names(count, self.number)

    @property
    def running(self) -> Pod:
        return self.made.running[self.number * 13 % len(self.made.running)]

    @property
    def offered(self) -> Pod:
        return self.made.offered[self.number * 13 % len(self.made.offered)]

    @property
    def refused(self) -> tuple[Pod, Sequence[str]]:
        return self.made.refused[self.number % len(self.made.refused)]

    @contextmanager
    def held(self, volumes: int = 1) -> Iterator[tuple[Pod, str, int]]:
        """A new pod that was offered nodes, one of these, and the number of the call."""
        with self.made.a_pod(volumes) as pod:
            outcome = self.made.allocator.hold_pod(pod.uid, self.names(OFFERS))
            yield pod, outcome.passed[0], outcome.serial


@dataclass(frozen=True, slots=True)
class LockCase:
    """`weight`: so many times as often as the others, 0 for as seldom as possible."""

    name: str
    run: Callable[[On], object]
    weight: int = 1


# Filter, prioritize, preempt


def hold_new(volumes: int, candidates: int, class_name: str = LOCAL, gib: int = 2) -> Callable[[On], None]:
    def run(on: On) -> None:
        with on.made.a_pod(volumes, class_name=class_name, gib=gib) as pod:
            on.timed.hold_pod(pod.uid, on.names(candidates))

    return run


def hold_refused(candidates: int) -> Callable[[On], object]:
    return lambda on: on.timed.hold_pod(on.refused[0].uid, on.names(candidates))


def hold_again(on: On) -> None:
    with on.held() as (pod, _, _):
        on.timed.hold_pod(pod.uid, on.names(OFFERS))


def hold_restarted(on: On) -> None:
    """A pod whose volume lies on a node already asks again."""
    pod = on.running
    on.made.put("pod", pod.key, replace(pod, node_name="", created_utc="2026-02-01T00:00:00Z"))
    on.timed.hold_pod(pod.uid, on.names())
    on.made.put("pod", pod.key, pod)


def take_back(on: On) -> None:
    with on.held() as (pod, _, serial):
        on.timed.end_holds(pod.uid, serial)


def ask_elsewhere(on: On) -> None:
    with on.made.a_pod(2) as pod:
        on.timed.nodes_with_room(pod.uid, on.names())
        on.timed.score_nodes(pod.uid, on.names())
        on.timed.score_nodes(pod.uid, on.names(0))
        on.timed.preemption_failed(pod.uid, on.names())
        on.timed.account_of(pod.uid, on.names())


def ask_about_refused(on: On) -> None:
    pod, names = on.refused
    on.timed.nodes_with_room(pod.uid, names[:SAMPLE])
    on.timed.score_nodes(pod.uid, names[:SAMPLE])
    on.timed.account_of(pod.uid, names[:SAMPLE])


def hold_also(on: On) -> None:
    """A stranger asks: the answer adds to the former one."""
    with on.held() as (pod, _, _):
        on.timed.hold_pod(pod.uid, on.names(2 * OFFERS), adds_up=True)


# Small questions


def ask_small(on: On) -> None:
    pod = on.offered
    on.timed.knows_pod(pod.uid, pod.key)
    on.timed.wait_for_pod(pod.uid, pod.key, 0.0)
    on.timed.wait_for_pod("nobody", "ns/nobody", 0.001)
    on.timed.confirm_absent(Missing("claim", "ns", f"gone-{on.number}"))
    on.timed.wait_for_change(on.timed.version, 0.0)
    on.timed.drain_records()
    on.timed.drain_claim_events()
    assert not on.timed.failure


def ask_lists(on: On) -> None:
    on.timed.pending_opted_in()
    on.timed.has_unseen_growth()
    on.timed.next_wakeup_due()
    on.timed.backups_to_read()
    on.timed.shared_disks()
    on.timed.snapshot()
    on.timed.look()


# Loops of the leader


def sweep_after(nodes: int) -> Callable[[On], None]:
    def run(on: On) -> None:
        for name in on.names(nodes):
            on.made.put("node", name, on.made.with_figures(name))
        on.timed.sweep()

    return run


def sweep_unplaced(on: On) -> None:
    """Longhorn has said of some roaming volumes that it cannot place them."""
    for facts in on.made.unplaced[on.number * 20 :][:20]:
        on.made.put("volume", facts.name, replace(facts, scheduled=False))
    on.made.clock.shift += HOLD_SECONDS
    on.timed.sweep()


def end_by_time(on: On) -> None:
    with on.held(2), on.held(4):
        on.made.clock.shift += HOLD_SECONDS
        for due in on.timed.due()[-2:]:
            on.timed.expire(due)
        on.timed.due()


def wake(on: On) -> None:
    """A whole round, after some nodes got a tag that pods wait for."""
    names, end = on.names(TAGGED_NODES), time.monotonic() + ROUND_SECONDS
    on.made.tag(names, TAG)
    is_over = all(time.monotonic() < end for _ in on.timed.wake_slices())
    on.made.wake_rounds["ended" if is_over else "cut short"] += 1
    on.made.tag(names)


def wake_starving(on: On) -> None:
    on.made.clock.shift += STARVING_SECONDS
    wake(on)


# What the cluster shows


def run_and_leave(on: On) -> None:
    """From the scheduler's choice to a placed replica, and away again."""
    made, timed = on.made, on.timed
    with on.held() as (pod, node, _):
        claim = replace(made.claim(pod.volumes[0].claim, 2, LOCAL), selected_node=node)
        name = f"pvc-{claim.uid}"
        timed.observe_claim(claim.key, claim)
        timed.observe_volume(name, made.volume(name, 2, "", is_local=True))
        timed.observe_replica(f"{name}-r", made.replica(f"{name}-r", name, 2))
        claim = replace(claim, volume_name=name)
        timed.observe_pv(name, made.pv(claim))
        timed.observe_claim(claim.key, claim)
        timed.observe_pod(pod.key, replace(pod, node_name=node))
        timed.observe_volume(name, made.volume(name, 2, node, is_local=True))
        timed.observe_replica(f"{name}-r", made.replica(f"{name}-r", name, 2, on=node))
        timed.observe_pod(pod.key, None)
        timed.observe_claim(claim.key, None)
        timed.observe_pv(name, None)
        timed.observe_volume(name, None)
        timed.observe_replica(f"{name}-r", None)


def change_shared(on: On) -> None:
    """A claim that many pods share: its size, the node that it names, its volume; it goes, and comes back."""
    claim = on.made.shared[on.number * 37 % len(on.made.shared)]
    for change in ({"requested_bytes": 5}, {"selected_node": on.name}, {"volume_name": "another"}):
        on.timed.observe_claim(claim.key, replace(claim, **change))
    on.timed.observe_claim(claim.key, None)
    on.timed.observe_claim(claim.key, claim)


def change_sharing(on: On) -> None:
    """One of these pods: its condition; it goes, comes back, and is bound by hand."""
    pod = on.made.sharing[on.number % len(on.made.sharing)]
    on.timed.observe_pod(pod.key, replace(pod, unschedulable_since_utc=EPOCH))
    on.timed.observe_pod(pod.key, None)
    on.timed.observe_pod(pod.key, pod)
    on.timed.observe_pod(pod.key, replace(pod, node_name=on.name))
    on.timed.observe_pod(pod.key, pod)


def end_offered(on: On) -> None:
    """An offered pod and its claim go; another one is nominated and ends."""
    with on.held(2) as (pod, node, _):
        on.timed.observe_pod(pod.key, replace(pod, nominated_node=node))
        on.timed.observe_pod(pod.key, replace(pod, is_finished=True))
        on.timed.observe_pod(pod.key, None)
        on.timed.observe_claim(f"ns/{pod.volumes[0].claim}", None)


def lose_replica(on: On) -> None:
    made = on.made
    name = (
        next(reversed(made.replicas)) if on.number % 2 else f"pvc-{on.running.uid.replace('pod-running', 'uid-data')}"
    )
    facts, lost = made.volumes[name], made.replicas[name][-1]
    on.timed.observe_replica(lost.name, replace(lost, failed_at=EPOCH, healthy_at=""))
    on.timed.observe_volume(name, replace(facts, robustness="degraded"))
    another = replace(lost, name=f"{lost.name}-again", node="", disk_uuid="", healthy_at="")
    on.timed.observe_replica(another.name, another)
    on.timed.lack_of(another.name)
    on.timed.observe_replica(another.name, None)
    on.timed.observe_volume(name, facts)
    on.timed.observe_replica(lost.name, lost)


def change_nodes(on: On) -> None:
    for name in on.names(50):
        on.timed.observe_node(name, on.made.with_figures(name))
    on.timed.observe_kube_node(on.name, KubeNode(on.name, unschedulable=True))


def lose_node(on: On) -> None:
    on.timed.observe_node(on.name, None)
    on.timed.observe_kube_node(on.name, None)
    on.timed.observe_kube_node(on.name, KubeNode(on.name, unschedulable=False))
    on.timed.observe_node(on.name, on.made.nodes[on.name])


def change_engines(on: On) -> None:
    everywhere = frozenset(on.made.names)
    on.timed.observe_engine_image("engine", on.made.engine_image(everywhere - {on.name}))
    on.timed.observe_engine_image("engine", on.made.engine_image(everywhere))
    manager = InstanceManager(f"im-{on.name}", on.name, "v1", "im", "stopped")
    on.timed.observe_instance_manager(manager.name, manager)
    on.timed.observe_instance_manager(manager.name, replace(manager, state="running"))


def change_classes(on: On) -> None:
    """The class that most unbound claims name is deleted and made again."""
    made = on.made.classes[LOCAL]
    on.timed.observe_class(made.name, None)
    on.timed.observe_class(made.name, made)
    on.timed.observe_backing_image("image", BackingImage("image", real_size_bytes=on.number + 1))


# Growth


def grow(on: On) -> None:
    """One after the other: best-effort volumes with one replica, and spread ones, of which many are degraded."""
    made, growths = on.made, on.timed.expansions
    request = made.growth_of(on.number * 7 % made.size.volumes, 2)
    growths.missing(request)
    growths.hold(replace(request, is_dry_run=True))
    growths.hold(request)
    growths.hold(made.growth_of(on.number * 7 % made.size.volumes, HUGE, is_dry_run=True))


def end_growths(on: On) -> None:
    on.made.clock.shift += GROWTH_SECONDS
    growths = [due for due in on.timed.due() if due.claimant == GROWTH]
    for due in growths[:10]:
        on.timed.expire(due)


# Settings and terms


def configure(on: On) -> None:
    """Other live settings, other settings of Longhorn, what is worked out anew after them, and back."""
    on.timed.configure(replace(LIVE, strategy="pack"), SETTINGS)
    other = replace(SETTINGS, space=SpacePolicy(minimal_available_pct=20 + on.number))
    for settings in (other, SETTINGS):
        on.timed.configure(LIVE, settings)
        on.timed.sweep()


def turn(on: On) -> None:
    on.timed.set_mode(Mode.BYPASS)
    on.timed.set_mode(Mode.ACTIVE)
    on.timed.end_term()
    on.timed.begin_term()


CASES: Final = (
    LockCase("of a pod", ask_small, 10),
    LockCase("of all", ask_lists),
    *(
        LockCase(f"new, {what}, {candidates or 'all'} nodes", hold_new(volumes, candidates))
        for volumes, what in ((1, "1 volume"), (2, "2 volumes"), (4, "4 volumes"))
        for candidates in (OFFERS, SAMPLE, 0)
    ),
    *(LockCase(f"new, 2 volumes {kind}, {SAMPLE} nodes", hold_new(2, SAMPLE, kind)) for kind in (SPREAD, SEVERAL)),
    *(
        LockCase(f"new, 4 volumes nowhere, {candidates or 'all'} nodes", hold_new(4, candidates, TAGGED))
        for candidates in (OFFERS, SAMPLE, 0)
    ),
    LockCase(f"new, 1 volume too large, {SAMPLE} nodes", hold_new(1, SAMPLE, LOCAL, HUGE)),
    *(
        LockCase(f"refused, {candidates or 'all'} nodes", hold_refused(candidates))
        for candidates in (OFFERS, SAMPLE, 0)
    ),
    LockCase("offered again", hold_again),
    LockCase("restarted", hold_restarted),
    LockCase("answer lost", take_back),
    LockCase("new pod", ask_elsewhere),
    LockCase("refused pod", ask_about_refused),
    LockCase("offered pod, once more", hold_also),
    LockCase("chosen, run, gone", run_and_leave, 2),
    LockCase("offered, gone", end_offered, 2),
    LockCase(SHARED, change_shared, 5),
    LockCase("shares its claims", change_sharing),
    LockCase("degraded and back", lose_replica, 2),
    LockCase("figures, cordon", change_nodes, 2),
    LockCase("gone and back", lose_node),
    LockCase("engines", change_engines),
    LockCase("new", change_classes),
    LockCase("growth", grow, 2),
    LockCase("quiet", lambda on: on.timed.sweep(), 10),
    *(LockCase(f"after figures of {nodes or 'all'} nodes", sweep_after(nodes)) for nodes in (SAMPLE, 0)),
    LockCase("over", end_by_time),
    LockCase("tagged nodes", wake, 0),
    LockCase("new settings", configure),
)
"""Before the filter calls under load."""

LAST_CASES: Final = (
    LockCase("volumes without a place", sweep_unplaced),
    LockCase("growths over", end_growths),
    LockCase("starving", wake_starving, 0),
    LockCase("turn", turn, 0),
)
"""These wear the world out."""
