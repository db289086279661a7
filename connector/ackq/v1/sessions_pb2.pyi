from ackq.v1 import consuming_pb2 as _consuming_pb2
from ackq.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

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
    __slots__ = ("session", "incarnation", "holder", "queues", "start_tag", "max_messages", "max_bytes", "min_messages", "max_delay_ms", "wait_ms", "horizon", "open_and_lease", "takeover", "session_timeout_ms", "queue_pattern", "refuse_unread", "retain_ms", "retain_bytes", "rewind")
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
    QUEUE_PATTERN_FIELD_NUMBER: _ClassVar[int]
    REFUSE_UNREAD_FIELD_NUMBER: _ClassVar[int]
    RETAIN_MS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    REWIND_FIELD_NUMBER: _ClassVar[int]
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
    queue_pattern: str
    refuse_unread: bool
    retain_ms: int
    retain_bytes: int
    rewind: RewindPoint
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., holder: _Optional[_Union[Holder, _Mapping]] = ..., queues: _Optional[_Iterable[str]] = ..., start_tag: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., min_messages: _Optional[int] = ..., max_delay_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., horizon: _Optional[int] = ..., open_and_lease: bool = ..., takeover: bool = ..., session_timeout_ms: _Optional[int] = ..., queue_pattern: _Optional[str] = ..., refuse_unread: bool = ..., retain_ms: _Optional[int] = ..., retain_bytes: _Optional[int] = ..., rewind: _Optional[_Union[RewindPoint, _Mapping]] = ...) -> None: ...

class RewindPoint(_message.Message):
    __slots__ = ("batch_id", "from_us")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_US_FIELD_NUMBER: _ClassVar[int]
    batch_id: int
    from_us: int
    def __init__(self, batch_id: _Optional[int] = ..., from_us: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("session", "incarnation", "holder", "start_tag", "end_tag", "planned")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    START_TAG_FIELD_NUMBER: _ClassVar[int]
    END_TAG_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    session: str
    incarnation: str
    holder: Holder
    start_tag: int
    end_tag: int
    planned: int
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., holder: _Optional[_Union[Holder, _Mapping]] = ..., start_tag: _Optional[int] = ..., end_tag: _Optional[int] = ..., planned: _Optional[int] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("epoch", "chunks", "attaches", "warnings")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    ATTACHES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    chunks: _containers.RepeatedCompositeFieldContainer[LeaseChunk]
    attaches: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[LeaseChunk, _Mapping]]] = ..., attaches: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

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
    __slots__ = ("session", "incarnation", "epoch", "after_tag", "last_tag", "columns", "query_id", "batch_id", "label", "run_id", "key")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    AFTER_TAG_FIELD_NUMBER: _ClassVar[int]
    LAST_TAG_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    session: str
    incarnation: str
    epoch: int
    after_tag: int
    last_tag: int
    columns: int
    query_id: str
    batch_id: int
    label: str
    run_id: str
    key: bytes
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., after_tag: _Optional[int] = ..., last_tag: _Optional[int] = ..., columns: _Optional[int] = ..., query_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., label: _Optional[str] = ..., run_id: _Optional[str] = ..., key: _Optional[bytes] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("header", "block")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    header: _messages_pb2.DeliveryRuns
    block: bytes
    def __init__(self, header: _Optional[_Union[_messages_pb2.DeliveryRuns, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("session", "finished")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    session: str
    finished: bool
    def __init__(self, session: _Optional[str] = ..., finished: bool = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionInfo]
    def __init__(self, sessions: _Optional[_Iterable[_Union[SessionInfo, _Mapping]]] = ...) -> None: ...

class SessionInfo(_message.Message):
    __slots__ = ("session", "incarnation", "queues", "epoch", "floor_tag", "end_tag", "leased", "holes", "holder", "live", "proven", "lease_age_ms", "query_id", "batch_id", "attaches", "run_id", "session_timeout_ms", "detached", "holes_by_reason", "settled", "queue_pattern", "fetched", "away_ms", "held_back", "retain_ms", "retain_bytes", "retained_batches", "retained_payload_bytes", "retained_from_batch", "retained_age_ms")
    class HolesByReasonEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
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
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    DETACHED_FIELD_NUMBER: _ClassVar[int]
    HOLES_BY_REASON_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_PATTERN_FIELD_NUMBER: _ClassVar[int]
    FETCHED_FIELD_NUMBER: _ClassVar[int]
    AWAY_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_FIELD_NUMBER: _ClassVar[int]
    RETAIN_MS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FROM_BATCH_FIELD_NUMBER: _ClassVar[int]
    RETAINED_AGE_MS_FIELD_NUMBER: _ClassVar[int]
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
    run_id: str
    session_timeout_ms: int
    detached: bool
    holes_by_reason: _containers.ScalarMap[str, int]
    settled: int
    queue_pattern: str
    fetched: bool
    away_ms: int
    held_back: bool
    retain_ms: int
    retain_bytes: int
    retained_batches: int
    retained_payload_bytes: int
    retained_from_batch: int
    retained_age_ms: int
    def __init__(self, session: _Optional[str] = ..., incarnation: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., epoch: _Optional[int] = ..., floor_tag: _Optional[int] = ..., end_tag: _Optional[int] = ..., leased: _Optional[int] = ..., holes: _Optional[int] = ..., holder: _Optional[_Union[Holder, _Mapping]] = ..., live: bool = ..., proven: bool = ..., lease_age_ms: _Optional[int] = ..., query_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., attaches: _Optional[int] = ..., run_id: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., detached: bool = ..., holes_by_reason: _Optional[_Mapping[str, int]] = ..., settled: _Optional[int] = ..., queue_pattern: _Optional[str] = ..., fetched: bool = ..., away_ms: _Optional[int] = ..., held_back: bool = ..., retain_ms: _Optional[int] = ..., retain_bytes: _Optional[int] = ..., retained_batches: _Optional[int] = ..., retained_payload_bytes: _Optional[int] = ..., retained_from_batch: _Optional[int] = ..., retained_age_ms: _Optional[int] = ...) -> None: ...

class ReleaseSessionRequest(_message.Message):
    __slots__ = ("session", "fence")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    session: str
    fence: bool
    def __init__(self, session: _Optional[str] = ..., fence: bool = ...) -> None: ...

class ReleaseSessionResponse(_message.Message):
    __slots__ = ("released", "dropped")
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    released: int
    dropped: int
    def __init__(self, released: _Optional[int] = ..., dropped: _Optional[int] = ...) -> None: ...

class LeaseOwner(_message.Message):
    __slots__ = ("session", "query_id", "run_id", "batch_id", "epoch")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    session: str
    query_id: str
    run_id: str
    batch_id: int
    epoch: int
    def __init__(self, session: _Optional[str] = ..., query_id: _Optional[str] = ..., run_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class StageOutcomesRequest(_message.Message):
    __slots__ = ("owner", "stage_id", "label", "discard", "groups", "seal")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DISCARD_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    owner: LeaseOwner
    stage_id: bytes
    label: str
    discard: bool
    groups: _containers.RepeatedCompositeFieldContainer[OutcomeGroup]
    seal: bool
    def __init__(self, owner: _Optional[_Union[LeaseOwner, _Mapping]] = ..., stage_id: _Optional[bytes] = ..., label: _Optional[str] = ..., discard: bool = ..., groups: _Optional[_Iterable[_Union[OutcomeGroup, _Mapping]]] = ..., seal: bool = ...) -> None: ...

class OutcomeGroup(_message.Message):
    __slots__ = ("outcome", "reason", "delay_ms", "tags")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    outcome: _consuming_pb2.Outcome
    reason: str
    delay_ms: int
    tags: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, outcome: _Optional[_Union[_consuming_pb2.Outcome, str]] = ..., reason: _Optional[str] = ..., delay_ms: _Optional[int] = ..., tags: _Optional[_Iterable[int]] = ...) -> None: ...

class StageOutcomesResponse(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: int
    def __init__(self, tags: _Optional[int] = ...) -> None: ...

class OutcomeStage(_message.Message):
    __slots__ = ("stage_id", "tags")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    stage_id: bytes
    tags: int
    def __init__(self, stage_id: _Optional[bytes] = ..., tags: _Optional[int] = ...) -> None: ...

class CommitOutcomesRequest(_message.Message):
    __slots__ = ("owner", "stages")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    owner: LeaseOwner
    stages: _containers.RepeatedCompositeFieldContainer[OutcomeStage]
    def __init__(self, owner: _Optional[_Union[LeaseOwner, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[OutcomeStage, _Mapping]]] = ...) -> None: ...

class CommitOutcomesResponse(_message.Message):
    __slots__ = ("tags", "accepted_before")
    TAGS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    tags: int
    accepted_before: bool
    def __init__(self, tags: _Optional[int] = ..., accepted_before: bool = ...) -> None: ...

class AbortOutcomesRequest(_message.Message):
    __slots__ = ("stage_ids",)
    STAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    stage_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, stage_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AbortOutcomesResponse(_message.Message):
    __slots__ = ("dropped",)
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    dropped: int
    def __init__(self, dropped: _Optional[int] = ...) -> None: ...

class BrowseLeaseRequest(_message.Message):
    __slots__ = ("session", "first_tag", "last_tag", "max_messages", "columns", "incarnation")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_TAG_FIELD_NUMBER: _ClassVar[int]
    LAST_TAG_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    session: str
    first_tag: int
    last_tag: int
    max_messages: int
    columns: int
    incarnation: str
    def __init__(self, session: _Optional[str] = ..., first_tag: _Optional[int] = ..., last_tag: _Optional[int] = ..., max_messages: _Optional[int] = ..., columns: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...

class BrowseLeaseResponse(_message.Message):
    __slots__ = ("header", "block")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    header: _messages_pb2.DeliveryRuns
    block: bytes
    def __init__(self, header: _Optional[_Union[_messages_pb2.DeliveryRuns, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...

class SettleSessionRequest(_message.Message):
    __slots__ = ("session", "outcome", "first_tag", "last_tag", "reason", "fence", "discard", "incarnation")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FIRST_TAG_FIELD_NUMBER: _ClassVar[int]
    LAST_TAG_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    DISCARD_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    session: str
    outcome: _consuming_pb2.Outcome
    first_tag: _containers.RepeatedScalarFieldContainer[int]
    last_tag: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    fence: bool
    discard: bool
    incarnation: str
    def __init__(self, session: _Optional[str] = ..., outcome: _Optional[_Union[_consuming_pb2.Outcome, str]] = ..., first_tag: _Optional[_Iterable[int]] = ..., last_tag: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ..., fence: bool = ..., discard: bool = ..., incarnation: _Optional[str] = ...) -> None: ...

class SettleSessionResponse(_message.Message):
    __slots__ = ("settled", "dead_lettered", "epoch", "dropped")
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    settled: int
    dead_lettered: int
    epoch: int
    dropped: int
    def __init__(self, settled: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., epoch: _Optional[int] = ..., dropped: _Optional[int] = ...) -> None: ...

class PlanRetainedRequest(_message.Message):
    __slots__ = ("session", "batch_id", "from_us", "to_us")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_US_FIELD_NUMBER: _ClassVar[int]
    TO_US_FIELD_NUMBER: _ClassVar[int]
    session: str
    batch_id: int
    from_us: int
    to_us: int
    def __init__(self, session: _Optional[str] = ..., batch_id: _Optional[int] = ..., from_us: _Optional[int] = ..., to_us: _Optional[int] = ...) -> None: ...

class PlanRetainedResponse(_message.Message):
    __slots__ = ("incarnation", "batches")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    batches: _containers.RepeatedCompositeFieldContainer[RetainedBatch]
    def __init__(self, incarnation: _Optional[str] = ..., batches: _Optional[_Iterable[_Union[RetainedBatch, _Mapping]]] = ...) -> None: ...

class RetainedBatch(_message.Message):
    __slots__ = ("batch_id", "after_tag", "last_tag", "accepted_us", "messages", "holes", "chunks")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_TAG_FIELD_NUMBER: _ClassVar[int]
    LAST_TAG_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_US_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    batch_id: int
    after_tag: int
    last_tag: int
    accepted_us: int
    messages: int
    holes: int
    chunks: _containers.RepeatedCompositeFieldContainer[LeaseChunk]
    def __init__(self, batch_id: _Optional[int] = ..., after_tag: _Optional[int] = ..., last_tag: _Optional[int] = ..., accepted_us: _Optional[int] = ..., messages: _Optional[int] = ..., holes: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[LeaseChunk, _Mapping]]] = ...) -> None: ...

class RewindSessionRequest(_message.Message):
    __slots__ = ("session", "rewind", "with_rejected", "dry_run")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REWIND_FIELD_NUMBER: _ClassVar[int]
    WITH_REJECTED_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    session: str
    rewind: RewindPoint
    with_rejected: bool
    dry_run: bool
    def __init__(self, session: _Optional[str] = ..., rewind: _Optional[_Union[RewindPoint, _Mapping]] = ..., with_rejected: bool = ..., dry_run: bool = ...) -> None: ...

class RewindSessionResponse(_message.Message):
    __slots__ = ("first_batch", "batches", "messages")
    FIRST_BATCH_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    first_batch: int
    batches: int
    messages: int
    def __init__(self, first_batch: _Optional[int] = ..., batches: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...
