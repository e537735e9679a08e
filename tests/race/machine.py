"""The machine: every rule draws one of the things that may happen next in the made-up world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.race.allocations import Allocations
from tests.race.callers import Callers, Course
from tests.race.counts import CountsInvariant
from tests.race.ending import Ending, check_reasons
from tests.race.invariants import ALLOCATIONS, COUNTS, INVARIANTS, LIMITS, REASONS, STARVATION
from tests.race.limits import Limits
from tests.race.longhorn import RaceLonghorn
from tests.race.placer import RacePlacer
from tests.race.record import WriteFault
from tests.race.scheduler import RaceScheduler
from tests.race.shapes import CLUSTERS, PODS, ClusterShape, PodShape, VolumeShape
from tests.race.starvation import Starvation
from tests.race.users import MOST_PODS, Users
from tests.race.world import Action, RaceWorld, SchedulingRound

PASSING_SECONDS = (0.1, 1.0, 3.0, 6.0, 12.0, 40.0, 100.0, 310.0)
LATE_PODS: Final = [
    PodShape((VolumeShape(kind, gib),), is_opted_in=True, is_gated=False, is_second=False)
    for kind, gib in (("local", 1), ("local", 2), ("free", 2))
]


@dataclass(frozen=True)
class CourseShape:
    """What happens around a call: to its writes, before its answer, and before its write."""

    faults: tuple[WriteFault, ...]
    is_meanwhile: bool
    is_beforehand: bool
    is_overtaken: bool


_FAULTS: Final = (
    (WriteFault.LOST,),
    (WriteFault.UNANSWERED,),
    (WriteFault.LAST,),
    (WriteFault.NONE, WriteFault.LAST),
    (WriteFault.OVERTAKEN,),
    (WriteFault.AWAY,),
    (WriteFault.NONE, WriteFault.AWAY),
    (WriteFault.LOST,) * 4,
    (WriteFault.UNANSWERED, *(WriteFault.LOST,) * 4),
    (WriteFault.LATE,) * 4,
    (WriteFault.NONE, *(WriteFault.LOST,) * 4),
    (WriteFault.NONE, *(WriteFault.LATE,) * 4),
    (WriteFault.LATE, WriteFault.NONE),
    (WriteFault.LATE, WriteFault.REFUSED),
    (WriteFault.REFUSED,),
    (WriteFault.NONE, WriteFault.REFUSED),
    (WriteFault.PRUNED,),
)
COURSES: Final = st.builds(
    CourseShape,
    st.sampled_from(((), (), (), *_FAULTS)),
    st.sampled_from((False, False, True)),
    st.sampled_from((False, False, True)),
    st.booleans(),
)
_CHOICE = st.integers(0, 2**16)


class Race(RuleBasedStateMachine):
    """Subclasses name the invariant that is checked; nothing is ever in quarantine."""

    checked = COUNTS
    examples = 0  # that were begun

    world: RaceWorld
    was_idle = False  # nothing has happened since time passed

    def __init__(self) -> None:
        super().__init__()
        type(self).examples += 1

    @initialize(shape=CLUSTERS, pod=PODS)
    def begin(self, shape: ClusterShape, pod: PodShape) -> None:
        self.world = RaceWorld(shape, self.checked)
        self.world.log.append(f"  {shape}")
        self.users, self.scheduler = Users(self.world), RaceScheduler(self.world)
        self.limits = Limits(self.world)
        self.placer = RacePlacer(self.world, self.limits if self.checked == LIMITS else None)
        self.longhorn = RaceLonghorn(self.world, self.placer.is_open)
        self.counts, self.starvation = CountsInvariant(self.world), Starvation(self.world)
        if self.checked == ALLOCATIONS:
            self.allocations = Allocations(self.world)
            self.callers = Callers(self.world, self.longhorn, self.allocations)
        self.ending = Ending(self.world, self.scheduler, self.longhorn, self.placer, self.users)
        self.users.create(pod)

    def act(self, actions: list[Action], choice: int) -> None:
        if actions:
            self.was_idle = False
            self.world.do(actions[choice % len(actions)])

    # Users and machines

    @precondition(lambda self: len(self.world.pods) < MOST_PODS)
    @rule(pod=PODS)
    def create(self, pod: PodShape) -> None:
        self.world.log.append("a pod is made")
        self.was_idle = False
        self.users.create(pod)

    @rule(choice=_CHOICE, kind=st.integers(0, 5))
    def disturb(self, choice: int, kind: int) -> None:
        """Pods go or change, volumes grow, disks, replicas and managers fail, preemption nominates."""
        if self.checked == LIMITS and self.world.shape.is_calm:
            self.act(self.users.growths(), choice)
            return
        kinds = (self.users.actions, self.users.growths, self.users.troubles, self.scheduler.nominations)
        self.act(kinds[kind % 4]() or self.users.actions(), choice)

    @precondition(lambda self: self.checked == COUNTS and self.users.neighbours())
    @rule(choice=_CHOICE)
    def grow_side_by_side(self, choice: int) -> None:
        """Two volumes ask for the same bytes, one right after the other, perhaps of two leaders."""
        pairs = self.users.neighbours()
        self.was_idle = False
        for index, claim in enumerate(pairs[choice % len(pairs)]):
            if index and choice % 3:
                self.world.log.append("the leader changes")
                self.world.change_leader(choice % 3)
            self.users.ask_all_that_is_left(claim)

    # kube-scheduler

    @precondition(lambda self: self.scheduler.askable())
    @rule(choice=_CHOICE, mask=st.integers(1, 15), steps=st.integers(0, 7))
    def filter(self, choice: int, mask: int, steps: int) -> None:
        """A question, and what follows from the answer at once: a choice, and so many writes of it."""
        askable = self.scheduler.askable()
        current = askable[choice % len(askable)]
        self.ask(current, self.scheduler.candidates(current, mask if choice % 2 else -1), choice, steps)

    @precondition(lambda self: self.scheduler.askable())
    @rule(choice=_CHOICE, steps=st.integers(0, 5))
    def filter_everybody(self, choice: int, steps: int) -> None:
        for current in self.scheduler.askable():
            self.ask(current, self.scheduler.candidates(current, -1), choice, steps)

    def ask(self, current: SchedulingRound, candidates: list[str], choice: int, steps: int) -> None:
        self.world.log.append(f"a scheduler asks about {current.key}")
        self.was_idle = False
        pod = self.world.pods[current.key]
        fitting = self.starvation.fitting(pod, candidates) if self.checked == STARVATION else []
        answer = self.scheduler.ask(current, candidates)
        self.starvation.check(pod, fitting, answer)
        if not steps or not current.offered:
            return
        passed = sorted(current.offered)
        self.scheduler.pick(current, passed[choice // 7 % len(passed)])
        self.world.log.append(f"{current.key} goes to {current.picked}")
        if self.checked == ALLOCATIONS and choice % 3 == 0:
            asking = [one for one in self.longhorn.actions() if one[0].endswith(" asks for a disk")]
            self.act(asking + self.callers.newcomers(), choice // 3)  # before anything shows the choice
        for _ in range(steps - 1):
            pod = self.world.pods[current.key]
            step = self.scheduler.next_step(current, pod) if pod.is_pending else None
            self.act([step] if step is not None else [], 0)

    @precondition(lambda self: self.world.shape.has_strangers and self.world.pods and self.checked != STARVATION)
    @rule(choice=_CHOICE, mask=st.integers(0, 15), count=st.integers(1, 3))
    def strangers_ask(self, choice: int, mask: int, count: int) -> None:
        """Somebody who is no scheduler asks about pods, at any moment, with any nodes or none; perhaps also whom it may
        evict. What he is answered nobody acts on."""
        for pod in sorted(self.world.pods.values(), key=lambda pod: pod.uid)[choice % len(self.world.pods) :][:count]:
            names = [name for index, name in enumerate(self.world.nodes) if mask & (1 << index)]
            self.world.log.append(f"a stranger asks about {pod.key}, {names}")
            self.was_idle = False
            if choice % 5 == 0:
                self.world.driver.nodes_with_room(pod, names, self.world.read)
            else:
                answer = self.world.driver.filter_pod(pod, names, self.world.read)
                if answer is not None:
                    self.world.told.answered(pod, answer)

    @precondition(lambda self: self.scheduler.actions())
    @rule(choice=_CHOICE)
    def schedule(self, choice: int) -> None:
        self.act(self.scheduler.actions(), choice)

    # The leader's places

    @precondition(lambda self: self.checked != ALLOCATIONS and self.placer.actions())
    @rule(choice=_CHOICE, count=st.integers(1, 3))
    def place(self, choice: int, count: int) -> None:
        for _ in range(count):
            self.act(self.placer.actions(), choice)
            choice //= 7

    @precondition(lambda self: self.checked != ALLOCATIONS)
    @rule(is_stored=st.booleans(), choice=_CHOICE)
    def loop_turns(self, is_stored: bool, choice: int) -> None:
        """All are looked at, and perhaps all that is under way is stored."""
        self.world.log.append("the leader's loop turns")
        self.placer.turn()
        if choice % 2:
            self.placer.finish()
        if is_stored:
            self.world.log.append("plans are stored")
            self.world.store()

    # Longhorn

    @precondition(lambda self: self.longhorn.actions())
    @rule(choice=_CHOICE)
    def longhorn_does(self, choice: int) -> None:
        self.act(self.longhorn.actions(), choice)

    @precondition(lambda self: self.scheduler.steps_under_way() or self.longhorn.actions())
    @rule(choice=_CHOICE, count=st.integers(2, 12))
    def work_goes_on(self, choice: int, count: int) -> None:
        """Several steps of Longhorn, of the leader and of bindings under way."""
        for _ in range(count):
            places = self.placer.actions() if self.checked != ALLOCATIONS else []
            self.act(self.scheduler.steps_under_way() + self.longhorn.actions() + places, choice)
            choice = (choice * 1103515245 + 12345) & 0x7FFFFFFF

    # Who asks for room by name

    @precondition(lambda self: self.checked == ALLOCATIONS)
    @rule(choice=_CHOICE)
    def callers_do(self, choice: int) -> None:
        self.act(self.callers.actions(), choice)

    @precondition(lambda self: self.checked == ALLOCATIONS)
    @rule(choice=_CHOICE, course=COURSES, follows=st.integers(0, 2**8))
    def call(self, choice: int, course: CourseShape, follows: int) -> None:
        """A call with trouble on its way: its writes fail, or others come in between."""
        calls = [one for one in self.longhorn.actions() + self.callers.actions() if " asks " in one[0]]
        if not calls:
            return

        def meanwhile() -> None:
            others = self.scheduler.actions() + self.users.growths() + self.scheduler.steps_under_way()
            if follows % 5 == 0:
                self.world.log.append("  meanwhile the leader changes")
                self.world.change_leader(follows)
            elif follows % 5 == 1 and self.scheduler.askable():
                askable = self.scheduler.askable()
                current = askable[follows % len(askable)]
                self.ask(current, self.scheduler.candidates(current, -1), follows, 0)
            elif follows % 5 == 2:
                self.world.deliver_all()
            elif others:
                text, act = others[follows % len(others)]
                self.world.do((f"  meanwhile {text}", act))

        def beforehand() -> None:
            # Of what the same volume was given nobody has heard yet, though it counts.
            asker = calls[choice % len(calls)][0].split()[0]
            volume = asker.rpartition("-r")[0] or asker
            others = [one for one in self.callers.actions() + calls if volume not in one[0]]
            if not others:
                return
            text, act = others[follows % len(others)]
            self.world.do((f"  meanwhile {text}", act))

        self.callers.course = Course(
            course.faults,
            meanwhile if course.is_meanwhile else None,
            beforehand if course.is_beforehand else None,
            course.is_overtaken,
        )
        self.act(calls, choice)

    # Watches, time, leaders

    @precondition(lambda self: self.world.waiting())
    @rule(choice=_CHOICE, count=st.integers(1, 6))
    def deliver(self, choice: int, count: int) -> None:
        waiting = self.world.waiting()
        kind = waiting[choice % len(waiting)]
        self.world.log.append(f"{count} events of {kind}")
        self.world.deliver(kind, count)

    @precondition(lambda self: self.world.waiting())
    @rule()
    def deliver_all(self) -> None:
        self.world.log.append("all events")
        self.world.deliver_all()

    @precondition(lambda self: not self.was_idle)
    @rule(seconds=st.sampled_from(PASSING_SECONDS), choice=_CHOICE)
    def later(self, seconds: float, choice: int) -> None:
        """Time passes, or another leader takes over."""
        if choice % 3:
            self.world.log.append(f"{seconds:g} s pass")
            self.world.sweep(seconds)
        else:
            self.world.log.append("the leader changes" if choice // 3 % 3 else "a new term begins")
            self.world.change_leader(choice // 3)
        self.was_idle = True

    # What must hold

    @invariant()
    def what_is_checked_holds(self) -> None:
        if self.checked == ALLOCATIONS:
            self.allocations.check()
        elif self.world.waiting() or not self.placer.is_idle:
            return
        elif self.checked == COUNTS:
            self.counts.check()
        elif self.checked == REASONS:
            check_reasons(self.world)

    @invariant()
    def nothing_is_in_quarantine(self) -> None:
        found = self.world.driver.quarantined()
        self.world.check(not found, f"in quarantine: {found}")

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if self.checked == REASONS:
            serial = self.world.serial
            self.ending.come_to_rest(has_more_disks=bool(serial % 2), keeps_waiting=bool(serial // 2 % 2))
            self.ending.check()
        elif self.checked == STARVATION:
            self.ending.come_to_rest(keeps_waiting=True)
            self.everybody_asks()
        elif self.checked == LIMITS:
            self.ending.go_on()
            self.limits.check_at_rest()
        elif self.checked == ALLOCATIONS:
            self.callers.come_to_rest()
            self.allocations.check()
            self.allocations.check_at_rest()
        self.nothing_is_in_quarantine()

    def everybody_asks(self) -> None:
        """All that wait, and a small pod that comes late, perhaps first of all, perhaps right after a change of the
        leader."""
        if self.world.serial % 2:
            self.world.log.append("the leader changes")
            self.world.change_leader(1)
        self.users.create(LATE_PODS[self.world.serial % len(LATE_PODS)])
        self.world.deliver_all()
        askable = self.scheduler.askable()
        for current in reversed(askable) if self.world.serial // 2 % 2 else askable:
            self.ask(current, self.scheduler.candidates(current, -1), 0, 0)


def machine_for(name: str) -> type[Race]:
    """The machine that checks that invariant."""
    assert name in INVARIANTS
    return type(f"Race_{name}", (Race,), {"checked": name})
