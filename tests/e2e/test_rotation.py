"""The webhook's certificates turn on a real API server while callers who learn of everything late go on calling.

`ROTATION_LAG=30` makes them as late as a watch of an API server may be, and the run about a quarter of an hour long.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from certs.authority import read_authorities
from tests.cluster.client import Object
from tests.e2e import workloads
from tests.e2e.again import Again
from tests.e2e.harness import CLASSES, Scene
from tests.e2e.lagging import VOLUMES_EVERY, LaggingBundle, WebhookLoad
from tests.e2e.programs import Controller, leader_address
from tests.e2e.scheduling import LEADER_PORT, LEADER_SERVICE, NAMESPACE, RESOURCE
from tests.e2e.webhooks import OURS, WEBHOOK_SERVICE, Webhook
from tests.longhorn.install import ensure
from tests.waiting import wait_until

LAG_SECONDS = float(os.environ.get("ROTATION_LAG", "2"))
# What a day between two steps is scaled down to: 0.8 of it is above the lag.
UNIT_SECONDS = max(5.0, LAG_SECONDS * 5 / 3)
RUN_SECONDS = UNIT_SECONDS * 40
RATE = 25.0
RESTORED_SECONDS = 10.0  # docs/certificates.md, "Damage and loss"
LEAFS, AUTHORITIES = (20, 5) if "ROTATION_LAG" in os.environ else (8, 3)  # rotations of each

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(RUN_SECONDS + 300)]

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CHAIN = (
    "longhorn-scheduler-webhook-ca",
    "longhorn-scheduler-webhook-tls",
    "longhorn-scheduler-webhook-client-tls",
    "longhorn-replica-scheduler-tls",
)


class RotationStage:
    """A cluster, two copies of the webhook, and controllers, whose leader writes the configurations."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.api = scene, scene.api
        self.webhooks: list[Webhook] = []
        self.bundle = LaggingBundle(scene.api)
        scene.set_settings(opt_in="always")
        ensure(scene.api, CLASSES, workloads.storage_class("lh"))

    def start(self, *flags: str, copies: int = 1) -> None:
        for _ in range(2):
            webhook_flags = ("--paced", "webhook", "--leader-address", leader_address(self.scene.cluster), *flags)
            self.webhooks.append(Webhook(self.scene.cluster, webhook_flags, module="tests.e2e.paced"))
        self.controller(*flags).wait_leading()
        for _ in range(1, copies):
            self.controller(*flags)
        for webhook in self.webhooks:
            webhook.wait_ready()
        wait_until(lambda: self.bundle.latest == self.secret(CHAIN[1]).get("ca.crt"), "a caBundle of this chain", 60)
        self.bundle.forget_earlier()
        wait_until(self.is_asked, "an API server that asks the webhook", 60)

    def controller(self, *flags: str) -> Controller:
        return self.scene.launch_controller(module="tests.e2e.paced", flags=("--paced", "controller", *flags))

    def address(self) -> tuple[str, int]:
        return self.scene.cluster.services.address(NAMESPACE, WEBHOOK_SERVICE, 443)

    @contextmanager
    def callers(self) -> Iterator[tuple[WebhookLoad, Again]]:
        """Late ones, and the API server itself: pods in dry-run, a few a second. All the while nobody is refused, nor
        answered wrongly."""
        address = self.address()
        with (
            WebhookLoad(lambda: address, self.bundle, RATE, LAG_SECONDS) as load,
            Again(self.must_be_asked, 0.2) as server,
        ):
            yield load, server
        assert [] == load.seen.failures

    def is_asked(self) -> bool:
        """Whether the API server has a pod opted in by our webhook."""
        made = self.api.create("/api/v1/namespaces/default/pods", pod_with_claim(), dryRun="All")
        return RESOURCE in str(made["spec"]["containers"])

    def must_be_asked(self) -> None:
        assert self.is_asked(), "a pod came out as it was: the webhook was not asked, or failed"

    def secret(self, name: str) -> dict[str, bytes]:
        raw = self.api.get_or_none(f"{SECRETS}/{name}")
        return {} if raw is None else {key: b64decode(value) for key, value in (raw.get("data") or {}).items()}

    def secrets(self) -> dict[str, dict[str, bytes]]:
        return {name: self.secret(name) for name in CHAIN}

    def stop(self) -> None:
        for webhook in self.webhooks:
            webhook.stop(kill=True)  # nobody calls them any more: each would serve on for 5 s
        self.webhooks.clear()
        self.scene.stop_controllers()

    def begin_anew(self) -> None:
        self.stop()
        for name in CHAIN:
            if self.api.get_or_none(f"{SECRETS}/{name}") is not None:
                self.api.delete(f"{SECRETS}/{name}")


def pod_with_claim() -> Object:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "none-yet"}}
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    return {"metadata": {"name": "probe"}, "spec": {"containers": [container], "volumes": [volume]}}


@pytest.fixture(scope="module")
def cluster_stage(unscheduled_scene: Scene) -> Iterator[RotationStage]:
    stage = RotationStage(unscheduled_scene)
    yield stage
    stage.stop()
    stage.bundle.stop()
    unscheduled_scene.set_settings(opt_in="auto")
    unscheduled_scene.api.patch(OURS[0], {"webhooks": []})


@pytest.fixture
def stage(cluster_stage: RotationStage) -> Iterator[RotationStage]:
    cluster_stage.begin_anew()
    yield cluster_stage
    cluster_stage.stop()


@pytest.mark.long
def test_nobody_is_refused_over_many_rotations(stage: RotationStage) -> None:
    stage.start("--unit", str(UNIT_SECONDS), copies=2)
    first = stage.bundle.latest
    with stage.callers() as (load, server):
        seen = load.seen

        def turned(leaves: int, authorities: int) -> Callable[[], bool]:
            return lambda: (
                bool(seen.failures or server.failures)
                or (len(seen.leaves) > leaves and len(set(seen.leaves.values())) > authorities)
            )

        wait_until(turned(LEAFS // 2, AUTHORITIES // 2), "half of the rotations", RUN_SECONDS)
        # Another leader goes on where the first one stopped.
        load.leader_is_away = True
        stage.scene.controllers.pop(0).stop()
        stage.scene.controllers[0].wait_leading()
        wait_checked(stage, load)
        wait_until(turned(LEAFS, AUTHORITIES), "the rotations", RUN_SECONDS)
        asked_seconds = load.seconds
    assert seen.calls >= RATE * asked_seconds / 2  # it was asked all along, by slow machines too
    assert server.turns >= asked_seconds
    last = stage.bundle.latest
    assert not set(read_authorities(first, what="first")) & set(read_authorities(last, what="last"))
    print(
        f"lag {LAG_SECONDS:g} s: {seen.calls} calls, {len(seen.leaves) - 1} leaf and "
        f"{len(set(seen.leaves.values())) - 1} authority rotations, {server.turns} pods, 0 failed, "
        f"{seen.unchecked} growths unchecked while the leader changed"
    )


def wait_checked(stage: RotationStage, load: WebhookLoad) -> None:
    """Until growth is checked by the new leader, time after time: from then on none may pass unchecked."""
    there = [(stage.scene.controllers[0].ip, 9505)]
    services = stage.scene.cluster.services
    wait_until(
        lambda: there == services.endpoints(NAMESPACE, LEADER_SERVICE, LEADER_PORT),
        "the new leader's gRPC server",
        60,
    )
    load.seen.checked_in_a_row = 0
    wait_until(lambda: load.seen.checked_in_a_row >= 2 * RATE / VOLUMES_EVERY, "two seconds of checked growth", 60)
    load.leader_is_away = False


def spoil(stage: RotationStage, name: str) -> None:
    garbage = {key: b64encode(b"garbage").decode() for key in ("tls.crt", "tls.key", "ca.crt")}
    stage.api.patch(f"{SECRETS}/{name}", {"data": garbage})


def delete(stage: RotationStage, name: str) -> None:
    stage.api.delete(f"{SECRETS}/{name}")


@pytest.mark.parametrize(
    "together",
    [(CHAIN,), pytest.param(tuple((name,) for name in CHAIN), marks=pytest.mark.long)],
    ids=["all at once", "one after another"],
)
def test_secrets_that_are_deleted_or_spoilt_come_back_and_nobody_notices(
    stage: RotationStage, together: tuple[tuple[str, ...], ...]
) -> None:
    stage.start("--look", "1")
    before = stage.secrets()
    assert all(before.values())
    with stage.callers():
        for damage in (delete, spoil):
            for names in together:
                for name in names:
                    damage(stage, name)
                wait_until(lambda: before == stage.secrets(), f"{names} as before", RESTORED_SECONDS)
    checked = stage.scene.run(
        "certs", "check", "--warn-days", "0", "--chain", "webhook", kubeconfig=stage.scene.cluster.kubeconfig
    )
    assert (0, "all certificates are in order\n") == (checked.returncode, checked.stdout)


@pytest.mark.long
@pytest.mark.parametrize("offset", [-300, 300])
def test_clocks_that_are_five_minutes_off_keep_nobody_out(stage: RotationStage, offset: int) -> None:
    stage.start("--clock-offset", str(offset))
    before = stage.secrets()
    with stage.callers() as (load, server):
        # The next leader's clock is off in the other direction, and something is to be done.
        load.leader_is_away = True
        stage.scene.stop_controllers()
        stage.controller("--clock-offset", str(-offset)).wait_leading()
        wait_checked(stage, load)
        delete(stage, CHAIN[1])
        wait_until(lambda: stage.secret(CHAIN[1]), "the Secret again", 15)
        server.wait_for_more(10)
    assert before[CHAIN[0]] == stage.secret(CHAIN[0])


@pytest.mark.long
def test_both_copies_lost_and_the_authoritys_secret_too(stage: RotationStage) -> None:
    """Nobody remembers the authority's key: what it signed goes on being trusted, and served."""
    stage.start()
    before = stage.secrets()
    with stage.callers() as (load, server):
        load.leader_is_away = True
        stage.scene.stop_controllers(kill=True)
        delete(stage, CHAIN[0])
        stage.controller().wait_leading()
        wait_until(lambda: stage.secret(CHAIN[0]).get("next.crt"), "a next authority", 60)
        wait_checked(stage, load)
        server.wait_for_more(10)
    assert before[CHAIN[1]]["tls.crt"] == stage.secret(CHAIN[1])["tls.crt"]
    assert 2 == len(read_authorities(stage.secret(CHAIN[1])["ca.crt"], what="bundle"))
