"""A queue that retains what consumers accept, and its rewind (S13, S14), through kills."""

import time

import pyarrow as pa
import pytest

import ackq_broker
from ackq.client import Admin, Channel, Publisher, close_channels
from ackq.errors import PreconditionFailedError
from tests.eventually import eventually

HOUR_MS = 3_600_000
CHURN = 200
BODY_BYTES = 20_000


@pytest.fixture
def broker(tmp_path):
    """A broker with small segments."""
    sizes = {"ACKQ_BROKER_SEGMENT_SIZE": "16MiB"}
    with ackq_broker.embedded(tmp_path / "data", env=sizes) as running:
        yield running
    close_channels()


def publish(endpoint, first):
    """Three messages, which expire in an hour, among others."""
    bodies = [b"%d" % (first + row) for row in range(3)] + [bytes(BODY_BYTES)] * CHURN
    columns = {
        "body": bodies,
        "routing_key": ["orders"] * 3 + ["churn"] * CHURN,
        "ttl_ms": [HOUR_MS] * len(bodies),
    }
    with Publisher(endpoint) as out:
        out.publish_batch(pa.table(columns))


def accepted(endpoint, count):
    """Accepts messages; returns their bodies, and whether each came again, with which header."""
    with Channel(endpoint) as channel:
        consumer = channel.consume("orders", mode="client")
        found = [consumer.receive(timeout_s=60) for _ in range(count)]
        channel.acknowledge(found[-1]).result()
        return [
            (int(each.body), each.redelivered, each.headers.get("ackq-rewound")) for each in found
        ]


def test_accepted_messages_are_delivered_again(broker):
    """S13, S14, Q7: after compaction and kills, once for each rewind, before newer messages."""
    with Admin(broker.endpoint) as admin:
        admin.declare_queue("orders", retain_ms=HOUR_MS)
        admin.declare_queue("churn")
        for first in range(0, 36, 3):
            if first == 18:
                broker.kill()
                broker.restart()
            publish(broker.endpoint, first)
            assert accepted(broker.endpoint, 3) == [(first + n, False, None) for n in range(3)]
            admin.purge_queue("churn")

        def segments():
            return sum(1 for _ in broker.data_dir.glob("journal-*.seg"))

        full = 12 * CHURN * BODY_BYTES // (16 << 20)
        eventually("compaction", lambda: segments() < full, every_s=0.05)
        info = admin.queue("orders")
        assert (info.retained, info.payload_bytes, info.ready) == (36, 0, 0)
        later_us = time.time_ns() // 1000 + 60_000_000
        assert admin.rewind_queue("orders", from_us=later_us, dry_run=True) == 0
        assert admin.rewind_queue("orders") == 36
        assert admin.rewind_queue("orders") == 0
    broker.kill()
    broker.restart()
    publish(broker.endpoint, 36)
    again = accepted(broker.endpoint, 39)
    assert again == [(n, True, "-1") for n in range(36)] + [(n, False, None) for n in range(36, 39)]
    with Admin(broker.endpoint) as admin:
        assert admin.queue("orders").retained == 39
        with pytest.raises(PreconditionFailedError, match="retains nothing"):
            admin.rewind_queue("churn")
