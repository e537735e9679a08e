"""Programs that place replicas: each a process that asks the leader for one thing after the other, as a manager would.

`python -m tests.e2e.disk_callers ADDRESS FOLDER`, with one request a line on standard input: `replica VOLUME REPLICA`,
`image NAME BYTES` or `expand VOLUME BYTES`. What nobody answers is asked again, for SECONDS in all. One line of JSON
comes out for each request: the request, and either its allocations or the code that refused it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import grpc

from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.client import CallFailedError, DiskSchedulerClient, material_of

NAME: Final = "longhorn-replica-scheduler.longhorn-system.svc"
SECONDS: Final = 60.0
AGAIN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def asked(client: DiskSchedulerClient, words: list[str]) -> list[pb.Allocation]:
    if words[0] == "replica":
        return [client.schedule_replica(words[1], words[2]).allocation]
    if words[0] == "image":
        return [client.schedule_backing_image(words[1], int(words[2])).allocation]
    return list(client.expand_volume(words[1], int(words[2])).allocations)


def answer(ask: Callable[[], list[pb.Allocation]]) -> Iterator[tuple[str, Any]]:
    """What came of it: until an answer, or the end of patience."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            found = ask()
        except CallFailedError as error:
            if error.code in AGAIN and time.monotonic() < end:
                time.sleep(0.05)
                continue
            yield "refused", error.code.name if error.code not in AGAIN else str(error)
            return
        yield "given", [[one.name, one.node, one.disk, one.size_bytes] for one in found]
        return


def main(address: str, folder: str) -> None:
    with DiskSchedulerClient(address, NAME, lambda: material_of(Path(folder))) as client:
        for line in sys.stdin:
            words = line.split()
            for kind, value in answer(lambda words=words: asked(client, words)):  # type: ignore[misc]
                sys.stdout.write(json.dumps({"request": words, kind: value}) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
