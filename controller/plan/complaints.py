"""What is said to people about a question: complaints, which end it, and remarks, which do not.

All of it is one line of printable text: names out of saved objects never reach a terminal as they stand.
"""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from controller.errors import SchedulerError

MOST_REMARKS: Final = 1_000
_LONGEST: Final = 1_000  # characters of a remark, or of one part of a complaint
_MOST_KINDS: Final = 20  # that one remark names


class InputError(SchedulerError):
    """Bad input: which object (empty: the document itself), which field, and what is wrong with it."""

    def __init__(self, object_name: str, field_name: str, problem: str) -> None:
        super().__init__(": ".join(printable(part) for part in (object_name, field_name, problem) if part))
        self.object_name, self.field_name, self.problem = object_name, field_name, problem


class LeftOutError(InputError):
    """An object that could not be read, and that a question needs. No other question is concerned."""


def printable(text: str) -> str:
    """`text` on one line: characters that a terminal would not show are escaped, and long texts are cut."""
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    if shown.isprintable():
        return shown
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in shown
    )


@lru_cache(maxsize=1024)
def nearest(name: str, names: tuple[str, ...], likeness: float) -> str:
    """The one of `names` that was most likely meant, case aside; "" if none has that `likeness` (0 to 1)."""
    by_lower = {known.lower(): known for known in names}
    found = get_close_matches(name.lower()[:100], by_lower, n=1, cutoff=likeness)
    return by_lower[found[0]] if found else ""


class Notes:
    """What a person should know besides the answers; each thing is said once however many questions there are.

    What could only be ignored is refused, unless the notes are lenient: then it is a remark.
    """

    def __init__(self, *, is_lenient: bool = False) -> None:
        self.is_lenient = is_lenient
        self.ignored: Counter[str] = Counter()  # objects of kinds that nothing is decided by
        self._remarks: dict[str, None] = {}
        self._is_cut = False

    def remark(self, text: str) -> None:
        self._keep(printable(text))

    def _keep(self, text: str) -> None:
        if len(self._remarks) < MOST_REMARKS:
            self._remarks[text] = None
        else:
            self._is_cut = text not in self._remarks or self._is_cut

    def pass_over(self, error: InputError, instead: str = "") -> None:
        """If lenient, continues without the input that `error` is about; otherwise raises it. `instead` is added to the
        remark, such as the value that is assumed."""
        if not self.is_lenient:
            raise error
        self._keep(f"{error}, {instead}" if instead else str(error))

    def lines(self) -> list[str]:
        found = list(self._remarks)
        if self._is_cut:
            found.append(f"more than {MOST_REMARKS} remarks; the others are not shown")
        if self.ignored:
            kinds = [f"{count} {kind}" for kind, count in sorted(self.ignored.items())]
            if len(kinds) > _MOST_KINDS:
                kinds[_MOST_KINDS:] = [f"{len(kinds) - _MOST_KINDS} more kinds"]
            found.append(printable(f"objects of kinds that nothing is decided by: {', '.join(kinds)}"))
        return found
