"""A disk scheduler that is asked where replicas and copies of images go, in place of the stand-in's own search.

The enhancement text "Synchronized Disk Scheduler" has a manager call it before a replica or a copy is placed, before a
volume grows, and once a replica or a copy is gone. The calls are made with what the service's .proto file says, and
nothing else.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

PROTO: Final = "controller/rpc/disk_scheduler.proto"
REPOSITORY: Final = Path(__file__).resolve().parents[2]
CALL_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 60.0
AGAIN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1),)  # a new channel is a new connection
NO: Final = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)


@dataclass(frozen=True)
class GivenDisk:
    node: str
    uuid: str


class AskedScheduler:
    """`file`: JSON with `address`, `name` (in the server's certificate) and `folder` (tls.crt, tls.key, ca.crt); it is
    read at each new connection.

    Threads: any. Blocks: until there is an answer, PATIENCE_SECONDS at most. I/O: yes.
    """

    def __init__(self, file: str) -> None:
        self._file, self._lock = Path(file), threading.Lock()
        self._channel: grpc.Channel | None = None
        self._messages: Any = None

    def schedule_replica(self, volume: str, replica: str) -> GivenDisk | None:
        """Where it goes; None: nowhere."""
        reply = self._call("ScheduleReplica", volume_name=volume, replica_name=replica)
        return None if reply is None else GivenDisk(reply.allocation.node, reply.allocation.disk_uuid)

    def expand_volume(self, volume: str, size_bytes: int) -> bool:
        """Whether all of its disks have room."""
        return self._call("ExpandVolume", volume_name=volume, size_bytes=size_bytes) is not None

    def deallocate_replica(self, replica: str) -> None:
        self._call("DeallocateReplica", replica_name=replica)

    def schedule_backing_image(self, image: str, size_bytes: int) -> GivenDisk | None:
        """Where a further copy goes; None: nowhere."""
        reply = self._call("ScheduleBackingImage", backing_image_name=image, size_bytes=size_bytes)
        return None if reply is None else GivenDisk(reply.allocation.node, reply.allocation.disk_uuid)

    def deallocate_backing_image(self, image: str, disk_uuid: str) -> None:
        self._call("DeallocateBackingImage", backing_image_name=image, disk_uuid=disk_uuid)

    def _call(self, name: str, **fields: Any) -> Any:
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            messages, channel = self._connected()
            call: Any = channel.unary_unary(
                f"/DiskScheduler/{name}",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=getattr(messages, f"{name}Reply").FromString,
            )
            try:
                return call(getattr(messages, f"{name}Request")(**fields), timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                if error.code() in NO:
                    return None
                if error.code() not in AGAIN or time.monotonic() > end:
                    raise
                self._leave(channel)
                time.sleep(0.1)  # as long as nobody leads

    def _leave(self, channel: grpc.Channel) -> None:
        """One that does not lead goes on to serve: only a new connection leads to another. The old one ends with the
        last call on it."""
        with self._lock:
            if self._channel is channel:
                self._channel = None

    def _connected(self) -> tuple[Any, grpc.Channel]:
        with self._lock:
            if self._channel is None:
                told = json.loads(self._file.read_text())
                folder = Path(told["folder"])
                certificate, key, ca = ((folder / name).read_bytes() for name in ("tls.crt", "tls.key", "ca.crt"))
                credentials = grpc.ssl_channel_credentials(ca, key, certificate)
                options = [*OPTIONS, ("grpc.ssl_target_name_override", told["name"])]
                if self._messages is None:
                    sys.path.append(str(REPOSITORY))  # from there the compiler takes the file
                    self._messages = grpc.protos(PROTO)
                self._channel = grpc.secure_channel(told["address"], credentials, options)
            return self._messages, self._channel
