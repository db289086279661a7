"""The disk space that a broker process keeps, with segments of real size (I6)."""

import re

import pyarrow as pa
import pytest

import ackq_broker
from ackq import limits
from ackq.client import Admin, Publisher, close_channels
from ackq.errors import DamagedError
from tests.eventually import eventually
from tests.fakes import machine
from tests.fakes.raw_client import Client, holder, refused_with, restarted
from tests.wire.operations.processes import flip, run

BODY_BYTES = 1024
ROWS = 400_000
# One message in so many goes to another queue, like the remainder of a consumed queue.
KEPT_ONE_IN = 4000
# The promise of broker_stub/docs/operate.md for a broker that was idle for a minute, besides the
# last segment, which is allocated at full size. Here the broker waits a tenth of the time.
MOST_TIMES = 2.5
HASTY = """
from ackq_broker.journal.write import spares
from ackq_broker.service.blocks import compaction

compaction._PERIOD_S /= 10
spares._IDLE_S /= 10
"""


def used(directory):
    """The bytes on disk that the journal takes."""
    kinds = ("journal-*", "snapshot-*", "transient-*")
    paths = [path for kind in kinds for path in directory.glob(kind)]
    return sum(path.stat().st_blocks * 512 for path in paths)


def most(live_bytes):
    return MOST_TIMES * live_bytes + limits.SEGMENT_BYTES + limits.MIB


def publish(endpoint, rows, *, kept_one_in):
    """Publishes rows to `bulk`, every `kept_one_in`th to `kept`; returns the bodies of those."""
    kept = []
    with Publisher(endpoint, label="disk") as out:
        for first in range(0, rows, 10_000):
            numbers = range(first, first + 10_000)
            bodies = [b"%d." % n + bytes(BODY_BYTES) for n in numbers]
            keys = ["bulk" if n % kept_one_in else "kept" for n in numbers]
            kept += [body for body, key in zip(bodies, keys, strict=True) if key == "kept"]
            out.publish_batch(pa.table({"body": bodies, "routing_key": keys}))
        out.flush()
    return kept


@pytest.fixture
def hasty(tmp_path):
    """A broker that gives room back after a tenth of the usual time."""
    env = machine.with_change(tmp_path / "change", HASTY)
    with ackq_broker.embedded(tmp_path / "data", env=env) as running:
        yield running


@pytest.mark.timeout(1800)
def test_a_purge_and_a_sparse_rest_give_the_disk_back(hasty):
    """I6, Q4: an idle broker keeps at most 2.5 times the bytes of its live messages, and the last
    segment, also after `kill -9`; every remaining message is delivered as before.
    """
    admin = Admin(hasty.endpoint)
    admin.declare_queue("bulk")
    admin.declare_queue("kept")
    kept = publish(hasty.endpoint, ROWS, kept_one_in=KEPT_ONE_IN)
    assert used(hasty.data_dir) > ROWS * BODY_BYTES
    admin.purge_queue("bulk")
    allowed = most(len(kept) * BODY_BYTES)
    eventually("space", lambda: used(hasty.data_dir), lambda x: x < allowed)
    close_channels()
    hasty.kill()
    hasty.restart()
    with Client(hasty.endpoint) as raw:
        assert raw.browse("kept")[0] == kept
    assert used(hasty.data_dir) < allowed


def test_deliveries_without_acks_leave_nothing_behind(broker):
    """C10, Q7: blocks that a consumer without acks was reading at a stop are freed at the start."""
    with Client(broker.endpoint) as raw:
        raw.declare()
    for _ in range(3):
        with restarted(broker) as raw, raw.consume() as channel:
            for number in range(20):
                raw.publish(b"%d" % number)
            channel.subscribe(no_ack=True)
            eventually("an empty queue", raw.queue, lambda info: not info.ready + info.unacked)
            # No transport ack, and a cut: the broker keeps the blocks until it notices the cut,
            # and is stopped before that.
            channel.call.cancel()
            raw.declare("noticed")
            broker.restart()
    broker.restart()
    broker.stop()
    status, text, _ = run("dump", broker.data_dir)
    assert status == 0
    assert re.findall(r"^snapshot-.* (\d+) blocks", text, re.MULTILINE) == ["0"]


def test_what_has_rotted_is_told_to_its_readers(broker):
    """Q7, S2, C12: readers of a damaged block get an error with its place, never wrong bytes.

    The messages stay, others are served, and compaction and snapshots go on.
    """
    # Too large for the cache of new blocks.
    body = b"%020000d" % 7
    with Client(broker.endpoint) as client:
        client.declare("sound")
        client.declare()
        client.publish(body)
        flip(broker.data_dir, body)
        with client.consume() as channel:
            channel.subscribe()
            told(channel.refusal()[0], broker.data_dir)
        eventually("the requeue", lambda: client.queue().ready == 1)
        told(refused_with(DamagedError, client.browse), broker.data_dir)
        _, lease = client.open(holder())
        told(refused_with(DamagedError, client.fetch, lease, 0, 1), broker.data_dir)
        client.publish(b"sound", queue="sound")
        assert client.browse("sound")[0] == [b"sound"]
        broker.restart()
    with Client(broker.endpoint) as client:
        told(refused_with(DamagedError, client.fetch, lease, 0, 1), broker.data_dir)
        flip(broker.data_dir, body)
        assert client.fetch(lease, 0, 1)[0] == [body]


def told(error, directory):
    """Asserts that an error names the file, the byte and the block."""
    (segment,) = directory.glob("journal-*.seg")
    assert f"block 1 is damaged on the disk: {segment} byte " in str(error)
