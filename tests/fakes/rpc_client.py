"""A client of the leader's DiskScheduler service, for tests and benches.

It shows a client certificate and believes the server by its name. Certificates may change while it lives: each new
connection takes what holds then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
from google.protobuf.message import Message

from controller.errors import SchedulerError
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import Current, ReloadingChannel
from controller.rpc.wire import REFUSALS_KEY, SERVICE
from controller.serving.tls import Material, read_directory

SECONDS: Final = 5.0
READ_SECONDS: Final = 1.0  # after which a mounted Secret is read anew
_STATUS = grpc.StatusCode
_Reply = TypeVar("_Reply", bound=Message)
# After these a new connection may help: another process leads, or no answer came. The others are the leader's answers.
_CONNECT_ANEW: Final = frozenset(
    (_STATUS.UNAVAILABLE, _STATUS.DEADLINE_EXCEEDED, _STATUS.CANCELLED, _STATUS.INTERNAL, _STATUS.UNKNOWN)
)


class CallFailedError(SchedulerError):
    """The call has no answer. `code` is gRPC's, UNAVAILABLE among others: nobody leads at the moment, ask again."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code, self.details = code, details


class NoRoomError(CallFailedError):
    """No disk takes it, and `refusals` tells why."""

    def __init__(self, code: grpc.StatusCode, details: str, refusals: pb.DiskRefusals) -> None:
        super().__init__(code, details)
        self.refusals = refusals


class DiskSchedulerClient:
    """Calls of the leader, each tried once.

    Threads: any. Blocks: for a call's `seconds`. I/O: yes. A call raises CallFailedError when there is no answer, and
    NotReadyError without a certificate.
    """

    def __init__(self, address: str, server_name: str, current: Current) -> None:
        """`address`: host and port. `server_name`: in the leader's certificate. `current`: what to call with."""
        self._reloading = ReloadingChannel(address, server_name, current)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _: BaseException | None, _at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._reloading.close()

    def find_disk_candidates(
        self, volume: str, replica: str = "", *, hard_node_affinity: str = "", seconds: float = SECONDS
    ) -> pb.DiskListReply:
        """Which disks would take that replica of the volume, or a further one."""
        request = pb.FindDiskCandidatesRequest(
            volume_name=volume, replica_name=replica, hard_node_affinity=hard_node_affinity
        )
        return self._call("FindDiskCandidates", request, pb.DiskListReply, seconds)

    def hold_expansion(
        self, volume: str, size_bytes: int, *, dry_run: bool = False, seconds: float = SECONDS
    ) -> pb.HoldExpansionReply:
        """Whether that Longhorn volume may grow; if so it is held, unless it is a dry run."""
        request = pb.HoldExpansionRequest(volume_name=volume, size_bytes=size_bytes, dry_run=dry_run)
        return self._call("HoldExpansion", request, pb.HoldExpansionReply, seconds)

    def schedule_replica(self, volume: str, replica: str, *, seconds: float = SECONDS) -> pb.ScheduleReplicaReply:
        """A disk for that replica, durably; NoRoomError when no disk takes it."""
        request = pb.ScheduleReplicaRequest(volume_name=volume, replica_name=replica)
        return self._call("ScheduleReplica", request, pb.ScheduleReplicaReply, seconds)

    def reuse_failed_replica(
        self, volume: str, *, hard_node_affinity: str = "", seconds: float = SECONDS
    ) -> pb.ScheduleReplicaReply:
        """The failed replica of that volume that comes back; NoRoomError when none does."""
        request = pb.ReuseFailedReplicaRequest(volume_name=volume, hard_node_affinity=hard_node_affinity)
        return self._call("ReuseFailedReplica", request, pb.ScheduleReplicaReply, seconds)

    def expand_volume(self, volume: str, size_bytes: int, *, seconds: float = SECONDS) -> pb.ExpandVolumeReply:
        """Allocates room for all its replicas at that size, durably. Raises NoRoomError if one of the disks has
        none."""
        request = pb.ExpandVolumeRequest(volume_name=volume, size_bytes=size_bytes)
        return self._call("ExpandVolume", request, pb.ExpandVolumeReply, seconds)

    def deallocate_replica(self, replica: str, *, seconds: float = SECONDS) -> pb.DeallocateReplicaReply:
        """Its room is free again; nothing happens where it has none."""
        request = pb.DeallocateReplicaRequest(replica_name=replica)
        return self._call("DeallocateReplica", request, pb.DeallocateReplicaReply, seconds)

    def schedule_backing_image(
        self, image: str, size_bytes: int = 0, *, seconds: float = SECONDS
    ) -> pb.ScheduleBackingImageReply:
        """A disk for a further copy, durably; NoRoomError when no disk takes it."""
        request = pb.ScheduleBackingImageRequest(backing_image_name=image, size_bytes=size_bytes)
        return self._call("ScheduleBackingImage", request, pb.ScheduleBackingImageReply, seconds)

    def deallocate_backing_image(
        self, image: str, disk_uuid: str, *, seconds: float = SECONDS
    ) -> pb.DeallocateBackingImageReply:
        """Frees the room of the copy on that disk; does nothing if there is none."""
        request = pb.DeallocateBackingImageRequest(backing_image_name=image, disk_uuid=disk_uuid)
        return self._call("DeallocateBackingImage", request, pb.DeallocateBackingImageReply, seconds)

    def _call(self, name: str, request: Any, reply: type[_Reply], seconds: float) -> _Reply:
        with self._reloading.channel() as channel:
            call = channel.unary_unary(
                f"/{SERVICE}/{name}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=reply.FromString,
            )
            try:
                answer: _Reply = call(request, timeout=seconds)
                return answer
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise _no_room(error) from error
                if error.code() in _CONNECT_ANEW:
                    self._reloading.drop(channel)
                raise CallFailedError(error.code(), error.details() or "") from error


def _no_room(error: grpc.RpcError) -> CallFailedError:
    """With why; the server's own limit on calls has the same code and tells nothing."""
    details = error.details() or ""
    metadata: Any = error.trailing_metadata() or ()  # the stubs have no pairs
    for key, value in metadata:
        if key == REFUSALS_KEY:
            return NoRoomError(error.code(), details, pb.DiskRefusals.FromString(value))
    return CallFailedError(error.code(), details)


class MountedMaterial:
    """What a mounted Secret of type `kubernetes.io/tls` holds; to be called with. It is read anew a second later at the
    earliest, so that a renewed certificate is taken up.

    Threads: any. Blocks: never. I/O: the files. Raises ConfigError, which names a file that cannot be read.
    """

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._now = folder, now
        self._read: tuple[float, Material] | None = None  # when, and what it was

    def __call__(self) -> Material:
        now, read = self._now(), self._read
        if read is None or now - read[0] >= READ_SECONDS:
            read = self._read = now, read_directory(self._folder)
        return read[1]
