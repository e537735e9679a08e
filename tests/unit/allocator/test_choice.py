"""Which node is chosen for a pod, by what kube-scheduler writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from controller.allocator.plans.choice import choice_of, nodes_named
from controller.allocator.plans.plan import NO_PLACE, NO_PLACES, Hold, Source
from controller.model.workload import Claim, PersistentVolume, Pod
from tests.fakes.builders import DRIVER, EPOCH, LATER, LATEST, claim, pod

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


def answer(*nodes: str, older: frozenset[tuple[str, str]] = frozenset()) -> Hold:
    """Without nodes: whichever is chosen."""
    return Hold("pod-p", Source.FILTER, dict.fromkeys(nodes, NO_PLACE) if nodes else None, NO_PLACES, 0.0, NOW, older)


ANSWER: Final = answer("n1", "n2")


def says(node: str, name: str = "c", **fields: Any) -> Claim:
    return claim(name, selected_node=node, **fields)


def made(created: str = LATER, version: int = 0, name: str = "pv") -> dict[str, PersistentVolume]:
    return {name: PersistentVolume(name, DRIVER, name, "uid-c", "ns/c", 1, created, version)}


NO_PVS: Final[dict[str, PersistentVolume]] = {}


def chosen(
    *claims: Claim, answer: Hold | None = ANSWER, pvs: dict[str, PersistentVolume] | None = None, **pod_fields: Any
) -> str:
    asks: Pod = pod("p", **pod_fields)
    return choice_of(asks, claims, answer, (pvs or NO_PVS).get)


# One signal each


@pytest.mark.parametrize("held", [ANSWER, None, answer("n2")])
def test_the_node_of_a_bound_pod_is_sure_whatever_it_was_offered(held: Hold | None) -> None:
    assert "n1" == chosen(says("n2"), answer=held, node_name="n1", nominated_node="n2")


@pytest.mark.parametrize(("claims", "fields"), [((says("n1"),), {}), ((), {"nominated_node": "n1"})])
@pytest.mark.parametrize(("held", "expected"), [(ANSWER, "n1"), (answer(), "n1"), (answer("n2"), ""), (None, "")])
def test_what_anybody_may_write_counts_for_a_pod_that_was_answered_and_a_node_that_was_offered(
    claims: tuple[Claim, ...], fields: dict[str, Any], held: Hold | None, expected: str
) -> None:
    assert expected == chosen(*claims, answer=held, **fields)


def test_without_any_signal_no_node_is_chosen() -> None:
    assert "" == chosen(claim("c"))


# Several


def test_a_claim_comes_before_a_nomination() -> None:
    assert "n1" == chosen(says("n1"), nominated_node="n2")
    assert "n2" == chosen(says("n3"), nominated_node="n2")  # which was not offered


def test_what_was_said_before_the_answer_is_no_news() -> None:
    asks, claims = pod("p", nominated_node="n2"), [says("n1"), claim("d")]
    older = nodes_named(asks, claims)
    assert {("uid-c", "n1"), ("", "n2")} == older
    held = answer("n1", "n2", older=older)

    assert "" == chosen(*claims, answer=held, nominated_node="n2")
    assert "n2" == chosen(says("n2"), answer=held)  # another node is
    assert "n1" == chosen(says("n1"), says("n1", "d"), answer=held)  # and so is another claim
    assert "n1" == chosen(says("n1", uid="made-again"), answer=held)
    assert "n1" == chosen(says("n1"), answer=held, nominated_node="n1")


@pytest.mark.parametrize(
    ("created", "pod_created", "expected"),
    [(LATER, EPOCH, "n1"), (LATER, LATER, ""), (LATER, LATEST, "")],
    ids=["the pod is older", "the same second", "the volume is older"],
)
def test_a_bound_claim_speaks_for_a_pod_that_is_older_than_its_volume(
    created: str, pod_created: str, expected: str
) -> None:
    bound = says("n1", volume_name="pv")
    assert expected == chosen(bound, pvs=made(created), created_utc=pod_created)
    assert (expected or "n2") == chosen(bound, pvs=made(created), created_utc=pod_created, nominated_node="n2")


@pytest.mark.parametrize("before", ["", "n2"])
def test_while_how_old_a_volume_is_is_not_seen_what_was_chosen_before_stands(before: str) -> None:
    held, unseen, seen = replace(ANSWER, chosen=before), says("n1", volume_name="pv"), says("n1", "d", volume_name="d")
    assert before == chosen(unseen, answer=held, nominated_node="n1")
    assert before == chosen(unseen, seen, answer=held, pvs=made(name="d"))  # it may have been made later
    assert "n1" == chosen(unseen, says("n1", "e"), answer=held)  # an unbound claim decides in any case


def test_of_claims_that_name_several_nodes_an_unbound_one_decides() -> None:
    bound = says("n2", volume_name="pv")
    for claims in ((bound, says("n1", "d")), (says("n1", "d"), bound)):
        assert "n1" == chosen(*claims, pvs=made(LATEST))


@pytest.mark.parametrize(("first", "second"), [((LATER, 9), (LATEST, 1)), ((LATER, 1), (LATER, 9))])
def test_of_bound_ones_that_whose_volume_was_made_last(first: tuple[str, int], second: tuple[str, int]) -> None:
    claims = [says("n1", volume_name="one"), says("n2", "d", volume_name="two")]
    pvs = {**made(*first, name="one"), **made(*second, name="two")}
    assert "n2" == chosen(*claims, pvs=pvs)
    assert "n2" == chosen(*reversed(claims), pvs=pvs)


def test_what_may_speak_of_another_pod_says_nothing() -> None:
    shared, own = says("n1"), says("n2", "d")

    def choice(*claims: Claim, **fields: Any) -> str:
        return choice_of(pod("p", **fields), claims, ANSWER, NO_PVS.get, is_used_by_others=lambda one: one is shared)

    assert "" == choice(shared)
    assert "n2" == choice(shared, own)
    assert "n2" == choice(shared, nominated_node="n2")
    assert "n1" == choice(replace(own, selected_node="n1"), shared)
