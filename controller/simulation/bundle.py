"""A support bundle: objects, settings, what every copy says of itself, logs and versions, in one archive.

Nothing of it is a secret, and what could not be had is named in its manifest. Simulations read it.
"""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from controller.errors import ClusterError, ConfigError, NotFoundError, SchedulerError
from controller.follow.kinds import KINDS
from controller.kube import resources
from controller.kube.api import KubeApi, listed
from controller.kube.resources import Resource
from controller.process.version import PACKAGE, product_version
from controller.settings import MEBIBYTE
from controller.simulation.redaction import Names, secrets_out_of, without_secrets

PATHS: Final = ("/status", "/overview", "/decisions", "/capacity")  # of every copy
MOST_MIB: Final = 200
LOG_BYTES: Final = 4 * MEBIBYTE  # of a container, before and after its last restart
_CLUSTER_WIDE: Final = (
    resources.MUTATING_WEBHOOKS,
    resources.VALIDATING_WEBHOOKS,
    resources.POLICIES,
    resources.POLICY_BINDINGS,
)
_OURS: Final = (resources.CONFIG_MAPS, resources.ENDPOINT_SLICES, resources.SERVICES, resources.LEASES)
_NAMESPACED: Final = (resources.EVENTS, resources.LONGHORN_ATTACHMENTS)
Ask = Callable[[str, Mapping[str, Any]], bytes]  # path and pod: what that copy answers


@dataclass(slots=True)
class Bundle:
    """Files by name, within a limit. `missing`: what is not there, and why."""

    most_bytes: int
    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[dict[str, str]] = field(default_factory=list)
    _bytes: int = 0

    def add(self, name: str, data: bytes) -> None:
        if self._bytes + len(data) > self.most_bytes:
            self.lack(name, f"the bundle would have more than {self.most_bytes // MEBIBYTE} MiB")
            return
        self._bytes += len(data)
        self.files[name] = data

    def lack(self, what: str, why: object) -> None:
        self.missing.append({"what": what, "why": secrets_out_of(str(why))})


def collect(
    api: KubeApi,
    namespace: str,
    ask: Ask,
    names: Names | None,
    time: str,
    tell: Callable[[str], None],
    most_mib: int = MOST_MIB,
) -> Bundle:
    """Everything that the caller may see. `ask` asks one copy; `names`: hashes them, None: they stay. What fails is
    noted. The most telling comes first, in case the limit is reached."""
    bundle = Bundle(most_mib * MEBIBYTE)
    objects = dict(_objects(api, namespace, bundle, tell))
    if names is not None:
        for found in objects.values():
            names.learn(found)
    for resource, found in objects.items():
        group = f".{resource.group}" if resource.group else ""
        items = found if names is None else names.hashed(found)
        body = {"apiVersion": "v1", "kind": "List", "items": items}
        bundle.add(f"objects/{resource.plural}{group}.json", _json(body))
    pods = [one for one in objects.get(resources.PODS, ()) if _is_ours(one, namespace)]
    for pod in pods:
        _add_answers(bundle, pod, ask, names, tell)
    for pod in pods:
        _add_logs(bundle, api, namespace, pod, names, tell)
    manifest = {
        "time": time,
        "command": product_version(),
        "namespace": namespace,
        "namesHashed": names is not None,
        "images": sorted({str(one.get("image")) for pod in pods for one in pod["spec"].get("containers") or ()}),
        "files": {name: len(data) for name, data in bundle.files.items()},
        "missing": bundle.missing,
    }
    bundle.files = {"manifest.json": _json(manifest), **bundle.files}
    return bundle


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


def _is_ours(pod: Mapping[str, Any], namespace: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return pod["metadata"].get("namespace") == namespace and labels.get("app.kubernetes.io/name") == PACKAGE


def _objects(
    api: KubeApi, namespace: str, bundle: Bundle, tell: Callable[[str], None]
) -> Iterable[tuple[Resource, list[dict[str, Any]]]]:
    wanted: list[tuple[Resource, str | None]] = [
        (kind.resource, namespace if kind.in_longhorn else None) for kind in KINDS
    ]
    wanted += [(resource, None) for resource in _CLUSTER_WIDE]
    wanted += [(resource, namespace) for resource in (*_OURS, *_NAMESPACED)]
    for resource, where in wanted:
        tell(resource.plural)
        try:
            found = [resource.typed(without_secrets(raw)) for raw in listed(api, resource, where)]
        except NotFoundError:
            continue  # without its CRD there are no objects of a kind
        except ClusterError as error:
            bundle.lack(f"objects/{resource.plural}", error)
            continue
        if resource in (*_CLUSTER_WIDE, *_OURS):
            found = [one for one in found if PACKAGE in str(one["metadata"].get("name")) or _is_own(one)]
        yield resource, found


def _is_own(raw: Mapping[str, Any]) -> bool:
    name, labels = str(raw["metadata"].get("name")), raw["metadata"].get("labels") or {}
    is_named = name.startswith(("zz-longhorn-scheduler", "longhorn-scheduler", "longhorn-manager-disk-scheduler"))
    return is_named or labels.get("app.kubernetes.io/name") == PACKAGE


def _add_answers(
    bundle: Bundle, pod: Mapping[str, Any], ask: Ask, names: Names | None, tell: Callable[[str], None]
) -> None:
    name = str(pod["metadata"]["name"])
    for path in PATHS:
        tell(f"{path} of {name}")
        file = f"copies/{name}{path}.json"
        try:
            answer = without_secrets(json.loads(ask(path, pod)))
        except (SchedulerError, OSError, ValueError) as error:
            bundle.lack(file, error)
            if path == PATHS[0]:
                return  # it was not reached
            continue
        if names is not None:
            names.learn_references(answer)
            answer = names.hashed(answer)
        bundle.add(file, _json(answer))


def _add_logs(
    bundle: Bundle,
    api: KubeApi,
    namespace: str,
    pod: Mapping[str, Any],
    names: Names | None,
    tell: Callable[[str], None],
) -> None:
    name = str(pod["metadata"]["name"])
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    restarted = {one.get("name") for one in statuses if one.get("restartCount")}
    for container in pod["spec"].get("containers") or ():
        for is_previous in (False, True) if container["name"] in restarted else (False,):
            file = f"logs/{name}/{container['name']}{'-previous' if is_previous else ''}.log"
            tell(file)
            try:
                data = api.read_log(namespace, name, str(container["name"]), previous=is_previous, most_bytes=LOG_BYTES)
            except ClusterError as error:
                bundle.lack(file, error)
                continue
            text = secrets_out_of(data.decode("utf-8", "replace"))
            if names is not None:
                names.learn_log(text)
                text = names.text(text)
            bundle.add(file, text.encode())


def write_bundle(bundle: Bundle, path: str, folder: str, seconds: float) -> int:
    """Writes the archive there; its size in bytes. ConfigError where that is not possible. `seconds`: since 1970."""
    try:
        with open(path, "wb", opener=_for_owner) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, data in bundle.files.items():
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(seconds), 0o600
                archive.addfile(entry, io.BytesIO(data))
        return Path(path).stat().st_size
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def _for_owner(path: str, flags: int) -> int:
    """Nobody else reads it, from its first byte on."""
    found = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(found).st_mode):
        os.fchmod(found, 0o600)
    return found


def names_of(missing: Sequence[Mapping[str, str]]) -> list[str]:
    """What is missing, a line each."""
    return [f"{one['what']}: {one['why']}" for one in missing]
