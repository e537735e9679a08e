"""The end-to-end tests run kube-scheduler with what the command prints, not with a copy of it by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.scheduling import with_extender
from tests.unit.scheduler_config.asking import config

ADDRESS = ("10.96.0.7", 30504)


def printed(*words: str) -> dict[str, Any]:
    """What is printed, but for what the test cluster fills in itself."""
    found = config("--for", "plain", "--service-address", ADDRESS[0], "--port", str(ADDRESS[1]), *words)
    del found["clientConnection"]["kubeconfig"], found["leaderElection"]
    return found


def test_the_tests_run_with_what_is_printed() -> None:
    assert printed() == with_extender(ADDRESS)
    words = ["--qps", "60", "--burst", "70", "--http-timeout", "10s", "--allow-long-timeout", "--ignorable"]
    assert printed(*words) == with_extender(ADDRESS, qps=60, burst=70, timeout="10s", ignorable=True)


@pytest.mark.parametrize(
    ("changes", "absent", "other"),
    [
        ({"filter_only": True}, {"prioritizeVerb", "weight", "preemptVerb"}, {}),
        ({"preempt": False}, {"preemptVerb"}, {}),
        ({"bind": True}, set(), {"bindVerb": "bind"}),
        ({"node_cache_capable": False}, set(), {"nodeCacheCapable": False}),
    ],
)
def test_a_test_that_asks_for_a_change_gets_that_one(
    changes: dict[str, Any], absent: set[str], other: dict[str, Any]
) -> None:
    ((expected,), (actual,)) = (found["extenders"] for found in (printed(), with_extender(ADDRESS, **changes)))
    assert {name: value for name, value in expected.items() if name not in absent} | other == actual


def test_what_the_form_of_requests_rests_on_is_printed() -> None:
    """Else the tests that mean to run with names of nodes would run with whole nodes, or not notice that users do."""
    (entry,) = with_extender(ADDRESS)["extenders"]
    assert entry["nodeCacheCapable"] is True
