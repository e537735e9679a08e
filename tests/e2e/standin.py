"""Longhorn's stand-in as a process of its own, so that its work never slows the test that measures."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from tests.cluster.cluster import Cluster
from tests.e2e.programs import Program
from tests.e2e.workloads import GIB
from tests.longhorn.longhorn import add_node
from tests.longhorn.options import Delays, DiskOptions, LonghornOptions
from tests.waiting import wait_until

START_SECONDS = 60.0
# Delays for all runs, in place of those that tests and benchmarks ask for; as `--delays` of `tests.longhorn`.
DELAYS_VARIABLE = "LONGHORN_DELAYS"


class StandIn:
    """One Longhorn for a cluster; it can be paused, and goes on from what the API server shows.

    Threads: one at a time.
    """

    def __init__(self, cluster: Cluster, options: LonghornOptions) -> None:
        self._cluster = cluster
        self.options = options
        self._usual_delays = options.delays
        self._program: Program | None = None
        self._starts = 0
        self._is_frozen = False

    def start(self) -> None:
        """Install what is missing and begin to work; returns when it does."""
        self._starts += 1
        file = self._cluster.state_dir / f"longhorn-{self._starts}.json"
        file.write_text(self.options.as_json())
        command = [
            *(sys.executable, "-m", "tests.longhorn"),
            *("--kubeconfig", str(self._cluster.kubeconfig), "--options", str(file)),
            *("--delays", os.environ.get(DELAYS_VARIABLE, "")),
        ]
        program = self._program = Program(self._cluster, f"longhorn-{self._starts}", command, {})

        def is_ready() -> bool:
            if not program.is_running:
                raise program.fail("ended while it was starting")
            return "ready" in program.log.read_text().splitlines()

        wait_until(is_ready, "ready stand-in for Longhorn", START_SECONDS)

    def pause(self, *, kill: bool = False) -> None:
        """Nothing is provisioned, attached, placed or reported from now on. `kill`: it forgets what it was about."""
        if kill:
            self._stop(kill=True)
        elif self._program is not None:
            self._program.freeze()
            self._is_frozen = True

    def go_on(self) -> None:
        """Work again as before, where it was paused."""
        if self._program is None:
            self.start()
        elif self._is_frozen:
            self._program.thaw()
        self._is_frozen = False

    def resume(self, delays: Delays | None = None) -> None:
        """Work again, with these delays or the usual ones."""
        wanted = delays or self._usual_delays
        if wanted != self.options.delays:
            self._stop(kill=self._is_frozen)
            self.options = replace(self.options, delays=wanted)
        self.go_on()

    def _stop(self, *, kill: bool) -> None:
        if self._program is not None:
            self._program.stop(kill=kill)
            self._program = None

    def add_node(self, name: str, disks_gib: Sequence[int], *, tags: Sequence[str] = ()) -> None:
        disks = {f"disk{number}": DiskOptions(maximum_bytes=gib * GIB) for number, gib in enumerate(disks_gib, 1)}
        add_node(self._cluster.api(), self.options.namespace, name, disks, tags=tags)
