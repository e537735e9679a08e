"""The document that `/status` shows, composed from the parts that it describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.allocator.allocator import Allocator
from controller.assembly.certificates import CertificateWorker
from controller.assembly.lifecycle import Lifecycle
from controller.election.elector import Elector
from controller.election.gate import Gate
from controller.follow.stores import Stores
from controller.process.common_metrics import store_entries
from controller.settings import ProcessSettings
from controller.workers.support import LonghornRelease


@dataclass(frozen=True, slots=True)
class StatusView:
    """Shows who leads and in which mode, what is held and planned, and how current the stores are.

    `sections`: additional entries of the document by name, each a function that is quick, takes only its owner's lock,
    and returns what JSON can represent.
    """

    identity: str
    settings: ProcessSettings
    allocator: Allocator
    gate: Gate
    elector: Elector
    lifecycle: Lifecycle
    stores: Stores
    certificates: CertificateWorker
    longhorn: Callable[[], LonghornRelease | None]
    sections: Mapping[str, Callable[[], Any]] = field(default_factory=dict)

    def document(self) -> Mapping[str, Any]:
        snapshot = self.allocator.snapshot()
        configured = self.lifecycle.configured
        return {
            "identity": self.identity,
            "node": self.settings.node_name,
            "is_leading": self.gate.is_open,
            "holder": self.elector.holder,
            "term": self.lifecycle.term,
            "mode": self.lifecycle.mode,
            "longhorn": self.longhorn(),
            **{name: section() for name, section in self.sections.items()},
            "settings": configured.live if configured else None,
            "longhorn_settings": configured.longhorn if configured else None,
            "settings_problems": configured.problems if configured else {},
            "settings_notes": configured.notes if configured else {},
            "certificates": {name: round(seconds) for name, seconds in self.certificates.expiries().items()},
            "certificate_problems": self.certificates.problems,
            "held": {"count": snapshot.held_count, "bytes": snapshot.held_bytes},
            "planned": {"count": snapshot.planned_count, "bytes": snapshot.planned_bytes},
            "oldest_hold_seconds": round(snapshot.oldest_hold_seconds, 3),
            "refused_pods": snapshot.refused_count,
            "quarantined": snapshot.quarantined,
            "promises": snapshot.promises,
            "disks_over": snapshot.disks_over,
            "counters": snapshot.counters,
            "stores": store_entries(self.stores.states(), lambda kind: self.stores.followed[kind].store.bad),
        }
