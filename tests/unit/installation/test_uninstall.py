"""What comes before an installation is deleted, step by step, on an API server in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.errors import ClusterError, ConfigError, ConflictError
from controller.installation.uninstall import PodsWaitError, prepare_uninstall, remove_webhooks, waiting_pods
from controller.kube.resources import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    LEASES,
    LONGHORN_SETTINGS,
    MUTATING_WEBHOOKS,
    OUR_CONFIGURATIONS,
    PODS,
    POLICY_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from controller.model.names import GATE
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

NAMESPACE, ACCOUNT = "longhorn-system", "longhorn-scheduler-extender"
OUR_LEASE = "longhorn-manager-disk-scheduler-lock"
SETTINGS = replace(ProcessSettings(), tls_mode="self")
AUTHORITIES = {"longhorn-scheduler-extender-ca", "longhorn-scheduler-webhook-ca"}
LEAVES = {
    "longhorn-scheduler-extender-tls",
    "longhorn-scheduler-extender-client",
    "longhorn-scheduler-webhook-tls",
    "longhorn-scheduler-webhook-client-tls",
    "longhorn-replica-scheduler-tls",
}
ENTRIES = [{"name": "x"}]
MUTATING = OUR_CONFIGURATIONS[MUTATING_WEBHOOKS]
SLICES = {"longhorn-scheduler-extender", "longhorn-replica-scheduler"}
PLANS = {f"longhorn-scheduler-extender-plans-{number}" for number in range(16)}

SWITCHED_OFF = (
    f"ConfigMap {NAMESPACE}/{ACCOUNT}: scheduler-extender-enabled is false. Pods that wait are let through unchecked; "
    "one that comes to a node without room hangs there until its volume has room"
)


class Leaving:
    """A namespace with all that the leader makes in it, and a cluster with pods."""

    def __init__(self) -> None:
        self.server, self.clock = FakeApiServer(), VirtualClock()
        self.user = {"username": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", "uid": "account-1"}
        self._create, self.server.create = self.server.create, self._created  # type: ignore[method-assign]
        self.put(CONFIG_MAPS, ACCOUNT, {"data": {"scheduler-extender-enabled": "true", "other": "stays"}})
        self.put(SERVICE_ACCOUNTS, ACCOUNT, {"metadata": {"uid": "account-2"}})
        self.put(LEASES, OUR_LEASE, {"spec": {"leaseTransitions": 7}})
        for name in ("longhorn-scheduler", "default-scheduler"):
            self.put(LEASES, name, {"spec": {"holderIdentity": "gone"}})
        made = ((ENDPOINT_SLICES, SLICES), (SECRETS, LEAVES | AUTHORITIES), (CONFIG_MAPS, PLANS))
        for resource, names in made:
            for name in names:
                self.put(resource, name, {})
        for resource, name in OUR_CONFIGURATIONS.items():
            self.server.create(resource, None, {"metadata": {"name": name}, "webhooks": ENTRIES})

    def _created(self, resource: Resource, namespace: str | None, body: dict[str, Any], **more: object) -> Any:
        if resource.kind == "SelfSubjectReview":
            return {"status": {"userInfo": self.user}}
        return self._create(resource, namespace, body, **more)

    def put(self, resource: Resource, name: str, body: dict[str, Any], namespace: str = NAMESPACE) -> None:
        meta = {**body.get("metadata", {}), "name": name, "namespace": namespace}
        self.server.put(resource, namespace, {**body, "metadata": meta})

    def pod(self, name: str, *, asks: bool = True, node: str = "", labels: dict[str, str] | None = None) -> None:
        amounts = {"requests": {"longhorn.io/scheduler-extender": "1"}} if asks else {}
        spec = {"containers": [{"name": "c", "resources": amounts}], **({"nodeName": node} if node else {})}
        self.put(PODS, name, {"metadata": {"labels": labels or {}, "uid": name}, "spec": spec}, "ns")

    def entries(self) -> list[str]:
        """Of our webhook configurations, which pods and expansions go through."""
        configurations = [self.server.get(resource, None, name) for resource, name in OUR_CONFIGURATIONS.items()]
        return [entry["name"] for configuration in configurations for entry in configuration["webhooks"]]

    def remove(self, meanwhile: Callable[[], object] = lambda: None) -> Sequence[str]:
        """The first step alone; `meanwhile`: in each pause."""

        def pause(seconds: float) -> None:
            self.clock.advance(seconds)
            meanwhile()

        return remove_webhooks(self.server, self.clock, NAMESPACE, ACCOUNT, pause=pause)

    def prepare(self, settings: ProcessSettings = SETTINGS, **options: Any) -> list[str]:
        options = {"wait_seconds": 30.0, "pause": self.clock.advance, **options}
        return list(prepare_uninstall(self.server, self.clock, settings, **options))

    def owned(self, resource: Resource, uid: str = "account-1") -> set[str]:
        """Names of objects of that kind that go with the account of that uid."""
        return {
            raw["metadata"]["name"]
            for raw in self.server.list_page(resource, NAMESPACE).items
            if uid in [one["uid"] for one in raw["metadata"].get("ownerReferences") or []]
        }


@pytest.fixture
def leaving() -> Leaving:
    return Leaving()


# The switch, the gate and the webhook configurations


def test_it_switches_off_and_empties_both_configurations_whoever_was_first(leaving: Leaving) -> None:
    done = leaving.remove()
    assert [
        SWITCHED_OFF,
        *(f"{resource.kind} {name}: empty" for resource, name in OUR_CONFIGURATIONS.items()),
    ] == done
    assert [] == leaving.entries()
    settings = leaving.server.get(CONFIG_MAPS, NAMESPACE, ACCOUNT)
    assert {"scheduler-extender-enabled": "false", "other": "stays"} == settings["data"]
    assert done == leaving.remove()


def test_it_deletes_what_an_earlier_release_left(leaving: Leaving) -> None:
    leaving.server.create(MUTATING_WEBHOOKS, None, {"metadata": {"name": ACCOUNT}, "webhooks": ENTRIES})
    assert f"{MUTATING_WEBHOOKS.kind} {ACCOUNT}: deleted" in leaving.remove()
    assert [MUTATING] == [raw["metadata"]["name"] for raw in leaving.server.list_page(MUTATING_WEBHOOKS).items]


def test_longhorn_may_place_at_once_and_still_when_a_late_leader_closes_the_gate_again(leaving: Leaving) -> None:
    def close() -> None:
        leaving.server.put(POLICY_BINDINGS, None, {"metadata": {"name": GATE}})

    def close_once_more() -> None:
        bindings.append(len(leaving.server.list_page(POLICY_BINDINGS).items))
        if len(bindings) == 1:
            close()

    bindings: list[int] = []  # that are there in each pause
    close()
    done = leaving.remove(close_once_more)
    assert {0} == set(bindings)
    assert 1 == done.count(f"ValidatingAdmissionPolicyBinding {GATE}: deleted")


def test_what_a_late_leader_writes_again_is_emptied_again_unless_it_goes_on(leaving: Leaving) -> None:
    def fill() -> None:
        leaving.server.patch(MUTATING_WEBHOOKS, None, MUTATING, {"webhooks": ENTRIES})

    pauses = itertools.count()
    leaving.remove(lambda: fill() if next(pauses) < 2 else None)
    assert [] == leaving.entries()
    with pytest.raises(ClusterError, match="do not stay empty"):
        leaving.remove(fill)


def test_a_setting_of_longhorns_that_overrides_ours_has_to_be_changed_first(leaving: Leaving) -> None:
    leaving.put(LONGHORN_SETTINGS, "scheduler-extender-enabled", {"value": "true"})
    with pytest.raises(ClusterError, match="overrides the ConfigMap"):
        leaving.remove()
    assert ["x", "x"] == leaving.entries()


def test_where_the_settings_are_not_nothing_is_removed(leaving: Leaving) -> None:
    """A leader that runs elsewhere, or goes on with the last values, would write them again."""
    leaving.server.delete(CONFIG_MAPS, NAMESPACE, ACCOUNT)
    with pytest.raises(ConfigError, match=rf"^there is no ConfigMap {NAMESPACE}/{ACCOUNT}.*--namespace"):
        leaving.remove()
    assert ["x", "x"] == leaving.entries()


# What the leader made, and pods that wait


def test_what_the_leader_made_goes_with_its_account_and_the_authorities_stay(leaving: Leaving) -> None:
    lines = leaving.prepare()
    assert {OUR_LEASE, "longhorn-scheduler"} == leaving.owned(LEASES)
    assert (SLICES, LEAVES) == (leaving.owned(ENDPOINT_SLICES), leaving.owned(SECRETS))
    assert PLANS == leaving.owned(CONFIG_MAPS)
    assert "no pending pod requests longhorn.io/scheduler-extender" in lines
    assert {"leaseTransitions": 7} == leaving.server.get(LEASES, NAMESPACE, OUR_LEASE)["spec"]
    assert lines == leaving.prepare()  # done again, it says the same
    assert 1 == len(leaving.server.get(LEASES, NAMESPACE, OUR_LEASE)["metadata"]["ownerReferences"])


def test_purged_the_authorities_go_too(leaving: Leaving) -> None:
    leaving.prepare(purges=True)
    assert LEAVES | AUTHORITIES == leaving.owned(SECRETS)


def test_what_others_write_is_theirs(leaving: Leaving) -> None:
    leaving.prepare(replace(SETTINGS, tls_mode="cert-manager"), purges=True)
    assert {name for name in LEAVES | AUTHORITIES if not name.startswith("longhorn-scheduler-extender")} == (
        leaving.owned(SECRETS)
    )
    leaving = Leaving()
    leaving.prepare(replace(SETTINGS, webhook_tls_mode="off"))
    assert {name for name in LEAVES if name.startswith("longhorn-scheduler-extender")} == leaving.owned(SECRETS)


def test_a_person_hands_it_over_to_the_account_of_that_name(leaving: Leaving) -> None:
    for user in (
        {"username": "kubernetes-admin"},
        {"username": f"system:serviceaccount:other:{ACCOUNT}", "uid": "foreign"},
    ):
        leaving.user = user
        leaving.prepare()
        assert LEAVES == leaving.owned(SECRETS, "account-2")
    leaving.server.delete(SERVICE_ACCOUNTS, NAMESPACE, ACCOUNT)
    with pytest.raises(ConfigError, match=f"--namespace: there is no ServiceAccount {NAMESPACE}/{ACCOUNT}"):
        leaving.prepare()


def test_pods_that_carry_the_resource_are_waited_for(leaving: Leaving) -> None:
    leaving.pod("late")
    began = leaving.clock.now()

    def pause(seconds: float) -> None:
        leaving.clock.advance(seconds)
        if leaving.clock.now() > began + 20 and waiting_pods(leaving.server):
            leaving.pod("late", node="n1")

    lines = leaving.prepare(pause=pause)
    assert "waiting for pending pods that request longhorn.io/scheduler-extender: 1" in lines
    assert LEAVES == leaving.owned(SECRETS)


def test_it_refuses_while_pods_would_be_left_behind_unless_it_is_forced(leaving: Leaving) -> None:
    for number in range(25):
        leaving.pod(f"p{number:02}")
    leaving.pod("asks-nothing", asks=False)
    leaving.pod("runs", node="n1")
    leaving.pod("canary", labels={"scheduling.longhorn.io/canary": "true"})
    with pytest.raises(PodsWaitError, match=r": 25 \(ns/p00, .*ns/p19, \.\.\.\)\. Without .*uninstall\.force=true"):
        leaving.prepare()
    assert set() == leaving.owned(SECRETS) | leaving.owned(LEASES)
    lines = leaving.prepare(is_forced=True)
    assert [] != [line for line in lines if ": 25 (ns/p00, " in line and line.endswith("as --force says")]
    assert LEAVES == leaving.owned(SECRETS)


def test_a_leader_that_writes_meanwhile_is_no_failure(leaving: Leaving) -> None:
    leaving.server.fail_with(ConflictError("409: changed meanwhile"), "replace", times=3)
    leaving.prepare()
    assert LEAVES == leaving.owned(SECRETS)


def test_an_owner_that_is_there_already_stays(leaving: Leaving) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "theirs"}
    leaving.put(LEASES, OUR_LEASE, {"metadata": {"ownerReferences": [owner]}})
    leaving.prepare()
    lease = leaving.server.get(LEASES, NAMESPACE, OUR_LEASE)
    assert ["theirs", "account-1"] == [one["uid"] for one in lease["metadata"]["ownerReferences"]]
