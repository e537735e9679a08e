"""The reconciler of the webhook configurations, step by step, on an API server in memory."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from controller.admission.configurations import CLAIMS, MARKED_PODS, PODS, SHARE_MANAGERS, VOLUMES, Place, Wanted
from controller.admission.plan import Decision
from controller.admission.reconciler import (
    CONTESTED,
    LOOK_SECONDS,
    PEACE_SECONDS,
    PRODUCT,
    REPAIR_SECONDS,
    SCHEDULERS_ANNOTATION,
    Admission,
    Standing,
    standing_of,
)
from controller.admission.removal import remove_webhooks
from controller.errors import ClusterError, ConflictError, UnavailableError
from controller.kube.resources import MUTATING_WEBHOOKS, OUR_CONFIGURATIONS, VALIDATING_WEBHOOKS, Resource
from controller.process.worker import Worker
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

PLACE = Place("longhorn-system", "longhorn-scheduler-webhook")
ALL = Wanted(("default-scheduler",), share_managers=True, expansion="allow")
BOTH = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
NAME, FORMER_NAME = "zz-longhorn-scheduler-extender", "longhorn-scheduler-extender"  # of the mutating one


class Rig:
    """A reconciler whose watches show the server's objects at once, unless they are frozen."""

    def __init__(self) -> None:
        self.server, self.clock = FakeApiServer(), VirtualClock()
        self.wanted = ALL
        self.authorities = b"PEM"
        self.opening: int | None = 1
        self.frozen: dict[Resource, Standing | None] | None = None
        self.synced = True
        self.told: list[tuple[str, str]] = []
        self.asked: list[tuple[frozenset[str], float]] = []
        self.admission = Admission(
            self.server,
            self.clock,
            self,
            PLACE,
            self.decide,
            lambda: self.authorities,
            lambda: self.opening,
            lambda resource, uid, reason, text: self.told.append((resource.kind, text)),
        )

    # As the watches

    workers: Sequence[Worker] = ()

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def is_synced(self, resource: Resource) -> bool:
        return self.synced

    def standing(self, resource: Resource) -> Standing | None:
        if self.frozen is not None:
            return self.frozen[resource]
        raw = self.raw(resource)
        return standing_of(raw) if raw is not None else None

    def former(self, resource: Resource) -> Mapping[str, Standing]:
        raw = self.server.objects.get((MUTATING_WEBHOOKS.path(), "", FORMER_NAME))
        return {FORMER_NAME: standing_of(raw)} if raw is not None and resource is MUTATING_WEBHOOKS else {}

    # What a test does

    def decide(self, standing: frozenset[str], leading_seconds: float) -> Decision | None:
        self.asked.append((standing, leading_seconds))
        return Decision(self.wanted, {})

    def freeze(self) -> None:
        self.frozen = {resource: self.standing(resource) for resource in BOTH}

    def raw(self, resource: Resource) -> dict[str, Any] | None:
        return self.server.objects.get((resource.path(), "", OUR_CONFIGURATIONS[resource]))

    def entries(self, resource: Resource) -> list[str]:
        raw = self.raw(resource)
        return [entry["name"] for entry in raw["webhooks"]] if raw is not None else []

    def spoil(self, **metadata: object) -> None:
        """Somebody takes our entries away."""
        body: dict[str, Any] = {"webhooks": []}
        if metadata:
            body["metadata"] = metadata
        self.server.patch(MUTATING_WEBHOOKS, None, NAME, body)

    def writes(self) -> int:
        return self.admission.counts.writes


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_is_wanted_is_written_and_then_left_alone(rig: Rig) -> None:
    rig.admission.step()
    assert [PODS, MARKED_PODS, SHARE_MANAGERS] == rig.entries(MUTATING_WEBHOOKS)
    assert [CLAIMS, VOLUMES] == rig.entries(VALIDATING_WEBHOOKS)
    for _ in range(5):
        rig.admission.step()
    assert 2 == rig.writes()


def test_a_follower_and_a_process_that_has_not_seen_them_write_nothing(rig: Rig) -> None:
    rig.opening = None
    rig.admission.step()
    rig.opening, rig.synced = 1, False
    rig.admission.step()
    assert (0, []) == (rig.writes(), rig.asked)


def test_a_term_that_ends_before_the_write_writes_nothing(rig: Rig) -> None:
    def lose(verb: str, _: Resource) -> None:
        if verb == "get":
            rig.opening = None

    rig.server.fail = lose
    rig.admission.step()
    assert [] == rig.entries(MUTATING_WEBHOOKS)


def test_the_rule_leaves_at_once_and_the_object_stays(rig: Rig) -> None:
    rig.admission.step()
    assert not rig.admission.is_pod_rule_out()
    rig.wanted = Wanted(expansion="allow")
    rig.admission.step()
    assert [] == rig.entries(MUTATING_WEBHOOKS)
    assert rig.admission.is_pod_rule_out()
    rig.wanted = ALL
    rig.admission.step()
    assert PODS in rig.entries(MUTATING_WEBHOOKS)
    assert 0 == rig.admission.counts.repairs


def test_no_object_is_made_only_to_be_empty(rig: Rig) -> None:
    rig.wanted = Wanted()
    rig.admission.step()
    assert (None, None, 0) == (rig.raw(MUTATING_WEBHOOKS), rig.raw(VALIDATING_WEBHOOKS), rig.writes())
    rig.wanted, rig.authorities = ALL, b""
    rig.admission.step()
    assert 0 == rig.writes()


def test_new_authorities_are_written_and_unknown_ones_change_nothing(rig: Rig) -> None:
    rig.admission.step()
    rig.authorities = b""
    rig.admission.step()
    assert 2 == rig.writes()
    rig.authorities = b"NEW"
    rig.admission.step()
    raw = rig.raw(VALIDATING_WEBHOOKS)
    assert raw is not None
    bundles = {entry["clientConfig"]["caBundle"] for entry in raw["webhooks"]}
    assert ({base64.b64encode(b"NEW").decode()}, 4) == (bundles, rig.writes())


def test_the_rule_says_whose_pods_it_stands_for(rig: Rig) -> None:
    rig.wanted = Wanted(("a", "b"))
    rig.admission.step()
    raw = rig.raw(MUTATING_WEBHOOKS)
    assert raw is not None
    assert "a,b" == raw["metadata"]["annotations"][SCHEDULERS_ANNOTATION]
    rig.clock.advance(7)
    rig.admission.step()
    assert [(frozenset(), 0.0), (frozenset({"a", "b"}), 7.0)] == rig.asked
    rig.wanted = Wanted()
    rig.admission.step()
    raw = rig.raw(MUTATING_WEBHOOKS)
    assert raw is not None
    assert {} == raw["metadata"]["annotations"]


def test_a_new_term_counts_its_seconds_anew(rig: Rig) -> None:
    rig.admission.step()
    rig.clock.advance(9)
    rig.opening = 2
    rig.admission.step()
    assert 0.0 == rig.asked[-1][1]


def test_strangers_changes_are_undone_and_their_metadata_is_kept(rig: Rig) -> None:
    rig.admission.step()
    rig.spoil(labels={"theirs": "1", "app.kubernetes.io/name": "other"})
    rig.admission.step()
    raw = rig.raw(MUTATING_WEBHOOKS)
    assert raw is not None
    assert [PODS, MARKED_PODS, SHARE_MANAGERS] == rig.entries(MUTATING_WEBHOOKS)
    assert ("1", PRODUCT) == (raw["metadata"]["labels"]["theirs"], raw["metadata"]["labels"]["app.kubernetes.io/name"])
    assert 1 == rig.admission.counts.repairs


def test_a_deleted_configuration_comes_back(rig: Rig) -> None:
    rig.admission.step()
    rig.server.delete(VALIDATING_WEBHOOKS, None, OUR_CONFIGURATIONS[VALIDATING_WEBHOOKS])
    rig.admission.step()
    assert [CLAIMS, VOLUMES] == rig.entries(VALIDATING_WEBHOOKS)


def test_two_writers_that_disagree_do_not_run_hot(rig: Rig) -> None:
    rig.admission.step()
    minutes = 30
    for _ in range(minutes * 60 * 2):
        rig.spoil()
        rig.admission.step()
        rig.clock.advance(0.5)
    # 1, 2, 4, ... 256 s, then every 300 s
    assert 10 + (minutes * 60 - 511) // 300 == rig.admission.counts.repairs
    assert [MUTATING_WEBHOOKS.kind] * (rig.admission.counts.repairs - CONTESTED + 1) == [kind for kind, _ in rig.told]
    assert "put back 3 times" in rig.told[0][1]


def test_no_quarrel_delays_a_rule_that_has_to_leave(rig: Rig) -> None:
    rig.admission.step()
    for _ in range(6):
        rig.spoil()
        rig.clock.advance(REPAIR_SECONDS[1])
        rig.admission.step()
    rig.wanted = Wanted(share_managers=True)
    rig.admission.step()
    assert [SHARE_MANAGERS] == rig.entries(MUTATING_WEBHOOKS)


def test_after_a_peace_the_next_repair_comes_at_once(rig: Rig) -> None:
    rig.admission.step()
    for _ in range(4):
        rig.spoil()
        rig.clock.advance(REPAIR_SECONDS[1])
        rig.admission.step()
    rig.clock.advance(PEACE_SECONDS)
    rig.admission.step()
    rig.told.clear()
    for _ in range(2):
        rig.spoil()
        rig.admission.step()
        rig.clock.advance(REPAIR_SECONDS[0])
    assert (6, []) == (rig.admission.counts.repairs, rig.told)


def test_an_event_names_who_keeps_changing_it(rig: Rig) -> None:
    rig.admission.step()
    for _ in range(CONTESTED):
        rig.spoil(managedFields=[{"manager": PRODUCT, "time": "2"}, {"manager": "gitops", "time": "1"}])
        rig.clock.advance(REPAIR_SECONDS[1])
        rig.admission.step()
    assert "'gitops'" in rig.told[-1][1]


def test_while_the_watch_lags_the_object_is_read_now_and_then(rig: Rig) -> None:
    rig.freeze()
    reads = []
    rig.server.fail = lambda verb, resource: reads.append(resource) if verb == "get" else None
    for _ in range(4 * int(LOOK_SECONDS)):
        rig.admission.step()
        rig.clock.advance(0.5)
    assert 2 == rig.writes()
    assert 2 * 3 == len(reads)  # before the write, right after it, and once more


def test_a_write_that_meets_another_version_is_tried_again(rig: Rig) -> None:
    rig.admission.step()
    rig.wanted = Wanted(share_managers=True)
    conflicts = [ConflictError("409"), ConflictError("409")]

    def conflict(verb: str, _: Resource) -> None:
        if verb == "replace" and conflicts:
            raise conflicts.pop()

    rig.server.fail = conflict
    rig.admission.step()
    assert [SHARE_MANAGERS] == rig.entries(MUTATING_WEBHOOKS)


def test_an_api_server_that_is_away_is_asked_again_ever_more_rarely(rig: Rig) -> None:
    calls = []

    def away(verb: str, _: Resource) -> None:
        calls.append(verb)
        raise UnavailableError("503")

    rig.server.fail = away
    for _ in range(120):
        rig.admission.step()
        rig.clock.advance(0.5)
    assert 2 * 6 == len(calls)  # after 0, 1, 3, 7, 15 and 31 s
    assert ("503", "503") == rig.admission.problems
    rig.server.fail = lambda _verb, _resource: None
    rig.clock.advance(30)
    rig.admission.step()
    assert [] == list(rig.admission.problems)
    assert 2 == rig.writes()


def test_a_rule_that_has_to_leave_does_not_wait_for_another_wish_that_failed(rig: Rig) -> None:
    rig.admission.step()
    rig.authorities = b"not taken"

    def refuse(verb: str, _: Resource) -> None:
        if verb == "replace" and rig.wanted == ALL:
            raise ClusterError("422")

    rig.server.fail = refuse
    for _ in range(60):
        rig.admission.step()
        rig.clock.advance(0.5)
    rig.wanted = Wanted(expansion="allow")
    rig.admission.step()
    assert [] == rig.entries(MUTATING_WEBHOOKS)


def of_an_earlier_release(rig: Rig) -> None:
    """The mutating configuration that such a one left."""
    rig.admission.step()
    raw = rig.server.objects.pop((MUTATING_WEBHOOKS.path(), "", NAME))
    rig.server.create(MUTATING_WEBHOOKS, None, {**raw, "metadata": {**raw["metadata"], "name": FORMER_NAME}})
    rig.asked.clear()


def mutating_names(rig: Rig) -> set[str]:
    return {name for path, _, name in rig.server.objects if path == MUTATING_WEBHOOKS.path()}


def test_the_mutating_configuration_comes_after_those_that_choose_a_scheduler() -> None:
    neighbours = (
        "yunikorn-admission-controller-mutations",
        "stork-webhooks-cfg",
        "volcano-admission-service-pods-mutate",
    )
    assert max(*neighbours, OUR_CONFIGURATIONS[MUTATING_WEBHOOKS]) == OUR_CONFIGURATIONS[MUTATING_WEBHOOKS]


def test_former_names_are_removed(rig: Rig) -> None:
    of_an_earlier_release(rig)
    rig.server.create(MUTATING_WEBHOOKS, None, {"metadata": {"name": "strangers"}})
    rig.admission.step()
    assert {NAME, "strangers"} == mutating_names(rig)
    assert [CLAIMS, VOLUMES] == rig.entries(VALIDATING_WEBHOOKS), "it bears that name by right"


def test_a_former_rule_stands_until_the_new_one_does(rig: Rig) -> None:
    of_an_earlier_release(rig)
    rig.authorities = b""  # not known yet: those that the former one stands with

    def refuse(verb: str, resource: Resource) -> None:
        if verb == "create" and resource is MUTATING_WEBHOOKS:
            raise UnavailableError("503")

    rig.server.fail = refuse
    rig.admission.step()
    assert {FORMER_NAME} == mutating_names(rig)
    assert frozenset({"default-scheduler"}) == rig.asked[-1][0], "what stands, as the decision sees it"
    rig.server.fail = lambda _verb, _resource: None
    rig.clock.advance(1.0)
    rig.admission.step()
    assert {NAME} == mutating_names(rig)
    assert PODS in rig.entries(MUTATING_WEBHOOKS)


def test_a_former_rule_stands_while_a_repair_waits_for_its_time(rig: Rig) -> None:
    for _ in range(2):
        of_an_earlier_release(rig)
        rig.admission.step()
    assert {FORMER_NAME} == mutating_names(rig), "the second repair comes later"
    assert not rig.admission.is_pod_rule_out()
    rig.clock.advance(REPAIR_SECONDS[0])
    rig.admission.step()
    assert {NAME} == mutating_names(rig)


def test_the_pod_rule_is_not_out_while_a_former_one_stands(rig: Rig) -> None:
    of_an_earlier_release(rig)
    assert not rig.admission.is_pod_rule_out()
    rig.wanted = Wanted()
    rig.admission.step()
    assert rig.admission.is_pod_rule_out()
    assert set() == mutating_names(rig)


class TestRemoval:
    def remove(self, rig: Rig) -> Sequence[str]:
        def pause(seconds: float) -> None:
            rig.clock.advance(seconds)
            rig.admission.step()

        return remove_webhooks(rig.server, rig.clock, "longhorn-system", "settings", pause=pause)

    def config_map(self, rig: Rig) -> dict[str, Any]:
        from controller.kube.resources import CONFIG_MAPS

        return rig.server.objects[CONFIG_MAPS.path(), "longhorn-system", "settings"]

    def install(self, rig: Rig) -> None:
        from controller.kube.resources import CONFIG_MAPS

        data = {"scheduler-extender-enabled": "true", "other": "stays"}
        rig.server.create(CONFIG_MAPS, "longhorn-system", {"metadata": {"name": "settings"}, "data": data})

    def test_it_switches_off_deletes_both_and_sees_that_they_stay_away(self, rig: Rig) -> None:
        self.install(rig)
        rig.admission.step()
        rig.wanted = Wanted()  # as the leader sees the setting
        done = self.remove(rig)
        assert (None, None) == (rig.raw(MUTATING_WEBHOOKS), rig.raw(VALIDATING_WEBHOOKS))
        assert {"scheduler-extender-enabled": "false", "other": "stays"} == self.config_map(rig)["data"]
        assert 3 == len(done)

    def test_it_deletes_what_an_earlier_release_left(self, rig: Rig) -> None:
        self.install(rig)
        of_an_earlier_release(rig)
        rig.opening = None  # nobody leads any more
        self.remove(rig)
        assert set() == mutating_names(rig)

    def test_what_a_late_leader_writes_again_is_deleted_again(self, rig: Rig) -> None:
        self.install(rig)
        rig.admission.step()
        written = rig.writes()

        def forget(verb: str, _: Resource) -> None:
            if rig.writes() > written + 1:
                rig.wanted = Wanted()

        rig.server.fail = forget
        rig.clock.advance(REPAIR_SECONDS[1])
        self.remove(rig)
        assert rig.writes() > written
        assert (None, None) == (rig.raw(MUTATING_WEBHOOKS), rig.raw(VALIDATING_WEBHOOKS))

    def test_it_gives_up_where_somebody_goes_on_writing_them(self, rig: Rig) -> None:
        self.install(rig)

        def pause(seconds: float) -> None:
            rig.clock.advance(seconds)
            rig.server.objects.setdefault(
                (MUTATING_WEBHOOKS.path(), "", NAME), {"metadata": {"name": NAME, "resourceVersion": "1"}}
            )

        with pytest.raises(ClusterError, match="come back"):
            remove_webhooks(rig.server, rig.clock, "longhorn-system", "settings", pause=pause)

    def test_a_setting_of_longhorns_that_overrides_ours_has_to_be_changed_first(self, rig: Rig) -> None:
        from controller.kube.resources import LONGHORN_SETTINGS

        self.install(rig)
        rig.admission.step()
        setting = {"metadata": {"name": "scheduler-extender-enabled"}, "value": "true"}
        rig.server.create(LONGHORN_SETTINGS, "longhorn-system", setting)
        with pytest.raises(ClusterError, match="overrides the ConfigMap"):
            self.remove(rig)
        assert PODS in rig.entries(MUTATING_WEBHOOKS)

    def test_without_a_config_map_there_is_nothing_to_switch_off(self, rig: Rig) -> None:
        assert 1 == len(self.remove_nothing(rig))

    def remove_nothing(self, rig: Rig) -> Sequence[str]:
        rig.wanted = Wanted()
        return self.remove(rig)
