"""What is signed is what was pushed, by digest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from release.pushed import PushedError, pushed

IMAGE, CHART = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
HELM = f"Pushed: registry.example.com/charts/longhorn-scheduler-extender:1.2.3\nDigest: {CHART}\n"


def left(folder: Path, metadata: object = None, said: str = HELM) -> Path:
    (folder / "image.json").write_text(
        json.dumps(metadata or {"containerimage.digest": IMAGE, "buildx.build.ref": "a"})
    )
    (folder / "chart.txt").write_text(said)
    return folder


def test_the_digests_are_those_that_the_builder_and_helm_say(tmp_path: Path) -> None:
    assert {"image": IMAGE, "chart": CHART} == pushed(left(tmp_path))


@pytest.mark.parametrize(
    ("metadata", "said", "problem"),
    [
        ({"buildx.build.ref": "a"}, HELM, "no digest of the image"),
        ({"containerimage.digest": "latest"}, HELM, "no digest of the image, but 'latest'"),
        (None, "Error: unauthorized\n", "no digest of the chart"),
        (None, HELM * 2, "no digest of the chart"),
    ],
)
def test_nothing_is_signed_that_is_not_known_for_sure(
    tmp_path: Path, metadata: object, said: str, problem: str
) -> None:
    with pytest.raises(PushedError, match=problem):
        pushed(left(tmp_path, metadata, said))


def test_before_the_push_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(PushedError, match="push image and chart first"):
        pushed(tmp_path)
