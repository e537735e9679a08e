"""How the programmes of many runs end: what came of each is written down, and what is not right is told."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def conclude(output: Path, outcomes: Sequence[Any], problems: Sequence[str]) -> int:
    """The exit code. `outcomes` are dataclasses."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=2) + "\n")
    print(f"written: {output}")
    for problem in problems:
        print(f"NOT AS IT HAS TO BE: {problem}", file=sys.stderr)
    return 1 if problems else 0
