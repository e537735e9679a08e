"""Watches which Longhorn runs, and whether this product supports it: for the status page, the log and admission."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from controller.errors import ClusterError
from controller.kube.api import KubeApi, find
from controller.kube.resources import CRDS
from controller.kube.store import Store
from controller.log_line import say
from controller.model.longhorn_settings import by_name
from controller.model.versions import OWN_SCHEDULER_CRDS, VERSION_SETTING, Support, support_of
from controller.process.worker import Part, Worker

CALL_SECONDS: Final = 5.0
EVERY_SECONDS: Final = 60.0
UNKNOWN_EVERY_SECONDS: Final = 1.0  # while the settings are not known

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LonghornRelease:
    """The Longhorn that runs. `version`: by Longhorn's Setting, None without one."""

    version: str | None
    support: Support


class SupportWatch(Part):
    """Evaluates Longhorn's version and settings whenever they change, and its CRDs every minute as well.

    Threads: `worker`'s; `current` is for any. Blocks: never. I/O: one read for each CRD.
    """

    def __init__(self, api: KubeApi, settings: Store[str]) -> None:
        """`settings`: the values of Longhorn's Settings, before their informer starts."""
        self._api, self._settings = api, settings
        self._crds: frozenset[str] = frozenset()
        self._unreadable = ""
        self.current: LonghornRelease | None = None  # until Longhorn's settings were read for the first time
        self.worker = Worker("support", self.run_once)
        settings.subscribe(lambda _changes: self.worker.wake())

    def run_once(self) -> float:
        """Evaluate once. Returns the seconds until the next time, unless `worker` is woken before."""
        if self._settings.synced.is_set():
            self._look_at(by_name(self._settings.items()))
        return UNKNOWN_EVERY_SECONDS if self.current is None else EVERY_SECONDS

    def _look_at(self, values: Mapping[str, str]) -> None:
        self._look_at_crds()
        version = values.get(VERSION_SETTING)
        found = LonghornRelease(version, support_of(version, crds=self._crds, settings=values.keys()))
        if found == self.current:
            return
        self.current = found
        if found.support.is_supported:
            say(log, "Longhorn is supported", version=version or "unknown")
        else:
            what = {"version": version or "unknown", "problem": found.support.problem}
            say(log, "Longhorn is not supported", logging.WARNING, **what)

    def _look_at_crds(self) -> None:
        """Read which CRDs of Longhorn's own disk scheduler exist. If a read fails, nothing changes."""
        try:
            self._crds = frozenset(
                name
                for name in sorted(OWN_SCHEDULER_CRDS)
                if find(self._api, CRDS, None, name, timeout=CALL_SECONDS) is not None
            )
        except ClusterError as error:
            if str(error) != self._unreadable:
                log.warning("Longhorn's CRDs cannot be read: %s", error)
            self._unreadable = str(error)
        else:
            self._unreadable = ""
