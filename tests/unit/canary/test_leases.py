"""Which schedulers run, by their Leases, and what becomes of those that were removed and of what they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from controller.canary.leases import AGAIN_SECONDS, LATE_SECONDS, LeaseWatch
from controller.canary.proof import NOT_RENEWED, Wiring
from controller.canary.prover import VERDICT_SECONDS
from controller.errors import ForbiddenError
from controller.kube.resources import LEASES
from controller.model.names import SECOND_SCHEDULER
from tests.unit.canary.leader import NAMESPACE, SCHEDULER, ProofBench, real_pod

DURATION = 15
OVER = DURATION + LATE_SECONDS + 1
STEP_SECONDS = 7.0


class Leased(ProofBench):
    """A leader that checks the cluster's own scheduler and a second one. Its informers read what is there."""

    def __init__(self) -> None:
        super().__init__(SCHEDULER, SECOND_SCHEDULER)
        self.watch = LeaseWatch(self.api, self.clock, self.proof, NAMESPACE)
        self.renewals = 0

    def clear_leases(self, may_write: Callable[[], bool]) -> None:
        self.watch.clear(may_write)

    @contextmanager
    def running(self) -> Iterator[None]:
        self.watch.start()
        try:
            yield
        finally:
            self.watch.stop()

    def renew(self, holder: str = "a", *, name: str = SECOND_SCHEDULER, namespace: str = NAMESPACE) -> None:
        """The store has seen it, too."""
        self.renewals += 1
        spec = {"holderIdentity": holder, "leaseDurationSeconds": DURATION, "renewTime": str(self.renewals)}
        self.api.put(LEASES, namespace, {"metadata": {"name": name}, "spec": spec})
        self.catch_up()

    def catch_up(self) -> None:
        """The watch is well: it knows of this moment."""
        self.api.version += 1  # something else was written
        assert all(informer.catch_up(5.0) for informer in self.watch._informers.values())

    def has_lease(self) -> bool:
        return (LEASES.path(), NAMESPACE, SECOND_SCHEDULER) in self.api.objects

    @property
    def state(self) -> str:  # type: ignore[override]
        """Of the second scheduler: its wiring, or "" where it is not checked."""
        found = [one for one in self.proof.findings() if one.scheduler == SECOND_SCHEDULER]
        return str(found[0].state) if found else ""

    def pass_time(self, seconds: float, *, renews: bool = False) -> None:
        end = self.clock.now() + seconds
        while (rest := end - self.clock.now()) > 0:
            self.clock.advance(min(STEP_SECONDS, rest))
            if renews:
                self.renew()
            else:
                self.catch_up()
            self.prover.step()

    def say_wired(self) -> None:
        self.proof.heard(SECOND_SCHEDULER, "uid-web-0", "ns/web-0", is_sure=True)

    def start_second(self) -> None:
        """It runs, and asked about a pod that is placed by now."""
        self.show(real_pod(scheduler=SECOND_SCHEDULER), "ADDED")
        self.renew()
        self.renew()
        self.prover.step()
        self.say_wired()
        self.place()

    def place(self) -> None:
        pod = real_pod(scheduler=SECOND_SCHEDULER)
        self.show({**pod, "spec": {**pod["spec"], "nodeName": "n"}})


@pytest.fixture
def leased() -> Iterator[Leased]:
    made = Leased()
    with made.running():
        yield made


def told(leased: Leased) -> list[str]:
    return [reason for reason, text, _ in leased.told if SECOND_SCHEDULER in text]


def test_a_lease_that_was_left_behind_shows_no_scheduler_and_is_deleted(leased: Leased) -> None:
    leased.renew()
    leased.pass_time(OVER - 2)
    assert ("", True) == (leased.state, leased.has_lease())
    leased.pass_time(3)
    assert ("", False, []) == (leased.state, leased.has_lease(), told(leased))


def test_a_scheduler_that_stops_is_wired_no_more_and_what_it_left_goes(leased: Leased) -> None:
    leased.start_second()
    leased.pass_time(5 * OVER, renews=True)
    assert ("wired", True) == (leased.state, leased.has_lease())
    leased.pass_time(OVER + 1)
    assert ("", False) == (leased.state, leased.has_lease())
    leased.pass_time(2 * VERDICT_SECONDS)
    leased.term = 2  # another leader: nor does it find a scheduler
    leased.pass_time(2 * VERDICT_SECONDS)
    assert ("", ["SchedulerWired"]) == (leased.state, told(leased))
    leased.renew()  # it is back
    leased.renew()
    leased.prover.step()
    assert "unknown" == leased.state
    assert SECOND_SCHEDULER in {raw["spec"]["schedulerName"] for raw in leased.api.canaries()}


@pytest.mark.parametrize("how", ["deleted", "let go"])
def test_a_lease_that_is_deleted_or_let_go_ends_the_scheduler_at_once(leased: Leased, how: str) -> None:
    leased.start_second()
    if how == "deleted":
        leased.api.delete(LEASES, NAMESPACE, SECOND_SCHEDULER)
        leased.catch_up()
    else:
        leased.renew("")
    assert "" == leased.state
    leased.pass_time(OVER + 7)
    assert ("", False) == (leased.state, leased.has_lease())


def test_while_pods_wait_for_a_scheduler_that_stopped_that_is_told_once(leased: Leased) -> None:
    leased.start_second()
    leased.show(real_pod("web-1", scheduler=SECOND_SCHEDULER), "ADDED")
    leased.pass_time(OVER + 3 * VERDICT_SECONDS)
    (finding,) = [one for one in leased.proof.findings() if one.scheduler == SECOND_SCHEDULER]
    assert (Wiring.UNKNOWN, NOT_RENEWED) == (finding.state, finding.cause)
    assert ["SchedulerWired", "SchedulerWiringUnknown"] == told(leased)
    leased.show(real_pod("web-1", scheduler=SECOND_SCHEDULER), "DELETED")
    leased.pass_time(4 * VERDICT_SECONDS)
    assert "" == leased.state


def test_pods_that_a_removed_scheduler_placed_keep_nobody_looking_for_it(leased: Leased) -> None:
    pod = real_pod(scheduler=SECOND_SCHEDULER)
    placed = {**pod, "spec": {**pod["spec"], "nodeName": "n"}}
    leased.show(placed, "ADDED")  # a new leader lists it
    leased.prover.step()
    assert "unknown" == leased.state, "it may be a profile of the cluster's own scheduler, which has no such Lease"
    leased.pass_time(VERDICT_SECONDS + 1)
    leased.show({**placed, "status": {"phase": "Running"}})
    leased.prover.step()
    assert ("", []) == (leased.state, told(leased))


def test_a_silent_scheduler_that_says_why_or_runs_stays(leased: Leased) -> None:
    leased.start_second()
    leased.place()
    leased.pass_time(350, renews=True)
    assert ("unknown", "SchedulerWiringUnknown") == (leased.state, told(leased)[-1])


def test_while_leases_cannot_be_seen_none_counts_as_left_behind(leased: Leased) -> None:
    leased.start_second()
    leased.watch.stop()
    leased.clock.advance(10 * OVER)
    leased.watch.clear(lambda: True)
    assert ("wired", True) == (leased.state, leased.has_lease())


def test_nothing_is_deleted_without_the_lead_and_a_refusal_is_logged_once(
    leased: Leased, caplog: pytest.LogCaptureFixture
) -> None:
    leased.term = None
    leased.renew()
    leased.pass_time(2 * OVER)
    assert leased.has_lease()
    leased.term = 1
    leased.api.fail_with(ForbiddenError("403: no"), "delete", about=LEASES)
    leased.pass_time(3 * AGAIN_SECONDS)
    assert 1 == caplog.text.count("a Lease that nobody renews is not deleted: 403: no")


def test_a_lease_that_changes_hands_brings_a_canary(leased: Leased) -> None:
    own = {"name": "kube-scheduler", "namespace": "kube-system"}
    leased.renew(**own)
    leased.prover.step()
    for holder, is_due in (("a", True), ("a", False), ("b", True), ("b", False)):
        leased.proof.creating(SCHEDULER)
        leased.proof.heard(SCHEDULER, "", "", is_sure=True)
        leased.renew(holder, **own)
        leased.clock.advance(2)
        assert is_due == leased.proof.is_due(SCHEDULER, 300), holder
    leased.renew(name="kube-controller-manager", namespace="kube-system")
