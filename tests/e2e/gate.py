"""The webhook in front of the scene's API server, which reviews growth; it can be away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.e2e.harness import Scene
from tests.e2e.programs import leader_address
from tests.e2e.webhooks import OURS, Webhook
from tests.waiting import wait_until

WAIT_SECONDS: Final = 60.0


class Gate:
    """The one copy of the webhook that the API server reaches. Threads: one at a time."""

    def __init__(self, scene: Scene, flags: Sequence[str] = ()) -> None:
        self._scene, self._flags = scene, flags
        self.webhook: Webhook | None = None

    def open(self) -> None:
        """Start it, unless it runs, and wait until the API server is told to ask it."""
        if self.webhook is None:
            cluster = self._scene.cluster
            self.webhook = Webhook(cluster, ("--leader-address", leader_address(cluster), *self._flags))
        self.webhook.wait_ready()
        wait_until(lambda: is_configured(self._scene), "configuration with all entries", WAIT_SECONDS)

    def close(self) -> None:
        if self.webhook is not None:
            self.webhook.stop(kill=True)  # nobody calls it any more: it would serve on for 5 s
            self.webhook = None

    def reviews(self) -> float:
        return self.webhook.counted("expansion_reviews_total") if self.webhook is not None else 0.0


def is_configured(scene: Scene) -> bool:
    found = scene.api.get_or_none(OURS[1])
    return found is not None and len(found.get("webhooks") or ()) == 3
