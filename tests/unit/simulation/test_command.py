"""The command `simulate`, on saved objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from controller.cli import main
from tests.fakes.saved import Raw
from tests.unit.plan import asking as saved_pods
from tests.unit.simulation.asking import cluster, running, stateful_set


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    objects = [*cluster(n1=100, n2=100), *running("db-0", "n1", "n1", "n2", gib=20)]
    (tmp_path / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return tmp_path


def run(saved: Path, *words: str, workloads: list[Raw] | None = None) -> int:
    file = saved / "w.yaml"
    if workloads is not None:
        file.write_text(yaml.safe_dump_all(workloads))
    given = ("-f", str(file)) if workloads is not None else ()
    return main(["simulate", "--objects", str(saved / "objects.json"), *given, *words])


def test_what_finds_a_place_is_shown_with_where(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(saved, workloads=[stateful_set("new", gib=30)])
    said = capsys.readouterr().out
    assert "Everything finds a place." in said
    assert "data-new-0 30 GiB: n2/d1" in said


def test_pods_that_wait_as_before_are_not_said_to_find_a_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = [saved_pods.pod("old", name="old"), saved_pods.claim("old", 600)]
    objects = [*cluster(n1=100, n2=100), *waiting]
    (tmp_path / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    assert 0 == run(tmp_path, workloads=[stateful_set("new", gib=30)])
    first = capsys.readouterr().out.splitlines()[0].strip()
    assert "Everything that was asked about finds a place. Pods that wait as before: 1." == first


def test_what_finds_none_is_exit_code_1_and_comes_first(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == run(saved, workloads=[stateful_set("new", gib=90)])
    said = capsys.readouterr().out.splitlines()
    assert "1 find no place:" == said[0].strip()
    assert said[1].startswith("  pod ns/new-0: Claim ns/data-new-0 (90 GiB) lacks ")


def test_the_whole_answer_is_a_document(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(saved, "--drain", "n1", "-o", "json")
    found = json.loads(capsys.readouterr().out)
    assert ["drain n1"] == found["question"]
    assert ["closed", ""] == [one["state"] for one in found["disks"]]
    assert ["db-0"] == [one["name"] for one in found["pods"]]


def test_a_picture_is_written(saved: Path) -> None:
    assert 1 == run(saved, "--fail", "n1", "--picture", str(saved / "p.svg"))
    assert "What if: fail n1" in (saved / "p.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fail", "n9"], "--fail: there is no node n9"),
        (["--set", "storage"], "--set"),
        (["--set", "storage-over=1"], "settings.storage-over: nothing is decided by it"),
        (["--grow", "data=5Gi"], "--grow"),
        (["--grow", "ns/db-0=+5Gi"], "--grow"),
        (["--grow", "ns/db-0=much"], "--grow: not a quantity"),
        (["--grow", "ns/none=5Gi"], "--grow: claim ns/none does not exist"),
        (["--fail", "n1", "--drain", "n1"], "--drain"),
        (["--picture", "p.gif"], "--picture"),
        (["-f", "/none.yaml"], "/none.yaml: No such file"),
    ],
)
def test_misuse_is_exit_code_2_and_named(
    saved: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert 2 == run(saved, *words)
    assert said in capsys.readouterr().err


def test_bad_workloads_are_named_with_file_object_and_field(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run(saved, workloads=[stateful_set("new", replicas="two")])  # type: ignore[arg-type]
    assert "w.yaml: StatefulSet ns/new: spec.replicas: is not an integer: 'two'" in capsys.readouterr().err
