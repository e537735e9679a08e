"""What differs between Longhorn's releases in how they place and grow, named by behaviour. Defaults: the newest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one release of Longhorn decides where releases differ."""

    places_best_effort_at_attach: bool = True  # else at creation, on any node
    prefers_attach_node: bool = True  # best-effort: candidates on the attach node come first
    balance_opens_used_nodes: bool = False  # best-effort auto-balance opens every used node, not those under pressure
    counts_fresh_per_node: bool = False  # a volume's unlisted replicas burden every disk of their node
    picks_by_balance_score: bool = True  # else the disk with the most available - reserved
    has_linked_clones: bool = True
    clones_skip_evicting_sources: bool = True
    reuses_failed_v2_replicas: bool = True  # when no setting says so
    expansion_checks_physical_space: bool = True
    expansion_needs_scheduled: bool = False  # the condition Scheduled has to be True
    expansion_needs_all_placed: bool = False  # an unplaced replica can make the webhook refuse
    expands_v2: bool = True


NEWEST: Final = Behaviour()
