"""Growth of volumes on a real API server: webhook, leader, and Longhorn's stand-in, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from controller.admission import growth_path
from controller.allocator.plans import growths
from tests.cluster.client import ApiError
from tests.e2e import hurried
from tests.e2e.claim_webhook import NAME, ClaimWebhook
from tests.e2e.gate import Gate
from tests.e2e.growing_cell import WAIT_SECONDS, GrowingCell
from tests.e2e.harness import GIB, Cell, Scene
from tests.e2e.programs import GRPC_PORT
from tests.e2e.scheduling import NAMESPACE
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LONGHORN = f"/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/volumes"
HOLD_SECONDS = 60.0


@pytest.fixture(scope="module")
def gate(shared_scene: Scene) -> Iterator[Gate]:
    found = Gate(shared_scene)
    yield found
    found.close()


@pytest.fixture
def stage(scene: Scene, gate: Gate, make_cell: Callable[..., Cell]) -> Iterator[GrowingCell]:
    """One node with one disk of 400 GiB."""
    gate.open()
    yield GrowingCell.of(scene, make_cell(nodes=1, fillers=0), gate)
    scene.set_settings(expansion_policy="allow")
    scene.longhorn.resume()


@pytest.mark.parametrize("count", [24, pytest.param(100, marks=pytest.mark.long)])
def test_of_many_growths_at_once_exactly_as_many_are_allowed_as_fit(stage: GrowingCell, count: int) -> None:
    names = [f"data-{number}" for number in range(count)]
    stage.add(*names, gib=1)
    more = {24: 37, 100: 9}[count]  # GiB for each
    fits, left = divmod(400 - count, more)

    with ThreadPoolExecutor(count) as pool:
        answers = dict(zip(names, pool.map(lambda name: stage.grow(name, 1 + more), names), strict=True))

    allowed = [name for name, refusal in answers.items() if not refusal]
    assert fits == len(allowed), set(answers.values())
    largest = f"largest size that fits now is {1 + left} GiB"
    assert all(largest in refusal for refusal in answers.values() if refusal)
    stage.wait_grown(1 + more, *allowed)
    assert {1.0} == {stage.size_gib(name) for name in names if name not in allowed}
    wait_until(lambda: stage.scheduled_gib() == count + more * fits, "figures that show it", WAIT_SECONDS)
    assert [] == stage.scene.judge(stage.cell).complaints()
    wait_until(lambda: not stage.growths(), "an empty ledger", WAIT_SECONDS)


@pytest.fixture
def wide_stage(scene: Scene, gate: Gate, make_cell: Callable[..., Cell]) -> GrowingCell:
    """Four nodes of 250 GiB, and volumes of two copies."""
    gate.open()
    return GrowingCell.of(scene, make_cell(nodes=4, disks_gib=(250,), fillers=0), gate, copies=2)


def test_growths_and_new_volumes_at_once_take_all_or_nothing_and_never_too_much(wide_stage: GrowingCell) -> None:
    """240 of 1000 GiB are taken. Six volumes ask for 140 more, and eight new ones for 60 each."""
    stage = wide_stage
    old, new = [[f"{kind}-{number}" for number in range(count)] for kind, count in (("old", 6), ("new", 8))]
    stage.add(*old, gib=20)
    stage.wait(lambda: all(len(stage.copies(name)) == 2 for name in old), "both copies of each volume")

    with ThreadPoolExecutor(14) as pool:
        made = pool.map(lambda name: stage.ask(name, 30), new)
        answers = dict(zip(old, pool.map(lambda name: stage.grow_or_hear_why(name, 90), old), strict=True))
        list(made)

    refused = {name: text for name, text in answers.items() if text}
    wanted = {name: [20 if name in refused else 90] * 2 for name in old}
    stage.wait(lambda: {name: [*stage.copies(name).values()] for name in old} == wanted, "growth of all copies")
    stage.wait(lambda: fits_nowhere(stage, new, 30), "as many new copies as there is room for")
    assert refused
    for name, text in refused.items():
        assert f"cannot grow claim {stage.cell.namespace}/{name} (volume {stage.volume_name(name)}) to 90 GiB" in text
        assert {node for node in stage.copies(name) if f"node {node}, disk disk1 lacks " in text}
        assert any(end in text for end in ("The largest size that fits now is", "It cannot grow at all now"))
        assert "cannot grow" in stage.grow(name, 90, dryRun="All")
    assert wanted == {name: [*stage.copies(name).values()] for name in old}
    assert all(gib >= 0 for gib in free_gib(stage).values())
    assert [] == stage.scene.judge(stage.cell).complaints()


def free_gib(stage: GrowingCell) -> dict[str, float]:
    """What the copies of all claims leave of each node's 250 GiB."""
    left = dict.fromkeys(stage.cell.nodes, 250.0)
    for claim in stage.cell.claims():
        for node, gib in stage.copies(claim["metadata"]["name"]).items():
            left[node] -= gib
    return left


def fits_nowhere(stage: GrowingCell, names: list[str], gib: int) -> bool:
    """Whether each of these volumes has two copies, or no other node takes one."""
    left = free_gib(stage)

    def is_settled(name: str) -> bool:
        there = stage.copies(name)
        return len(there) == 2 or all(free < gib for node, free in left.items() if node not in there)

    return all(stage.volume_name(name) and is_settled(name) for name in names)


@pytest.mark.long
def test_without_the_gate_longhorn_gives_the_same_bytes_to_several_growths(stage: GrowingCell) -> None:
    """What the test above would see if nothing of ours were there: the checks of Longhorn's own look at figures of a
    while ago."""
    names = [f"data-{number}" for number in range(100)]
    stage.add(*names, gib=1)
    stage.gate.close()
    stage.scene.take_away()
    with ThreadPoolExecutor(100) as pool:
        assert {""} == set(pool.map(lambda name: stage.grow(name, 10), names))
    wait_until(lambda: stage.scene.judge(stage.cell).violations, "a disk that is promised twice", WAIT_SECONDS)


def test_the_last_bytes_pass_from_the_claim_to_the_replica(stage: GrowingCell) -> None:
    stage.add("a", "b", gib=100)
    before = stage.gate.reviews()
    assert not stage.grow("a", 300)
    stage.wait_grown(300, "a")
    stage.wait(lambda: stage.capacity("a") == str(300 * GIB), "the claim's new capacity")
    assert stage.gate.reviews() >= before + 2  # the claim, and the volume
    assert stage.grow("b", "100.001Gi")
    wait_until(lambda: stage.scheduled_gib() == 400, "a full disk", WAIT_SECONDS)


def test_a_volume_grown_by_longhorns_own_api_is_looked_at_too(stage: GrowingCell) -> None:
    stage.add("a", "b", gib=100)
    path = f"{LONGHORN}/{stage.volume_name('a')}"
    with pytest.raises(ApiError, match="cannot grow volume") as refused:
        stage.scene.api.patch(path, {"spec": {"size": str(301 * GIB)}})
    assert refused.value.forbidden
    stage.scene.api.patch(path, {"spec": {"size": str(300 * GIB)}})
    assert stage.grow("b", 101)
    stage.wait_grown(300, "a")


def test_a_growth_and_pods_compete_and_only_one_gets_the_last_bytes(stage: GrowingCell) -> None:
    """Three pods of 100 GiB and a growth of 300, into 350: whoever is first, no byte is given twice."""
    stage.add("a", gib=50)
    names = [f"p{number}" for number in range(3)]
    for name in names:
        stage.cell.claim(name)

    def ask(step: str) -> str:
        if step == "grow":
            return stage.grow("a", 350)
        stage.cell.pod(step, step)
        return ""

    with ThreadPoolExecutor(4) as pool:
        refusal, *_ = pool.map(ask, ["grow", *names])
    if refusal:
        stage.cell.wait_ready(3)
    else:
        stage.wait_grown(350, "a")
        stage.cell.wait_refused(3)
        assert [] == stage.cell.bound()
    assert [] == stage.scene.judge(stage.cell).complaints()


def test_with_all_our_pods_down_a_full_database_grows_and_the_leader_derives_its_hold(stage: GrowingCell) -> None:
    stage.add("a", "b", gib=100)
    stage.gate.close()
    stage.scene.stop_controllers()
    stage.scene.longhorn.pause()
    assert not stage.grow("a", 250)

    stage.scene.start_controller()
    wait_until(lambda: stage.growths() == {"a": ("PLANNED", 150)}, "the derived hold", WAIT_SECONDS)
    stage.gate.open()
    wait_until(lambda: "cannot grow" in stage.grow("b", 151, dryRun="All"), "a refusal", WAIT_SECONDS)
    stage.scene.longhorn.resume()
    stage.wait_grown(250, "a")
    assert [] == stage.scene.judge(stage.cell).complaints()


# Beside Longhorn's own webhook for claims, which the API server asks at the same time


@contextmanager
def slow_leader(scene: Scene) -> Iterator[None]:
    """For a moment: it answers when the block ends."""
    worker = scene.controllers[-1].worker()
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


@pytest.fixture
def theirs(stage: GrowingCell) -> Iterator[ClaimWebhook]:
    with stage.scene.claim_webhook() as webhook:
        yield webhook
        webhook.go_on()


@pytest.fixture
def requests() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_growth_is_held_once_whichever_webhook_answers_first(
    stage: GrowingCell, theirs: ClaimWebhook, requests: ThreadPoolExecutor
) -> None:
    stage.add("a", "b", gib=100)
    theirs.think()
    answer = requests.submit(stage.grow, "a", 200)
    wait_until(lambda: stage.growths() == {"a": ("HELD", 100)}, "a hold before they answer", WAIT_SECONDS)
    assert not answer.done()
    theirs.go_on()
    assert "" == answer.result()
    stage.wait_grown(200, "a")

    with slow_leader(stage.scene):
        answer = requests.submit(stage.grow, "b", 200)
        wait_until(lambda: theirs.seen[-1]["metadata"]["name"] == "b", "their answer", WAIT_SECONDS)
        assert not answer.done()
    assert "" == answer.result()
    stage.wait_grown(200, "b")
    assert [] == stage.scene.judge(stage.cell).complaints()
    wait_until(lambda: not stage.growths(), "an empty ledger", WAIT_SECONDS)


def test_what_is_held_and_longhorn_refuses_or_cannot_answer_ends_soon(
    stage: GrowingCell, theirs: ClaimWebhook, requests: ThreadPoolExecutor
) -> None:
    """After a minute, which the leader takes for a quarter of one."""
    stage.scene.stop_controllers()
    flags = hurried.flags_of(growths, HOLD_SECONDS=HOLD_SECONDS / 4)
    stage.scene.start_controller(module=hurried.__name__, flags=flags)
    stage.add("a", "b", gib=100)
    theirs.think()
    answer = requests.submit(stage.grow, "a", 250)
    wait_until(lambda: stage.growths() == {"a": ("HELD", 150)}, "a hold", WAIT_SECONDS)
    theirs.refusal = "no growth today"
    theirs.go_on()
    refusal = answer.result()
    assert f'admission webhook "{NAME}' in refusal
    assert "no growth today" in refusal

    theirs.is_away = True
    assert f'failed calling webhook "{NAME}' in stage.grow("b", 130)
    theirs.is_away, theirs.refusal = False, ""
    wait_until(lambda: not stage.growths(), "the end of all holds", WAIT_SECONDS)
    assert [100.0, 100.0] == [stage.size_gib(name) for name in ("a", "b")]
    assert "" == stage.grow("b", 300)
    stage.wait_grown(300, "b")
    wait_until(lambda: not stage.growths(), "an empty ledger", WAIT_SECONDS)


def test_a_state_that_longhorn_does_not_grow_a_volume_in_is_told_and_waited_for(
    stage: GrowingCell, theirs: ClaimWebhook
) -> None:
    """Longhorn's own webhook looks at space only, so the claim is stored."""
    stage.add("a", gib=100)
    path = f"{LONGHORN}/{stage.volume_name('a')}"
    stage.scene.api.patch(path, {"spec": {"migrationNodeID": "elsewhere"}})
    wait_until(lambda: "cannot grow the volume yet" in edit(stage, "a", "150Gi")[1], "a warning", WAIT_SECONDS)
    wait_until(lambda: stage.growths() == {"a": ("PLANNED", 50)}, "a promise", WAIT_SECONDS)
    assert 100 == stage.size_gib("a")
    stage.scene.api.patch(path, {"spec": {"migrationNodeID": ""}})
    stage.wait_grown(150, "a")


# What a person reads


def edit(stage: GrowingCell, name: str, size: str) -> tuple[int, str]:
    """As `kubectl patch` would be used by hand: its exit code, and all that it prints."""
    patch = f'{{"spec": {{"resources": {{"requests": {{"storage": "{size}"}}}}}}}}'
    done = stage.scene.cluster.kubectl("patch", "pvc", name, "-n", stage.cell.namespace, "-p", patch)
    return done.returncode, done.stdout + done.stderr


def test_the_refusal_as_kubectl_shows_it(stage: GrowingCell) -> None:
    stage.add("a", gib=100)
    code, text = edit(stage, "a", "500Gi")
    assert 1 == code
    volume, node = stage.volume_name("a"), stage.cell.nodes[0]
    for part in (
        "Error from server (Forbidden)",
        f"denied the request: Longhorn cannot grow claim {stage.cell.namespace}/a (volume {volume}) to 500 GiB: ",
        f"node {node}, disk disk1 lacks 100 GiB: ",
        "The largest size that fits now is 400 GiB.",
    ):
        assert part in text
    assert (0, "") == (edit(stage, "a", "400Gi")[0], stage.grow("a", 400))


def test_a_leader_that_the_webhook_does_not_reach_is_told_by_an_event_and_by_the_installations_check(
    stage: GrowingCell,
) -> None:
    """As where a NetworkPolicy is in the way. The webhook is ready all the same."""
    scene = stage.scene
    scene.stop_controllers()
    flags = hurried.flags_of(growth_path, EVERY_SECONDS=0.5, AGAIN_SECONDS=0.5)
    leader = scene.start_controller(module=hurried.__name__, flags=flags)
    wait_until(lambda: ("ok", "") == growth_line(scene), "a way to the leader", WAIT_SECONDS)

    scene.cluster.services.map_pod(leader.ip, GRPC_PORT, free_port())
    stage.gate.close()  # with its connection to the leader
    stage.gate.open()
    wait_until(lambda: "failure" == growth_line(scene)[0], "a check that fails", WAIT_SECONDS)
    assert growth_line(scene)[1].startswith("let the webhook's pods in to port 9505 of the controller's pods")
    wait_until(lambda: scene.events("GrowthUnchecked"), "an Event", WAIT_SECONDS)
    assert "9505" in "".join(leader.status()["admission"]["problems"])
    assert stage.gate.webhook is not None and stage.gate.webhook.answers_ready()

    scene.cluster.services.map_pod(leader.ip, GRPC_PORT, leader.grpc_port)
    wait_until(lambda: scene.events("GrowthChecked"), "another Event", WAIT_SECONDS)
    assert ("ok", "") == growth_line(scene)
    assert not leader.status()["admission"]["problems"]


def growth_line(scene: Scene) -> tuple[str, str]:
    """What the check of the installation says of growth, as an administrator runs it once: outcome and hint."""
    words = ("check", "--namespace", NAMESPACE, "--output", "json")
    done = scene.run("controller", *words, kubeconfig=scene.cluster.kubeconfig)
    print(done.stdout + done.stderr)
    (found,) = (line for line in json.loads(done.stdout) if line["what"] == "growth")
    return found["outcome"], found["hint"]


def test_without_a_leader_growth_is_allowed_with_a_warning_or_denied_as_is_set(stage: GrowingCell) -> None:
    stage.add("a", gib=100)
    stage.scene.stop_controllers()
    code, text = edit(stage, "a", "150Gi")
    assert 0 == code
    assert "Warning: Longhorn scheduler extender: allowed unchecked (the leader is unavailable)" in text

    stage.scene.set_settings(expansion_policy="deny")
    wait_until(lambda: "cannot be checked" in stage.grow("a", 200), "a denial", WAIT_SECONDS)
