"""Hooks of MkDocs (mkdocs.yml): links from the pages to files outside docs/ work on the site as they do in a clone.

The site has a copy of each such file below `source/`: pages as pages, with what they link to in turn, others as text,
and folders as lists of names. No address of a repository is needed for that.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

COPIES: Final = "source"
PAGE: Final = ".md"
_LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)(?=[#)])")


def targets_of(page: Path, text: str) -> dict[str, Path]:
    """The links in that page to other files, as they are written, each with the file."""
    return {link: Path(os.path.normpath(page.parent / link)) for link in _LINK.findall(text)}


def place_of(file: Path, root: Path, docs: Path) -> str:
    """Where the site has that file."""
    if file.is_relative_to(docs):
        return file.relative_to(docs).as_posix()
    name = file.relative_to(root).as_posix()
    return f"{COPIES}/{name}" if file.suffix == PAGE else f"{COPIES}/{name}.txt"


def on_files(files: Files, config: Any) -> Files:
    """Add the copies."""
    root, docs = _roots(config)
    waiting = [Path(file.abs_src_path) for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for target in targets_of(page, page.read_text(encoding="utf-8")).values():
            if target in seen or target.is_relative_to(docs) or not target.exists():
                continue
            seen.add(target)
            place = place_of(target, root, docs)
            if target.is_dir():
                names = sorted(one.name for one in target.iterdir() if not one.name.startswith("."))
                files.append(File.generated(config, place, content="\n".join(names)))
                continue
            files.append(File.generated(config, place, abs_src_path=str(target)))
            if target.suffix == PAGE:
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Have the links lead to the copies, and those of copies to the pages. One to nowhere stays as it is, so that the
    build complains."""
    root, docs = _roots(config)
    source = Path(page.file.abs_src_path)
    targets, here = targets_of(source, markdown), str(Path(page.file.src_uri).parent)

    def moved(found: re.Match[str]) -> str:
        place = place_of(targets[found.group()], root, docs)
        return os.path.relpath(place, here) if files.get_file_from_path(place) else found.group()

    return _LINK.sub(moved, markdown)


def _roots(config: Any) -> tuple[Path, Path]:
    docs = Path(config["docs_dir"])
    return Path(config["config_file_path"]).resolve().parent, docs
