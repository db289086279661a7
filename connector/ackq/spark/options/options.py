"""Parses option strings into frozen dataclasses; no other module sees an option string.

Invariant: no option is ignored. One that does not exist, has an invalid value, belongs to another
use of the format, or contradicts another one is an error. Light to import, because Spark's look-up
of data sources imports it for every application.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from ackq import limits
from ackq.client.connection.broker import SETTINGS, Broker
from ackq.client.connection.security import Security
from ackq.errors import InvalidArgumentError
from ackq.spark.options.table import OPTIONS, Use, Values, check
from ackq.spark.options.values import Guarantee, StartFrom

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# The default of `maxTriggerDelay` with a `minMessagesPerTrigger`.
_MOST_DELAY_MS: Final = 15 * 60_000
# Options of a batch read: of accepted batches, and of a queue.
_OF_RETAINED: Final = {"batch", "from", "to"}
_OF_QUEUE: Final = {"queue", "firstPosition", "lastPosition"}
_SOURCES_OF_QUEUES: Final = ("queue", "queues", "queuePattern", "subscription")
# The outcomes that the other settings of a settlement apply to (C4).
APPLIES_TO: Final = {
    "reason": ("failed", "rejected"),
    "delay": ("failed", "released"),
    "discard": ("rejected",),
}


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """Options for splitting rows into tasks.

    Attributes:
        min_partitions: Minimum number of tasks, if there are as many rows; 0: by size and cores.
        max_bytes_per_partition: Approximate maximum of payload bytes per task.
    """

    min_partitions: int = 0
    max_bytes_per_partition: int = limits.DEFAULT_MAX_BYTES_PER_TRIGGER // 4


@dataclass(frozen=True, slots=True)
class _Edges:
    """The brokers of a query, one or several (S12)."""

    edges: tuple[Broker, ...]

    @property
    def broker(self) -> Broker:
        """The broker that is named first."""
        return self.edges[0]

    @property
    def endpoints(self) -> list[str]:
        """Their endpoints, in this order."""
        return [each.endpoint for each in self.edges]

    def at(self, endpoint: str) -> Broker:
        """The broker at an endpoint, named or not; errors as `edge`."""
        return edge(self.broker, endpoint)


@dataclass(frozen=True, slots=True)
class SourceOptions(_Edges):
    """Options of a streaming read. Sizes are payload bytes; a limit of 0 means none.

    Attributes:
        queues: Names of the queues to read; empty with a pattern.
        queue_pattern: In place of `queues`: all queues whose names match, future ones included; `*`
            stands for any characters, `?` for one (S10).
        exchange: The exchange of a subscription, to which the one queue is bound; empty: none.
        binding: Keys that bind a subscription's queue; empty: it gets all messages (S10).
        session: The session's name; empty: the broker makes one, which the checkpoint keeps.
        session_timeout_ms: Requeue the lease after this absence of the query; 0: never (S5).
        takeover: Open although another incarnation holds a lease under this name (S9).
        max_messages: Maximum number of rows per micro-batch (K6).
        max_bytes: Approximate maximum of payload bytes per micro-batch; at least one message (S4).
        min_messages: Wait for this number of ready messages ...
        max_delay_ms: ... but at most until the oldest is this old.
        fail_on_data_loss: Whether a session that the broker has lost ends the query.
        accept_unread: Accept a batch whose rows no task has read (S11).
        skip_away: Read the other edges while one does not answer.
        start_from: With a new checkpoint: what the session retained is read again first (S14).
        retain_ms: How long accepted batches can be read again (S13) ...
        retain_bytes: ... and how many payload bytes of them; with neither, only the last one.
        bounded: Whether an option gives one of the two maxima (K13).
    """

    queues: tuple[str, ...]
    queue_pattern: str = ""
    exchange: str = ""
    binding: tuple[str, ...] = ()
    session: str = ""
    session_timeout_ms: int = 0
    takeover: bool = False
    max_messages: int = limits.DEFAULT_MAX_MESSAGES_PER_TRIGGER
    max_bytes: int = limits.DEFAULT_MAX_BYTES_PER_TRIGGER
    min_messages: int = 0
    max_delay_ms: int = 0
    fail_on_data_loss: bool = True
    accept_unread: bool = False
    skip_away: bool = False
    start_from: StartFrom | None = None
    retain_ms: int = 0
    retain_bytes: int = 0
    bounded: bool = False
    split: SplitOptions = SplitOptions()


@dataclass(frozen=True, slots=True)
class BrowseOptions:
    """Options of a batch read (Q5); positions are inclusive, 0 means the head or the tail."""

    broker: Broker
    queue: str
    first_position: int = 0
    last_position: int = 0
    split: SplitOptions = SplitOptions()


@dataclass(frozen=True, slots=True)
class RetainedOptions:
    """Options of a batch read of accepted batches (S13): one by its number, or by acceptance.

    Attributes:
        session: Name of the session that retains them.
        batch: The query's number of the batch; None: those of the time.
        from_us: Accepted at or after this time, microseconds since the epoch; 0: from the oldest.
        to_us: Accepted before this time; 0: up to the newest.
    """

    broker: Broker
    session: str
    batch: int | None = None
    from_us: int = 0
    to_us: int = 0
    split: SplitOptions = SplitOptions()


@dataclass(frozen=True, slots=True)
class SinkOptions(_Edges):
    """Options of a write; one that is not None overrides the column of the same meaning.

    Attributes:
        queue: The queue of every row, through the default exchange.
        exchange: The exchange of every row.
        routing_key: The routing key of every row.
        mandatory: Whether an unroutable row fails its task (P7).
        unroutable_queue: The queue for unroutable rows instead.
        persistent: The delivery mode of every row (P12).
        txn_app_id: With `txn_version`, makes a batch write idempotent (K12).
        keep_changed: Treat a batch that was committed as another one as done (K3).
        shard_by: The column that decides on a row's edge (K14); empty: the routing key.
    """

    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    mandatory: bool = True
    unroutable_queue: str | None = None
    persistent: bool | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    txn_app_id: str | None = None
    txn_version: int | None = None
    keep_changed: bool = False
    shard_by: str = ""


@dataclass(frozen=True, slots=True)
class SettleOptions(_Edges):
    """Options of a write that settles messages of a session's lease (S6, K8).

    For fields that are None, the column of that name decides, if there is one.

    Attributes:
        session: The session that leases the messages; empty: the one that the query reads.
        outcome: The outcome of every row.
        reason: The reason of every row.
        delay_ms: The redelivery delay of every row.
        discard: Whether REJECTED discards messages of a queue without a dead-letter queue.
    """

    session: str = ""
    outcome: str | None = None
    reason: str | None = None
    delay_ms: int | None = None
    discard: bool = False


def source(options: Mapping[str, str]) -> SourceOptions:
    """The options of a streaming read.

    Raises:
        InvalidArgumentError: As `check`, and for options that contradict each other.
    """
    values = _for(Use.SOURCE, options)
    most = values.get("maxMessagesPerTrigger", limits.DEFAULT_MAX_MESSAGES_PER_TRIGGER)
    least = values.get("minMessagesPerTrigger", 0)
    if least > most:
        raise _contradiction(
            f"minMessagesPerTrigger ({least}) is above maxMessagesPerTrigger ({most})",
            "a batch could never start; lower the one or raise the other",
        )
    if "maxTriggerDelay" in values and not least:
        raise _contradiction(
            "maxTriggerDelay is set without minMessagesPerTrigger",
            "it bounds the wait for that many messages; set both or neither",
        )
    if "startFrom" in values and "session" not in values:
        raise _contradiction(
            "startFrom is set without session",
            "it reads again what a session of this name retained; set both",
        )
    given = _given(values, SourceOptions)
    if least:
        given.setdefault("max_delay_ms", _MOST_DELAY_MS)
    if "onEdgeAway" in values and len(values["endpoint"]) == 1:
        raise _contradiction(
            "onEdgeAway is set and endpoint names one broker", "it is for several; remove it"
        )
    return SourceOptions(
        edges=_brokers(values),
        queues=_queues(values),
        bounded=bool({"maxMessagesPerTrigger", "maxBytesPerTrigger"} & values.keys()),
        split=_split(values),
        **given,
    )


def browse(options: Mapping[str, str]) -> BrowseOptions:
    """The options of a batch read; errors as `check`."""
    values = _for(Use.BROWSE, options)
    for name in _OF_RETAINED & values.keys():
        raise _contradiction(
            f"{name} is set without session", "it chooses accepted batches of a session; set both"
        )
    first, last = values.get("firstPosition", 0), values.get("lastPosition", 0)
    if last and first > last:
        raise _contradiction(
            f"firstPosition ({first}) is above lastPosition ({last})", "the range would be empty"
        )
    broker, given = _broker(values), _given(values, BrowseOptions)
    _required_queue(values)
    return BrowseOptions(broker=broker, split=_split(values), **given)


def reads_session(options: Mapping[str, str]) -> bool:
    """Whether a batch read is of a session's accepted batches, and not of a queue."""
    return any(name.lower() == "session" for name in options)


def retained(options: Mapping[str, str]) -> RetainedOptions:
    """The options of a batch read of accepted batches; errors as `check`."""
    values = _for(Use.BROWSE, options)
    for name in _OF_QUEUE & values.keys():
        raise _contradiction(
            f"session and {name} are both set", "read accepted batches of a session, or a queue"
        )
    times = sorted({"from", "to"} & values.keys())
    if "batch" in values and times:
        raise _contradiction(f"batch and {times[0]} are both set", "set one of the two")
    if len(times) > 1 and values["from"] >= values["to"]:
        raise _contradiction("from is not before to", "the time would be empty")
    broker, given = _broker(values), _given(values, RetainedOptions)
    return RetainedOptions(broker=broker, split=_split(values), **given)


def sink(options: Mapping[str, str], use: Use) -> SinkOptions:
    """The options of a write, streaming (`Use.SINK`) or batch (`Use.BATCH`); errors as `check`."""
    values = _for(use, options)
    for other in ("exchange", "routingKey"):
        if "queue" in values and other in values:
            raise _contradiction(
                f"queue and {other} are both set",
                "queue means the default exchange with the queue's name as routing key; set one of"
                " the two",
            )
    if "unroutableQueue" in values and not values.get("mandatory", True):
        raise _contradiction(
            "unroutableQueue is set with mandatory=false",
            "an unroutable row would be both kept and dropped; remove one of them",
        )
    if ("txnAppId" in values) != ("txnVersion" in values):
        raise _contradiction(
            "only one of txnAppId and txnVersion is set", "an idempotent write needs both"
        )
    guarantee = values.get("guarantee", Guarantee.EXACTLY_ONCE)
    if "txnAppId" in values and guarantee is Guarantee.AT_LEAST_ONCE:
        raise _contradiction(
            "txnAppId is set with guarantee=at-least-once",
            "only an exactly-once write is recognised when it is repeated; drop one of them",
        )
    if "changedBatch" in values and guarantee is Guarantee.AT_LEAST_ONCE:
        raise _contradiction(
            "changedBatch is set with guarantee=at-least-once",
            "only an exactly-once write is recognised when it is repeated; drop one of them",
        )
    if "unroutableQueue" in values and guarantee is Guarantee.AT_LEAST_ONCE:
        raise _contradiction(
            "unroutableQueue is set with guarantee=at-least-once",
            "only a row of an exactly-once write can go to it; drop one of them",
        )
    if "shardBy" in values and len(values["endpoint"]) == 1:
        raise _contradiction(
            "shardBy is set and endpoint names one broker", "it is for several; remove it"
        )
    return SinkOptions(edges=_brokers(values), **_given(values, SinkOptions))


def settles(options: Mapping[str, str]) -> bool:
    """Whether a batch write settles messages instead of publishing them."""
    return any(name.lower() == "settle" for name in options)


def settle(options: Mapping[str, str]) -> SettleOptions:
    """The options of a settling write; errors as `check`, and for options without effect."""
    values = _for(Use.SETTLE, options)
    outcome = values["settle"]
    if outcome is not None:
        for name in ("reason", "delay", "discard"):
            if values.get(name) and outcome not in APPLIES_TO[name]:
                raise _contradiction(
                    f"{name} is set with settle={outcome}",
                    f"it is for {' and '.join(APPLIES_TO[name])}; remove it",
                )
    return SettleOptions(edges=_brokers(values), **_given(values, SettleOptions))


def _for(use: Use, options: Mapping[str, str]) -> Values:
    """The checked values; an option of another use is an error."""
    values = check(options)
    for name in values:
        uses = OPTIONS[name.lower()].uses
        if use not in uses:
            owners = " and ".join(sorted(owner.value for owner in uses))
            raise InvalidArgumentError(
                f"Option '{name}' belongs to {owners}; {use.value} has no use for it. Remove it.",
                option=name,
            )
    return values


def _broker(values: Values) -> Broker:
    """The broker of a use that takes one."""
    brokers = _brokers(values)
    if len(brokers) > 1:
        raise InvalidArgumentError(
            "Option 'endpoint' names several brokers: a batch read takes one. Name one, and put"
            " several reads together with union.",
            option="endpoint",
        )
    return brokers[0]


def _brokers(values: Values) -> tuple[Broker, ...]:
    names = ("tlsCa", "tlsCert", "tlsKey")
    given = [each for name in names for each in (name, f"{name}Pem") if each in values]
    given += ["tlsServerName"] if "tlsServerName" in values else []
    if given and not values.get("tls", True):
        raise _contradiction(f"tls is false and {given[0]} is set", "remove one of them")
    for name in names:
        if name in given and f"{name}Pem" in given:
            raise _contradiction(f"{name} and {name}Pem are both set", "remove one of them")
    if len({"tlsCert", "tlsCertPem"} & set(given)) != len({"tlsKey", "tlsKeyPem"} & set(given)):
        raise _contradiction(
            "only one of tlsCert and tlsKey is set", "a client identity needs both"
        )
    if "token" in values and "tokenFile" in values:
        raise _contradiction("token and tokenFile are both set", "remove one of them")
    named = {each.field: values[each.option] for each in SETTINGS if each.option in values}
    security = Security(**{"tls": bool(given), **named})
    retry_ms = values.get("retryTimeout", limits.RETRY_TOTAL_MS)
    return tuple(edge(Broker("", security, retry_ms), each) for each in values["endpoint"])


def edge(broker: Broker, endpoint: str) -> Broker:
    """The broker at another endpoint, with the same security and retries.

    Raises:
        InvalidArgumentError: The token would be sent there unencrypted (A9).
    """
    broker.security.check_endpoint(endpoint)
    return replace(broker, endpoint=endpoint)


def _split(values: Values) -> SplitOptions:
    return SplitOptions(**_given(values, SplitOptions))


def _given(values: Values, kind: type[DataclassInstance]) -> Values:
    """The values for the fields of a class of options; fields without one keep their defaults."""
    names = {each.name for each in fields(kind)}
    by_field = {OPTIONS[name.lower()].field: value for name, value in values.items()}
    return {name: value for name, value in by_field.items() if name in names}


def _queues(values: Values) -> tuple[str, ...]:
    given = [name for name in _SOURCES_OF_QUEUES if name in values]
    if len(given) > 1:
        raise _contradiction(
            f"{' and '.join(given)} are both set",
            "name all queues, or their pattern, in one of them",
        )
    if ("subscription" in values) != ("exchange" in values):
        raise _contradiction(
            "only one of exchange and subscription is set",
            "the queue that 'subscription' names is bound to 'exchange'; set both or neither",
        )
    if given == ["subscription"]:
        return (values["subscription"],)
    if "binding" in values:
        raise _contradiction(
            "binding is set without subscription",
            "it says what the subscription's queue gets; set exchange and subscription, too",
        )
    if given == ["queuePattern"]:
        return ()
    if given == ["queues"]:
        names: tuple[str, ...] = values["queues"]
        return names
    return (_required_queue(values),)


def _required_queue(values: Values) -> str:
    if "queue" not in values:
        raise InvalidArgumentError(
            "The option 'queue' is missing: name the queue to read, .option('queue', 'name').",
            option="queue",
        )
    queue: str = values["queue"]
    return queue


def _contradiction(what: str, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The options contradict each other: {what}; {remedy}.")
