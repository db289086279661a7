"""Options are parsed into frozen dataclasses, and every error is raised at once."""

import pickle
from dataclasses import fields, replace
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
    RetainedOptions,
    SettleOptions,
    SinkOptions,
    SourceOptions,
    SplitOptions,
)
from ackq.spark.options.table import OPTIONS, Use, check
from ackq.spark.options.values import Guarantee, StartFrom

BASE = {"endpoint": "broker:7070", "queue": "orders"}
BROKER = Broker("broker:7070")
OF_SESSION = {"queue": None, "session": "s"}
SOURCE = SourceOptions(
    edges=(BROKER,),
    queues=("orders",),
    max_messages=limits.DEFAULT_MAX_MESSAGES_PER_TRIGGER,
    max_bytes=limits.DEFAULT_MAX_BYTES_PER_TRIGGER,
)
SINK = SinkOptions(edges=(BROKER,), queue="orders")
FILES = Security(tls=True, ca_pem="authority", cert="/cert.pem", key_pem="key")
to_sink = partial(options.sink, use=Use.SINK)
to_batch = partial(options.sink, use=Use.BATCH)


@pytest.mark.parametrize(
    ("parse", "given", "expected"),
    [
        # K6: a batch is bounded in messages and bytes, and a minimum in its delay.
        (options.source, {}, SOURCE),
        (
            options.source,
            {"minMessagesPerTrigger": "10"},
            replace(SOURCE, bounded=False, min_messages=10, max_delay_ms=15 * 60_000),
        ),
        # S5, S10: a pattern replaces names; without a timeout a lease waits for ever.
        (
            options.source,
            {"queue": None, "queuePattern": "a.*", "sessionTimeout": "5m"},
            replace(SOURCE, queues=(), queue_pattern="a.*", session_timeout_ms=300_000),
        ),
        (options.source, {"sessionTimeout": "Never"}, SOURCE),
        # S11: a batch that no task has read is refused by default.
        (options.source, {"unreadBatch": "ACCEPT"}, replace(SOURCE, accept_unread=True)),
        # Certificates are files or texts.
        (
            options.source,
            {"tlsCaPem": "authority", "tlsCert": "/cert.pem", "tlsKeyPem": "key"},
            replace(SOURCE, edges=(Broker("broker:7070", FILES),)),
        ),
        # Q5: a browse reads from any position.
        (
            options.browse,
            {"firstPosition": "10", "lastPosition": "20"},
            BrowseOptions(BROKER, "orders", first_position=10, last_position=20),
        ),
        # S13: how much of what was accepted can be read again, and a read of it.
        (
            options.source,
            {"retain": "24h", "retainBytes": "50g"},
            replace(SOURCE, retain_ms=86_400_000, retain_bytes=50 << 30),
        ),
        # S14: where a new query begins in that.
        *(
            (
                options.source,
                {"session": "s", "startFrom": text},
                replace(SOURCE, session="s", start_from=StartFrom(*begin)),
            )
            for text, begin in (
                (" Earliest", ()),
                ("0", (0,)),
                ("1970-01-01T00:00:01Z", (None, 1_000_000)),
            )
        ),
        (
            options.retained,
            {"queue": None, "session": "s", "batch": "17"},
            RetainedOptions(BROKER, "s", batch=17),
        ),
        (
            options.retained,
            {
                "queue": None,
                "session": "s",
                "from": "1970-01-01T00:00:01Z",
                "to": "1970-01-01T02+01",
            },
            RetainedOptions(BROKER, "s", from_us=1_000_000, to_us=3_600_000_000),
        ),
        # An option that is not set leaves the choice to the column of its name.
        (to_sink, {}, SINK),
        (
            to_sink,
            {
                "queue": None,
                "exchange": "events",
                "routingKey": "",
                "mandatory": "false",
                "persistent": "false",
                "guarantee": "At-Least-Once",
            },
            SinkOptions(
                edges=(BROKER,),
                exchange="events",
                routing_key="",
                mandatory=False,
                persistent=False,
                guarantee=Guarantee.AT_LEAST_ONCE,
            ),
        ),
        # P7: the queue of unroutable rows.
        (to_sink, {"unroutableQueue": "u"}, replace(SINK, unroutable_queue="u")),
        # K3: a batch id that was committed with other content fails by default.
        (to_sink, {"changedBatch": "fail"}, SINK),
        (to_sink, {"changedBatch": "Keep"}, replace(SINK, keep_changed=True)),
        (to_batch, {"changedBatch": "keep"}, replace(SINK, keep_changed=True)),
        # K12: application and version.
        (
            to_batch,
            {"txnAppId": "app", "txnVersion": "7"},
            replace(SINK, txn_app_id="app", txn_version=7),
        ),
    ],
)
def test_what_options_mean(parse, given, expected):
    """K3, K6, K12, P7, Q5, S5, S10, S11, S13: each option has its field; others have a default."""
    given = {key: value for key, value in (BASE | given).items() if value is not None}
    assert parse(given) == expected
    assert pickle.loads(pickle.dumps(expected)) == expected  # noqa: S301 - tasks get them


@pytest.mark.parametrize(
    ("parse", "given", "part"),
    [
        (options.source, {"queues": "a,b"}, "queue and queues"),
        (options.source, {"queuePattern": "a*"}, "queue and queuePattern"),
        (
            options.source,
            {"minMessagesPerTrigger": "10", "maxMessagesPerTrigger": "5"},
            "above",
        ),
        (options.source, {"maxTriggerDelay": "1s"}, "without minMessagesPerTrigger"),
        (options.source, {"tls": "false", "tlsCa": "/ca.pem"}, "tls is false"),
        (options.source, {"tls": "false", "tlsCaPem": "text"}, "tls is false"),
        (options.source, {"tlsCert": "/cert.pem"}, "tlsKey"),
        (options.source, {"tlsKeyPem": "text"}, "only one of tlsCert and tlsKey"),
        (options.source, {"tlsCa": "/c", "tlsCaPem": "text"}, "tlsCa and tlsCaPem are both set"),
        (options.source, {"firstPosition": "1"}, "has no use for it"),
        (options.source, {"exchange": "e"}, "only one of exchange and subscription"),
        (options.source, {"binding": "a"}, "binding is set without subscription"),
        (options.source, {"exchange": "e", "subscription": "s"}, "queue and subscription"),
        (options.source, {"routingKey": "k"}, "has no use for it"),
        (options.source, {"queue": None}, r"\.option\('queue'"),
        (options.source, {"endpoint": None}, r"\.option\('endpoint', .* WITH +\(endpoint="),
        (options.browse, {"firstPosition": "3", "lastPosition": "2"}, "firstPosition"),
        (options.browse, {"maxMessagesPerTrigger": "1"}, "has no use for it"),
        (options.browse, {"batch": "1"}, "batch is set without session"),
        (options.source, {"retain": "0s"}, "above 0"),
        (options.source, {"startFrom": "earliest"}, "startFrom is set without session"),
        (options.source, {"session": "s", "startFrom": "latest"}, "earliest, the number of a"),
        (options.retained, {"session": "s"}, "session and queue are both set"),
        (
            options.retained,
            {**OF_SESSION, "batch": "1", "to": "2026-01-01Z"},
            "a time with its zone",
        ),
        (options.retained, {**OF_SESSION, "from": "2026-01-01T00:00"}, "a time with its zone"),
        (options.retained, {**OF_SESSION, "batch": "1", "to": "2026-01-01T00Z"}, "batch and to"),
        (
            options.retained,
            {**OF_SESSION, "from": "2026-01-01T00Z", "to": "2026-01-01T00Z"},
            "from is not before to",
        ),
        (to_sink, {"session": "s"}, "has no use for it"),
        (to_sink, {"settle": "rejected"}, "has no use for it"),
        (to_sink, {"txnVersion": "1"}, "has no use for it"),
        (to_batch, {"reason": "r"}, "has no use for it"),
        (to_batch, {"minPartitions": "1"}, "has no use for it"),
        (to_batch, {"exchange": "e"}, "queue and exchange"),
        (to_batch, {"routingKey": "k"}, "queue and routingKey"),
        (to_batch, {"unroutableQueue": "u", "mandatory": "false"}, "unroutableQueue"),
        (
            to_batch,
            {"unroutableQueue": "u", "guarantee": "at-least-once"},
            "row of an exactly-once write",
        ),
        (to_batch, {"changedBatch": "keep", "guarantee": "at-least-once"}, "recognised"),
        (to_batch, {"txnAppId": "a"}, "only one of txnAppId and txnVersion"),
        (
            to_batch,
            {"txnAppId": "a", "txnVersion": "1", "guarantee": "at-least-once"},
            "recognised",
        ),
    ],
)
def test_what_does_not_go_together(parse, given, part):
    """Options that contradict each other, or are of another use, are refused with their names."""
    given = {key: value for key, value in (BASE | given).items() if value is not None}
    with pytest.raises(InvalidArgumentError, match=part):
        parse(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"settle": "column"}, SettleOptions((BROKER,))),
        ({"settle": "Accepted"}, SettleOptions((BROKER,), outcome="accepted")),
        (
            {"SETTLE": "rejected", "reason": "no such customer", "discard": "true"},
            SettleOptions((BROKER,), outcome="rejected", reason="no such customer", discard=True),
        ),
        (
            {"settle": "failed", "delay": "30s", "session": "s", "reason": "r"},
            SettleOptions((BROKER,), session="s", outcome="failed", reason="r", delay_ms=30_000),
        ),
        ({"settle": "released", "delay": "1"}, SettleOptions((BROKER,), "", "released", None, 1)),
        ({"settle": "column", "delay": "1500"}, SettleOptions((BROKER,), delay_ms=1500)),
    ],
)
def test_settle_options(given, expected):
    """S6: one outcome for all rows, or a column; a delay is a duration or milliseconds."""
    given = {"endpoint": "broker:7070", **given}
    assert options.settles(given)
    assert options.settle(given) == expected


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
        ({"settle": "failed", "delay": "0"}, "'0'; it takes 1 ms .* leave it out for the delay"),
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
        edges=(
            Broker(
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
        (to_sink, {}),
        (to_batch, {}),
        (options.settle, {"settle": "rejected"}),
    ],
)
def test_a_token_is_for_every_use_and_in_no_repr(parse, given):
    """A9: for every use the token is in the connection's `Security` alone; TLS lets it travel."""
    parsed = parse({"endpoint": "localhost:1", "token": f" {SECRET}\n", **given})
    assert parsed.broker.security == Security(token=SECRET)
    assert SECRET not in repr(parsed)
    named = parse({"endpoint": "localhost:1", "tokenFile": "/run/token", **given})
    assert named.broker.security == Security(token_file="/run/token")
    for more in ({"tls": "true"}, {"tlsCa": "/ca.pem"}, {"insecure": "true"}):
        elsewhere = parse({"endpoint": "broker:1", "token": SECRET, **given, **more})
        assert elsewhere.broker.security.token == SECRET


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
        ("endpoint", "a:1,a:1", "distinct"),
        ("onEdgeAway", "wait", "hold, or skip"),
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


def test_several_edges():
    """S12: a streaming read and a settling write take several endpoints, others refuse them."""
    given = {"endpoint": "a:1, b:2", "queue": "q", "onEdgeAway": "skip"}
    parsed = options.source(given)
    assert parsed.edges == (Broker("a:1"), Broker("b:2"))
    assert (parsed.broker, parsed.skip_away) == (Broker("a:1"), True)
    assert options.settle({"endpoint": "a:1,b:2", "settle": "column"}).edges == parsed.edges
    with pytest.raises(InvalidArgumentError, match="names several brokers"):
        options.browse({"endpoint": "a:1,b:2", "queue": "q"})
    with pytest.raises(InvalidArgumentError, match="host:port"):
        options.source({**given, "endpoint": "a:1,b"})
    with pytest.raises(InvalidArgumentError, match="onEdgeAway is set and endpoint names one"):
        options.source({**given, "endpoint": "a:1"})
    with pytest.raises(InvalidArgumentError, match="elsewhere:1 in plain text"):
        options.source({**given, "endpoint": "localhost:1,elsewhere:1", "token": "t"})


def test_endpoint_with_a_password_is_refused_without_it():
    """The error masks the password, as Spark writes errors to its logs."""
    with pytest.raises(InvalidArgumentError) as caught:
        check({**BASE, "endpoint": "user:secret@broker:7070"})
    assert "'***@broker:7070'" in str(caught.value)
    assert "secret" not in str(caught.value.fields)


def test_other_writes_do_not_settle():
    """K8: only the option `settle` makes a write settle messages."""
    assert not options.settles({**BASE, "session": "s"})


def test_each_option_has_a_field():
    """No option is ignored: a query is given each, as a field or in its broker or queues."""
    classes = {
        Use.SOURCE: (SourceOptions, SplitOptions),
        Use.BROWSE: (BrowseOptions, RetainedOptions, SplitOptions),
        Use.SINK: (SinkOptions,),
        Use.BATCH: (SinkOptions,),
        Use.SETTLE: (SettleOptions,),
    }
    elsewhere = {"endpoint", "retryTimeout", "queue", "queues", "subscription"}
    elsewhere |= {each.option for each in SETTINGS}
    for option in OPTIONS.values():
        for use in option.uses:
            names = {each.name for kind in classes[use] for each in fields(kind)}
            assert option.name in elsewhere or option.field in names, (option.name, use)
