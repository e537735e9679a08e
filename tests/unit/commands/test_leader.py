"""Who is asked, and by which way; what is said where nobody answers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.errors import ForbiddenError, UnavailableError
from controller.kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, PODS
from controller.views.documents import Overview
from tests.fakes import view_documents
from tests.unit.commands.stage import LEASE, NAMESPACE, LedCluster, staged


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LedCluster]:
    with staged(tmp_path, monkeypatch) as made:
        yield made


def test_the_leader_is_asked_by_port_forward(stage: LedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    stage.add("a"), stage.add("b")
    stage.lead("b")
    assert 0 == stage.run("status")
    assert (["b"], [], ["/overview"]) == (stage.forwarded, stage.copies["a"].asked, stage.copies["b"].asked)
    assert "3 disks on 3 nodes" in capsys.readouterr().out


def test_with_a_token_its_address_is_asked_over_tls(stage: LedCluster) -> None:
    stage.add("a", stage.tls(), token="mine")
    stage.lead("a")
    stage.api.token = "mine"
    reader = stage.reader()
    assert reader.document("/overview", Overview) == reader.document("/overview", Overview)
    assert [] == stage.forwarded
    assert reader.asked.startswith("a (127.0.0.1:")


@pytest.mark.parametrize("trouble", ["token", "authority", "map", "name", "no-pem"])
def test_where_that_is_refused_port_forward_is_tried(
    stage: LedCluster, trouble: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what was met before is told if that fails as well."""
    copy = stage.add("a", stage.tls(), token="mine")
    stage.lead("a")
    stage.api.token = "another" if trouble == "token" else "mine"
    if trouble == "authority":
        stage.tls()  # published anew, and the leader still has the former
    if trouble == "no-pem":
        published = {"metadata": {"name": "longhorn-scheduler-extender-status"}, "data": {"ca.crt": "\u00e9"}}
        stage.api.put(CONFIG_MAPS, NAMESPACE, published)
    if trouble == "map":
        stage.api.delete(CONFIG_MAPS, NAMESPACE, "longhorn-scheduler-extender-status")
    space = "other" if trouble == "name" else NAMESPACE
    if trouble == "name":
        for kind, name in ((LEASES, LEASE), (PODS, "a"), (CONFIG_MAPS, "longhorn-scheduler-extender-status")):
            stage.api.put(kind, space, stage.api.get(kind, NAMESPACE, name))
    stage.cut = UnavailableError("500: the kubelet is away")
    assert 3 == stage.run("status", "--namespace", space)
    said = capsys.readouterr().err
    assert (["a"], 1) == (stage.forwarded, said.count("\n"))
    assert f"pod {space}/a was not reached: " in said and "port-forward: 500: the kubelet is away" in said
    reason = {"token": "401", "authority": "CERTIFICATE_VERIFY_FAILED", "name": "Hostname mismatch", "no-pem": "no PEM"}
    assert reason.get(trouble, "") in said
    assert bool(copy.asked) == (trouble == "token")


def test_a_table_of_addresses_is_the_only_way_where_it_is_given(
    stage: LedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, path = stage.add("a"), tmp_path / "addresses.json"
    stage.lead("a")
    stage.api.delete(PODS, NAMESPACE, "a")  # of which such a cluster has none
    monkeypatch.setenv("LONGHORN_SCHEDULER_ADDRESSES", str(path))
    path.write_text(json.dumps({"a": {"status": f"127.0.0.1:{copy.port}"}}))
    assert (0, []) == (stage.run("status"), stage.forwarded)
    for text, problem in (("{", 'lacks {"a": {"status": "HOST:PORT"}}'), (None, "No such file or directory")):
        path.write_text(text) if text else path.unlink()
        assert 2 == stage.run("status")
        assert f"error: LONGHORN_SCHEDULER_ADDRESSES: {path}: {problem}\n" == capsys.readouterr().err


def test_in_the_leaders_pod_its_loopback_is_asked_first(
    stage: LedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.add("a")
    stage.lead("a")
    monkeypatch.setenv("POD_NAME", "a")
    stage.cut = UnavailableError("no")
    assert 3 == stage.run("status")
    assert "was not reached: loopback: Connection refused; port-forward: no" in capsys.readouterr().err


def test_a_port_on_loopback_needs_no_api_server(stage: LedCluster) -> None:
    copy = stage.add("a")
    stage.api.fail_with(UnavailableError("away"))
    assert 0 == stage.run("status", "--status-port", str(copy.port))


def test_nobody_on_that_port_is_a_sentence(stage: LedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        assert 3 == stage.run("status", "--status-port", str(taken.getsockname()[1]))
    assert "/overview: Connection refused. --status-port is for a pod" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lease", "said"),
    [
        ("none", "there is no Lease longhorn-system/longhorn-manager-disk-scheduler-lock: is the extender installed"),
        ("free", "nobody leads: Lease longhorn-system/longhorn-manager-disk-scheduler-lock has no holder"),
        ("old", "nobody leads: a last renewed Lease longhorn-system/longhorn-manager-disk-scheduler-lock 1h 1m ago"),
        ("gone", "names pod z, which is gone; another leads within seconds"),
    ],
)
def test_without_a_leader_that_is_said_and_status_shows_another_copy(
    stage: LedCluster, lease: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = stage.add("a")
    if lease != "none":
        stage.lead({"free": "", "old": "a", "gone": "z"}[lease])
    if lease == "old":
        stage.clock.advance(3_660)
    assert 3 == stage.run("explain", "pod", "shop/full")
    assert said in capsys.readouterr().err
    copy.documents["/overview"] = view_documents.following()
    assert 1 == stage.run("status")
    assert (
        "this is what longhorn-scheduler-extender-6c9f7d5b4-q9q9q_9f8e sees, which does not" in capsys.readouterr().out
    )
    stage.api.delete(PODS, NAMESPACE, "a")
    assert 3 == stage.run("status")
    assert said in capsys.readouterr().err


def test_a_namespace_that_does_not_exist_is_misuse(stage: LedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == stage.run("status", "--namespace", "longhorn")
    assert "error: --namespace: there is no namespace longhorn\n" == capsys.readouterr().err
    stage.api.fail_with(ForbiddenError("403: no"), about=NAMESPACES)
    assert 3 == stage.run("status", "--namespace", "longhorn")


@pytest.mark.parametrize("kind", [LEASES, PODS], ids=["Lease", "Pod"])
def test_missing_rights_are_named(stage: LedCluster, kind: object, capsys: pytest.CaptureFixture[str]) -> None:
    stage.add("a")
    stage.lead("a")
    stage.api.fail_with(ForbiddenError("403: is forbidden"), about=kind)  # type: ignore[arg-type]
    assert 3 == stage.run("explain", "pod", "shop/full")
    said = "error: this account may not look for the leader: 403: is forbidden. docs/command.md says which rights"
    assert capsys.readouterr().err.startswith(said)


def test_who_may_see_neither_lease_nor_pod_asks_the_address_that_is_published(stage: LedCluster) -> None:
    """As a developer: with a token, whose rights the leader asks about."""
    copy = stage.add("a", stage.tls(), token="mine")
    stage.lead("a")
    stage.api.token = "mine"
    name, address = "longhorn-scheduler-extender-status", f"127.0.0.1:{copy.port}"
    stage.api.patch(CONFIG_MAPS, NAMESPACE, name, {"data": {"leader": "a", "address": address}})
    for kind in (LEASES, PODS):
        stage.api.fail_with(ForbiddenError("403: is forbidden"), about=kind)
        assert 0 == stage.run("explain", "pod", "shop/orders-0")
    assert (["/explain/pods/shop/orders-0"] * 2, []) == (copy.asked, stage.forwarded)
    stage.api.token = ""
    assert 3 == stage.run("explain", "pod", "shop/orders-0")
    stage.api.token = "mine"
    stage.api.patch(CONFIG_MAPS, NAMESPACE, name, {"data": {"address": "nowhere"}})
    assert 3 == stage.run("explain", "pod", "shop/orders-0")


def test_a_leader_that_changes_meanwhile_is_found_again_once(
    stage: LedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = stage.add("a"), stage.add("b")
    stage.lead("a")
    reader = stage.reader()
    assert reader.document("/overview", Overview).is_leading
    stage.lead("b")
    first.documents = {"/overview": view_documents.following(), "/capacity": 503}
    assert reader.document("/overview", Overview).is_leading  # the former leader answers, and follows
    assert 1 == len(second.asked)
    stage.lead("a")
    first.documents["/overview"] = view_documents.healthy()
    second.documents["/overview"] = 503  # it lets go
    assert reader.document("/overview", Overview).is_leading
    assert 3 == stage.run("capacity")  # nobody leads for longer than that
    assert "error: /capacity: 503: this copy does not lead\n" == capsys.readouterr().err
    assert 2 == first.asked.count("/capacity")


def test_a_document_of_another_release_is_told_from_a_fault(
    stage: LedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = stage.add("a")
    stage.lead("a")
    copy.documents["/overview"] = {"time": 5}
    assert 3 == stage.run("status")
    assert "a (port-forward): its /overview is of another release than this command: " in capsys.readouterr().err
