"""The routes, from the bytes of a review to the bytes of its answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import jsonpatch
import pytest
from flask.testing import FlaskClient

from controller.errors import NotFoundError, UnavailableError
from controller.kube.resources import Resource
from tests.fakes.clock import VirtualClock
from webhook.app import create_app
from webhook.pod_opt_in import Policy
from webhook.service import LIVE_SECONDS, PodService
from webhook.stores import Stores

Raw = dict[str, Any]
RESOURCE = "longhorn.io/scheduler-extender"
CLASS: Raw = {"metadata": {"name": "lh"}, "provisioner": "driver.longhorn.io"}
CLAIM: Raw = {"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "spec": {"storageClassName": "lh"}}


class World:
    """Stores, the API server behind them, and what was counted. Each read takes `read_seconds`."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.stores = Stores.empty()
        self.stores.classes.replace([CLASS])
        self.stores.namespaces.replace([{"metadata": {"name": "ns"}}])
        self.live: dict[str, Raw] = {}
        self.reads: list[str] = []
        self.read_outcomes: list[str] = []
        self.read_seconds = 0.0
        self.failures: list[tuple[str, str]] = []
        self.outcomes: list[str] = []
        self.answers: list[str] = []
        self.error: Exception | None = None
        self.is_ready = False
        service = PodService(self.stores, self.read, self.clock, self.policy, self)
        app = create_app({"mutate-pods": service}, lambda: self.is_ready, self, self.clock, max_body_bytes=100_000)
        self.client: FlaskClient = app.test_client()

    def policy(self) -> Policy:
        if self.error is not None:
            raise self.error
        return Policy()

    def read(self, resource: Resource, namespace: str, name: str, timeout: float) -> Mapping[str, Any]:
        self.reads.append(f"{resource.plural} {namespace}/{name}")
        if self.read_seconds > timeout:
            self.clock.advance(timeout)
            raise UnavailableError("timed out")
        self.clock.advance(self.read_seconds)
        try:
            return self.live[f"{resource.plural} {namespace}/{name}"]
        except KeyError:
            raise NotFoundError(name) from None

    def pod_reviewed(self, outcome: str) -> None:
        self.outcomes.append(outcome)

    def share_manager_reviewed(self, outcome: str) -> None:
        raise AssertionError(outcome)

    def read_live(self, kind: str, outcome: str) -> None:
        self.read_outcomes.append(f"{kind} {outcome}")

    def answered(self, route: str, seconds: float) -> None:
        self.answers.append(route)

    def failed(self, route: str, kind: str) -> None:
        self.failures.append((route, kind))

    def post(self, raw: Raw, **changes: Any) -> Raw:
        """The response part of the answer."""
        reply = self.client.post("/mutate-pods", data=review(raw, **changes), content_type="application/json")
        assert (200, "application/json") == (reply.status_code, reply.mimetype)
        response: Raw = json.loads(reply.data)["response"]
        assert "u-1" == response["uid"]
        reply.close()
        return response


@pytest.fixture
def world() -> World:
    return World()


def pod(*claims: str) -> Raw:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}], "volumes": volumes}}


def review(raw: Raw, **changes: Any) -> bytes:
    request = {
        "uid": "u-1",
        "kind": {"kind": "Pod"},
        "resource": {"resource": "pods"},
        "operation": "CREATE",
        "namespace": "ns",
        "object": raw,
        **changes,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def patched(raw: Raw, response: Raw) -> Raw:
    assert "JSONPatch" == response["patchType"]
    result: Raw = jsonpatch.apply_patch(raw, json.loads(base64.b64decode(response["patch"])))
    return result


def test_a_pod_with_a_longhorn_claim_opts_in_without_any_call(world: World) -> None:
    world.stores.claims.replace([CLAIM])
    response = world.post(pod("c"))
    asked = {RESOURCE: "1"}
    assert {"limits": asked, "requests": asked} == patched(pod("c"), response)["spec"]["containers"][0]["resources"]
    assert ([], ["opted-in"], ["mutate-pods"]) == (world.reads, world.outcomes, world.answers)


def test_a_pod_without_claims_is_answered_without_a_patch(world: World) -> None:
    assert {"uid": "u-1", "allowed": True} == world.post(pod())
    assert ([], ["no-claim"]) == (world.reads, world.outcomes)


def test_what_the_stores_lack_is_read_once(world: World) -> None:
    world.live["persistentvolumeclaims ns/c"] = {**CLAIM, "spec": {"storageClassName": "nfs"}}
    world.live["storageclasses /nfs"] = {"metadata": {"name": "nfs"}, "provisioner": "nfs.example"}
    assert {"uid": "u-1", "allowed": True} == world.post(pod("c"))
    assert ["persistentvolumeclaims ns/c", "storageclasses /nfs"] == world.reads
    assert ["persistentvolumeclaims found", "storageclasses found"] == world.read_outcomes


@pytest.mark.parametrize("meta", [{"name": "p"}, {"generateName": "p-"}], ids=["named", "unnamed"])
def test_an_ephemeral_volume_of_a_known_class_costs_no_call(world: World, meta: Raw) -> None:
    template = {"spec": {"storageClassName": "lh", "accessModes": ["ReadWriteOnce"]}}
    entry = {"name": "e", "ephemeral": {"volumeClaimTemplate": template}}
    raw = {**pod(), "metadata": meta}
    raw["spec"]["volumes"] = [entry]
    assert patched(raw, world.post(raw))
    assert [] == world.reads


def test_reads_of_one_pod_share_their_time(world: World) -> None:
    world.read_seconds = 0.3
    started = world.clock.now()
    response = world.post(pod("a", "b", "c", "d"))
    assert patched(pod("a", "b", "c", "d"), response)
    assert LIVE_SECONDS == pytest.approx(world.clock.now() - started)
    assert 2 == len(world.reads)


@pytest.mark.parametrize(
    "changes",
    [{"operation": "UPDATE"}, {"resource": {"resource": "deployments"}}, {"subResource": "status"}, {"operation": ""}],
)
def test_what_nobody_should_have_asked_is_allowed(world: World, changes: Raw) -> None:
    assert {"uid": "u-1", "allowed": True} == world.post(pod("c"), **changes)
    assert ["not-asked-for"] == world.outcomes


def test_a_failure_of_ours_lets_the_pod_through_and_says_so(world: World) -> None:
    world.error = RuntimeError("broken")
    response = world.post(pod("c"))
    assert response["allowed"]
    assert "patch" not in response
    assert ["let through unchanged" in warning for warning in response["warnings"]] == [True]
    assert [("mutate-pods", "internal")] == world.failures


@pytest.mark.parametrize(
    ("sent", "content_type", "status", "kind", "word"),
    [
        (b"{", "application/json", 400, "malformed", "body"),
        (review(pod("c"), uid=""), "application/json", 400, "malformed", "request.uid"),
        (review({"spec": {"volumes": 5}}), "application/json", 400, "malformed", "spec.volumes"),
        (review({**pod("c"), "metadata": "x"}), "application/json", 400, "malformed", "metadata"),
        (review(pod("c")), "text/plain", 415, "http", "application/json"),
        (b"x" * 100_001, "application/json", 413, "too-large", ""),
    ],
)
def test_what_is_no_review_gets_a_4xx(
    world: World, sent: bytes, content_type: str, status: int, kind: str, word: str
) -> None:
    reply = world.client.post("/mutate-pods", data=sent, content_type=content_type)
    assert status == reply.status_code
    assert word in reply.text
    assert [("mutate-pods", kind)] == world.failures


def test_other_paths_and_methods(world: World) -> None:
    assert 404 == world.client.post("/nothing").status_code
    assert 405 == world.client.get("/mutate-pods").status_code
    assert ("other", "http") in world.failures


def test_it_is_ready_when_the_process_says_so(world: World) -> None:
    assert 503 == world.client.get("/readyz").status_code
    world.is_ready = True
    assert 200 == world.client.get("/readyz").status_code
    assert 200 == world.client.get("/healthz").status_code
