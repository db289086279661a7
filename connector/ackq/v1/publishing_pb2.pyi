from ackq.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublishMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUBLISH_MODE_UNSPECIFIED: _ClassVar[PublishMode]
    PUBLISH_MODE_CONFIRM: _ClassVar[PublishMode]
    PUBLISH_MODE_TRANSACTION: _ClassVar[PublishMode]
PUBLISH_MODE_UNSPECIFIED: PublishMode
PUBLISH_MODE_CONFIRM: PublishMode
PUBLISH_MODE_TRANSACTION: PublishMode

class PublishRequest(_message.Message):
    __slots__ = ("header", "block")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    header: PublishHeader
    block: bytes
    def __init__(self, header: _Optional[_Union[PublishHeader, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...

class PublishHeader(_message.Message):
    __slots__ = ("lowest_unanswered", "open", "data", "probe", "commit", "rollback", "close")
    LOWEST_UNANSWERED_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    lowest_unanswered: int
    open: PublishOpen
    data: PublishData
    probe: PublishProbe
    commit: PublishTransaction
    rollback: PublishTransaction
    close: PublishClose
    def __init__(self, lowest_unanswered: _Optional[int] = ..., open: _Optional[_Union[PublishOpen, _Mapping]] = ..., data: _Optional[_Union[PublishData, _Mapping]] = ..., probe: _Optional[_Union[PublishProbe, _Mapping]] = ..., commit: _Optional[_Union[PublishTransaction, _Mapping]] = ..., rollback: _Optional[_Union[PublishTransaction, _Mapping]] = ..., close: _Optional[_Union[PublishClose, _Mapping]] = ...) -> None: ...

class PublishOpen(_message.Message):
    __slots__ = ("publisher_id", "mode", "resume", "window_messages", "label", "attempt", "next_number", "attempts_before")
    PUBLISHER_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    publisher_id: bytes
    mode: PublishMode
    resume: bool
    window_messages: int
    label: str
    attempt: bytes
    next_number: int
    attempts_before: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, publisher_id: _Optional[bytes] = ..., mode: _Optional[_Union[PublishMode, str]] = ..., resume: bool = ..., window_messages: _Optional[int] = ..., label: _Optional[str] = ..., attempt: _Optional[bytes] = ..., next_number: _Optional[int] = ..., attempts_before: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PublishData(_message.Message):
    __slots__ = ("first_number", "rows", "exchange", "mandatory", "ack_immediately", "messages", "transaction_id", "commit_messages")
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    MANDATORY_FIELD_NUMBER: _ClassVar[int]
    ACK_IMMEDIATELY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    first_number: int
    rows: int
    exchange: str
    mandatory: bool
    ack_immediately: bool
    messages: _containers.RepeatedCompositeFieldContainer[_messages_pb2.Message]
    transaction_id: bytes
    commit_messages: int
    def __init__(self, first_number: _Optional[int] = ..., rows: _Optional[int] = ..., exchange: _Optional[str] = ..., mandatory: bool = ..., ack_immediately: bool = ..., messages: _Optional[_Iterable[_Union[_messages_pb2.Message, _Mapping]]] = ..., transaction_id: _Optional[bytes] = ..., commit_messages: _Optional[int] = ...) -> None: ...

class PublishProbe(_message.Message):
    __slots__ = ("first_number", "last_number")
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LAST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    first_number: int
    last_number: int
    def __init__(self, first_number: _Optional[int] = ..., last_number: _Optional[int] = ...) -> None: ...

class PublishTransaction(_message.Message):
    __slots__ = ("transaction_id", "messages", "reason", "repeated")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    transaction_id: bytes
    messages: int
    reason: _messages_pb2.ErrorDetail
    repeated: bool
    def __init__(self, transaction_id: _Optional[bytes] = ..., messages: _Optional[int] = ..., reason: _Optional[_Union[_messages_pb2.ErrorDetail, _Mapping]] = ..., repeated: bool = ...) -> None: ...

class PublishClose(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("header", "block")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    header: PublishAnswer
    block: bytes
    def __init__(self, header: _Optional[_Union[PublishAnswer, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...

class PublishAnswer(_message.Message):
    __slots__ = ("opened", "confirm", "nack", "returned", "blocked", "unblocked", "probed", "transaction")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    UNBLOCKED_FIELD_NUMBER: _ClassVar[int]
    PROBED_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    opened: PublishOpened
    confirm: PublishConfirm
    nack: PublishNack
    returned: PublishReturn
    blocked: PublishBlocked
    unblocked: PublishUnblocked
    probed: PublishProbed
    transaction: PublishTransaction
    def __init__(self, opened: _Optional[_Union[PublishOpened, _Mapping]] = ..., confirm: _Optional[_Union[PublishConfirm, _Mapping]] = ..., nack: _Optional[_Union[PublishNack, _Mapping]] = ..., returned: _Optional[_Union[PublishReturn, _Mapping]] = ..., blocked: _Optional[_Union[PublishBlocked, _Mapping]] = ..., unblocked: _Optional[_Union[PublishUnblocked, _Mapping]] = ..., probed: _Optional[_Union[PublishProbed, _Mapping]] = ..., transaction: _Optional[_Union[PublishTransaction, _Mapping]] = ...) -> None: ...

class PublishOpened(_message.Message):
    __slots__ = ("history_id", "max_frame_bytes", "max_message_bytes", "commit_with_data")
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_WITH_DATA_FIELD_NUMBER: _ClassVar[int]
    history_id: str
    max_frame_bytes: int
    max_message_bytes: int
    commit_with_data: bool
    def __init__(self, history_id: _Optional[str] = ..., max_frame_bytes: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., commit_with_data: bool = ...) -> None: ...

class PublishConfirm(_message.Message):
    __slots__ = ("first_number", "last_number", "multiple")
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LAST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    first_number: int
    last_number: int
    multiple: bool
    def __init__(self, first_number: _Optional[int] = ..., last_number: _Optional[int] = ..., multiple: bool = ...) -> None: ...

class PublishNack(_message.Message):
    __slots__ = ("first_number", "last_number", "reason")
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LAST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    first_number: int
    last_number: int
    reason: _messages_pb2.ErrorDetail
    def __init__(self, first_number: _Optional[int] = ..., last_number: _Optional[int] = ..., reason: _Optional[_Union[_messages_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class PublishReturn(_message.Message):
    __slots__ = ("numbers", "reason")
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    reason: _messages_pb2.ErrorDetail
    def __init__(self, numbers: _Optional[_Iterable[int]] = ..., reason: _Optional[_Union[_messages_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class PublishBlocked(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class PublishUnblocked(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PublishProbed(_message.Message):
    __slots__ = ("missing_first", "missing_last")
    MISSING_FIRST_FIELD_NUMBER: _ClassVar[int]
    MISSING_LAST_FIELD_NUMBER: _ClassVar[int]
    missing_first: _containers.RepeatedScalarFieldContainer[int]
    missing_last: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, missing_first: _Optional[_Iterable[int]] = ..., missing_last: _Optional[_Iterable[int]] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("header", "block")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    header: StageHeader
    block: bytes
    def __init__(self, header: _Optional[_Union[StageHeader, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...

class StageHeader(_message.Message):
    __slots__ = ("open", "data", "seal")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    open: StageOpen
    data: StageData
    seal: StageSeal
    def __init__(self, open: _Optional[_Union[StageOpen, _Mapping]] = ..., data: _Optional[_Union[StageData, _Mapping]] = ..., seal: _Optional[_Union[StageSeal, _Mapping]] = ...) -> None: ...

class StageOpen(_message.Message):
    __slots__ = ("stage_id", "writer", "batch_id", "run_id", "label", "mandatory", "single")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    MANDATORY_FIELD_NUMBER: _ClassVar[int]
    SINGLE_FIELD_NUMBER: _ClassVar[int]
    stage_id: bytes
    writer: str
    batch_id: int
    run_id: str
    label: str
    mandatory: bool
    single: bool
    def __init__(self, stage_id: _Optional[bytes] = ..., writer: _Optional[str] = ..., batch_id: _Optional[int] = ..., run_id: _Optional[str] = ..., label: _Optional[str] = ..., mandatory: bool = ..., single: bool = ...) -> None: ...

class StageData(_message.Message):
    __slots__ = ("rows", "exchange", "unroutable_queue")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    UNROUTABLE_QUEUE_FIELD_NUMBER: _ClassVar[int]
    rows: int
    exchange: str
    unroutable_queue: str
    def __init__(self, rows: _Optional[int] = ..., exchange: _Optional[str] = ..., unroutable_queue: _Optional[str] = ...) -> None: ...

class StageSeal(_message.Message):
    __slots__ = ("rows", "payload_bytes")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    rows: int
    payload_bytes: int
    def __init__(self, rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class StageResponse(_message.Message):
    __slots__ = ("stored", "sealed")
    STORED_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    stored: StageStored
    sealed: StageSealed
    def __init__(self, stored: _Optional[_Union[StageStored, _Mapping]] = ..., sealed: _Optional[_Union[StageSealed, _Mapping]] = ...) -> None: ...

class StageStored(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    def __init__(self, rows: _Optional[int] = ...) -> None: ...

class StageSealed(_message.Message):
    __slots__ = ("rows", "payload_bytes")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    rows: int
    payload_bytes: int
    def __init__(self, rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class CommitBatchRequest(_message.Message):
    __slots__ = ("writer", "batch_id", "run_id", "execution_id", "stages", "single", "target", "keep_changed", "finish", "edges", "others")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    SINGLE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    KEEP_CHANGED_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    writer: str
    batch_id: int
    run_id: str
    execution_id: str
    stages: _containers.RepeatedCompositeFieldContainer[StageReference]
    single: bool
    target: str
    keep_changed: bool
    finish: bool
    edges: str
    others: _containers.RepeatedCompositeFieldContainer[EdgeStages]
    def __init__(self, writer: _Optional[str] = ..., batch_id: _Optional[int] = ..., run_id: _Optional[str] = ..., execution_id: _Optional[str] = ..., stages: _Optional[_Iterable[_Union[StageReference, _Mapping]]] = ..., single: bool = ..., target: _Optional[str] = ..., keep_changed: bool = ..., finish: bool = ..., edges: _Optional[str] = ..., others: _Optional[_Iterable[_Union[EdgeStages, _Mapping]]] = ...) -> None: ...

class EdgeStages(_message.Message):
    __slots__ = ("endpoint", "stages")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    stages: _containers.RepeatedCompositeFieldContainer[StageReference]
    def __init__(self, endpoint: _Optional[str] = ..., stages: _Optional[_Iterable[_Union[StageReference, _Mapping]]] = ...) -> None: ...

class StageReference(_message.Message):
    __slots__ = ("stage_id", "rows", "payload_bytes")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    stage_id: bytes
    rows: int
    payload_bytes: int
    def __init__(self, stage_id: _Optional[bytes] = ..., rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class CommitBatchResponse(_message.Message):
    __slots__ = ("rows", "repeated", "target", "edges", "others")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    repeated: bool
    target: str
    edges: str
    others: _containers.RepeatedCompositeFieldContainer[EdgeStages]
    def __init__(self, rows: _Optional[int] = ..., repeated: bool = ..., target: _Optional[str] = ..., edges: _Optional[str] = ..., others: _Optional[_Iterable[_Union[EdgeStages, _Mapping]]] = ...) -> None: ...

class PrepareBatchRequest(_message.Message):
    __slots__ = ("writer", "batch_id", "run_id", "stages", "single", "target", "edges")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    SINGLE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    writer: str
    batch_id: int
    run_id: str
    stages: _containers.RepeatedCompositeFieldContainer[StageReference]
    single: bool
    target: str
    edges: str
    def __init__(self, writer: _Optional[str] = ..., batch_id: _Optional[int] = ..., run_id: _Optional[str] = ..., stages: _Optional[_Iterable[_Union[StageReference, _Mapping]]] = ..., single: bool = ..., target: _Optional[str] = ..., edges: _Optional[str] = ...) -> None: ...

class PrepareBatchResponse(_message.Message):
    __slots__ = ("committed", "edges", "others", "broker")
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    committed: bool
    edges: str
    others: _containers.RepeatedCompositeFieldContainer[EdgeStages]
    broker: bytes
    def __init__(self, committed: bool = ..., edges: _Optional[str] = ..., others: _Optional[_Iterable[_Union[EdgeStages, _Mapping]]] = ..., broker: _Optional[bytes] = ...) -> None: ...

class AbortBatchRequest(_message.Message):
    __slots__ = ("writer", "batch_id", "stage_ids")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    writer: str
    batch_id: int
    stage_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, writer: _Optional[str] = ..., batch_id: _Optional[int] = ..., stage_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AbortBatchResponse(_message.Message):
    __slots__ = ("dropped",)
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    dropped: int
    def __init__(self, dropped: _Optional[int] = ...) -> None: ...

class BatchKey(_message.Message):
    __slots__ = ("writer", "batch_id")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    writer: str
    batch_id: int
    def __init__(self, writer: _Optional[str] = ..., batch_id: _Optional[int] = ...) -> None: ...

class ListBatchesRequest(_message.Message):
    __slots__ = ("queue", "batch", "after")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    batch: BatchKey
    after: BatchKey
    def __init__(self, queue: _Optional[str] = ..., batch: _Optional[_Union[BatchKey, _Mapping]] = ..., after: _Optional[_Union[BatchKey, _Mapping]] = ...) -> None: ...

class ListBatchesResponse(_message.Message):
    __slots__ = ("batches", "more")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[BatchInfo]
    more: bool
    def __init__(self, batches: _Optional[_Iterable[_Union[BatchInfo, _Mapping]]] = ..., more: bool = ...) -> None: ...

class BatchInfo(_message.Message):
    __slots__ = ("writer", "batch_id", "run_id", "stages", "open_stages", "rows", "payload_bytes", "age_ms", "committed", "targets", "target_count", "details", "single", "user", "edges")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    OPEN_STAGES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    TARGET_COUNT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    SINGLE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    writer: str
    batch_id: int
    run_id: str
    stages: int
    open_stages: int
    rows: int
    payload_bytes: int
    age_ms: int
    committed: bool
    targets: _containers.RepeatedCompositeFieldContainer[BatchTarget]
    target_count: int
    details: _containers.RepeatedCompositeFieldContainer[StageInfo]
    single: bool
    user: str
    edges: str
    def __init__(self, writer: _Optional[str] = ..., batch_id: _Optional[int] = ..., run_id: _Optional[str] = ..., stages: _Optional[int] = ..., open_stages: _Optional[int] = ..., rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., age_ms: _Optional[int] = ..., committed: bool = ..., targets: _Optional[_Iterable[_Union[BatchTarget, _Mapping]]] = ..., target_count: _Optional[int] = ..., details: _Optional[_Iterable[_Union[StageInfo, _Mapping]]] = ..., single: bool = ..., user: _Optional[str] = ..., edges: _Optional[str] = ...) -> None: ...

class BatchTarget(_message.Message):
    __slots__ = ("queue", "rows", "payload_bytes", "deleted")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    queue: str
    rows: int
    payload_bytes: int
    deleted: bool
    def __init__(self, queue: _Optional[str] = ..., rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., deleted: bool = ...) -> None: ...

class StageInfo(_message.Message):
    __slots__ = ("stage_id", "label", "run_id", "rows", "payload_bytes", "sealed", "age_ms")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    stage_id: bytes
    label: str
    run_id: str
    rows: int
    payload_bytes: int
    sealed: bool
    age_ms: int
    def __init__(self, stage_id: _Optional[bytes] = ..., label: _Optional[str] = ..., run_id: _Optional[str] = ..., rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., sealed: bool = ..., age_ms: _Optional[int] = ...) -> None: ...

class DropBatchRequest(_message.Message):
    __slots__ = ("batch", "force")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    batch: BatchKey
    force: bool
    def __init__(self, batch: _Optional[_Union[BatchKey, _Mapping]] = ..., force: bool = ...) -> None: ...

class DropBatchResponse(_message.Message):
    __slots__ = ("stages", "rows", "payload_bytes")
    STAGES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    stages: int
    rows: int
    payload_bytes: int
    def __init__(self, stages: _Optional[int] = ..., rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class ListWritersRequest(_message.Message):
    __slots__ = ("writer", "after", "age_ms")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    writer: str
    after: str
    age_ms: int
    def __init__(self, writer: _Optional[str] = ..., after: _Optional[str] = ..., age_ms: _Optional[int] = ...) -> None: ...

class ListWritersResponse(_message.Message):
    __slots__ = ("writers", "more")
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    writers: _containers.RepeatedCompositeFieldContainer[WriterInfo]
    more: bool
    def __init__(self, writers: _Optional[_Iterable[_Union[WriterInfo, _Mapping]]] = ..., more: bool = ...) -> None: ...

class WriterInfo(_message.Message):
    __slots__ = ("writer", "committed", "batch_id", "rows", "age_ms", "stages", "single", "user")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    SINGLE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    writer: str
    committed: bool
    batch_id: int
    rows: int
    age_ms: int
    stages: int
    single: bool
    user: str
    def __init__(self, writer: _Optional[str] = ..., committed: bool = ..., batch_id: _Optional[int] = ..., rows: _Optional[int] = ..., age_ms: _Optional[int] = ..., stages: _Optional[int] = ..., single: bool = ..., user: _Optional[str] = ...) -> None: ...

class ForgetWriterRequest(_message.Message):
    __slots__ = ("writer", "force")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    writer: str
    force: bool
    def __init__(self, writer: _Optional[str] = ..., force: bool = ...) -> None: ...

class ForgetWriterResponse(_message.Message):
    __slots__ = ("forgotten",)
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    forgotten: bool
    def __init__(self, forgotten: bool = ...) -> None: ...

class AssignWriterRequest(_message.Message):
    __slots__ = ("writer", "user")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    writer: str
    user: str
    def __init__(self, writer: _Optional[str] = ..., user: _Optional[str] = ...) -> None: ...

class AssignWriterResponse(_message.Message):
    __slots__ = ("before",)
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    before: str
    def __init__(self, before: _Optional[str] = ...) -> None: ...
