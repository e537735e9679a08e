"""Which files of a folder a container engine sends to a build, by the folder's .dockerignore."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[[^]]*\]|\\?.")
_MEANS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, slots=True)
class Rule:
    pattern: re.Pattern[str]
    lets_in: bool

    @classmethod
    def parse(cls, line: str) -> Rule:
        words = line.removeprefix("!").strip().strip("/")
        tokens = _TOKEN.findall(words)
        text = "".join(_MEANS.get(one, one if one[0] == "[" else re.escape(one[-1])) for one in tokens)
        return cls(re.compile(text), line.startswith("!"))


class BuildContext:
    """A rule that names a folder counts for all below it; of the rules that match a file the last one decides."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        lines = (line.strip() for line in (folder / ".dockerignore").read_text().splitlines())
        self._rules = [Rule.parse(line) for line in lines if line and not line.startswith("#")]

    def has(self, name: str) -> bool:
        """Whether the file of that name, seen from the folder, is sent."""
        path = PurePosixPath(name)
        above = [str(one) for one in (path, *path.parents)][:-1]
        sent = True
        for rule in self._rules:
            if any(rule.pattern.fullmatch(one) for one in above):
                sent = rule.lets_in
        return sent

    def files(self, below: str = ".") -> Iterator[str]:
        """All names of files that are sent, of that folder or of that one file."""
        start = self._folder / below
        if start.is_file():
            yield from (name for name in (below,) if self.has(name))
        for folder, _, names in os.walk(start):
            inside = (str((Path(folder) / name).relative_to(self._folder)) for name in sorted(names))
            yield from (name for name in inside if self.has(name))
