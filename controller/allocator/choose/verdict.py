"""The verdict on one node: whether the pod's volumes fit there, why not, and at which places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from controller.model.places import Place
from controller.rules.demand import VolumeDemand
from controller.rules.reasons import Reason

_NO_PLACE: Final[Mapping[str, Place]] = {}


class Verdict(Enum):
    """SURE: the pod's volumes fit beside all that is taken. CONTENDED: they would fit if nothing were taken. FULL: not
    even then. UNSUITABLE: a rule other than room refuses them."""

    SURE = auto()
    CONTENDED = auto()
    FULL = auto()
    UNSUITABLE = auto()


@dataclass(frozen=True, slots=True)
class Lack:
    """A volume that is bound to no node, and of which no disk takes a further copy beside those at `places`."""

    demand: VolumeDemand
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason. `is_bounded`: the search stopped at its limit. `places`: by volume, on a sure node.
    `lack`: what is refused on every node, with a reason that is the cluster's."""

    verdict: Verdict
    reason: Reason | None = None
    is_bounded: bool = False
    places: Mapping[str, Place] = field(default_factory=lambda: _NO_PLACE, hash=False)
    lack: Lack | None = field(default=None, hash=False)

    @property
    def is_sure(self) -> bool:
        return self.verdict is Verdict.SURE


SURE: Final = Judgement(Verdict.SURE)
FULL: Final = Judgement(Verdict.FULL, Reason.INSUFFICIENT_STORAGE)
CONTENDED: Final = Judgement(Verdict.CONTENDED, Reason.CONTENDED)
BACKING_IMAGE: Final = Judgement(Verdict.CONTENDED, Reason.BACKING_IMAGE)
GAVE_UP: Final = Judgement(Verdict.CONTENDED, Reason.NOT_EVALUATED, is_bounded=True)
KEPT: Final = Judgement(Verdict.CONTENDED, Reason.KEPT)
IN_USE: Final = Judgement(Verdict.UNSUITABLE, Reason.IN_USE_ELSEWHERE)
NO_LONGHORN: Final = Judgement(Verdict.UNSUITABLE, Reason.NO_LONGHORN_NODE)
LATE: Final = Judgement(Verdict.CONTENDED, Reason.NOT_EVALUATED)  # the call's time is up


def unsuitable(reason: Reason) -> Judgement:
    return Judgement(Verdict.UNSUITABLE, reason)
