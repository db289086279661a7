"""Table of all options: name, parser, and the uses of the format that take them.

Spark passes all options lower-cased, its own included; an option that is neither Spark's nor in the
table is an error that suggests the nearest one, except for options that cost messages when they are
set by mistake.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from ackq.client.connection.broker import SETTINGS, Setting
from ackq.errors import InvalidArgumentError, UnknownOptionError, UnsupportedError
from ackq.spark.options import values


class Use(Enum):
    """A query's use of the format; the value completes the sentence "an option of ..."."""

    SOURCE = "the streaming source"
    BROWSE = "the batch reader"
    SINK = "the streaming sink"
    BATCH = "the batch writer"
    SETTLE = "a settling write (option 'settle')"


class _Option(NamedTuple):
    """An option of the format.

    Attributes:
        name: Documented name.
        parse: Parser of its text.
        uses: Uses of the format that take it.
        field: Name of its value's field in the options of a use; empty: it has no own field.
    """

    name: str
    parse: Callable[[str, str], object]
    uses: frozenset[Use]
    field: str = ""


_ALL: Final = frozenset(Use)
_STREAM: Final = frozenset({Use.SOURCE})
_READ: Final = frozenset({Use.SOURCE, Use.BROWSE})
_WRITE: Final = frozenset({Use.SINK, Use.BATCH})
_BROWSE: Final = frozenset({Use.BROWSE})
_BATCH: Final = frozenset({Use.BATCH})
_SETTLE: Final = frozenset({Use.SETTLE})


def _of_security(setting: Setting) -> _Option:
    """The option of a field of `Security`."""
    parse = values.text if setting.metavar else values.flag
    return _Option(setting.option, values.token if setting.field == "token" else parse, _ALL)


OPTIONS: Final = {
    option.name.lower(): option
    for option in (
        _Option("endpoint", values.endpoints, _ALL),
        *map(_of_security, SETTINGS),
        _Option("retryTimeout", values.duration, _ALL),
        _Option("queue", values.text, _ALL - _SETTLE, "queue"),
        _Option("queues", values.names, _STREAM),
        _Option("queuePattern", values.text, _STREAM, "queue_pattern"),
        _Option("subscription", values.text, _STREAM),
        _Option("binding", values.names, _STREAM, "binding"),
        _Option("session", values.text, _READ | _SETTLE, "session"),
        _Option("retain", values.longest_wait, _STREAM, "retain_ms"),
        _Option("retainBytes", values.size, _STREAM, "retain_bytes"),
        _Option("batch", values.whole, _BROWSE, "batch"),
        _Option("from", values.instant, _BROWSE, "from_us"),
        _Option("to", values.instant, _BROWSE, "to_us"),
        _Option("startFrom", values.start_from, _STREAM, "start_from"),
        _Option("takeover", values.flag, _STREAM, "takeover"),
        _Option("maxMessagesPerTrigger", values.count, _STREAM, "max_messages"),
        _Option("maxBytesPerTrigger", values.size, _STREAM, "max_bytes"),
        _Option("minMessagesPerTrigger", values.count, _STREAM, "min_messages"),
        _Option("maxTriggerDelay", values.longest_wait, _STREAM, "max_delay_ms"),
        _Option("sessionTimeout", values.duration_or_never, _STREAM, "session_timeout_ms"),
        _Option("failOnDataLoss", values.flag, _STREAM, "fail_on_data_loss"),
        _Option("onEdgeAway", values.hold_or_skip, _STREAM, "skip_away"),
        _Option("unreadBatch", values.fail_or_accept, _STREAM, "accept_unread"),
        _Option("minPartitions", values.count, _READ, "min_partitions"),
        _Option("maxBytesPerPartition", values.size, _READ, "max_bytes_per_partition"),
        _Option("firstPosition", values.count, _BROWSE, "first_position"),
        _Option("lastPosition", values.count, _BROWSE, "last_position"),
        _Option("exchange", values.text, _WRITE | _STREAM, "exchange"),
        _Option("routingKey", values.any_text, _WRITE, "routing_key"),
        _Option("mandatory", values.flag, _WRITE, "mandatory"),
        _Option("persistent", values.flag, _WRITE, "persistent"),
        _Option("guarantee", values.guarantee, _WRITE, "guarantee"),
        _Option("unroutableQueue", values.text, _WRITE, "unroutable_queue"),
        _Option("changedBatch", values.fail_or_keep, _WRITE, "keep_changed"),
        _Option("shardBy", values.text, _WRITE, "shard_by"),
        _Option("txnAppId", values.text, _BATCH, "txn_app_id"),
        _Option("txnVersion", values.whole, _BATCH, "txn_version"),
        _Option("settle", values.outcome, _SETTLE, "outcome"),
        _Option("reason", values.text, _SETTLE, "reason"),
        _Option("delay", values.delay, _SETTLE, "delay_ms"),
        _Option("discard", values.flag, _SETTLE, "discard"),
    )
}

# Spark's own keys, passed to every source and sink.
_SPARK_KEYS: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})
_SPARK_PREFIXES: Final = ("__", "spark.", "asyncprogress", "_asyncprogress")

# Other connectors' names for our options: similar in meaning, not in spelling.
_SYNONYMS: Final = {
    "bootstrap.servers": "endpoint",
    "host": "endpoint",
    "password": "token",
    "kafka.bootstrap.servers": "endpoint",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "maxrowspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "minMessagesPerTrigger",
    "minrowspertrigger": "minMessagesPerTrigger",
    # Set by `load("x")`, `start("x")` and `save("x")`.
    "path": "queue",
    "paths": "queues",
    "subscribe": "queue",
    "topic": "queue",
}

# Never suggested: these options remove messages, deliver them twice or lose them.
_COSTLY: Final = frozenset(
    {
        "changedbatch",
        "discard",
        "failondataloss",
        "mandatory",
        "sessiontimeout",
        "settle",
        "startfrom",
        "takeover",
        "unreadbatch",
    }
)

# Prefix of a table's options among its properties, which Spark passes when it creates the table.
_TABLE_OPTION: Final = "option."

Values = dict[str, Any]


def check(options: Mapping[str, str]) -> Values:
    """The values of all options by documented name, each checked by itself, for any use.

    Args:
        options: As passed by Spark; names in any case.

    Raises:
        UnknownOptionError: There is no such option; the message names the nearest.
        InvalidArgumentError: A value is invalid for its option, or `endpoint` is missing.
        UnsupportedError: The options are the properties of a table that is created with options.
    """
    if _is_table(options):
        _check_table(options)
        return {}
    found: Values = {}
    for key, value in options.items():
        lower = key.lower()
        if lower in _SPARK_KEYS or lower.startswith(_SPARK_PREFIXES):
            continue
        if lower not in OPTIONS:
            raise _unknown(key)
        option = OPTIONS[lower]
        found[option.name] = option.parse(option.name, value)
    if "endpoint" not in found:
        raise InvalidArgumentError(
            "The option 'endpoint' is missing. Give the broker's address:"
            " .option('endpoint', 'host:port'), or in SQL SELECT ... FROM t WITH"
            " (endpoint='host:port') and INSERT INTO t WITH (...): Spark passes none of the options"
            " that a table was made with.",
            option="endpoint",
        )
    return found


def _is_table(options: Mapping[str, str]) -> bool:
    """Whether the options are the properties of a new table: CREATE TABLE ... USING ackq."""
    return "owner" in options and options.get("provider", "").lower() == "ackq"


def _check_table(properties: Mapping[str, str]) -> None:
    """Refuses a table's options, as Spark passes them to no statement on the table."""
    names = sorted(
        key.removeprefix(_TABLE_OPTION) for key in properties if key.startswith(_TABLE_OPTION)
    )
    if names:
        raise UnsupportedError(
            f"CREATE TABLE has the options {', '.join(names)}, and Spark passes none of them to a"
            " statement on the table. Create it without, and give them after its name in each"
            " statement, t WITH (endpoint='host:port', queue='name'); or create a temporary view,"
            " which keeps its options.",
            options=", ".join(names),
        )


def _unknown(key: str) -> UnknownOptionError:
    nearest = _SYNONYMS.get(key.lower())
    if nearest is None:
        matches = difflib.get_close_matches(key.lower(), OPTIONS, n=1)
        nearest = next((OPTIONS[match].name for match in matches if match not in _COSTLY), None)
    if nearest is None:
        return UnknownOptionError(
            f"There is no option '{key}'. The table of options is in connector/docs/spark.md.",
            option=key,
            nearest="",
        )
    return UnknownOptionError(
        f"There is no option '{key}'. Did you mean '{nearest}'?", option=key, nearest=nearest
    )
