"""Where a pod's own volumes do not satisfy the sums: what is offered all the same, and what that promises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.outcome import Decision
from controller.model.longhorn import BackingImage, LonghornSettings
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, TestCluster, disk, replica, volume


def cluster_of(
    *nodes: tuple[float, ...], settings: LonghornSettings | None = None, live: LiveSettings | None = None
) -> TestCluster:
    """A node n1, n2 ... with these disks each."""
    cluster = TestCluster(settings=settings, live=live)
    cluster.add_class("three", dataLocality="disabled", numberOfReplicas="3")
    return cluster.add_nodes(**{f"n{number}": disks for number, disks in enumerate(nodes, start=1)})


def add_pair(cluster: TestCluster, first: float, second: float, class_name: str = "longhorn") -> None:
    """Two volumes that strand one another if Longhorn puts the second on the disk that the first one needs."""
    cluster.add_pod("pair", ("a", first, class_name), ("b", second, class_name))


# Some order strands a volume


@pytest.mark.parametrize(
    ("others", "is_offered"),
    [
        ((), False),  # nowhere to fall back to
        (((1000,),), True),
        (((100, 60),), True),  # one of the two finds its disk on the pod's node, so one at most comes here
        (((60, 60),), False),
        (((120,),), True),
    ],
)
def test_a_best_effort_volume_that_may_be_stranded_needs_room_elsewhere(
    others: tuple[tuple[float, ...], ...], is_offered: bool
) -> None:
    cluster = cluster_of((100, 60), *others)
    add_pair(cluster, 100, 50)
    outcome = cluster.filter("pair", "n1")
    assert (Decision.AT_DISCRETION if is_offered else Decision.CONTENDED) is outcome.decision


def test_what_others_were_promised_is_no_room_to_fall_back_to() -> None:
    cluster = cluster_of((100, 60), (120,))
    assert cluster.ask("other", 60, "n2")
    cluster.select_node("other", "n2")
    add_pair(cluster, 100, 50)
    assert not cluster.offered("pair", "n1")


@pytest.mark.parametrize("is_new_leader", [False, True])
@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_volume_that_may_fall_back_keeps_its_room_there_until_it_is_placed(
    is_new_leader: bool, is_chosen: bool
) -> None:
    cluster = cluster_of((100, 60), (120,))
    add_pair(cluster, 100, 50)
    assert {"n1"} == cluster.offered("pair", "n1")
    if is_chosen:
        cluster.select_node("a", "n1")
        cluster.select_node("b", "n1")
    if is_new_leader:
        cluster.allocator.begin_term()
    assert not cluster.ask("other", 60, "n2")
    if not is_chosen:
        return
    for name in "ab":
        cluster.provision(name)
    cluster.bind("pair", "n1")
    for name, gib, where in (("a", 100, "d0"), ("b", 50, "d1")):
        cluster.attach(f"pvc-uid-{name}", "n1", gib)
        cluster.place(f"pvc-uid-{name}", "n1", gib, disk_name=where)
    assert {"n2"} == cluster.offered("other", "n2")


def test_volumes_that_all_find_a_disk_in_every_order_leave_other_nodes_alone() -> None:
    cluster = cluster_of((150, 150), (100,))
    add_pair(cluster, 80, 80)
    assert Decision.AT_DISCRETION is cluster.filter("pair", "n1").decision
    assert {"n2"} == cluster.ask("other", 100, "n2")


@pytest.mark.parametrize(
    ("disks", "class_name", "allows", "is_offered"),
    [
        pytest.param(((100, 60), (1000,)), "strict", False, False, id="a strict-local volume never falls back"),
        pytest.param(((100, 60), (1000,)), "strict", True, True, id="unless stranding is allowed"),
        pytest.param(((100, 60),), "longhorn", True, True, id="which asks for no room elsewhere"),
    ],
)
def test_a_volume_is_stranded_only_where_that_is_allowed(
    disks: tuple[tuple[float, ...], ...], class_name: str, allows: bool, is_offered: bool
) -> None:
    cluster = cluster_of(*disks, live=LiveSettings(enabled=True, allow_stranding=allows))
    add_pair(cluster, 100, 50, class_name)
    assert is_offered == bool(cluster.offered("pair", "n1"))


def test_every_copy_that_may_come_to_the_node_can_strand_a_local_volume() -> None:
    """Nodes may be shared and disks may not: two of three copies may come to n1, one to each disk."""
    settings = LonghornSettings(soft_anti_affinity=True, disk_soft_anti_affinity=False)
    cluster = cluster_of((100, 100), (100, 100), settings=settings)
    cluster.add_pod("mixed", ("local", 60, "strict"), ("copies", 60, "three"))
    assert not cluster.offered("mixed", "n1", "n2")


def test_what_was_found_of_one_node_says_nothing_of_one_where_other_volumes_need_room() -> None:
    """One local volume lies on n1, so that it needs room on n2 alone, where the roaming one has its only disk."""
    cluster = TestCluster()
    cluster.add_class("tagged", dataLocality="disabled", numberOfReplicas="1", diskSelector="t")
    cluster.add_node("n1", disk("d0", 60, node="n1"))
    cluster.add_node("n2", disk("t", 100, node="n2", tags=("t",)), disk("u", 200, node="n2"))
    cluster.add_claim("placed", 60)
    cluster.select_node("placed", "n1")
    cluster.place(cluster.provision("placed"), "n1", 60, disk_name="d0")
    cluster.let_figures_follow()
    cluster.pass_time(100)
    cluster.add_pod("p", "placed", ("new", 30), ("roams", 60, "tagged"), created="2026-01-01T01:00:00Z")
    assert cluster.offered("p", "n2") == cluster.offered("p", "n1", "n2")


# Backing images


def with_image(*nodes: tuple[float, ...], gib: float, pct: int = 25) -> TestCluster:
    """Classes `image` (beside the pod) and `image-roams` with a backing image of so many GiB that is nowhere yet."""
    cluster = cluster_of(*nodes, live=LiveSettings(enabled=True, roaming_overcommit_pct=pct))
    cluster.allocator.observe_backing_image("i", BackingImage("i", real_size_bytes=int(gib * GIB)))
    cluster.add_class("image", dataLocality="best-effort", numberOfReplicas="1", backingImage="i")
    cluster.add_class("image-roams", dataLocality="disabled", numberOfReplicas="1", backingImage="i")
    return cluster


def test_a_volume_whose_image_may_not_fit_beside_it_is_let_through_where_it_fits_on_another_disk() -> None:
    """Longhorn asks a disk for the volume's bytes alone: 95 and 10 may end on the disk of 100."""
    cluster = with_image((100, 400), gib=10)
    cluster.add_pod("a", ("a", 95, "image"))
    assert Decision.AT_DISCRETION is cluster.filter("a", "n1").decision


def test_one_small_disk_keeps_no_volume_with_an_image_out_of_a_cluster() -> None:
    cluster = with_image((100,), *[(400,)] * 5, gib=10, pct=0)
    cluster.add_pod("a", ("a", 95, "image-roams"))
    assert Decision.AT_DISCRETION is cluster.filter("a", "n1", "n2").decision


def test_the_image_of_the_pods_own_roaming_volume_counts_beside_its_local_one() -> None:
    cluster = with_image((100,), gib=30)
    cluster.add_pod("mixed", ("local", 40, "strict"), ("roams", 40, "image-roams"))
    assert not cluster.offered("mixed", "n1")


def test_an_image_that_another_pod_brings_as_well_counts_once_and_not_never() -> None:
    cluster = with_image((100,), gib=30)
    assert cluster.ask("other", 1, "n1", class_name="image-roams")
    cluster.add_pod("too-much", ("local", 50, "strict"), ("more", 20, "image-roams"))
    assert not cluster.offered("too-much", "n1")
    cluster.add_pod("just", ("local", 50, "strict"), ("fits", 19, "image-roams"))
    assert {"n1"} == cluster.offered("just", "n1")


# Room that is kept


def test_room_that_is_kept_for_another_pod_is_not_given_away_at_discretion() -> None:
    """Volumes of 60 GiB leave n1 soon, and a pod of 140 has waited for that."""
    names = ("n1", "n2", "n3")
    cluster = cluster_of(*[(150, 150)] * 3)
    for name in names:
        for index in (0, 1):
            of = f"pvc-{name}-{index}"
            cluster.allocator.observe_volume(of, volume(of, 60))
            failed = {"failed_at": "x", "healthy_at": "y"} if name == "n1" else {}
            facts = replica(f"{of}-r", of, 60, on=name, disk_name=f"d{index}", **failed)
            cluster.allocator.observe_replica(f"{of}-r", facts)
    cluster.let_figures_follow()
    assert not cluster.ask("large", 140, *names)
    for _ in range(64):
        cluster.pass_time(5)
        cluster.plan_wakeups()
        cluster.filter("large", *names)
    assert ["n1"] == [row.node for row in cluster.allocator.snapshot().promises if row.source == "kept-room"]

    add_pair(cluster, 80, 80)
    assert not cluster.offered("pair", "n1")


# What may fall back, and what does not


def test_a_volume_that_lies_elsewhere_moves_to_the_offered_node_alone() -> None:
    """`a` lies on n2 and gets a copy beside its pod; that never falls back, and an event does not end its promise."""
    cluster = cluster_of((100, 80), (110,), (180,), (1000,))
    cluster.add_claim("a", 100)
    cluster.select_node("a", "n2")
    cluster.place(cluster.provision("a"), "n2", 100, disk_name="d0")
    cluster.let_figures_follow()
    cluster.pass_time(100)
    cluster.add_pod("pair", "a", ("b", 50), created="2026-01-01T01:00:00Z")
    assert {"n1"} == cluster.offered("pair", "n1")
    cluster.set_claim(replace(cluster.claims["a"], version=5))
    assert not cluster.ask("other", 30, "n1")


def test_a_new_leader_counts_the_pods_own_roaming_volume_beside_its_local_one() -> None:
    cluster = cluster_of((100,), (200,), live=LiveSettings(enabled=True, roaming_overcommit_pct=0))
    cluster.add_pod("mixed", ("local", 60, "longhorn"), ("roams", 41, "roaming"))
    assert {"n1"} == cluster.offered("mixed", "n1")
    for name in ("local", "roams"):
        cluster.select_node(name, "n1")
    cluster.allocator.begin_term()
    cluster.pass_time(10)
    assert not cluster.ask("other", 159, "n2")


def test_a_nomination_of_another_node_says_nothing_of_what_was_offered_at_discretion() -> None:
    cluster = cluster_of((100, 60), (120,), (50,))
    add_pair(cluster, 100, 50)
    assert {"n1"} == cluster.offered("pair", "n1")
    cluster.change_pod("pair", nominated_node="n3")
    assert {"HELD"} == {row.state for row in cluster.allocator.snapshot().promises}
    cluster.pass_time(130)
    assert {} == cluster.pending()


def test_a_pair_that_needs_room_to_fall_back_to_gets_a_turn_on_all_nodes() -> None:
    """n1 is empty all the time; on the other nodes something is pending whenever the pair is asked about."""
    cluster = cluster_of((100, 60), (300,), (300,))
    for name in ("n2", "n3"):
        assert cluster.ask(f"busy-{name}", 250, name)
        cluster.select_node(f"busy-{name}", name)
    add_pair(cluster, 100, 50)
    assert not cluster.offered("pair", "n1")
    cluster.clock.advance(300)
    cluster.plan_wakeups()
    for name in ("n1", "n2", "n3"):
        assert not cluster.ask(f"small-{name}", 1, name)

    for name in ("n2", "n3"):
        cluster.run(f"busy-{name}", f"busy-{name}", name, 250)
        cluster.place(f"pvc-uid-busy-{name}", name, 250, disk_name="d0")
    cluster.let_figures_follow()
    cluster.delete_volume("busy-n2")
    cluster.let_figures_follow()
    assert cluster.offered("pair", "n1")


def test_a_volume_of_one_disk_is_not_left_to_what_a_late_figure_brings_there() -> None:
    """With current figures the disk never takes both of the others, with late ones it does, and is closed."""
    cluster = cluster_of()
    cluster.add_class("tagged", dataLocality="best-effort", numberOfReplicas="1", diskSelector="ssd")
    cluster.add_node("n1", disk("d1", 9, tags=("ssd",)), disk("d2", 7), disk("d3", 6))
    cluster.add_pod("three", ("a", 7, "strict"), ("b", 4, "strict"), ("c", 1, "tagged"))

    assert Decision.CONTENDED is cluster.filter("three", "n1").decision
