"""A queue that retains what consumers accept, and its rewind (S13, S14), through kills."""

import time

import pytest

from ackq.client import Admin, Channel
from ackq.errors import PreconditionFailedError
from tests.wire.churn import publish_among, wait_compacted

HOUR_MS = 3_600_000


def accepted(endpoint, count):
    """Accepts messages; returns their bodies, and whether each came again, with which header."""
    with Channel(endpoint) as channel:
        consumer = channel.consume("orders", mode="client")
        found = [consumer.receive(timeout_s=60) for _ in range(count)]
        channel.acknowledge(found[-1]).result()
        return [
            (int(each.body), each.redelivered, each.headers.get("ackq-rewound")) for each in found
        ]


def publish(broker, first):
    """Publishes three messages, which expire in an hour."""
    publish_among(broker.endpoint, *(b"%d" % (first + n) for n in range(3)), ttl_ms=HOUR_MS)


def test_accepted_messages_are_delivered_again(churning):
    """S13, S14, Q7: after compaction and kills, once for each rewind, before newer messages."""
    broker = churning
    with Admin(broker.endpoint) as admin:
        admin.declare_queue("orders", retain_ms=HOUR_MS)
        for first in range(0, 36, 3):
            if first == 18:
                broker.kill()
                broker.restart()
            publish(broker, first)
            assert accepted(broker.endpoint, 3) == [(first + n, False, None) for n in range(3)]
            admin.purge_queue("churn")
        wait_compacted(broker, 12)
        info = admin.queue("orders")
        assert (info.retained, info.payload_bytes, info.ready) == (36, 0, 0)
        later_us = time.time_ns() // 1000 + 60_000_000
        assert admin.rewind_queue("orders", from_us=later_us, dry_run=True) == 0
        assert admin.rewind_queue("orders") == 36
        assert admin.rewind_queue("orders") == 0
    broker.kill()
    broker.restart()
    publish(broker, 36)
    again = accepted(broker.endpoint, 39)
    assert again == [(n, True, "-1") for n in range(36)] + [(n, False, None) for n in range(36, 39)]
    with Admin(broker.endpoint) as admin:
        assert admin.queue("orders").retained == 39
        with pytest.raises(PreconditionFailedError, match="retains nothing"):
            admin.rewind_queue("churn")
