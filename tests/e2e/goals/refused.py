"""Pods that find no room: no storm of tries, and nobody evicted for them in vain."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.client import ignored_when_gone
from tests.e2e import workloads
from tests.e2e.goals.cells import UnevenCell
from tests.e2e.goals.scenario import RunEnd, Scenario
from tests.e2e.harness import FILL_CPU, Scene

URGENT = "goals-urgent"
PREEMPTING, EVICTING = "goals-preempting", "goals-evicting"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
REFUSED_PODS = 50
MOST_CALLS = 2
AGAIN_SECONDS = 2.0
_FILTER_CALL = re.compile(r"filter pod=(\S+) ")


def generated(scene: Scene, name: str, *, without: Collection[str] = ()) -> dict[str, Any]:
    """What `render-scheduler-config` prints for this scheduler, less some keys of its extender.

    Leader election is off, as several schedulers with names of their own work side by side here.
    """
    election = {"leaderElect": False}
    config = {**scene.extender_config(), "leaderElection": election, "profiles": [{"schedulerName": name}]}
    (extender,) = config["extenders"]
    for key in without:
        del extender[key]
    return config


@contextmanager
def urgent_pods(scene: Scene) -> Iterator[None]:
    """While it lasts there are a priority above all others, and schedulers with and without the preempt verb."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 1000}
    scene.api.create(PRIORITIES, body)
    scene.cluster.start_scheduler(generated(scene, PREEMPTING), name=PREEMPTING)
    scene.cluster.start_scheduler(generated(scene, EVICTING, without=["preemptVerb"]), name=EVICTING)
    try:
        yield
    finally:
        for name in (PREEMPTING, EVICTING):
            scene.cluster.stop_scheduler(name)
        with ignored_when_gone():
            scene.api.delete(f"{PRIORITIES}/{URGENT}")


# No storm


def storm(seconds: float) -> Scenario:
    """Watched for so many seconds once the scheduler is idle."""

    def play(cell: UnevenCell) -> RunEnd:
        for name in ("full1", "full2"):
            cell.claim(name)
            cell.run_pod(name, name)
            cell.wait_pod_ready(name)
        for number in range(REFUSED_PODS):
            cell.claim(f"c{number}")
        for number in range(REFUSED_PODS):
            cell.run_pod(f"p{number}", f"c{number}", priorityClassName=URGENT)
        cell.wait_refused(REFUSED_PODS, 120)
        cell.scene.controllers[-1].wait_idle()
        before = _calls(cell)
        is_calm = not _happens(cell, lambda: not {"full1", "full2"} <= _names(cell), seconds)
        calls = _calls(cell)
        most = max((calls - before).values(), default=0)
        is_right = is_calm and len(calls) == REFUSED_PODS and most <= MOST_CALLS
        evicted = "nobody evicted" if is_calm else "pods evicted"
        return RunEnd(is_right, f"{len(calls)} pods refused, {most} filter calls a pod at most after that, {evicted}")

    return Scenario(
        name="storm",
        goal=f"a full cluster, an idle scheduler and {REFUSED_PODS} urgent pods that find no room, {seconds:.0f} s",
        layout={"full1": (100,), "full2": (100,)},
        play=play,
        scheduler=PREEMPTING,
        has_counter=False,
        times=1,
    )


def _calls(cell: UnevenCell) -> Counter[str]:
    """Filter calls by pod, for the pods that were refused, out of the log of the leader."""
    log = cell.scene.controllers[-1].log.read_text()
    keys = (match[1] for match in _FILTER_CALL.finditer(log))
    prefix = f"{cell.namespace}/p"
    return Counter(key for key in keys if key.startswith(prefix))


# Preemption


def nobody_evicted(seconds: float) -> Scenario:
    """Watched for so many seconds after the first refusal, the scheduler being told to try again all the time."""

    def play(cell: UnevenCell) -> RunEnd:
        everybody = _occupy(cell, "busy1", "busy2")
        _ask(cell)
        cell.wait_refused(1)
        deadline, tries = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            tries += 1
            cell.scene.api.patch(cell.path("pods", "high"), {"metadata": {"annotations": {"attempt": str(tries)}}})
            if _happens(cell, lambda: not everybody <= _names(cell), AGAIN_SECONDS):
                return RunEnd(False, f"evicted: {', '.join(sorted(everybody - _names(cell)))}")
        return RunEnd(not cell.where().get("high"), f"nobody evicted in {tries} tries")

    return Scenario(
        name="preempt-none",
        goal="no node has both CPU and Longhorn room, whoever is evicted",
        layout={"busy1": (50,), "busy2": (50,), "idle": (50,)},
        play=play,
        scheduler=PREEMPTING,
        counter_scheduler=EVICTING,
        times=1,
    )


def _the_right_one(cell: UnevenCell) -> RunEnd:
    everybody = _occupy(cell, "busy1", "roomy", "busy2")
    _ask(cell)
    cell.wait_pod_ready("high", 60)
    gone = everybody - _names(cell)
    node = cell.where()["high"]
    return RunEnd(node == "roomy" and gone == {"low-roomy"}, f"on {node}, evicted: {', '.join(sorted(gone))}")


ONE_EVICTED = Scenario(
    name="preempt-one",
    goal="an eviction makes room on one node alone",
    layout={"busy1": (50,), "roomy": (400,), "busy2": (50,), "idle": (50,)},
    play=_the_right_one,
    scheduler=PREEMPTING,
    has_counter=False,
    times=3,
)


def _occupy(cell: UnevenCell, *shorts: str) -> set[str]:
    """A pod without priority takes most of these nodes' CPU; the names of these pods."""
    for short in shorts:
        cell.create("pods", workloads.filler(f"low-{short}", cell.node(short), cpu=FILL_CPU, memory="1Gi"))
    return {f"low-{short}" for short in shorts}


def _ask(cell: UnevenCell) -> None:
    """An urgent pod with a volume of 100 GiB that does not fit beside another one."""
    cell.claim("c")
    main = workloads.container("v0")
    main["resources"]["requests"]["cpu"] = FILL_CPU
    cell.pod("high", "c", priorityClassName=URGENT, schedulerName=cell.scheduler, containers=[main])


def _names(cell: UnevenCell) -> set[str]:
    return {str(pod["metadata"]["name"]) for pod in cell.pods() if not pod["metadata"].get("deletionTimestamp")}


def _happens(cell: UnevenCell, condition: Callable[[], bool], seconds: float) -> bool:
    try:
        cell.scene.view.wait_for(condition, "such an event", seconds)
    except TimeoutError:
        return False
    return True
