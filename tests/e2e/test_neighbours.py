"""What somebody who reaches the product's ports can do to pods of others: waste room, and no more.

A stranger has no certificate and no rights; he knows uids, as anybody does who may read pods, and posts what he likes.
Pods of the scheduler "nobody" are left to the test, which asks about them in kube-scheduler's place.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.client import Object
from tests.e2e.again import Again
from tests.e2e.forms import FilterAnswer
from tests.e2e.harness import Cell, Scene
from tests.e2e.programs import Controller
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NOBODY, UNHEARD_OF = "nobody", "unheard-of"  # the product serves the first one, not the second
HALF_REQUESTS = 200
QUIET_CALLS = 30
MOST_DELAY = 1.0  # times as long as a call without the question, and as its text is read


@pytest.fixture(scope="module", autouse=True)
def plain_http(shared_scene: Scene) -> Iterator[None]:
    with shared_scene.plain_http():
        yield


@pytest.fixture
def controller(scene: Scene) -> Controller:
    return scene.controllers[-1]


def forge(scene: Scene, verb: str, pod: Object, **fields: Any) -> FilterAnswer:
    """A call as anybody may make it."""
    return scene.call(f"/{verb}", json.dumps({"Pod": pod, **fields}).encode())


def each(cell: Cell, gib: int) -> dict[str, int]:
    return dict.fromkeys(cell.nodes, gib)


def waiting(cell: Cell, name: str, scheduler: str = NOBODY, **options: Any) -> Object:
    """A pending pod with a claim of 100 GiB."""
    cell.claim(name)
    return cell.pod(name, name, schedulerName=scheduler, **options)


@pytest.mark.long
def test_forged_questions_about_pods_of_others_put_no_disk_over_its_limit(
    scene: Scene, make_cell: Callable[..., Cell], start_scheduler: Callable[..., str]
) -> None:
    """Twelve volumes of 100 GiB fit on three disks, four on each. The scheduler's choices show seconds late."""
    cell = make_cell(nodes=3, fillers=1)
    slow = start_scheduler("slow-scheduler", qps=5, burst=5)
    answered = 0

    def ask_about_all() -> None:
        """With no nodes at all, or with one of them."""
        nonlocal answered
        for pod in cell.pods():
            for nodes in ([], cell.nodes[-1:]):
                answered += forge(scene, "filter", pod, NodeNames=nodes).status == 200

    with Again(ask_about_all, 0.01):
        cell.stateful_set(scheduler=slow, replicas=12)
        cell.wait_chosen(12, 120)
    assert answered > 0
    scene.assert_exactly_full(cell)


def test_no_forged_call_ends_what_a_pod_was_promised(scene: Scene, cell: Cell, controller: Controller) -> None:
    pod = waiting(cell, "p")
    assert cell.nodes == cell.filter("p").passed

    victims = {cell.nodes[0]: {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}
    binding = {"PodName": "p", "PodNamespace": cell.namespace, "PodUID": pod["metadata"]["uid"], "Node": cell.nodes[0]}
    for verb, fields in (
        ("filter", {"NodeNames": []}),
        ("filter", {"NodeNames": ["made-up"]}),
        ("filter", {"NodeNames": cell.nodes[:1]}),
        ("prioritize", {"NodeNames": cell.nodes[:1]}),
        ("preempt", {"NodeNameToMetaVictims": victims}),
        ("bind", binding),
    ):
        assert 200 == forge(scene, verb, pod, **fields).status
        assert each(cell, 100) == cell.promised(controller), verb

    other = waiting(cell, "other", UNHEARD_OF)
    gated = waiting(cell, "gated", schedulingGates=[{"name": "example.org/wait"}])
    for one in (other, gated):
        assert forge(scene, "filter", one, NodeNames=cell.nodes).body["Error"]
    assert each(cell, 100) == cell.promised(controller)


def test_a_forged_question_does_not_prove_that_a_scheduler_is_wired(
    scene: Scene, cell: Cell, controller: Controller
) -> None:
    """The pod's own scheduler runs nowhere, so nobody else can have asked."""
    pod = waiting(cell, "p")
    assert cell.nodes == sorted(forge(scene, "filter", pod, NodeNames=cell.nodes).body["NodeNames"])

    wait_until(lambda: NOBODY in controller.status()["wiring"], "a finding about that scheduler", 30)
    assert "wired" != controller.status()["wiring"][NOBODY]["state"]


def threads_of(controller: Controller) -> int:
    return len(list(Path(f"/proc/{controller.worker()}/task").iterdir()))


def test_half_requests_to_the_metrics_port_take_few_threads_and_keep_nobody_out(
    scene: Scene, controller: Controller
) -> None:
    before = threads_of(controller)
    with ExitStack() as held:
        for _ in range(HALF_REQUESTS):
            sock = held.enter_context(socket.create_connection(("127.0.0.1", controller.metrics_port), 10))
            sock.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert "ok\n" == controller.page("/healthz")
        # 16 connections, those that are just being ended, and the pools that store plans and write places meanwhile.
        assert threads_of(controller) - before <= 24 + 16


def test_a_question_about_a_million_nodes_delays_nobody(scene: Scene, cell: Cell, controller: Controller) -> None:
    waiting(cell, "p")
    cell.filter("p")
    pod = scene.api.get(cell.path("pods", "p"))
    body = json.dumps({"Pod": pod, "NodeNames": [f"n{number}" for number in range(1_000_000)]}).encode()
    answers: list[FilterAnswer] = []
    thread = threading.Thread(target=lambda: answers.append(scene.call("/filter", body)))
    thread.start()

    def slowest_while(is_to_go_on: Callable[[], bool]) -> float:
        found = 0.0
        while is_to_go_on():
            began = time.monotonic()
            assert cell.nodes == cell.filter("p").passed
            found = max(found, time.monotonic() - began)
        return found

    beside = slowest_while(thread.is_alive)
    thread.join()
    assert answers[0].status in (400, 413)
    assert "nodes" in answers[0].body["Error"]
    counts = iter(range(QUIET_CALLS))
    quiet = slowest_while(lambda: next(counts, None) is not None)
    began = time.monotonic()
    json.loads(body)
    reading = time.monotonic() - began  # nothing else of Python's runs meanwhile
    print(f"slowest of the others: {beside:.3f} s; without it {quiet:.3f} s, to read it takes {reading:.3f} s")
    assert beside <= MOST_DELAY * (quiet + reading)
