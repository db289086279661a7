"""Options are parsed into frozen dataclasses, and every error is raised at once."""

import pickle
from dataclasses import replace
from functools import partial

import pytest

from ackq import limits
from ackq.client import Broker
from ackq.client.connection.security import Security
from ackq.errors import InvalidArgumentError, UnknownOptionError, UnsupportedError
from ackq.spark.options import options
from ackq.spark.options.table import Use, check
from ackq.spark.options.values import Guarantee, StartFrom

BASE = {"endpoint": "broker:7070", "queue": "orders"}
BROKER = Broker("broker:7070")
MOST = (limits.DEFAULT_MAX_MESSAGES_PER_TRIGGER, limits.DEFAULT_MAX_BYTES_PER_TRIGGER)
SOURCE = options.SourceOptions((BROKER,), ("orders",), max_messages=MOST[0], max_bytes=MOST[1])
SINK = options.SinkOptions(edges=(BROKER,), queue="orders")
FILES = Security(tls=True, ca_pem="authority", cert="/cert", key_pem="key")
PATHS = {"ca": "/ca", "cert": "/cert", "key": "/key", "token_file": "/token"}
NAMED = Security(tls=True, server_name="b", insecure=True, **PATHS)
TLS = {"tls": "true", "tlsca": "/ca", "tlscert": "/cert", "tlskey": "/key", "tlsservername": "b"}
TLS |= {"tokenfile": "/token", "insecure": "true"}
WITH_TEXTS = (Broker("broker:7070", FILES),)
WITH_FILES = (Broker("unix:/run/ackq", NAMED, retry_ms=1500),)
SPLIT = options.SplitOptions(4, 2 << 20)
TWO = (Broker("a:1"), Broker("b:2"))
SESSION = {"session": "s"}
TRANSIENT = {"persistent": False, "mandatory": False}
RELEASE = {"outcome": "released"}
REJECT = {"SETTLE": "rejected", "reason": "why", "discard": "true"}
FAIL = {"settle": "failed", "reason": "r", "delay": "30s"}
DAY_MS = 86_400_000
ZONED = "1970-01-01T00:00:01Z"
AT_LEAST_ONCE = {"guarantee": "at-least-once"}
TXN = {"txnAppId": "app", "txnVersion": "7"}
to_sink = partial(options.sink, use=Use.SINK)
to_batch = partial(options.sink, use=Use.BATCH)


def retained(given):
    """Options of a read of the session `s`, in place of the queue."""
    given.pop("queue")
    return options.retained({**given, "session": "s"})


def settle(given):
    given.pop("queue")
    return options.settle(given)


def parsed(parse, given):
    """The options with those of `BASE`; None takes one of these out."""
    return parse({key: value for key, value in (BASE | given).items() if value is not None})


def means(parse, given, expected):
    assert parsed(parse, given) == expected
    assert pickle.loads(pickle.dumps(expected)) == expected  # noqa: S301 - tasks get them


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        # K6: a batch is bounded in messages and bytes, and a minimum in its delay.
        ({}, {}),
        ({"minMessagesPerTrigger": "10"}, {"min_messages": 10, "max_delay_ms": 15 * 60_000}),
        ({"maxmessagespertrigger": "10"}, {"bounded": True, "max_messages": 10}),
        (
            {"maxbytespertrigger": "1m", "minmessagespertrigger": "10", "maxtriggerdelay": "30s"},
            {"bounded": True, "max_bytes": 1 << 20, "min_messages": 10, "max_delay_ms": 30_000},
        ),
        # S5, S10: a pattern replaces names; without a timeout a lease waits for ever.
        ({"queue": None, "queuePattern": "a.*"}, {"queues": (), "queue_pattern": "a.*"}),
        ({"queue": None, "queues": "a, b"}, {"queues": ("a", "b")}),
        ({"SESSION": "s", "takeover": "True"}, {"session": "s", "takeover": True}),
        ({"sessionTimeout": "5m"}, {"session_timeout_ms": 300_000}),
        ({"sessiontimeout": "Never"}, {}),
        # S11: a batch that no task has read is refused by default.
        ({"unreadBatch": "ACCEPT"}, {"accept_unread": True}),
        ({"failondataloss": "false"}, {"fail_on_data_loss": False}),
        # Certificates are files or texts.
        ({"tlsCaPem": "authority", "tlsCert": "/cert", "tlsKeyPem": "key"}, {"edges": WITH_TEXTS}),
        ({"endpoint": "unix:/run/ackq", "retrytimeout": "1500ms", **TLS}, {"edges": WITH_FILES}),
        ({"minpartitions": "4", "maxbytesperpartition": "2MiB"}, {"split": SPLIT}),
        # S12: several brokers.
        ({"endpoint": "a:1, b:2", "onEdgeAway": "skip"}, {"edges": TWO, "skip_away": True}),
        # S13: how much of what was accepted can be read again.
        ({"retain": "24h", "retainBytes": "50g"}, {"retain_ms": DAY_MS, "retain_bytes": 50 << 30}),
        # S14: where a new query begins in that.
        ({**SESSION, "startFrom": " Earliest"}, {**SESSION, "start_from": StartFrom()}),
        ({**SESSION, "startFrom": "0"}, {**SESSION, "start_from": StartFrom(0)}),
        ({**SESSION, "startFrom": ZONED}, {**SESSION, "start_from": StartFrom(None, 1_000_000)}),
    ],
)
def test_what_options_of_a_stream_mean(given, changes):
    """K6, S5, S10-S14: each option has its field; its key means the same in any case."""
    means(options.source, given, replace(SOURCE, **changes))


@pytest.mark.parametrize(
    ("parse", "given", "changes"),
    [
        # An option that is not set leaves the choice to the column of its name.
        (to_sink, {}, {}),
        (to_sink, {"queue": None, "exchange": "e"}, {"queue": None, "exchange": "e"}),
        (to_sink, {"queue": None, "routingKey": ""}, {"queue": None, "routing_key": ""}),
        (to_sink, {"persistent": "false", "mandatory": "false"}, TRANSIENT),
        (to_sink, {"guarantee": "At-Least-Once"}, {"guarantee": Guarantee.AT_LEAST_ONCE}),
        # P7: the queue of unroutable rows.
        (to_sink, {"unroutableQueue": "u"}, {"unroutable_queue": "u"}),
        # K3: a batch id that was committed with other content fails by default.
        (to_sink, {"changedBatch": "fail"}, {}),
        (to_batch, {"changedBatch": "Keep"}, {"keep_changed": True}),
        # K12: application and version.
        (to_batch, TXN, {"txn_app_id": "app", "txn_version": 7}),
        # S6, K8: one outcome for all rows, or a column.
        (settle, {"settle": "column", "delay": "1500"}, {"delay_ms": 1500}),
        (settle, {"settle": "Accepted", "session": "s"}, {"outcome": "accepted", "session": "s"}),
        (settle, REJECT, {"outcome": "rejected", "reason": "why", "discard": True}),
        (settle, FAIL, {"outcome": "failed", "reason": "r", "delay_ms": 30_000}),
        (settle, {"settle": "column", "delay": "1"}, {"delay_ms": 1}),
        (settle, {"settle": "released", "endpoint": "a:1,b:2"}, {**RELEASE, "edges": TWO}),
    ],
)
def test_what_options_of_a_write_mean(parse, given, changes):
    """K3, K8, K12, P7, S6: each option has its field; others have a default."""
    assert options.settles(BASE | given) == (parse is settle)
    usual = options.SettleOptions((BROKER,)) if parse is settle else SINK
    means(parse, given, replace(usual, **changes))


def test_what_options_of_a_batch_read_mean():
    """Q5, S13: a browse reads from any position; accepted batches are read by number or time."""
    positions = {"firstPosition": "10", "lastPosition": "20"}
    means(options.browse, positions, options.BrowseOptions(BROKER, "orders", 10, 20))
    means(retained, {"batch": "17"}, options.RetainedOptions(BROKER, "s", batch=17))
    within = options.RetainedOptions(BROKER, "s", from_us=1_000_000, to_us=3_600_000_000)
    means(retained, {"from": ZONED, "to": "1970-01-01T02+01"}, within)


@pytest.mark.parametrize(
    ("parse", "given", "part"),
    [
        (options.source, {"queuePattern": "a*"}, "queue and queuePattern"),
        (options.source, {"minMessagesPerTrigger": "6", "maxMessagesPerTrigger": "5"}, "above"),
        (options.source, {"maxTriggerDelay": "1s"}, "without minMessagesPerTrigger"),
        (options.source, {"tlsKeyPem": "text"}, "only one of tlsCert and tlsKey"),
        (options.source, {"tlsCa": "/c", "tlsCaPem": "text"}, "tlsCa and tlsCaPem are both set"),
        (options.source, {"exchange": "e"}, "only one of exchange and subscription"),
        (options.source, {"exchange": "e", "subscription": "s"}, "queue and subscription"),
        (options.source, {"queue": None}, r"\.option\('queue'"),
        # S12: several brokers.
        (options.browse, {"endpoint": "a:1,b:2"}, "names several brokers"),
        (options.source, {"endpoint": "a:1,b"}, "host:port"),
        (options.source, {"onEdgeAway": "skip"}, "onEdgeAway is set and endpoint names one"),
        (options.source, {"endpoint": "localhost:1,e:1", "token": "t"}, "e:1 in plain text"),
        (options.source, {"endpoint": None}, r"\.option\('endpoint', .* WITH +\(endpoint="),
        (options.browse, {"firstPosition": "3", "lastPosition": "2"}, "firstPosition"),
        (options.source, {"retain": "0s"}, "above 0"),
        (options.source, {"startFrom": "earliest"}, "startFrom is set without session"),
        (options.source, {"session": "s", "startFrom": "latest"}, "earliest, the number of a"),
        (options.retained, {"session": "s"}, "session and queue are both set"),
        (retained, {"from": "2026-01-01T00:00"}, "a time with its zone"),
        (retained, {"batch": "1", "to": ZONED}, "batch and to"),
        (retained, {"from": ZONED, "to": ZONED}, "from is not before to"),
        (to_sink, {"txnVersion": "1"}, "has no use for it"),
        (to_batch, {"reason": "r"}, "has no use for it"),
        (to_batch, {"exchange": "e"}, "queue and exchange"),
        (to_batch, {"unroutableQueue": "u", "mandatory": "false"}, "unroutableQueue"),
        (to_batch, {"unroutableQueue": "u", **AT_LEAST_ONCE}, "row of an exactly-once write"),
        (to_batch, {"txnAppId": "a"}, "only one of txnAppId and txnVersion"),
        (to_batch, TXN | AT_LEAST_ONCE, "recognised"),
        (settle, {"settle": "accepted", "reason": "r"}, "reason is set with settle=accepted"),
        (settle, {"settle": "rejected", "delay": "1s"}, "it is for failed and released"),
        (settle, {"settle": "failed", "discard": "true"}, "it is for rejected"),
        (settle, {"settle": "reject"}, "'reject'; it takes accepted, failed, rejected, released"),
        (settle, {"settle": "failed", "delay": "0s"}, "'0s'; it takes 1 ms .* leave it out for"),
        (settle, {"settle": "failed", "delay": "99999999999999999"}, "100 years"),
        (options.settle, {"settle": "failed"}, "Option 'queue' belongs to"),
        (settle, {"settle": "failed", "txnAppId": "a"}, "a settling write .* has no use for it"),
    ],
)
def test_what_does_not_go_together(parse, given, part):
    """Options that contradict each other, or are of another use, are refused with their names."""
    with pytest.raises(InvalidArgumentError, match=part):
        parsed(parse, given)


SECRET = "s3cr3t-t0ken"


def test_a_token_is_in_no_repr():
    """A9: the token is in the connection's `Security` alone; TLS lets it travel."""
    found = parsed(options.source, {"endpoint": "localhost:1", "token": f" {SECRET}\n"})
    assert found.broker.security == Security(token=SECRET)
    assert SECRET not in repr(found)
    for more in ({"tls": "true"}, {"tlsCa": "/ca.pem"}, {"insecure": "true"}):
        elsewhere = parsed(to_batch, {"token": SECRET, **more})
        assert elsewhere.broker.security.token == SECRET


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"endpoint": f"user:{SECRET}@b:7070"}, "'***@b:7070'"),
        ({"token": f"{SECRET} x"}, "Option 'token' has a character"),
        ({"token": ""}, "Option 'token' is ''"),
        ({"token": SECRET, "tokenFile": "/t"}, "token and tokenFile are both set; remove one"),
        ({"token": SECRET, "endpoint": "broker:1"}, "broker:1 in plain text"),
        ({"tokenFile": "/t", "endpoint": "broker:1"}, "broker:1 in plain text"),
        ({"tokens": SECRET}, "There is no option 'tokens'. Did you mean 'token'"),
        ({"password": SECRET}, "There is no option 'password'. Did you mean 'token'"),
    ],
)
def test_no_error_shows_a_token(given, problem):
    """No error shows a token, as errors appear in logs and in Spark's UI."""
    with pytest.raises(InvalidArgumentError) as refused:
        options.source({"endpoint": "localhost:1", "queue": "q", **given})
    assert problem in str(refused.value)
    assert SECRET not in f"{refused.value!r} {refused.value.fields}"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("queu", "queue"),
        ("maxMessagePerTriggers", "maxMessagesPerTrigger"),
        ("routing_key", "routingKey"),
        ("maxOffsetsPerTrigger", "maxMessagesPerTrigger"),
        ("topic", "queue"),
        # One that can cost messages is not suggested.
        *((key, "") for key in ("changedbatches", "take_over", "failondataloss1", "settles")),
        # No option is like these; Spark has the last two in a table's properties.
        *((key, "") for key in ("xyzzy", "provider", "option.queue")),
    ],
)
def test_an_unknown_option(key, nearest):
    """The error names the nearest known option, or the table of options."""
    with pytest.raises(UnknownOptionError) as caught:
        check({**BASE, key: "1"})
    assert caught.value.fields == {"option": key, "nearest": nearest}
    table = "The table of options is in connector/docs/spark.md."
    told = f"Did you mean '{nearest}'?" if nearest else table
    assert str(caught.value) == f"There is no option '{key}'. {told}"


# Passed by Spark 4.2 for CREATE TABLE t USING ackq, with COMMENT, TBLPROPERTIES and the like.
TABLE = {"provider": "ackq", "owner": "root"}
CLAUSES = {"location": "file:/data/t", "path": "file:/data/t", "external": "true", "comment": "c"}
CLAUSES |= {"collation": "UTF8_BINARY", "my.property": "1"}


def test_a_table_without_options_can_be_made():
    """No table property is taken for an option; statements on the table give the options.

    Options are refused, as Spark passes them at the table's creation, but to no later statement.
    """
    assert check(TABLE) == check(TABLE | CLAUSES) == {}
    made = {"option.queue": "q", "queue": "q", "endpoint": "e:1", "option.endpoint": "e:1"}
    with pytest.raises(UnsupportedError, match=r"CREATE TABLE .* WITH \(") as caught:
        check(TABLE | made)
    assert caught.value.fields == {"options": "endpoint, queue"}


def test_sparks_own_keys_are_passed_over():
    """Spark's own options, which it passes to every source and sink, are ignored."""
    for key in ("checkpointLocation", "__internal", "asyncProgressTrackingEnabled", "queryName"):
        assert options.source({**BASE, key: "x"}) == options.source(BASE)


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("endpoint", "http://broker:7070", "host:port"),
        ("endpoint", "a:1,a:1", "distinct"),
        ("onEdgeAway", "wait", "hold, or skip"),
        ("queue", " ", "not empty"),
        ("queues", "a,,b", "separated by commas"),
        ("maxMessagesPerTrigger", "0", "1 or more"),
        ("maxBytesPerTrigger", "much", "256m"),
        ("maxBytesPerTrigger", "999999999999999t", "256m"),
        ("maxTriggerDelay", "30", "unit"),
        ("maxTriggerDelay", "0s", "a time above 0"),
        ("retryTimeout", "999999999999d", "unit"),
        ("guarantee", "at-most-once", "at-least-once"),
        ("txnVersion", "1.5", "whole number"),
        ("unreadBatch", "true", "fail, or accept"),
    ],
)
def test_unreadable_value_names_option_value_and_form(key, value, part):
    """A value that an option does not take is refused, for every use of the option."""
    with pytest.raises(InvalidArgumentError) as caught:
        check({**BASE, key: value})
    assert caught.value.fields["option"] == key
    assert f"'{value}'" in str(caught.value)
    assert part in str(caught.value)
