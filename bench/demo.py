"""The race for sixteen volumes on a real kube-scheduler, three ways (`make demo`).

Four nodes with one disk of 400 GiB each, and a StatefulSet that starts sixteen pods at once, each with a volume of 100
GiB that must lie beside it. Two of the nodes are three quarters full otherwise, so kube-scheduler prefers the other
two, as it does in every real cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from bench.demo_screen import GIB, Counts, Screen, last_bound, last_ready, over_nodes, start_of, table
from bench.picture import Curve, Panel, draw
from tests.cluster.__main__ import main as cluster_main
from tests.cluster.cluster import ClusterError
from tests.e2e import scheduling, workloads
from tests.e2e.checker import Report
from tests.e2e.harness import CLASSES, Cell, Scene
from tests.e2e.programs import ProposalPolicy
from tests.longhorn.options import Delays, LonghornOptions

PODS, VOLUME_GIB, DISK_GIB = 16, 100, 400
NODES: Final = ("n1", "n2", "n3", "n4")
KEPT_NAME: Final = "demo"
CLASS_OF_KEPT: Final = "longhorn-local"  # the class of docs/examples/workload.yaml
SECONDS_A_LOOK: Final = 1.0
PATIENCE_SECONDS: Final = 60.0
POLICY_PATIENCE_SECONDS: Final = 150.0  # its last pods are never woken: by then all that will be bound is
READY_PATIENCE_SECONDS: Final = 20.0  # after the last pod was bound; without room some wait for ever
DELAYS: Final = LonghornOptions(delays=Delays(provision=1.0, attach=1.0, placement=0.1, disk_figures=1.0))


@dataclass(frozen=True, slots=True)
class Way:
    name: str
    explanation: str
    patience_seconds: float
    opted_in: bool
    start: Callable[[Scene], Callable[[], None]]  # starts its extender and scheduler; returns what stops them


def start_ours(scene: Scene) -> Callable[[], None]:
    scene.start_controller(flags=("--scheduler-names", "default-scheduler"))
    scene.cluster.start_scheduler(scene.extender_config())
    return lambda: stop_both(scene, scene.take_away)


def start_none(scene: Scene) -> Callable[[], None]:
    scene.cluster.start_scheduler(scheduling.stock())
    return lambda: stop_both(scene, lambda: None)


def start_policy(scene: Scene) -> Callable[[], None]:
    policy = ProposalPolicy(scene.cluster)
    policy.wait_serving()
    # Its answer blocks until the pod before it is bound: it needs the longer timeout that its text asks for.
    scene.cluster.start_scheduler(scene.extender_config(timeout="10s", filter_only=True, plain_http=True))
    return lambda: stop_both(scene, policy.stop)


def stop_both(scene: Scene, stop_extender: Callable[[], None]) -> None:
    scene.cluster.stop_scheduler()
    stop_extender()


WAYS: Final = (
    Way("with the extender", "room is held from the answer until Longhorn shows the replica",
        PATIENCE_SECONDS, True, start_ours),
    Way("without any extender", "kube-scheduler knows nothing of Longhorn's disks",
        PATIENCE_SECONDS, False, start_none),
    Way("lock-and-exclude policy", "a lock until the pod is bound, then its node is excluded; 5 s each",
        POLICY_PATIENCE_SECONDS, True, start_policy),
)  # fmt: skip


def run_way(scene: Scene, cell: Cell, way: Way, screen: Screen) -> Report:
    """One race, watched until it is decided; the history's verdict on it."""
    screen.say(f"\n{way.name}: {way.explanation}")
    stop = way.start(scene)
    try:
        started = time.monotonic()
        cell.stateful_set("web", replicas=PODS, gib=VOLUME_GIB, opted_in=way.opted_in)
        watch(cell, way, screen, started)
        report = scene.judge(cell)
    finally:
        stop()
    screen.say(f"  {verdict(report)}")
    return report


def watch(cell: Cell, way: Way, screen: Screen, started: float) -> None:
    """Return when every pod is ready, or nothing more is to be expected."""
    bound_at: float | None = None
    while True:
        now = time.monotonic() - started
        counts = Counts(len(cell.bound()), len(cell.ready()), len(cell.refused()), PODS)
        screen.show(now, counts)
        if counts.bound == PODS and bound_at is None:
            bound_at = now
        if counts.ready == PODS or now > way.patience_seconds:
            return
        if bound_at is not None and now > bound_at + READY_PATIENCE_SECONDS:
            return
        time.sleep(SECONDS_A_LOOK)


def verdict(report: Report) -> str:
    over = over_nodes(report)
    parts = [
        f"{len(over)} disks were promised more than they have ({', '.join(over)})"
        if over
        else "no disk was promised more than it has"
    ]
    stuck = PODS - len(report.bound)
    if stuck:
        parts.append(f"{stuck} pods are still not bound")
    return "; ".join(parts)


def short_verdict(report: Report) -> str:
    counts = report.pods_per_node()
    over, stuck, bound = over_nodes(report), PODS - len(report.bound), last_bound(report, PODS)
    parts = ["-".join(str(counts.get(node, 0)) for node in NODES) + " pods"]
    parts.append(f"{len(over)} disks promised too much" if over else "no disk promised too much")
    parts.append(f"{stuck} pods never bound" if bound is None else f"all bound after {bound:.1f} s")
    return "; ".join(parts)


def panel(name: str, report: Report) -> Panel:
    start = start_of(report)
    bound, ready = last_bound(report, PODS), last_ready(report, PODS)
    latest = max([p.ready_at or p.bound_at or p.created_at for p in report.pods.values()], default=start) - start
    marks = []
    if bound is not None:
        marks.append((bound, "all bound"))
    if ready is not None:
        marks.append((ready, "all ready"))
    if bound is None:
        last = max((p.bound_at for p in report.bound if p.bound_at is not None), default=start) - start
        marks.append((last, f"{len(report.bound)} of {PODS} bound, the last"))
    samples = [sample for sample in report.series if start - 1 <= sample.at]
    curves = tuple(
        Curve(
            node,
            (0.0, *(max(0.0, sample.at - start) for sample in samples)),
            (0.0, *(sample.node_bytes.get(node, 0) / GIB for sample in samples)),
        )
        for node in NODES
    )
    is_good = not over_nodes(report) and bound is not None
    return Panel(name, short_verdict(report), is_good, curves, tuple(marks), max(latest * 1.1, 1.0))


def write_results(reports: dict[str, Report], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [folder / "promised.png", folder / "promised.svg"]
    heading = f"{PODS} pods at once, a {VOLUME_GIB} GiB volume each, four disks of {DISK_GIB} GiB"
    draw([panel(name, report) for name, report in reports.items()], DISK_GIB, heading, pictures)
    figures = folder / "figures.json"
    figures.write_text(json.dumps({name: as_figures(report) for name, report in reports.items()}, indent=2) + "\n")
    return [*pictures, figures]


def as_figures(report: Report) -> dict[str, object]:
    return {
        "pods_per_node": report.pods_per_node(),
        "most_promised_bytes": report.peaks(),
        "limit_bytes": report.node_limits,
        "over": over_nodes(report),
        "bound": len(report.bound),
        "refused_for_a_while": len(report.refused),
        "local": len(report.local),
        "seconds_until_all_bound": last_bound(report, PODS),
        "seconds_until_all_ready": last_ready(report, PODS),
    }


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: with everything that it started."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(ways: Sequence[Way], output: Path, *, keep: bool) -> int:
    name = KEPT_NAME if keep else f"demo-{os.getpid()}"
    with Scene.start(DELAYS, name=name, run_scheduler=False, progress=print) as scene:
        cell = scene.cell(KEPT_NAME, node_names=NODES, disks_gib=(DISK_GIB,))
        screen = Screen(NODES, DISK_GIB * GIB, scene.cluster.history)
        reports = {}
        for way in ways:
            reports[way.name] = run_way(scene, cell, way, screen)
            screen.say("  clearing up ...")
            cell.clear()
            cell.renew()
        print("\n" + table(reports, NODES, PODS) + "\n")
        for file in write_results(reports, output):
            print(f"written: {file}")
        if keep:
            leave_running(scene)
    return 0


def leave_running(scene: Scene) -> None:
    """Our extender and its scheduler stay, for workloads of the user's own."""
    scene.api.create(CLASSES, workloads.storage_class(CLASS_OF_KEPT))
    start_ours(scene)
    scene.keep()
    kubectl = scene.cluster.state_dir / "kubectl"
    print(f"""
The cluster, Longhorn's stand-in and the extender stay up. Try a workload of your own:
  export KUBECONFIG={scene.cluster.kubeconfig}
  {kubectl} apply -f docs/examples/workload.yaml
  {kubectl} get pods,pvc -o wide --watch
  {kubectl} get replicas.longhorn.io -n longhorn-system -L longhornnode
  {sys.executable} -m controller status --status-port {scene.controllers[-1].status_port}
  logs:  {scene.cluster.state_dir}/*.log
Stop it with:
  {sys.executable} -m bench.demo --stop""")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stop", action="store_true", help="end what KEEP=1 left running")
    parser.add_argument(
        "--ways", type=int, nargs="*", choices=(1, 2, 3), default=(1, 2, 3), help="only some of the runs"
    )
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("DEMO_OUTPUT") or "demo-output"))
    args = parser.parse_args()
    if args.stop:
        sys.argv = ["tests.cluster", "down", "--name", KEPT_NAME]
        return cluster_main()
    keep = os.environ.get("KEEP", "") not in ("", "0")
    try:
        with ended_by_signal():
            return run([WAYS[number - 1] for number in args.ways], args.output, keep=keep)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; everything that was started has ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
