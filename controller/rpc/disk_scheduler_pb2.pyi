from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HoldExpansionRequest(_message.Message):
    __slots__ = ("claim_namespace", "claim_name", "volume_name", "size_bytes", "dry_run")
    CLAIM_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_NAME_FIELD_NUMBER: _ClassVar[int]
    VOLUME_NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    claim_namespace: str
    claim_name: str
    volume_name: str
    size_bytes: int
    dry_run: bool
    def __init__(self, claim_namespace: _Optional[str] = ..., claim_name: _Optional[str] = ..., volume_name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class HoldExpansionReply(_message.Message):
    __slots__ = ("verdict", "volume_name", "size_bytes", "largest_bytes", "problems", "more_may_fit")
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERDICT_UNSPECIFIED: _ClassVar[HoldExpansionReply.Verdict]
        ADMITTED: _ClassVar[HoldExpansionReply.Verdict]
        REFUSED: _ClassVar[HoldExpansionReply.Verdict]
        NOT_CHECKED: _ClassVar[HoldExpansionReply.Verdict]
        TRY_AGAIN: _ClassVar[HoldExpansionReply.Verdict]
    VERDICT_UNSPECIFIED: HoldExpansionReply.Verdict
    ADMITTED: HoldExpansionReply.Verdict
    REFUSED: HoldExpansionReply.Verdict
    NOT_CHECKED: HoldExpansionReply.Verdict
    TRY_AGAIN: HoldExpansionReply.Verdict
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    VOLUME_NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LARGEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    MORE_MAY_FIT_FIELD_NUMBER: _ClassVar[int]
    verdict: HoldExpansionReply.Verdict
    volume_name: str
    size_bytes: int
    largest_bytes: int
    problems: _containers.RepeatedCompositeFieldContainer[ExpansionProblem]
    more_may_fit: bool
    def __init__(self, verdict: _Optional[_Union[HoldExpansionReply.Verdict, str]] = ..., volume_name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., largest_bytes: _Optional[int] = ..., problems: _Optional[_Iterable[_Union[ExpansionProblem, _Mapping]]] = ..., more_may_fit: _Optional[bool] = ...) -> None: ...

class ExpansionProblem(_message.Message):
    __slots__ = ("node", "disk", "missing_bytes", "reason", "message")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    MISSING_BYTES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    node: str
    disk: str
    missing_bytes: int
    reason: str
    message: str
    def __init__(self, node: _Optional[str] = ..., disk: _Optional[str] = ..., missing_bytes: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class FindDiskCandidatesRequest(_message.Message):
    __slots__ = ("volume_name", "replica_name", "hard_node_affinity")
    VOLUME_NAME_FIELD_NUMBER: _ClassVar[int]
    REPLICA_NAME_FIELD_NUMBER: _ClassVar[int]
    HARD_NODE_AFFINITY_FIELD_NUMBER: _ClassVar[int]
    volume_name: str
    replica_name: str
    hard_node_affinity: str
    def __init__(self, volume_name: _Optional[str] = ..., replica_name: _Optional[str] = ..., hard_node_affinity: _Optional[str] = ...) -> None: ...

class DiskListReply(_message.Message):
    __slots__ = ("size_bytes", "candidates", "preferred", "refusals", "tried")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    TRIED_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    candidates: _containers.RepeatedCompositeFieldContainer[DiskCandidate]
    preferred: DiskCandidate
    refusals: _containers.RepeatedCompositeFieldContainer[DiskRefusal]
    tried: str
    def __init__(self, size_bytes: _Optional[int] = ..., candidates: _Optional[_Iterable[_Union[DiskCandidate, _Mapping]]] = ..., preferred: _Optional[_Union[DiskCandidate, _Mapping]] = ..., refusals: _Optional[_Iterable[_Union[DiskRefusal, _Mapping]]] = ..., tried: _Optional[str] = ...) -> None: ...

class DiskCandidate(_message.Message):
    __slots__ = ("node", "disk", "disk_uuid", "free_bytes", "promised_bytes")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    DISK_UUID_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROMISED_BYTES_FIELD_NUMBER: _ClassVar[int]
    node: str
    disk: str
    disk_uuid: str
    free_bytes: int
    promised_bytes: int
    def __init__(self, node: _Optional[str] = ..., disk: _Optional[str] = ..., disk_uuid: _Optional[str] = ..., free_bytes: _Optional[int] = ..., promised_bytes: _Optional[int] = ...) -> None: ...

class DiskRefusal(_message.Message):
    __slots__ = ("node", "disk", "missing_bytes", "reason", "message")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[DiskRefusal.Reason]
        NODE_DELETING: _ClassVar[DiskRefusal.Reason]
        NODE_NOT_READY: _ClassVar[DiskRefusal.Reason]
        NODE_UNSCHEDULABLE: _ClassVar[DiskRefusal.Reason]
        V2_DISABLED: _ClassVar[DiskRefusal.Reason]
        HARD_AFFINITY: _ClassVar[DiskRefusal.Reason]
        TOPOLOGY: _ClassVar[DiskRefusal.Reason]
        LINKED_CLONE: _ClassVar[DiskRefusal.Reason]
        ENGINE_NOT_READY: _ClassVar[DiskRefusal.Reason]
        NODE_TAGS: _ClassVar[DiskRefusal.Reason]
        NODE_ANTI_AFFINITY: _ClassVar[DiskRefusal.Reason]
        ZONE_ANTI_AFFINITY: _ClassVar[DiskRefusal.Reason]
        DISK_ANTI_AFFINITY: _ClassVar[DiskRefusal.Reason]
        DISK_NOT_FOUND: _ClassVar[DiskRefusal.Reason]
        DISK_UNSCHEDULABLE: _ClassVar[DiskRefusal.Reason]
        DISK_TYPE: _ClassVar[DiskRefusal.Reason]
        DISK_TAGS: _ClassVar[DiskRefusal.Reason]
        INCOMPATIBLE_SIZE: _ClassVar[DiskRefusal.Reason]
        TOO_FULL: _ClassVar[DiskRefusal.Reason]
        INSUFFICIENT_STORAGE: _ClassVar[DiskRefusal.Reason]
        BACKING_IMAGE: _ClassVar[DiskRefusal.Reason]
        BACKING_IMAGE_NOT_FOUND: _ClassVar[DiskRefusal.Reason]
        ALREADY_SCHEDULED: _ClassVar[DiskRefusal.Reason]
        UNUSED_FAILED_REPLICA: _ClassVar[DiskRefusal.Reason]
        DEGRADED_SINCE_UNKNOWN: _ClassVar[DiskRefusal.Reason]
        CONTENDED: _ClassVar[DiskRefusal.Reason]
        NO_LONGHORN_NODE: _ClassVar[DiskRefusal.Reason]
        NO_USABLE_DISK: _ClassVar[DiskRefusal.Reason]
        REPLICA_ELSEWHERE: _ClassVar[DiskRefusal.Reason]
        IN_USE_ELSEWHERE: _ClassVar[DiskRefusal.Reason]
        SERVED_ELSEWHERE: _ClassVar[DiskRefusal.Reason]
        PHYSICAL_SPACE: _ClassVar[DiskRefusal.Reason]
        NOT_REUSABLE: _ClassVar[DiskRefusal.Reason]
        RESTORING: _ClassVar[DiskRefusal.Reason]
        CLONING: _ClassVar[DiskRefusal.Reason]
        CLONE_FAILED: _ClassVar[DiskRefusal.Reason]
        FAULTED: _ClassVar[DiskRefusal.Reason]
        IN_TRANSITION: _ClassVar[DiskRefusal.Reason]
        MIGRATING: _ClassVar[DiskRefusal.Reason]
        NOT_SCHEDULED: _ClassVar[DiskRefusal.Reason]
        ENGINE_NOT_EXPANDABLE: _ClassVar[DiskRefusal.Reason]
        DISK_NOT_READY: _ClassVar[DiskRefusal.Reason]
        NO_ROOM_IN_CLUSTER: _ClassVar[DiskRefusal.Reason]
        KEPT: _ClassVar[DiskRefusal.Reason]
        NOT_EVALUATED: _ClassVar[DiskRefusal.Reason]
        NEVER_PLACED: _ClassVar[DiskRefusal.Reason]
        LEADER_CHANGED: _ClassVar[DiskRefusal.Reason]
        RECORD_UNWRITABLE: _ClassVar[DiskRefusal.Reason]
        BACKING_IMAGE_SIZE_UNKNOWN: _ClassVar[DiskRefusal.Reason]
    REASON_UNSPECIFIED: DiskRefusal.Reason
    NODE_DELETING: DiskRefusal.Reason
    NODE_NOT_READY: DiskRefusal.Reason
    NODE_UNSCHEDULABLE: DiskRefusal.Reason
    V2_DISABLED: DiskRefusal.Reason
    HARD_AFFINITY: DiskRefusal.Reason
    TOPOLOGY: DiskRefusal.Reason
    LINKED_CLONE: DiskRefusal.Reason
    ENGINE_NOT_READY: DiskRefusal.Reason
    NODE_TAGS: DiskRefusal.Reason
    NODE_ANTI_AFFINITY: DiskRefusal.Reason
    ZONE_ANTI_AFFINITY: DiskRefusal.Reason
    DISK_ANTI_AFFINITY: DiskRefusal.Reason
    DISK_NOT_FOUND: DiskRefusal.Reason
    DISK_UNSCHEDULABLE: DiskRefusal.Reason
    DISK_TYPE: DiskRefusal.Reason
    DISK_TAGS: DiskRefusal.Reason
    INCOMPATIBLE_SIZE: DiskRefusal.Reason
    TOO_FULL: DiskRefusal.Reason
    INSUFFICIENT_STORAGE: DiskRefusal.Reason
    BACKING_IMAGE: DiskRefusal.Reason
    BACKING_IMAGE_NOT_FOUND: DiskRefusal.Reason
    ALREADY_SCHEDULED: DiskRefusal.Reason
    UNUSED_FAILED_REPLICA: DiskRefusal.Reason
    DEGRADED_SINCE_UNKNOWN: DiskRefusal.Reason
    CONTENDED: DiskRefusal.Reason
    NO_LONGHORN_NODE: DiskRefusal.Reason
    NO_USABLE_DISK: DiskRefusal.Reason
    REPLICA_ELSEWHERE: DiskRefusal.Reason
    IN_USE_ELSEWHERE: DiskRefusal.Reason
    SERVED_ELSEWHERE: DiskRefusal.Reason
    PHYSICAL_SPACE: DiskRefusal.Reason
    NOT_REUSABLE: DiskRefusal.Reason
    RESTORING: DiskRefusal.Reason
    CLONING: DiskRefusal.Reason
    CLONE_FAILED: DiskRefusal.Reason
    FAULTED: DiskRefusal.Reason
    IN_TRANSITION: DiskRefusal.Reason
    MIGRATING: DiskRefusal.Reason
    NOT_SCHEDULED: DiskRefusal.Reason
    ENGINE_NOT_EXPANDABLE: DiskRefusal.Reason
    DISK_NOT_READY: DiskRefusal.Reason
    NO_ROOM_IN_CLUSTER: DiskRefusal.Reason
    KEPT: DiskRefusal.Reason
    NOT_EVALUATED: DiskRefusal.Reason
    NEVER_PLACED: DiskRefusal.Reason
    LEADER_CHANGED: DiskRefusal.Reason
    RECORD_UNWRITABLE: DiskRefusal.Reason
    BACKING_IMAGE_SIZE_UNKNOWN: DiskRefusal.Reason
    NODE_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    MISSING_BYTES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    node: str
    disk: str
    missing_bytes: int
    reason: DiskRefusal.Reason
    message: str
    def __init__(self, node: _Optional[str] = ..., disk: _Optional[str] = ..., missing_bytes: _Optional[int] = ..., reason: _Optional[_Union[DiskRefusal.Reason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class DiskRefusals(_message.Message):
    __slots__ = ("size_bytes", "refusals", "more")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    refusals: _containers.RepeatedCompositeFieldContainer[DiskRefusal]
    more: int
    def __init__(self, size_bytes: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[DiskRefusal, _Mapping]]] = ..., more: _Optional[int] = ...) -> None: ...

class Allocation(_message.Message):
    __slots__ = ("name", "node", "disk", "disk_uuid", "size_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    DISK_UUID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    node: str
    disk: str
    disk_uuid: str
    size_bytes: int
    def __init__(self, name: _Optional[str] = ..., node: _Optional[str] = ..., disk: _Optional[str] = ..., disk_uuid: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ScheduleReplicaRequest(_message.Message):
    __slots__ = ("volume_name", "replica_name")
    VOLUME_NAME_FIELD_NUMBER: _ClassVar[int]
    REPLICA_NAME_FIELD_NUMBER: _ClassVar[int]
    volume_name: str
    replica_name: str
    def __init__(self, volume_name: _Optional[str] = ..., replica_name: _Optional[str] = ...) -> None: ...

class ScheduleReplicaReply(_message.Message):
    __slots__ = ("allocation", "already_allocated")
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    ALREADY_ALLOCATED_FIELD_NUMBER: _ClassVar[int]
    allocation: Allocation
    already_allocated: bool
    def __init__(self, allocation: _Optional[_Union[Allocation, _Mapping]] = ..., already_allocated: _Optional[bool] = ...) -> None: ...

class ReuseFailedReplicaRequest(_message.Message):
    __slots__ = ("volume_name", "hard_node_affinity")
    VOLUME_NAME_FIELD_NUMBER: _ClassVar[int]
    HARD_NODE_AFFINITY_FIELD_NUMBER: _ClassVar[int]
    volume_name: str
    hard_node_affinity: str
    def __init__(self, volume_name: _Optional[str] = ..., hard_node_affinity: _Optional[str] = ...) -> None: ...

class ExpandVolumeRequest(_message.Message):
    __slots__ = ("volume_name", "size_bytes")
    VOLUME_NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    volume_name: str
    size_bytes: int
    def __init__(self, volume_name: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ExpandVolumeReply(_message.Message):
    __slots__ = ("allocations", "size_bytes", "already_allocated")
    ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALREADY_ALLOCATED_FIELD_NUMBER: _ClassVar[int]
    allocations: _containers.RepeatedCompositeFieldContainer[Allocation]
    size_bytes: int
    already_allocated: bool
    def __init__(self, allocations: _Optional[_Iterable[_Union[Allocation, _Mapping]]] = ..., size_bytes: _Optional[int] = ..., already_allocated: _Optional[bool] = ...) -> None: ...

class DeallocateReplicaRequest(_message.Message):
    __slots__ = ("replica_name",)
    REPLICA_NAME_FIELD_NUMBER: _ClassVar[int]
    replica_name: str
    def __init__(self, replica_name: _Optional[str] = ...) -> None: ...

class DeallocateReplicaReply(_message.Message):
    __slots__ = ("freed",)
    FREED_FIELD_NUMBER: _ClassVar[int]
    freed: _containers.RepeatedCompositeFieldContainer[Allocation]
    def __init__(self, freed: _Optional[_Iterable[_Union[Allocation, _Mapping]]] = ...) -> None: ...

class ScheduleBackingImageRequest(_message.Message):
    __slots__ = ("backing_image_name", "size_bytes")
    BACKING_IMAGE_NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    backing_image_name: str
    size_bytes: int
    def __init__(self, backing_image_name: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ScheduleBackingImageReply(_message.Message):
    __slots__ = ("allocation", "already_allocated")
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    ALREADY_ALLOCATED_FIELD_NUMBER: _ClassVar[int]
    allocation: Allocation
    already_allocated: bool
    def __init__(self, allocation: _Optional[_Union[Allocation, _Mapping]] = ..., already_allocated: _Optional[bool] = ...) -> None: ...

class DeallocateBackingImageRequest(_message.Message):
    __slots__ = ("backing_image_name", "disk_uuid")
    BACKING_IMAGE_NAME_FIELD_NUMBER: _ClassVar[int]
    DISK_UUID_FIELD_NUMBER: _ClassVar[int]
    backing_image_name: str
    disk_uuid: str
    def __init__(self, backing_image_name: _Optional[str] = ..., disk_uuid: _Optional[str] = ...) -> None: ...

class DeallocateBackingImageReply(_message.Message):
    __slots__ = ("freed",)
    FREED_FIELD_NUMBER: _ClassVar[int]
    freed: _containers.RepeatedCompositeFieldContainer[Allocation]
    def __init__(self, freed: _Optional[_Iterable[_Union[Allocation, _Mapping]]] = ...) -> None: ...
