"""The product with certificates that turn fast, or with a clock that is wrong.

`python -m tests.e2e.paced run --paced controller|webhook --unit SECONDS --look SECONDS --clock-offset SECONDS ...`
takes the product's own arguments as well. The unit is what its day between two steps of a rotation is scaled down to;
everything else follows in the product's own proportions, as far as those matter: see `pace_of`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import controller.assembly.assemble
import controller.cli
import webhook.assemble
import webhook.cli
from certs.rotation import RotationPolicy
from certs.webhook import DEFAULT_PACE, Pace
from controller.clock import SystemClock
from webhook.certificates import certificate_worker


def pace_of(unit: float, look: float) -> Pace:
    """An authority signs for 2.4 units, a leaf is replaced after 1.1; three leaves of each authority are served.

    Each could go on for two units more, so that a machine that is busy with something else spoils nothing.
    """
    if not unit:
        return replace(DEFAULT_PACE, look_every_seconds=look or DEFAULT_PACE.look_every_seconds)

    def span(units: float) -> timedelta:
        return timedelta(seconds=units * unit)

    return Pace(
        policy=RotationPolicy(ca_life=span(7.0), ca_renew_before=span(4.6), overlap=span(1.0), settle=span(1.0)),
        leaf_life=span(3.4),
        leaf_renew_before=span(2.3),
        spread_seconds=0.8 * unit,
        look_every_seconds=look or min(2.0, 0.05 * unit),
        confirm_seconds=0.9 * unit,
    ).checked()


class OffClock(SystemClock):
    """Its wall clock is wrong by so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._off = timedelta(seconds=seconds)

    def now_utc(self) -> datetime:
        return super().now_utc() + self._off


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--paced", choices=["controller", "webhook"], required=True)
    parser.add_argument("--unit", type=float, default=0.0)
    parser.add_argument("--look", type=float, default=0.0)
    parser.add_argument("--clock-offset", type=float, default=0.0)
    options, rest = parser.parse_known_args()
    pace, clock = pace_of(options.unit, options.look), OffClock(options.clock_offset)
    if options.paced == "controller":
        made = partial(controller.assembly.assemble.Controller, clock=clock, pace=pace)
        controller.assembly.assemble.Controller = made  # type: ignore[assignment, misc]
        return controller.cli.main(rest)
    webhook.assemble.certificate_worker = partial(certificate_worker, pace=pace)  # type: ignore[attr-defined]
    webhook.assemble.Webhook = partial(webhook.assemble.Webhook, clock=clock)  # type: ignore[assignment, misc]
    return webhook.cli.main(rest)


if __name__ == "__main__":
    sys.exit(main())
