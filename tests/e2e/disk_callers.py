"""Programs that place replicas: each a process that asks the leader for one thing after the other, as a manager would.

`python -m tests.e2e.disk_callers ADDRESS FOLDER [PACE]`, with one request a line on standard input: `replica VOLUME
REPLICA`, `image NAME BYTES` or `expand VOLUME BYTES`. What nobody answers is asked again, for SECONDS in all. One line
of JSON comes out for each request: the request, and either its allocations or the code that refused it. With PACE so
many seconds lie between two requests, and what is refused since Longhorn is the authority is asked again as well:
`waited` says how often.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc

from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.client import CallFailedError, DiskSchedulerClient, MountedMaterial

NAME: Final = "longhorn-replica-scheduler.longhorn-system.svc"
SECONDS: Final = 60.0
AGAIN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def asked(client: DiskSchedulerClient, words: list[str]) -> list[pb.Allocation]:
    if words[0] == "replica":
        return [client.schedule_replica(words[1], words[2]).allocation]
    if words[0] == "image":
        return [client.schedule_backing_image(words[1], int(words[2])).allocation]
    return list(client.expand_volume(words[1], int(words[2])).allocations)


def answer(ask: Callable[[], list[pb.Allocation]], *, waits: bool = False) -> dict[str, Any]:
    """What came of it: until an answer, or the end of patience."""
    end, waited = time.monotonic() + SECONDS, 0
    while True:
        try:
            found = ask()
        except CallFailedError as error:
            is_other = waits and error.code is grpc.StatusCode.FAILED_PRECONDITION
            if (error.code in AGAIN or is_other) and time.monotonic() < end:
                waited += is_other
                time.sleep(0.05)
                continue
            return {"refused": error.code.name if error.code not in AGAIN else str(error), "waited": waited}
        given = [[one.name, one.node, one.disk, one.size_bytes] for one in found]
        return {"given": given, "waited": waited}


def main(address: str, folder: str, pace: str = "") -> None:
    pause = threading.Event()  # which nobody sets
    with DiskSchedulerClient(address, NAME, MountedMaterial(Path(folder))) as client:
        for line in sys.stdin:
            words = line.split()
            found = answer(partial(asked, client, words), waits=bool(pace))
            sys.stdout.write(json.dumps({"request": words, **found}) + "\n")
            sys.stdout.flush()
            pause.wait(float(pace or 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
