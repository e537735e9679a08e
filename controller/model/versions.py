"""What differs between Longhorn's releases in how they place and grow, named by behaviour, and which release it is.

One table says everything: `DIFFERENCES`. Its boundaries were compared tag by tag in `longhorn/longhorn-manager`, from
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


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that releases do differently. `field` of Behaviour is true where `applies` says so; without a field,
    `note` says why our decisions need no switch. `unknown`: its value for a version that is no version; None: as the
    newest."""

    topic: str
    note: str
    field: str = ""
    applies: Applies | None = None
    unknown: bool | None = None


DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        "best-effort: when placed",
        "before v1.10.0 at creation, with no regard to the pod: no local replica is to be promised then",
        "places_best_effort_at_attach",
        _since(1, 10, 0),
    ),
    Difference(
        "best-effort: the attach node first",
        "before v1.10.0 the attach node is a candidate like the others",
        "prefers_attach_node",
        _since(1, 10, 0),
    ),
    Difference("strict-local: waits for the attach node", "all releases alike: exactly one node, no fall-back"),
    Difference(
        "best-effort auto-balance: used nodes",
        "before v1.10.2 every used node counts as unused, later only one with a disk under pressure",
        "balance_opens_used_nodes",
        _before(1, 10, 2),
    ),
    Difference("spec.topologyRequirement", "an older release has no such field: what is absent constrains nothing"),
    Difference(
        "fresh replicas of the same volume",
        "before v1.11.1 a disk carries all of its node's that the figures lack: stricter, and so the side to err on",
        "counts_fresh_per_node",
        _before(1, 11, 1),
        unknown=True,
    ),
    Difference(
        "choice among candidate disks",
        "before v1.11.0 the most available - reserved bytes, later the balance score",
        "picks_by_balance_score",
        _since(1, 11, 0),
    ),
    Difference("linked clones", "from v1.10.0, on the source's disks only", "has_linked_clones", _since(1, 10, 0)),
    Difference(
        "linked clones: evicting sources",
        "before v1.12.1 a source replica that is being evicted still counts",
        "clones_skip_evicting_sources",
        _since(1, 12, 1),
    ),
    Difference("linked clones: eviction", "what Longhorn starts by itself counts once its Replica object shows it"),
    Difference(
        "reuse of failed v2 replicas",
        "the setting that exists decides; without one the default changed from off to on with v1.10.0",
        "reuses_failed_v2_replicas",
        _since(1, 10, 0),
    ),
    Difference(
        "StorageClass: soft anti-affinity of v2 volumes",
        "before v1.10.0 `enabled` is stored as `ignored`; the fields of a Volume that exists are taken as they stand",
        "keeps_v2_soft_anti_affinity",
        _since(1, 10, 0),
    ),
    Difference(
        "expansion: physical space",
        "from v1.11.0 the whole growth has to fit the disk physically",
        "expansion_checks_physical_space",
        _since(1, 11, 0),
    ),
    Difference(
        "expansion: condition Scheduled",
        "before v1.12.0 the condition has to be True",
        "expansion_needs_scheduled",
        _before(1, 12, 0),
    ),
    Difference(
        "expansion: unplaced replicas",
        "before v1.11.3, and in v1.12.0, Longhorn's webhook refuses when the replica that it looks at is unplaced",
        "expansion_needs_all_placed",
        lambda version: version < Version(1, 11, 3) or version == Version(1, 12, 0),
    ),
    Difference("expansion of v2 volumes", "from v1.10.0, `ublk` excepted", "expands_v2", _since(1, 10, 0)),
    Difference(
        "attach without a placed replica",
        "nothing is decided at attach; that best-effort volumes attach first is told by when they are placed",
    ),
    Difference(
        "disk conditions of a node that is not ready",
        "the node's Ready is always asked, so stale conditions do no harm",
    ),
    Difference("shards", "storageScheduled holds their bytes; it is never summed up from the maps"),
    Difference("CSI GetCapacity, storageCapacity, storageCapacityMode", "not read: the answer has to be right alone"),
    Difference("CSINode topology keys", "not read: a node is known by its name"),
    Difference("PV node affinity, strictTopology", "kube-scheduler itself honours what stands in the PV"),
    Difference("settings with one value per data engine", "the value's shape tells, never the version"),
    Difference("default-replica-count, offline-replica-rebuilding", "both shapes are read"),
    Difference("API version v1beta1", "v1beta2 is in every release"),
    Difference("accessMode rwop", "read like rwo, which older releases store instead"),
    Difference("engineNodeID, enginefrontends", "locality goes by spec.nodeID in every release"),
    Difference("network of RWX volumes", "not read"),
    Difference("back-off of share-manager pods", "nothing waits for a share manager to start"),
    Difference("instance managers and their node selector", "the InstanceManager object is asked, not the setting"),
    Difference("reason strings", "Longhorn's reasons are never parsed"),
)


@lru_cache(maxsize=64)
def behaviour_of(text: str | None) -> Behaviour:
    """How the release of that version behaves. What is no version behaves as the newest, and on the stricter side where
    that is the safe one; so does None, a version that is not known (yet)."""
    version = parse_version(text) if text else None
    values = {}
    for entry in DIFFERENCES:
        if entry.applies is not None:
            newest: bool = getattr(NEWEST, entry.field)
            unknown = newest if entry.unknown is None else entry.unknown
            values[entry.field] = unknown if version is None else entry.applies(version)
    return Behaviour(**values)


UNKNOWN: Final = behaviour_of(None)


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
