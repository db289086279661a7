"""Options are parsed into frozen dataclasses, and every error is raised at once."""

import pickle
from dataclasses import fields
from functools import partial

import pytest

from ackq import limits
from ackq.client import Broker
from ackq.client.connection.broker import SETTINGS
from ackq.client.connection.security import Security
from ackq.errors import InvalidArgumentError, UnknownOptionError, UnsupportedError
from ackq.spark.options import options
from ackq.spark.options.options import (
    BrowseOptions,
    SettleOptions,
    SinkOptions,
    SourceOptions,
    SplitOptions,
)
from ackq.spark.options.table import OPTIONS, Use, check
from ackq.spark.options.values import Guarantee

BASE = {"endpoint": "broker:7070", "queue": "orders"}
BROKER = Broker("broker:7070")


def test_source_defaults():
    """K6: without options a batch is bounded in messages and in bytes."""
    assert options.source(BASE) == SourceOptions(
        broker=Broker("broker:7070"),
        queues=("orders",),
        max_messages=limits.DEFAULT_MAX_MESSAGES_PER_TRIGGER,
        max_bytes=limits.DEFAULT_MAX_BYTES_PER_TRIGGER,
    )


def test_source_all_options():
    """Option keys mean the same in any case; Spark passes them in lower case."""
    given = {
        "endpoint": "unix:/run/ackq",
        "queues": "a, b",
        "SESSION": "s",
        "takeover": "True",
        "maxmessagespertrigger": "1000",
        "maxBytesPerTrigger": "16m",
        "minmessagespertrigger": "10",
        "maxtriggerdelay": "30s",
        "minpartitions": "4",
        "maxbytesperpartition": "2MiB",
        "sessiontimeout": "never",
        "failondataloss": "false",
        "retrytimeout": "1500ms",
        "tlsca": "/ca.pem",
        "tlscert": "/cert.pem",
        "tlskey": "/key.pem",
        "tlsservername": "broker",
        "tokenfile": "/token",
        "insecure": "true",
    }
    assert options.source(given) == SourceOptions(
        broker=Broker(
            "unix:/run/ackq",
            Security(
                tls=True,
                ca="/ca.pem",
                cert="/cert.pem",
                key="/key.pem",
                server_name="broker",
                token_file="/token",
                insecure=True,
            ),
            retry_ms=1500,
        ),
        queues=("a", "b"),
        session="s",
        takeover=True,
        bounded=True,
        max_messages=1000,
        max_bytes=16 << 20,
        min_messages=10,
        max_delay_ms=30_000,
        fail_on_data_loss=False,
        split=SplitOptions(min_partitions=4, max_bytes_per_partition=2 << 20),
    )


SECRET = "s3cr3t-t0ken"


@pytest.mark.parametrize(
    ("parse", "given"),
    [
        (options.source, {"queue": "q"}),
        (options.browse, {"queue": "q"}),
        (partial(options.sink, use=Use.SINK), {}),
        (partial(options.sink, use=Use.BATCH), {}),
        (options.settle, {"settle": "rejected"}),
    ],
)
def test_a_token_is_for_every_use_and_in_no_repr(parse, given):
    """For every use the token is in the connection's `Security` alone."""
    parsed = parse({"endpoint": "localhost:1", "token": f" {SECRET}\n", **given})
    assert parsed.broker.security == Security(token=SECRET)
    assert SECRET not in repr(parsed)
    named = parse({"endpoint": "localhost:1", "tokenFile": "/run/token", **given})
    assert named.broker.security == Security(token_file="/run/token")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
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


def test_a_token_goes_to_another_host_with_tls_or_when_asked():
    for more in ({"tls": "true"}, {"tlsCa": "/ca.pem"}, {"insecure": "true"}):
        given = {**BASE, "token": SECRET, **more}
        assert options.source(given).broker.security.token == SECRET


def test_minimum_has_a_delay_by_default():
    """K6: a minimum has a maximum delay by default, so no query waits for ever."""
    parsed = options.source({**BASE, "minMessagesPerTrigger": "10"})
    assert parsed.max_delay_ms == 15 * 60_000


def test_browse_options():
    """Q5: a browse reads from any position."""
    parsed = options.browse({**BASE, "firstPosition": "10", "lastPosition": "20"})
    assert (parsed.queue, parsed.first_position, parsed.last_position) == ("orders", 10, 20)


def test_sink_options():
    """An option that is not set leaves the choice to the column of its name."""
    assert options.sink(BASE, Use.SINK) == SinkOptions(broker=Broker("broker:7070"), queue="orders")
    parsed = options.sink(
        {
            "endpoint": "b:1",
            "exchange": "events",
            "routingKey": "",
            "mandatory": "false",
            "persistent": "false",
            "guarantee": "At-Least-Once",
        },
        Use.SINK,
    )
    assert parsed == SinkOptions(
        broker=Broker("b:1"),
        exchange="events",
        routing_key="",
        mandatory=False,
        persistent=False,
        guarantee=Guarantee.AT_LEAST_ONCE,
    )


def test_batch_write_options():
    """K12: application and version are set together."""
    parsed = options.sink({**BASE, "txnAppId": "app", "txnVersion": "7"}, Use.BATCH)
    assert (parsed.txn_app_id, parsed.txn_version) == ("app", 7)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("queu", "queue"),
        ("maxMessagePerTriggers", "maxMessagesPerTrigger"),
        ("tlscert1", "tlsCert"),
        ("routing_key", "routingKey"),
        ("maxOffsetsPerTrigger", "maxMessagesPerTrigger"),
        ("topic", "queue"),
        ("path", "queue"),
    ],
)
def test_unknown_option_names_the_nearest(key, nearest):
    """An unknown option is an error that names the nearest known one."""
    with pytest.raises(UnknownOptionError) as caught:
        check({**BASE, key: "1"})
    assert caught.value.fields == {"option": key, "nearest": nearest}
    assert str(caught.value) == f"There is no option '{key}'. Did you mean '{nearest}'?"


@pytest.mark.parametrize(
    "key",
    [
        *(
            "changedbatches",
            "unreadBatches",
            "takeovr",
            "take_over",
            "discards",
            "failondataloss1",
            "sessionTimeouts",
            "settles",
        ),
        *("mandatry", "provider", "owner", "xyzzy"),
    ],
)
def test_no_option_is_suggested_that_costs_messages(key):
    """A dangerous or dissimilar option is not suggested; the error names the table of options."""
    with pytest.raises(UnknownOptionError) as caught:
        check({**BASE, key: "true"})
    assert caught.value.fields == {"option": key, "nearest": ""}
    assert str(caught.value) == (
        f"There is no option '{key}'. The table of options is in connector/docs/spark.md."
    )


# Passed by Spark 4.2 for CREATE TABLE t USING ackq, with COMMENT, TBLPROPERTIES and the like.
TABLE = {"provider": "ackq", "owner": "root"}
CLAUSES = {
    "location": "file:/data/t",
    "path": "file:/data/t",
    "external": "true",
    "comment": "c",
    "collation": "UTF8_BINARY",
    "my.property": "1",
}


@pytest.mark.parametrize("properties", [TABLE, {**TABLE, **CLAUSES}])
def test_a_table_without_options_can_be_made(properties):
    """No table property is taken for an option; statements on the table give the options."""
    assert check(properties) == {}


def test_the_options_of_a_table_are_refused():
    """Spark passes a table's options at its creation, but to no later statement."""
    made = {**TABLE, "option.queue": "q", "queue": "q", "endpoint": "e:1", "option.endpoint": "e:1"}
    with pytest.raises(UnsupportedError, match=r"CREATE TABLE .* WITH \(") as caught:
        check(made)
    assert caught.value.fields == {"options": "endpoint, queue"}


@pytest.mark.parametrize("key", ["provider", "owner", "option.queue"])
def test_keys_of_a_table_are_no_options_of_a_load(key):
    """A key of a table's properties is an unknown option of a load."""
    with pytest.raises(UnknownOptionError):
        check({**BASE, key: "ackq"})


def test_a_missing_endpoint_names_the_ways_to_give_it():
    """The error names the ways for both Python and SQL."""
    with pytest.raises(InvalidArgumentError, match=r"\.option\('endpoint', .* WITH +\(endpoint="):
        check({})


@pytest.mark.parametrize(
    "key",
    ["checkpointLocation", "__internal", "asyncProgressTrackingEnabled", "queryName"],
)
def test_sparks_own_keys_are_passed_over(key):
    """Spark's own options, which it passes to every source and sink, are ignored."""
    assert options.source({**BASE, key: "x"}) == options.source(BASE)


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("endpoint", "broker", "host:port"),
        ("endpoint", "broker:70700", "host:port"),
        ("endpoint", "http://broker:7070", "host:port"),
        ("endpoint", "a:1,b:2", "host:port"),
        ("queue", " ", "not empty"),
        ("queues", "a,,b", "separated by commas"),
        ("queues", "a,a", "distinct"),
        ("takeover", "yes", "true or false"),
        ("maxMessagesPerTrigger", "0", "1 or more"),
        ("maxMessagesPerTrigger", "-5", "1 or more"),
        ("maxBytesPerTrigger", "much", "256m"),
        ("maxBytesPerTrigger", "0", "256m"),
        ("maxBytesPerTrigger", "999999999999999t", "256m"),
        ("maxTriggerDelay", "30", "unit"),
        ("maxTriggerDelay", "0s", "a time above 0"),
        ("maxTriggerDelay", "999999999999d", "unit"),
        ("retryTimeout", "1 fortnight", "unit"),
        ("sessionTimeout", "0s", "never, or a time above 0"),
        ("guarantee", "at-most-once", "at-least-once"),
        ("txnVersion", "1.5", "whole number"),
        ("changedBatch", "drop", "fail, or keep"),
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


def test_endpoint_with_a_password_is_refused_without_it():
    """The error masks the password, as Spark writes errors to its logs."""
    with pytest.raises(InvalidArgumentError) as caught:
        check({**BASE, "endpoint": "user:secret@broker:7070"})
    assert "'***@broker:7070'" in str(caught.value)
    assert "secret" not in str(caught.value.fields)


@pytest.mark.parametrize(
    ("text", "expected"), [("1", 1), ("64k", 65536), ("2 MB", 2 << 20), ("1GiB", 1 << 30)]
)
def test_sizes(text, expected):
    """Sizes have Spark's units, powers of 1024."""
    assert check({**BASE, "maxBytesPerTrigger": text})["maxBytesPerTrigger"] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("30 s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)
def test_durations(text, expected):
    """Durations are given with their unit."""
    assert check({**BASE, "maxTriggerDelay": text})["maxTriggerDelay"] == expected


def test_certificates_as_text():
    """Certificates may be given as text, also a certificate file with a key as text."""
    given = {"tlsCaPem": "authority", "tlsCert": "/cert.pem", "tlsKeyPem": "key"}
    security = options.source({**BASE, **given}).broker.security
    assert security == Security(tls=True, ca_pem="authority", cert="/cert.pem", key_pem="key")


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"queues": "a,b"}, "queue and queues"),
        ({"queuePattern": "a*"}, "queue and queuePattern"),
        ({"minMessagesPerTrigger": "10", "maxMessagesPerTrigger": "5"}, "above"),
        ({"maxTriggerDelay": "1s"}, "without minMessagesPerTrigger"),
        ({"tls": "false", "tlsCa": "/ca.pem"}, "tls is false"),
        ({"tls": "false", "tlsCaPem": "text"}, "tls is false"),
        ({"tlsCert": "/cert.pem"}, "tlsKey"),
        ({"tlsKeyPem": "text"}, "only one of tlsCert and tlsKey"),
        ({"tlsCa": "/ca.pem", "tlsCaPem": "text"}, "tlsCa and tlsCaPem are both set"),
    ],
)
def test_source_contradictions(given, part):
    """Contradictory source options are refused with both names."""
    with pytest.raises(InvalidArgumentError, match=part):
        options.source({**BASE, **given})


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"exchange": "e"}, "queue and exchange"),
        ({"routingKey": "k"}, "queue and routingKey"),
        ({"unroutableQueue": "u", "mandatory": "false"}, "unroutableQueue"),
        ({"unroutableQueue": "u", "guarantee": "at-least-once"}, "row of an exactly-once write"),
        ({"changedBatch": "keep", "guarantee": "at-least-once"}, "recognised"),
        ({"txnAppId": "a"}, "only one of txnAppId and txnVersion"),
        ({"txnAppId": "a", "txnVersion": "1", "guarantee": "at-least-once"}, "recognised"),
    ],
)
def test_sink_contradictions(given, part):
    """Contradictory sink options are refused with both names."""
    with pytest.raises(InvalidArgumentError, match=part):
        options.sink({**BASE, **given}, Use.BATCH)


def test_empty_browse_range():
    """A range that ends before it begins is refused."""
    with pytest.raises(InvalidArgumentError, match="firstPosition"):
        options.browse({**BASE, "firstPosition": "3", "lastPosition": "2"})


@pytest.mark.parametrize(
    ("use", "key", "value"),
    [
        (Use.BROWSE, "maxMessagesPerTrigger", "1"),
        (Use.SOURCE, "firstPosition", "1"),
        (Use.SOURCE, "exchange", "e"),
        (Use.SINK, "session", "s"),
        (Use.SINK, "settle", "rejected"),
        (Use.BATCH, "reason", "r"),
        (Use.SINK, "txnVersion", "1"),
        (Use.BATCH, "minPartitions", "1"),
    ],
)
def test_option_of_another_use_is_refused(use, key, value):
    """An option of another use is an error, not ignored."""
    parse = {
        Use.SOURCE: options.source,
        Use.BROWSE: options.browse,
        Use.SINK: lambda given: options.sink(given, Use.SINK),
        Use.BATCH: lambda given: options.sink(given, Use.BATCH),
    }[use]
    with pytest.raises(InvalidArgumentError, match="has no use for it") as caught:
        parse({**BASE, key: value})
    assert caught.value.fields["option"] == key


@pytest.mark.parametrize("missing", ["endpoint", "queue"])
def test_missing_option_says_how_to_set_it(missing):
    """The error shows the call that sets the missing option."""
    given = {key: value for key, value in BASE.items() if key != missing}
    with pytest.raises(InvalidArgumentError, match=rf"\.option\('{missing}'"):
        options.source(given)


def test_pattern_and_timeout():
    """S5, S10: a pattern replaces queue names; without a timeout a lease waits for ever."""
    parsed = options.source({"endpoint": "b:1", "queuePattern": "a.*", "sessionTimeout": "5m"})
    assert (parsed.queues, parsed.queue_pattern) == ((), "a.*")
    assert parsed.session_timeout_ms == 300_000
    assert options.source({**BASE, "sessionTimeout": "Never"}).session_timeout_ms == 0


@pytest.mark.parametrize("use", [Use.SINK, Use.BATCH])
def test_changed_batch(use):
    """K3: a batch id that was committed with other content fails by default."""
    for value, kept in (
        ({}, False),
        ({"changedBatch": "fail"}, False),
        ({"changedBatch": "Keep"}, True),
    ):
        assert options.sink({**BASE, **value}, use).keep_changed is kept


def test_unread_batch():
    """S11: a batch that no task has read is refused, unless `unreadBatch=accept`."""
    assert not options.source(BASE).accept_unread
    assert options.source({**BASE, "unreadBatch": "ACCEPT"}).accept_unread


def test_unroutable_queue():
    """P7: the option names the queue for unroutable rows."""
    assert options.sink({**BASE, "unroutableQueue": "u"}, Use.SINK).unroutable_queue == "u"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"settle": "column"}, SettleOptions(BROKER)),
        ({"settle": "Accepted"}, SettleOptions(BROKER, outcome="accepted")),
        (
            {"SETTLE": "rejected", "reason": "no such customer", "discard": "true"},
            SettleOptions(BROKER, outcome="rejected", reason="no such customer", discard=True),
        ),
        (
            {"settle": "failed", "delay": "30s", "session": "s", "reason": "r"},
            SettleOptions(BROKER, session="s", outcome="failed", reason="r", delay_ms=30_000),
        ),
        ({"settle": "released", "delay": "1"}, SettleOptions(BROKER, "", "released", None, 1)),
        ({"settle": "column", "delay": "1500"}, SettleOptions(BROKER, delay_ms=1500)),
    ],
)
def test_settle_options(given, expected):
    """S6: one outcome for all rows, or a column; a delay is a duration or milliseconds."""
    given = {"endpoint": "broker:7070", **given}
    assert options.settles(given)
    assert options.settle(given) == expected


def test_other_writes_do_not_settle():
    """K8: only the option `settle` makes a write settle messages."""
    assert not options.settles({**BASE, "session": "s"})


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"settle": "accepted", "reason": "r"}, "reason is set with settle=accepted"),
        ({"settle": "released", "reason": "r"}, "it is for failed and rejected"),
        ({"settle": "rejected", "delay": "1s"}, "it is for failed and released"),
        ({"settle": "failed", "discard": "true"}, "it is for rejected"),
        ({"settle": "reject"}, "'reject'; it takes accepted, failed, rejected, released"),
        ({"settle": "failed", "delay": "-5"}, "'-5'; it takes 1 ms or more"),
        ({"settle": "failed", "delay": "soon"}, "'soon'; it takes 1 ms or more"),
        (
            {"settle": "failed", "delay": "0"},
            "'0'; it takes 1 ms .* leave it out for the delay of the queue",
        ),
        ({"settle": "failed", "delay": "0s"}, "'0s'; it takes 1 ms or more"),
        ({"settle": "failed", "delay": "99999999999999999"}, "100 years"),
        ({"settle": "failed", "queue": "q"}, "Option 'queue' belongs to"),
        ({"settle": "failed", "txnAppId": "a"}, "a settling write .* has no use for it"),
    ],
)
def test_what_a_settling_write_does_not_take(given, part):
    """K8: an option without effect on a settling write is refused."""
    with pytest.raises(InvalidArgumentError, match=part):
        options.settle({"endpoint": "broker:7070", **given})


def test_options_pickle():
    """Parsed options pickle, as they travel from the driver into tasks."""
    for parsed in (options.source(BASE), options.sink(BASE, Use.SINK), options.browse(BASE)):
        assert pickle.loads(pickle.dumps(parsed)) == parsed  # noqa: S301


def test_each_option_has_a_field():
    """No option is ignored: a query is given each, as a field or in its broker or queues."""
    classes = {
        Use.SOURCE: (SourceOptions, SplitOptions),
        Use.BROWSE: (BrowseOptions, SplitOptions),
        Use.SINK: (SinkOptions,),
        Use.BATCH: (SinkOptions,),
        Use.SETTLE: (SettleOptions,),
    }
    elsewhere = {"endpoint", "retryTimeout", "queue", "queues"}
    elsewhere |= {each.option for each in SETTINGS}
    for option in OPTIONS.values():
        for use in option.uses:
            names = {each.name for kind in classes[use] for each in fields(kind)}
            assert option.name in elsewhere or option.field in names, (option.name, use)
