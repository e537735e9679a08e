"""Every knob of the stand-in. A delay is a number of seconds, or a range from which each one is drawn."""

from __future__ import annotations

import dataclasses
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Delay = float | tuple[float, float]
GIB: Final = 1024**3
MAX_DELAY_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Delays:
    """Seconds, each 0 to 120; README.md has a table of what each one lies between. The defaults are quick, and those of
    `disk_figures`, `write` and `write_roaming` are as measured on Longhorn."""

    create: Delay = 0.0
    provision: Delay = 0.5
    attach: Delay = 0.3
    own_attach: Delay = 0.3
    placement: Delay = 0.03
    write: Delay = (0.02, 0.1)
    write_roaming: Delay = (0.02, 1.0)
    start: Delay = 0.2
    beat: Delay = 0.0
    refused: Delay = 0.3
    disk_figures: Delay = (0.01, 0.03)
    relocate: Delay = 0.0
    rebuild: Delay = 1.0
    copy: Delay = 0.5
    restore: Delay = 1.0
    resize: Delay = 0.2
    expand: Delay = 0.2
    finalize: Delay = 0.1
    detach: Delay = 0.1
    delete: Delay = 0.1
    stop: Delay = 0.1
    share_start: Delay = 0.1
    share_attach: Delay = 0.1
    share_serve: Delay = 0.1
    share_fail: Delay = 0.1
    share_retry: Delay = 0.5
    share_stop: Delay = 0.1

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            low, high = value if isinstance(value, (tuple, list)) else (value, value)
            if not 0 <= low <= high <= MAX_DELAY_SECONDS:
                raise ValueError(f"delays.{entry.name}: {value} is not within 0 to {MAX_DELAY_SECONDS:.0f} seconds")

    def changed_by(self, text: str) -> Delays:
        """As `late-figures,attach=0.5,write=0.02..0.1` says: a preset changes all that it names, the rest one each."""
        changed: dict[str, Delay] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, sign, value = part.partition("=")
            if not sign:
                if name not in PRESETS:
                    raise ValueError(f"delays: there is no preset {name}")
                changed |= PRESETS[name]
            elif name in {entry.name for entry in dataclasses.fields(self)}:
                changed[name] = _parse_delay(name, value)
            else:
                raise ValueError(f"delays.{name}: is not an option")
        return dataclasses.replace(self, **changed)


def _parse_delay(name: str, text: str) -> Delay:
    low, sign, high = text.partition("..")
    try:
        return (float(low), float(high)) if sign else float(low)
    except ValueError:
        raise ValueError(f"delays.{name}: {text} is neither seconds nor a range such as 0.5..1") from None


# As seen on Longhorn's own controllers, on one machine.
MEASURED: Final[dict[str, Delay]] = {
    "create": 0.8,
    "provision": 1.2,
    "attach": 1.0,
    "own_attach": 0.8,
    "placement": 0.03,
    "write": (0.02, 0.1),
    "write_roaming": (0.02, 1.0),
    "start": 1.2,
    "beat": 5.0,
    "disk_figures": (0.01, 0.03),
}
# Figures that stay behind, and choices that show at once: harder on whoever trusts the figures.
LATE_FIGURES: Final[dict[str, Delay]] = {"disk_figures": 1.0, "write": 0.0, "write_roaming": 0.0}
PRESETS: Final = {"measured": MEASURED, "late-figures": LATE_FIGURES}


@dataclass(frozen=True)
class LonghornOptions:
    """How this Longhorn behaves. `settings` go into Setting objects on top of Longhorn's defaults."""

    namespace: str = "longhorn-system"
    delays: Delays = field(default_factory=Delays)
    retry_seconds: float = 30.0  # an unplaced replica is tried again after this, if no node changes before
    resync_seconds: float = 30.0  # every node's disk figures are worked out anew after this
    share_managers: bool = False  # serve RWX volumes by share-manager pods; without: they are used on one node alone
    capacity_tracking: bool = False
    capacity_seconds: float = 60.0  # publish period of CSIStorageCapacity
    settings: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    workers: int = 24
    runs_own_pods: bool = True  # plays the kubelet in its namespace too; False: somebody else does, there
    disk_scheduler: str = ""  # file that leads to one that is asked for places; empty: the stand-in decides

    @classmethod
    def load(cls, path: Path) -> LonghornOptions:
        """From a JSON file with the fields' names; ValueError names an unknown one."""
        return cls.of(json.loads(path.read_text()))

    @classmethod
    def of(cls, raw: dict[str, Any]) -> LonghornOptions:
        known = {entry.name for entry in dataclasses.fields(cls)}
        for name in raw:
            if name not in known:
                raise ValueError(f"{name}: is not an option")
        delays = {
            name: tuple(value) if isinstance(value, list) else value for name, value in raw.get("delays", {}).items()
        }
        for name in delays.keys() - {entry.name for entry in dataclasses.fields(Delays)}:
            raise ValueError(f"delays.{name}: is not an option")
        return cls(**{**raw, "delays": Delays(**delays)})

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


class DelayDice:
    """Draws delays; seeded, so that a run's draws can be repeated as far as threads allow."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def seconds(self, delay: Delay) -> float:
        return self._random.uniform(*delay) if isinstance(delay, tuple) else delay

    def choice(self, count: int) -> int:
        return self._random.randrange(count)

    def hexadecimal(self, digits: int = 8) -> str:
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"


@dataclass(frozen=True)
class DiskOptions:
    """One disk of a node. `available_bytes` None: all of it."""

    maximum_bytes: int = 400 * GIB
    reserved_bytes: int = 0
    available_bytes: int | None = None
    tags: tuple[str, ...] = ()
    type: str = "filesystem"
    filesystem: str = "ext4"
    allow_scheduling: bool = True
    eviction_requested: bool = False
