"""The memory of the extender and of the webhook under many large bodies at once (`python -m bench.body_memory`).

SENDERS clients send a body each at the same time: JSON that is small on the wire and large once it is decoded, or has
to be held until it is answered. Printed as one JSON object for each case: the peak of resident memory (VmHWM) of the
process that serves, before and during the attack, and the statuses of the answers. The extender is measured over plain
HTTP and TLS. Then one call with 5,000 whole nodes, the largest that a real cluster sends, has to be answered.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bench.certificates import write_certificates
from bench.filter_latency import CLAIMS
from bench.filter_tls import LEAVES, client_context
from bench.made_up import pod_document
from bench.node_bodies import node
from bench.pod_review import HEADERS
from bench.served import ServedProgram, serving
from bench.verdicts import Verdict, add_report_only, conclude

SENDERS: Final = 32
BODY_BYTES: Final = int(7.9 * 1024**2)
MOST_MIB: Final = 256.0
NODES: Final = 5_000  # of the legal call

Shape = Callable[[bytes, bytes], bytes]  # takes what stands before and after


def repeated(text: bytes) -> Shape:
    def make(before: bytes, after: bytes) -> bytes:
        count = (BODY_BYTES - len(before) - len(after) + 1) // (len(text) + 1)
        return before + b",".join([text] * count) + after

    return make


def keys(value: bytes) -> Shape:
    def make(before: bytes, after: bytes) -> bytes:
        count = (BODY_BYTES - len(before) - len(after) + 1) // (len(value) + 10)
        return before + b",".join(b'"%06x":%b' % (number, value) for number in range(count)) + after

    return make


OBJECTS, MANY_KEYS = repeated(b"{}"), keys(b"{}")
POD: Final = b'{"metadata":{"name":"p","namespace":"ns","uid":"u"},"spec":{"volumes":['
META: Final = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",'
POD_REVIEW: Final = META + b'"operation":"CREATE","resource":{"resource":"pods"},"object":{"spec":{"volumes":['
FILTER: Final[Mapping[str, tuple[str, bytes]]] = {
    "volumes": ("/filter", OBJECTS(b'{"Pod":' + POD, b']}},"NodeNames":["n"]}')),
    "nodes": ("/filter", repeated(b'{"m\\u0065tadata":{"name":"a"}}')(b'{"Nodes":{"items":[', b"]}}")),
    "names": ("/filter", repeated(b'"a"')(b'{"NodeNames":[', b"]}")),
    "keys": ("/filter", MANY_KEYS(b"{", b"}")),
    "victims": ("/preempt", MANY_KEYS(b'{"Pod":' + POD + b']}},"NodeNameToVictims":{', b"}}")),
    "meta victims": ("/preempt", MANY_KEYS(b'{"Pod":' + POD + b']}},"NodeNameToMetaVictims":{', b"}}")),
    "binding": ("/bind", MANY_KEYS(b"{", b"}")),
}
REVIEWS: Final[Mapping[str, tuple[str, bytes]]] = {
    "volumes": ("/mutate-pods", OBJECTS(POD_REVIEW, b"]}}}}")),
    "unknown fields": ("/mutate-pods", OBJECTS(META + b'"x":[', b"]}}")),
    "keys": ("/mutate-pods", MANY_KEYS(META + b'"object":{', b"}}}")),
}


def status_kib(process: int, field: str) -> int:
    text = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(f"{field}:")).split()[1])


def worker_of(server: ServedProgram) -> int:
    """The process that answers: gunicorn's only worker."""
    master = server.process.pid
    return int(Path(f"/proc/{master}/task/{master}/children").read_text().split()[0])


def attack(server: ServedProgram, tls: ssl.SSLContext | None, path: str, body: bytes) -> dict[str, Any]:
    """What came of it, and the worker's memory."""
    server.connect(tls).close()
    worker, outcomes, at_once = worker_of(server), Counter[str](), threading.Barrier(SENDERS)
    Path(f"/proc/{worker}/clear_refs").write_text("5")  # the peak begins anew
    before = status_kib(worker, "VmHWM")

    def send() -> None:
        connection = server.connection(tls)
        connection.connect()
        at_once.wait()
        outcome = "closed"
        try:
            connection.request("POST", path, body, HEADERS)
            outcome = str(connection.getresponse().status)
        except (OSError, http.client.HTTPException):
            pass
        outcomes[outcome] += 1
        connection.close()

    senders = [threading.Thread(target=send) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    peak = status_kib(worker, "VmHWM")
    return {
        "mebibytes": round(len(body) / 1024**2, 1),
        "before_mib": round(before / 1024, 1),
        "peak_mib": round(peak / 1024, 1),
        "answers": dict(outcomes),
        "is_well": worker == worker_of(server),
    }


def legal(server: ServedProgram, tls: ssl.SSLContext | None) -> dict[str, Any]:
    """One call with whole nodes."""
    body = json.dumps({"Pod": pod_document(CLAIMS), "Nodes": {"items": [node(number) for number in range(NODES)]}})
    connection, worker = server.connect(tls), worker_of(server)
    connection.request("POST", "/filter", body.encode())
    answer = connection.getresponse()
    answer.read()
    peak = round(status_kib(worker, "VmHWM") / 1024, 1)
    return {"mebibytes": round(len(body) / 1024**2, 1), "status": answer.status, "peak_mib": peak}


def verdict(name: str, result: dict[str, Any]) -> Verdict:
    text = f"{name}: {result['before_mib']:.0f} MiB before, at most {result['peak_mib']:.0f} MiB; {result['answers']}"
    return Verdict(text, result["peak_mib"] <= MOST_MIB and result["is_well"], f"at most {MOST_MIB:g} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    add_report_only(parser)
    options = parser.parse_args()
    checks = list[Verdict]()

    def run(name: str, module: str, *arguments: str, tls: ssl.SSLContext | None = None) -> None:
        for case, (path, body) in (REVIEWS if module == "bench.pod_review" else FILTER).items():
            with serving(module, *arguments) as server:
                result = attack(server, tls, path, body)
            print(json.dumps({"server": name, "case": case, **result}), flush=True)
            checks.append(verdict(f"{name}, {case}", result))

    with tempfile.TemporaryDirectory() as made:
        write_certificates(Path(made), LEAVES)
        run("webhook", "bench.pod_review")
        run("extender", "bench.filter_tls", "--nodes", "100")
        tls = client_context(Path(made))
        run("extender over TLS", "bench.filter_tls", "--nodes", "100", "--folder", made, tls=tls)
    with serving("bench.filter_tls", "--nodes", str(NODES)) as server:
        result = legal(server, None)
    print(json.dumps({"server": "extender", "case": "5,000 whole nodes", **result}), flush=True)
    checks.append(Verdict(f"5,000 whole nodes: {result['status']}", result["status"] == 200, "200"))
    return conclude(checks, is_report_only=options.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
