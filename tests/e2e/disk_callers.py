"""Programs that place replicas: each a process that asks the leader for one thing after the other, as a manager would.

`python -m tests.e2e.disk_callers ADDRESS FOLDER [--pace SECONDS] [--writes KUBECONFIG]`, with one request a line on
standard input: `replica VOLUME REPLICA`, `image NAME BYTES`, `expand VOLUME BYTES`, or `new VOLUME BYTES` for a volume
of one replica. What nobody answers is asked again, for SECONDS in all. One line of JSON comes out for each request: the
request, and either its allocations or the code that refused it, with the disks that have no room. With a pace so many
seconds lie between two requests, and what is refused since Longhorn is the authority is asked again as well: `waited`
says how often. With a kubeconfig it writes what it is told into Longhorn's objects; those of a new volume it makes
before, and takes away if there is no room.
"""

from __future__ import annotations

import argparse
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
from tests.cluster.client import ApiClient
from tests.e2e.manager_writes import drop_volume, make_volume, write_given
from tests.fakes.rpc_client import CallFailedError, DiskSchedulerClient, MountedMaterial, NoRoomError

NAME: Final = "longhorn-replica-scheduler.longhorn-system.svc"
SECONDS: Final = 150.0  # more than a minute after a change of leader, which expansions wait for
LONGHORN: Final = "allocation-authority is longhorn"
AGAIN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def asked(client: DiskSchedulerClient, words: list[str]) -> list[pb.Allocation]:
    if words[0] == "replica":
        return [client.schedule_replica(words[1], words[2]).allocation]
    if words[0] == "new":
        return [client.schedule_replica(words[1], f"{words[1]}-r-0").allocation]
    if words[0] == "image":
        return [client.schedule_backing_image(words[1], int(words[2])).allocation]
    return list(client.expand_volume(words[1], int(words[2])).allocations)


def asked_and_written(client: DiskSchedulerClient, api: ApiClient, words: list[str]) -> list[pb.Allocation]:
    if words[0] == "new":
        make_volume(api, words[1], int(words[2]), replicas=1)
    try:
        found = asked(client, words)
    except NoRoomError:
        if words[0] == "new":
            drop_volume(api, words[1], replicas=1)
        raise
    write_given(api, words, found)
    return found


def answer(ask: Callable[[], list[pb.Allocation]], *, waits: bool = False) -> dict[str, Any]:
    """What came of it: until an answer, or the end of patience."""
    end, waited = time.monotonic() + SECONDS, 0
    while True:
        try:
            found = ask()
        except CallFailedError as error:
            is_other = waits and error.code is grpc.StatusCode.FAILED_PRECONDITION and LONGHORN in error.details
            if (error.code in AGAIN or is_other) and time.monotonic() < end:
                waited += is_other
                time.sleep(0.05)
                continue
            code = error.code.name if error.code not in AGAIN else str(error)
            return {"refused": code, "waited": waited, **reasons(error)}
        return {"given": [[one.name, one.node, one.disk, one.size_bytes] for one in found], "waited": waited}


def reasons(error: CallFailedError) -> dict[str, Any]:
    if not isinstance(error, NoRoomError):
        return {}
    name = pb.DiskRefusal.Reason.Name
    disks = [[one.node, one.disk, name(one.reason), one.missing_bytes] for one in error.refusals.refusals]
    return {"disks": disks, "more": error.refusals.more}


def main() -> None:
    parser = argparse.ArgumentParser(prog="disk_callers")
    parser.add_argument("address")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--writes", type=Path)
    given = parser.parse_args()
    pause = threading.Event()  # which nobody sets
    with DiskSchedulerClient(given.address, NAME, MountedMaterial(given.folder)) as client:
        ask = partial(asked, client)
        if given.writes:
            ask = partial(asked_and_written, client, ApiClient.from_kubeconfig(given.writes))
        for line in sys.stdin:
            words = line.split()
            found = answer(partial(ask, words), waits=bool(given.pace))
            sys.stdout.write(json.dumps({"request": words, **found}) + "\n")
            sys.stdout.flush()
            pause.wait(given.pace)


if __name__ == "__main__":
    main()
