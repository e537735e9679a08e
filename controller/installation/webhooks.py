"""Opens the gate and takes every entry out of the webhook configurations, before the product is uninstalled.

The leader would write both again, so the extender is switched off first, by its live setting; the leader then wants
none. Right after that Longhorn may place again. What the leader wrote just before it saw the change is taken away as
well. The configurations stay: they are the manifest's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from controller.clock import Clock
from controller.errors import ClusterError, ConfigError, ConflictError, NotFoundError
from controller.kube.api import KubeApi
from controller.kube.resources import (
    CONFIG_MAPS,
    FORMER_CONFIGURATIONS,
    LONGHORN_SETTINGS,
    OUR_CONFIGURATIONS,
    POLICY_BINDINGS,
    Resource,
)
from controller.model.names import GATE
from controller.settings import ENABLED

GONE_SECONDS: Final = 3.0  # they must have stayed empty for this long
TOTAL_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.5
DELETED: Final = (
    (POLICY_BINDINGS, GATE),  # first: meanwhile nobody gives Replicas their disks
    *((resource, name) for resource, names in FORMER_CONFIGURATIONS.items() for name in names),
)


def remove_webhooks(
    api: KubeApi,
    clock: Clock,
    namespace: str,
    config_map: str,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Sequence[str]:
    """What holds now, one line each: the switch, each configuration that is there, whoever emptied it (the leader,
    which hears of the switch as well, may be first), and each object that was deleted. ClusterError when they cannot be
    emptied, or come back; ConfigError when the live settings are not where they are said to be: what runs elsewhere
    would not hear of it.

    Threads: one. Blocks: for TOTAL_SECONDS at most, beside its calls.
    """
    switched = _switch_off(api, namespace, config_map)
    empty: dict[str, None] = {}
    deleted: dict[str, None] = {}
    began = gone_since = clock.now()
    while clock.now() < gone_since + GONE_SECONDS:
        for resource, name in DELETED:
            if _delete(api, resource, name):
                deleted[f"{resource.kind} {name}: deleted"] = None
                gone_since = clock.now()
        for resource, name in OUR_CONFIGURATIONS.items():
            with contextlib.suppress(NotFoundError):
                if _empty(api, resource, name):
                    gone_since = clock.now()
                empty[f"{resource.kind} {name}: empty"] = None
        if clock.now() > began + TOTAL_SECONDS:
            names = ", ".join(OUR_CONFIGURATIONS.values())
            raise ClusterError(f"webhook configurations {names} do not stay empty: another writer fills them again")
        pause(PAUSE_SECONDS)
    return [switched, *empty, *deleted]


def _switch_off(api: KubeApi, namespace: str, config_map: str) -> str:
    try:
        setting = api.get(LONGHORN_SETTINGS, namespace, ENABLED)
    except NotFoundError:
        pass
    else:
        if str(setting.get("value", "")).lower() in ("1", "t", "true"):
            raise ClusterError(f"Longhorn's Setting {ENABLED} overrides the ConfigMap: set it to false first")
    try:
        api.patch(CONFIG_MAPS, namespace, config_map, {"data": {ENABLED: "false"}})
    except NotFoundError as error:
        raise ConfigError(
            f"there is no ConfigMap {namespace}/{config_map}, so nothing was changed: name the one with the live "
            "settings by --namespace and --config-map"
        ) from error
    return f"ConfigMap {namespace}/{config_map}: {ENABLED} is false"


def _empty(api: KubeApi, resource: Resource, name: str) -> bool:
    """Whether it had entries; NotFoundError when it is not there."""
    raw = api.get(resource, None, name)
    if not raw.get("webhooks"):
        return False
    with contextlib.suppress(ConflictError):  # somebody writes it now; the next round sees what
        api.replace(resource, None, name, {**raw, "webhooks": []})
    return True


def _delete(api: KubeApi, resource: Resource, name: str) -> bool:
    """Whether it was there."""
    try:
        api.delete(resource, None, name)
    except NotFoundError:
        return False
    return True
