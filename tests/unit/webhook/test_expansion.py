"""Reviews of growth: what is asked of the leader, and what the user reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controller.errors import MalformedRequestError, NotFoundError, SchedulerError, TooManyReadsError, UnavailableError
from controller.kube.resources import Resource
from controller.rpc import disk_scheduler_pb2 as pb
from tests.fakes.clock import VirtualClock
from webhook.expansion import (
    CLAIM,
    LEADER_SECONDS,
    POLICY,
    READ_SECONDS,
    VOLUME,
    ExpansionService,
    GrowthCheck,
    growth_of_volume,
)
from webhook.leader import CrowdedError, LeaderAwayError, LeaderFailedError
from webhook.review import MAX_WARNING_CHARACTERS, decode_review
from webhook.stores import WebhookStores

Raw = dict[str, Any]
GIB = 1024**3
REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
ADMITTED = pb.HoldExpansionReply(verdict=pb.HoldExpansionReply.ADMITTED)


class ExpansionReviews:
    """The service, a leader that answers what the test says, and what both were asked and told."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.stores = WebhookStores.empty()
        self.stores.pvs.replace([pv("pvc-1"), pv("foreign", "other.csi")])
        self.reply: pb.HoldExpansionReply | Exception = ADMITTED
        self.policy = "allow"
        self.asked: list[pb.HoldExpansionRequest] = []
        self.outcomes: list[tuple[str, str]] = []
        self.reads: list[str] = []
        self.read_error: Exception = NotFoundError("gone")
        observer: Any = self
        self.services = {
            kind: ExpansionService(kind, self.stores, self.read, self.clock, self, lambda: self.policy, observer)
            for kind in (CLAIM, VOLUME)
        }

    def hold_expansion(self, request: pb.HoldExpansionRequest, seconds: float) -> pb.HoldExpansionReply:
        assert seconds == LEADER_SECONDS
        self.asked.append(request)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def read(self, resource: Resource, namespace: str, name: str, timeout: float) -> Mapping[str, Any]:
        self.reads.append(name)
        raise self.read_error

    def expansion_reviewed(self, kind: str, outcome: str, seconds: float) -> None:
        self.outcomes.append((kind, outcome))

    def refuse(
        self, size_gib: float, largest_gib: float, *problems: pb.ExpansionProblem, more_may_fit: bool = False
    ) -> None:
        """The leader's answer from now on."""
        self.reply = pb.HoldExpansionReply(
            verdict=pb.HoldExpansionReply.REFUSED,
            volume_name="pvc-1",
            size_bytes=int(size_gib * GIB),
            largest_bytes=int(largest_gib * GIB),
            more_may_fit=more_may_fit,
            problems=problems,
        )

    def _review(self, kind: str, request: Raw, allowed: bool) -> Raw:
        body = {**REVIEW, "request": {"uid": "u-1", "operation": "UPDATE", **request}}
        answer: Raw = json.loads(self.services[kind].review(decode_review(json.dumps(body).encode())))
        assert REVIEW == {part: answer[part] for part in REVIEW}
        response: Raw = answer["response"]
        assert "u-1" == response["uid"]
        assert allowed is response["allowed"]
        return response

    def grow_claim(
        self,
        old: Any,
        new: Any,
        *,
        volume: str | None = "pvc-1",
        class_name: str | None = "lh",
        allowed: bool = True,
        **request: Any,
    ) -> Raw:
        """The response, which has to say `allowed`."""
        given = {
            "resource": {"resource": "persistentvolumeclaims"},
            "namespace": "ns",
            "name": "data-0",
            "object": claim(new, volume, class_name),
            "oldObject": claim(old, volume, class_name),
            **request,
        }
        return self._review(CLAIM, given, allowed)

    def grow_volume(self, old: Any, new: Any, *, allowed: bool = True, **request: Any) -> Raw:
        given = {
            "resource": {"group": "longhorn.io", "resource": "volumes"},
            "namespace": "longhorn-system",
            "name": "pvc-1",
            "object": {"metadata": {"name": "pvc-1"}, "spec": {"size": new}},
            "oldObject": {"metadata": {"name": "pvc-1"}, "spec": {"size": old}},
            **request,
        }
        return self._review(VOLUME, given, allowed)


def pv(name: str, driver: str = "driver.longhorn.io") -> Raw:
    return {"metadata": {"name": name}, "spec": {"csi": {"driver": driver, "volumeHandle": name}}}


def claim(size: Any, volume: str | None, class_name: str | None = "lh") -> Raw:
    spec: Raw = {"resources": {"requests": {"storage": size}} if size is not None else {}}
    if volume is not None:
        spec["volumeName"] = volume
    if class_name is not None:
        spec["storageClassName"] = class_name
    return {"metadata": {"namespace": "ns", "name": "data-0", "uid": "uid-1"}, "spec": spec}


@pytest.fixture
def world() -> ExpansionReviews:
    return ExpansionReviews()


def test_what_longhorn_does_not_grow_yet_is_allowed_with_a_warning_that_says_why(world: ExpansionReviews) -> None:
    restoring = pb.ExpansionProblem(reason="VolumeRestoring", message="pvc-1: it is being restored from a backup")
    busy = pb.ExpansionProblem(node="n1", disk="d1", reason="DiskNotReady", message="d1: the disk is not ready")
    world.reply = pb.HoldExpansionReply(verdict=pb.HoldExpansionReply.ADMITTED, problems=[restoring, busy])
    (warning,) = world.grow_claim("10Gi", "20Gi")["warnings"]
    assert (
        "Longhorn scheduler extender: Longhorn cannot grow the volume yet: pvc-1: it is being restored from a backup; "
        "node n1, disk d1: d1: the disk is not ready. It tries again until it can" == warning
    )
    assert len(warning) <= MAX_WARNING_CHARACTERS
    assert [("claim", "admitted-later")] == world.outcomes


@pytest.mark.parametrize("dry_run", [False, True])
def test_growth_is_asked_of_the_leader_and_a_dry_run_as_one(world: ExpansionReviews, dry_run: bool) -> None:
    assert {"uid": "u-1", "allowed": True} == world.grow_claim("10Gi", "20Gi", dryRun=dry_run)
    assert {"uid": "u-1", "allowed": True} == world.grow_volume(str(10 * GIB), str(20 * GIB), dryRun=dry_run)
    asked: Raw = {"volume_name": "pvc-1", "size_bytes": 20 * GIB, "dry_run": dry_run}
    claim_asked = pb.HoldExpansionRequest(claim_namespace="ns", claim_name="data-0", **asked)
    assert [claim_asked, pb.HoldExpansionRequest(**asked)] == world.asked
    assert [("claim", "admitted"), ("volume", "admitted")] == world.outcomes
    assert [] == world.reads


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("10Gi", "10Gi"),
        ("10Gi", "10737418240"),
        ("10737418240", "10Gi"),
        ("20Gi", "10Gi"),
        ("1e10", "10000M"),
        ("1", "999m"),
        (10, 10),
        ("1Gi", None),
    ],
)
def test_what_does_not_grow_is_not_asked_about(world: ExpansionReviews, old: Any, new: Any) -> None:
    world.grow_claim(old, new)
    assert [] == world.asked
    assert [("claim", "nothing-to-check")] == world.outcomes


@pytest.mark.parametrize(
    ("old", "new", "size"),
    [
        ("1Gi", "1.5Gi", 3 * GIB // 2),
        ("1", "1.1", 2),
        ("999m", "1001m", 2),
        ("1k", "2e3", 2000),
        ("0", ".5Ki", 512),
        ("1", "16Ei", 2**63 - 1),
        (None, "1", 1),
        ("1G", 10**10, 10**10),
    ],
)
def test_quantities_are_read_as_by_the_api_server(world: ExpansionReviews, old: Any, new: Any, size: int) -> None:
    world.grow_claim(old, new)
    assert [size] == [request.size_bytes for request in world.asked]


@pytest.mark.parametrize(
    "change", [{"operation": "CREATE"}, {"subResource": "status"}, {"resource": {"resource": "pods"}}]
)
def test_what_is_no_update_of_the_object_itself_is_allowed(world: ExpansionReviews, change: Raw) -> None:
    world.grow_claim("1Gi", "2Gi", **change)
    world.grow_volume("1", "2", **change)
    assert [] == world.asked


@pytest.mark.parametrize("volume", [None, ""])
def test_a_claim_that_is_not_bound_is_allowed(world: ExpansionReviews, volume: str | None) -> None:
    world.grow_claim("1Gi", "2Gi", volume=volume)
    assert [] == world.asked


@pytest.mark.parametrize("class_name", [None, "", "lh"])
def test_another_drivers_volume_is_allowed_whatever_the_class(world: ExpansionReviews, class_name: str | None) -> None:
    world.policy, world.reply = "deny", LeaderAwayError("gone")
    world.grow_claim("1Gi", "2Gi", volume="foreign", class_name=class_name)
    assert [] == world.asked
    world.grow_claim("1Gi", "2Gi", class_name=class_name, allowed=False)
    assert 1 == len(world.asked)


def test_a_volume_that_is_not_known_is_read_once_and_else_left_to_the_leader(world: ExpansionReviews) -> None:
    world.grow_claim("1Gi", "2Gi", volume="pvc-new")
    world.read_error = UnavailableError("no connection")
    world.grow_claim("1Gi", "2Gi", volume="pvc-new")
    assert ["pvc-new", "pvc-new"] == world.reads
    assert ["pvc-new", "pvc-new"] == [request.volume_name for request in world.asked]
    assert READ_SECONDS + LEADER_SECONDS < 5


def test_a_volume_that_must_not_be_read_is_answered_by_the_policy_and_nobody_is_asked(world: ExpansionReviews) -> None:
    world.read_error = TooManyReadsError("50 reads a second")
    (warning,) = world.grow_claim("1Gi", "2Gi", volume="made-up")["warnings"]
    assert "allowed unchecked (too many expansions at once)" in warning
    world.policy = "deny"
    world.grow_claim("1Gi", "2Gi", volume="made-up", allowed=False)
    assert [] == world.asked
    assert [("claim", "allowed-unchecked"), ("claim", "denied-unchecked")] == world.outcomes


def test_a_refusal_names_volume_node_disk_missing_bytes_and_the_largest_size_that_fits(world: ExpansionReviews) -> None:
    problem = pb.ExpansionProblem(
        node="n1", disk="d1", missing_bytes=200 * GIB, reason="InsufficientStorage", message="d1: too much"
    )
    world.refuse(500, 300 + 1 / 512, problem)
    response = world.grow_claim("10Gi", "500Gi", allowed=False)
    assert (403, "Forbidden") == (response["status"]["code"], response["status"]["reason"])
    assert response["status"]["message"] == (
        "Longhorn cannot grow claim ns/data-0 (volume pvc-1) to 500 GiB: node n1, disk d1 lacks 200 GiB: d1: "
        "too much. The largest size that fits now is 300 GiB (322124644352 bytes)."
    )
    assert [("claim", "refused")] == world.outcomes


def test_a_refusal_of_a_volume_that_cannot_grow_says_so_and_names_no_more_than_three(world: ExpansionReviews) -> None:
    world.refuse(2, 1, *[pb.ExpansionProblem(node=f"n{number}", message="no") for number in range(5)])
    message = world.grow_volume(str(GIB), str(2 * GIB), allowed=False)["status"]["message"]
    assert message == (
        "Longhorn cannot grow volume pvc-1 to 2 GiB: node n0: no; node n1: no; node n2: no; and 2 "
        "more. It cannot grow at all now."
    )


@pytest.mark.parametrize("policy", ["allow", "deny"])
def test_a_growth_that_the_leader_puts_off_is_refused_whatever_the_policy(world: ExpansionReviews, policy: str) -> None:
    problem = pb.ExpansionProblem(reason="LeaderChanged", message="the leader has changed")
    verdict, world.policy = pb.HoldExpansionReply.TRY_AGAIN, policy
    world.reply = pb.HoldExpansionReply(
        verdict=verdict, volume_name="pvc-1", size_bytes=2 * GIB, largest_bytes=2 * GIB, problems=[problem]
    )
    answers = world.grow_claim("1Gi", "2Gi", allowed=False), world.grow_volume(str(GIB), str(2 * GIB), allowed=False)
    told = "to 2 GiB yet: the leader has changed. Try again in a minute."
    assert [
        f"Longhorn cannot grow claim ns/data-0 (volume pvc-1) {told}",
        f"Longhorn cannot grow volume pvc-1 {told}",
    ] == [answer["status"]["message"] for answer in answers]
    assert [("claim", "try-again"), ("volume", "try-again")] == world.outcomes


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (LeaderAwayError("failed to connect; last error: ipv4:10.96.4.2:9504"), "the leader is unavailable"),
        (LeaderFailedError("Exception calling application: ipv4:10.96.4.2"), "the leader failed"),
        (CrowdedError("8 expansions wait"), "too many expansions at once"),
    ],
)
def test_every_failure_of_ours_is_answered_as_is_set_and_its_details_go_to_the_log_alone(
    world: ExpansionReviews, caplog: pytest.LogCaptureFixture, error: Exception, cause: str
) -> None:
    world.reply = error
    (warning,) = world.grow_claim("1Gi", "2Gi")["warnings"]
    assert warning == (f"Longhorn scheduler extender: allowed unchecked ({cause}); Longhorn's own check still applies")
    assert len(warning) < MAX_WARNING_CHARACTERS
    world.policy = "deny"
    message = world.grow_volume("1", "2", allowed=False)["status"]["message"]
    assert cause in message
    assert POLICY in message
    assert str(error) not in message
    assert str(error) in caplog.text
    assert [("claim", "allowed-unchecked"), ("volume", "denied-unchecked")] == world.outcomes


@pytest.mark.parametrize(("policy", "allowed"), [("allow", True), ("off", True), ("deny", False)])
def test_a_fault_of_ours_is_answered_by_the_policy(world: ExpansionReviews, policy: str, allowed: bool) -> None:
    world.policy, world.reply = policy, SchedulerError("broken")
    with pytest.raises(SchedulerError):
        world.grow_claim("1Gi", "2Gi")
    review = decode_review(json.dumps({**REVIEW, "request": {"uid": "u-1", "object": None}}).encode())
    answer = json.loads(world.services[CLAIM].failed(review))["response"]
    assert ("u-1", allowed) == (answer["uid"], answer["allowed"])


@pytest.mark.parametrize("size", ["x", "1Zi", [], {}, "1e99999999", "9" * 70])
def test_a_claim_whose_size_is_none_is_named(world: ExpansionReviews, size: Any) -> None:
    with pytest.raises(MalformedRequestError, match=r"spec\.resources\.requests\.storage"):
        world.grow_claim("1Gi", size)


@pytest.mark.parametrize("size", ["x", "-1", "1Gi", "1.5", True, [], "9" * 30])
def test_a_volume_whose_size_is_none_is_named(world: ExpansionReviews, size: Any) -> None:
    with pytest.raises(MalformedRequestError, match=r"object\.spec\.size"):
        world.grow_volume("1", size)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_that_no_text_can_hold_is_a_wrong_size_too(sign: int) -> None:
    body = {"uid": "u", "resource": {"resource": "volumes"}, "operation": "UPDATE", "name": "v", "object": {}}
    review = decode_review(json.dumps({**REVIEW, "request": body}).encode())
    with pytest.raises(MalformedRequestError, match=r"object\.spec\.size"):
        growth_of_volume(replace(review, object={"spec": {"size": sign * 10**5000}}))


PROMISED = "All room may be needed by pods that are being scheduled. Try again in a minute."
FIFTY = "50 GiB"


@pytest.mark.parametrize(
    ("largest", "reasons", "more_may_fit", "text"),
    [
        (10, ["Contended"], False, PROMISED),
        (10, ["InsufficientStorage"], False, "It cannot grow at all now."),
        # One problem that stays is enough to ask for no other try.
        (10, ["Contended", "InsufficientStorage"], False, "It cannot grow at all now."),
        (10, ["NotEvaluated"], True, "The largest size that fits was not found in time. Try again in a minute."),
        (10, ["InsufficientStorage"], True, "The largest size that fits was not found in time."),
        (50, ["Contended"], False, f"The largest size that fits now is {FIFTY}. Try again in a minute."),
        (50, ["InsufficientStorage"], False, f"The largest size that fits now is {FIFTY}."),
        (50, ["InsufficientStorage"], True, f"A size of {FIFTY} fits now, and a larger one may."),
    ],
)
def test_what_passes_soon_is_said_to_pass(
    world: ExpansionReviews, largest: int, reasons: list[str], more_may_fit: bool, text: str
) -> None:
    problems = [pb.ExpansionProblem(node="n1", reason=reason, message="text") for reason in reasons]
    world.refuse(500, largest, *problems, more_may_fit=more_may_fit)
    message = world.grow_claim("10Gi", "500Gi", allowed=False)["status"]["message"]
    told = "; ".join(["node n1: text"] * len(reasons))
    grown = "claim ns/data-0 (volume pvc-1) to 500 GiB"
    assert f"Longhorn cannot grow {grown}: {told}. {text}" == message


# Whether a review reaches the leader


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (pb.HoldExpansionReply(verdict=pb.HoldExpansionReply.NOT_CHECKED), "the leader answers the webhook"),
        (LeaderAwayError("ipv4:10.0.0.1:9504: timeout"), "the leader does not answer the webhook; its log says why"),
        (LeaderFailedError("PERMISSION_DENIED"), "the leader does not answer the webhook; its log says why"),
        (CrowdedError("too many"), "the leader does not answer the webhook; its log says why"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_pod_that_asks_whether_the_leader_is_reached_is_denied_with_the_answer(
    world: ExpansionReviews, reply: pb.HoldExpansionReply | Exception, text: str
) -> None:
    world.reply = reply
    body = {**REVIEW, "request": {"uid": "u-1", "operation": "CREATE", "resource": {"resource": "pods"}}}
    response = json.loads(GrowthCheck(world).review(decode_review(json.dumps(body).encode())))["response"]
    assert (False, text) == (response["allowed"], response["status"]["message"])
    (asked,) = world.asked
    assert asked.dry_run
