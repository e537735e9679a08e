"""What is said of one node: the verdict, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from controller.rules.reasons import Reason


class Verdict(Enum):
    SURE = auto()
    CONTENDED = auto()
    FULL = auto()
    UNSUITABLE = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    """`is_waitable`: only young holds of other pods prevent it. `is_bounded`: a search stopped at its limit."""

    verdict: Verdict
    reason: Reason | None = None
    is_waitable: bool = False
    is_bounded: bool = False


SURE: Final = Judgement(Verdict.SURE)
FULL: Final = Judgement(Verdict.FULL, Reason.INSUFFICIENT_STORAGE)
CONTENDED: Final = Judgement(Verdict.CONTENDED, Reason.CONTENDED)
WAITABLE: Final = Judgement(Verdict.CONTENDED, Reason.CONTENDED, is_waitable=True)
OWN_VOLUMES: Final = Judgement(Verdict.CONTENDED, Reason.OWN_VOLUMES)
BACKING_IMAGE: Final = Judgement(Verdict.CONTENDED, Reason.BACKING_IMAGE)
GAVE_UP: Final = Judgement(Verdict.CONTENDED, Reason.NOT_EVALUATED, is_bounded=True)
KEPT: Final = Judgement(Verdict.CONTENDED, Reason.KEPT)
IN_USE: Final = Judgement(Verdict.UNSUITABLE, Reason.IN_USE_ELSEWHERE)
LATE: Final = Judgement(Verdict.CONTENDED, Reason.NOT_EVALUATED)  # the call's time is up


def unsuitable(reason: Reason) -> Judgement:
    return Judgement(Verdict.UNSUITABLE, reason)
