"""Saved objects: a file as kubectl prints it, a folder of such files, or a support bundle."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from controller.plan.complaints import InputError
from controller.plan.reading import MOST_BYTES, parse_documents, read_document

OBJECTS: Final = "objects/"  # in a bundle
_ENDINGS: Final = (".json", ".yaml", ".yml")


def saved_objects(path: str) -> list[object]:
    """The objects in that file, folder or bundle. InputError names the file."""
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
            found += _objects_in(path, read_file(path))
    except OSError as error:
        raise InputError(path, "", error.strerror or str(error)) from error
    if not found:
        raise InputError(path, "", "there are no objects in it")
    return found


def read_file(path: str) -> bytes:
    """InputError names the file."""
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
