"""Turning a published frame into parts, routes and refusals."""

from datetime import UTC, datetime
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from ackq import errors, limits
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, frame, one_row
from ackq_broker.core.columns.deadlines import rounded
from ackq_broker.core.commands import Routes
from ackq_broker.service.blocks import ingest, validation
from ackq_broker.service.blocks.ingest import from_messages, routes_of, take
from tests.fakes.arrow_messages import Message
from tests.fakes.blocks import decoded, encoded, rows

NOW = 1_700_000_000_000_000
INSTANTS = (limits.MIN_PUBLISHED_AT_US, limits.MAX_PUBLISHED_AT_US)
SOON = datetime(2030, 1, 1, tzinfo=UTC)


def bodies(part):
    return rows(b"".join(part.block))["body"]


def prepare(data, now_us, **options):
    """Prepares a block with the row count that its header has."""
    return ingest.prepare(data, block.split(data)[0].rows, now_us, **options)


def refused(prepared):
    return [(refusal.rows.tolist(), type(refusal.reason)) for refusal in prepared.refusals]


# --- blocks of one row ---

ONES = {
    "a body": encoded(body=[b"abc"], routing_key="k"),
    "its own time": encoded(body=[b""], published_at=[NOW], persistent=[False]),
    "texts": encoded(body=[b"12345678"], routing_key=["é"], reply_to=["r"], delivery_mode=2),
    "headers": encoded(body=[b"x"], headers=[[("k", "é"), ("", "")]], published_at_us=NOW),
}


def outcome(data, **options):
    """What `prepare` returns or raises, comparable."""
    try:
        found = ingest.prepare(data, 1, NOW, **options)
    except errors.AckqError as error:
        return type(error), error.message, error.fields
    parts = [
        (*part._replace(block=b"".join(part.block), rows=None, row=None),) for part in found.parts
    ]
    return parts, refused(found)


def in_general(data, **options):
    """The outcome without templates."""
    with patch.object(one_row, "decode", return_value=None):
        return outcome(data, **options)


def changed(data):
    """The bytes with each byte changed in several ways, cut anywhere, or longer."""
    for at, value in enumerate(data):
        for other in {value ^ 1, value ^ 0x80, 0, 0xFF, value + 8 & 0xFF} - {value}:
            yield data[:at] + bytes((other,)) + data[at + 1 :]
        yield data[:at]
    yield data + b"\0"


@pytest.mark.parametrize("data", ONES.values(), ids=ONES.keys())
def test_a_block_of_one_row_skips_arrow(data):
    """P8: the part of a block as publishers write it, without Arrow's validation.

    With any byte changed, the same part, refusal or error with templates as without.
    """
    for options in ({}, {"by_mode": False}, {"part_keys": 0}):
        expected = in_general(data, **options)
        with patch.object(validation, "decode", side_effect=AssertionError):
            assert outcome(data, **options) == expected
    for other in changed(data):
        assert outcome(other) == in_general(other)


def test_limits_of_one_row_are_those_of_many():
    """P8, I6: a block of one row over a limit, or that expires, is read in general."""
    for values in (
        {"routing_key": "k" * 256},
        {"routing_key": ["k" * 256]},
        {"published_at_us": 1 << 62},
        {"published_at": [-(1 << 62)]},
        {"ttl_ms": [5]},
        {"expires_at": [5]},
        {"routing_key": "k" * 5000},
        {"body": [bytes(100_000)]},
    ):
        data = encoded(**{"body": [b"x"]} | values)
        assert outcome(data) == in_general(data)


# --- the ordinary frame ---


def test_the_arrow_bytes_are_stored_as_they_came():
    """K7, P7: an ordinary frame's Arrow bytes are stored as they came; only the header is new.

    A return carries its rows with the constants of their block.
    """
    data = encoded(body=[b"a", b"b"], routing_key="k")
    ((part,), refusals) = prepare(data, NOW)
    _, arrow = block.split(data)
    header, stored = block.split(b"".join(part.block))
    assert (refusals, bytes(stored)) == ((), bytes(arrow))
    assert any(isinstance(buffer, memoryview) and buffer.obj is data for buffer in part.block)
    assert (header.published_at_us, header.rows, header.routing_key) == (NOW, 2, "k")
    assert (part.rows, part.row_count, part.payload_bytes, part.persistent) == (None, 2, 4, True)
    taken = take(part.block, np.array([1]))
    assert rows(taken)["body"] == [b"b"]
    header, _ = block.split(taken)
    assert (header.routing_key, header.published_at_us) == ("k", NOW)


def test_a_publisher_may_set_its_own_time():
    """Design 4, P8: the broker stamps only messages without a publish time, within its bounds."""
    first, last = INSTANTS
    for us in (5, first, last):
        for own in ({"published_at_us": us}, {"published_at": [us]}):
            data = encoded(body=[b"a"], **own)
            prepared = prepare(data, NOW)
            assert (prepared.parts[0].block, prepared.refusals) == ((data,), ())
    some = encoded(body=[b"a", b"b"], published_at=[5, None])
    header, _ = block.split(b"".join(prepare(some, NOW).parts[0].block))
    assert header.published_at_us == NOW


# --- frames of several parts or refused rows ---


@pytest.mark.parametrize(("kind", "sizes"), [("direct", [500, 500, 200]), ("topic", [1_200])])
def test_many_keys_that_may_each_have_a_queue_are_several_parts(kind, sizes):
    """I6, Q2: one decision takes a bounded number of keys; each row is in one part, in order.

    Each row has its key, distinct ones in the order of rows; a null key is the empty key.
    """
    keys = [f"k{row}" for row in range(1_200)]
    data = encoded(body=[key.encode() for key in keys], routing_key=keys)
    parts = prepare(data, NOW, part_keys=ingest.PART_KEYS[kind]).parts
    assert [part.row_count for part in parts] == sizes
    assert [key for part in parts for key in part.routes.keys] == keys
    assert [body for part in parts for body in bodies(part)] == [key.encode() for key in keys]
    if len(parts) > 1:
        assert np.concatenate([part.rows for part in parts]).tolist() == list(range(1_200))
    found = routes_of(decoded(body=[b"x"] * 4, routing_key=["b", None, "b", "a"]))
    assert (found.keys, found.codes.tolist()) == (("b", "", "a"), [0, 1, 0, 2])
    for constant in ("k", ["k", "k"]):
        assert routes_of(decoded(body=[b"x"] * 2, routing_key=constant)) == Routes(("k",))


def test_mixed_delivery_modes_are_one_part():
    """P12, K3: a frame of both delivery modes stays one part, in order, naming its transient rows.

    A stage keeps no delivery mode.
    """
    data = encoded(
        body=[b"a", b"b", b"c", b"d"],
        routing_key=["x", "y", "x", "y"],
        persistent=[True, False, None, False],
    )
    (part,) = prepare(data, NOW).parts
    assert (part.persistent, part.rows, bodies(part)) == (True, None, [b"a", b"b", b"c", b"d"])
    assert part.transient == BitMap([1, 3])
    (stage,) = prepare(data, NOW, by_mode=False).parts
    assert (stage.persistent, stage.transient, bodies(stage)) == (True, None, bodies(part))


def test_large_rows_are_refused_alone(monkeypatch):
    """P3, P8, P12: a message or its headers over the limit is refused alone, once, with its size.

    Transient rows are numbered without the refused ones.
    """
    monkeypatch.setattr(limits, "MAX_MESSAGE_BYTES", 300)
    monkeypatch.setattr(limits, "MAX_HEADER_BYTES", 8)
    data = encoded(
        body=[b"x" * 300, b"y" * 301, b"a", b"b", b"c"],
        routing_key=["k" * 256, "", "k", "", ""],
        headers=[[], [], [("k", "v" * 8)], [("k", "v")], []],
        persistent=[True, True, True, True, False],
    )
    prepared = prepare(data, NOW)
    assert all(isinstance(each.reason, errors.MessageTooLargeError) for each in prepared.refusals)
    assert sorted(row for each in prepared.refusals for row in each.rows) == [0, 1, 2]
    assert any("over the limit of 300 bytes" in each.reason.message for each in prepared.refusals)
    (part,) = prepared.parts
    assert (bodies(part), part.rows.tolist(), part.transient) == ([b"b", b"c"], [3, 4], BitMap([1]))


NO_INSTANTS = (INSTANTS[0] - 1, INSTANTS[1] + 1, 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63))
NO_TTLS = (-1, limits.MAX_TTL_MS + 1, -(1 << 63), (1 << 63) - 1)
LONG = "k" * (limits.MAX_ROUTING_KEY_BYTES + 1)


@pytest.mark.parametrize(
    ("values", "rows", "error", "told"),
    [
        *(
            ({"ttl_ms": [5, 5, 5, ttl]}, [3], errors.InvalidArgumentError, str(ttl))
            for ttl in NO_TTLS
        ),
        *(
            ({"published_at": [*INSTANTS, us, None]}, [2], errors.InvalidArgumentError, f"{us} us")
            for us in NO_INSTANTS
        ),
        *(
            ({"published_at_us": us}, range(4), errors.InvalidArgumentError, "")
            for us in NO_INSTANTS
        ),
        ({"routing_key": ["k", LONG, "k", "k"]}, [1], errors.MessageTooLargeError, ""),
        ({"routing_key": LONG}, range(4), errors.MessageTooLargeError, ""),
        ({"routing_key": ["a", "b", "c", "d"]}, range(4), errors.LimitError, ""),
        # Only the broker sets when a message expires.
        ({"expires_at": [SOON] * 4}, range(4), errors.SchemaError, ""),
    ],
    ids=str,
)
def test_rows_that_are_refused(monkeypatch, values, rows, error, told):
    """P8, I6, Q3: a value out of range refuses its row alone, by its name; a constant every row.

    So does a key that is too long; too many distinct keys refuse all. The others are one part.
    """
    monkeypatch.setattr(limits, "MAX_DISTINCT_ROUTES_PER_FRAME", 3)
    prepared = prepare(encoded(body=[b"x"] * 4, **values), NOW)
    assert refused(prepared) == [(list(rows), error)]
    assert told in prepared.refusals[0].reason.message
    left = 4 - len(rows)
    assert [part.row_count for part in prepared.parts] == ([left] if left else [])


def compressed(batch, codec):
    """A batch as an IPC message whose buffers are compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    return messages.read_next_message().serialize()


def test_frames_that_are_refused_unread(monkeypatch):
    """I6, P8: compressed batches, as 33 KB of zstd can hold a body of 1 GiB, and too many rows.

    So are frames whose block has another number of rows than they announce.
    """
    plain = decoded(body=[b"\0" * limits.MIB])
    assert plain.batch.equals(
        validation.decode(block.join(plain.header, plain.batch.serialize()), 1)[1]
    )
    for codec in ("lz4", "zstd"):
        data = block.join(plain.header, compressed(plain.batch, codec))
        assert len(data) < limits.MIB // 8
        with pytest.raises(errors.MalformedBlockError, match="compressed"):
            prepare(data, NOW)
    for announced in (0, 1, 3):
        told = f"announces {announced} rows and its block 2"
        with pytest.raises(errors.MalformedBlockError, match=told):
            ingest.prepare(encoded(body=[b"a", b"b"]), announced, NOW)
    monkeypatch.setattr(limits, "MAX_FRAME_ROWS", 2)
    with pytest.raises(errors.LimitError):
        prepare(encoded(body=[b"a"] * 3), NOW)


def test_bytes_that_no_message_uses_are_refused():
    """I6, A5: bytes of a frame outside its messages are refused, as quotas would not count them."""
    sound = decoded(body=[b"abc", b"d"])
    message = Message.of(sound.batch)
    (_, validity), (at, offsets), (start, used) = message.buffers
    longer = message.but(
        buffers=[(0, validity), (at, offsets), (start, used + 10_000)],
        body=message.body + bytes(10_000 + 4),
    )
    unknown = frame.varint(14 << 3 | 2) + frame.varint(10_000) + bytes(10_000)
    for data in (
        block.join(sound.header, longer.encode()),
        block.join(sound.header, message.encode()) + unknown,
    ):
        block.decode(data, validate=True)
        with pytest.raises(errors.MalformedBlockError, match="messages use 4"):
            prepare(data, NOW)


def expiries(part):
    return [
        (each.expires_us, None if each.rows is None else list(each.rows)) for each in part.expiries
    ]


def after(*ttls_ms):
    """The rounded expiry times of messages with these TTLs, as the core keeps them."""
    return rounded(NOW + 1000 * np.array(ttls_ms), NOW).tolist()


def test_time_to_live_becomes_an_expiry():
    """Q3: a TTL becomes an expiry by the broker's clock: a column, and groups for the core.

    A TTL of 0, or none, leaves no column; a block of such a column alone still has one.
    """
    ttl = [None, 50, 0, 7000, 50]
    (part,) = prepare(encoded(body=[b"a", b"b", b"c", b"d", b"e"], ttl_ms=ttl), NOW).parts
    soon, later = after(50, 7000)
    assert expiries(part) == [(soon, [1, 4]), (later, [3])]
    found = rows(b"".join(part.block))
    assert list(found) == ["body", "expires_at"]
    lives = [at and round((at.timestamp() - NOW / 1e6) * 1000) for at in found["expires_at"]]
    assert lives == [None, 50, None, 7000, 50]
    (part,) = prepare(encoded(ttl_ms=[None, 0]), NOW).parts
    assert part.expiries == ()
    assert rows(b"".join(part.block)) == {"persistent": [True, True]}
    (part,) = prepare(encoded(body=[b"a", b"b"], ttl_ms=[5, -1]), NOW).parts
    assert expiries(part) == [(*after(5), None)]
    # With one TTL for all rows the block keeps its constants.
    (part,) = prepare(encoded(body=[b"a", b"b"], ttl_ms=[5, 5], routing_key="k"), NOW).parts
    assert expiries(part) == [(*after(5), None)]
    header, _ = block.split(b"".join(part.block))
    assert (header.routing_key, header.published_at_us) == ("k", NOW)


def test_a_frame_of_many_times_to_live():
    """I6: near expiries share one group of rows, and no message expires early."""
    count = 100_000
    data = encoded(body=[b""] * count, ttl_ms=list(range(1, count + 1)))
    (part,) = prepare(data, NOW).parts
    assert len(part.expiries) < 5000
    for each in part.expiries:
        latest = NOW + (each.rows.max() + 1) * 1000
        assert latest <= each.expires_us <= latest + max(16_400, (latest - NOW) / 512)
    assert sum(len(each.rows) for each in part.expiries) == count


# --- single messages ---


def test_messages_become_a_block():
    """P2: messages of a small publisher become one block; absent fields make no columns."""
    data = from_messages(
        [
            pb.Message(body=b"a", routing_key="k", published_at_us=1_000_000),
            pb.Message(routing_key="l", headers={"h": "v"}, correlation_id="c"),
        ],
        NOW,
    )
    assert rows(data) == {
        "body": [b"a", b""],
        "routing_key": ["k", "l"],
        "correlation_id": [None, "c"],
        "headers": [[], [("h", "v")]],
        "published_at": [datetime.fromtimestamp(at, UTC) for at in (1, NOW / 1e6)],
    }
