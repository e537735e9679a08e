"""Where the objects of a simulation come from: the living cluster, read only, or files."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from controller.errors import ClusterError, ConfigError
from controller.follow.kinds import KINDS
from controller.kube.api import KubeApi, find, listed
from controller.kube.resources import CONFIG_MAPS, Resource
from controller.placement.plan_entries import LABELS
from controller.plan.complaints import InputError
from controller.plan.reading import MOST_BYTES, parse_documents, read_document
from controller.settings import ProcessSettings
from controller.simulation.state import SavedCluster

COMPONENT: Final = "app.kubernetes.io/component"
OBJECTS: Final = "objects/"  # in a bundle
_ENDINGS: Final = (".json", ".yaml", ".yml")
_ESSENTIAL: Final = ("node", "volume", "replica")  # without them there is nothing to simulate
_SELECTOR: Final = f"{COMPONENT}={LABELS[COMPONENT]}"


def read_workload_file(path: str, stdin: IO[bytes]) -> Iterator[object]:
    """The documents of a file; "-" is standard input. InputError names the file."""
    data = _read(path) if path != "-" else read_document(stdin)
    try:
        yield from parse_documents(data)
    except InputError as error:
        raise InputError(path, error.field_name, error.problem) from error


def read_objects(path: str) -> SavedCluster:
    """Saved objects: a file as kubectl prints it, a folder of such files, or a bundle. InputError names the file."""
    found, place = list[object](), Path(path)
    try:
        if place.is_dir():
            files = sorted(one for one in place.rglob("*") if one.suffix in _ENDINGS and one.is_file())
            for one in files:
                found += _objects_in(str(one), one.read_bytes())
        elif tarfile.is_tarfile(place):
            for name, data in _members(path):
                found += _objects_in(f"{path}: {name}", data)
        else:
            found += _objects_in(path, _read(path))
    except OSError as error:
        raise InputError(path, "", error.strerror or str(error)) from error
    if not found:
        raise InputError(path, "", "there are no objects in it")
    return SavedCluster(found, path)


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as stream:
            return read_document(stream)
    except OSError as error:
        raise InputError(path, "", error.strerror or str(error)) from error


def _members(path: str) -> Iterator[tuple[str, bytes]]:
    """The files with objects of a bundle. Nothing is written, wherever the names point."""
    left = MOST_BYTES
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                inside = member.name.partition("/")[2] if not member.name.startswith(OBJECTS) else member.name
                if not member.isfile() or not inside.startswith(OBJECTS):
                    continue
                left -= member.size
                if left < 0:
                    raise InputError(path, "", f"has more than {MOST_BYTES} bytes of objects")
                stream = archive.extractfile(member)
                yield member.name, stream.read() if stream is not None else b""
    except (tarfile.TarError, EOFError) as error:
        raise InputError(path, "", f"is no archive: {error}") from error


def _objects_in(name: str, data: bytes) -> Iterator[Any]:
    try:
        for document in parse_documents(data):
            if isinstance(document, dict) and "objects" in document and "kind" not in document:
                given = document["objects"]
                yield from given if isinstance(given, list) else [given]
            elif isinstance(document, list):
                yield from document
            elif document is not None:
                yield document
    except InputError as error:
        raise InputError(name, error.field_name, error.problem) from error


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
    """The object with its version and kind, which lists leave out, and without what no decision reads."""
    raw.get("metadata", {}).pop("managedFields", None)
    return {**raw, "apiVersion": resource.api_version, "kind": resource.kind}


def _restores(objects: Iterable[object]) -> bool:
    """Whether any class makes volumes from a backup; a cluster may have very many Backups."""
    classes = (one for one in objects if isinstance(one, dict) and one["kind"] == "StorageClass")
    return any((one.get("parameters") or {}).get("fromBackup") for one in classes)
