"""A site that mirrors the images which `make images` lists needs nothing else from outside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helm.__main__ import parse, run
from tests.helm.chart import Helm, with_image
from tests.helm.combinations import COMBINATIONS, DIGEST
from tests.helm.images import containers_of, images_of

IMAGE = re.compile(r'^ *(?:- )?"?image"?: *(.+?)$', re.MULTILINE)
FETCHES = re.compile(r"\b(?:apk|apt|apt-get|curl|dnf|git|npm|oras|pip|pip3|wget|yum)\b")


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_list_has_all_images_and_no_container_fetches_anything(helm: Helm, name: str) -> None:
    values = with_image(COMBINATIONS[name])
    rendered = helm.rendered(values)
    assert {found.strip("\"'") for found in IMAGE.findall(rendered)} == set(images_of(rendered))
    containers = list(containers_of(rendered))
    assert containers
    policy = values["image"].get("pullPolicy", "IfNotPresent")
    for container in containers:
        assert policy == container["imagePullPolicy"], container["name"]
        handlers = [container.get(f"{probe}Probe", {}) for probe in ("liveness", "readiness", "startup")]
        handlers += container.get("lifecycle", {}).values()
        commands = [handler.get("exec", {}).get("command", ()) for handler in handlers]
        commands += [container.get("command", ()), container.get("args", ())]
        assert [] == [word for command in commands for word in command if FETCHES.search(word)]


def listed(helm: Helm, folder: Path, values: dict[str, Any], *words: str) -> None:
    (folder / "values.yaml").write_text(json.dumps(values))
    run(parse(["images", "--values", str(folder / "values.yaml"), *words]), helm)


def test_the_list_follows_the_values(helm: Helm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values: dict[str, Any] = {"global": {"imageRegistry": "mirror.example.com"}, "image": {"digest": DIGEST}}
    listed(helm, tmp_path, values)
    assert f"mirror.example.com/longhorn-scheduler-extender@{DIGEST}\n" == capsys.readouterr().out
    second = {**values, "secondScheduler": {"enabled": True}}
    listed(helm, tmp_path, second, "--kube-version", "1.34.1")
    assert "mirror.example.com/kube-scheduler:v1.34.1\n" in capsys.readouterr().out


def test_the_list_is_refused_where_it_depends_on_a_version_that_is_not_said(helm: Helm, tmp_path: Path) -> None:
    second = with_image({"secondScheduler": {"enabled": True}})
    with pytest.raises(RuntimeError, match="KUBE_VERSION="):
        listed(helm, tmp_path, second)
    with pytest.raises(RuntimeError, match=r"image\.registry: there is no published image"):
        listed(helm, tmp_path, {})


def test_images_are_found_in_objects_of_any_kind() -> None:
    rendered = """
kind: CronJob
spec: {jobTemplate: {spec: {template: {spec: {
  initContainers: [{image: a}], containers: [{image: c}, {image: b}]}}}}}
---
---
kind: Pod
spec: {containers: [{image: c}], ephemeralContainers: [{image: d}]}
"""
    assert ["a", "b", "c", "d"] == images_of(rendered)
