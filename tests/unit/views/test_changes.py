"""What is proposed helps: whoever makes the change sees the pod let through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.model.longhorn_settings import longhorn_settings
from tests.fakes.builders import GIB, ONE_LOCAL, TestCluster, disk, node, storage_class
from tests.unit.views.asking import changes_for, explained, make

FLAGS = st.sampled_from((True, True, True, False))
DISK = st.fixed_dictionaries(
    {
        "gib": st.sampled_from((20, 60, 100)),
        "used": st.sampled_from((0, 10, 40)),
        "opened": FLAGS,
        "tags": st.sampled_from(((), (), ("ssd",))),
        "pressed": st.sampled_from((False, False, False, True)),
    }
)
NODE = st.fixed_dictionaries(
    {
        "disks": st.lists(DISK, min_size=1, max_size=2),
        "opened": FLAGS,
        "ready": FLAGS,
        "zone": st.sampled_from(("a", "b")),
        "tags": st.sampled_from(((), (), ("fast",))),
    }
)
CLASSES = ("longhorn", "roaming", "three", "tagged", "on-fast", "three-tagged")
SETTINGS = st.fixed_dictionaries(
    {
        "allow-volume-creation-with-degraded-availability": st.sampled_from(("true", "true", "false")),
        "replica-zone-soft-anti-affinity": st.sampled_from(("true", "true", "false")),
        "allow-empty-disk-selector-volume": st.sampled_from(("true", "true", "false")),
        "storage-over-provisioning-percentage": st.sampled_from(("100", "150")),
    }
)


def build(values: dict[str, str], nodes: list[dict[str, Any]]) -> TestCluster:
    cluster = TestCluster(settings=longhorn_settings(values)[0])
    cluster.add_class("three", dataLocality="disabled", numberOfReplicas="3")
    cluster.add_class("three-tagged", dataLocality="disabled", numberOfReplicas="3", diskSelector="ssd")
    cluster.allocator.observe_class("tagged", storage_class("tagged", {**ONE_LOCAL, "diskSelector": "ssd"}))
    cluster.allocator.observe_class("on-fast", storage_class("on-fast", {**ONE_LOCAL, "nodeSelector": "fast"}))
    for number, facts in enumerate(nodes, 1):
        name, disks = f"n{number}", []
        for place, one in enumerate(facts["disks"]):
            made = replace(disk(f"d{place}", one["gib"], node=name, tags=one["tags"]), allow_scheduling=one["opened"])
            made = replace(made, scheduled_bytes=one["used"] * GIB)
            if one["pressed"]:
                made = replace(made, available_bytes=GIB, schedulable=False, is_under_pressure=True)
            disks.append(made)
        cluster.add_node(name)
        shown = replace(node(name, *disks), allow_scheduling=facts["opened"], ready=facts["ready"], zone=facts["zone"])
        cluster.put_node(replace(shown, tags=frozenset(facts["tags"])))
    return cluster


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    SETTINGS,
    st.lists(NODE, min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(CLASSES), st.sampled_from((10, 30, 50, 90))), min_size=1, max_size=2),
    st.lists(st.tuples(st.sampled_from(CLASSES[:3]), st.sampled_from((20, 50)), st.booleans()), max_size=3),
)
def test_whoever_makes_a_proposed_change_sees_the_pod_let_through(
    values: dict[str, str],
    nodes: list[dict[str, Any]],
    volumes: list[tuple[str, int]],
    others: list[tuple[str, int, bool]],
) -> None:
    names = [f"n{number}" for number in range(1, len(nodes) + 1)]

    def stage() -> tuple[TestCluster, bool]:
        cluster = build(values, nodes)
        for number, (class_name, gib, is_chosen) in enumerate(others):
            cluster.add_pod(f"o{number}", (f"o{number}", gib, class_name))
            passed = cluster.filter(f"o{number}", *names).passed
            if passed and is_chosen:
                cluster.select_node(f"o{number}", passed[0])
        wanted = [(f"c{number}", gib, class_name) for number, (class_name, gib) in enumerate(volumes)]
        cluster.add_pod("asks", *wanted)
        return cluster, bool(cluster.filter("asks", *names).passed)

    cluster, is_passed = stage()
    if is_passed:
        assert "let-through" == explained(cluster, "asks").state
        return
    found = explained(cluster, "asks")
    if found.cause == "room-now":  # two seconds have ended what was in its way
        return
    assert ("waits", True, True) == (found.state, bool(found.cause), bool(found.text))
    changes = changes_for(cluster, "asks")
    assert found.change or not changes
    for change in changes:
        again, _ = stage()
        again.clock.advance(2)
        make(again, change, values)
        assert again.filter("asks", *names).passed, change


def test_a_change_of_bytes_is_the_smallest_that_helps() -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=[60, 90])
    cluster.add_volume("stored", 50, on="n1")
    cluster.ask("a", 100, "n1", "n2")
    kinds = {one.kind: one for one in changes_for(cluster, "a")}
    assert {"enlarge", "free", "request", "setting"} == kinds.keys()
    assert ("n2", "d1", str(10 * GIB)) == (kinds["enlarge"].node, kinds["enlarge"].disk, kinds["enlarge"].value)
    assert str(90 * GIB) == kinds["request"].value
    assert ("storage-over-provisioning-percentage", "112") == (kinds["setting"].what, kinds["setting"].value)


def test_one_change_of_each_kind_is_told_and_two_at_most() -> None:
    cluster = TestCluster().add_nodes(n1=50, n2=60)
    cluster.ask("a", 100, "n1", "n2")
    assert 1 == explained(cluster, "a").change.count("; or ")


@pytest.mark.parametrize("class_name", ["longhorn", "roaming"])
def test_what_is_held_and_ends_by_itself_is_worth_waiting_for(class_name: str) -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.ask("held", 80, "n1")
    cluster.ask("a", 50, "n1", class_name=class_name)
    assert explained(cluster, "a").change.startswith(
        "Wait: what is held on disk d1 of node n1 is free again by 2026-01-01T00:02:00Z, unless it is used there; or "
    )
    (row,) = explained(cluster, "a").nodes
    assert [("answer", "ns/held", 80, "2026-01-01T00:02:00Z")] == [
        (one.kind, one.name, one.size_bytes // GIB, one.until) for one in row.holders
    ]


def test_what_a_change_opens_is_taken_by_plans_that_lack_copies_first() -> None:
    """The setting would open a disk, which then is another volume's."""
    values = {"allow-empty-disk-selector-volume": "false"}
    cluster = TestCluster(settings=longhorn_settings(values)[0])
    cluster.add_node("n1", disk("d1", 100, node="n1"))
    cluster.add_node("n2", disk("d1", 60, node="n2", tags=("ssd",)))
    cluster.add_class("two", dataLocality="disabled", numberOfReplicas="2")
    cluster.ask("other", 50, "n1", "n2", class_name="two")
    cluster.select_node("other", "n1")
    cluster.ask("asks", 60, "n1", "n2", class_name="two")
    assert "setting" not in {one.kind for one in changes_for(cluster, "asks") if "empty" in one.what}
