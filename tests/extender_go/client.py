"""kube-scheduler's extender client as a process that answers questions, and the server it asks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.extender_go.worlds import NAMESPACE, WorldSpec
from tests.ports import HOST
from tests.unit.extender.http_server import ServerProcess

CALL_SECONDS = 30.0
Wiring = Mapping[str, Any]


def wiring(
    url_prefix: str,
    node_cache_capable: bool = True,
    *,
    ignorable: bool = False,
    managed_resources: Sequence[str] = (),
    timeout_milliseconds: int = 4_000,
) -> Wiring:
    """What a scheduler's configuration says of the extender; every verb is on."""
    return {
        "urlPrefix": url_prefix,
        **{f"{verb}Verb": verb for verb in ("filter", "prioritize", "preempt", "bind")},
        "weight": 5,
        "nodeCacheCapable": node_cache_capable,
        "ignorable": ignorable,
        "managedResources": list(managed_resources),
        "timeoutMillis": timeout_milliseconds,
    }


@dataclass(frozen=True, slots=True)
class Understood:
    """What kube-scheduler's client made of a reply. Only the fields of the verb that was asked say anything."""

    error: str
    passed: list[str]
    is_intact: bool
    failed: dict[str, str]
    unresolvable: dict[str, str]
    scores: dict[str, int]
    weight: int
    victims: dict[str, tuple[list[str], int]]
    traits: dict[str, bool]


class SchedulerClient:
    """One `extender-client ask`. Threads: one at a time."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [str(program), "ask"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=CALL_SECONDS)  # its input ends, and so does it

    def ask(self, wiring: Wiring, verb: str, pod: Mapping[str, Any], **more: Any) -> Understood:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"extender": wiring, "verb": verb, "pod": pod, **more}
        # Without spaces: Go keeps some fields as they are spelt, and would send them in another spelling than it got.
        self._process.stdin.write(json.dumps(question, separators=(",", ":")) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the client ended with {self._process.wait(CALL_SECONDS)} at {question}")
        answer = json.loads(line)
        return Understood(
            error=answer["error"],
            passed=answer["passed"] or [],
            is_intact=answer["intact"],
            failed=answer["failed"] or {},
            unresolvable=answer["unresolvable"] or {},
            scores={entry["Host"]: entry["Score"] for entry in answer["scores"] or ()},
            weight=answer["weight"],
            victims={node: (entry["uids"], entry["violations"]) for node, entry in (answer["victims"] or {}).items()},
            traits=answer["is"] or {},
        )

    def filter(self, wiring: Wiring, pod: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> Understood:
        return self.ask(wiring, "filter", pod, nodes=nodes)

    def preempt(
        self,
        wiring: Wiring,
        pod: Mapping[str, Any],
        nodes: Sequence[Mapping[str, Any]],
        victims: Mapping[str, Mapping[str, Any]],
    ) -> Understood:
        """`victims`: by node, the uids of pods that run there, and how many budgets their end violates."""
        running = [
            {"metadata": {"name": uid, "namespace": NAMESPACE, "uid": uid}, "spec": {"nodeName": node}}
            for node, entry in victims.items()
            for uid in entry["uids"]
        ]
        return self.ask(wiring, "preempt", pod, nodes=nodes, running=running, victims=victims)


class ServedExtender(ServerProcess):
    """The product's server over a world that can be exchanged."""

    def __init__(self, folder: Path) -> None:
        super().__init__("tests.extender_go.served", folder)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def put(self, spec: WorldSpec) -> None:
        self._control("POST", "world", spec.as_json())

    def choose(self, claim: str, node: str) -> None:
        """Have the world show that the scheduler chose this node."""
        self._control("POST", f"choice/{claim}/{node}")

    def ledger(self) -> Any:
        return self._control("GET", "ledger")

    def _control(self, method: str, path: str, body: bytes | None = None) -> Any:
        status, answer, _ = self.call(method, f"/test/{path}", body)
        assert status in (200, 204), answer
        return answer
