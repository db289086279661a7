"""Steps of a transcript that no command makes: leases, stages, links, consumers, files."""

import threading
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from ackq import errors
from ackq.client import (
    Admin,
    Broker,
    Channel,
    Session,
    StageWriter,
    commit_batch,
    holder,
)
from ackq.v1 import links_pb2, sessions_pb2
from ackq_link.edge.outbound import OutboundReporter
from tests.eventually import SOON_S, eventually
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import TIMEOUT_S, Client, stage_requests
from tests.fakes.raw_link import RawLink

HOUR_MS = 3_600_000


class Steps:
    """The steps of one transcript against a broker; what they opened ends with the block."""

    def __init__(self, endpoint):
        self._endpoint = endpoint
        self._open = ExitStack()
        self._admin = self._open.enter_context(Admin(endpoint))
        self._client = self._open.enter_context(Client(endpoint))
        self._stages, self._links, self._reporters = {}, {}, {}
        self._channels, self._held = {}, {}
        self._sessions, self._queries = Session(endpoint), {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._open.close()

    def __getitem__(self, name):
        return getattr(self, name)

    def file(self, name, content, times="1"):
        """Writes the bytes of a Python literal to a file in the working directory."""
        decoded = content.encode().decode("unicode_escape")
        Path(name).write_bytes(decoded.encode("latin-1") * int(times))

    def lease(self, name):
        """Leases the ready messages of a queue to a session of its name, which stays live."""
        session = Session(self._endpoint)
        opening = {"session": name, "queues": [name], "holder": holder("test")}
        incarnation = session.advance(sessions_pb2.AdvanceRequest(**opening)).incarnation
        session.advance(sessions_pb2.AdvanceRequest(**opening, incarnation=incarnation))

    def batch(self, number, name, *leased):
        """Reads and accepts a batch of a query that retains; with `leased` it only leases one."""
        if name not in self._queries:
            fields = {
                "session": name,
                "queues": [name],
                "holder": holder("test"),
                "retain_ms": HOUR_MS,
            }
            opened = self._sessions.advance(sessions_pb2.AdvanceRequest(**fields))
            self._queries[name] = fields | {"incarnation": opened.incarnation, "start_tag": 0}
        fields = self._queries[name]
        lease = self._sessions.advance(sessions_pb2.AdvanceRequest(**fields))
        if not leased:
            named = {"session": name, "incarnation": lease.incarnation, "epoch": lease.epoch}
            named |= {"after_tag": fields["start_tag"], "last_tag": lease.end_tag}
            request = sessions_pb2.FetchRequest(**named, batch_id=int(number), query_id="q")
            list(self._sessions.fetch(request, ("body",), token=fields["holder"].token))
            fields["start_tag"] = lease.end_tag
            self._sessions.advance(sessions_pb2.AdvanceRequest(**fields))

    def hold(self, label, queue, count, *outcomes):
        """Receives messages on a channel with a label, and leaves them unacked."""
        channel = self._channels[label] = Channel(self._endpoint, label=label)
        self._open.callback(channel.close)
        consumer = channel.consume(
            queue, mode="client", prefetch=int(count), outcomes=outcomes or ["failed"]
        )
        self._held[label] = [consumer.receive(timeout_s=SOON_S) for _ in range(int(count))]

    def close(self, label):
        """Closes a channel, which gives back what it holds."""
        self._channels[label].close()

    def settle(self, label, outcome, *reason):
        """Settles the oldest message that a channel holds: `accept`, `reject`, or `fail`."""
        getattr(self._held[label].pop(0), outcome)(*reason).result(timeout=SOON_S)

    def stage(self, queue, writer, batch_id, *bodies):
        """Stages and seals rows for a queue as task `partition 0` of a writer's batch."""
        out = StageWriter(
            self._endpoint,
            writer=writer,
            batch_id=int(batch_id),
            run_id="run",
            label="partition 0",
        )
        self._open.enter_context(out)
        out.write(pa.record_batch({"body": [b.encode() for b in bodies]}), routing_key=queue)
        self._stages[writer, batch_id] = out.seal()

    def commit(self, writer, batch_id):
        """Commits the staged rows of a writer's batch, or an empty batch."""
        sealed = self._stages.get((writer, batch_id))
        commit_batch(
            self._endpoint,
            writer=writer,
            batch_id=int(batch_id),
            run_id="run",
            stages=[sealed] if sealed else [],
        )

    def meanwhile(self, step, *arguments):
        """Takes a step in a thread, while the next command runs."""
        thread = threading.Thread(target=self[step], args=arguments)
        thread.start()
        self._open.callback(thread.join)

    def refused(self, error, step, *arguments):
        """Takes a step that fails with this error, whose message is not part of the transcript."""
        with pytest.raises(getattr(errors, error)):
            self[step](*arguments)

    def write(self, queue, writer):
        """Opens a stage of a task that is still writing; one row is on the broker's disk."""
        ended = threading.Event()

        def requests():
            row = {"rows": 1}, encoded(body=[b"x"], routing_key=queue)
            yield from stage_requests(row, stage_id=b"o" * 16, writer=writer, run_id="r")
            ended.wait()

        call = self._client.publishing.Stage(requests(), timeout=TIMEOUT_S)
        assert next(call).stored.rows == 1
        self._open.callback(call.cancel)
        self._open.callback(ended.set)

    def link(self, name, on_reject="here"):
        """Runs a link of a queue's name, which has brought three messages."""
        there = on_reject == "there"
        process = RawLink(self._client, link=name, queue=name, reject_there=there)
        self._links[name] = process
        process.deliver(process.subscribe(), 1, [1, 2, 3])
        process.stored()
        self._open.callback(process.call.cancel)

    def end_link(self, name):
        """Ends the process of a link."""
        self._links[name].close()

    def take(self, queue, count):
        """Accepts messages of a queue."""
        with Channel(self._endpoint) as channel:
            assert len(channel.get(queue, int(count), no_ack=True)) == int(count)

    def outbound(self, name):
        """Runs a process that reports an outbound link of a queue's name, with two refusals."""
        report = links_pb2.OutboundReport(
            link=name,
            queue=name,
            target="amqp://there, queue t",
            holder=holder("test"),
            published=7,
            refused=2,
            limited_by="refusals",
            reason="returned: no queue of the remote broker takes it",
        )
        request = links_pb2.ReportOutboundRequest(report=report)
        reporter = OutboundReporter(Broker(self._endpoint), lambda: request)
        self._reporters[name] = self._open.enter_context(reporter)
        eventually("its report", lambda: self._reported(name))

    def end_outbound(self, name):
        """Ends the process of an outbound link."""
        self._reporters[name].close()
        eventually("its absence", lambda: not self._reported(name))

    def _reported(self, name):
        return [each for each in self._admin.outbound_links() if each.link == name]
