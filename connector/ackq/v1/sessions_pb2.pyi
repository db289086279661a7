from ackq.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Holder(_message.Message):
    __slots__ = ("token", "host", "pid", "since_us", "application")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    host: str
    pid: int
    since_us: int
    application: str
    def __init__(self, token: _Optional[bytes] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., since_us: _Optional[int] = ..., application: _Optional[str] = ...) -> None: ...

class HorizonRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HorizonResponse(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class AdvanceRequest(_message.Message):
    __slots__ = ("session", "incarnation", "holder", "queues", "start_tag", "max_messages", "max_bytes", "min_messages", "max_delay_ms", "wait_ms", "horizon", "open_and_lease", "takeover", "session_timeout_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    START_TAG_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MIN_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    OPEN_AND_LEASE_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    session: str
    incarnation: str
    holder: Holder
    queues: _containers.RepeatedScalarFieldContainer[str]
    start_tag: int
    max_messages: int
    max_bytes: int
    min_messages: int
    max_delay_ms: int
    wait_ms: int
    horizon: int
    open_and_lease: bool
    takeover: bool
    session_timeout_ms: int
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., holder: _Optional[_Union[Holder, _Mapping]] = ..., queues: _Optional[_Iterable[str]] = ..., start_tag: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., min_messages: _Optional[int] = ..., max_delay_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., horizon: _Optional[int] = ..., open_and_lease: bool = ..., takeover: bool = ..., session_timeout_ms: _Optional[int] = ...) -> None: ...

class AdvanceResponse(_message.Message):
    __slots__ = ("session", "incarnation", "epoch", "end_tag", "chunks", "backlog", "other_sessions", "attaches", "warnings")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_TAG_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    OTHER_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    ATTACHES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    session: str
    incarnation: str
    epoch: int
    end_tag: int
    chunks: _containers.RepeatedCompositeFieldContainer[LeaseChunk]
    backlog: Backlog
    other_sessions: _containers.RepeatedScalarFieldContainer[str]
    attaches: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., end_tag: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[LeaseChunk, _Mapping]]] = ..., backlog: _Optional[_Union[Backlog, _Mapping]] = ..., other_sessions: _Optional[_Iterable[str]] = ..., attaches: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class LeaseChunk(_message.Message):
    __slots__ = ("last_tag", "payload_bytes")
    LAST_TAG_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    last_tag: int
    payload_bytes: int
    def __init__(self, last_tag: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class Backlog(_message.Message):
    __slots__ = ("ready", "unacked", "oldest_age_ms", "redelivered")
    READY_FIELD_NUMBER: _ClassVar[int]
    UNACKED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    ready: int
    unacked: int
    oldest_age_ms: int
    redelivered: int
    def __init__(self, ready: _Optional[int] = ..., unacked: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ..., redelivered: _Optional[int] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("session", "incarnation", "holder", "start_tag", "end_tag")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    START_TAG_FIELD_NUMBER: _ClassVar[int]
    END_TAG_FIELD_NUMBER: _ClassVar[int]
    session: str
    incarnation: str
    holder: Holder
    start_tag: int
    end_tag: int
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., holder: _Optional[_Union[Holder, _Mapping]] = ..., start_tag: _Optional[int] = ..., end_tag: _Optional[int] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("epoch", "chunks", "attaches")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    ATTACHES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    chunks: _containers.RepeatedCompositeFieldContainer[LeaseChunk]
    attaches: int
    def __init__(self, epoch: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[LeaseChunk, _Mapping]]] = ..., attaches: _Optional[int] = ...) -> None: ...

class HoldRequest(_message.Message):
    __slots__ = ("session", "incarnation", "epoch", "token")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    session: str
    incarnation: str
    epoch: int
    token: bytes
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., token: _Optional[bytes] = ...) -> None: ...

class HoldResponse(_message.Message):
    __slots__ = ("heartbeat_ms",)
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    heartbeat_ms: int
    def __init__(self, heartbeat_ms: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("session", "incarnation", "epoch", "after_tag", "last_tag", "columns", "query_id", "batch_id", "label")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    AFTER_TAG_FIELD_NUMBER: _ClassVar[int]
    LAST_TAG_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    session: str
    incarnation: str
    epoch: int
    after_tag: int
    last_tag: int
    columns: int
    query_id: str
    batch_id: int
    label: str
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., after_tag: _Optional[int] = ..., last_tag: _Optional[int] = ..., columns: _Optional[int] = ..., query_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., label: _Optional[str] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("header", "block")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    header: _messages_pb2.DeliveryRuns
    block: bytes
    def __init__(self, header: _Optional[_Union[_messages_pb2.DeliveryRuns, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionInfo]
    def __init__(self, sessions: _Optional[_Iterable[_Union[SessionInfo, _Mapping]]] = ...) -> None: ...

class SessionInfo(_message.Message):
    __slots__ = ("session", "incarnation", "queues", "epoch", "floor_tag", "end_tag", "leased", "holes", "holder", "live", "proven", "lease_age_ms", "query_id", "batch_id", "attaches")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FLOOR_TAG_FIELD_NUMBER: _ClassVar[int]
    END_TAG_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    PROVEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ATTACHES_FIELD_NUMBER: _ClassVar[int]
    session: str
    incarnation: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    epoch: int
    floor_tag: int
    end_tag: int
    leased: int
    holes: int
    holder: Holder
    live: bool
    proven: bool
    lease_age_ms: int
    query_id: str
    batch_id: int
    attaches: int
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., epoch: _Optional[int] = ..., floor_tag: _Optional[int] = ..., end_tag: _Optional[int] = ..., leased: _Optional[int] = ..., holes: _Optional[int] = ..., holder: _Optional[_Union[Holder, _Mapping]] = ..., live: bool = ..., proven: bool = ..., lease_age_ms: _Optional[int] = ..., query_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., attaches: _Optional[int] = ...) -> None: ...

class ReleaseSessionRequest(_message.Message):
    __slots__ = ("session", "fence")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    session: str
    fence: bool
    def __init__(self, session: _Optional[str] = ..., fence: bool = ...) -> None: ...

class ReleaseSessionResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: int
    def __init__(self, released: _Optional[int] = ...) -> None: ...
