"""kube-scheduler's own HTTPExtender against the product's server over made-up worlds: it must understand exactly what
the Python side says of the same world, in both request forms, whatever the verbs and their order."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.allocator.outcome import Mode
from tests.extender_go.client import SchedulerClient, ServedExtender, Wiring, wiring
from tests.extender_go.twin import Twin
from tests.extender_go.worlds import KINDS, STATES, PodSpec, VolumeSpec, WorldSpec, kube_node, kube_pod

NODES = ("n1", "n2", "worker-3.example.com", "refuses-4", "5")
STRANGER = "node-that-longhorn-does-not-know"
SIZES = st.sampled_from((1, 40, 50, 99, 100, 101, 400))
# Everything that JSON can carry; Go and Python escape it differently.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def worlds(draw: st.DrawFn) -> WorldSpec:
    nodes = draw(
        st.dictionaries(st.sampled_from(NODES), st.lists(SIZES, min_size=1, max_size=2).map(tuple), min_size=1)
    )
    volumes = [
        VolumeSpec(
            f"claim{number}",
            draw(SIZES),
            draw(st.sampled_from(tuple(KINDS))),
            draw(st.sampled_from(("", "", "", *nodes))),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    states = st.sampled_from(("pending",) * 8 + STATES)  # mostly what can be answered
    pods = tuple(
        PodSpec(f"pod{number}", tuple(draw(st.lists(st.sampled_from(volumes), max_size=2, unique=True))), draw(states))
        for number in range(draw(st.integers(1, 3)))
    )
    mode = draw(st.sampled_from((Mode.ACTIVE,) * 9 + (Mode.BYPASS,)))
    return WorldSpec(nodes, pods, mode, draw(st.sampled_from((0, 1, 2, 100))))


@st.composite
def calls(draw: st.DrawFn, spec: WorldSpec) -> dict[str, Any]:
    """One call of a scheduler: the verb, the pod, the nodes in some order, whom it would evict there."""
    candidates = draw(st.lists(st.sampled_from((*spec.nodes, STRANGER)), max_size=5, unique=True))
    victims = {
        node: {
            "uids": [f"{node}-{number}" for number in range(draw(st.integers(0, 2)))],
            "violations": draw(st.integers(0, 2)),
        }
        for node in candidates
    }
    return {
        "verb": draw(st.sampled_from(("filter", "filter", "prioritize", "preempt", "bind"))),
        "pod": draw(st.sampled_from(spec.pods)),
        "candidates": candidates,
        "victims": victims,
        "target": draw(st.sampled_from(tuple(spec.nodes))),
        "by_name": draw(st.booleans()),
        "note": draw(TEXTS),
    }


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_scheduler_understands_what_was_decided(
    client: SchedulerClient, server: ServedExtender, data: st.DataObject
) -> None:
    spec = data.draw(worlds(), label="world")
    server.put(spec)
    twin = Twin(spec)
    for call in data.draw(st.lists(calls(spec), min_size=1, max_size=8), label="calls"):
        check_call(client, wiring(server.url, call["by_name"]), twin, call)
    ledger = server.ledger()
    assert twin.ledger() == {name: ledger[name] for name in ("promises", "bound")}


def check_call(client: SchedulerClient, wired: Wiring, twin: Twin, call: dict[str, Any]) -> None:
    spec: PodSpec = call["pod"]
    candidates, pod = call["candidates"], kube_pod(spec)
    nodes = [kube_node(name, note=call["note"]) for name in candidates]
    match call["verb"]:
        case "filter":
            filtered, verdict = client.filter(wired, pod, nodes), twin.filter(spec, candidates)
            assert filtered.error == verdict.error
            assert filtered.passed == verdict.passed
            assert filtered.unresolvable == verdict.unresolvable
            assert filtered.failed == {}
            assert filtered.is_intact is not bool(verdict.error)
        case "prioritize":
            scored = client.ask(wired, "prioritize", pod, nodes=nodes)
            assert (scored.error, scored.scores) == ("", twin.prioritize(spec, candidates))
        case "preempt":
            kept = client.preempt(wired, pod, nodes, call["victims"])
            assert (kept.error, kept.victims) == ("", twin.preempt(spec, call["victims"]))
        case "bind":
            bound = client.ask(wired, "bind", pod, target=call["target"])
            assert bound.error == twin.bind(spec, call["target"])
