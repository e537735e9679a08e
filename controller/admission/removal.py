"""Takes the webhook configurations away, before the product is uninstalled.

The leader would write them again, so that the extender is switched off first, by its live setting; the leader then
wants none. What it wrote just before it saw the change is deleted as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from controller.admission.configurations import Raw
from controller.admission.reconciler import Api
from controller.clock import Clock
from controller.errors import ClusterError, NotFoundError
from controller.kube.resources import (
    CONFIG_MAPS,
    FORMER_CONFIGURATIONS,
    LONGHORN_SETTINGS,
    OUR_CONFIGURATIONS,
    Resource,
)

ENABLED: Final = "scheduler-extender-enabled"
GONE_SECONDS: Final = 3.0  # they must have been gone for so long
TOTAL_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.5


class RemovalApi(Api, Protocol):
    def patch(self, resource: Resource, namespace: str | None, name: str, body: object) -> Raw: ...


def remove_webhooks(
    api: RemovalApi,
    clock: Clock,
    namespace: str,
    config_map: str,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Sequence[str]:
    """What was done, a line each. ClusterError when they cannot be deleted, or come back.

    Threads: one. Blocks: for TOTAL_SECONDS at most, beside its calls.
    """
    done = [_switch_off(api, namespace, config_map)]
    began = gone_since = clock.now()
    while clock.now() < gone_since + GONE_SECONDS:
        for resource, name in _ours():
            if _delete(api, resource, name):
                done.append(f"{resource.kind} {name}: deleted")
                gone_since = clock.now()
        if clock.now() > began + TOTAL_SECONDS:
            names = ", ".join(OUR_CONFIGURATIONS.values())
            raise ClusterError(f"webhook configurations {names} come back: somebody writes them again")
        pause(PAUSE_SECONDS)
    return done


def _ours() -> list[tuple[Resource, str]]:
    """Those of earlier releases too."""
    return [
        (resource, name)
        for resource, now in OUR_CONFIGURATIONS.items()
        for name in (now, *FORMER_CONFIGURATIONS[resource])
    ]


def _switch_off(api: RemovalApi, namespace: str, config_map: str) -> str:
    try:
        setting = api.get(LONGHORN_SETTINGS, namespace, ENABLED)
    except NotFoundError:
        pass
    else:
        if str(setting.get("value", "")).lower() in ("1", "t", "true"):
            raise ClusterError(f"Longhorn's Setting {ENABLED} overrides the ConfigMap: set it to false first")
    try:
        api.patch(CONFIG_MAPS, namespace, config_map, {"data": {ENABLED: "false"}})
    except NotFoundError:
        return f"ConfigMap {namespace}/{config_map}: not there, so nothing is switched on"
    return f"ConfigMap {namespace}/{config_map}: {ENABLED} is false"


def _delete(api: RemovalApi, resource: Resource, name: str) -> bool:
    """Whether it was there."""
    try:
        api.delete(resource, None, name)
    except NotFoundError:
        return False
    return True
