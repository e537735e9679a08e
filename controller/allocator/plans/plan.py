"""What the leader has decided about a volume's missing copies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from controller.model.places import Place


@dataclass(frozen=True, slots=True)
class Plan:
    """Places for the missing copies of one volume.

    `uid` is that of the Volume object, or of its claim while there is no Volume yet: the same name made again is
    another volume. `pods` are the UIDs of the pods that claim it. `since_utc` has whole seconds.
    """

    volume: str
    uid: str
    places: tuple[Place, ...]
    pods: tuple[str, ...]
    since_utc: datetime
