"""kube-scheduler's extender client as a process that answers questions, and the server it asks."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.extender_go.worlds import NAMESPACE, WorldSpec
from tests.ports import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
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


class ServedExtender:
    """The product's server as a process. Threads: any, each with a connection of its own."""

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.extender_go.served", str(self.port)],
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        wait_until(self._is_up, "server that answers", START_SECONDS)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, "the server did not start"
        with suppress(OSError):
            return self.call("GET", "/healthz")[0] == 200
        return False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_SECONDS)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def put(self, spec: WorldSpec) -> None:
        status, answer = self.call("POST", "/test/world", spec.as_json())
        assert status == 204, answer

    def choose(self, claim: str, node: str) -> None:
        """Have the world show that the scheduler chose this node."""
        status, answer = self.call("POST", f"/test/choice/{claim}/{node}")
        assert status == 204, answer

    def ledger(self) -> dict[str, Any]:
        status, answer = self.call("GET", "/test/ledger")
        assert status == 200, answer
        found: dict[str, Any] = json.loads(answer)
        return found

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(CALL_SECONDS)
        self._log.close()
