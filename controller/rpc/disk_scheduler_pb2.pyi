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
