"""Filter calls about canaries, and as evidence; everything else goes on to the service behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from controller.canary.proof import Recognition
from controller.errors import NotLeaderError, NotReadyError
from extender import wire
from extender.canary import REFUSAL, CanaryFilter
from extender.preconditions import PodFailedError

NODES = ["n1", "n2"]


class Beneath:
    """What a filter call meets: the service, the terms, and the proof."""

    def __init__(self) -> None:
        self.recognition = Recognition.NO_CANARY
        self.passed_on: list[str] = []
        self.heard_of: list[tuple[str, str, str]] = []
        self.is_open, self.term = True, 1
        self.on_recognise: Callable[[], None] = lambda: None
        self.filter = CanaryFilter(self, self, self)

    def is_ready(self) -> bool:
        return self.is_open

    def filter_pod(self, args: wire.FilterArgs, is_client_gone: Callable[[], bool]) -> bytes:
        self.passed_on.append(args.pod_uid)
        return b"answer"

    def begin(self) -> int:
        if not self.is_open:
            raise NotLeaderError("not leading")
        return self.term

    def check_term(self, term: int) -> None:
        if term != self.term:
            raise NotReadyError("another term")

    def recognise(self, pod_uid: str, pod_namespace: str, pod_name: str) -> Recognition:
        self.on_recognise()
        return self.recognition

    def heard(self, scheduler: str, pod_uid: str, pod_key: str) -> None:
        self.heard_of.append((scheduler, pod_uid, pod_key))

    def ask(self, *, full: bool = False) -> bytes:
        pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"schedulerName": "s"}}
        items = {"items": [{"metadata": {"name": name}} for name in NODES]}
        body: dict[str, Any] = {"Pod": pod, "Nodes": items} if full else {"Pod": pod, "NodeNames": NODES}
        return self.filter.filter_pod(wire.decode_filter_args(json.dumps(body).encode()), lambda: False)


def test_a_pod_that_is_no_canary_is_evidence_and_goes_on() -> None:
    beneath = Beneath()
    assert b"answer" == beneath.ask()
    assert (["u"], [("s", "u", "ns/p")]) == (beneath.passed_on, beneath.heard_of)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("recognition", [Recognition.OURS, Recognition.LATE])
def test_the_canary_is_refused_on_every_node_for_good_in_the_form_that_was_asked(
    recognition: Recognition, full: bool
) -> None:
    """Late as well, when it has been deleted: an error would look like an attempt that failed."""
    beneath = Beneath()
    beneath.recognition = recognition
    answer = json.loads(beneath.ask(full=full))
    assert dict.fromkeys(NODES, REFUSAL) == answer["FailedAndUnresolvableNodes"]
    assert ("", {}) == (answer["Error"], answer["FailedNodes"])
    assert (([], None) if not full else (None, [])) == (
        answer["NodeNames"],
        answer["Nodes"]["items"] if answer["Nodes"] else None,
    )
    assert ([], []) == (beneath.passed_on, beneath.heard_of)


def test_a_canary_of_another_leader_gets_an_error_and_never_a_node() -> None:
    beneath = Beneath()
    beneath.recognition = Recognition.STRAY
    with pytest.raises(PodFailedError):
        beneath.ask()
    assert ([], []) == (beneath.passed_on, beneath.heard_of)


def test_a_process_that_does_not_lead_takes_no_evidence() -> None:
    beneath = Beneath()
    beneath.is_open = False
    with pytest.raises(NotLeaderError):
        beneath.ask()
    assert [] == beneath.heard_of
    assert not beneath.filter.is_ready()


def test_an_answer_about_a_canary_belongs_to_its_term() -> None:
    beneath = Beneath()
    beneath.recognition = Recognition.OURS

    def end_term() -> None:
        beneath.term = 2

    beneath.on_recognise = end_term
    with pytest.raises(NotReadyError):
        beneath.ask()
