"""The whole webhook on an API server in memory: from the bytes of a review to the bytes of its answer, what it follows,
when it is ready, and what an outage does."""

from __future__ import annotations

import platform
from io import BytesIO

import pytest
from gunicorn.http.errors import InvalidChunkSize

from controller.errors import UnavailableError
from controller.kube import resources
from controller.kube.resources import Resource
from controller.process.version import product_version
from controller.settings import MEBIBYTE
from tests.unit.webhook.stage import CONFIG_MAP, NAMESPACE, Raw, WebhookStage, pod, review
from tests.waiting import wait_until
from webhook.pod_opt_in import LIVE_SECONDS
from webhook.settings import WebhookSettings
from webhook.stores import MOST_READS


def test_it_is_ready_once_it_knows_the_cluster_and_answers_without_a_call(started: WebhookStage) -> None:
    assert [200, 200] == [started.client.get(path).status_code for path in ("/readyz", "/healthz")]
    assert started.opts_in(pod("c"))
    assert [] == started.api.reads
    assert 1 == started.outcomes("opted-in")
    assert 1 == started.sample("review_duration_seconds_count", route="mutate-pods")
    assert 1 == started.sample("store_synced", kind="claim")
    assert 0 == started.sample("certificate_problems")
    assert 1 == started.sample("build_info", version=product_version(), python=platform.python_version())
    assert 0 == started.sample("live_reads_total", kind="persistentvolumeclaims", outcome="found")


def test_a_pod_without_claims_is_answered_without_a_patch(stage: WebhookStage) -> None:
    assert {"uid": "u-1", "allowed": True} == stage.post(pod())
    assert ([], 1) == (stage.api.reads, stage.outcomes("no-claim"))


def test_a_body_in_bad_chunks_is_the_callers_fault(stage: WebhookStage) -> None:
    class BadChunks(BytesIO):
        def read(self, _size: int | None = -1) -> bytes:
            raise InvalidChunkSize(b"zz")

        readinto = read  # type: ignore[assignment]

    environ = {"wsgi.input": BadChunks(), "wsgi.input_terminated": True}
    answer = stage.client.post("/mutate-pods", content_type="application/json", environ_overrides=environ)
    assert 400 == answer.status_code
    assert answer.text.startswith("body: cannot be read: ")


@pytest.mark.parametrize("meta", [{"name": "p"}, {"generateName": "p-"}], ids=["named", "unnamed"])
def test_an_ephemeral_volume_of_a_known_class_costs_no_call(started: WebhookStage, meta: Raw) -> None:
    template = {"spec": {"storageClassName": "lh", "accessModes": ["ReadWriteOnce"]}}
    assert started.opts_in(pod(meta=meta, ephemeral={"volumeClaimTemplate": template}))
    assert [] == started.api.reads


def test_of_one_pod_few_claims_are_read_and_the_others_may_be_longhorns(stage: WebhookStage) -> None:
    assert stage.opts_in(pod(*(f"made-up-{number}" for number in range(200))))
    assert MOST_READS == len(stage.api.reads)


def test_once_too_much_is_read_for_others_a_pod_is_opted_in_without(stage: WebhookStage) -> None:
    for number in range(100):
        assert stage.opts_in(pod(*(f"made-up-{number}-{claim}" for claim in range(20))))
    assert 2 * stage.webhook.settings.live_reads_per_second == len(stage.api.reads)
    refused = stage.sample("live_reads_total", kind="persistentvolumeclaims", outcome="refused")
    assert stage.opts_in(pod("other"))
    assert refused + 1 == stage.sample("live_reads_total", kind="persistentvolumeclaims", outcome="refused")
    stage.clock.advance(1.0)
    assert not stage.opts_in(pod("other"))


def test_equal_questions_of_many_pods_are_one_read(stage: WebhookStage) -> None:
    for _ in range(50):
        assert {"uid": "u-1", "allowed": True} == stage.post(pod("other"))
    assert ["namespaces /ns", "persistentvolumeclaims ns/other", "storageclasses /nfs"] == stage.api.reads
    for kind in ("persistentvolumeclaims", "storageclasses"):
        assert 1 == stage.sample("live_reads_total", kind=kind, outcome="found")
        assert 49 == stage.sample("live_reads_total", kind=kind, outcome="shared")


def test_reads_of_one_pod_share_their_time(stage: WebhookStage) -> None:
    stage.api.read_seconds = 0.3
    begun = stage.clock.now()
    assert stage.opts_in(pod("a", "b", "c", "d"))
    assert LIVE_SECONDS == pytest.approx(stage.clock.now() - begun)
    assert 2 == len(stage.api.reads)


@pytest.mark.parametrize(
    "changes",
    [{"operation": "UPDATE"}, {"resource": {"resource": "deployments"}}, {"subResource": "status"}, {"operation": ""}],
)
def test_what_nobody_should_have_asked_is_allowed(stage: WebhookStage, changes: Raw) -> None:
    assert {"uid": "u-1", "allowed": True} == stage.post(pod("c"), **changes)
    assert 1 == stage.outcomes("not-asked-for")


def test_a_failure_of_ours_lets_the_pod_through_and_says_so(stage: WebhookStage) -> None:
    def break_down(_verb: str, _resource: Resource) -> None:
        raise RuntimeError("broken")

    stage.api.fail = break_down
    response = stage.post(pod("c"))
    assert "patch" not in response
    assert ["admitted unchanged" in warning for warning in response["warnings"]] == [True]
    assert 1 == stage.sample("failures_total", route="mutate-pods", kind="internal")


@pytest.mark.parametrize(
    ("sent", "content_type", "status", "kind", "word"),
    [
        (b"{", "application/json", 400, "malformed", "body"),
        (review(pod("c"), uid=""), "application/json", 400, "malformed", "request.uid"),
        (review({"spec": {"volumes": 5}}), "application/json", 400, "malformed", "spec.volumes"),
        (review({**pod("c"), "metadata": "x"}), "application/json", 400, "malformed", "metadata"),
        (review(pod("c")), "text/plain", 415, "http", "application/json"),
        (b"x" * (MEBIBYTE + 1), "application/json", 413, "too-large", ""),
    ],
)
def test_what_is_no_review_gets_a_4xx(
    stage: WebhookStage, sent: bytes, content_type: str, status: int, kind: str, word: str
) -> None:
    reply = stage.client.post("/mutate-pods", data=sent, content_type=content_type)
    assert status == reply.status_code
    assert word in reply.text
    assert 1 == stage.sample("failures_total", route="mutate-pods", kind=kind)


def test_other_paths_and_methods(stage: WebhookStage) -> None:
    assert 404 == stage.client.post("/nothing").status_code
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        assert 405 == stage.client.open("/mutate-pods", method=method).status_code
    assert 5 == stage.sample("failures_total", route="other", kind="http")


def test_without_the_api_server_admission_goes_on_from_what_is_known(started: WebhookStage) -> None:
    started.api.fail_with(UnavailableError("no connection"))
    started.api.break_watches(lambda: UnavailableError("cut"))
    started.clock.advance(60.0)
    wait_until(lambda: started.sample("store_age_seconds", kind="claim") > 0)
    assert [True, False] == [started.opts_in(pod(claim)) for claim in ("c", "other")]
    assert started.opts_in(pod("unknown"))  # may be Longhorn's
    for store in vars(started.webhook.following)["_informers"].values():
        store.store.synced.clear()  # as after a minute
    assert started.webhook.is_ready()


def test_once_it_is_told_to_end_it_is_not_ready_and_answers_all_the_same(started: WebhookStage) -> None:
    started.webhook.begin_stop()
    assert not started.webhook.is_ready()
    assert started.opts_in(pod("c"))


def test_live_settings_are_followed_and_what_does_not_fit_is_told(started: WebhookStage) -> None:
    started.configure(opt_in_only_marked="true", strategy="upwards", allow_stranding="true")
    wait_until(lambda: started.webhook.live.current.only_marked)
    assert not started.opts_in(pod("c"))
    assert 1 == started.sample("settings_problems")
    status = started.webhook.status()
    assert ["scheduler-extender-strategy"] == list(status["settings_problems"])
    assert ["scheduler-extender-allow-stranding"] == list(status["settings_notes"])
    kinds = {store["kind"] for store in status["stores"]}
    assert {"claim", "pv", "class", "namespace", "config_map", "setting"} == kinds
    started.api.delete(resources.CONFIG_MAPS, NAMESPACE, CONFIG_MAP)
    wait_until(lambda: list(started.webhook.status()["settings_problems"]) == ["scheduler-extender-enabled"])
    assert not started.opts_in(pod("c"))  # as was read last
    started.configure()
    wait_until(lambda: not started.webhook.live.current.only_marked)
    assert started.opts_in(pod("c"))
    assert 0 == started.sample("settings_problems")


def test_longhorns_own_namespace_is_left_alone_beside_those_that_are_named() -> None:
    settings = WebhookSettings(namespace="storage", excluded_namespaces="kube-system, ops,")
    assert {"storage", "kube-system", "ops"} == settings.left_alone
    assert "longhorn-replica-scheduler.storage.svc:9504" == settings.leader
