"""The digests of what a release has pushed, as `make image` and `make push-chart` left them in dist/.

`python -m release.pushed` prints `image=sha256:...` and `chart=sha256:...`, as a workflow takes a step's outputs.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

from release.version import ROOT

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_OF_CHART: Final = re.compile(r"^Digest: (\S+)$", re.MULTILINE)


class PushedError(Exception):
    """Why it is not known what was pushed."""


def pushed(folder: Path) -> dict[str, str]:
    """The digests of the image, by the file that docker's builder wrote, and of the chart, by Helm's words. Raises
    PushedError."""
    image, chart = folder / "image.json", folder / "chart.txt"
    try:
        found = {
            "image": str(json.loads(image.read_text()).get("containerimage.digest")),
            "chart": "".join(_OF_CHART.findall(chart.read_text())),
        }
    except (OSError, ValueError) as error:
        raise PushedError(f"{folder}: {error}; push image and chart first") from error
    for name, digest in found.items():
        if _DIGEST.fullmatch(digest) is None:
            raise PushedError(f"{folder}: no digest of the {name}, but {digest!r}")
    return found


def main() -> int:
    try:
        for name, digest in pushed(ROOT / "dist").items():
            print(f"{name}={digest}")
    except PushedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
