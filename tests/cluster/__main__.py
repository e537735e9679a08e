"""`python -m tests.cluster`: a control plane to play with from a terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.build import binaries, releases, wanted_release
from tests.cluster.cache import state_root
from tests.cluster.cluster import Cluster, ClusterError, ClusterOptions
from tests.cluster.process import find_marked
from tests.cluster.state import MARK, end, find_all, inspect
from tests.cluster.toolchain import BuildError

DEFAULT_NAME = "dev"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m tests.cluster", description="A Kubernetes control plane without containers."
    )
    commands = top.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the control plane's binary into the cache")
    up = commands.add_parser("up", help="start a cluster and leave it running")
    up.add_argument("--nodes", type=int, default=0, metavar="N", help="create N ready nodes (default 0)")
    up.add_argument("--cpu", default="16", help="cores of each node (default 16)")
    up.add_argument("--memory", default="64Gi", help="memory of each node (default 64Gi)")
    up.add_argument("--scheduler-config", type=Path, metavar="FILE", help="a KubeSchedulerConfiguration")
    up.add_argument("--no-scheduler", action="store_true", help="start no kube-scheduler")
    up.add_argument("--log-level", type=int, default=2, metavar="V", help="klog verbosity (default 2)")
    down = commands.add_parser("down", help="end a cluster that `up` started, and nothing else")
    down.add_argument("--all", action="store_true", help="every one that was left running")
    commands.add_parser("status", help="list clusters and what is left of earlier ones")
    kubeconfig = commands.add_parser("kubeconfig", help="print the path of the admin kubeconfig")
    scheduler = commands.add_parser("scheduler", help="start kube-scheduler again, with another configuration")
    scheduler.add_argument(
        "config", type=Path, nargs="?", metavar="FILE", help="a KubeSchedulerConfiguration (default: its own defaults)"
    )
    for command in (build, up):
        command.add_argument(
            "--release", default="", help=f"minor version of Kubernetes: {', '.join(releases())} (default: the first)"
        )
    for command in (up, down, kubeconfig, scheduler):
        command.add_argument("--name", default=DEFAULT_NAME, help=f"(default {DEFAULT_NAME})")
    return top


def read_config(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: not a KubeSchedulerConfiguration")
    return config


def up(args: argparse.Namespace) -> int:
    config = read_config(args.scheduler_config) if args.scheduler_config else None
    options = ClusterOptions(
        name=args.name,
        release=args.release,
        scheduler_config=config,
        start_scheduler=not args.no_scheduler,
        log_level=args.log_level,
    )
    with Cluster.start(options, progress=print) as cluster:
        for number in range(1, args.nodes + 1):
            cluster.add_node(f"n{number}", cpu=args.cpu, memory=args.memory)
        cluster.keep()
        folder, name = cluster.state_dir, cluster.name
        print(f"""
The cluster {name} is running.
  export KUBECONFIG={cluster.kubeconfig}
  {folder}/kubectl get nodes
  logs:    {folder}/*.log
  history: {cluster.history}
  stop:    python -m tests.cluster down --name {name}""")
    return 0


def down(args: argparse.Namespace) -> int:
    root = state_root()
    if args.all:
        chosen = [found for found in find_all(root) if found.condition != "in use"]
    else:
        found_one = inspect(root / args.name)
        chosen = [found_one] if found_one is not None else []
        if not chosen:
            names = ", ".join(found.state.name for found in find_all(root)) or "none"
            print(f"there is no cluster {args.name!r}; there are: {names}", file=sys.stderr)
            return 1
    for found in chosen:
        if found.condition == "in use":
            print(f"{found.describe()}; end that process instead", file=sys.stderr)
            return 1
        ended = end(found.folder)
        print(
            f"{found.state.name}: ended "
            + (", ".join(f"{r.name} (pid {r.pid})" for r in ended) or "nothing, it was dead")
        )
        # Children of the recorded processes mostly ended with them.
        for pid in set(found.strays) & set(find_marked(MARK, str(found.folder))):
            print(f"  still running and not in its record: pid {pid}; end it by hand if it is not wanted")
    return 0


def status(_: argparse.Namespace) -> int:
    for found in find_all(state_root()):
        print(found.describe())
    return 0


def scheduler(args: argparse.Namespace) -> int:
    cluster = Cluster.attach(args.name)
    cluster.restart_scheduler(read_config(args.config) if args.config else {})
    print(f"kube-scheduler runs with {args.config or 'its defaults'}; log: {cluster.scheduler_log()}")
    return 0


def kubeconfig(args: argparse.Namespace) -> int:
    print(Cluster.attach(args.name).kubeconfig)
    return 0


def build(args: argparse.Namespace) -> int:
    for part, command in binaries(release=wanted_release(args.release)).commands.items():
        print(f"{part}: {' '.join(command)}")
    return 0


COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "build": build,
    "up": up,
    "down": down,
    "status": status,
    "kubeconfig": kubeconfig,
    "scheduler": scheduler,
}


def main() -> int:
    args = parser().parse_args()
    try:
        return COMMANDS[args.command](args)
    except (ClusterError, BuildError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
