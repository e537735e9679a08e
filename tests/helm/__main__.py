"""`python -m tests.helm build` builds Helm into the cache, `path` says where it is, `write` makes what is made from the
chart, `images` lists the images that it needs, `package` makes its archive, `rights` tells which of its rights nobody
used."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.cluster.cache import REPOSITORY
from tests.cluster.toolchain import BuildError
from tests.helm.chart import CHART, Helm, write
from tests.helm.images import images
from tests.helm.rights import unused
from tests.helm.tools import HELM_3, TOOLS


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.helm", description="The Helm chart, and what is made from it."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build Helm and kubeconform into the cache")
    commands.add_parser("write", help="schema and README of the chart, and docs/examples")
    listing = commands.add_parser("images", help="list the images that the chart needs")
    listing.add_argument("--values", type=Path, action="append", default=[], help="a file of values; the last one wins")
    listing.add_argument("--kube-version", help="of the cluster, as in 1.34.1")
    rights = commands.add_parser("rights", help="list the rights that no request in the audit logs needed")
    rights.add_argument("folder", type=Path)
    commands.add_parser("path", help="the path of Helm 3, built if need be")
    commands.add_parser("package", help="make the chart's archive").add_argument("folder", type=Path)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, helm: Helm) -> None:
    match options.command:
        case "write":
            for path in write(helm):
                print(path.relative_to(REPOSITORY))
        case "images":
            print(*images(helm, options.values, options.kube_version), sep="\n")
        case "rights":
            print(*unused(helm, options.folder), sep="\n")
        case "package":
            done = helm.run("package", str(CHART), "--destination", str(options.folder))
            if done.returncode != 0:
                raise RuntimeError(done.stderr.strip())
            print(done.stdout.strip())


def main() -> int:
    options = parse()
    try:
        if options.command == "build":
            for tool in TOOLS:
                print(f"{tool.name} {tool.version}: {tool.build()}")
            return 0
        if options.command == "path":
            print(HELM_3.build(lambda text: print(text, file=sys.stderr)))
            return 0
        with tempfile.TemporaryDirectory() as home:
            run(options, Helm(HELM_3.build(), Path(home)))
    except (BuildError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
