"""One run of the mixed race: pods are created, leaders killed, and volumes grown."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tests.cluster.client import ApiError, Object
from tests.e2e import scheduling, workloads
from tests.e2e.checker import Report
from tests.e2e.harness import CONFIG_MAP, GIB, STOCK_SCHEDULER, Cell, Scene
from tests.e2e.mixed_plan import KINDS, MixedPlan, PlannedPod, claim_object, ephemeral_volume
from tests.e2e.programs import leader_address
from tests.e2e.told import told_in
from tests.e2e.view import LONGHORN_REPLICAS
from tests.e2e.webhooks import VALIDATING, VALIDATING_CONFIGURATION, Webhook
from tests.waiting import wait_until

SECOND_SCHEDULER: Final = "second-scheduler"
CONTROLLERS: Final = 2
KILL_AT: Final = (0.2, 0.45, 0.7)  # of the pods are bound
FIRST_BURST: Final = 0.6  # of the pods are created at once
BURSTS: Final = 4
BURST_SECONDS, GROW_SECONDS, LOOK_SECONDS = 6.0, 1.5, 1.0
QUIET_SECONDS: Final = 75.0  # nothing new for so long: that was all
NO_DISK_SECONDS: Final = 60.0
MOST_SECONDS: Final = 900.0


class MixedCell(Cell):
    """Nodes with these disks, and a class for each kind of volume. Threads: one at a time."""

    def __init__(self, scene: Scene, name: str, plan: MixedPlan) -> None:
        super().__init__(scene, name, nodes=0, fillers=0)
        for kind in KINDS.values():
            self.add_class(kind.name, locality=kind.locality, replicas=kind.copies)
        for number, disks in enumerate(plan.disks_gib, 1):
            self.add_node(f"{name}-n{number}", disks)
        self.renew()

    def class_of(self, kind: str) -> str:
        return f"longhorn-{self.name}-{kind}"

    def add(self, planned: PlannedPod, *, with_extender: bool, scheduler: str) -> None:
        names = tuple(claim.name for claim in planned.claims)
        body = workloads.pod(
            planned.name, *names, opted_in=with_extender, selector=self.selector, schedulerName=scheduler
        )
        if planned.ephemeral_gib:
            body["spec"]["volumes"].append(ephemeral_volume(planned, self.class_of("one")))
        self.create("pods", body)


@dataclass(slots=True)
class MixedFound:
    """What a run came to, besides the verdict."""

    seconds: float = 0.0
    kills: int = 0
    grown: int = 0
    not_grown: int = 0


class MixedRun:
    """Does a little of everything at each turn until nothing happens any more. Threads: one.

    The stand-in for Longhorn attaches a shared volume to one node at a time, so that its pods on other nodes are bound
    and never ready.
    """

    def __init__(
        self, scene: Scene, plan: MixedPlan, seed: int, *, with_extender: bool, progress: Callable[[str], None]
    ) -> None:
        self.scene, self.plan, self.with_extender = scene, plan, with_extender
        self.found = MixedFound()
        self._progress = progress
        self._dice = random.Random(seed)
        self._is_led = with_extender
        self._due = dict.fromkeys(("burst", "grow", "look"), 0.0)
        self._seen: tuple[int, ...] = ()
        self._seen_at = 0.0
        self._is_done = False
        if with_extender:
            self._start_product()
        else:
            scene.start_stock_scheduler()
        self.cell = MixedCell(scene, "mixed", plan)
        self._created: set[str] = set()
        self._bursts = self._plan_bursts()

    def _start_product(self) -> None:
        scene = self.scene
        scene.api.patch(CONFIG_MAP, {"data": {"scheduler-extender-expansion-policy": "deny"}})
        for _ in range(CONTROLLERS):
            scene.launch_controller()
        wait_until(self._leader, "a leader", 150.0)
        Webhook(scene.cluster, ("--leader-address", leader_address(scene.cluster))).wait_ready()
        path = f"{VALIDATING}/{VALIDATING_CONFIGURATION}"
        wait_until(lambda: len((scene.api.get_or_none(path) or {}).get("webhooks") or ()) == 3, "configuration", 60.0)
        scene.cluster.start_scheduler(scene.extender_config())
        second: scheduling.Config = {**scene.extender_config(), "profiles": [{"schedulerName": SECOND_SCHEDULER}]}
        scene.cluster.start_scheduler(second, name=SECOND_SCHEDULER)

    def _plan_bursts(self) -> Iterator[list[PlannedPod]]:
        pods, first = list(self.plan.pods), round(len(self.plan.pods) * FIRST_BURST)
        yield pods[:first]
        rest = pods[first:]
        size = max(1, -(-len(rest) // BURSTS))
        for begin in range(0, len(rest), size):
            yield rest[begin : begin + size]

    # The run

    def play(self) -> Report:
        started = time.monotonic()
        with suppress(TimeoutError):
            wait_until(self._turn, "the end of the run", MOST_SECONDS)
        self.found.seconds = time.monotonic() - started
        return self.scene.judge(self.cell, told_in(self.cell), no_disk_seconds=NO_DISK_SECONDS)

    def _turn(self) -> bool:
        """One look at everything; True when all is over."""
        for name, act, every in (
            ("burst", self._burst, BURST_SECONDS),
            ("grow", self._grow, GROW_SECONDS),
            ("look", self._look, LOOK_SECONDS),
        ):
            if time.monotonic() >= self._due[name]:
                act()
                self._due[name] = time.monotonic() + every
        return self._is_done

    def _burst(self) -> None:
        for planned in next(self._bursts, ()):
            for claim in planned.claims:
                if claim.name not in self._created:
                    self._created.add(claim.name)
                    self.cell.create("persistentvolumeclaims", claim_object(claim, self.cell.class_of(claim.kind.name)))
            names = ("default-scheduler", SECOND_SCHEDULER) if self.with_extender else (STOCK_SCHEDULER,)
            self.cell.add(planned, with_extender=self.with_extender, scheduler=self._dice.choice(names))

    def _look(self) -> None:
        """How far it is; whether a leader is to be killed; whether all is over."""
        bound, ready = len(self.cell.bound()), len(self.cell.ready())
        now, total = time.monotonic(), len(self.plan.pods)
        if (bound, ready) != self._seen:
            self._seen, self._seen_at = (bound, ready), now
        if self.with_extender:
            is_led = self._leader() is not None
            if is_led and self.found.kills < len(KILL_AT) and bound >= KILL_AT[self.found.kills] * total:
                self._kill_leader()
                is_led = False
            self._is_led = is_led
        self._is_done = ready == total or now - self._seen_at > QUIET_SECONDS

    def _leader(self) -> Any:
        for controller in self.scene.controllers:
            with suppress(OSError):
                if controller.is_running and controller.status()["is_leading"]:
                    return controller
        return None

    def _kill_leader(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        self.scene.kill(leader)
        self.scene.launch_controller()
        self.found.kills += 1
        self._seen_at = time.monotonic()
        self._progress(f"  {leader.name} killed with {self._seen[0]} pods bound")

    def _grow(self) -> None:
        """Ask for a little more for one volume whose copies all have a disk."""
        if (self.with_extender and not self._is_led) or self.found.grown >= len(self.plan.pods) // 10:
            return
        candidates = [claim for claim in self.cell.claims() if self._is_settled(claim)]
        if not candidates:
            return
        claim = self._dice.choice(candidates)
        wanted = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) + self._dice.randint(1, 4)
        patch = {"spec": {"resources": {"requests": {"storage": f"{wanted}Gi"}}}}
        try:
            self.scene.api.patch(self.cell.path("persistentvolumeclaims", claim["metadata"]["name"]), patch)
            self.found.grown += 1
        except ApiError as error:
            if not error.forbidden:
                raise
            self.found.not_grown += 1

    def _is_settled(self, claim: Object) -> bool:
        volume = claim["spec"].get("volumeName")
        replicas = [
            one for one in self.scene.view.all(LONGHORN_REPLICAS) if volume and one["spec"]["volumeName"] == volume
        ]
        return bool(replicas) and all(one["spec"].get("diskID") for one in replicas)


def gib(size_bytes: int) -> float:
    return round(size_bytes / GIB, 1)
