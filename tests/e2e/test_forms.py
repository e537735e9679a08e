"""Both forms of a request: the same answer in the form of the question, and what full Nodes cost in kube-scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.e2e.forms import Form
from tests.e2e.harness import Cell, Scene

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MakeCell = Callable[..., Cell]
StartScheduler = Callable[..., str]
PODS = 12


def test_the_answer_is_the_same_in_the_form_of_the_question(scene: Scene, make_cell: MakeCell) -> None:
    cell = make_cell(nodes=2, disks_gib=(150,), fillers=0)
    full = make_cell(nodes=1, disks_gib=(50,), fillers=0)
    cell.ask("p", schedulerName="nobody")
    pod = scene.api.get(cell.path("pods", "p"))
    candidates = [*cell.nodes, *full.nodes, "nowhere"]

    answers = {form: scene.filter(pod, candidates, form=form) for form in Form}
    assert {form: form for form in Form} == {form: answer.form for form, answer in answers.items()}
    for answer in answers.values():
        assert (200, cell.nodes, {*full.nodes, "nowhere"}) == (answer.status, answer.passed, set(answer.refused))


def pods_by_node(cell: Cell, start_scheduler: StartScheduler, form: Form) -> dict[str, int]:
    """Where a dozen pods with a small volume each come to lie, one after the other, by a scheduler of that form."""
    scheduler = start_scheduler(f"{form}-scheduler", node_cache_capable=form.is_node_cache_capable)
    for number in range(PODS):
        cell.ask(f"p{number}", gib=1, schedulerName=scheduler)
        cell.wait_bound(number + 1)
    return dict(Counter(pod["spec"]["nodeName"] for pod in cell.pods()))


@pytest.mark.long
def test_with_the_generated_configuration_the_load_of_a_node_counts(
    scene: Scene, make_cell: MakeCell, start_scheduler: StartScheduler
) -> None:
    """One node is three quarters busy, and Longhorn has the same room on both."""
    cell = make_cell(nodes=2, disks_gib=(400,), fillers=1)
    _, idle = cell.nodes
    assert {idle: PODS} == pods_by_node(cell, start_scheduler, Form.NAMES)


@pytest.mark.long
def test_with_full_nodes_kube_scheduler_takes_every_node_for_idle(
    scene: Scene, make_cell: MakeCell, start_scheduler: StartScheduler
) -> None:
    """Why the generated configuration asks for names: kubernetes/kubernetes issue 141781. Fails once that is mended."""
    cell = make_cell(nodes=2, disks_gib=(400,), fillers=1)
    busy, _ = cell.nodes
    assert pods_by_node(cell, start_scheduler, Form.NODES).get(busy, 0) > 0
