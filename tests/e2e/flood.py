"""Forged reviews of pods, that many at once, until this process ends: `python -m tests.e2e.flood PORT COUNT`.

Each names claims that nobody has made.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import sys

from tests.cluster.components import LOOPBACK
from tests.e2e import workloads

CLAIMS = 200  # of one pod
_numbers = itertools.count(1)


def review() -> bytes:
    number = next(_numbers)
    pod = workloads.pod(f"p-{number}", *(f"made-up-{number}-{claim}" for claim in range(CLAIMS)), opted_in=False)
    request = {
        "uid": str(number),
        "kind": {"kind": "Pod"},
        "resource": {"resource": "pods"},
        "operation": "CREATE",
        "namespace": "default",
        "object": pod,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode()


async def ask(port: int, context: ssl.SSLContext) -> None:
    """One review on a connection of its own."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    body = review()
    head = f"POST /mutate-pods HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await reader.read()
    writer.close()


async def go_on(port: int, context: ssl.SSLContext) -> None:
    while True:
        try:
            await ask(port, context)
        except (OSError, EOFError):
            await asyncio.sleep(0.01)  # refused: there are too many


async def flood(port: int, count: int) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    await asyncio.gather(*(go_on(port, context) for _ in range(count)))


if __name__ == "__main__":
    asyncio.run(flood(int(sys.argv[1]), int(sys.argv[2])))
