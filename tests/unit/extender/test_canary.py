"""Filter calls about canaries, and as evidence; everything else goes on to the service behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.canary.proof import Recognition
from controller.errors import NotLeaderError, NotReadyError
from extender import wire
from extender.canary import REFUSAL, CanaryFilter
from extender.preconditions import PodFailedError

NODES = ["n1", "n2"]


@dataclass
class Beneath:
    """What a filter call meets: the service, the terms, and the proof."""

    recognition: Recognition = Recognition.NO_CANARY
    is_open: bool = True
    knows_callers: bool = True
    term_at_end: int = 1
    passed_on: list[str] = field(default_factory=list)
    heard_of: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.filter = CanaryFilter(self, self, self)

    def check_ready(self) -> None:
        self.begin()

    def filter_pod(self, args: wire.FilterArgs, is_client_gone: Callable[[], bool]) -> bytes:
        self.passed_on.append(args.pod.uid)
        return b"answer"

    def begin(self) -> int:
        if not self.is_open:
            raise NotLeaderError("not leading")
        return 1

    def check_term(self, term: int) -> None:
        if term != self.term_at_end:
            raise NotReadyError("another term")

    def recognise(self, pod_uid: str, pod_namespace: str, pod_name: str) -> Recognition:
        return self.recognition

    def heard(self, scheduler: str, pod_uid: str, pod_key: str, *, is_sure: bool) -> None:
        self.heard_of.append((scheduler, pod_uid, pod_key, is_sure))

    def ask(self, *, full: bool = False) -> bytes:
        pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"schedulerName": "s"}}
        items = {"items": [{"metadata": {"name": name}} for name in NODES]}
        body: dict[str, Any] = {"Pod": pod, "Nodes": items} if full else {"Pod": pod, "NodeNames": NODES}
        return self.filter.filter_pod(wire.decode_filter_args(json.dumps(body).encode()), lambda: False)


@pytest.mark.parametrize("knows_callers", [True, False])
def test_a_pod_that_is_no_canary_is_evidence_and_goes_on(knows_callers: bool) -> None:
    beneath = Beneath(knows_callers=knows_callers)
    assert b"answer" == beneath.ask()
    assert (["u"], [("s", "u", "ns/p", knows_callers)]) == (beneath.passed_on, beneath.heard_of)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("recognition", [Recognition.OURS, Recognition.LATE])
def test_the_canary_is_refused_on_every_node_in_the_form_asked_for(recognition: Recognition, full: bool) -> None:
    """Late as well, when it has been deleted: an error would look like an attempt that failed."""
    beneath = Beneath(recognition)
    answer = json.loads(beneath.ask(full=full))
    assert dict.fromkeys(NODES, REFUSAL) == answer["FailedAndUnresolvableNodes"]
    assert ("", {}) == (answer["Error"], answer["FailedNodes"])
    assert (([], None) if not full else (None, [])) == (
        answer["NodeNames"],
        answer["Nodes"]["items"] if answer["Nodes"] else None,
    )
    assert ([], []) == (beneath.passed_on, beneath.heard_of)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"recognition": Recognition.STRAY}, PodFailedError, id="a canary of another leader, never a node"),
        pytest.param({"is_open": False}, NotLeaderError, id="any pod, where nobody leads"),
        pytest.param({"recognition": Recognition.OURS, "term_at_end": 2}, NotReadyError, id="a canary of a past term"),
    ],
)
def test_what_may_not_be_answered_is_an_error_and_no_evidence(changes: dict[str, Any], error: type[Exception]) -> None:
    beneath = Beneath(**changes)
    with pytest.raises(error):
        beneath.ask()
    assert ([], []) == (beneath.passed_on, beneath.heard_of)
    with nullcontext() if beneath.is_open else pytest.raises(NotLeaderError):
        beneath.filter.check_ready()
