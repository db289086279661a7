"""Targets: frames and blocks, in the broker that takes them and the client that receives them."""

from contextlib import suppress
from functools import cache, partial

import numpy as np
import pyarrow as pa

from ackq.client.blocks import decoding
from ackq.errors import AckqError
from ackq.v1 import links_pb2, publishing_pb2
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns, frame
from ackq_broker.service.blocks import coalescing, ingest
from ackq_broker.service.links import deliveries
from tests.fakes.arrow_messages import Message
from tests.fakes.blocks import batch
from tests.fuzz.mutations import SIGNED, TEXTS, Filler, mutated, with_numbers
from tests.fuzz.targets import outcome_of, target

NOW_US = 1_700_000_000_000_000
# Arrow's allowance in addition to the received bytes: the results of its kernels, row by row.
ALLOWED_BYTES = 1 << 20


@cache
def batches():
    """Batches of all columns, of few, with nulls and without."""
    return (
        batch(body=[b"abc", None, b"", b"x" * 300]),
        batch(body=[b"a"] * 100, routing_key=[f"k{n % 7}" for n in range(100)]),
        batch(
            body=[b"abc", None, b"defgh"],
            routing_key=["a", None, "b.c"],
            message_id=["1", "2", None],
            correlation_id=[None, "c", "d"],
            reply_to=["r", "", None],
            content_type=["text/plain"] * 3,
            headers=[[("k", "v")], [], [("l", None), ("m", "w" * 50)]],
            published_at=[1, None, 1 << 50],
            persistent=[True, None, False],
            ttl_ms=[None, 5, 0],
        ),
        batch(headers=[[("k", "v")] * 20, None, []], persistent=[None] * 3),
        batch(published_at=[None, -(1 << 60)], expires_at=[5, 6], body=[b"", b"x"]),
    )


@cache
def donors():
    return tuple(bytes(each.serialize()) for each in batches())


def hostile_block(rng):
    """A block that is wrong somewhere: in its header, its metadata, its buffers, or by a byte."""
    sound = rng.choice(batches())
    header = block.header_of(
        sound,
        routing_key="" if "routing_key" in sound.schema.names else rng.choice(("", "k")),
        published_at_us=rng.choice((0, NOW_US)),
    )
    arrow = bytes(sound.serialize())
    kind = rng.randrange(10)
    if kind <= 4:
        arrow = with_numbers(Message.of(sound), rng).encode()
    elif kind <= 6:
        arrow = mutated(arrow, rng, donors())
    elif kind == 7:
        arrow = rng.choice(donors())
    if rng.random() < 0.3:
        field = rng.choice(("columns", "rows", "payload_bytes", "published_at_us", "routing_key"))
        _lie(header, field, rng)
    data = block.join(header, arrow)
    return mutated(data, rng, donors()) if kind == 9 else data


def _lie(header, field, rng):
    """Gives a header another value of a field, mostly a close one."""
    if field == "routing_key":
        header.routing_key = rng.choice(TEXTS)
        return
    near = getattr(header, field) + rng.choice((-1, 1, 2))
    value = near if rng.random() < 0.5 else rng.choice(SIGNED)
    if field == "published_at_us":
        header.published_at_us = max(SIGNED[-1], min(value, -SIGNED[-1] - 1))
    else:
        setattr(header, field, abs(value) % (1 << 32))


def bounded(call, data):
    """The outcome of a call on some bytes, with Arrow's memory checked."""
    before = pa.total_allocated_bytes()
    try:
        return outcome_of(call)
    finally:
        grown = pa.total_allocated_bytes() - before
        assert grown <= 8 * len(data) + ALLOWED_BYTES, f"{grown} bytes for {len(data)}"


@target(200)
def publish(rng):
    """P8, I6: a publisher's frame; a taken one is sound, and each of its rows is in one part."""
    data = hostile_block(rng)
    announced = rng.choice((1, 2, 3, 4, 100))
    with suppress(AckqError):
        announced = block.split(data)[0].rows
    said, prepared = bounded(lambda: ingest.prepare(data, announced, NOW_US), data)
    if prepared is None:
        return said
    rows = [np.arange(announced) if part.rows is None else part.rows for part in prepared.parts]
    rows += [refusal.rows for refusal in prepared.refusals]
    assert sorted(np.concatenate(rows).tolist()) == list(range(announced))
    for part in prepared.parts:
        held = block.decode(b"".join(part.block), validate=True)
        held.batch.to_pylist()
        assert held.header.rows == part.row_count
        keys, codes = part.routes
        if codes is None:
            assert len(keys) == 1
        else:
            assert len(codes) == part.row_count
            assert set(codes.tolist()) == set(range(len(keys)))
    return "refused rows" if prepared.refusals else said


@target(60)
def coalesced(rng):
    """P8: frames of a publisher that arrived together, some of them hostile."""
    requests, number = [], 1
    for _ in range(rng.randrange(1, 4)):
        held = rng.choice((b"", hostile_block(rng), hostile_block(rng)))
        messages = []
        if not held or rng.random() < 0.1:
            filler = Filler(rng)
            messages = [filler.message(pb.Message.DESCRIPTOR) for _ in range(rng.randrange(1, 4))]
        try:
            rows = block.split(held)[0].rows
        except AckqError:
            rows = rng.choice((0, 1, 3))
        data = publishing_pb2.PublishData(first_number=number, rows=rows, messages=messages)
        requests.append(frame.Frame(publishing_pb2.PublishHeader(data=data), held))
        number += max(1, coalescing.rows_of(requests[-1]))
    size = sum(map(coalescing.size_of, requests))
    said = ""
    for group in coalescing.groups(requests):
        if sum(map(coalescing.rows_of, group)) > 1_000_000:
            continue  # refused before (`too_many_rows`)
        said, _ = bounded(partial(prepared, group), bytes(size))
    return said or "too many rows"


def prepared(group):
    return ingest.prepare(*coalescing.coalesce(group, NOW_US), NOW_US)


def link_header(rng, rows):
    """What a link says of its deliveries, mostly sound for that number of rows."""
    filler = Filler(rng, {"subscription": (1, 2), "first_number": (1, 2, 7), "rows": (rows,)})
    sent = filler.message(links_pb2.LinkDeliveries.DESCRIPTOR)
    if rng.random() < 0.8:
        sent.lowest_unanswered, sent.proven = sent.first_number, 0
        sent.keys, sent.checks = rng.randbytes(16 * rows), rng.randbytes(8 * rows)
        for name in ("content", "redelivered", "at_once"):
            setattr(sent, name, rng.choice((b"", bytes((rows + 7) // 8), rng.randbytes(1))))
    return sent


@target(200)
def linked(rng):
    """L2, L5, I6: deliveries of a link: a key and a check for each row, a block as it is stored."""
    data = hostile_block(rng) if rng.random() < 0.6 else sound_block(rng)
    rows = rng.choice((1, 2, 3, 4, 100))
    with suppress(AckqError):
        rows = min(block.split(data)[0].rows, 1_000_001)
    sent = link_header(rng, rows)
    framed = frame.Frame(links_pb2.LinkHeader(deliveries=sent), data)
    said, found = bounded(lambda: deliveries.decode(framed, NOW_US), data)
    if found is None:
        return said
    held = block.decode(b"".join(found.block), validate=True)
    assert held.header.rows == found.rows == len(found.checks) == len(found.keys)
    assert found.keys.shape == (found.rows, 2)
    for flags in (found.content, found.redelivered, found.at_once):
        assert not flags or flags.max() < found.rows
    return said


@target(200)
def delivery(rng):
    """C1, K7: a broker's frame, at the client: a batch as promised, or a typed error."""
    data = hostile_block(rng) if rng.random() < 0.7 else sound_block(rng)
    try:
        rows = block.split(data)[0].rows
    except AckqError:
        rows = 3
    runs = hostile_runs(rng, min(rows, 1_000_000))
    browse = rng.random() < 0.5
    known = columns.BROWSED if browse else columns.DELIVERED
    names = rng.sample(sorted(known), rng.randrange(1, len(known) + 1))
    read = rng.choice((decoding.browsed, decoding.previewed)) if browse else decoding.delivered
    said, found = bounded(lambda: read(runs, data, names), data)
    if found is None:
        return said
    found.validate(full=True)
    assert len(found.to_pylist()) == found.num_rows == rows
    assert list(found.schema.names)[: len(names)] == names
    return said


def sound_block(rng):
    return block.encode(rng.choice(batches()), published_at_us=NOW_US)


def hostile_runs(rng, rows):
    """Runs that mostly describe `rows` rows, and then contain an error or two."""
    first = rng.randrange(rows + 1)
    parts = [part for part in (first, rows - first) if part] or [rows]
    runs = pb.DeliveryRuns(
        first_tag=[1 + 10 * index for index in range(len(parts))],
        rows=parts,
        delivery_count=[1] * len(parts),
        queue_index=[0] * len(parts),
        queues=["q"],
    )
    for _ in range(rng.choice((0, 0, 1, 2))):
        values = getattr(runs, rng.choice([field.name for field in runs.DESCRIPTOR.fields]))
        odd = rng.choice(TEXTS) if values is runs.queues else abs(rng.choice(SIGNED)) % (1 << 32)
        kind = rng.randrange(4)
        if kind == 0 and values:
            values[rng.randrange(len(values))] = odd
        elif kind == 1:
            values.append(odd)
        elif kind == 2 and values:
            del values[-1]
        else:
            runs.first_tag[:] = [rng.choice(((1 << 64) - 1, 1 << 63, 1 << 62, 0))] * len(parts)
    return runs


@target(200)
def returned(rng):
    """P7: the block of a return, at the publisher."""
    data = hostile_block(rng)
    names = ("body", "headers", "published_at")
    said, found = bounded(lambda: decoding.stored(data, names), data)
    if found is not None:
        found.validate(full=True)
        found.to_pylist()
    return said
