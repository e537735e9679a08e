"""What Longhorn never makes or attaches is refused for good, and a person is told what is wrong with the class.

tests/scenarios/never_placed.txt tells that it takes no room from anybody.
"""

from __future__ import annotations

import pytest

from controller.allocator.allocator import Decision
from tests.fakes.builders import TestCluster

ONE = {"numberOfReplicas": "1"}
NODES = ("n1", "n2")


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        pytest.param({"dataLocality": "strict-local", "numberOfReplicas": "2"}, "strict-local", id="two local copies"),
        pytest.param({"dataLocality": "strict-local"}, "strict-local", id="strict-local without a count"),
        pytest.param({"dataLocality": "best_effort", **ONE}, "best_effort", id="misspelt locality"),
        pytest.param({"dataLocality": "", **ONE}, "dataLocality", id="empty locality"),
        pytest.param({"dataLocality": "disabled", "numberOfReplicas": "21"}, "21", id="too many copies"),
        pytest.param({"dataLocality": "best-effort", "frontend": "iscsi", **ONE}, "iscsi", id="another frontend"),
        pytest.param({"dataLocality": "disabled", "frontend": "iscsi", **ONE}, "iscsi", id="the same, anywhere"),
    ],
)
def test_a_pod_of_such_a_class_is_told_its_claim_and_what_is_wrong(parameters: dict[str, str], word: str) -> None:
    cluster = TestCluster()
    cluster.add_class("kind", **parameters)
    for name in NODES:
        cluster.add_node(name)
    cluster.add_claim("asks", 80, class_name="kind")
    cluster.add_pod("asks")

    outcome = cluster.filter("asks", *NODES)
    assert (Decision.REFUSED, set(NODES), False) == (outcome.decision, set(outcome.refused), outcome.waitable)
    assert {} == cluster.pending()
    text = cluster.allocator.account_of("pod-asks", NODES)
    assert ("ns/asks" in text, word in text) == (True, True), text
