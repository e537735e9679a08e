"""The second invariant: nothing stays taken without a reason.

No hold outlives its pod, and no plan its claim. At the end everything comes to rest: every pod runs with all placed or
is gone, every watch has delivered, minutes pass with the sweeper at work. Then nothing is taken any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from controller.model.workload import Pod
from tests.fakes.builders import GIB
from tests.race.longhorn import RaceLonghorn
from tests.race.placer import RacePlacer
from tests.race.scheduler import RaceScheduler
from tests.race.users import Users
from tests.race.world import RaceWorld

MOST_STEPS: Final = 400
QUIET_SECONDS: Final = 12  # longer than anything waits that nothing but time ends
# Longer than a growth that is asked for again and again is held, and than anything else; in the sweeper's steps.
STEPS_SECONDS: Final = (0.3, 1, 3, 6, 6, 15, 30, 30, 60, 60, 60, 120, 120, 120, 120)
# What belongs to work under way, by the words of its text; everything else is trouble or chance.
_WORK: Final = (
    " is provisioned",
    " is placed",
    " finds no disk",
    " follow",
    " is up",
    " is rebuilt",
    " gets a copy on",
    " is one too many",
    " gets a new copy",
    " has left its disk",
    " grows",
    " is deleted",
    " is detached",
)


class Ending:
    """Brings a world to rest."""

    def __init__(
        self, world: RaceWorld, scheduler: RaceScheduler, longhorn: RaceLonghorn, placer: RacePlacer, users: Users
    ) -> None:
        self._world, self._scheduler, self._longhorn = world, scheduler, longhorn
        self._placer, self._users = placer, users

    def go_on(self) -> None:
        """What is under way comes to its end: bindings, and what Longhorn and the leader do for bound pods."""
        self._world.log.append("all that is under way goes on")
        for current in list(self._world.rounds.values()):
            pod = self._world.pods.get(current.key)
            if pod is not None and not current.is_gated:
                self._finish_binding(pod)
        self._work()

    def come_to_rest(self, *, has_more_disks: bool = False, keeps_waiting: bool = False) -> None:
        """`keeps_waiting`: pods that nobody is at work on stay. `has_more_disks`: everything finds room in the end;
        else what finds none stays without."""
        world = self._world
        world.log.append("everything comes to rest")
        self._repair(has_more_disks)
        for current in list(world.rounds.values()):
            pod = world.pods.get(current.key)
            if pod is None or current.is_gated or (keeps_waiting and not (current.picked or pod.node_name)):
                continue
            if not self._finish_binding(pod):
                self._go(pod)
        self._work()
        for pod in list(world.pods.values()):
            if pod.node_name and not self._runs(pod):
                self._go(pod)
        self._work()
        world.deliver_all()
        for seconds in STEPS_SECONDS:
            world.sweep(seconds)
            world.deliver_all()

    def _go(self, pod: Pod) -> None:
        self._world.log.append(f"{pod.key} is deleted")
        self._users.delete(pod)

    def _repair(self, has_more_disks: bool) -> None:
        world = self._world
        for manager in list(world.managers.values()):
            world.write("instance_manager", manager.name, replace(manager, state="running"))
        for node in list(world.nodes.values()):
            more = 1000 * GIB if has_more_disks else 0
            disks = (
                replace(
                    disk,
                    schedulable=True,
                    is_under_pressure=False,
                    maximum_bytes=disk.maximum_bytes + more,
                    available_bytes=disk.available_bytes + more,
                )
                for disk in node.disks
            )
            world.write("node", node.name, replace(node, disks=tuple(disks)))
        for entry in [entry for entry in world.replicas.values() if entry.eviction_requested]:
            world.write("replica", entry.name, replace(entry, eviction_requested=False))

    def _finish_binding(self, pod: Pod) -> bool:
        """Whether the pod is bound, by now or before."""
        current = self._world.rounds[pod.key]
        for _ in range(20):
            pod = self._world.pods[pod.key]
            if pod.node_name or not current.picked:
                break
            step = self._scheduler.next_step(current, pod)
            if step is None:
                if not self._provision(pod):
                    break
                continue
            self._world.do(step)
        return bool(self._world.pods[pod.key].node_name)

    def _provision(self, pod: Pod) -> bool:
        keys = {f"{claim.key} is provisioned" for claim in self._world.claims_of(pod)}
        for action in self._longhorn.actions():
            if action[0] in keys:
                self._world.do(action)
                return True
        return False

    def _work(self) -> None:
        """Let Longhorn and the leader finish what they have begun."""
        quiet_seconds = 0
        for _ in range(MOST_STEPS):
            found = [action for action in self._longhorn.actions() if _is_work(action[0])]
            for action in found[:1]:
                self._world.do(action)
            self._world.deliver_all()
            before = self._world.serial
            self._placer.turn()
            self._placer.finish()
            if found or self._world.serial != before:
                quiet_seconds = 0
                continue
            if quiet_seconds >= QUIET_SECONDS:
                return
            self._world.sweep(1.0)
            quiet_seconds += 1
        raise RuntimeError("the cluster never comes to rest")

    def _runs(self, pod: Pod) -> bool:
        """Whether the pod is bound, and every volume of it is attached with all its copies."""
        world = self._world
        return bool(pod.node_name) and all(
            world.volume_of(claim).state == "attached" and world.volume_of(claim).robustness == "healthy"
            for claim in world.claims_of(pod)
        )

    def check(self) -> None:
        """At rest nothing is taken but what is kept for pods that still wait."""
        left = "\n".join(f"    {one}" for one in self._world.driver.left())
        self._world.check(not left, f"still taken when all is quiet:\n{left}")


def check_reasons(world: RaceWorld) -> None:
    """Checks that each hold has its pod and each plan its claim; asked when every watch has delivered."""
    pods = {pod.uid for pod in world.pods.values() if not pod.is_finished}
    world.check(world.driver.holders() <= pods, f"{world.driver.holders() - pods} hold room, and are gone")
    claimed = {f"pvc-{claim.uid}" for claim in world.claims.values()}
    gone = world.driver.planned() - claimed
    world.check(not gone, f"{gone} have plans, and no claims")


def _is_work(text: str) -> bool:
    return any(word in text for word in _WORK) or " is attached to n" in text
