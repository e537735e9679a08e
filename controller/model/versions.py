"""What differs between Longhorn's releases in how they place and grow, named by behaviour, and which release it is.

One table says when: `APPLIES`. Its boundaries were compared tag by tag in `longhorn/longhorn-manager`, from
v1.9.0 to v1.13.0-dev. The running version is the value of Longhorn's Setting `current-longhorn-version`, which the
upgrade raises only when all old managers are gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

VERSION_SETTING: Final = "current-longhorn-version"
# By CRD, the kind with its group: a Longhorn that has one schedules disks itself.
OWN_SCHEDULER_CRDS: Final[Mapping[str, str]] = {"diskschedules.longhorn.io": "DiskSchedule.longhorn.io"}
OWN_EXTENDER_SETTINGS: Final = "scheduler-extender-"  # Longhorn refuses Setting names that it does not know
_VERSION: Final = re.compile(r"v([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})(?:[-+].*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one release of Longhorn decides where releases differ. Defaults: the newest release."""

    places_best_effort_at_attach: bool = True  # else at creation, on any node
    prefers_attach_node: bool = True  # best-effort: candidates on the attach node come first
    balance_opens_used_nodes: bool = False  # best-effort auto-balance opens every used node, not those under pressure
    counts_fresh_per_node: bool = False  # a volume's unlisted replicas burden every disk of their node
    picks_by_balance_score: bool = True  # else the disk with the most available - reserved
    has_linked_clones: bool = True
    clones_skip_evicting_sources: bool = True
    reuses_failed_v2_replicas: bool = True  # when no setting says so
    keeps_v2_soft_anti_affinity: bool = True  # else a class's "enabled" becomes "ignored" for a v2 volume
    expansion_checks_physical_space: bool = True
    expansion_needs_scheduled: bool = False  # the condition Scheduled has to be True
    expansion_needs_all_placed: bool = False  # an unplaced replica can make the webhook refuse
    expands_v2: bool = True


NEWEST: Final = Behaviour()
UNKNOWN: Final = Behaviour(counts_fresh_per_node=True)


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A release of Longhorn; what follows the three numbers is dropped."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}.{self.patch}"


OLDEST: Final = Version(1, 9, 0)  # nothing is known of the rules of older ones


def parse_version(text: str) -> Version | None:
    """The version that `v<major>.<minor>.<patch>` with any suffix names; None for anything else, such as the version of
    a development build."""
    match = _VERSION.fullmatch(text)
    return None if match is None else Version(*(int(part) for part in match.groups()))


Applies = Callable[[Version], bool]


def _since(*parts: int) -> Applies:
    boundary = Version(*parts)
    return lambda version: version >= boundary


def _before(*parts: int) -> Applies:
    boundary = Version(*parts)
    return lambda version: version < boundary


APPLIES: Final[Mapping[str, Applies]] = {
    # Before, when they are made, with no regard to the pod: no local replica is to be promised then.
    "places_best_effort_at_attach": _since(1, 10, 0),
    "prefers_attach_node": _since(1, 10, 0),
    "balance_opens_used_nodes": _before(1, 10, 2),
    # Stricter, and so the side to err on: where no version is known, it applies.
    "counts_fresh_per_node": _before(1, 11, 1),
    "picks_by_balance_score": _since(1, 11, 0),
    "has_linked_clones": _since(1, 10, 0),
    "clones_skip_evicting_sources": _since(1, 12, 1),
    "reuses_failed_v2_replicas": _since(1, 10, 0),
    # Of classes; the fields of a Volume that exists are taken as they stand.
    "keeps_v2_soft_anti_affinity": _since(1, 10, 0),
    "expansion_checks_physical_space": _since(1, 11, 0),
    "expansion_needs_scheduled": _before(1, 12, 0),
    "expansion_needs_all_placed": lambda version: version < Version(1, 11, 3) or version == Version(1, 12, 0),
    "expands_v2": _since(1, 10, 0),
}
"""By field of Behaviour, the releases of which it is true.

These differences need no field. strict-local: all releases place on exactly one node. spec.topologyRequirement: what is
absent constrains nothing. Linked clones: an eviction that Longhorn starts counts once its Replica shows it. Attaching
decides nothing about replicas. A node's Ready is always asked, so that stale conditions of its disks do no harm.
storageScheduled has the bytes of shards. Settings: the value's shape tells whether it is one per data engine. rwop is
read like rwo, which older releases store instead. Locality goes by spec.nodeID. Of a PV's node affinity kube-scheduler
takes care. Instance managers are asked, not the setting of their node selector. v1beta2 is in every release. Not read:
CSI's capacities and topology keys, the network of RWX volumes, back-off of share-managers, Longhorn's reason strings.
"""


@lru_cache(maxsize=64)
def behaviour_of(text: str | None) -> Behaviour:
    """How the release of that version behaves. What is no version behaves as the newest, and on the stricter side where
    that is the safe one; so does None, a version that is not known (yet)."""
    version = parse_version(text) if text else None
    return UNKNOWN if version is None else Behaviour(**{field: applies(version) for field, applies in APPLIES.items()})


@dataclass(frozen=True, slots=True)
class Support:
    """Whether pods may be opted in next to that Longhorn; `problem` says why not, for people."""

    is_supported: bool
    problem: str = ""


def support_of(version_text: str | None, *, crds: Collection[str] = (), settings: Collection[str] = ()) -> Support:
    """What this product may do next to a Longhorn of that version, with those CRDs and Setting objects, by name.

    A version that is not known is supported: it is a development build, or the Setting is not there yet.
    """
    own = sorted(OWN_SCHEDULER_CRDS.keys() & set(crds))
    if own:
        return Support(False, f"this Longhorn has a disk scheduler of its own (CRD {own[0]})")
    known = sorted(name for name in settings if name.startswith(OWN_EXTENDER_SETTINGS))
    if known:
        return Support(False, f"this Longhorn has a scheduler extender of its own (setting {known[0]})")
    version = parse_version(version_text) if version_text else None
    if version is not None and version < OLDEST:
        return Support(False, f"Longhorn {version} is older than {OLDEST}, the oldest release whose rules are known")
    return Support(True)
