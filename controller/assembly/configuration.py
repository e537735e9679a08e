"""The live settings from their stores (one ConfigMap, Longhorn's Setting objects), and the mode that they ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.allocator.outcome import Mode
from controller.kube.store import Store
from controller.log_line import say
from controller.model.longhorn import LonghornSettings
from controller.model.longhorn_settings import by_name, longhorn_settings
from controller.model.workload import ConfigMapFacts, Pod, data_of
from controller.settings import UNREAD, LiveSettings, live_settings, setting_notes

MODE_TEXTS: Final = {
    Mode.ACTIVE: "Pods that request the scheduler extender are placed only where their Longhorn volumes have room",
    Mode.BYPASS: "All pods are let through unchecked: the scheduler extender is bypassed or switched off. A pod that "
    "comes to a node without room hangs there until its volume has room",
    Mode.CLOSED: "The scheduler extender is switched off, and no pod requests it",
    Mode.UNKNOWN: "Pods that request the scheduler extender wait: set scheduler-extender-enabled to true or false",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings from all sources together, the problems with values that are not used, and lines that do nothing."""

    live: LiveSettings
    longhorn: LonghornSettings
    problems: Mapping[str, str]  # setting -> what is wrong
    notes: Mapping[str, str] = field(default_factory=dict)  # setting -> why its line may go


class SettingsReader:
    """The settings that the ConfigMap and Longhorn's Setting objects make together. Threads: the lifecycle's. I/O:
    none."""

    def __init__(self, config_maps: Store[ConfigMapFacts], longhorn: Store[str]) -> None:
        self._config_maps, self._longhorn = config_maps, longhorn
        self._live, self._read = UNREAD, LonghornSettings()  # as read last
        self._notes: Mapping[str, str] = {}

    def __call__(self) -> Configured:
        """A line that does nothing is logged when it is new."""
        data, values = data_of(self._config_maps.values()), by_name(self._longhorn.items())
        self._live, problems = live_settings(data, values, self._live)
        self._read, more = longhorn_settings(values, self._read)
        former, self._notes = self._notes, {note.name: note.text for note in setting_notes(data)}
        for name, text in self._notes.items():
            if former.get(name) != text:
                say(log, "setting without effect", logging.WARNING, setting=name, problem=text)
        return Configured(self._live, self._read, {one.name: one.text for one in (*problems, *more)}, self._notes)


def mode_of(
    live: LiveSettings, pending_opted_in: Callable[[], Sequence[Pod]], no_pod_opts_in: Callable[[], bool]
) -> Mode:
    """The mode that the settings ask for.

    When it is switched off, the extender still lets pods pass that request the resource: kube-scheduler asks it about
    them, and they would otherwise never be scheduled. It closes once there are no such pods and no more can come.
    """
    if live.bypass:
        return Mode.BYPASS
    if live.enabled is None:
        return Mode.UNKNOWN
    if live.enabled:
        return Mode.ACTIVE
    return Mode.CLOSED if no_pod_opts_in() and not pending_opted_in() else Mode.BYPASS
