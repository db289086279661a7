"""Batches from frames: exactly the columns, order and types asked for."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ackq import errors, limits
from ackq.client.blocks import decoding
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns
from tests.fakes.arrow_messages import Message

NOON_US = 1_714_564_800_000_000
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def runs(*each, queues=("orders",)):
    """Delivery runs from tuples (first tag, rows, delivery count, queue index, leased)."""
    parts = [(*run, *(1, 0, 0)[len(run) - 2 :]) for run in each]
    first, rows, count, queue, leased = zip(*parts, strict=True)
    return pb.DeliveryRuns(
        first_tag=first,
        rows=rows,
        delivery_count=count,
        queue_index=queue,
        leased=leased,
        queues=queues,
    )


def content(bodies, **header):
    return block.encode(pa.RecordBatch.from_pydict({"body": bodies}), **header)


def test_null_means_the_headers_constant():
    """A null value in a column is replaced by the constant of the block's header.

    Headers are empty, not null: Spark's default Arrow sink is quadratic in nulls.
    """
    given = {
        "body": [b"a", b"b"],
        "headers": pa.array([None, [("a", "b")]], columns.HEADERS),
        "published_at": pa.array([0, None], columns.TIMESTAMP),
        "persistent": pa.array([None, False]),
    }
    data = block.encode(pa.RecordBatch.from_pydict(given), published_at_us=NOON_US)
    batch = decoding.delivered(runs((1, 2)), data, ["published_at", "persistent", "headers"])
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        (datetime.fromtimestamp(0, UTC), True, []),
        (NOON, False, [("a", "b")]),
    ]


@pytest.mark.parametrize("us", [1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63)])
def test_a_publish_time_that_datetime_cannot_hold_becomes_the_nearest(us):
    """I6: an out-of-range time that an older broker stored is clamped, in rows and headers."""
    nearest = limits.MAX_PUBLISHED_AT_US if us > 0 else limits.MIN_PUBLISHED_AT_US
    rows = pa.RecordBatch.from_pydict(
        {"body": [b"a", b"b"], "published_at": pa.array([NOON_US, us], columns.TIMESTAMP)}
    )
    for data, expected in (
        (block.encode(rows), [NOON_US, nearest]),
        (content([b"a", b"b"], published_at_us=us), [nearest, nearest]),
    ):
        column = decoding.delivered(runs((1, 2)), data, ["published_at"]).column(0)
        assert column.type == columns.TIMESTAMP
        assert column.cast(pa.int64()).to_pylist() == expected
        assert all(isinstance(value, datetime) for value in column.to_pylist())


def test_stored_columns_are_not_copied():
    """K7: a stored column is a view of the frame's memory."""
    data = content([b"a" * 1000])
    body = decoding.delivered(runs((1, 1)), data, ["body"]).column(0)
    frame = pa.py_buffer(data)
    assert frame.address <= body.buffers()[2].address < frame.address + frame.size


@pytest.mark.parametrize("rows", [1, 3, 4, limits.FRAME_TARGET_ROWS + 1])
def test_constant_columns_have_the_rows_of_their_frame(rows):
    """Constants that frames share are cut to the rows of each, whatever frame came before."""
    names = [name for name in columns.DELIVERED if name not in ("body", "delivery_tag")]
    durable, other = pb.DELIVERY_MODE_PERSISTENT, pb.DELIVERY_MODE_NON_PERSISTENT
    for count, key, mode in ((2, "a", durable), (rows, "b" * 65, other), (rows, "a", durable)):
        header = {"routing_key": key, "published_at_us": NOON_US, "delivery_mode": mode}
        batch = decoding.delivered(runs((1, count)), content([b""] * count, **header), names)
        batch.validate(full=True)
        expected = dict.fromkeys(names) | {
            "routing_key": key,
            "headers": [],
            "published_at": NOON,
            "persistent": mode == durable,
            "queue": "orders",
            "redelivered": False,
            "delivery_count": 1,
        }
        assert batch.to_pylist() == [expected] * count


def test_frames_share_constant_columns():
    """The constant and null columns of a second frame take no memory of their own."""
    names = ["message_id", "routing_key", "queue", "headers", "redelivered"]
    first, second = (
        decoding.delivered(runs((tag, 2)), content([b""] * 2, routing_key="k"), names)
        for tag in (1, 3)
    )
    for column, other in zip(first.columns, second.columns, strict=True):
        assert column.buffers()[1].address == other.buffers()[1].address


def test_runs_give_tags_counts_and_queues():
    """C7: each run has its own tags, count and queue; redelivered is false the first time."""
    deliveries = runs((5, 2), (9, 1, 3), (20, 3, 1, 1), queues=("orders", "größer"))
    names = ["delivery_tag", "delivery_count", "redelivered", "queue"]
    batch = decoding.delivered(deliveries, content([b""] * 6), names)
    assert batch.schema == pa.schema([(name, columns.DELIVERED[name][1]) for name in names])
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        (5, 1, False, "orders"),
        (6, 1, False, "orders"),
        (9, 3, True, "orders"),
        (20, 1, False, "größer"),
        (21, 1, False, "größer"),
        (22, 1, False, "größer"),
    ]
    batch.validate(full=True)
    assert decoding.last_tag(deliveries) == 22


def test_wrong_columns_are_refused():
    with pytest.raises(errors.SchemaError, match="At least one column"):
        decoding.schema(())
    with pytest.raises(errors.SchemaError, match="'body' is asked for twice"):
        decoding.schema(("body", "body"))


LIES = {
    "a list too short": {"delivery_count": [1]},
    "a list too long": {"queue_index": [0, 0, 0]},
    "marks for some runs": {"leased": [1]},
    "lengths for some rows": {"body_bytes": [1]},
    "a run without rows": {"rows": [3, 0]},
    "a queue without a name": {"queue_index": [0, 1]},
    "no queues": {"queues": []},
    "a tag beyond all": {"first_tag": [1, 1 << 63]},
    "a count beyond all": {"delivery_count": [1, 1 << 31]},
    "a mark beyond all": {"leased": [0, (1 << 32) - 1]},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_runs_that_no_broker_sends(lie):
    """C1: inconsistent runs are a typed error, whatever server sends them."""
    made = runs((1, 1), (2, 2))
    for name, values in lie.items():
        getattr(made, name)[:] = values
    data = content([b"a", b"b", b"c"])
    for read in (decoding.delivered, decoding.browsed, decoding.previewed):
        with pytest.raises(errors.MalformedBlockError, match="The frame's runs"):
            read(made, data, ["body"])


def test_blocks_of_a_broker_are_validated():
    """C1: blocks with offsets outside the frame, and compressed ones, are refused."""
    sound = pa.RecordBatch.from_pydict({"body": [b"abc"]})
    header = block.header_of(sound)
    broken = Message.of(sound).but(body=b"\0\0\0\0\xff\xff\xff\x7f" + b"abc" + bytes(5))
    packed = Message.of(sound).but(codec=1)
    for message in (broken, packed):
        data = block.join(header, message.encode())
        for read in (decoding.delivered, decoding.browsed):
            with pytest.raises(errors.MalformedBlockError, match="Arrow batch is not valid"):
                read(runs((1, 1)), data, ["body"])
        with pytest.raises(errors.MalformedBlockError, match="Arrow batch is not valid"):
            decoding.stored(data, ["body"])
