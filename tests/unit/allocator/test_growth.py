"""Reviews of growth: which volumes are checked, states that are waited for, and what a person reads.

tests/scenarios/growth.txt tells how it is admitted, held and shown, and of new leaders; tests/longhorn_rules has all
states; test_growths.py tells of what is held; test_growth_room.py, of the room.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import Caller, GrowthOutcome, GrowthRequest, GrowthVerdict, places_to_come
from controller.errors import CallerGoneError
from controller.model.versions import Behaviour
from controller.model.workload import PersistentVolume
from controller.rules.reasons import Reason
from tests.fakes.builders import EPOCH, GIB, TestCluster, disk, node
from tests.fakes.rooms import OPEN
from tests.unit.allocator.growing import Growing

ADMITTED, REFUSED, NOT_CHECKED = GrowthVerdict.ADMITTED, GrowthVerdict.REFUSED, GrowthVerdict.NOT_CHECKED


def told(outcome: GrowthOutcome) -> tuple[GrowthVerdict, list[Reason]]:
    return outcome.verdict, [entry.rejection.reason for entry in outcome.obstacles]


def test_nothing_is_checked_while_switched_off_or_for_others() -> None:
    stage = Growing()
    stage.add("a", 100)
    assert NOT_CHECKED is stage.ask_volume("other", 100).verdict
    stage.world.put_pv("foreign", PersistentVolume("foreign", "other.csi", "x", "", "", GIB, EPOCH))
    assert NOT_CHECKED is stage.expansions.hold(GrowthRequest("foreign", 2 * GIB, "ns", "c")).verdict
    stage.is_active = False
    assert NOT_CHECKED is stage.ask("a", 10_000).verdict


@pytest.mark.parametrize(
    ("request_for", "kind"),
    [(GrowthRequest("x", GIB, "ns", "c"), "pv"), (GrowthRequest("x", GIB), "volume")],
    ids=["a claim", "a volume"],
)
def test_what_the_stores_lack_is_named(request_for: GrowthRequest, kind: str) -> None:
    found = Growing().expansions.missing(request_for)
    assert found is not None and (kind, "x") == (found.kind, found.name)


def test_nothing_is_worked_out_for_a_caller_that_has_gone() -> None:
    stage = Growing()
    stage.add("a", 100)
    with pytest.raises(CallerGoneError):
        stage.ask("a", 200, caller=Caller(has_left=True))
    assert {} == stage.grown()


def in_state(**state: Any) -> tuple[Growing, str]:
    """A volume of 100 GiB in that state, with one replica placed and one not."""
    stage = Growing()
    name = stage.add("a", 100)
    stage.place(name, "", 100, number=2)
    stage.grow_volume(name, 100, **{"state": "detached", **state})
    return stage, name


@pytest.mark.parametrize(
    ("state", "reason", "of_volume"),
    [
        ({"clone_state": "initiated"}, Reason.CLONING, REFUSED),
        ({"state": "detaching"}, Reason.IN_TRANSITION, ADMITTED),
    ],
    ids=["its webhook refuses", "only its CSI service waits"],
)
def test_what_longhorn_does_not_grow_yet_is_held_for_a_claim_and_its_volume_fares_as_with_longhorn(
    state: dict[str, Any], reason: Reason, of_volume: GrowthVerdict
) -> None:
    stage, name = in_state(**state)
    answer = stage.ask_volume(name, 200, dry_run=True)
    assert (of_volume, [reason] if of_volume is REFUSED else []) == told(answer)
    assert of_volume is ADMITTED or 100 * GIB == answer.largest_bytes

    assert (ADMITTED, [reason]) == told(stage.ask("a", 200))
    assert {"a": ("HELD", 100)} == stage.grown()
    stage.grow_claim("a", 200)
    assert {"a": ("ASKED", 100)} == stage.grown()
    assert () == stage.ask("a", 200).obstacles  # granted already


def test_a_volume_that_never_grows_is_refused_with_its_state() -> None:
    stage, name = in_state(data_source="vol://src", clone_state="failed")
    for refused in (stage.ask("a", 200), stage.ask_volume(name, 200)):
        assert ((REFUSED, [Reason.CLONE_FAILED]), 100 * GIB) == (told(refused), refused.largest_bytes)
        assert [("", 0)] == [(entry.node, entry.missing_bytes) for entry in refused.obstacles]


def test_a_state_that_passes_hides_no_want_of_room() -> None:
    stage, _ = in_state(restore_required=True)
    refused = stage.ask("a", 500)
    assert ((REFUSED, [Reason.INSUFFICIENT_STORAGE]), 400 * GIB) == (told(refused), refused.largest_bytes)


def test_a_disk_that_is_not_ready_is_waited_for_while_it_has_figures() -> None:
    stage = Growing()
    stage.add("a", 100)
    stage.put_node(node("n1", replace(disk("d1", 400), ready=False)))
    answer = stage.ask("a", 200)
    assert (ADMITTED, [Reason.DISK_NOT_READY]) == told(answer)
    assert [("n1", "d1")] == [(entry.node, entry.disk) for entry in answer.obstacles]
    assert {"a": ("HELD", 100)} == stage.grown()


def test_before_1_11_3_a_volume_without_any_placed_replica_is_waited_for() -> None:
    """The gate looks at its unplaced replicas too."""
    stage = Growing(replace(OPEN, behaviour=Behaviour(expansion_needs_all_placed=True)))
    stage.add("a", 100, on="")
    assert (ADMITTED, [Reason.NOT_SCHEDULED]) == told(stage.ask("a", 200))


def test_answers_are_counted_and_those_to_dry_runs_are_not() -> None:
    stage = Growing()
    stage.add("a", 100)
    for dry_run, counted in ((True, {}), (False, {"expansions_admitted": 1, "expansions_refused": 1})):
        assert ADMITTED is stage.ask("a", 300, dry_run=dry_run).verdict
        assert REFUSED is stage.ask("a", 401, dry_run=dry_run).verdict
        assert counted == stage.journal.counters
    stage.expansions.begin_term_locked(has_predecessor=True)
    assert (GrowthVerdict.TRY_AGAIN, [Reason.LEADER_CHANGED]) == told(stage.ask("a", 301))
    assert 1 == stage.journal.counters["expansions_put_off"]


def test_growth_of_a_claim_is_that_of_the_volume_that_its_pv_names() -> None:
    stage = Growing()
    stage.add_by_hand(claim_gib=10, pv_gib=10, volume_gib=10)
    outcome = stage.ask("hand", 499.999)
    assert ("lhv", 500 * GIB, 400 * GIB) == (outcome.volume, outcome.size_bytes, outcome.largest_bytes)
    assert ADMITTED is stage.ask("hand", 400).verdict
    assert {"hand": ("HELD", 390)} == stage.grown()


def test_a_volume_without_a_claim_grows_on_its_own() -> None:
    stage = Growing()
    stage.grow_volume("lhv", 10, locality="disabled")
    stage.place("lhv", "n1", 10)
    assert REFUSED is stage.ask_volume("lhv", 401).verdict
    assert ADMITTED is stage.ask_volume("lhv", 400).verdict
    assert {"lhv": ("HELD", 390)} == stage.grown()


def test_what_is_held_for_a_pod_is_as_large_as_its_claim_asks_for_whether_we_were_asked_or_not() -> None:
    cluster = TestCluster(settings=OPEN).add_nodes(n1=400, n2=400)
    cluster.add_pod("a", "a")
    name = cluster.provision("a")
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
    cluster.set_claim(replace(cluster.claims["a"], requested_bytes=300 * GIB))
    assert {300 * GIB} == {place.size_bytes for place in places_to_come(cluster.allocator._table, name)}
    assert set() == cluster.ask("b", 200, "n1", "n2")


def test_who_leaves_tells_whether_an_expansion_is_under_way_that_nobody_sees() -> None:
    cluster = TestCluster(settings=OPEN).add_nodes(n1=400)
    request, allocator = GrowthRequest(cluster.add_volume("a", 100), 300 * GIB, "ns", "a"), cluster.allocator
    assert not allocator.has_unseen_growth()

    assert ADMITTED is allocator.expansions.hold(request).verdict
    assert allocator.has_unseen_growth()
    allocator.end_term()
    assert allocator.has_unseen_growth()
    allocator.begin_term()
    assert allocator.has_unseen_growth()  # what the one before has admitted may still come
    cluster.clock.advance(75)
    assert not allocator.has_unseen_growth()

    allocator.set_mode(Mode.BYPASS)
    assert NOT_CHECKED is allocator.expansions.hold(request).verdict  # so it may come unchecked
    assert allocator.has_unseen_growth()


def test_bytes_that_were_granted_to_other_expansions_are_told() -> None:
    stage = Growing()
    stage.add("a", 100)
    stage.add("b", 100)
    assert "expansions" not in stage.ask("b", 401).obstacles[0].rejection.message
    stage.ask("a", 250)
    stage.ask("b", 101)
    refused = stage.ask("b", 200)
    assert (REFUSED, [Reason.INSUFFICIENT_STORAGE]) == told(refused)
    assert refused.obstacles[0].rejection.message.endswith("; 150 GiB of what is scheduled are for other expansions")
