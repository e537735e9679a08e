"""The enhancement text's goals 2, 3A and 3B.

`make goals`, which is a part of `make test-long`, plays these and all others as often as the text asks for, with the
long waits, and with their counter-runs without the extender.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.goals import foreseen, placing
from tests.e2e.goals.scenario import not_right, play
from tests.e2e.harness import Scene

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_goals_are_reached(scene: Scene) -> None:
    assert [] == not_right(play(scene, placing.SEVERAL_VOLUMES, placing.DRAIN, placing.RESTART))
    scene.controllers[-1].wait_ledger_empty()


def test_simulate_says_before_what_happens_then(scene: Scene) -> None:
    assert [] == not_right(play(scene, *foreseen.ALL))


def test_a_bundle_of_the_living_cluster_can_be_asked(scene: Scene, tmp_path: Path) -> None:
    file, kubeconfig = str(tmp_path / "bundle.tar.gz"), scene.cluster.kubeconfig
    made = scene.run("controller", "bundle", "--hash-names", "-f", file, kubeconfig=kubeconfig)
    assert 0 == made.returncode, made.stderr
    assert not [line for line in made.stdout.splitlines() if "missing: objects/" in line]

    asked = scene.run("controller", "simulate", "--objects", file, "-o", "json", kubeconfig=kubeconfig)
    assert 0 == asked.returncode, asked.stderr
    assert not [line for line in json.loads(asked.stdout)["remarks"] if "plans are not among" in line]
