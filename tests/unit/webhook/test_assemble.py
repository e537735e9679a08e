"""The webhook's whole graph on an API server in memory: what it follows, when it is ready, what an outage does."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import Client

from controller.errors import UnavailableError
from controller.kube import resources
from controller.kube.resources import Resource
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.ports import free_port
from tests.fakes.waiting import wait_until
from tests.unit.webhook.test_app import pod, review
from webhook.assemble import Webhook
from webhook.settings import WebhookSettings

Raw = dict[str, Any]
NAMESPACE, CONFIG_MAP = "longhorn-system", "longhorn-scheduler-extender"


class Stage:
    """One webhook, and the API server that it follows."""

    def __init__(self) -> None:
        self.api = FakeApiServer()
        self.api.create(
            resources.STORAGE_CLASSES, None, {"metadata": {"name": "lh"}, "provisioner": "driver.longhorn.io"}
        )
        self.api.create(resources.NAMESPACES, None, {"metadata": {"name": "ns"}})
        self.claim("c")
        settings = WebhookSettings(tls_mode="off", metrics_address="127.0.0.1", metrics_port=free_port()).checked()
        self.webhook = Webhook(settings, self.api)
        self.client = Client(self.webhook.app)
        self.reads: list[str] = []
        self.is_down = False
        self.api.fail = self.on_call

    def on_call(self, verb: str, resource: Resource) -> None:
        if verb == "get":
            self.reads.append(resource.plural)
        if self.is_down:
            raise UnavailableError("no connection")

    def claim(self, name: str, class_name: str = "lh") -> None:
        raw = {"metadata": {"name": name, "uid": f"u-{name}"}, "spec": {"storageClassName": class_name}}
        self.api.create(resources.CLAIMS, "ns", raw)

    def configure(self, **data: str) -> None:
        named = {f"scheduler-extender-{name.replace('_', '-')}": value for name, value in data.items()}
        self.api.create(resources.CONFIG_MAPS, NAMESPACE, {"metadata": {"name": CONFIG_MAP}, "data": named})

    def opts_in(self, raw: Raw) -> bool:
        reply = self.client.post("/mutate-pods", data=review(raw), content_type="application/json")
        assert 200 == reply.status_code
        response = json.loads(reply.data)["response"]
        assert response["allowed"]
        return "patch" in response and b"scheduler-extender" in base64.b64decode(response["patch"])

    def sample(self, name: str, **labels: str) -> float:
        value = self.webhook.metrics.registry.get_sample_value(f"longhorn_scheduler_webhook_{name}", labels)
        assert value is not None, name
        return value


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.webhook.stop()


def started(stage: Stage) -> Stage:
    stage.webhook.start()
    wait_until(stage.webhook.is_ready)
    return stage


def test_it_is_ready_once_it_knows_the_cluster_and_answers_without_a_call(stage: Stage) -> None:
    assert not stage.webhook.is_ready()
    started(stage)
    assert stage.opts_in(pod("c"))
    assert [] == stage.reads
    assert 1 == stage.sample("pod_reviews_total", outcome="opted-in")
    assert 1 == stage.sample("store_synced", kind="claim")
    assert 0 == stage.sample("live_reads_total", kind="persistentvolumeclaims", outcome="found")


def test_without_the_api_server_admission_goes_on_from_what_is_known(stage: Stage) -> None:
    stage.claim("other", "nfs")
    stage.api.create(resources.STORAGE_CLASSES, None, {"metadata": {"name": "nfs"}, "provisioner": "nfs.example"})
    started(stage)
    stage.is_down = True
    stage.api.break_watches(lambda: UnavailableError("cut"))
    wait_until(lambda: stage.sample("store_age_seconds", kind="claim") > 0)
    assert stage.opts_in(pod("c"))
    assert not stage.opts_in(pod("other"))
    assert stage.opts_in(pod("unknown"))  # may be Longhorn's
    for store in vars(stage.webhook.following)["_informers"].values():
        store.store.synced.clear()  # as after a minute
    assert stage.webhook.is_ready()


def test_once_it_is_told_to_end_it_is_not_ready_and_answers_all_the_same(stage: Stage) -> None:
    started(stage)
    stage.webhook.begin_stop()
    assert not stage.webhook.is_ready()
    assert stage.opts_in(pod("c"))


def test_live_settings_are_followed_and_what_does_not_fit_is_told(stage: Stage) -> None:
    started(stage)
    stage.configure(opt_in_only_marked="true", strategy="upwards")
    wait_until(lambda: stage.webhook.live.current.only_marked)
    assert not stage.opts_in(pod("c"))
    assert 1 == stage.sample("settings_problems")
    status = stage.webhook.status()
    assert ["scheduler-extender-strategy"] == list(status["settings_problems"])
    assert {"claim", "pv", "class", "namespace", "config_map", "setting"} == {
        store["kind"] for store in status["stores"]
    }
    stage.api.delete(resources.CONFIG_MAPS, NAMESPACE, CONFIG_MAP)
    wait_until(lambda: not stage.webhook.live.current.only_marked)
    assert stage.opts_in(pod("c"))
    assert 0 == stage.sample("settings_problems")


def test_longhorns_own_namespace_is_left_alone_beside_those_that_are_named(stage: Stage) -> None:
    settings = WebhookSettings(namespace="storage", excluded_namespaces="kube-system, ops,")
    assert {"storage", "kube-system", "ops"} == settings.left_alone
    assert "longhorn-replica-scheduler.storage.svc:9504" == settings.leader
