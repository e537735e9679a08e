"""Saved objects: a file as kubectl prints it, a folder of such files, or a support bundle."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from controller.plan.complaints import InputError
from controller.plan.reading import MOST_BYTES, parse_documents, read_document

OBJECTS: Final = "objects/"  # in a bundle
MOST_NAME_BYTES: Final = 1024**2
_NAMES: Final = (  # of what follows in the archive, or facts about it
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_ENDINGS: Final = (".json", ".yaml", ".yml")


def saved_objects(path: str) -> list[object]:
    """The objects in that file, folder or bundle. InputError names the file."""
    found, place = list[object](), Path(path)
    try:
        if place.is_dir():
            for one in sorted(one for one in place.rglob("*") if one.suffix in _ENDINGS and one.is_file()):
                found += _objects_in(str(one), read_file(str(one)))
        elif (archive := _archive(path)) is not None:
            for name, data in _members(archive, path):
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


class _Entry(tarfile.TarInfo):
    """What the library would read whole into memory, a name or its like, is no larger than any name is."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type in _NAMES and found.size > MOST_NAME_BYTES:
            raise InputError("", "", f"is no archive: a name of {found.size} bytes")
        return found


def _archive(path: str) -> tarfile.TarFile | None:
    """None: it is another file. InputError names the file."""
    try:
        return tarfile.open(path, tarinfo=_Entry)
    except tarfile.TarError:
        return None
    except InputError as error:
        raise InputError(path, "", error.problem) from error


def _members(opened: tarfile.TarFile, path: str) -> Iterator[tuple[str, bytes]]:
    """The files with objects of a bundle. Nothing is written, wherever the names point."""
    left = MOST_BYTES
    try:
        with opened as archive:
            for member in archive:
                inside = member.name.partition("/")[2] if not member.name.startswith(OBJECTS) else member.name
                if not member.isfile() or not inside.startswith(OBJECTS):
                    continue
                left -= member.size
                if left < 0:
                    raise InputError("", "", f"has more than {MOST_BYTES} bytes of objects")
                stream = archive.extractfile(member)
                yield member.name, stream.read() if stream is not None else b""
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(path, "", f"is no archive: {error}") from error
    except InputError as error:
        raise InputError(path, "", error.problem) from error


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
