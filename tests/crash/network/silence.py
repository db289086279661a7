"""Measures how long each client takes to notice a dead connection, in either direction.

    python -m tests.crash.network.silence          # the time-outs as they are: a minute
    python -m tests.crash.network.silence --low

A probe brings a client to where it waits, its connection loses all bytes of one direction for good
(new connections are sound), and the time is measured until the client has the answer that it waits
for. No probe may fail, except the task of a sink: Spark runs that again.
"""

import argparse
import itertools
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from ackq import client
from ackq.client import Admin, Channel, Publisher, StageWriter, TransactionalPublisher, commit_batch
from ackq.errors import BrokerUnavailableError, TransactionRolledBackError
from ackq.v1 import sessions_pb2 as pb
from ackq.wire.fetch_key import fetch_key
from ackq_broker import embedded
from tests.crash.harness import fill, ids, messages
from tests.crash.network import timeouts
from tests.fakes.faults import DIRECTIONS
from tests.fakes.relay import Relay

# Several frames of a fetch, of which the first has arrived.
ROWS = 40_000


class Probe:
    """One client at one broker through one relay.

    Attributes:
        queue: A queue of its own, with messages.
        silence: Makes the existing connections half-open, and starts the clock.
    """

    def __init__(self, broker, name, direction):
        self.direct = broker.endpoint
        self.queue = f"{name}-{direction}"
        self.relay = Relay(self.direct)
        self.endpoint = self.relay.endpoint
        self._direction = direction
        self._silent_at = 0.0
        fill(self.direct, self.queue, ids(1, ROWS if name == "fetch" else 10), frame=1_000)

    def silence(self):
        """Makes the connections half-open, and starts the clock."""
        self.relay.half_open(self._direction)
        self._silent_at = time.monotonic()

    @property
    def seconds(self):
        """The seconds since the silence began."""
        return time.monotonic() - self._silent_at


def publisher(probe):
    """Measures a publish, until its confirm."""
    with Publisher(probe.endpoint, routing_key=probe.queue) as out:
        out.publish("a").result()
        probe.silence()
        out.publish("b").result()
        return probe.seconds


def transactional(probe):
    """Measures a transaction, until it is committed; it is run again if it is rolled back."""
    with TransactionalPublisher(probe.endpoint, routing_key=probe.queue) as out:
        out.publish("a")
        out.commit()
        probe.silence()
        while True:
            try:
                out.publish("b")
                out.commit()
            except TransactionRolledBackError:
                out.rollback()
            else:
                return probe.seconds


def receive(probe):
    """Measures a waiting consumer, until it has accepted a message published in the silence."""
    with Admin(probe.direct) as admin, Channel(probe.endpoint) as channel:
        admin.purge_queue(probe.queue)
        consumer = channel.consume(probe.queue, mode="client")
        assert consumer.receive(1) is None
        probe.silence()
        with Publisher(probe.direct, routing_key=probe.queue) as out:
            out.publish("a").result()
        while consumer.receive().accept().exception() is not None:
            pass
        return probe.seconds


def accept(probe):
    """Measures an accept, until its outcome is known."""
    with Channel(probe.endpoint) as channel:
        message = channel.consume(probe.queue, mode="client", prefetch=1).receive()
        probe.silence()
        accepted = message.accept()
        accepted.exception()
        return probe.seconds


def pull(probe):
    """Measures a pull, until it has its message."""
    with Channel(probe.endpoint) as channel:
        channel.get(probe.queue)
        probe.silence()
        assert channel.get(probe.queue, timeout_s=300)
        return probe.seconds


def administration(probe):
    """Measures an administrative call that may be repeated, until its answer."""
    with Admin(probe.endpoint) as admin:
        admin.info()
        probe.silence()
        while True:
            try:
                admin.info()
            except BrokerUnavailableError:
                continue
            return probe.seconds


def _session(probe):

    request = pb.AdvanceRequest(
        holder=client.holder(), queues=[probe.queue], max_messages=ROWS, max_bytes=1 << 30
    )
    request.holder.token = probe.queue.encode().ljust(16)[:16]
    session = client.Session(probe.endpoint)
    opened = session.advance(request)
    request.session, request.incarnation = opened.session, opened.incarnation
    return session, request, opened


def advance(probe):
    """Measures a step of a session, until its answer."""
    session, request, _ = _session(probe)
    probe.silence()
    session.advance(request)
    return probe.seconds


def fetch(probe):
    """Measures a fetch whose first frame has arrived, until all rows have."""
    session, request, _ = _session(probe)
    lease = session.advance(request)
    rest = pb.FetchRequest(
        session=lease.session,
        incarnation=lease.incarnation,
        epoch=lease.epoch,
        last_tag=lease.end_tag,
        query_id=probe.queue,
        run_id="r",
        key=fetch_key(request.holder.token, lease.incarnation, lease.epoch),
    )
    batches = session.fetch(rest, ["body", "message_id"])
    rows = next(batches).num_rows
    probe.silence()
    assert rows + sum(each.num_rows for each in batches) == ROWS
    return probe.seconds


def liveness(probe):
    """Measures the stream that holds a session, until there is another."""
    session, request, opened = _session(probe)
    with session.hold(opened.session, opened.incarnation, opened.epoch, request.holder.token):
        threading.Event().wait(2)
        before = probe.relay.accepted
        probe.silence()
        while probe.relay.accepted == before:
            threading.Event().wait(0.05)
        return probe.seconds


def stage(probe):
    """Measures the seal of a stage, until its error (Spark runs the task again) or its end."""
    with StageWriter(probe.endpoint, writer=probe.queue, batch_id=0, run_id="r") as writer:
        writer.write(messages(ids(1, 10), 200_000), routing_key=probe.queue)
        threading.Event().wait(1)
        probe.silence()
        try:
            writer.seal()
        except BrokerUnavailableError:
            return probe.seconds
    return probe.seconds


def commit(probe):
    """Measures the commit of a batch, until its answer."""
    with StageWriter(probe.endpoint, writer=probe.queue, batch_id=0, run_id="r") as writer:
        writer.write(messages(ids(1, 10)), routing_key=probe.queue)
        stages = [writer.seal()]
    probe.silence()
    commit_batch(probe.endpoint, writer=probe.queue, batch_id=0, run_id="r", stages=stages)
    return probe.seconds


PROBES = (
    publisher,
    transactional,
    receive,
    accept,
    pull,
    administration,
    advance,
    fetch,
    liveness,
    stage,
    commit,
)


def measure(broker, names=None):
    """The seconds by (probe, direction); all probes run at once."""

    def one(pair):
        run, direction = pair
        probe = Probe(broker, run.__name__, direction)
        with closing(probe.relay):
            return run(probe)

    chosen = [each for each in PROBES if not names or each.__name__ in names]
    pairs = list(itertools.product(chosen, DIRECTIONS))
    with ThreadPoolExecutor(len(pairs)) as pool:
        took = list(pool.map(one, pairs))
    return {(run.__name__, way): s for (run, way), s in zip(pairs, took, strict=True)}


def main():
    """Prints a line for each probe; the status is 1 if one took longer than any may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--low", action="store_true", help="with low time-outs")
    parser.add_argument("--probes", nargs="+", help="of these names alone")
    options = parser.parse_args()
    if options.low:
        timeouts.lower()

    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder, "data")) as broker:
        took = measure(broker, options.probes)
    for (name, direction), seconds in took.items():
        print(f"{name:<16} {direction:<10} {seconds:6.1f} s")
    return int(max(took.values()) > timeouts.notice_s())


if __name__ == "__main__":
    sys.exit(main())
