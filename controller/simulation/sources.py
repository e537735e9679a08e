"""Where the objects of a simulation come from: the living cluster, read only, or files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final

from controller.errors import ClusterError, ConfigError
from controller.follow.kinds import KINDS
from controller.kube.api import KubeApi, find, listed
from controller.kube.resources import CONFIG_MAPS, Resource
from controller.placement.plan_entries import LABELS
from controller.plan.complaints import InputError
from controller.plan.reading import parse_documents, read_document
from controller.plan.saved import read_file, saved_objects
from controller.settings import ProcessSettings
from controller.simulation.state import SavedCluster

COMPONENT: Final = "app.kubernetes.io/component"
_ESSENTIAL: Final = ("node", "volume", "replica")  # without them there is nothing to simulate
_SELECTOR: Final = f"{COMPONENT}={LABELS[COMPONENT]}"


def read_workload_file(path: str, stdin: IO[bytes]) -> Iterator[object]:
    """The documents of a file; "-" is standard input. InputError names the file."""
    data = read_file(path) if path != "-" else read_document(stdin)
    try:
        yield from parse_documents(data)
    except InputError as error:
        raise InputError(path, error.field_name, error.problem) from error


def read_objects(path: str) -> SavedCluster:
    """Saved objects; InputError names the file."""
    return SavedCluster(saved_objects(path), path)


def read_cluster(api: KubeApi, namespace: str, origin: str, tell: Callable[[str], None]) -> SavedCluster:
    """The objects of the living cluster. `tell` hears which kind is read. What the caller may not list is remarked on;
    ClusterError where that leaves nothing to simulate."""
    source = SavedCluster([], origin)
    for kind in KINDS:
        if kind.name == "record" or (kind.name == "backup" and not _restores(source.objects)):
            continue
        tell(kind.resource.plural)
        try:
            source.objects += _listed(api, kind.resource, namespace if kind.in_longhorn else None)
        except ClusterError as error:
            if kind.name in _ESSENTIAL:
                raise
            source.remarks.append(f"{kind.resource.plural} are missing: {error}")
    if not any(isinstance(one, dict) and one["kind"] == "Node" and one["apiVersion"] != "v1" for one in source.objects):
        raise ConfigError(f"there are no Longhorn nodes in the namespace {namespace}: is --namespace right?")
    tell("plans")
    try:
        source.objects += _listed(api, CONFIG_MAPS, namespace, labelSelector=_SELECTOR)
        settings = find(api, CONFIG_MAPS, namespace, ProcessSettings().config_map)
        source.objects += [_typed(CONFIG_MAPS, settings)] if settings is not None else []
    except ClusterError as error:
        source.remarks.append(f"the leader's ConfigMaps are missing: {error}")
    return source


def _listed(api: KubeApi, resource: Resource, namespace: str | None, **query: str) -> Iterable[object]:
    return [_typed(resource, raw) for raw in listed(api, resource, namespace, **query)]


def _typed(resource: Resource, raw: dict[str, Any]) -> dict[str, Any]:
    """As `Resource.typed`, without what no decision reads."""
    raw.get("metadata", {}).pop("managedFields", None)
    return resource.typed(raw)


def _restores(objects: Iterable[object]) -> bool:
    """Whether any class makes volumes from a backup; a cluster may have very many Backups."""
    classes = (one for one in objects if isinstance(one, dict) and one["kind"] == "StorageClass")
    return any((one.get("parameters") or {}).get("fromBackup") for one in classes)
