"""Input of a publisher: fields, frames, batches, and refused arguments. P12, P14."""

import textwrap
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest

from ackq import errors
from ackq.client import Confirmation, Publisher, TransactionalPublisher
from ackq.wire import block
from tests.fakes import scripted_broker as fake
from tests.unit.client.publishing.scripts import KINDS, LINGER_MS, publisher
from tests.unit.client.threads import SOON_S

FAR_WEST = timezone(timedelta(hours=-14))


def test_frame_stays_within_its_target(broker):
    """Single publishes are sent in frames of about 2 MiB."""
    body = b"x" * 600_000
    with publisher(broker, linger_ms=LINGER_MS) as out:
        for _ in range(12):
            out.publish(body)
    rows = [each.header.data.rows for each in fake.data_frames(broker.publishing.streams[0])]
    assert rows == [3, 3, 3, 3]


def test_destinations_do_not_share_a_frame(broker):
    """A frame has one exchange, one `mandatory`, one `ack_immediately`; order is kept."""
    with publisher(broker, linger_ms=LINGER_MS) as out:
        out.publish(b"a")
        out.publish(b"b", exchange="x")
        out.publish(b"c", exchange="x", mandatory=False)
        out.publish(b"d", ack_immediately=True)
    frames = [each.header.data for each in fake.data_frames(broker.publishing.streams[0])]
    assert [(each.exchange, each.mandatory, each.ack_immediately) for each in frames] == [
        ("", True, False),
        ("x", True, False),
        ("x", False, False),
        ("", True, True),
    ]


def test_batch_is_cut_into_frames_with_one_future(broker):
    """P2, P9: a large batch has one future, frames of at most 10,000 rows, order kept."""
    table = pa.table({"body": [f"m{i}" for i in range(25_000)]})
    with publisher(broker) as out:
        assert out.publish_batch(table).result(SOON_S) == 25_000
    frames = fake.data_frames(broker.publishing.streams[0])
    assert [each.header.data.rows for each in frames] == [10_000, 10_000, 5_000]
    assert [each.header.data.first_number for each in frames] == [1, 10_001, 20_001]
    assert fake.bodies(frames[2])[-1] == b"m24999"


def test_batches_that_differ_do_not_share_a_frame(broker):
    """A frame has one set of columns, and one routing key or a column of keys."""
    bare = pa.record_batch({"body": ["b"]})
    keyed = pa.record_batch({"body": ["k"], "routing_key": ["x"]})
    with publisher(broker, linger_ms=LINGER_MS) as out:
        for batch, key in ((bare, None), (bare, None), (bare, "other"), (keyed, None)):
            out.publish_batch(batch, routing_key=key)
        out.publish(b"single")
        out.publish_batch(bare, exchange="e")
    frames = fake.data_frames(broker.publishing.streams[0])
    assert [fake.bodies(each) for each in frames] == [
        [b"b", b"b"],
        [b"b"],
        [b"k"],
        [b"single"],
        [b"b"],
    ]


def test_small_batches_of_a_frame_are_answered_one_by_one(broker):
    """P3, P8: a nack fails the batches with its rows, and no other batch of the frame.

    A batch's future has the first failure of its rows, once all of them are answered.
    """
    broker.publishing.scripts.append(
        fake.answering(fake.nack(2, 3, errors.QueueFullError("full")), fake.confirm(6))
    )
    with publisher(broker, linger_ms=LINGER_MS) as out:
        futures = [out.publish_batch(pa.record_batch({"body": ["a", "b"]})) for _ in range(3)]
        with pytest.raises(errors.QueueFullError):
            out.flush(SOON_S)
    assert [type(each.exception()) for each in futures] == [
        errors.QueueFullError,
        errors.QueueFullError,
        type(None),
    ]


@pytest.mark.parametrize("told", [None, lambda _: None])
def test_batch_with_returned_rows_fails_unless_they_are_told(broker, told):
    """P7: without `on_return` the batch's future fails for a returned row."""

    broker.publishing.scripts.append(fake.answering(fake.second_returned, fake.confirm(3)))
    out = publisher(broker, mandatory=True, on_return=told)
    future = out.publish_batch(pa.record_batch({"body": [b"a", b"b", b"c"]}))
    if told is not None:
        assert future.result(SOON_S) == 3
        out.close()
        return
    with pytest.raises(errors.UnroutableError, match="No queue"):
        future.result(SOON_S)
    with pytest.raises(errors.UnroutableError):
        out.close()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"body": 1}, "'body' is a int; it must be bytes or str"),
        ({"body": b"", "message_id": 7}, "'message_id' is a int"),
        ({"body": b"", "message_id": "\ud800"}, "cannot be written as UTF-8"),
        ({"body": b"", "headers": {"k": 1}}, "'headers' is a int"),
        ({"body": b"", "routing_key": "k" * 256}, "256 bytes; the limit is 255"),
        ({"body": "\ud800"}, "'body' cannot be written as UTF-8"),
        ({"body": b"", "headers": [("k", "v")]}, "'headers' is a list"),
        ({"body": b"", "exchange": 5}, "'exchange' is a int"),
        ({"body": b"", "exchange": "e" * 256}, "256 bytes; the limit is 255"),
        ({"body": b"", "persistent": "yes"}, "'persistent' is a str; it must be True or False"),
        ({"body": b"", "mandatory": "yes"}, "'mandatory' is a str"),
        ({"body": b"", "ack_immediately": 1}, "'ack_immediately' is a int"),
        ({"body": b"", "published_at": "now"}, "'published_at' is a str"),
        ({"body": b"", "queue": "q", "routing_key": "q"}, "Give 'queue' alone, or the other two"),
        ({"body": b"", "queue": "q", "exchange": ""}, "Give 'queue' alone, or the other two"),
        ({"body": b"", "queue": ""}, "A queue's name has 1 to 255 bytes, not 0"),
        ({"body": b"", "queue": 5}, "'queue' is a int"),
        ({"body": b"", "ttl_ms": "1 s"}, "'ttl_ms' is a str"),
        ({"body": b"", "ttl_ms": True}, "'ttl_ms' is a bool"),
        ({"body": b"", "ttl_ms": 0}, "'ttl_ms' is 0; it must be 1 to"),
        ({"body": b"", "ttl_ms": 1 << 62}, "a hundred years"),
        ({"body": b"", "published_at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"body": b"", "published_at": datetime.max.replace(tzinfo=UTC)}, "every time zone"),
        ({"body": b"", "published_at": datetime.min.replace(tzinfo=FAR_WEST)}, "every time zone"),
        ({"body": b"", "published_at": datetime.max.replace(tzinfo=FAR_WEST)}, "every time zone"),
    ],
)
def test_bad_arguments_are_refused_at_once(broker, arguments, expected):
    """A bad argument raises at the call, and the next message is published."""
    with publisher(broker) as out:
        with pytest.raises(errors.InvalidArgumentError, match=expected):
            out.publish(**arguments)
        assert out.publish(b"good").result(SOON_S) == Confirmation(1)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Publisher, {"exchange": 5}),
        (Publisher, {"mandatory": "yes"}),
        (Publisher, {"persistent": "no"}),
        (Publisher, {"label": b"x"}),
        (Publisher, {"window_messages": 0}),
        (Publisher, {"window_bytes": 0}),
        (Publisher, {"publish_ack_timeout_ms": 0}),
        (Publisher, {"linger_ms": -1}),
        (TransactionalPublisher, {"window_messages": 0}),
        (TransactionalPublisher, {"window_bytes": -1}),
        (TransactionalPublisher, {"mandatory": 1}),
        (TransactionalPublisher, {"label": 5}),
    ],
)
def test_bad_options_are_refused_at_once(broker, kind, options):
    """The error names the publisher option that is wrong."""
    with pytest.raises(errors.InvalidArgumentError, match=next(iter(options))):
        kind(broker.endpoint, **options)


def targets(requests):
    """The exchange of each frame, and the routing keys of its rows."""
    for each in fake.data_frames(requests):
        header, rows = block.decode(each.block, validate=True)
        keys = [header.routing_key] * rows.num_rows
        if "routing_key" in rows.schema.names:
            keys = rows["routing_key"].to_pylist()
        yield each.header.data.exchange, keys


@pytest.mark.parametrize("kind", [*KINDS.values(), TransactionalPublisher])
def test_a_queue_is_named_as_everywhere_else(broker, kind):
    """Q2, P13: `queue` overrides the publisher's exchange and routing key."""
    with publisher(broker, kind=kind, exchange="events") as out:
        out.publish(b"a", queue="bills")
        out.publish_batch(pa.record_batch({"body": [b"b"]}), queue="bills")
        if kind is TransactionalPublisher:
            out.commit(SOON_S)
    found = list(targets(broker.publishing.streams[0]))
    assert found == [("", ["bills"])] * len(found)
    assert found


@pytest.mark.parametrize(
    ("columns", "arguments", "said"),
    [
        ({"routing_key": ["other"]}, {"queue": "bills"}, "a column"),
        ({}, {"exchange": 5}, "'exchange'"),
    ],
)
def test_bad_arguments_of_a_batch_are_refused_at_once(broker, columns, arguments, said):
    """Q2: `queue` would override a batch's own keys; an exchange is a text."""
    batch = pa.record_batch({"body": [b"a"], **columns})
    with publisher(broker) as out, pytest.raises(errors.InvalidArgumentError, match=said):
        out.publish_batch(batch, **arguments)


def test_examples_of_the_docstring_are_right(broker, capsys):
    """The examples in the docstring of `Publisher` run and print their documented output."""
    paragraphs = Publisher.__doc__.split("\n\n")
    examples = [each for each in paragraphs if each.lstrip().startswith("with ")]
    assert len(examples) == 2
    for each in examples:
        program = textwrap.dedent(each).replace("127.0.0.1:5775", broker.endpoint)
        exec(program, {"Publisher": Publisher, "pyarrow": pa})  # noqa: S102
    assert capsys.readouterr().out == "1\n2\n"
