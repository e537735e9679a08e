"""Which pods opt in, and what is added to them; patches are applied by an independent implementation."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest

from controller.errors import MalformedRequestError
from controller.rules.opt_in import OptInPolicy
from tests.fakes.clock import VirtualClock
from webhook.pod_opt_in import OptIn, plan_opt_in
from webhook.stores import RequestLookup, WebhookStores

Raw = dict[str, Any]
RESOURCE = "longhorn.io/scheduler-extender"
MARK = "scheduling.longhorn.io/opt-in"
CO_SCHEDULE = "kubevirt-scheduler/co-schedule"
ASKED = {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}


class Known(RequestLookup):
    """What the webhook knows, without any time to read what it does not: claims `ours` and `theirs`, of the classes
    `lh`, which is the default class, and `nfs`."""

    def __init__(self) -> None:
        self.stores = WebhookStores.empty()
        unused: Any = None
        super().__init__(self.stores, unused, VirtualClock(), 0.0)
        self.set_default("lh")
        self.add_claim("ours", storageClassName="lh")
        self.add_claim("theirs", storageClassName="nfs")

    def set_default(self, name: str) -> None:
        for known, provisioner in (("lh", "driver.longhorn.io"), ("nfs", "nfs.example")):
            self.add_class(known, provisioner, is_default=str(known == name).lower())

    def add_class(
        self, name: str, provisioner: str = "driver.longhorn.io", *, is_default: str = "false", **parameters: str
    ) -> None:
        meta = {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": is_default}}
        self.stores.classes.apply("ADDED", {"metadata": meta, "provisioner": provisioner, "parameters": parameters})

    def add_claim(self, name: str, **spec: Any) -> None:
        self.stores.claims.apply("ADDED", {"metadata": {"namespace": "ns", "name": name, "uid": "u"}, "spec": spec})

    def add_pv(self, name: str, driver: str) -> None:
        self.stores.pvs.apply("ADDED", {"metadata": {"name": name}, "spec": {"csi": {"driver": driver}}})

    def mark(self, value: str) -> None:
        self.stores.namespaces.apply("ADDED", {"metadata": {"name": "ns", "labels": {MARK: value}}})


def pod(*claims: str, volumes: list[Raw] | None = None, meta: Raw | None = None, **spec: Any) -> Raw:
    named = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {
        "metadata": {"generateName": "p-", **(meta or {})},
        "spec": {"containers": [{"name": "main"}], "volumes": [*named, *(volumes or [])], **spec},
    }


def ephemeral(**spec: Any) -> Raw:
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def plan(raw: Raw, found: Known | None = None, policy: OptInPolicy | None = None, namespace: str = "ns") -> OptIn:
    return plan_opt_in(raw, namespace, found or Known(), policy or OptInPolicy())


def patched(raw: Raw, opt_in: OptIn) -> Raw:
    before = deepcopy(raw)
    result: Raw = jsonpatch.apply_patch(raw, [operation.raw() for operation in opt_in.operations])
    assert before == raw
    return result


def opts_in(raw: Raw, found: Known | None = None, policy: OptInPolicy | None = None, namespace: str = "ns") -> bool:
    return bool(plan(raw, found, policy, namespace).operations)


# What is added


LIMITED: Raw = {"name": "b", "resources": {"limits": {"memory": "1Gi"}}}


@pytest.mark.parametrize(
    ("containers", "chosen"),
    [
        pytest.param([{"name": "a"}, {"name": "b"}], 0, id="the first"),
        pytest.param([{"name": "a"}, LIMITED], 1, id="rather one that has limits"),
        pytest.param([{"name": "a", "resources": None}], 0, id="null resources"),
        pytest.param([{"name": "a", "resources": {"limits": None}}], 0, id="null limits"),
        pytest.param([{"name": "a", "resources": {"requests": {"cpu": "1"}, "claims": []}}], 0, id="with requests"),
    ],
)
def test_one_container_asks_for_the_resource_and_keeps_what_it_has(containers: list[Raw], chosen: int) -> None:
    raw = pod("ours", containers=containers)
    before = containers[chosen].get("resources") or {}
    asking = {part: {**(before.get(part) or {}), RESOURCE: "1"} for part in ("limits", "requests")}
    expected = [*containers[:chosen], {**containers[chosen], "resources": {**before, **asking}}]
    assert expected + containers[chosen + 1 :] == patched(raw, plan(raw))["spec"]["containers"]


def test_a_second_review_adds_nothing() -> None:
    raw = pod("ours", initContainers=[{"name": "sidecar", "restartPolicy": "Always"}])
    once = patched(raw, plan(raw))
    assert OptIn(skipped="asks-already") == plan(once)
    once["spec"]["containers"].insert(0, {"name": "another webhook's"})
    assert not opts_in(once)


@pytest.mark.parametrize("part", ["limits", "requests"])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_pod_that_asks_by_itself_stays_as_it_is(kind: str, part: str) -> None:
    asking = {"name": "x", "resources": {part: {RESOURCE: "1"}}}
    raw = pod("ours")
    raw["spec"][kind] = [*raw["spec"].get(kind, []), asking]
    assert "asks-already" == plan(raw).skipped


# Which pods


def test_pods_without_claims_of_longhorns_are_left_alone() -> None:
    assert "no-claim" == plan(pod()).skipped
    assert "no-claim" == plan(pod(volumes=[{"name": "tmp", "emptyDir": {}}])).skipped
    assert "no-longhorn-claim" == plan(pod("theirs")).skipped
    assert opts_in(pod("theirs", "ours"))


def test_a_bound_claim_is_its_volumes_drivers() -> None:
    found = Known()
    found.add_pv("pv-1", "nfs.example")
    found.add_pv("pv-2", "driver.longhorn.io")
    found.add_pv("pv-3", "io.rancher.longhorn")
    for name, opted in (("pv-1", False), ("pv-2", True), ("pv-3", True), ("not-seen", True)):
        for class_name in ("lh", "nfs", "", "gone"):
            found.add_claim("c", storageClassName=class_name, volumeName=name)
            assert opted == opts_in(pod("c"), found), (name, class_name)


# Spec, the default class, whether the pod opts in, and what the warning says was not found.
CLAIMS: dict[str, tuple[Raw | None, str, bool, str]] = {
    "not there yet": (None, "lh", True, "it was"),
    "of a class that is not there yet": ({"storageClassName": "gone"}, "lh", True, "StorageClass gone was"),
    "where no class is the default": ({}, "", True, "a default StorageClass was"),
    "of a volume that is not there yet": ({"storageClassName": "nfs", "volumeName": "x"}, "lh", True, "its volume was"),
    "of our default class": ({}, "lh", True, ""),
    "of another default class": ({}, "nfs", False, ""),
    "waiting for a volume made by hand": ({"storageClassName": ""}, "lh", True, ""),
    "of our class": ({"storageClassName": "lh"}, "", True, ""),
    "of another class": ({"storageClassName": "nfs"}, "lh", False, ""),
}


@pytest.mark.parametrize(("spec", "default", "opted", "missing"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_that_may_be_longhorns_counts_and_a_warning_tells_what_is_not_found(
    spec: Raw | None, default: str, opted: bool, missing: str
) -> None:
    """So does an ephemeral volume, by its template until its claim is there."""
    found, without_claim = Known(), Known()
    raws = [(pod("p-scratch"), found)]
    if spec is not None:
        found.add_claim("p-scratch", **spec)
        if "volumeName" not in spec:
            raws.append((pod(volumes=[ephemeral(**spec)], meta={"name": "p"}), without_claim))
    for raw, known in raws:
        known.set_default(default)
        opt_in = plan(raw, known)
        assert opted == bool(opt_in.operations)
        wanted = f"claim p-scratch: {missing} not found yet; the pod is opted in"
        assert [True] * bool(missing) == [wanted in warning for warning in opt_in.warnings]


def test_an_ephemeral_volumes_claim_counts_for_more_than_its_template() -> None:
    found, raw = Known(), pod(volumes=[ephemeral(storageClassName="nfs")], meta={"name": "p"})
    found.add_claim("p-scratch", storageClassName="lh")
    assert opts_in(raw, found)


def test_pods_that_kube_scheduler_does_not_place_are_left_alone() -> None:
    assert "bound" == plan(pod("ours", nodeName="n1")).skipped
    assert "scheduler" == plan(pod("ours", schedulerName="volcano")).skipped
    assert opts_in(pod("ours", schedulerName="default-scheduler"))
    assert opts_in(pod("ours", schedulerName=""))
    second = OptInPolicy(scheduler_names=frozenset({"second"}))
    assert opts_in(pod("ours", schedulerName="second"), policy=second)
    assert not opts_in(pod("ours"), policy=second)


@pytest.mark.parametrize("namespace", ["kube-system", "longhorn-system"])
def test_namespaces_of_the_system_are_left_alone(namespace: str) -> None:
    assert "namespace" == plan(pod("ours"), namespace=namespace).skipped


@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_a_pod_or_its_namespace_opts_out(place: str) -> None:
    found = Known()
    assert "opted-out" == plan(pod("ours", meta={place: {MARK: "false"}}), found).skipped
    found.mark("false")
    assert "opted-out" == plan(pod("ours"), found).skipped
    assert opts_in(pod("ours", meta={place: {MARK: "True"}}), found)  # the pod's own word stands


def test_only_marked_pods_where_that_is_asked_for() -> None:
    found, policy = Known(), OptInPolicy(only_marked=True)
    assert "not-marked" == plan(pod("ours"), found, policy).skipped
    assert opts_in(pod("ours", meta={"labels": {MARK: "true"}}), found, policy)
    assert not opts_in(pod("theirs", meta={"labels": {MARK: "true"}}), found, policy)
    found.mark("true")
    assert opts_in(pod("ours"), found, policy)
    assert not opts_in(pod("ours", meta={"annotations": {MARK: "false"}}), found, policy)


# KubeVirt


def launcher(*claims: str, **labels: str) -> Raw:
    return pod(*claims, meta={"labels": {"kubevirt.io": "virt-launcher", **labels}})


def co_scheduled(raw: Raw, found: Known) -> str | None:
    value: str | None = patched(raw, plan(raw, found))["metadata"].get("annotations", {}).get(CO_SCHEDULE)
    return value


def test_launcher_pods_with_a_shared_volume_follow_its_share_manager() -> None:
    found = Known()
    found.add_claim("shared", storageClassName="lh", accessModes=["ReadWriteMany"])
    found.add_claim("foreign", storageClassName="nfs", accessModes=["ReadWriteMany"])
    assert "true" == co_scheduled(launcher("shared"), found)
    for raw in (
        pod("shared"),
        launcher("ours"),
        launcher("ours", "foreign"),
        launcher("shared", **{"kubevirt.io/migrationJobUID": "m"}),
    ):
        assert co_scheduled(raw, found) is None
        assert opts_in(raw, found)


def test_what_a_launcher_pod_says_itself_stands() -> None:
    found = Known()
    found.add_claim("shared", storageClassName="lh", accessModes=["ReadWriteMany"])
    raw = launcher("shared")
    raw["metadata"]["annotations"] = {CO_SCHEDULE: "false"}
    assert "false" == co_scheduled(raw, found)
    del raw["metadata"]["annotations"]
    assert OptIn(skipped="asks-already") == plan(patched(raw, plan(raw, found)), found)


# Warnings and bad input


def test_strict_local_for_several_nodes_is_warned_of() -> None:
    found = Known()
    for parameters, warned in (
        ({"dataLocality": "strict-local"}, True),
        ({"dataLocality": "strict-local", "migratable": "true"}, False),
        ({"dataLocality": "best-effort"}, False),
    ):
        found.add_class("strict", **parameters)
        found.add_claim("shared", storageClassName="strict", accessModes=["ReadWriteMany"])
        found.add_claim("own", storageClassName="strict", accessModes=["ReadWriteOnce"])
        opt_in = plan(pod("shared", "own", "shared"), found)
        assert warned == bool(opt_in.warnings)
        assert len(opt_in.warnings) <= 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"volumes": {}}, "spec.volumes"),
        ({"volumes": ["x", {"name": "c", "persistentVolumeClaim": {"claimName": "ours"}}]}, "spec.volumes[0]"),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": 5}}]}, "spec.volumes[0].persistentVolumeClaim.claimName"),
        ({"volumes": [{"persistentVolumeClaim": "x"}]}, "spec.volumes[0].persistentVolumeClaim"),
        ({"containers": []}, "spec.containers"),
        ({"containers": ["x"]}, "spec.containers[0]"),
        ({"nodeName": 1}, "spec.nodeName"),
    ],
)
def test_a_bad_pod_is_refused_with_the_field(change: Raw, field: str) -> None:
    raw = pod("ours")
    raw["spec"].update(change)
    with pytest.raises(MalformedRequestError) as refused:
        plan(raw)
    assert field == refused.value.field
