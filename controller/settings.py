"""Settings (first part: what the allocator reads; flags and parsing follow)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The settings that are read live. Units stand in the names."""

    enabled: bool = False
    bypass: bool = False
    pod_scheduling_timeout_seconds: int = 5
    node_reservation_timeout_seconds: int = 5
    max_offers: int = 100
    contention_wait_milliseconds: int = 300
    filter_budget_milliseconds: int = 50
    remote_fallback_after_seconds: int = 60
    starvation_after_seconds: int = 300
    wake_with_annotation: bool = False
    hold_cap_seconds: int = 120
