"""From a frame to parts, routes and refusals."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from ackq import limits
from ackq.errors import (
    AckqError,
    LimitError,
    MalformedBlockError,
    MessageTooLargeError,
    SchemaError,
    UnsupportedError,
)
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block
from ackq_broker.core.commands import Route
from ackq_broker.service import admission
from ackq_broker.service.ingest import from_messages, prepare, routes_of, take
from tests.unit.service.blocks import decoded, encoded, rows

NOW = 1_700_000_000_000_000


def bodies(part):
    return rows(b"".join(part.block))["body"]


def refused(prepared):
    return [(refusal.rows.tolist(), type(refusal.reason)) for refusal in prepared.refusals]


def routes(decoded_block):
    return [(key, found and list(found)) for key, found in routes_of(decoded_block)]


# --- routes ---


def test_constant_key_is_one_route():
    """Q2: without a routing key column there is one route, for every row."""
    assert routes_of(decoded(body=[b"a", b"b"], routing_key="k")) == (Route("k", None),)


def test_column_of_one_key_is_one_route():
    """Q2: a column with one distinct key needs no bitmap."""
    assert routes_of(decoded(body=[b"a", b"b"], routing_key=["k", "k"])) == (Route("k", None),)


def test_distinct_keys_cover_every_row_once():
    """Q2: each distinct key has its rows; a null key is the empty key."""
    keyed = decoded(body=[b"x"] * 6, routing_key=["b", "a", None, "b", "", "c"])
    assert routes(keyed) == [("b", [0, 3]), ("a", [1]), ("", [2, 4]), ("c", [5])]


def test_many_keys():
    """Q2: as dictionary codes and a stable sort, checked against the plain way."""
    keys = [f"k{n * 7919 % 500}" for n in range(5000)]
    expected = {}
    for row, key in enumerate(keys):
        expected.setdefault(key, []).append(row)
    assert dict(routes(decoded(body=[b"x"] * 5000, routing_key=keys))) == expected


# --- the ordinary frame ---


def test_the_arrow_bytes_are_stored_as_they_came():
    """K7: an ordinary frame is not encoded again: only the header with the publish time is new."""
    data = encoded(body=[b"a", b"b"], routing_key="k")
    ((part,), refusals) = prepare(data, NOW)
    _, arrow = block.split(data)
    header, stored = block.split(b"".join(part.block))
    assert (refusals, bytes(stored)) == ((), bytes(arrow))
    assert any(isinstance(buffer, memoryview) and buffer.obj is data for buffer in part.block)
    assert (header.published_at_us, header.rows, header.routing_key) == (NOW, 2, "k")
    assert (part.rows, part.row_count, part.payload_bytes, part.persistent) == (None, 2, 4, True)


def test_a_publisher_may_set_its_own_time():
    """Design 4: the broker stamps only what has no publish time."""
    constant = encoded(body=[b"a"], published_at_us=5)
    each = encoded(body=[b"a"], published_at=[datetime(2013, 1, 1, tzinfo=UTC)])
    assert prepare(constant, NOW).parts[0].block == (constant,)
    assert prepare(each, NOW).parts[0].block == (each,)
    some = encoded(body=[b"a", b"b"], published_at=[datetime(2013, 1, 1, tzinfo=UTC), None])
    header, _ = block.split(b"".join(prepare(some, NOW).parts[0].block))
    assert header.published_at_us == NOW


@pytest.mark.parametrize(
    ("mode", "persistent"),
    [
        (pb.DELIVERY_MODE_UNSPECIFIED, True),
        (pb.DELIVERY_MODE_PERSISTENT, True),
        (pb.DELIVERY_MODE_NON_PERSISTENT, False),
    ],
)
def test_delivery_mode_of_the_frame(mode, persistent):
    """P12: the mode of the publisher holds for the frame; unspecified is persistent."""
    (part,) = prepare(encoded(body=[b"a"], delivery_mode=mode), NOW).parts
    assert part.persistent is persistent


def test_garbage_is_refused():
    """P8: bytes that are no block end the stream with the reason."""
    with pytest.raises(MalformedBlockError):
        prepare(b"\x0a\x02\x08\x02\x7a\x03abc", NOW)


# --- cut frames ---


def test_mixed_delivery_modes_are_two_parts():
    """P12: a frame of both modes is published as two, with their own rows and numbers."""
    data = encoded(
        body=[b"a", b"b", b"c", b"d"],
        routing_key=["x", "y", "x", "y"],
        persistent=[True, False, None, False],
    )
    kept, lost = prepare(data, NOW).parts
    assert (kept.persistent, kept.rows.tolist(), bodies(kept)) == (True, [0, 2], [b"a", b"c"])
    assert (lost.persistent, lost.rows.tolist(), bodies(lost)) == (False, [1, 3], [b"b", b"d"])
    assert kept.routes == (Route("x", None),)
    assert lost.routes == (Route("y", None),)


def test_a_stage_is_not_cut_by_mode():
    """K3: a stage keeps its rows together and in order, whatever their delivery mode."""
    data = encoded(body=[b"a", b"b"], persistent=[True, False])
    (part,) = prepare(data, NOW, by_mode=False).parts
    assert (part.persistent, bodies(part)) == (True, [b"a", b"b"])


def test_a_message_over_the_limit_is_refused_alone(monkeypatch):
    """P8: the row over the limit is refused with its size and the limit; the others are taken."""
    monkeypatch.setattr(limits, "MAX_MESSAGE_BYTES", 10)
    prepared = prepare(encoded(body=[b"small", b"x" * 11, b"y"], routing_key="k"), NOW)
    assert refused(prepared) == [([1], MessageTooLargeError)]
    assert "12 bytes is over the limit of 10 bytes" in prepared.refusals[0].reason.message
    assert bodies(prepared.parts[0]) == [b"small", b"y"]
    assert prepared.parts[0].rows.tolist() == [0, 2]


def test_headers_over_their_limit(monkeypatch):
    """P8: headers have a limit of their own."""
    monkeypatch.setattr(limits, "MAX_HEADER_BYTES", 8)
    data = encoded(body=[b"a", b"b"], headers=[[("k", "v" * 8)], [("k", "v")]])
    prepared = prepare(data, NOW)
    assert refused(prepared) == [([0], MessageTooLargeError)]
    assert bodies(prepared.parts[0]) == [b"b"]


def test_long_routing_keys():
    """P8: a routing key has at most 255 bytes, in a column and as the frame's constant."""
    long = "k" * (limits.MAX_ROUTING_KEY_BYTES + 1)
    assert refused(prepare(encoded(body=[b"a", b"b"], routing_key=["k", long]), NOW)) == [
        ([1], MessageTooLargeError)
    ]
    prepared = prepare(encoded(body=[b"a", b"b"], routing_key=long), NOW)
    assert (prepared.parts, refused(prepared)) == ((), [([0, 1], MessageTooLargeError)])


def test_a_row_is_refused_once(monkeypatch):
    """P3: a row that breaks two limits has one refusal."""
    monkeypatch.setattr(limits, "MAX_MESSAGE_BYTES", 300)
    data = encoded(body=[b"x" * 300, b"y"], routing_key=["k" * 256, "k"])
    assert refused(prepare(data, NOW)) == [([0], MessageTooLargeError)]


def test_too_many_routes(monkeypatch):
    """I6: a frame has a bound of distinct routing keys."""
    monkeypatch.setattr(limits, "MAX_DISTINCT_ROUTES_PER_FRAME", 2)
    data = encoded(body=[b"a"] * 3, routing_key=["a", "b", "c"])
    assert refused(prepare(data, NOW)) == [([0, 1, 2], LimitError)]


def test_too_many_rows(monkeypatch):
    """I6: a frame has a bound of rows, and one over it is not even decoded."""
    monkeypatch.setattr(limits, "MAX_FRAME_ROWS", 2)
    with pytest.raises(LimitError):
        prepare(encoded(body=[b"a"] * 3), NOW)


def compressed(batch, codec):
    """A batch as an IPC message whose buffers are compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    return messages.read_next_message().serialize()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_batches_are_refused_unread(codec):
    """I6: 33 KB of zstd hold a body of 1 GiB, which a frame's bound in bytes does not see."""
    plain = decoded(body=[b"\0" * limits.MIB])
    assert plain.batch.equals(
        admission.decode(block.join(plain.header, plain.batch.serialize()))[1]
    )
    data = block.join(plain.header, compressed(plain.batch, codec))
    assert len(data) < limits.MIB // 8
    with pytest.raises(MalformedBlockError, match="compressed"):
        prepare(data, NOW)


def test_bytes_that_are_no_batch_are_malformed():
    """I6: whatever bytes come in place of a batch, the client is told so, and told no bug."""
    sound = bytearray(encoded(body=[b"a", None, b"bb"], headers=[[("k", "v")], [], []]))
    for at in range(len(sound)):
        for value in (0, 1, 4, 0x7F, 0x80, 0xFF):
            broken = sound.copy()
            broken[at] = value
            try:
                prepare(bytes(broken), NOW)
            except AckqError:
                continue


def test_time_to_live_is_refused_not_ignored():
    """Q3: this broker does not expire messages yet and says so."""
    prepared = prepare(encoded(body=[b"a", b"b", b"c"], ttl_ms=[None, 5, 0]), NOW)
    assert refused(prepared) == [([1], UnsupportedError)]


def test_expiry_is_the_brokers():
    """Q3: expires_at is set by the broker alone."""
    data = encoded(body=[b"a"], expires_at=[datetime(2030, 1, 1, tzinfo=UTC)])
    assert refused(prepare(data, NOW)) == [([0], SchemaError)]


# --- single messages ---


def test_messages_become_a_block():
    """P2: messages of a small publisher are folded; absent fields make no columns."""
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
        "published_at": [
            datetime.fromtimestamp(1, UTC),
            datetime.fromtimestamp(NOW / 1e6, UTC),
        ],
    }


def test_messages_keep_their_delivery_mode():
    """P12: a message may override the mode."""
    data = from_messages(
        [
            pb.Message(body=b"a"),
            pb.Message(body=b"b", delivery_mode=pb.DELIVERY_MODE_NON_PERSISTENT),
        ],
        NOW,
    )
    assert [part.persistent for part in prepare(data, NOW).parts] == [True, False]


def test_take_rows_of_a_stored_block():
    """P7: a return carries the rows that were returned, with the block's constants."""
    stored = prepare(encoded(body=[b"a", b"b", b"c"], routing_key="k"), NOW).parts[0].block
    taken = take(stored, np.array([0, 2]))
    header, _ = block.split(taken)
    assert rows(taken)["body"] == [b"a", b"c"]
    assert (header.routing_key, header.published_at_us) == ("k", NOW)
