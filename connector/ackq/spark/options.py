"""Turns option strings into frozen dataclasses, once; no other module sees an option string.

Spark hands every option over lower-cased. An option that does not exist, has an unreadable value,
belongs to another use of the format, or contradicts another one is an error: none is ever ignored.
Light to import, because Spark's look-up of data sources imports it for every application.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from ackq import limits
from ackq.client.security import Security
from ackq.errors import InvalidArgumentError, UnknownOptionError, UnsupportedError


class Use(Enum):
    """What a query does with the format; the value completes the sentence "an option of ..."."""

    SOURCE = "the streaming source"
    BROWSE = "the batch reader"
    SINK = "the streaming sink"
    BATCH = "the batch writer"


class Guarantee(Enum):
    """What the sink promises (K3)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


_PLAIN: Final = Security()


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the broker, from the driver and from every executor alike.

    Attributes:
        endpoint: `host:port`, or `unix:path`.
        security: Its PEM files lie under the same paths on every host.
        retry_ms: How long a broker that does not answer is tried again before the query fails.
    """

    endpoint: str
    security: Security = _PLAIN
    retry_ms: int = limits.RETRY_TOTAL_MS


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """How rows become tasks.

    Attributes:
        min_partitions: At least so many tasks where there are as many rows; 0: as many as are
            useful here.
        max_bytes_per_partition: A task reads about so many payload bytes at most.
    """

    min_partitions: int = 0
    max_bytes_per_partition: int = limits.DEFAULT_MAX_BYTES_PER_TRIGGER // 4


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A streaming read. Sizes are payload bytes; a 0 among the limits means none.

    Attributes:
        session: The session's name; empty: the broker makes one, which lives in the checkpoint.
        takeover: Open although another incarnation holds a lease under this name (S9).
        max_messages: Rows of a micro-batch at most (K6).
        max_bytes: Payload bytes of a micro-batch at most, about; one message always passes (S4).
        min_messages: Wait for so many ready messages ...
        max_delay_ms: ... but not when the oldest has waited so long.
        fail_on_data_loss: Whether a session that the broker no longer has ends the query.
    """

    connection: Connection
    queues: tuple[str, ...]
    session: str = ""
    takeover: bool = False
    max_messages: int = limits.DEFAULT_MAX_MESSAGES_PER_TRIGGER
    max_bytes: int = limits.DEFAULT_MAX_BYTES_PER_TRIGGER
    min_messages: int = 0
    max_delay_ms: int = 0
    fail_on_data_loss: bool = True
    split: SplitOptions = SplitOptions()


@dataclass(frozen=True, slots=True)
class BrowseOptions:
    """A batch read (Q5); positions are inclusive, 0 is the head or the tail."""

    connection: Connection
    queue: str
    first_position: int = 0
    last_position: int = 0
    split: SplitOptions = SplitOptions()


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A write. An option set here beats the column of the same meaning; None: the column decides.

    Attributes:
        queue: The queue of every row, through the default exchange.
        exchange: The exchange of every row.
        routing_key: The routing key of every row.
        mandatory: Whether a row that no queue wants fails its task (P7).
        persistent: The delivery mode of every row (P12).
        txn_app_id: With `txn_version`, makes a batch write idempotent (K12).
    """

    connection: Connection
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    mandatory: bool = True
    persistent: bool | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    txn_app_id: str | None = None
    txn_version: int | None = None


# --- values ---

_UNITS_BYTES: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _reject(name: str, value: str, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Option '{name}' is '{value}'; it takes {expected}.", option=name, value=value
    )


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise _reject(name, value, "a value that is not empty")
    return value.strip()


def _any_text(_name: str, value: str) -> str:
    return value


def _endpoint(name: str, value: str) -> str:
    if re.fullmatch(r"unix:.+", value.strip()):
        return value.strip()
    host, _, port = value.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise _reject(name, value, "the broker's host:port, for instance localhost:7070")
    return value.strip()


def _names(name: str, value: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise _reject(name, value, "distinct queue names, separated by commas")
    return names


def _flag(name: str, value: str) -> bool:
    if value.strip().lower() not in {"true", "false"}:
        raise _reject(name, value, "true or false")
    return value.strip().lower() == "true"


def _whole(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", value.strip()):
        raise _reject(name, value, "a whole number, 0 or more")
    return int(value)


def _count(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", value.strip()) or not int(value):
        raise _reject(name, value, "a whole number, 1 or more")
    return int(value)


def _size(name: str, value: str) -> int:
    """Bytes; units are powers of 1024, as everywhere in Spark."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([kmgt]?)i?b?", value.strip().lower())
    if not found or not int(found[1]):
        raise _reject(name, value, "a size, for instance 64k, 256m or 1g")
    return int(found[1]) * _UNITS_BYTES[found[2]]


def _duration(name: str, value: str) -> int:
    """Milliseconds; a number without a unit is refused: readers would guess different ones."""
    found = re.fullmatch(r"([0-9]{1,12})\s*(ms|s|m|min|h|d)", value.strip().lower())
    if not found:
        raise _reject(name, value, "a time with its unit, for instance 500ms, 30s, 15m or 2h")
    return int(found[1]) * _UNITS_MS[found[2]]


def _duration_or_never(name: str, value: str) -> int:
    return 0 if value.strip().lower() == "never" else _duration(name, value)


def _guarantee(name: str, value: str) -> Guarantee:
    try:
        return Guarantee(value.strip().lower())
    except ValueError:
        raise _reject(name, value, "exactly-once or at-least-once") from None


# --- the options ---


class _Option(NamedTuple):
    """One option: its name as documented, its reader, and who takes it."""

    name: str
    parse: Callable[[str, str], object]
    uses: frozenset[Use]


_ALL: Final = frozenset(Use)
_STREAM: Final = frozenset({Use.SOURCE})
_READ: Final = frozenset({Use.SOURCE, Use.BROWSE})
_WRITE: Final = frozenset({Use.SINK, Use.BATCH})
_BROWSE: Final = frozenset({Use.BROWSE})
_BATCH: Final = frozenset({Use.BATCH})

OPTIONS: Final = {
    option.name.lower(): option
    for option in (
        _Option("endpoint", _endpoint, _ALL),
        _Option("tls", _flag, _ALL),
        _Option("tlsCa", _text, _ALL),
        _Option("tlsCert", _text, _ALL),
        _Option("tlsKey", _text, _ALL),
        _Option("tlsServerName", _text, _ALL),
        _Option("retryTimeout", _duration, _ALL),
        _Option("queue", _text, _ALL),
        _Option("queues", _names, _STREAM),
        _Option("queuePattern", _text, _STREAM),
        _Option("session", _text, _STREAM),
        _Option("takeover", _flag, _STREAM),
        _Option("maxMessagesPerTrigger", _count, _STREAM),
        _Option("maxBytesPerTrigger", _size, _STREAM),
        _Option("minMessagesPerTrigger", _count, _STREAM),
        _Option("maxTriggerDelay", _duration, _STREAM),
        _Option("sessionTimeout", _duration_or_never, _STREAM),
        _Option("failOnDataLoss", _flag, _STREAM),
        _Option("minPartitions", _count, _READ),
        _Option("maxBytesPerPartition", _size, _READ),
        _Option("firstPosition", _count, _BROWSE),
        _Option("lastPosition", _count, _BROWSE),
        _Option("exchange", _text, _WRITE),
        _Option("routingKey", _any_text, _WRITE),
        _Option("mandatory", _flag, _WRITE),
        _Option("persistent", _flag, _WRITE),
        _Option("guarantee", _guarantee, _WRITE),
        _Option("unroutableQueue", _text, _WRITE),
        _Option("settle", _text, _BATCH),
        _Option("txnAppId", _text, _BATCH),
        _Option("txnVersion", _whole, _BATCH),
    )
}

# Spark's own keys, which it passes on to every source and sink.
_SPARK_KEYS: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
_SPARK_PREFIXES: Final = ("__", "spark.", "asyncprogress", "_asyncprogress")

# What other connectors call an option of ours: nearer in meaning than in letters.
_ELSEWHERE: Final = {
    "bootstrap.servers": "endpoint",
    "host": "endpoint",
    "kafka.bootstrap.servers": "endpoint",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "maxrowspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "minMessagesPerTrigger",
    "minrowspertrigger": "minMessagesPerTrigger",
    "subscribe": "queue",
    "topic": "queue",
}

Values = dict[str, Any]


def check(options: Mapping[str, str]) -> Values:
    """The values of all options by documented name, each checked by itself, whoever may take it.

    Args:
        options: As Spark gives them; names in any case.

    Raises:
        UnknownOptionError: There is no such option; the message names the nearest.
        InvalidArgumentError: A value is not what its option takes, or `endpoint` is missing.
    """
    values: Values = {}
    for key, value in options.items():
        lower = key.lower()
        if lower in _SPARK_KEYS or lower.startswith(_SPARK_PREFIXES):
            continue
        if lower not in OPTIONS:
            raise _unknown(key)
        option = OPTIONS[lower]
        values[option.name] = option.parse(option.name, value)
    if "endpoint" not in values:
        raise InvalidArgumentError(
            "The option 'endpoint' is missing. Say where the broker is:"
            " .option('endpoint', 'host:port').",
            option="endpoint",
        )
    return values


def source(options: Mapping[str, str]) -> SourceOptions:
    """The options of a streaming read.

    Raises:
        InvalidArgumentError: As `check`, and for options that contradict each other.
        UnsupportedError: An option that no broker serves yet.
    """
    values = _for(Use.SOURCE, options)
    _refuse_unsupported(values)
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
    return SourceOptions(
        connection=_connection(values),
        queues=_queues(values),
        session=values.get("session", ""),
        takeover=values.get("takeover", False),
        max_messages=most,
        max_bytes=values.get("maxBytesPerTrigger", limits.DEFAULT_MAX_BYTES_PER_TRIGGER),
        min_messages=least,
        max_delay_ms=values.get("maxTriggerDelay", 15 * 60_000) if least else 0,
        fail_on_data_loss=values.get("failOnDataLoss", True),
        split=_split(values),
    )


def browse(options: Mapping[str, str]) -> BrowseOptions:
    """The options of a batch read; errors as `check`."""
    values = _for(Use.BROWSE, options)
    first, last = values.get("firstPosition", 0), values.get("lastPosition", 0)
    if last and first > last:
        raise _contradiction(
            f"firstPosition ({first}) is above lastPosition ({last})", "the range would be empty"
        )
    return BrowseOptions(
        connection=_connection(values),
        queue=_required_queue(values),
        first_position=first,
        last_position=last,
        split=_split(values),
    )


def sink(options: Mapping[str, str], use: Use) -> SinkOptions:
    """The options of a write, streaming (`Use.SINK`) or batch (`Use.BATCH`); errors as `check`."""
    values = _for(use, options)
    for name, instead in (
        ("unroutableQueue", "bind a catch-all queue to the exchange, or set mandatory=false"),
        ("settle", "settle with the client library"),
    ):
        if name in values:
            raise _unsupported(name, instead)
    for other in ("exchange", "routingKey"):
        if "queue" in values and other in values:
            raise _contradiction(
                f"queue and {other} are both set",
                "queue means the default exchange with the queue's name as routing key; set one of"
                " the two",
            )
    if ("txnAppId" in values) != ("txnVersion" in values):
        raise _contradiction(
            "only one of txnAppId and txnVersion is set", "a write is idempotent by both together"
        )
    guarantee = values.get("guarantee", Guarantee.EXACTLY_ONCE)
    if "txnAppId" in values and guarantee is Guarantee.AT_LEAST_ONCE:
        raise _contradiction(
            "txnAppId is set with guarantee=at-least-once",
            "only an exactly-once write is recognised when it is repeated; drop one of them",
        )
    return SinkOptions(
        connection=_connection(values),
        queue=values.get("queue"),
        exchange=values.get("exchange"),
        routing_key=values.get("routingKey"),
        mandatory=values.get("mandatory", True),
        persistent=values.get("persistent"),
        guarantee=guarantee,
        txn_app_id=values.get("txnAppId"),
        txn_version=values.get("txnVersion"),
    )


def _for(use: Use, options: Mapping[str, str]) -> Values:
    """`check`, and that each option belongs to this use."""
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


def _connection(values: Values) -> Connection:
    files = [name for name in ("tlsCa", "tlsCert", "tlsKey", "tlsServerName") if name in values]
    if files and not values.get("tls", True):
        raise _contradiction(f"tls is false and {files[0]} is set", "remove one of them")
    if ("tlsCert" in values) != ("tlsKey" in values):
        raise _contradiction("only one of tlsCert and tlsKey is set", "a client identity is both")
    return Connection(
        endpoint=values["endpoint"],
        security=Security(
            tls=values.get("tls", bool(files)),
            ca=values.get("tlsCa", ""),
            cert=values.get("tlsCert", ""),
            key=values.get("tlsKey", ""),
            server_name=values.get("tlsServerName", ""),
        ),
        retry_ms=values.get("retryTimeout", limits.RETRY_TOTAL_MS),
    )


def _split(values: Values) -> SplitOptions:
    default = SplitOptions()
    return SplitOptions(
        min_partitions=values.get("minPartitions", default.min_partitions),
        max_bytes_per_partition=values.get("maxBytesPerPartition", default.max_bytes_per_partition),
    )


def _queues(values: Values) -> tuple[str, ...]:
    if "queue" in values and "queues" in values:
        raise _contradiction("queue and queues are both set", "name all queues in one of them")
    if "queues" in values:
        names: tuple[str, ...] = values["queues"]
        return names
    return (_required_queue(values),)


def _required_queue(values: Values) -> str:
    if "queue" not in values:
        raise InvalidArgumentError(
            "The option 'queue' is missing: say what to read, .option('queue', 'name').",
            option="queue",
        )
    queue: str = values["queue"]
    return queue


def _refuse_unsupported(values: Values) -> None:
    """Options that no broker serves yet: ignoring one would change what the query reads."""
    if "queuePattern" in values:
        raise _unsupported("queuePattern", "name the queues: .option('queues', 'a,b')")
    if values.get("sessionTimeout"):
        raise _unsupported(
            "sessionTimeout", "leave it at 'never' and release by hand: ackq session release"
        )


def _unknown(key: str) -> UnknownOptionError:
    nearest = _ELSEWHERE.get(key.lower())
    if nearest is None:
        (match,) = difflib.get_close_matches(key.lower(), OPTIONS, n=1, cutoff=0.0)
        nearest = OPTIONS[match].name
    return UnknownOptionError(
        f"There is no option '{key}'. Did you mean '{nearest}'?", option=key, nearest=nearest
    )


def _unsupported(name: str, instead: str) -> UnsupportedError:
    return UnsupportedError(
        f"Option '{name}' is not supported yet. Instead: {instead}.", option=name
    )


def _contradiction(what: str, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The options contradict each other: {what}; {remedy}.")
