"""Prepares an uninstallation, in an order that leaves no pod waiting for an extender that is gone.

1. The extender is switched off, the gate is opened, and the webhook configurations are emptied: Longhorn places alone,
   no pod opts in any more, and those that ask for the extender are let through. The switch, a live setting, comes
   first, as the leader would write both again. What it wrote just before it saw the switch is taken away as well. The
   configurations stay: they are the manifest's.
2. The pods that still wait with the extender's resource are waited for. Once nobody answers, kube-scheduler would look
   for that resource on the nodes, and they would stay pending for ever.
3. What the leader made is handed to the garbage collector, as belonging to the leader's account: it goes when that
   does. The authorities stay unless they are to go as well: whoever holds their certificates trusts an installation
   that is made anew.

Each step may be done again. The leader may run all along: it keeps the metadata of what it writes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from controller.clock import Clock
from controller.errors import ClusterError, ConfigError, ConflictError, MalformedRequestError, NotFoundError
from controller.kube.api import KubeApi, find, listed
from controller.kube.resources import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    FORMER_CONFIGURATIONS,
    LEASES,
    LONGHORN_SETTINGS,
    OUR_CONFIGURATIONS,
    PODS,
    POLICY_BINDINGS,
    SECRETS,
    SELF_REVIEWS,
    SERVICE_ACCOUNTS,
    Resource,
)
from controller.model.names import CANARY_LABEL, DEFAULT_SCHEDULER, EXTENDER_RESOURCE, GATE
from controller.model.workload import pod_facts
from controller.placement.plan_entries import SHARDS, shard_name
from controller.process.flags import split_names
from controller.settings import ENABLED, ProcessSettings

ACCOUNT: Final = "longhorn-scheduler-extender"
GONE_SECONDS: Final = 3.0  # entries must have stayed away for this long
TOTAL_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.5
DELETED: Final = (
    (POLICY_BINDINGS, GATE),  # first: meanwhile nobody gives Replicas their disks
    *((resource, name) for resource, names in FORMER_CONFIGURATIONS.items() for name in names),
)
LOOK_SECONDS: Final = 1.0
LISTED: Final = 20  # pods that the error names
TRIES: Final = 10
_ACCOUNT_PREFIX: Final = "system:serviceaccount:"


class PodsWaitError(ClusterError):
    """Pods would be left pending for ever."""


def remove_webhooks(
    api: KubeApi,
    clock: Clock,
    namespace: str,
    config_map: str,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Sequence[str]:
    """Switches the extender off, opens the gate and empties the webhook configurations.

    Returns one line for the switch, for each configuration that is there, whoever emptied it (the leader, which hears
    of the switch as well, may be first), and for each object that was deleted. ClusterError when the configurations
    cannot be emptied, or are filled again; ConfigError when the live settings are not where they are said to be: what
    runs elsewhere would not hear of it.

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
            raw = find(api, resource, None, name)
            if raw is None:
                continue
            empty[f"{resource.kind} {name}: empty"] = None
            if raw.get("webhooks"):
                gone_since = clock.now()
                with contextlib.suppress(ConflictError, NotFoundError):  # the next round sees what somebody else wrote
                    api.replace(resource, None, name, {**raw, "webhooks": []})
        if clock.now() > began + TOTAL_SECONDS:
            names = ", ".join(OUR_CONFIGURATIONS.values())
            raise ClusterError(f"webhook configurations {names} do not stay empty: another writer fills them again")
        pause(PAUSE_SECONDS)
    return [switched, *empty, *deleted]


def _switch_off(api: KubeApi, namespace: str, config_map: str) -> str:
    setting = find(api, LONGHORN_SETTINGS, namespace, ENABLED) or {}
    if str(setting.get("value", "")).lower() in ("1", "t", "true"):
        raise ClusterError(f"Longhorn's Setting {ENABLED} overrides the ConfigMap: set it to false first")
    try:
        api.patch(CONFIG_MAPS, namespace, config_map, {"data": {ENABLED: "false"}})
    except NotFoundError as error:
        raise ConfigError(
            f"there is no ConfigMap {namespace}/{config_map}, so nothing was changed: name the one with the live "
            "settings by --namespace and --config-map"
        ) from error
    return (
        f"ConfigMap {namespace}/{config_map}: {ENABLED} is false. Pods that wait are let through unchecked; one that "
        "comes to a node without room hangs there until its volume has room"
    )


def _delete(api: KubeApi, resource: Resource, name: str) -> bool:
    """Deletes the object. Returns whether it was there."""
    try:
        api.delete(resource, None, name)
    except NotFoundError:
        return False
    return True


def made_by_the_leader(settings: ProcessSettings, *, purges: bool) -> Sequence[tuple[Resource, str]]:
    """Kind and name of each object in its namespace, and of the Leases that second schedulers leave behind. `purges`:
    the authorities as well. What others write (`cert-manager`, `provided`) is theirs."""
    second = [name for name in split_names(settings.scheduler_names) if name != DEFAULT_SCHEDULER]
    found = [
        *((LEASES, name) for name in (settings.lease, *second)),
        *((ENDPOINT_SLICES, name) for name in (settings.service, settings.replica_scheduler_service)),
        *((CONFIG_MAPS, shard_name(index)) for index in range(SHARDS)),
    ]
    secrets: list[str] = []
    if settings.tls_mode == "self":
        secrets += [settings.tls_secret, settings.tls_client_secret]
        secrets += [settings.tls_ca_secret] * purges
    if settings.webhook_tls_mode == "self":
        secrets += [settings.webhook_tls_secret, settings.webhook_client_tls_secret]
        secrets += [settings.replica_scheduler_tls_secret, *[settings.webhook_ca_secret] * purges]
    return [*found, *((SECRETS, name) for name in secrets)]


def prepare_uninstall(
    api: KubeApi,
    clock: Clock,
    settings: ProcessSettings,
    *,
    wait_seconds: float,
    is_forced: bool = False,
    purges: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Yields one line for each step when it is done.

    `wait_seconds`: for pods that carry the resource; PodsWaitError when some are left, unless `is_forced`. ClusterError
    and ConfigError as `remove_webhooks` has them, and ConfigError when the leader's account cannot be determined.

    Threads: one. Blocks: for `wait_seconds` and what `remove_webhooks` takes. I/O: the API server.
    """
    yield from remove_webhooks(api, clock, settings.namespace, settings.config_map, pause=pause)
    yield from _wait_for_pods(api, clock, wait_seconds, is_forced, pause)
    owner = _account(api, settings.namespace)
    for resource, name in made_by_the_leader(settings, purges=purges):
        if _hand_over(api, resource, settings.namespace, name, owner, pause):
            yield f"{resource.kind} {settings.namespace}/{name}: will be deleted with ServiceAccount {owner['name']}"


def _wait_for_pods(
    api: KubeApi, clock: Clock, wait_seconds: float, is_forced: bool, pause: Callable[[float], None]
) -> Iterator[str]:
    deadline, said = clock.now() + wait_seconds, -1
    while waiting := waiting_pods(api):
        if clock.now() >= deadline:
            named = ", ".join(waiting[:LISTED]) + (", ..." if len(waiting) > LISTED else "")
            text = f"pending pods that request {EXTENDER_RESOURCE}: {len(waiting)} ({named})"
            if not is_forced:
                raise PodsWaitError(
                    f"{text}. Without the extender they stay pending: delete them, or use --force "
                    "(with Helm: upgrade with uninstall.force=true first)"
                )
            yield f"{text}; going on, as --force says"
            return
        if len(waiting) != said:
            said = len(waiting)
            yield f"waiting for pending pods that request {EXTENDER_RESOURCE}: {said}"
        pause(LOOK_SECONDS)
    yield f"no pending pod requests {EXTENDER_RESOURCE}"


def waiting_pods(api: KubeApi) -> list[str]:
    """`namespace/name` of pods that have no node and carry the resource, but for our own canary. ClusterError."""
    found: list[str] = []
    for raw in listed(api, PODS, fieldSelector="spec.nodeName="):
        try:
            pod = pod_facts(raw)
        except MalformedRequestError:
            continue  # nobody schedules it
        is_waiting = pod.is_opted_in and not (pod.node_name or pod.is_finished or pod.is_deleting)
        if is_waiting and CANARY_LABEL not in (raw["metadata"].get("labels") or {}):
            found.append(f"{pod.namespace}/{pod.name}")
    return sorted(found)


def _account(api: KubeApi, namespace: str) -> dict[str, str]:
    """An ownerReference to the leader's ServiceAccount: in the leader's pod our own, else the one of that name."""
    body = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind}
    user = (api.create(SELF_REVIEWS, None, body).get("status") or {}).get("userInfo") or {}
    name, uid = str(user.get("username", "")).removeprefix(f"{_ACCOUNT_PREFIX}{namespace}:"), str(user.get("uid", ""))
    if name.startswith(_ACCOUNT_PREFIX) or name == user.get("username") or not uid:
        account = find(api, SERVICE_ACCOUNTS, namespace, ACCOUNT)
        if account is None:
            raise ConfigError(f"--namespace: there is no ServiceAccount {namespace}/{ACCOUNT}")
        name, uid = ACCOUNT, str(account["metadata"]["uid"])
    return {"apiVersion": SERVICE_ACCOUNTS.api_version, "kind": SERVICE_ACCOUNTS.kind, "name": name, "uid": uid}


def _hand_over(
    api: KubeApi, resource: Resource, namespace: str, name: str, owner: dict[str, str], pause: Callable[[float], None]
) -> bool:
    """Adds the owner to the object. Returns whether the object is there."""
    for _ in range(TRIES):
        raw = find(api, resource, namespace, name)
        if raw is None:
            return False
        owners = raw["metadata"].get("ownerReferences") or []
        if any(one.get("uid") == owner["uid"] for one in owners):
            return True
        owned = {**raw, "metadata": {**raw["metadata"], "ownerReferences": [*owners, owner]}}
        try:
            api.replace(resource, namespace, name, owned)
        except ConflictError:
            pause(LOOK_SECONDS)  # the leader has written it
            continue
        return True
    raise ClusterError(f"{resource.kind} {namespace}/{name} changes too often to be updated; try again")
