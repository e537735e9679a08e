"""Build kube-scheduler's own extender client into a small program, once a version of its sources.

The modules are the test cluster's, in the same versions and with the same flags, so that Go has compiled nearly all of
it already: about ten seconds, mostly for linking.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.build import build_program
from tests.cluster.toolchain import Progress

MODULE = Path(__file__).resolve().parent / "go"
BINARY = "extender-client"


def build(progress: Progress = print) -> Path:
    """The path of the program; builds it when it is not in the cache. Raises BuildError."""
    what = f"{BINARY}, which takes ten seconds when the test cluster was built before"
    return build_program(MODULE / "go.mod", Path(BINARY, BINARY), what, progress, "-s -w")
