"""The support bundle: what is in it, what is not, and that simulations read it."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.cli import main
from controller.commands.leader import StatusReader
from controller.commands.simulate import bundle
from controller.errors import ForbiddenError, NotReadyError
from controller.kube import resources
from controller.kube.resources import Resource
from controller.process.command_line import run_command
from controller.simulation.bundle import Bundle, collect, write_bundle
from controller.simulation.redaction import Names, secrets_out_of, without_secrets
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.saved import Raw, core
from tests.unit.simulation.asking import about, ask, cluster, running, stateful_set

HERE = "longhorn-system"
TIME = "2026-01-01T12:00:00Z"
LABELS = {"app.kubernetes.io/name": "longhorn-scheduler-extender"}
BY_KIND = {(one.api_version, one.kind): one for one in vars(resources).values() if isinstance(one, Resource)}


def filled(*objects: Raw) -> FakeApiServer:
    api = FakeApiServer()
    for raw in objects:
        resource = BY_KIND[raw["apiVersion"], raw["kind"]]
        api.put(resource, raw["metadata"].get("namespace"), raw)
    return api


def copy_of_ours(name: str = "longhorn-scheduler-extender-1") -> Raw:
    return core("Pod", name, HERE, metadata={"labels": LABELS}, spec={"containers": [{"name": "main", "image": "i:1"}]})


def answers(path: str, pod: Mapping[str, Any]) -> bytes:
    return json.dumps({"path": path, "of": pod["metadata"]["name"], "token": "abc"}).encode()


def collected(api: FakeApiServer, names: Names | None = None, most_mib: int = 200) -> Bundle:
    return collect(api, HERE, answers, names, TIME, lambda _: None, most_mib)


def document(bundle: Bundle, name: str) -> Any:
    return json.loads(bundle.files[name])


def test_it_has_objects_answers_logs_and_a_manifest_of_what_is_missing() -> None:
    api = filled(*cluster(n1=100), copy_of_ours(), core("ConfigMap", "longhorn-scheduler-extender", HERE),
                 core("ConfigMap", "somebody-elses", HERE))  # fmt: skip
    api.logs["longhorn-scheduler-extender-1", "main"] = b"2026 hello\n"
    api.fail_with(ForbiddenError("403: denied"), about=resources.EVENTS)
    api.absent.add(resources.NODE_DISK_ALLOCATIONS.plural)  # its CRD is not installed

    found = collected(api)

    maps = document(found, "objects/configmaps.json")["items"]
    assert ["longhorn-scheduler-extender"] == [one["metadata"]["name"] for one in maps]
    assert "REDACTED" == document(found, "copies/longhorn-scheduler-extender-1/overview.json")["token"]
    assert b"2026 hello\n" == found.files["logs/longhorn-scheduler-extender-1/main.log"]
    manifest = document(found, "manifest.json")
    assert ["i:1"] == manifest["images"]
    assert [{"what": "objects/events", "why": "403: denied"}] == manifest["missing"]
    assert not any("secret" in name.lower() for name in found.files)


def test_logs_and_copies_that_cannot_be_had_are_no_failure() -> None:
    def silent(path: str, _: Mapping[str, Any]) -> bytes:
        raise NotReadyError(f"{path}: not reached")

    found = collect(filled(*cluster(n1=100), copy_of_ours()), HERE, silent, None, TIME, lambda _: None)
    missing = [one["what"] for one in found.missing]
    assert [
        "copies/longhorn-scheduler-extender-1/status.json",
        "logs/longhorn-scheduler-extender-1/main.log",
    ] == missing


def test_it_stays_within_its_limit() -> None:
    api = filled(*cluster(n1=100), copy_of_ours())
    api.logs["longhorn-scheduler-extender-1", "main"] = b"x" * 2 * 1024**2
    (lack,) = collected(api, most_mib=1).missing
    assert "the bundle would have more than 1 MiB" == lack["why"]


def test_secrets_are_left_out() -> None:
    raw = core(
        "Pod", "p", metadata={
            "managedFields": [{}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.org/key": "k",
                            "volume.kubernetes.io/selected-node": "n1"},
        },
        spec={"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "geheim"}],
                              "args": ["--password=geheim"], "envFrom": [{"secretRef": {"name": "s"}}]}],
              "volumes": [{"name": "v", "secret": {"secretName": "geheim"}},
                          {"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]},
    )  # fmt: skip
    found = without_secrets(raw)

    assert "geheim" not in json.dumps(found)
    assert {"volume.kubernetes.io/selected-node": "n1"} == found["metadata"]["annotations"]
    assert {"name": "c", "image": "i"} == found["spec"]["containers"][0]
    assert {"claimName": "c"} == found["spec"]["volumes"][1]["persistentVolumeClaim"]


def test_what_a_container_left_and_keys_of_other_drivers_are_left_out() -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "geheim is no password"}}
    pod = core("Pod", "p", status={"containerStatuses": [{"name": "c", "state": ended, "lastState": ended}]})
    keys = {"secretKey": "geheim", "accountKey": "geheim", "clientSecret": "geheim", "tokens": ["geheim"]}
    pv = core("PersistentVolume", "v", spec={"csi": {"volumeAttributes": {**keys, "size": "1", "secretName": "s"}}})
    assert "geheim" not in json.dumps([without_secrets(pod), without_secrets(pv)])
    assert "Error" == without_secrets(pod)["status"]["containerStatuses"][0]["state"]["terminated"]["reason"]
    left = dict.fromkeys(keys, "REDACTED")
    assert {**left, "size": "1", "secretName": "s"} == without_secrets(pv)["spec"]["csi"]["volumeAttributes"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("s3://me:geheim@host/b", "s3://REDACTED@host/b"),
        ("Authorization: Bearer geheim", "Authorization: Bearer REDACTED"),
        ("token eyJhbGciOi.eyJzdWIi.abc-_def end", "token REDACTED end"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_secrets_in_texts_are_left_out(text: str, left: str) -> None:
    assert left == secrets_out_of(text)


def test_hashed_names_hide_and_simulate_the_same() -> None:
    payroll = running("payroll-0", "worker1", "worker1", "worker2")
    objects = [*cluster(worker1=100, worker2=100, worker3=50), *payroll]
    names = Names(b"salt")
    names.learn(objects)
    hidden = [names.hashed(one) for one in objects]

    words = set(re.findall(r'"([^"]*)"', json.dumps(hidden)))  # UUIDs have names in them here alone
    assert not words & {"payroll-0", "payroll-0-r0", "worker1", "worker2"}
    before, after = (ask(given, fail=[node]) for given, node in ((objects, "worker1"), (hidden, names.text("worker1"))))
    assert sorted(one.used_after for one in before.disks) == sorted(one.used_after for one in after.disks)
    assert [one.split()[-1] for one in about(before)] == [one.split()[-1] for one in about(after)] == ["CopyMissing"]


def test_hashed_names_hide_in_references_to_others_in_what_copies_answer_and_in_logs() -> None:
    """One name that stays would tell what its hash stands for."""
    owner = {"kind": "ReplicaSet", "name": "payroll-7d9f"}
    labels = {"app.kubernetes.io/name": "payroll", "app.kubernetes.io/instance": "acme", "tier": "payroll"}
    image = {"name": "payroll", "image": "registry.example/acme/payroll:1"}
    pod = core(
        "Pod", "payroll-7d9f-x", "acme",
        metadata={"uid": "u1", "generateName": "payroll-7d9f-", "labels": labels, "ownerReferences": [owner]},
        spec={"serviceAccountName": "payroll-account", "subdomain": "payroll", "containers": [image],
              "volumes": [{"name": "payroll-v", "persistentVolumeClaim": {"claimName": "payroll-gone"}}]},
    )  # fmt: skip
    ref = {"namespace": "acme-old", "name": "payroll-gone"}
    pv = core("PersistentVolume", "v", spec={"claimRef": ref, "csi": {"driver": "driver.longhorn.io"}})
    api = filled(*cluster(n1=100), pod, pv, copy_of_ours())
    log = b"filter pod=acme-gone/payroll-ended-0 decision=no-room\n"
    log += b'{"namespace": "acme-late", "pod": "payroll-late"} payroll-7d9f-x.acme.svc\n'
    api.logs["longhorn-scheduler-extender-1", "main"] = log

    def decided(path: str, _: Mapping[str, Any]) -> bytes:
        return json.dumps([{"about": "Pod acme-went/payroll-went-0", "text": path}]).encode()

    found = collect(api, HERE, decided, Names(b"salt"), TIME, lambda _: None)
    for name, data in found.files.items():
        assert not re.search(rb"payroll|acme", data), (name, data)
    assert b"driver.longhorn.io" in found.files["objects/persistentvolumes.json"]
    assert b"longhorn-scheduler-extender-1" in found.files["objects/pods.json"]


def test_hashed_names_fit_together_and_differ_from_bundle_to_bundle() -> None:
    names, others = Names(b"one"), Names(b"two")
    provisioned = "pvc-0f1e2d3c-1111-2222-3333-444455556666"
    objects = [core("Pod", "web", "shop"), core("PersistentVolumeClaim", "web-scratch", "shop"),
               core("Node", "default"), core("PersistentVolume", provisioned)]  # fmt: skip
    names.learn(objects)
    others.learn(objects)
    web, claim = names.text("web"), names.text("web-scratch")

    assert claim.startswith(f"{web}-")
    assert web != others.text("web")
    assert f"Pod {names.text('shop')}/{web} waits" == names.text("Pod shop/web waits")
    assert f"default {provisioned}" == names.text(f"default {provisioned}")


def test_the_command_writes_what_simulate_and_plan_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api = filled(*cluster(n1=100, n2=100), *running("db-0", "n1", "n1", "n2"))
    file, workloads, question = (str(tmp_path / name) for name in ("b.tar.gz", "w.json", "q.json"))

    assert 0 == run_command(bundle, ["-f", file], obj=StatusReader(connect=lambda _, __: api))
    assert f"{file}: " in capsys.readouterr().out
    with tarfile.open(file) as archive:
        assert {0o600} == {one.mode for one in archive}

    Path(workloads).write_text(json.dumps(stateful_set("new", gib=90)))
    assert 1 == main(["simulate", "--objects", file, "-f", workloads])
    assert "pod ns/new-0: Claim ns/data-new-0" in capsys.readouterr().out
    Path(question).write_text(json.dumps({"question": {"expand": {"volume": "db-0", "size": "80Gi"}}}))
    assert 0 == main(["plan", "--lenient", "--objects", file, question])
    assert json.loads(capsys.readouterr().out)["admitted"]


@pytest.mark.parametrize("is_there", [False, True])
def test_nobody_else_can_read_the_file_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    file, modes = tmp_path / "b.tar.gz", list[int]()
    if is_there:
        file.touch(0o644)
    add = tarfile.TarFile.addfile

    def looking(archive: tarfile.TarFile, *given: Any) -> None:
        modes.append(file.stat().st_mode & 0o777)
        add(archive, *given)

    monkeypatch.setattr(tarfile.TarFile, "addfile", looking)
    write_bundle(collected(filled(*cluster(n1=100))), str(file), "b", 0.0)
    assert {0o600} == {*modes, file.stat().st_mode & 0o777}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api = filled(*cluster(n1=100))
    reader = StatusReader(connect=lambda _, __: api)
    assert 2 == run_command(bundle, ["-f", str(tmp_path / "no" / "b.tar.gz")], obj=reader)
    assert "b.tar.gz: No such file" in capsys.readouterr().err
