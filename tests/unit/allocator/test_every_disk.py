"""A yes holds on every disk that Longhorn may choose, for the newcomer and for everything that was promised before."""

from __future__ import annotations

import pytest

from tests.fakes.builders import TestCluster, disk


def cluster_of(*disks_gib: float, nodes: int = 1) -> TestCluster:
    """So many nodes with these disks."""
    return TestCluster().add_nodes(**{f"n{number}": disks_gib for number in range(1, nodes + 1)})


def test_a_newcomer_may_not_take_an_earlier_promises_only_disk() -> None:
    """40 GiB may go to the disk of 90, and then nothing takes the 60 that were promised."""
    cluster = cluster_of(90, 40)
    assert cluster.ask("earlier", 60, "n1")
    cluster.select_node("earlier", "n1")

    assert not cluster.ask("newcomer", 40, "n1")
    assert cluster.ask("small", 30, "n1")  # beside it on either disk


@pytest.mark.parametrize("class_name", ["longhorn", "strict"])
def test_what_roams_may_not_take_the_bytes_of_a_local_promise(class_name: str) -> None:
    cluster = cluster_of(100, nodes=4)
    for number in (1, 2, 3):
        assert cluster.ask(f"local-{number}", 60, f"n{number}", class_name=class_name)
        cluster.select_node(f"local-{number}", f"n{number}")

    assert not cluster.ask("roams", 60, "n4", class_name="roaming")  # Longhorn does not ask where the pod runs
    assert cluster.ask("small", 40, "n4", class_name="roaming")


@pytest.fixture
def trap() -> TestCluster:
    """The Replica object shows on a disk that Longhorn's figure still shows as empty: it may choose that disk again."""
    cluster = cluster_of(100, 100)
    assert cluster.ask("first", 60, "n1")
    cluster.run("first", "first", "n1", 60)
    cluster.place("pvc-uid-first", "n1", 60, disk_name="d0")
    return cluster


def test_a_disk_that_is_full_but_not_reported_so_is_a_trap(trap: TestCluster) -> None:
    assert not trap.ask("second", 60, "n1")

    trap._show_figures(lambda _disk, _name: True)
    assert not trap.offered("second", "n1")  # Longhorn may have decided by the figure of a moment ago
    trap.let_figures_follow()
    assert trap.offered("second", "n1")


def test_a_pod_that_a_trap_kept_out_is_woken_once_nobody_believes_in_it_any_more(trap: TestCluster) -> None:
    trap._show_figures(lambda _disk, _name: True)
    assert not trap.ask("second", 60, "n1")
    for seconds, woken in ((4, []), (1, ["second"])):
        version = trap.allocator.version
        trap.clock.advance(seconds)
        trap.allocator.sweep()
        assert (bool(woken), woken) == (version != trap.allocator.version, trap.woken())


@pytest.mark.parametrize("class_name", ["longhorn", "strict"])
def test_a_pods_own_volume_that_roams_may_not_take_the_room_of_its_local_one(class_name: str) -> None:
    cluster = cluster_of(100, nodes=2)
    cluster.add_claim("local", 60, class_name=class_name)
    cluster.add_pod("mixed", "local", ("roams", 60, "roaming"))
    outcome = cluster.filter("mixed", "n1", "n2")

    # strict-local: it would never start. best-effort: Longhorn would place it on the other node.
    assert not outcome.passed
    cluster.add_pod("fits", "local", ("less", 40, "roaming"))
    cluster.drop_pod("mixed")
    assert cluster.offered("fits", "n1", "n2")


def test_a_trap_counts_for_what_roams_also_where_the_disk_is_over_its_limit() -> None:
    """12 of 8 lie there, and the figure still shows the disk as empty: Longhorn may choose it again."""
    cluster = cluster_of(100)
    cluster.add_node("n2", disk("full", 8, node="n2"))
    for name, gib in (("a", 8), ("b", 4)):
        assert cluster.ask(name, gib, "n1")
        cluster.run(name, name, "n1", gib)
        cluster.place(f"pvc-uid-{name}", "n2", gib, disk_name="full")

    assert not cluster.ask("roams", 1, "n1", "n2", class_name="roaming")
    cluster.let_figures_follow()
    assert cluster.offered("roams", "n1", "n2")
