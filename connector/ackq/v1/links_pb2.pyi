from ackq.v1 import sessions_pb2 as _sessions_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LinkAck(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_ACK_UNSPECIFIED: _ClassVar[LinkAck]
    LINK_ACK_SETTLED: _ClassVar[LinkAck]
    LINK_ACK_STORED: _ClassVar[LinkAck]
LINK_ACK_UNSPECIFIED: LinkAck
LINK_ACK_SETTLED: LinkAck
LINK_ACK_STORED: LinkAck

class LinkRequest(_message.Message):
    __slots__ = ("header", "block")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    header: LinkHeader
    block: bytes
    def __init__(self, header: _Optional[_Union[LinkHeader, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...

class LinkHeader(_message.Message):
    __slots__ = ("open", "subscribe", "deliveries", "heartbeat")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    open: LinkOpen
    subscribe: LinkSubscribe
    deliveries: LinkDeliveries
    heartbeat: LinkHeartbeat
    def __init__(self, open: _Optional[_Union[LinkOpen, _Mapping]] = ..., subscribe: _Optional[_Union[LinkSubscribe, _Mapping]] = ..., deliveries: _Optional[_Union[LinkDeliveries, _Mapping]] = ..., heartbeat: _Optional[_Union[LinkHeartbeat, _Mapping]] = ...) -> None: ...

class LinkOpen(_message.Message):
    __slots__ = ("link", "holder", "source", "queue", "ack", "drop_ambiguous", "reject_there", "attempt")
    LINK_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    DROP_AMBIGUOUS_FIELD_NUMBER: _ClassVar[int]
    REJECT_THERE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    link: str
    holder: _sessions_pb2.Holder
    source: str
    queue: str
    ack: LinkAck
    drop_ambiguous: bool
    reject_there: bool
    attempt: bytes
    def __init__(self, link: _Optional[str] = ..., holder: _Optional[_Union[_sessions_pb2.Holder, _Mapping]] = ..., source: _Optional[str] = ..., queue: _Optional[str] = ..., ack: _Optional[_Union[LinkAck, str]] = ..., drop_ambiguous: bool = ..., reject_there: bool = ..., attempt: _Optional[bytes] = ...) -> None: ...

class LinkSubscribe(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LinkDeliveries(_message.Message):
    __slots__ = ("subscription", "first_number", "rows", "lowest_unanswered", "keys", "checks", "content", "redelivered", "proven", "at_once", "proven_number", "repeats_end")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LOWEST_UNANSWERED_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    PROVEN_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    PROVEN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REPEATS_END_FIELD_NUMBER: _ClassVar[int]
    subscription: int
    first_number: int
    rows: int
    lowest_unanswered: int
    keys: bytes
    checks: bytes
    content: bytes
    redelivered: bytes
    proven: int
    at_once: bytes
    proven_number: int
    repeats_end: bool
    def __init__(self, subscription: _Optional[int] = ..., first_number: _Optional[int] = ..., rows: _Optional[int] = ..., lowest_unanswered: _Optional[int] = ..., keys: _Optional[bytes] = ..., checks: _Optional[bytes] = ..., content: _Optional[bytes] = ..., redelivered: _Optional[bytes] = ..., proven: _Optional[int] = ..., at_once: _Optional[bytes] = ..., proven_number: _Optional[int] = ..., repeats_end: bool = ...) -> None: ...

class LinkHeartbeat(_message.Message):
    __slots__ = ("subscription", "proven", "report", "proven_number")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PROVEN_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    PROVEN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    subscription: int
    proven: int
    report: LinkReport
    proven_number: int
    def __init__(self, subscription: _Optional[int] = ..., proven: _Optional[int] = ..., report: _Optional[_Union[LinkReport, _Mapping]] = ..., proven_number: _Optional[int] = ...) -> None: ...

class LinkReport(_message.Message):
    __slots__ = ("window_messages", "reconnects", "renewals", "lives_left", "limited_by", "set_aside", "set_aside_reason")
    WINDOW_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RECONNECTS_FIELD_NUMBER: _ClassVar[int]
    RENEWALS_FIELD_NUMBER: _ClassVar[int]
    LIVES_LEFT_FIELD_NUMBER: _ClassVar[int]
    LIMITED_BY_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_REASON_FIELD_NUMBER: _ClassVar[int]
    window_messages: int
    reconnects: int
    renewals: int
    lives_left: int
    limited_by: str
    set_aside: int
    set_aside_reason: str
    def __init__(self, window_messages: _Optional[int] = ..., reconnects: _Optional[int] = ..., renewals: _Optional[int] = ..., lives_left: _Optional[int] = ..., limited_by: _Optional[str] = ..., set_aside: _Optional[int] = ..., set_aside_reason: _Optional[str] = ...) -> None: ...

class LinkResponse(_message.Message):
    __slots__ = ("opened", "subscribed", "stored", "permits", "state")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    opened: LinkOpened
    subscribed: LinkSubscribed
    stored: LinkStored
    permits: LinkPermits
    state: LinkState
    def __init__(self, opened: _Optional[_Union[LinkOpened, _Mapping]] = ..., subscribed: _Optional[_Union[LinkSubscribed, _Mapping]] = ..., stored: _Optional[_Union[LinkStored, _Mapping]] = ..., permits: _Optional[_Union[LinkPermits, _Mapping]] = ..., state: _Optional[_Union[LinkState, _Mapping]] = ...) -> None: ...

class LinkOpened(_message.Message):
    __slots__ = ("incarnation", "epoch", "history", "subscription", "next_number", "paused")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    NEXT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    epoch: int
    history: str
    subscription: int
    next_number: int
    paused: bool
    def __init__(self, incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., history: _Optional[str] = ..., subscription: _Optional[int] = ..., next_number: _Optional[int] = ..., paused: bool = ...) -> None: ...

class LinkSubscribed(_message.Message):
    __slots__ = ("subscription",)
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: int
    def __init__(self, subscription: _Optional[int] = ...) -> None: ...

class LinkStored(_message.Message):
    __slots__ = ("first_number", "rows", "first_position", "matched", "permitted", "rejected", "refused", "reason", "fitting")
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    PERMITTED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FITTING_FIELD_NUMBER: _ClassVar[int]
    first_number: int
    rows: _containers.RepeatedScalarFieldContainer[int]
    first_position: _containers.RepeatedScalarFieldContainer[int]
    matched: _containers.RepeatedScalarFieldContainer[int]
    permitted: _containers.RepeatedScalarFieldContainer[int]
    rejected: _containers.RepeatedScalarFieldContainer[int]
    refused: str
    reason: str
    fitting: int
    def __init__(self, first_number: _Optional[int] = ..., rows: _Optional[_Iterable[int]] = ..., first_position: _Optional[_Iterable[int]] = ..., matched: _Optional[_Iterable[int]] = ..., permitted: _Optional[_Iterable[int]] = ..., rejected: _Optional[_Iterable[int]] = ..., refused: _Optional[str] = ..., reason: _Optional[str] = ..., fitting: _Optional[int] = ...) -> None: ...

class LinkPermits(_message.Message):
    __slots__ = ("first_number", "last_number", "rejected")
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LAST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    first_number: _containers.RepeatedScalarFieldContainer[int]
    last_number: _containers.RepeatedScalarFieldContainer[int]
    rejected: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first_number: _Optional[_Iterable[int]] = ..., last_number: _Optional[_Iterable[int]] = ..., rejected: _Optional[_Iterable[int]] = ...) -> None: ...

class LinkState(_message.Message):
    __slots__ = ("paused", "held", "missing")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    held: int
    missing: int
    def __init__(self, paused: bool = ..., held: _Optional[int] = ..., missing: _Optional[int] = ...) -> None: ...

class ListLinksRequest(_message.Message):
    __slots__ = ("link", "outbound")
    LINK_FIELD_NUMBER: _ClassVar[int]
    OUTBOUND_FIELD_NUMBER: _ClassVar[int]
    link: str
    outbound: bool
    def __init__(self, link: _Optional[str] = ..., outbound: bool = ...) -> None: ...

class ListLinksResponse(_message.Message):
    __slots__ = ("links", "outbound")
    LINKS_FIELD_NUMBER: _ClassVar[int]
    OUTBOUND_FIELD_NUMBER: _ClassVar[int]
    links: _containers.RepeatedCompositeFieldContainer[LinkInfo]
    outbound: _containers.RepeatedCompositeFieldContainer[OutboundReport]
    def __init__(self, links: _Optional[_Iterable[_Union[LinkInfo, _Mapping]]] = ..., outbound: _Optional[_Iterable[_Union[OutboundReport, _Mapping]]] = ...) -> None: ...

class OutboundReport(_message.Message):
    __slots__ = ("link", "queue", "target", "holder", "published", "refused", "unfit", "cuts", "stale", "doubts", "reason", "limited_by")
    LINK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    UNFIT_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    DOUBTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LIMITED_BY_FIELD_NUMBER: _ClassVar[int]
    link: str
    queue: str
    target: str
    holder: _sessions_pb2.Holder
    published: int
    refused: int
    unfit: int
    cuts: int
    stale: int
    doubts: int
    reason: str
    limited_by: str
    def __init__(self, link: _Optional[str] = ..., queue: _Optional[str] = ..., target: _Optional[str] = ..., holder: _Optional[_Union[_sessions_pb2.Holder, _Mapping]] = ..., published: _Optional[int] = ..., refused: _Optional[int] = ..., unfit: _Optional[int] = ..., cuts: _Optional[int] = ..., stale: _Optional[int] = ..., doubts: _Optional[int] = ..., reason: _Optional[str] = ..., limited_by: _Optional[str] = ...) -> None: ...

class ReportOutboundRequest(_message.Message):
    __slots__ = ("report",)
    REPORT_FIELD_NUMBER: _ClassVar[int]
    report: OutboundReport
    def __init__(self, report: _Optional[_Union[OutboundReport, _Mapping]] = ...) -> None: ...

class ReportOutboundResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LinkInfo(_message.Message):
    __slots__ = ("link", "incarnation", "epoch", "holder", "live", "source", "queue", "ack", "paused", "opened_us", "held", "settled", "unproven", "in_doubt", "tombstones", "held_oldest_age_ms", "taken", "stored", "matched_held", "matched_settled", "ambiguous", "id_reused", "permitted", "proven", "refusal", "report", "reject_there", "rejected")
    LINK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    OPENED_US_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    UNPROVEN_FIELD_NUMBER: _ClassVar[int]
    IN_DOUBT_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    HELD_OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_HELD_FIELD_NUMBER: _ClassVar[int]
    MATCHED_SETTLED_FIELD_NUMBER: _ClassVar[int]
    AMBIGUOUS_FIELD_NUMBER: _ClassVar[int]
    ID_REUSED_FIELD_NUMBER: _ClassVar[int]
    PERMITTED_FIELD_NUMBER: _ClassVar[int]
    PROVEN_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    REJECT_THERE_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    link: str
    incarnation: str
    epoch: int
    holder: _sessions_pb2.Holder
    live: bool
    source: str
    queue: str
    ack: LinkAck
    paused: bool
    opened_us: int
    held: int
    settled: int
    unproven: int
    in_doubt: int
    tombstones: int
    held_oldest_age_ms: int
    taken: int
    stored: int
    matched_held: int
    matched_settled: int
    ambiguous: int
    id_reused: int
    permitted: int
    proven: int
    refusal: str
    report: LinkReport
    reject_there: bool
    rejected: int
    def __init__(self, link: _Optional[str] = ..., incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., holder: _Optional[_Union[_sessions_pb2.Holder, _Mapping]] = ..., live: bool = ..., source: _Optional[str] = ..., queue: _Optional[str] = ..., ack: _Optional[_Union[LinkAck, str]] = ..., paused: bool = ..., opened_us: _Optional[int] = ..., held: _Optional[int] = ..., settled: _Optional[int] = ..., unproven: _Optional[int] = ..., in_doubt: _Optional[int] = ..., tombstones: _Optional[int] = ..., held_oldest_age_ms: _Optional[int] = ..., taken: _Optional[int] = ..., stored: _Optional[int] = ..., matched_held: _Optional[int] = ..., matched_settled: _Optional[int] = ..., ambiguous: _Optional[int] = ..., id_reused: _Optional[int] = ..., permitted: _Optional[int] = ..., proven: _Optional[int] = ..., refusal: _Optional[str] = ..., report: _Optional[_Union[LinkReport, _Mapping]] = ..., reject_there: bool = ..., rejected: _Optional[int] = ...) -> None: ...

class PauseLinkRequest(_message.Message):
    __slots__ = ("link", "paused")
    LINK_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    link: str
    paused: bool
    def __init__(self, link: _Optional[str] = ..., paused: bool = ...) -> None: ...

class PauseLinkResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: bool = ...) -> None: ...

class RemoveLinkRequest(_message.Message):
    __slots__ = ("link", "forget")
    LINK_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    link: str
    forget: bool
    def __init__(self, link: _Optional[str] = ..., forget: bool = ...) -> None: ...

class RemoveLinkResponse(_message.Message):
    __slots__ = ("held", "unproven")
    HELD_FIELD_NUMBER: _ClassVar[int]
    UNPROVEN_FIELD_NUMBER: _ClassVar[int]
    held: int
    unproven: int
    def __init__(self, held: _Optional[int] = ..., unproven: _Optional[int] = ...) -> None: ...
