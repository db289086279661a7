from ackq.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_ACCEPTED: _ClassVar[Outcome]
    OUTCOME_FAILED: _ClassVar[Outcome]
    OUTCOME_REJECTED: _ClassVar[Outcome]
    OUTCOME_RELEASED: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_ACCEPTED: Outcome
OUTCOME_FAILED: Outcome
OUTCOME_REJECTED: Outcome
OUTCOME_RELEASED: Outcome

class ConsumeRequest(_message.Message):
    __slots__ = ("open", "subscribe", "unsubscribe", "settle", "transport_ack", "prefetch", "get", "heartbeat")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_ACK_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    open: ChannelOpen
    subscribe: Subscribe
    unsubscribe: Unsubscribe
    settle: Settle
    transport_ack: TransportAck
    prefetch: Prefetch
    get: Get
    heartbeat: ChannelHeartbeat
    def __init__(self, open: _Optional[_Union[ChannelOpen, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ..., settle: _Optional[_Union[Settle, _Mapping]] = ..., transport_ack: _Optional[_Union[TransportAck, _Mapping]] = ..., prefetch: _Optional[_Union[Prefetch, _Mapping]] = ..., get: _Optional[_Union[Get, _Mapping]] = ..., heartbeat: _Optional[_Union[ChannelHeartbeat, _Mapping]] = ...) -> None: ...

class ChannelOpen(_message.Message):
    __slots__ = ("channel_id", "window_messages", "label", "attempt")
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    channel_id: bytes
    window_messages: int
    label: str
    attempt: bytes
    def __init__(self, channel_id: _Optional[bytes] = ..., window_messages: _Optional[int] = ..., label: _Optional[str] = ..., attempt: _Optional[bytes] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("consumer", "queue", "prefetch", "outcomes", "no_ack", "renewed", "message_ids", "prefetch_bytes")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    NO_ACK_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    queue: str
    prefetch: int
    outcomes: _containers.RepeatedScalarFieldContainer[Outcome]
    no_ack: bool
    renewed: bool
    message_ids: bool
    prefetch_bytes: int
    def __init__(self, consumer: _Optional[str] = ..., queue: _Optional[str] = ..., prefetch: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, str]]] = ..., no_ack: bool = ..., renewed: bool = ..., message_ids: bool = ..., prefetch_bytes: _Optional[int] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("consumer",)
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    def __init__(self, consumer: _Optional[str] = ...) -> None: ...

class Settle(_message.Message):
    __slots__ = ("delivery_tag", "multiple", "outcome", "reason", "delay_ms", "number", "first_tag", "rows")
    DELIVERY_TAG_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FIRST_TAG_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    delivery_tag: int
    multiple: bool
    outcome: Outcome
    reason: str
    delay_ms: int
    number: int
    first_tag: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, delivery_tag: _Optional[int] = ..., multiple: bool = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., delay_ms: _Optional[int] = ..., number: _Optional[int] = ..., first_tag: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[int]] = ...) -> None: ...

class TransportAck(_message.Message):
    __slots__ = ("delivery_tag",)
    DELIVERY_TAG_FIELD_NUMBER: _ClassVar[int]
    delivery_tag: int
    def __init__(self, delivery_tag: _Optional[int] = ...) -> None: ...

class Prefetch(_message.Message):
    __slots__ = ("consumer", "messages")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    messages: int
    def __init__(self, consumer: _Optional[str] = ..., messages: _Optional[int] = ...) -> None: ...

class Get(_message.Message):
    __slots__ = ("queue", "messages", "number", "no_ack")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NO_ACK_FIELD_NUMBER: _ClassVar[int]
    queue: str
    messages: int
    number: int
    no_ack: bool
    def __init__(self, queue: _Optional[str] = ..., messages: _Optional[int] = ..., number: _Optional[int] = ..., no_ack: bool = ...) -> None: ...

class ChannelHeartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("header", "block")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    header: ConsumeHeader
    block: bytes
    def __init__(self, header: _Optional[_Union[ConsumeHeader, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...

class ConsumeHeader(_message.Message):
    __slots__ = ("opened", "delivery", "settled", "get_empty", "cancelled", "heartbeat")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    GET_EMPTY_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    opened: ChannelOpened
    delivery: Delivery
    settled: Settled
    get_empty: GetEmpty
    cancelled: ConsumerCancelled
    heartbeat: ChannelHeartbeat
    def __init__(self, opened: _Optional[_Union[ChannelOpened, _Mapping]] = ..., delivery: _Optional[_Union[Delivery, _Mapping]] = ..., settled: _Optional[_Union[Settled, _Mapping]] = ..., get_empty: _Optional[_Union[GetEmpty, _Mapping]] = ..., cancelled: _Optional[_Union[ConsumerCancelled, _Mapping]] = ..., heartbeat: _Optional[_Union[ChannelHeartbeat, _Mapping]] = ...) -> None: ...

class ChannelOpened(_message.Message):
    __slots__ = ("outcomes", "heartbeat_ms", "resumed", "settle_runs", "instance")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    SETTLE_RUNS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[Outcome]
    heartbeat_ms: int
    resumed: bool
    settle_runs: bool
    instance: bytes
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, str]]] = ..., heartbeat_ms: _Optional[int] = ..., resumed: bool = ..., settle_runs: bool = ..., instance: _Optional[bytes] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("consumer", "runs", "get_number")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    GET_NUMBER_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    runs: _messages_pb2.DeliveryRuns
    get_number: int
    def __init__(self, consumer: _Optional[str] = ..., runs: _Optional[_Union[_messages_pb2.DeliveryRuns, _Mapping]] = ..., get_number: _Optional[int] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("number", "settled")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    number: int
    settled: int
    def __init__(self, number: _Optional[int] = ..., settled: _Optional[int] = ...) -> None: ...

class GetEmpty(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class ConsumerCancelled(_message.Message):
    __slots__ = ("consumer", "reason")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    reason: _messages_pb2.ErrorDetail
    def __init__(self, consumer: _Optional[str] = ..., reason: _Optional[_Union[_messages_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...
