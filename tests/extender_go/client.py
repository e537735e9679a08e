"""kube-scheduler's extender client as a process that answers questions, and the server it asks."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.extender_go.worlds import WorldSpec

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
CALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a scheduler's configuration says of the extender; every verb is on."""

    url_prefix: str
    node_cache_capable: bool = True
    ignorable: bool = False
    managed_resources: tuple[str, ...] = ()
    timeout_milliseconds: int = 4_000
    filter_verb: str = "filter"
    prioritize_verb: str = "prioritize"

    def as_json(self) -> dict[str, Any]:
        return {
            "urlPrefix": self.url_prefix,
            "filterVerb": self.filter_verb,
            "prioritizeVerb": self.prioritize_verb,
            "preemptVerb": "preempt",
            "bindVerb": "bind",
            "weight": 5,
            "nodeCacheCapable": self.node_cache_capable,
            "ignorable": self.ignorable,
            "managedResources": list(self.managed_resources),
            "timeoutMillis": self.timeout_milliseconds,
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
        question = {"extender": wiring.as_json(), "verb": verb, "pod": pod, **more}
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


class ServedExtender:
    """The product's server as a process. Threads: any, each with a connection of its own."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.extender_go.served", str(self.port)],
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self._wait_started()

    def _wait_started(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.call("GET", "/healthz")[0] == 200:
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("the server did not start")

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
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(CALL_SECONDS)
        self._log.close()
