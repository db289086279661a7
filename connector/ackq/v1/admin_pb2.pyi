from ackq.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Alarm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ALARM_UNSPECIFIED: _ClassVar[Alarm]
    ALARM_DRAINING: _ClassVar[Alarm]
    ALARM_DISK: _ClassVar[Alarm]
    ALARM_MEMORY: _ClassVar[Alarm]

class Overflow(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERFLOW_UNSPECIFIED: _ClassVar[Overflow]
    OVERFLOW_REJECT_PUBLISH: _ClassVar[Overflow]
    OVERFLOW_DROP_HEAD: _ClassVar[Overflow]

class ExchangeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXCHANGE_TYPE_UNSPECIFIED: _ClassVar[ExchangeType]
    EXCHANGE_TYPE_DIRECT: _ClassVar[ExchangeType]
    EXCHANGE_TYPE_FANOUT: _ClassVar[ExchangeType]
    EXCHANGE_TYPE_TOPIC: _ClassVar[ExchangeType]
ALARM_UNSPECIFIED: Alarm
ALARM_DRAINING: Alarm
ALARM_DISK: Alarm
ALARM_MEMORY: Alarm
OVERFLOW_UNSPECIFIED: Overflow
OVERFLOW_REJECT_PUBLISH: Overflow
OVERFLOW_DROP_HEAD: Overflow
EXCHANGE_TYPE_UNSPECIFIED: ExchangeType
EXCHANGE_TYPE_DIRECT: ExchangeType
EXCHANGE_TYPE_FANOUT: ExchangeType
EXCHANGE_TYPE_TOPIC: ExchangeType

class ServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServerInfoResponse(_message.Message):
    __slots__ = ("version", "history_id", "sequence", "synced", "sync_mode", "history_cause", "held_back", "memory_limit_bytes", "memory_used_bytes", "blocked", "now_us", "uptime_ms", "clock_jump_ms", "alarm")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    SYNC_MODE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_CAUSE_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_JUMP_MS_FIELD_NUMBER: _ClassVar[int]
    ALARM_FIELD_NUMBER: _ClassVar[int]
    version: str
    history_id: str
    sequence: int
    synced: int
    sync_mode: str
    history_cause: str
    held_back: int
    memory_limit_bytes: int
    memory_used_bytes: int
    blocked: str
    now_us: int
    uptime_ms: int
    clock_jump_ms: int
    alarm: Alarm
    def __init__(self, version: _Optional[str] = ..., history_id: _Optional[str] = ..., sequence: _Optional[int] = ..., synced: _Optional[int] = ..., sync_mode: _Optional[str] = ..., history_cause: _Optional[str] = ..., held_back: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ..., memory_used_bytes: _Optional[int] = ..., blocked: _Optional[str] = ..., now_us: _Optional[int] = ..., uptime_ms: _Optional[int] = ..., clock_jump_ms: _Optional[int] = ..., alarm: _Optional[_Union[Alarm, str]] = ...) -> None: ...

class AcceptHistoryRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AcceptHistoryResponse(_message.Message):
    __slots__ = ("history_id", "publishers", "sessions", "writers", "links")
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISHERS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    history_id: str
    publishers: int
    sessions: int
    writers: int
    links: int
    def __init__(self, history_id: _Optional[str] = ..., publishers: _Optional[int] = ..., sessions: _Optional[int] = ..., writers: _Optional[int] = ..., links: _Optional[int] = ...) -> None: ...

class BackupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class BackupResponse(_message.Message):
    __slots__ = ("directory", "sequence", "total_bytes", "copied_bytes")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    COPIED_BYTES_FIELD_NUMBER: _ClassVar[int]
    directory: str
    sequence: int
    total_bytes: int
    copied_bytes: int
    def __init__(self, directory: _Optional[str] = ..., sequence: _Optional[int] = ..., total_bytes: _Optional[int] = ..., copied_bytes: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("resume", "look")
    RESUME_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    resume: bool
    look: bool
    def __init__(self, resume: bool = ..., look: bool = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("draining", "unacked", "transactions", "stages", "bytes")
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    UNACKED_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    draining: bool
    unacked: int
    transactions: int
    stages: int
    bytes: int
    def __init__(self, draining: bool = ..., unacked: _Optional[int] = ..., transactions: _Optional[int] = ..., stages: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class QueueProperties(_message.Message):
    __slots__ = ("durable", "max_length", "max_bytes", "overflow", "message_ttl_ms", "expires_ms", "delivery_limit", "dead_letter_queue", "redelivery_delay_ms", "redelivery_delay_max_ms", "drop_on_limit", "retain_ms")
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_QUEUE_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_DELAY_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    DROP_ON_LIMIT_FIELD_NUMBER: _ClassVar[int]
    RETAIN_MS_FIELD_NUMBER: _ClassVar[int]
    durable: bool
    max_length: int
    max_bytes: int
    overflow: Overflow
    message_ttl_ms: int
    expires_ms: int
    delivery_limit: int
    dead_letter_queue: str
    redelivery_delay_ms: int
    redelivery_delay_max_ms: int
    drop_on_limit: bool
    retain_ms: int
    def __init__(self, durable: bool = ..., max_length: _Optional[int] = ..., max_bytes: _Optional[int] = ..., overflow: _Optional[_Union[Overflow, str]] = ..., message_ttl_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ..., delivery_limit: _Optional[int] = ..., dead_letter_queue: _Optional[str] = ..., redelivery_delay_ms: _Optional[int] = ..., redelivery_delay_max_ms: _Optional[int] = ..., drop_on_limit: bool = ..., retain_ms: _Optional[int] = ...) -> None: ...

class DeclareQueueRequest(_message.Message):
    __slots__ = ("queue", "properties", "passive", "check")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    PASSIVE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    queue: str
    properties: QueueProperties
    passive: bool
    check: bool
    def __init__(self, queue: _Optional[str] = ..., properties: _Optional[_Union[QueueProperties, _Mapping]] = ..., passive: bool = ..., check: bool = ...) -> None: ...

class DeclareQueueResponse(_message.Message):
    __slots__ = ("queue_id", "created", "warnings")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    created: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queue_id: _Optional[int] = ..., created: bool = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("queue", "force", "if_empty")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    IF_EMPTY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    force: bool
    if_empty: bool
    def __init__(self, queue: _Optional[str] = ..., force: bool = ..., if_empty: bool = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ("ready", "unacked")
    READY_FIELD_NUMBER: _ClassVar[int]
    UNACKED_FIELD_NUMBER: _ClassVar[int]
    ready: int
    unacked: int
    def __init__(self, ready: _Optional[int] = ..., unacked: _Optional[int] = ...) -> None: ...

class PurgeQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class PurgeQueueResponse(_message.Message):
    __slots__ = ("purged",)
    PURGED_FIELD_NUMBER: _ClassVar[int]
    purged: int
    def __init__(self, purged: _Optional[int] = ...) -> None: ...

class RewindQueueRequest(_message.Message):
    __slots__ = ("queue", "from_us", "dry_run")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    FROM_US_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    queue: str
    from_us: int
    dry_run: bool
    def __init__(self, queue: _Optional[str] = ..., from_us: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class RewindQueueResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("queue", "first_position", "last_position", "max_messages", "cause", "reason", "to_queue")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    LAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TO_QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    first_position: int
    last_position: int
    max_messages: int
    cause: str
    reason: str
    to_queue: str
    def __init__(self, queue: _Optional[str] = ..., first_position: _Optional[int] = ..., last_position: _Optional[int] = ..., max_messages: _Optional[int] = ..., cause: _Optional[str] = ..., reason: _Optional[str] = ..., to_queue: _Optional[str] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("messages", "left", "more", "last_position")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    LAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    messages: int
    left: int
    more: bool
    last_position: int
    def __init__(self, messages: _Optional[int] = ..., left: _Optional[int] = ..., more: bool = ..., last_position: _Optional[int] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("queue", "pattern", "not_empty", "after", "page_size")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    NOT_EMPTY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    pattern: str
    not_empty: bool
    after: str
    page_size: int
    def __init__(self, queue: _Optional[str] = ..., pattern: _Optional[str] = ..., not_empty: bool = ..., after: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "more")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueInfo]
    more: bool
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueInfo, _Mapping]]] = ..., more: bool = ...) -> None: ...

class QueueInfo(_message.Message):
    __slots__ = ("queue", "queue_id", "properties", "ready", "unacked", "staged", "payload_bytes", "oldest_age_ms", "sessions", "published", "accepted", "delayed", "expired", "dead_lettered", "dropped", "consumers", "retained", "retained_payload_bytes", "retained_age_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    UNACKED_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    RETAINED_PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    queue_id: int
    properties: QueueProperties
    ready: int
    unacked: int
    staged: int
    payload_bytes: int
    oldest_age_ms: int
    sessions: _containers.RepeatedScalarFieldContainer[str]
    published: int
    accepted: int
    delayed: int
    expired: int
    dead_lettered: int
    dropped: int
    consumers: int
    retained: int
    retained_payload_bytes: int
    retained_age_ms: int
    def __init__(self, queue: _Optional[str] = ..., queue_id: _Optional[int] = ..., properties: _Optional[_Union[QueueProperties, _Mapping]] = ..., ready: _Optional[int] = ..., unacked: _Optional[int] = ..., staged: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ..., sessions: _Optional[_Iterable[str]] = ..., published: _Optional[int] = ..., accepted: _Optional[int] = ..., delayed: _Optional[int] = ..., expired: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., dropped: _Optional[int] = ..., consumers: _Optional[int] = ..., retained: _Optional[int] = ..., retained_payload_bytes: _Optional[int] = ..., retained_age_ms: _Optional[int] = ...) -> None: ...

class ListHoldingsRequest(_message.Message):
    __slots__ = ("queue", "position")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    queue: str
    position: int
    def __init__(self, queue: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class ListHoldingsResponse(_message.Message):
    __slots__ = ("holdings", "holding_count", "consumers", "next_ready_ms", "next_expiry_ms", "staged_bytes", "most_failures", "oldest_position")
    HOLDINGS_FIELD_NUMBER: _ClassVar[int]
    HOLDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_READY_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MOST_FAILURES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_POSITION_FIELD_NUMBER: _ClassVar[int]
    holdings: _containers.RepeatedCompositeFieldContainer[Holding]
    holding_count: int
    consumers: _containers.RepeatedCompositeFieldContainer[ConsumerInfo]
    next_ready_ms: int
    next_expiry_ms: int
    staged_bytes: int
    most_failures: int
    oldest_position: int
    def __init__(self, holdings: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ..., holding_count: _Optional[int] = ..., consumers: _Optional[_Iterable[_Union[ConsumerInfo, _Mapping]]] = ..., next_ready_ms: _Optional[int] = ..., next_expiry_ms: _Optional[int] = ..., staged_bytes: _Optional[int] = ..., most_failures: _Optional[int] = ..., oldest_position: _Optional[int] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ("session", "channel", "messages", "payload_bytes", "stored_bytes", "first_position", "last_position", "age_ms", "oldest_age_ms", "connected", "quiet_ms", "delivery_tag")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    LAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    QUIET_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_TAG_FIELD_NUMBER: _ClassVar[int]
    session: str
    channel: str
    messages: int
    payload_bytes: int
    stored_bytes: int
    first_position: int
    last_position: int
    age_ms: int
    oldest_age_ms: int
    connected: bool
    quiet_ms: int
    delivery_tag: int
    def __init__(self, session: _Optional[str] = ..., channel: _Optional[str] = ..., messages: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., first_position: _Optional[int] = ..., last_position: _Optional[int] = ..., age_ms: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ..., connected: bool = ..., quiet_ms: _Optional[int] = ..., delivery_tag: _Optional[int] = ...) -> None: ...

class ConsumerInfo(_message.Message):
    __slots__ = ("consumer", "channel", "prefetch", "unacked", "no_ack", "has_room", "connected")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    UNACKED_FIELD_NUMBER: _ClassVar[int]
    NO_ACK_FIELD_NUMBER: _ClassVar[int]
    HAS_ROOM_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    channel: str
    prefetch: int
    unacked: int
    no_ack: bool
    has_room: bool
    connected: bool
    def __init__(self, consumer: _Optional[str] = ..., channel: _Optional[str] = ..., prefetch: _Optional[int] = ..., unacked: _Optional[int] = ..., no_ack: bool = ..., has_room: bool = ..., connected: bool = ...) -> None: ...

class DeclareExchangeRequest(_message.Message):
    __slots__ = ("exchange", "type", "durable", "check")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    exchange: str
    type: ExchangeType
    durable: bool
    check: bool
    def __init__(self, exchange: _Optional[str] = ..., type: _Optional[_Union[ExchangeType, str]] = ..., durable: bool = ..., check: bool = ...) -> None: ...

class DeclareExchangeResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: bool = ...) -> None: ...

class DeleteExchangeRequest(_message.Message):
    __slots__ = ("exchange",)
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    exchange: str
    def __init__(self, exchange: _Optional[str] = ...) -> None: ...

class DeleteExchangeResponse(_message.Message):
    __slots__ = ("bindings",)
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    bindings: int
    def __init__(self, bindings: _Optional[int] = ...) -> None: ...

class ListExchangesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListExchangesResponse(_message.Message):
    __slots__ = ("exchanges",)
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    exchanges: _containers.RepeatedCompositeFieldContainer[ExchangeInfo]
    def __init__(self, exchanges: _Optional[_Iterable[_Union[ExchangeInfo, _Mapping]]] = ...) -> None: ...

class ExchangeInfo(_message.Message):
    __slots__ = ("exchange", "type", "durable", "bindings")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    exchange: str
    type: ExchangeType
    durable: bool
    bindings: _containers.RepeatedCompositeFieldContainer[Binding]
    def __init__(self, exchange: _Optional[str] = ..., type: _Optional[_Union[ExchangeType, str]] = ..., durable: bool = ..., bindings: _Optional[_Iterable[_Union[Binding, _Mapping]]] = ...) -> None: ...

class Binding(_message.Message):
    __slots__ = ("queue", "binding_key")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BINDING_KEY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    binding_key: str
    def __init__(self, queue: _Optional[str] = ..., binding_key: _Optional[str] = ...) -> None: ...

class BindRequest(_message.Message):
    __slots__ = ("exchange", "queue", "binding_key", "check")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BINDING_KEY_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    exchange: str
    queue: str
    binding_key: str
    check: bool
    def __init__(self, exchange: _Optional[str] = ..., queue: _Optional[str] = ..., binding_key: _Optional[str] = ..., check: bool = ...) -> None: ...

class BindResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: bool = ...) -> None: ...

class UnbindRequest(_message.Message):
    __slots__ = ("exchange", "queue", "binding_key")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BINDING_KEY_FIELD_NUMBER: _ClassVar[int]
    exchange: str
    queue: str
    binding_key: str
    def __init__(self, exchange: _Optional[str] = ..., queue: _Optional[str] = ..., binding_key: _Optional[str] = ...) -> None: ...

class UnbindResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    def __init__(self, removed: bool = ...) -> None: ...

class PlanBrowseRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class PlanBrowseResponse(_message.Message):
    __slots__ = ("chunks",)
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    chunks: _containers.RepeatedCompositeFieldContainer[BrowseChunk]
    def __init__(self, chunks: _Optional[_Iterable[_Union[BrowseChunk, _Mapping]]] = ...) -> None: ...

class BrowseChunk(_message.Message):
    __slots__ = ("first_position", "last_position", "messages", "payload_bytes")
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    LAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    first_position: int
    last_position: int
    messages: int
    payload_bytes: int
    def __init__(self, first_position: _Optional[int] = ..., last_position: _Optional[int] = ..., messages: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class BrowseRequest(_message.Message):
    __slots__ = ("queue", "first_position", "last_position", "max_messages", "columns", "max_body_bytes")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    LAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    MAX_BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    first_position: int
    last_position: int
    max_messages: int
    columns: int
    max_body_bytes: int
    def __init__(self, queue: _Optional[str] = ..., first_position: _Optional[int] = ..., last_position: _Optional[int] = ..., max_messages: _Optional[int] = ..., columns: _Optional[int] = ..., max_body_bytes: _Optional[int] = ...) -> None: ...

class BrowseResponse(_message.Message):
    __slots__ = ("header", "block")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    header: _messages_pb2.DeliveryRuns
    block: bytes
    def __init__(self, header: _Optional[_Union[_messages_pb2.DeliveryRuns, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...
