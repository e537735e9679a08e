"""Where saved objects are read from, and what the living cluster is asked for."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
from pathlib import Path

import pytest
import yaml

from controller.errors import ConfigError, ForbiddenError
from controller.kube.resources import CONFIG_MAPS, LONGHORN_NODES, NODES, PODS
from controller.plan.complaints import InputError
from controller.simulation.sources import read_cluster, read_objects, read_workload_file
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.saved import core, node


def names(objects: list[object]) -> list[str]:
    return [one["metadata"]["name"] for one in objects]  # type: ignore[index]


def test_files_folders_and_bundles_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [core("Node", "n1")]}))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump_all([core("Node", "n2"), None, core("Node", "n3")]))
    (tmp_path / "c.txt").write_text("no objects")
    assert 3 == len(read_objects(str(tmp_path)).objects)
    assert ["n2", "n3"] == names(read_objects(str(tmp_path / "b.yaml")).objects)

    bundle = tmp_path / "bundle.tar.gz"
    with tarfile.open(bundle, "w:gz") as archive:
        for name, text in (("top/objects/nodes.json", json.dumps(core("Node", "n4"))), ("top/status.json", "{}")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    assert ["n4"] == names(read_objects(str(bundle)).objects)


def test_a_document_of_the_planner_has_its_objects_read(tmp_path: Path) -> None:
    file = tmp_path / "q.json"
    file.write_text(json.dumps({"objects": [core("Node", "n1")], "question": {}}))
    assert ["n1"] == names(read_objects(str(file)).objects)


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is not JSON"), ("a: [", "is not YAML"), ("", "there are no objects in it")],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "o.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_objects(str(file))
    assert str(caught.value).startswith(f"{file}: {said}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.yaml")
    for read in (read_objects, lambda path: list(read_workload_file(path, io.BytesIO()))):
        with pytest.raises(InputError, match="No such file"):
            read(missing)


def test_workloads_come_from_standard_input() -> None:
    text = yaml.safe_dump_all([core("Pod", "a"), core("Pod", "b")])
    assert ["a", "b"] == names(list(read_workload_file("-", io.BytesIO(text.encode()))))


def test_the_cluster_is_listed_and_what_may_not_be_is_remarked_on() -> None:
    api = FakeApiServer()
    api.put(NODES, None, core("Node", "n1"))
    api.put(LONGHORN_NODES, "longhorn-system", node("n1"))
    api.fail_with(ForbiddenError("403: denied"), about=PODS)
    told = list[str]()

    found = read_cluster(api, "longhorn-system", "here", told.append)

    assert ["n1", "n1"] == names(found.objects)
    assert ["pods are missing: 403: denied"] == found.remarks
    assert "plans" in told


def test_a_namespace_without_longhorn_is_named() -> None:
    with pytest.raises(ConfigError, match="is --namespace right"):
        read_cluster(FakeApiServer(), "elsewhere", "here", lambda _: None)


def test_without_longhorns_nodes_there_is_nothing_to_simulate() -> None:
    api = FakeApiServer()
    api.fail_with(ForbiddenError("403: denied"), about=LONGHORN_NODES)
    with pytest.raises(ForbiddenError):
        read_cluster(api, "longhorn-system", "here", lambda _: None)


def test_plans_come_from_the_leaders_config_maps() -> None:
    api = FakeApiServer()
    api.put(LONGHORN_NODES, "longhorn-system", node("n1"))
    labels = {"app.kubernetes.io/name": "longhorn-scheduler-extender", "app.kubernetes.io/component": "plans"}
    meta = {"name": "longhorn-scheduler-extender-plans-3", "namespace": "longhorn-system", "labels": labels}
    api.put(CONFIG_MAPS, "longhorn-system", {"metadata": meta, "data": {"plans": ""}})
    found = read_cluster(api, "longhorn-system", "here", lambda _: None)
    assert "longhorn-scheduler-extender-plans-3" in names(found.objects)


def test_an_archive_that_would_fill_the_memory_with_a_name_is_refused(tmp_path: Path) -> None:
    """A thousandth of it, packed, and the library reads such a thing whole before anybody sees an entry."""
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, 8 * 1024**2
    file = tmp_path / "b.tar.gz"
    with gzip.open(file, "wb", 1) as stream:
        stream.write(head.tobuf(tarfile.USTAR_FORMAT) + bytes(head.size + 2 * tarfile.BLOCKSIZE))
    with pytest.raises(InputError, match=r"b\.tar\.gz: is no archive: a name of 8388608 bytes"):
        read_objects(str(file))


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        entry = tarfile.TarInfo("b/objects/nodes.json")
        entry.size = 800_000
        archive.addfile(entry, io.BytesIO(b"ab" * 400_000))
    packed = bytearray(lzma.compress(whole.getvalue()))
    packed[len(packed) // 2] ^= 0xFF
    file = tmp_path / "b.tar.xz"
    file.write_bytes(packed)
    with pytest.raises(InputError, match=r"b\.tar\.xz: is no archive: Corrupt"):
        read_objects(str(file))
