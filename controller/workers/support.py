"""Which Longhorn runs, and whether this product can live next to it: for the status page, the log and admission."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from controller.errors import ClusterError, NotFoundError
from controller.model.versions import OWN_SCHEDULER_CRDS, VERSION_SETTING, Support, support_of
from controller.process.worker import Part, Worker

EVERY_SECONDS: Final = 60.0
UNKNOWN_EVERY_SECONDS: Final = 1.0  # while the settings are not known

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LonghornRelease:
    """The Longhorn that runs, as its Setting names it; `version` is None where no Setting does."""

    version: str | None
    support: Support


class SupportWatch(Part):
    """Looks at the version and the settings whenever they change, and at the CRDs every minute as well.

    `settings` are the values of Longhorn's Setting objects by name, None while they are not known. `read_crd` asks for
    a CRD by name, and raises NotFoundError or another ClusterError.

    Threads: `worker`'s; `current` is for any. Blocks: never. I/O: one read for each CRD.
    """

    def __init__(self, settings: Callable[[], Mapping[str, str] | None], read_crd: Callable[[str], object]) -> None:
        self._settings, self._read_crd = settings, read_crd
        self._crds: frozenset[str] = frozenset()
        self._unreadable = ""
        self._current: LonghornRelease | None = None
        self.worker = Worker("support", self.run_once)

    @property
    def current(self) -> LonghornRelease | None:
        """None until Longhorn's settings were read for the first time."""
        return self._current

    def run_once(self) -> float:
        """One look; the seconds until the next one, unless `worker` is woken before."""
        values = self._settings()
        if values is not None:
            self._look_at(values)
        return UNKNOWN_EVERY_SECONDS if self._current is None else EVERY_SECONDS

    def _look_at(self, values: Mapping[str, str]) -> None:
        self._look_at_crds()
        version = values.get(VERSION_SETTING)
        found = LonghornRelease(version, support_of(version, crds=self._crds, settings=values.keys()))
        if found == self._current:
            return
        self._current = found
        if found.support.is_supported:
            log.info("Longhorn version=%s supported", version or "unknown")
        else:
            log.warning("Longhorn version=%s not supported: %s", version or "unknown", found.support.problem)

    def _look_at_crds(self) -> None:
        """What cannot be read is as it was last seen."""
        found = set()
        try:
            for name in sorted(OWN_SCHEDULER_CRDS):
                try:
                    self._read_crd(name)
                    found.add(name)
                except NotFoundError:
                    pass
        except ClusterError as error:
            if str(error) != self._unreadable:
                log.warning("Longhorn's CRDs cannot be read: %s", error)
            self._unreadable = str(error)
            return
        self._crds, self._unreadable = frozenset(found), ""
