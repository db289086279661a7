from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeliveryMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELIVERY_MODE_UNSPECIFIED: _ClassVar[DeliveryMode]
    DELIVERY_MODE_PERSISTENT: _ClassVar[DeliveryMode]
    DELIVERY_MODE_NON_PERSISTENT: _ClassVar[DeliveryMode]

class Column(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLUMN_UNSPECIFIED: _ClassVar[Column]
    COLUMN_BODY: _ClassVar[Column]
    COLUMN_ROUTING_KEY: _ClassVar[Column]
    COLUMN_MESSAGE_ID: _ClassVar[Column]
    COLUMN_CORRELATION_ID: _ClassVar[Column]
    COLUMN_REPLY_TO: _ClassVar[Column]
    COLUMN_CONTENT_TYPE: _ClassVar[Column]
    COLUMN_HEADERS: _ClassVar[Column]
    COLUMN_PUBLISHED_AT: _ClassVar[Column]
    COLUMN_EXPIRES_AT: _ClassVar[Column]
    COLUMN_PERSISTENT: _ClassVar[Column]
    COLUMN_TTL_MS: _ClassVar[Column]
    COLUMN_DELIVERY_TAG: _ClassVar[Column]
    COLUMN_QUEUE: _ClassVar[Column]
    COLUMN_REDELIVERED: _ClassVar[Column]
    COLUMN_DELIVERY_COUNT: _ClassVar[Column]
    COLUMN_POSITION: _ClassVar[Column]
    COLUMN_LEASED: _ClassVar[Column]
DELIVERY_MODE_UNSPECIFIED: DeliveryMode
DELIVERY_MODE_PERSISTENT: DeliveryMode
DELIVERY_MODE_NON_PERSISTENT: DeliveryMode
COLUMN_UNSPECIFIED: Column
COLUMN_BODY: Column
COLUMN_ROUTING_KEY: Column
COLUMN_MESSAGE_ID: Column
COLUMN_CORRELATION_ID: Column
COLUMN_REPLY_TO: Column
COLUMN_CONTENT_TYPE: Column
COLUMN_HEADERS: Column
COLUMN_PUBLISHED_AT: Column
COLUMN_EXPIRES_AT: Column
COLUMN_PERSISTENT: Column
COLUMN_TTL_MS: Column
COLUMN_DELIVERY_TAG: Column
COLUMN_QUEUE: Column
COLUMN_REDELIVERED: Column
COLUMN_DELIVERY_COUNT: Column
COLUMN_POSITION: Column
COLUMN_LEASED: Column

class Message(_message.Message):
    __slots__ = ("body", "routing_key", "message_id", "correlation_id", "reply_to", "content_type", "headers", "published_at_us", "ttl_ms", "delivery_mode")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BODY_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLY_TO_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_US_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_MODE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    routing_key: str
    message_id: str
    correlation_id: str
    reply_to: str
    content_type: str
    headers: _containers.ScalarMap[str, str]
    published_at_us: int
    ttl_ms: int
    delivery_mode: DeliveryMode
    def __init__(self, body: _Optional[bytes] = ..., routing_key: _Optional[str] = ..., message_id: _Optional[str] = ..., correlation_id: _Optional[str] = ..., reply_to: _Optional[str] = ..., content_type: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., published_at_us: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., delivery_mode: _Optional[_Union[DeliveryMode, str]] = ...) -> None: ...

class BlockHeader(_message.Message):
    __slots__ = ("columns", "rows", "payload_bytes", "routing_key", "published_at_us", "delivery_mode")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_US_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_MODE_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    payload_bytes: int
    routing_key: str
    published_at_us: int
    delivery_mode: DeliveryMode
    def __init__(self, columns: _Optional[int] = ..., rows: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., routing_key: _Optional[str] = ..., published_at_us: _Optional[int] = ..., delivery_mode: _Optional[_Union[DeliveryMode, str]] = ...) -> None: ...

class Block(_message.Message):
    __slots__ = ("header", "arrow")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    header: BlockHeader
    arrow: bytes
    def __init__(self, header: _Optional[_Union[BlockHeader, _Mapping]] = ..., arrow: _Optional[bytes] = ...) -> None: ...

class DeliveryRuns(_message.Message):
    __slots__ = ("first_tag", "rows", "delivery_count", "queue_index", "queues", "leased", "body_bytes")
    FIRST_TAG_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_INDEX_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    first_tag: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedScalarFieldContainer[int]
    delivery_count: _containers.RepeatedScalarFieldContainer[int]
    queue_index: _containers.RepeatedScalarFieldContainer[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    leased: _containers.RepeatedScalarFieldContainer[int]
    body_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first_tag: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[int]] = ..., delivery_count: _Optional[_Iterable[int]] = ..., queue_index: _Optional[_Iterable[int]] = ..., queues: _Optional[_Iterable[str]] = ..., leased: _Optional[_Iterable[int]] = ..., body_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "message", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    fields: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., fields: _Optional[_Mapping[str, str]] = ...) -> None: ...
