"""The leader's hand on the gate, on a real API server and with the rights that the manifest gives it; `admin` stands
for Longhorn. The placer is not there: nothing is placed but by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from controller.clock import SystemClock
from controller.errors import ConflictError, ForbiddenError
from controller.kube.api import ClientKubeApi
from controller.kube.resources import LONGHORN_REPLICAS, POLICIES, POLICY_BINDINGS, SERVICE_ACCOUNTS
from controller.model.names import (
    GATE,
    LEFT_ANNOTATION,
    MANAGER_PREFIX,
    RENEWED_ANNOTATION,
    SINCE_ANNOTATION,
    TERM_ANNOTATION,
)
from controller.placement import gate
from controller.placement.gate import PlacementGate
from controller.placement.gate_objects import GateObjects
from controller.placement.gate_policy import Enforcement
from tests.cluster.cluster import Cluster
from tests.e2e.policy_site import REPLICAS, PolicySite, refusal
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

ACCOUNT: Final = SERVICE_ACCOUNTS.path(NAMESPACE, GATE)
BINDING: Final = POLICY_BINDINGS.path(None, GATE)
POLICY: Final = POLICIES.path(None, GATE)
MENDED_SECONDS: Final = 8.0
WAIT_SECONDS: Final = 30.0
PLACED: Final = {"metadata": {"labels": {"longhornnode": "n1"}}, "spec": {"nodeID": "n1", "diskID": "d"}}


class KeptSite(PolicySite):
    """A cluster with the manifest's objects, and no process of ours."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.ours = ClientKubeApi.load(str(self.kubeconfig))

    def is_closed(self) -> bool:
        """Whether Longhorn is refused the place of a new Replica."""
        path = f"{REPLICAS}/{self.new_replica()}"
        return f"'{GATE}'" in refusal(lambda: self.admin.patch(path, PLACED, dryRun="All"))

    def write(self, term: str) -> None:
        """As that term's leader: marks a new Replica."""
        mark = {"metadata": {"annotations": {LEFT_ANNOTATION: "Longhorn's"}}}
        name = self.new_replica()
        self.ours.patch(LONGHORN_REPLICAS, NAMESPACE, name, mark, field_manager=f"{MANAGER_PREFIX}{term}")


class KeptGate:
    """The gate of one leader, with its thread."""

    def __init__(self, site: KeptSite) -> None:
        self.is_current, self.wanted = True, Enforcement.DENY
        self.objects = GateObjects(site.ours, NAMESPACE, SERVICE)
        self.gate = PlacementGate(
            self.objects,
            SystemClock(),
            is_current=lambda _term: self.is_current,
            is_alive=lambda: True,
            wanted=lambda: self.wanted,
            wait=threading.Event().wait,
            tell=lambda *_: None,
        )

    def reaches(self, state: str, timeout: float = WAIT_SECONDS) -> None:
        wait_until(lambda: self.gate.figures().state == state, f"state {state}", timeout)


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[KeptSite]:
    """With a Replica by which the gate is proven, and rounds that follow each other soon."""
    with KeptSite.on(cluster) as found, pytest.MonkeyPatch.context() as patch:
        for name, seconds in {"EVERY_SECONDS": 0.5, "AGAIN_SECONDS": 2.0, "PROOF_SECONDS": 5.0}.items():
            patch.setattr(gate, name, seconds)
        found.new_replica()
        yield found


@contextmanager
def leading(site: KeptSite, term: str) -> Iterator[KeptGate]:
    kept = KeptGate(site)
    kept.gate.begin_term(term)
    kept.gate.start()
    yield kept
    kept.gate.stop()


def test_a_leader_finds_everything_as_it_should_be_and_closes_the_gate(site: KeptSite) -> None:
    with leading(site, "a1") as kept:
        kept.reaches("enforced")
        assert site.is_closed()
        wait_until(lambda: "" == kept.gate.figures().problem, "policies that were checked", WAIT_SECONDS)


def test_a_setting_opens_and_closes_it_within_two_seconds(site: KeptSite) -> None:
    with leading(site, "a2") as kept:
        kept.reaches("enforced")
        for wanted, state in ((Enforcement.AUDIT, "audit"), (Enforcement.NONE, "off")):
            kept.wanted = wanted
            kept.gate.changed()
            wait_until(lambda: not site.is_closed(), "an open gate", 2.0)
            kept.reaches(state)
        kept.wanted = Enforcement.DENY
        kept.gate.changed()
        wait_until(site.is_closed, "a closed gate", 2.0)


def test_what_somebody_deletes_or_changes_is_mended_or_told(site: KeptSite) -> None:
    with leading(site, "a4") as kept:
        kept.reaches("enforced")
        site.admin.delete(BINDING)
        wait_until(lambda: kept.gate.figures().mended == 1, "a mended binding", MENDED_SECONDS)
        wait_until(site.is_closed, "a closed gate", MENDED_SECONDS)
        site.admin.patch(BINDING, {"spec": {"validationActions": ["Audit"]}})
        wait_until(lambda: kept.gate.figures().mended == 2, "a mended binding", MENDED_SECONDS)
        wait_until(site.is_closed, "a closed gate", MENDED_SECONDS)

        since = site.admin.get(ACCOUNT)["metadata"]["annotations"][SINCE_ANNOTATION]
        for stamps in (
            {TERM_ANNOTATION: None, SINCE_ANNOTATION: None, RENEWED_ANNOTATION: None},
            {TERM_ANNOTATION: "another"},
            {SINCE_ANNOTATION: "2050-01-01T00:00:00Z", RENEWED_ANNOTATION: "soon"},
        ):
            mended = kept.gate.figures().mended
            site.admin.patch(ACCOUNT, {"metadata": {"annotations": stamps}})
            wait_until(lambda: kept.gate.figures().mended > mended, "mended stamps", MENDED_SECONDS)  # noqa: B023
            assert since == site.admin.get(ACCOUNT)["metadata"]["annotations"][SINCE_ANNOTATION]
            wait_until(site.is_closed, "a closed gate", MENDED_SECONDS)

        site.admin.delete(ACCOUNT)
        kept.reaches("missing", MENDED_SECONDS)
        assert "does not exist" in kept.gate.figures().problem
        wait_until(lambda: not site.is_closed(), "an open gate", MENDED_SECONDS)
        site.apply()
        kept.reaches("enforced")
        wait_until(site.is_closed, "a closed gate", MENDED_SECONDS)


def test_a_policy_that_is_deleted_or_changed_is_found(site: KeptSite) -> None:
    site.admin.patch(POLICY, {"spec": {"matchConditions": [{"name": "never", "expression": "false"}]}})
    try:
        with leading(site, "a5") as kept:
            kept.reaches("missing")
            problem = kept.gate.figures().problem
            assert f"{POLICIES.kind} {GATE} is not as this version brings it" in problem
            site.admin.delete(POLICY)
            wait_until(lambda: "does not exist" in kept.gate.figures().problem, "it told", WAIT_SECONDS)
            site.apply()
            kept.reaches("enforced")
    finally:
        site.apply()


def test_a_former_leader_neither_renews_nor_writes(site: KeptSite) -> None:
    with leading(site, "a6") as former:
        former.reaches("enforced")
        site.write("a6")
        former.is_current = False
        with leading(site, "a7") as kept:
            with pytest.raises(ForbiddenError, match="longhorn-scheduler-extender-fence"):
                site.write("a6")
            site.write("a7")
            with pytest.raises(ConflictError):
                former.objects.renew("a6", "2050-01-01T00:00:00Z")
            kept.reaches("enforced")
            assert "following" == former.gate.figures().state
