"""The reconciler of the webhook configurations, step by step, on an API server in memory."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from controller.admission.configurations import (
    CLAIMS,
    GROWTH_CHECK,
    MARKED_PODS,
    PODS,
    SHARE_MANAGERS,
    VOLUMES,
    WantedEntries,
    WebhookPlace,
)
from controller.admission.plan import AdmissionPlan
from controller.admission.reconciler import (
    CONTESTED,
    LABELS,
    LOOK_SECONDS,
    PEACE_SECONDS,
    PRODUCT,
    REPAIR_SECONDS,
    SCHEDULERS_ANNOTATION,
    Contents,
    Reconciler,
    contents_of,
)
from controller.errors import ClusterError, ConflictError, UnavailableError
from controller.kube.recorder import Target
from controller.kube.resources import MUTATING_WEBHOOKS, OUR_CONFIGURATIONS, VALIDATING_WEBHOOKS, Resource
from controller.kube.store import Store
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

PLACE = WebhookPlace("longhorn-system", "longhorn-scheduler-webhook")
ALL = WantedEntries(("default-scheduler",), share_managers=True, expansion="allow")
BOTH = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
NAME, FORMER_NAME = "zz-longhorn-scheduler-extender", "longhorn-scheduler-extender"  # of the mutating one


class ReconcilerRig:
    """A reconciler whose stores show the server's objects at each step, unless they are frozen."""

    def __init__(self) -> None:
        self.server, self.clock = FakeApiServer(), VirtualClock()
        self.wanted = ALL
        self.authorities = b"PEM"
        self.opening: int | None = 1
        self.is_frozen = False
        self.stores: dict[Resource, Store[Contents]] = {each: Store(each.kind, contents_of) for each in BOTH}
        self.told: list[tuple[str, str]] = []
        for resource in BOTH:
            self.stores[resource].synced.set()
            self.apply(resource)
        self.asked: list[tuple[frozenset[str], float]] = []
        self.reconciler = Reconciler(
            self.server,
            self.clock,
            self.stores,
            PLACE,
            self,
            decide=self.decide,
            authorities=lambda: self.authorities,
            opening=lambda: self.opening,
            ended=lambda: None,
        )

    def note(self, target: Target, _reason: str, message: str, *, is_warning: bool = False) -> None:
        assert is_warning
        self.told.append((target.kind, message))

    # What a test does

    def apply(self, resource: Resource) -> None:
        """The object as the manifest makes it."""
        name = OUR_CONFIGURATIONS[resource]
        self.server.put(resource, None, {"metadata": {"name": name, "labels": dict(LABELS)}, "webhooks": []})

    def decide(self, opted_in: frozenset[str], leading_seconds: float) -> AdmissionPlan | None:
        self.asked.append((opted_in, leading_seconds))
        return AdmissionPlan(self.wanted, {})

    def see(self) -> None:
        """The watches tell of everything, unless they are frozen."""
        if not self.is_frozen:
            for resource, store in self.stores.items():
                store.replace(raw for (path, _, _), raw in self.server.objects.items() if path == resource.path())

    def is_pod_rule_out(self) -> bool:
        self.see()
        return self.reconciler.is_pod_rule_out()

    def step(self, times: int = 1, every: float = 0.0) -> None:
        for _ in range(times):
            self.see()
            self.reconciler.step()
            self.clock.advance(every)

    def quarrel(self, times: int, every: float, **metadata: object) -> None:
        """Somebody takes our entries away, again and again."""
        for _ in range(times):
            self.server.patch(MUTATING_WEBHOOKS, None, NAME, {"webhooks": [], "metadata": metadata})
            self.step(every=every)

    def raw(self, resource: Resource = MUTATING_WEBHOOKS) -> dict[str, Any]:
        return self.server.objects[resource.path(), "", OUR_CONFIGURATIONS[resource]]

    def entries(self, resource: Resource = MUTATING_WEBHOOKS) -> list[str]:
        return [entry["name"] for entry in self.raw(resource)["webhooks"]]

    def writes(self) -> int:
        return self.reconciler.writes


@pytest.fixture
def rig() -> ReconcilerRig:
    return ReconcilerRig()


@pytest.fixture
def written(rig: ReconcilerRig) -> ReconcilerRig:
    """One that has written what is wanted."""
    rig.step()
    return rig


def test_what_is_wanted_is_written_and_then_left_alone(written: ReconcilerRig) -> None:
    assert [PODS, MARKED_PODS, SHARE_MANAGERS] == written.entries()
    assert [CLAIMS, VOLUMES, GROWTH_CHECK] == written.entries(VALIDATING_WEBHOOKS)
    written.step(5)
    assert 2 == written.writes()


def test_a_follower_a_process_that_has_not_seen_them_and_a_term_that_ends_before_the_write_write_nothing(
    rig: ReconcilerRig,
) -> None:
    def lose(verb: str, _: Resource) -> None:
        if verb == "get":
            rig.opening = None

    rig.opening = None
    rig.step()
    rig.opening = 1
    rig.stores[VALIDATING_WEBHOOKS].synced.clear()
    rig.step()
    assert (0, []) == (rig.writes(), rig.asked)
    rig.stores[VALIDATING_WEBHOOKS].synced.set()
    rig.server.fail = lose
    rig.step()
    assert [] == rig.entries() + rig.entries(VALIDATING_WEBHOOKS)


def test_the_rule_leaves_at_once_and_the_object_stays(written: ReconcilerRig) -> None:
    assert not written.is_pod_rule_out()
    written.wanted = WantedEntries(expansion="allow")
    written.step()
    assert [] == written.entries()
    assert written.is_pod_rule_out()
    written.wanted = ALL
    written.step()
    assert PODS in written.entries()
    assert 0 == written.reconciler.repairs


def test_without_entries_or_authorities_nothing_is_written_and_new_authorities_are(rig: ReconcilerRig) -> None:
    for wanted, authorities, writes in ((WantedEntries(), b"PEM", 0), (ALL, b"", 0), (ALL, b"PEM", 2), (ALL, b"", 2)):
        rig.wanted, rig.authorities = wanted, authorities
        rig.step()
        assert writes == rig.writes()
    rig.authorities = b"NEW"
    rig.step()
    bundles = {entry["clientConfig"]["caBundle"] for entry in rig.raw(VALIDATING_WEBHOOKS)["webhooks"]}
    assert ({base64.b64encode(b"NEW").decode()}, 4) == (bundles, rig.writes())


def test_the_rule_says_whose_pods_it_stands_for(rig: ReconcilerRig) -> None:
    rig.wanted = WantedEntries(("a", "b"))
    rig.step()
    assert "a,b" == rig.raw()["metadata"]["annotations"][SCHEDULERS_ANNOTATION]
    rig.clock.advance(7)
    rig.step()
    rig.wanted, rig.opening = WantedEntries(), 2
    rig.step()
    asked = [(frozenset(), 0.0), (frozenset({"a", "b"}), 7.0), (frozenset({"a", "b"}), 0.0)]
    assert asked == rig.asked  # the seconds of each term
    assert {} == rig.raw()["metadata"]["annotations"]


def test_strangers_changes_are_undone_and_their_metadata_is_kept(written: ReconcilerRig) -> None:
    written.opening = 2
    written.step()  # a new leader finds all as it is wanted
    written.quarrel(1, 0, labels={"theirs": "1", "app.kubernetes.io/name": "other"})
    assert [PODS, MARKED_PODS, SHARE_MANAGERS] == written.entries()
    labels = written.raw()["metadata"]["labels"]
    assert ("1", PRODUCT) == (labels["theirs"], labels["app.kubernetes.io/name"])
    assert 1 == written.reconciler.repairs


def test_a_deleted_configuration_is_told_of_never_made_and_filled_once_the_manifest_brings_it_back(
    written: ReconcilerRig,
) -> None:
    name = OUR_CONFIGURATIONS[VALIDATING_WEBHOOKS]
    written.server.delete(VALIDATING_WEBHOOKS, None, name)
    written.step(20, every=1)
    assert name not in [raw["metadata"]["name"] for raw in written.server.list_page(VALIDATING_WEBHOOKS).items]
    (problem,) = written.reconciler.problems
    assert f"{name} does not exist" in problem
    written.apply(VALIDATING_WEBHOOKS)
    written.step()
    assert ([CLAIMS, VOLUMES, GROWTH_CHECK], ()) == (written.entries(VALIDATING_WEBHOOKS), written.reconciler.problems)


def test_two_writers_that_disagree_do_not_run_hot(written: ReconcilerRig) -> None:
    seconds = 1200
    written.quarrel(seconds, 1.0)
    repairs = written.reconciler.repairs
    assert 10 + (seconds - 511) // 300 == repairs  # after 1, 2, 4, ... 256 s, then every 300 s
    assert [MUTATING_WEBHOOKS.kind] * (repairs - CONTESTED + 1) == [kind for kind, _ in written.told]
    assert "repaired 3 times" in written.told[0][1]


def test_no_quarrel_delays_a_rule_that_has_to_leave(written: ReconcilerRig) -> None:
    written.quarrel(6, REPAIR_SECONDS[1])
    written.wanted = WantedEntries(share_managers=True)
    written.step()
    assert [SHARE_MANAGERS] == written.entries()


def test_after_a_peace_the_next_repair_comes_at_once(written: ReconcilerRig) -> None:
    written.quarrel(4, REPAIR_SECONDS[1])
    written.step(every=PEACE_SECONDS)
    written.step()
    repaired = written.reconciler.repairs
    written.told.clear()
    written.quarrel(2, REPAIR_SECONDS[0])
    assert (repaired + 2, []) == (written.reconciler.repairs, written.told)


def test_an_event_names_who_keeps_changing_it(written: ReconcilerRig) -> None:
    fields = [{"manager": PRODUCT, "time": "2"}, {"manager": "gitops", "time": "1"}]
    written.quarrel(CONTESTED + 1, REPAIR_SECONDS[1], managedFields=fields)
    assert "'gitops'" in written.told[-1][1]


def test_while_the_watch_lags_the_object_is_read_now_and_then(rig: ReconcilerRig) -> None:
    rig.see()
    rig.is_frozen = True
    reads = []
    rig.server.fail = lambda verb, resource: reads.append(resource) if verb == "get" else None
    rig.step(4 * int(LOOK_SECONDS), every=0.5)
    assert 2 == rig.writes()
    assert 2 * 3 == len(reads)  # before the write, right after it, and once more


def test_a_write_that_meets_another_version_is_tried_again(written: ReconcilerRig) -> None:
    written.wanted = WantedEntries(share_managers=True)
    written.server.fail_with(ConflictError("409"), "replace", times=2)
    written.step()
    assert [SHARE_MANAGERS] == written.entries()


def test_an_api_server_that_is_away_is_asked_again_ever_more_rarely(rig: ReconcilerRig) -> None:
    calls = []

    def away(verb: str, _: Resource) -> None:
        calls.append(verb)
        raise UnavailableError("503")

    rig.server.fail = away
    rig.step(120, every=0.5)
    assert 2 * 6 == len(calls)  # after 0, 1, 3, 7, 15 and 31 s
    assert ("503", "503") == rig.reconciler.problems
    rig.server.work()
    rig.clock.advance(30)
    rig.step()
    assert [] == list(rig.reconciler.problems)
    assert 2 == rig.writes()


def test_a_rule_that_has_to_leave_does_not_wait_for_another_wish_that_failed(written: ReconcilerRig) -> None:
    written.authorities = b"not taken"

    def refuse(verb: str, _: Resource) -> None:
        if verb == "replace" and written.wanted == ALL:
            raise ClusterError("422")

    written.server.fail = refuse
    written.step(60, every=0.5)
    written.wanted = WantedEntries(expansion="allow")
    written.step()
    assert [] == written.entries()


def of_an_earlier_release(rig: ReconcilerRig) -> None:
    """The mutating configuration that such a one left."""
    rig.step()
    raw = rig.raw()
    rig.apply(MUTATING_WEBHOOKS)
    rig.server.create(MUTATING_WEBHOOKS, None, {**raw, "metadata": {**raw["metadata"], "name": FORMER_NAME}})
    rig.asked.clear()


def mutating_names(rig: ReconcilerRig) -> set[str]:
    return {name for path, _, name in rig.server.objects if path == MUTATING_WEBHOOKS.path()}


@pytest.mark.parametrize(
    "neighbour",
    ["yunikorn-admission-controller-mutations", "stork-webhooks-cfg", "volcano-admission-service-pods-mutate"],
)
def test_the_mutating_configuration_comes_after_those_that_choose_a_scheduler(neighbour: str) -> None:
    assert neighbour < OUR_CONFIGURATIONS[MUTATING_WEBHOOKS]


def test_former_names_are_removed(rig: ReconcilerRig) -> None:
    of_an_earlier_release(rig)
    rig.server.create(MUTATING_WEBHOOKS, None, {"metadata": {"name": "strangers"}})
    rig.step()
    assert {NAME, "strangers"} == mutating_names(rig)
    assert [CLAIMS, VOLUMES, GROWTH_CHECK] == rig.entries(VALIDATING_WEBHOOKS), "it bears that name by right"


def test_a_former_rule_stands_until_the_new_one_does(rig: ReconcilerRig) -> None:
    of_an_earlier_release(rig)
    rig.authorities = b""  # not known yet: those that the former one stands with
    rig.server.fail_with(UnavailableError("503"), "replace")
    rig.step()
    assert FORMER_NAME in mutating_names(rig)
    assert frozenset({"default-scheduler"}) == rig.asked[-1][0], "what stands, as the decision sees it"
    rig.server.work()
    rig.clock.advance(1.0)
    rig.step()
    assert {NAME} == mutating_names(rig)
    assert PODS in rig.entries()


def test_a_former_rule_stands_while_a_repair_waits_for_its_time(rig: ReconcilerRig) -> None:
    for _ in range(2):
        of_an_earlier_release(rig)
        rig.step()
    assert FORMER_NAME in mutating_names(rig), "the second repair comes later"
    assert not rig.is_pod_rule_out()
    rig.clock.advance(REPAIR_SECONDS[0])
    rig.step()
    assert {NAME} == mutating_names(rig)


def test_the_pod_rule_is_not_out_while_a_former_one_stands(rig: ReconcilerRig) -> None:
    of_an_earlier_release(rig)
    assert not rig.is_pod_rule_out()
    rig.wanted = WantedEntries()
    rig.step()
    assert rig.is_pod_rule_out()
    assert {NAME} == mutating_names(rig)
