"""Events: same words become one with a count, noise is quietened, failures cost nobody anything."""

from __future__ import annotations

from typing import Any

import pytest

from controller.errors import ClusterError, UnavailableError
from controller.kube.recorder import NAMESPACE_LIMIT, OBJECT_BURST, QUEUE_LIMIT, Recorder, Target
from controller.kube.resources import EVENTS
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.waiting import wait_until

POD, OTHER = Target("Pod", "ns", "web-0", "uid-1"), Target("Pod", "ns", "web-1", "uid-2")


class RecorderBench:
    def __init__(self) -> None:
        self.server, self.clock = FakeApiServer(), VirtualClock()
        self.recorder = Recorder(self.server, self.clock, component="extender", instance="pod-a")

    def note(self, message: str = "no room", target: Target = POD, **more: bool) -> None:
        self.recorder.note(target, "NoRoom", message, **more)

    def write_due(self) -> None:
        """All that is due, without the pauses between."""
        for _ in range(10_000):
            pause = self.recorder.run_once()
            if pause is None or pause > 0.1:
                return
        raise AssertionError("the recorder does not come to rest")

    def events(self) -> list[dict[str, Any]]:
        return self.server.list_page(EVENTS).items

    def counts(self) -> list[int]:
        return [event["count"] for event in self.events()]


@pytest.fixture
def scene() -> RecorderBench:
    return RecorderBench()


def test_an_event_says_about_whom_what_and_who_tells(scene: RecorderBench) -> None:
    scene.note(is_warning=True)
    scene.write_due()

    (event,) = scene.events()
    pod = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "web-0", "uid": "uid-1"}
    assert pod == event["involvedObject"]
    assert ("Warning", "NoRoom", "no room", 1) == tuple(event[name] for name in ("type", "reason", "message", "count"))
    teller = event["source"]["component"], event["reportingComponent"], event["reportingInstance"]
    assert ("extender", "extender", "pod-a") == teller
    assert "2026-01-01T00:00:00Z" == event["firstTimestamp"] == event["lastTimestamp"]
    assert event["metadata"]["name"].startswith("web-0.")
    assert "ns" == event["metadata"]["namespace"]


def test_an_object_of_the_whole_cluster_has_its_events_in_the_default_namespace(scene: RecorderBench) -> None:
    scene.note(target=Target("Node", "", "n1"))
    scene.write_due()
    (event,) = scene.events()
    assert "default" == event["metadata"]["namespace"]
    assert {"apiVersion": "v1", "kind": "Node", "name": "n1"} == event["involvedObject"]


def test_notes_of_the_same_words_are_one_event(scene: RecorderBench) -> None:
    for _ in range(50):
        scene.note()
    scene.write_due()
    assert [50] == scene.counts()

    scene.clock.advance(9)
    scene.note()
    scene.note()
    scene.write_due()
    assert [50] == scene.counts()  # written again after ten seconds only

    scene.clock.advance(1)
    scene.write_due()
    assert [52] == scene.counts()
    assert "2026-01-01T00:00:09Z" == scene.events()[0]["lastTimestamp"]
    assert "2026-01-01T00:00:00Z" == scene.events()[0]["firstTimestamp"]


def test_other_words_another_object_and_another_severity_are_events_of_their_own(scene: RecorderBench) -> None:
    scene.note()
    scene.note("other")
    scene.note(target=OTHER)
    scene.note(is_warning=True)
    scene.write_due()
    assert [1, 1, 1, 1] == scene.counts()


@pytest.mark.parametrize(
    ("seconds", "is_forgotten", "counts"),
    [
        pytest.param(600, False, [1, 1], id="long after the first"),
        pytest.param(20, True, [1], id="after the server forgot it"),
    ],
)
def test_a_repetition_may_be_a_new_event(
    scene: RecorderBench, seconds: int, is_forgotten: bool, counts: list[int]
) -> None:
    scene.note()
    scene.write_due()
    if is_forgotten:
        scene.server.delete(EVENTS, "ns", scene.events()[0]["metadata"]["name"])
    scene.clock.advance(seconds)
    scene.note()
    scene.write_due()
    assert counts == scene.counts()


def test_a_noisy_object_is_quietened_and_others_are_heard(scene: RecorderBench) -> None:
    for number in range(OBJECT_BURST + 5):
        scene.note(f"message {number}")
    scene.note(target=OTHER)
    scene.write_due()
    assert (OBJECT_BURST + 1, 4) == (len(scene.events()), scene.recorder.dropped)

    scene.clock.advance(120)
    for number in range(5):
        scene.note(f"later {number}")
    scene.write_due()
    assert (OBJECT_BURST + 3, 7) == (len(scene.events()), scene.recorder.dropped)


def test_of_what_a_noisy_object_says_the_last_is_heard(scene: RecorderBench) -> None:
    """State is told in its newest form: an Event that is out of date is never the last word."""
    for number in range(OBJECT_BURST):
        scene.note(f"message {number}")
    scene.clock.advance(1)
    for state in ("lost", "back"):
        for number in range(3):
            scene.note(f"{state} {number}")
    scene.write_due()
    assert (OBJECT_BURST, 5) == (len(scene.events()), scene.recorder.dropped)

    scene.clock.advance(58)
    scene.write_due()
    assert OBJECT_BURST == len(scene.events())
    scene.clock.advance(1)
    scene.write_due()
    assert "back 2" == max(scene.events(), key=lambda event: event["lastTimestamp"])["message"]
    assert (OBJECT_BURST + 1, 5) == (len(scene.events()), scene.recorder.dropped)


def test_an_event_has_the_time_of_what_it_tells_so_that_one_that_waited_does_not_look_like_the_newest(
    scene: RecorderBench,
) -> None:
    scene.note("lost")
    scene.write_due()
    scene.clock.advance(1)
    scene.note("lost")  # a repetition is written after ten seconds
    scene.clock.advance(1)
    scene.note("back")
    scene.write_due()
    scene.clock.advance(10)
    scene.write_due()
    told = {event["message"]: (event["count"], event["lastTimestamp"][-3:]) for event in scene.events()}
    assert {"lost": (2, "01Z"), "back": (1, "02Z")} == told


def note_pods(scene: RecorderBench, namespace: str, count: int, text: str = "no room") -> None:
    for number in range(count):
        scene.note(text, Target("Pod", namespace, f"p{number}"))


def test_the_queue_has_a_limit(scene: RecorderBench) -> None:
    note_pods(scene, "ns", NAMESPACE_LIMIT + 7)
    assert 7 == scene.recorder.dropped
    scene.write_due()
    assert NAMESPACE_LIMIT == len(scene.events())


def test_the_events_of_a_namespace_with_many_keep_those_of_others_neither_out_nor_waiting(scene: RecorderBench) -> None:
    for text in ("no room", "no place"):
        note_pods(scene, "many", 600, text)
    note_pods(scene, "few", 3)
    assert 1_200 - NAMESPACE_LIMIT == scene.recorder.dropped
    for _ in range(6):
        scene.recorder.run_once()
    assert 3 == [event["metadata"]["namespace"] for event in scene.events()].count("few")


def test_in_a_full_queue_the_namespace_with_most_makes_room(scene: RecorderBench) -> None:
    for number in range(QUEUE_LIMIT // NAMESPACE_LIMIT):
        note_pods(scene, f"many-{number}", NAMESPACE_LIMIT)
    assert 0 == scene.recorder.dropped
    note_pods(scene, "few", 5)
    assert 5 == scene.recorder.dropped
    scene.write_due()
    assert 5 == [event["metadata"]["namespace"] for event in scene.events()].count("few")


def test_a_server_that_is_away_is_tried_again_then_given_up(scene: RecorderBench) -> None:
    scene.server.fail_with(UnavailableError("503"), "create", "patch", times=2)
    scene.note()
    for _ in range(3):
        scene.note()
        scene.write_due()
        scene.clock.advance(2)
    assert [4] == scene.counts()

    scene.server.fail_with(UnavailableError("503"), "create", "patch", times=3)
    scene.note("other")
    for _ in range(3):
        scene.write_due()
        scene.clock.advance(2)
    assert 1 == len(scene.events())
    assert 1 == scene.recorder.dropped


def test_a_refusal_is_not_tried_again(scene: RecorderBench) -> None:
    scene.server.fail_with(ClusterError("403: forbidden"), "create", "patch", times=1)
    scene.note()
    for _ in range(2):
        scene.write_due()
        scene.clock.advance(60)
    assert ([], 1) == (scene.events(), scene.recorder.dropped)


def test_a_message_is_cut_to_what_the_server_takes(scene: RecorderBench) -> None:
    scene.note("x" * 5_000, Target("Pod", "ns", "n" * 253))
    scene.write_due()
    (event,) = scene.events()
    assert 1_000 == len(event["message"])
    assert 253 >= len(event["metadata"]["name"])


def test_the_thread_writes_what_comes_and_what_is_due_at_the_end(scene: RecorderBench) -> None:
    scene.recorder.start()
    try:
        scene.note()
        wait_until(lambda: [1] == scene.counts())
        scene.note()  # due in ten seconds, on a clock that stands still; keeps nothing else waiting
        scene.note("other")
        wait_until(lambda: [1, 1] == scene.counts())
        for number in range(10):
            scene.note(f"last words {number}")
    finally:
        scene.recorder.stop(10)

    assert 12 == len(scene.events())
