"""The wiring of kube-scheduler: what counts as evidence, and what canaries do, on an API server in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from controller.canary import proof as wired
from controller.canary.build import LeaseEvents
from controller.canary.pod import NAME_PREFIX, canary_body, canary_name
from controller.canary.proof import Outcome, Recognition, Wiring
from controller.canary.prover import VERDICT_SECONDS
from controller.errors import ClusterError, UnavailableError
from controller.kube import resources
from controller.kube.recorder import Recorder
from controller.kube.resources import EVENTS, LEASES, PODS
from controller.model.names import EXTENDER_RESOURCE, SECOND_SCHEDULER
from controller.settings import LiveSettings
from tests.unit.canary.leader import (
    CANARY,
    LEASE,
    MESSAGE,
    NAMESPACE,
    SCHEDULER,
    ProofBench,
    Raw,
    real_pod,
    with_condition,
)
from tests.waiting import wait_until


@pytest.fixture
def bench() -> ProofBench:
    return ProofBench()


@pytest.fixture
def sent(bench: ProofBench) -> ProofBench:
    """A canary is out."""
    bench.step()
    return bench


@pytest.fixture
def asked(sent: ProofBench) -> ProofBench:
    """The extender was asked about the canary."""
    assert Recognition.OURS is sent.filter_canary()
    return sent


@pytest.fixture
def proven(asked: ProofBench) -> ProofBench:
    """And the canary has gone."""
    asked.step()
    return asked


# The canary


def test_a_canary_can_do_no_harm_and_fits_the_restricted_standard() -> None:
    body = canary_body(SCHEDULER, NAMESPACE, {"uid": "u"})
    spec = body["spec"]
    (container,) = spec["containers"]
    assert {"requests": {EXTENDER_RESOURCE: "1"}, "limits": {EXTENDER_RESOURCE: "1"}} == container["resources"]
    assert [{"operator": "Exists"}] == spec["tolerations"]
    assert (SCHEDULER, 0, "Never", False) == (
        spec["schedulerName"],
        spec["terminationGracePeriodSeconds"],
        container["imagePullPolicy"],
        spec["automountServiceAccountToken"],
    )
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"]
    assert {"drop": ["ALL"]} == container["securityContext"]["capabilities"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert [{"uid": "u"}] == body["metadata"]["ownerReferences"]


@pytest.mark.parametrize("scheduler", ["default-scheduler", "Odd_Name", "x" * 200, "a.b", "-"])
def test_a_canarys_name_is_a_pods_name_whatever_the_schedulers_is(scheduler: str) -> None:
    name = canary_name(scheduler)
    rest = name.removeprefix(NAME_PREFIX)
    assert name.startswith(NAME_PREFIX) and len(name) <= 100
    assert rest and rest[0].isalnum() and rest[-1].isalnum() and rest == rest.lower() and "_" not in rest


def test_each_scheduler_has_a_canary_of_its_own_that_our_lease_owns() -> None:
    bench = ProofBench("one", "two")
    for name in ("one", "two"):
        bench.proof.runs(name)
    bench.step()
    canaries = bench.api.canaries()
    assert {"one", "two"} == {raw["spec"]["schedulerName"] for raw in canaries}
    assert 2 == len({raw["metadata"]["name"] for raw in canaries})
    uid = bench.api.get(LEASES, NAMESPACE, LEASE)["metadata"]["uid"]
    owners = [owner for raw in canaries for owner in raw["metadata"]["ownerReferences"]]
    assert [("Lease", LEASE, uid)] * 2 == [(owner["kind"], owner["name"], owner["uid"]) for owner in owners]


# Verdicts


def place(bench: ProofBench) -> None:
    bound = bench.canary()
    bench.show({**bound, "spec": {**bound["spec"], "nodeName": "n1"}})


@pytest.mark.parametrize(
    ("what_happens", "state", "cause", "outcome", "reason"),
    [
        (ProofBench.filter_canary, Wiring.WIRED, wired.ASKED_ABOUT_CANARY, Outcome.SEEN, "SchedulerWired"),
        (lambda it: it.refuse(it.canary()), Wiring.UNWIRED, wired.LACKS, Outcome.LACKING, "SchedulerNotWired"),
        (place, Wiring.UNWIRED, wired.PLACED, Outcome.PLACED, "SchedulerNotWired"),
    ],
    ids=["asked about", "lacks the resource", "placed"],
)
def test_what_a_canary_shows_is_known_at_once_told_and_the_canary_goes(
    sent: ProofBench,
    what_happens: Callable[[ProofBench], object],
    state: Wiring,
    cause: str,
    outcome: Outcome,
    reason: str,
) -> None:
    assert Wiring.UNKNOWN is sent.state()
    what_happens(sent)
    assert (state, cause) == (sent.state(), sent.finding.cause)  # before any step
    sent.step()
    assert ([], 1) == (sent.api.canaries(), sent.prover.outcomes[outcome])
    words = "is wired" if state is Wiring.WIRED else "is not wired"
    text = f"Scheduler 'default-scheduler' {words}: {cause}"
    assert [(reason, text, state is not Wiring.WIRED)] == sent.told


@pytest.mark.parametrize("message", ["0/2 nodes are available: 2 Too many pods.", "no nodes available", ""])
def test_other_words_of_the_scheduler_decide_nothing(sent: ProofBench, message: str) -> None:
    sent.refuse(sent.canary(), message)
    sent.step()
    assert Wiring.UNKNOWN is sent.state()
    assert 1 == len(sent.api.canaries())


@pytest.mark.parametrize(
    ("words", "cause"),
    [("", "it has not considered the canary within 30 s"), ("Post refused", "30 s: Post refused")],
)
def test_a_silent_canary_takes_a_finding_back_with_the_schedulers_words(
    proven: ProofBench, words: str, cause: str
) -> None:
    proven.step(300)
    proven.api.patch(PODS, NAMESPACE, CANARY, with_condition({}, words))
    proven.step(VERDICT_SECONDS - 1)
    assert (Wiring.WIRED, 1) == (proven.state(), len(proven.api.canaries()))
    proven.step(1)
    assert (Wiring.UNKNOWN, []) == (proven.state(), proven.api.canaries())
    assert proven.finding.cause.endswith(cause)
    assert ["SchedulerWired", "SchedulerWiringUnknown"] == [reason for reason, _, _ in proven.told]


def test_a_silent_canary_of_a_scheduler_that_asked_about_other_pods_changes_nothing(bench: ProofBench) -> None:
    bench.show(real_pod(), "ADDED")
    bench.step()
    bench.proof.heard(SCHEDULER, "uid-web-0", "ns/web-0", is_sure=True)
    bench.step(VERDICT_SECONDS)
    assert (Wiring.WIRED, []) == (bench.state(), bench.api.canaries())


def test_the_last_look_finds_what_the_watch_has_not_told_and_is_taken_again_where_it_fails(sent: ProofBench) -> None:
    sent.api.patch(PODS, NAMESPACE, CANARY, with_condition({}, MESSAGE))
    sent.api.fail_with(UnavailableError("503: later"), "get", about=PODS)
    sent.step(VERDICT_SECONDS)
    assert 1 == len(sent.api.canaries())
    sent.api.work()
    sent.step(1)
    assert (Wiring.UNWIRED, []) == (sent.state(), sent.api.canaries())


def test_a_canary_that_somebody_deletes_decides_nothing_and_is_not_sent_again_at_once(sent: ProofBench) -> None:
    gone = sent.canary()
    sent.show(gone)
    sent.api.delete(PODS, NAMESPACE, CANARY)
    sent.show(gone, "DELETED")
    sent.step(3)
    assert (Wiring.UNKNOWN, 1, []) == (sent.state(), sent.prover.outcomes["gone"], sent.api.canaries())
    sent.step(wired.UNPROVEN_SECONDS)
    assert 1 == len(sent.api.canaries())


# Who is whose canary


def test_only_the_uid_proves_a_canary(sent: ProofBench) -> None:
    assert Recognition.STRAY is sent.proof.recognise("another", NAMESPACE, CANARY)
    assert Recognition.NO_CANARY is sent.proof.recognise(sent.canary()["metadata"]["uid"], "ns", CANARY)
    assert Recognition.NO_CANARY is sent.proof.recognise(sent.canary()["metadata"]["uid"], NAMESPACE, "web-0")
    assert Wiring.UNKNOWN is sent.state()


def test_a_call_about_a_former_canary_is_late_and_counted_also_while_the_next_is_made(sent: ProofBench) -> None:
    late = sent.canary()["metadata"]["uid"]
    sent.refuse(sent.canary())
    sent.step()
    assert ([], 0) == (sent.api.canaries(), sent.proof.late_calls)
    assert Recognition.LATE is sent.proof.recognise(late, NAMESPACE, CANARY)
    assert (Wiring.UNWIRED, 1) == (sent.state(), sent.proof.late_calls)
    seen: list[Recognition] = []
    sent.api.after_create = lambda _raw: seen.append(sent.proof.recognise(late, NAMESPACE, CANARY))
    sent.step(300)
    assert [Recognition.LATE] == seen
    assert Recognition.OURS is sent.filter_canary()


def test_only_so_many_former_canaries_are_remembered(bench: ProofBench) -> None:
    for number in range(wired.MOST_DISMISSED + 1):
        bench.proof.dismissed(f"uid-{number}")
        bench.proof.dismissed(f"uid-{number}")
    assert Recognition.STRAY is bench.proof.recognise("uid-0", NAMESPACE, CANARY)
    assert Recognition.LATE is bench.proof.recognise("uid-1", NAMESPACE, CANARY)


def test_a_call_that_overtakes_the_answer_to_the_creation_waits_for_it(bench: ProofBench) -> None:
    seen: list[Recognition] = []
    threads: list[threading.Thread] = []

    def ask(raw: Raw) -> None:
        """The pod exists, and we do not know its uid yet."""
        uid = raw["metadata"]["uid"]
        thread = threading.Thread(target=lambda: seen.append(bench.proof.recognise(uid, NAMESPACE, CANARY)))
        thread.start()
        threads.append(thread)

    bench.api.after_create = ask
    bench.step()
    threads[0].join(10)
    assert ([Recognition.OURS], Wiring.WIRED) == (seen, bench.state())


def test_a_condition_that_overtakes_the_answer_to_the_creation_counts(bench: ProofBench) -> None:
    bench.api.after_create = bench.refuse
    bench.step()
    assert Wiring.UNWIRED is bench.state()


# Real pods


def test_a_real_pod_that_lacks_the_resource_is_evidence_at_once(bench: ProofBench) -> None:
    bench.live = LiveSettings(wiring_check_every_seconds=0)
    bench.step()
    bench.show(real_pod(), "ADDED")
    assert Wiring.UNKNOWN is bench.state()
    bench.refuse(real_pod())
    assert Wiring.UNWIRED is bench.state()
    assert "web-0" not in bench.finding.cause
    bench.step(1000)
    assert [] == bench.api.alive


@pytest.mark.parametrize(
    ("scheduler", "uid", "key", "state"),
    [
        (SCHEDULER, "uid-web-0", "ns/web-0", Wiring.WIRED),
        (SCHEDULER, "uid-web-0", "ns/made-up", Wiring.UNKNOWN),
        (SCHEDULER, "made-up", "ns/web-0", Wiring.UNKNOWN),
        ("another", "uid-web-0", "ns/web-0", Wiring.UNKNOWN),
        ("", "uid-web-0", "ns/web-0", Wiring.UNKNOWN),
        (SCHEDULER, "uid-plain", "ns/plain", Wiring.UNKNOWN),
    ],
)
def test_a_filter_call_about_a_real_pod_is_evidence_unless_it_is_made_up_or_comes_anyway(
    sent: ProofBench, scheduler: str, uid: str, key: str, state: Wiring
) -> None:
    sent.show(real_pod(), "ADDED")
    plain = real_pod("plain")  # comes too where the configuration has no managedResources
    plain["spec"] |= {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    sent.show(plain, "ADDED")
    sent.proof.heard(scheduler, uid, key, is_sure=True)
    assert state is sent.state()


@pytest.mark.parametrize(
    ("between", "state"),
    [
        pytest.param(lambda _sent: None, Wiring.WIRED, id="it is placed"),
        pytest.param(lambda sent: sent.refuse(real_pod("web-1")), Wiring.UNWIRED, id="after a scheduler that is not"),
    ],
)
def test_a_call_that_anybody_may_have_made_is_evidence_once_its_pod_is_placed(
    sent: ProofBench, between: Callable[[ProofBench], None], state: Wiring
) -> None:
    placed = real_pod()
    sent.show(placed, "ADDED")
    sent.proof.heard(SCHEDULER, "uid-web-0", "ns/web-0", is_sure=False)
    sent.show({**placed, "status": {"phase": "Pending"}})
    assert Wiring.UNKNOWN is sent.state()
    between(sent)
    placed["spec"] |= {"nodeName": "n1"}
    sent.show(placed)
    assert state is sent.state()


def test_pods_placed_without_a_call_or_by_schedulers_that_are_not_checked_are_no_evidence(sent: ProofBench) -> None:
    bound = with_condition(real_pod(), MESSAGE)
    for raw in (real_pod("asked-nothing"), bound):
        sent.show({**raw, "spec": {**raw["spec"], "nodeName": "n1"}})
    sent.refuse(real_pod("other", scheduler="another"))
    assert Wiring.UNKNOWN is sent.state()


def test_a_pod_that_speaks_against_a_wired_scheduler_brings_a_canary_that_corrects_late_news(asked: ProofBench) -> None:
    asked.step(wired.LEAST_GAP_SECONDS)
    asked.refuse(real_pod())
    assert Wiring.UNWIRED is asked.state()
    asked.step()
    asked.filter_canary()
    assert Wiring.WIRED is asked.state()


def test_the_same_old_condition_of_a_pod_is_evidence_once(sent: ProofBench) -> None:
    sent.refuse(real_pod())
    sent.filter_canary()
    assert Wiring.WIRED is sent.state()
    labelled = with_condition(real_pod(), MESSAGE)
    labelled["metadata"]["resourceVersion"] = "7"
    labelled["spec"]["priority"] = 5
    sent.show(labelled)
    assert Wiring.WIRED is sent.state()


# When canaries go out


def test_a_wired_scheduler_is_looked_at_anew_after_the_interval_and_an_unwired_one_sooner(proven: ProofBench) -> None:
    proven.step(299)
    assert [] == proven.api.canaries()
    proven.step(1)
    proven.refuse(proven.canary())
    proven.step()
    proven.step(wired.UNPROVEN_SECONDS - 1)
    assert [] == proven.api.canaries()
    proven.step(1)
    assert 1 == len(proven.api.canaries())


@pytest.mark.parametrize("sign", ["lease", "pod"])
def test_a_name_gets_a_canary_and_a_finding_once_its_lease_or_a_pod_of_it_is_seen(sign: str) -> None:
    """So ours may stand in the list before it is installed."""
    bench = ProofBench(SECOND_SCHEDULER)
    for _ in range(2):
        bench.step(wired.LEAST_GAP_SECONDS)
    assert ([], []) == (bench.api.canaries(), bench.proof.findings())
    if sign == "lease":
        bench.proof.runs(SECOND_SCHEDULER)
    else:
        bench.show(real_pod(scheduler=SECOND_SCHEDULER), "ADDED")
    bench.step()
    assert SECOND_SCHEDULER == bench.canary()["spec"]["schedulerName"]
    bench.term = 2
    bench.step()
    assert [SECOND_SCHEDULER] == [finding.scheduler for finding in bench.proof.findings()], "a new term knows it, too"


def test_a_follower_sends_no_canary_and_knows_nothing(proven: ProofBench) -> None:
    proven.step(300)
    assert 1 == len(proven.api.canaries())
    proven.term = None
    proven.step()
    proven.proof.heard(SCHEDULER, "uid-web-0", "ns/web-0", is_sure=True)
    proven.refuse(real_pod())
    proven.step(1000)
    assert ([], []) == (proven.api.canaries(), proven.proof.findings())
    proven.term = 2
    proven.step()
    assert (Wiring.UNKNOWN, 1) == (proven.state(), len(proven.api.canaries())), "nor of the term before"


def test_what_a_dead_leader_left_is_removed_first_and_calls_about_it_are_late(bench: ProofBench) -> None:
    for scheduler in (SCHEDULER, "no-longer-named"):
        bench.api.create(PODS, NAMESPACE, canary_body(scheduler, NAMESPACE, {"uid": "u"}))
    bench.api.alive.clear()
    left = bench.api.get(PODS, NAMESPACE, CANARY)["metadata"]["uid"]
    assert Recognition.STRAY is bench.proof.recognise(left, NAMESPACE, CANARY)
    bench.step()
    assert Recognition.LATE is bench.proof.recognise(left, NAMESPACE, CANARY)
    assert ([1], SCHEDULER) == (bench.api.alive, bench.canary()["spec"]["schedulerName"])
    assert left != bench.canary()["metadata"]["uid"]


def test_a_canary_of_which_the_leader_does_not_know_makes_place_for_its_own(bench: ProofBench) -> None:
    """Its creation was answered by an error, and came about all the same."""

    def lose(_raw: Raw) -> None:
        bench.api.after_create = lambda _raw: None
        raise UnavailableError("the answer was lost")

    bench.api.after_create = lose
    bench.step()
    assert (1, 1) == (len(bench.api.canaries()), bench.prover.outcomes["failed"])
    bench.step(4)
    assert Recognition.OURS is bench.filter_canary()
    assert 1 == max(bench.api.alive)


def test_a_pod_of_the_canarys_name_that_is_not_ours_is_left_alone_and_told(bench: ProofBench) -> None:
    bench.api.create(PODS, NAMESPACE, {"metadata": {"name": CANARY}, "spec": {}})
    bench.step()
    assert "not a canary of this leader" in bench.finding.cause
    assert not bench.api.get(PODS, NAMESPACE, CANARY)["metadata"].get("labels")


def test_a_creation_that_is_refused_is_told_and_tried_again_ever_later(bench: ProofBench) -> None:
    tries: list[float] = []

    def refuse(verb: str, resource: resources.Resource) -> None:
        if (verb, resource) == ("create", PODS):
            tries.append(bench.clock.now())
            raise ClusterError("403: exceeded quota")

    bench.api.fail = refuse
    for _ in range(2000):
        bench.step(0.25)
    assert "exceeded quota" in bench.finding.cause
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert [4.0, 8.0, 16.0, 32.0, 60.0] == pauses[:5]
    assert {60.0} == set(pauses[5:])
    assert 1 == len(bench.told)


def test_a_deletion_that_fails_is_tried_until_it_works_and_nothing_is_sent_meanwhile(asked: ProofBench) -> None:
    asked.api.fail_with(UnavailableError("503: later"), "delete", about=PODS)
    for _ in range(400):
        asked.step(1)
    assert (Wiring.WIRED, 1, 1) == (asked.state(), len(asked.api.canaries()), len(asked.api.alive))
    asked.api.work()
    asked.step(1)
    assert 1 == max(asked.api.alive)


def test_a_leader_that_lost_its_lease_on_the_way_creates_nothing(bench: ProofBench) -> None:
    def lose(verb: str, resource: resources.Resource) -> None:
        if (verb, resource) == ("get", LEASES):
            bench.term = None

    bench.api.fail = lose
    bench.step()
    assert [] == bench.api.alive


# The thread, and the words


def test_its_thread_works_by_itself_and_leaves_nothing_behind(bench: ProofBench) -> None:
    bench.prover.start()
    try:
        wait_until(lambda: len(bench.api.canaries()) == 1)
        wait_until(lambda: bench.filter_canary() is Recognition.OURS)
        wait_until(lambda: not bench.api.canaries())
        bench.clock.advance(300)
        wait_until(lambda: len(bench.api.canaries()) == 1)
    finally:
        bench.prover.stop()
    assert [] == bench.api.canaries()


def test_the_status_page_shows_state_cause_and_since_when(asked: ProofBench) -> None:
    asked.clock.advance(7)
    shown = {"state": "wired", "cause": wired.ASKED_ABOUT_CANARY, "since_seconds": 7.0}
    assert {SCHEDULER: shown} == asked.proof.status()


@pytest.mark.parametrize("lease", [LEASE, "gone"])
def test_events_are_about_our_lease_with_its_uid_if_it_can_be_read(bench: ProofBench, lease: str) -> None:
    uid = bench.api.get(LEASES, NAMESPACE, LEASE)["metadata"]["uid"] if lease == LEASE else ""
    recorder = Recorder(bench.api, bench.clock, component="t", instance="t")
    LeaseEvents(bench.api, recorder, NAMESPACE, lease).tell("SchedulerNotWired", "text", True)
    while recorder.run_once() is not None:
        bench.clock.advance(0.1)
    (event,) = bench.api.list_page(EVENTS).items
    about = event["involvedObject"]
    assert ("Lease", lease, uid, "Warning") == (about["kind"], about["name"], about.get("uid", ""), event["type"])
