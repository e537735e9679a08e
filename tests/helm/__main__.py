"""`python -m tests.helm build` builds Helm into the cache, `write` makes what is made from the chart."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.cluster.cache import REPOSITORY
from tests.cluster.toolchain import BuildError
from tests.helm.chart import Helm, write
from tests.helm.tools import HELM_3, TOOLS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.helm", description="The Helm chart, and what is made from it."
    )
    parser.add_argument("command", choices=("build", "write"))
    try:
        if parser.parse_args().command == "build":
            for tool in TOOLS:
                print(f"{tool.name} {tool.version}: {tool.build()}")
            return 0
        with tempfile.TemporaryDirectory() as home:
            for path in write(Helm(HELM_3.build(), Path(home))):
                print(path.relative_to(REPOSITORY))
    except (BuildError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
