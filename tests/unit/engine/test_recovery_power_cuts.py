"""Power cuts under a whole broker, on a disk that keeps only synced bytes (I1, Q7).

Bytes that a killed process wrote are in the page cache: a test by SIGKILL passes without any sync.
`tests.fakes.disk` states the fault model.
"""

import asyncio
import random
import time
from functools import partial
from types import SimpleNamespace

import pytest
from pyroaring import BitMap64

from ackq import limits
from ackq.outcomes import Outcome
from ackq.v1 import admin_pb2, publishing_pb2
from ackq_broker.core import commands
from ackq_broker.engine import recovery, snapshot
from ackq_broker.journal import Journal
from ackq_broker.journal.failpoints import unarmed
from ackq_broker.service.admin import AdminService
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from ackq_broker.service.publishing.service import PublishingService
from tests.fakes.blocks import encoded, rows
from tests.fakes.disk import Image, RecordingDisk
from tests.unit.service.publisher_streams import Stream

IMAGES_PER_POINT = 2
MESSAGES = 6
STAGE = b"s" * 16
CHANNEL = b"c" * 16


class SlowDisk(RecordingDisk):
    """A disk with slow syncs, so that an answer that does not wait is noted before them."""

    def sync_data(self, fd):
        time.sleep(0.005)
        super().sync_data(fd)


class NotingStream(Stream):
    """A stream that notes each answer on the disk in the moment in which it leaves."""

    def __init__(self, service, disk):
        self._disk = disk
        self.confirms_come = {number: asyncio.Event() for number in range(1, MESSAGES + 2)}
        super().__init__(service)

    async def _write(self, response):
        await super()._write(response)
        if response.header.HasField("confirm"):
            number = response.header.confirm.last_number
            self._disk.note("confirmed", number)
            self.confirms_come[number].set()


class Running:
    """A broker's engine and services on a disk."""

    def __init__(self, monkeypatch, directory, disk):
        opening = partial(Journal.open, disk=disk)
        monkeypatch.setattr(recovery, "Journal", SimpleNamespace(open=opening))
        self._recovered = recovery.recover(
            directory, sync=True, failpoint=unarmed, segment_bytes=4096
        )
        self.engine = self._recovered.engine
        self.admin = AdminService(self.engine, ConsumerDispatcher(self.engine), "fdatasync", None)
        self.publishing = PublishingService(self.engine)

    async def __aenter__(self):
        await recovery.wait_synced(self._recovered)
        return self

    async def __aexit__(self, *_):
        await self.engine.close()

    async def declare(self, queue, **properties):
        properties = admin_pb2.QueueProperties(**properties or {"durable": True})
        request = admin_pb2.DeclareQueueRequest(queue=queue, properties=properties)
        await self.admin.declare_queue(request)

    async def bodies(self, queue):
        found = []

        async def write(frame):
            found.extend(rows(frame.block)["body"])

        await self.admin.browse(admin_pb2.BrowseRequest(queue=queue), write)
        return found

    async def commit_batch(self, body):
        engine, size = self.engine, len(body)
        engine.decide(commands.OpenStage(STAGE, "w", 0, ""))
        routes = commands.Routes(("batch",))
        engine.decide(commands.StageBlock(STAGE, "", routes, 1, size), (encoded(body=[body]),))
        engine.decide(commands.SealStage(STAGE, 1, size))
        stage = publishing_pb2.StageReference(stage_id=STAGE, rows=1, payload_bytes=size)
        request = publishing_pb2.CommitBatchRequest(writer="w", stages=[stage])
        await self.publishing.commit_batch(request)


async def live(monkeypatch, directory, disk):
    """Publishes, commits a batch, purges a queue, rejects; notes each answer."""
    async with Running(monkeypatch, directory, disk) as broker:
        for queue in ("q", "batch", "purged", "dead"):
            await broker.declare(queue)
        await broker.declare("volatile", dead_letter_queue="dead")
        disk.note("declared")
        stream = NotingStream(broker.publishing, disk)
        stream.open()
        for number in range(1, MESSAGES + 1):
            stream.publish(number, "q" if number % 2 else "purged", body=b"%d" % number)
            await stream.confirms_come[number].wait()
        await broker.commit_batch(b"batch")
        disk.note("committed")
        disk.note("purging")
        await broker.admin.purge_queue(admin_pb2.PurgeQueueRequest(queue="purged"))
        disk.note("purged")
        stream.publish(MESSAGES + 1, "volatile", body=b"dead")
        await stream.confirms_come[MESSAGES + 1].wait()
        await broker.engine.call(commands.Deliver(CHANNEL, "volatile", 1))
        await broker.engine.call(commands.Settle(CHANNEL, Outcome.REJECTED, BitMap64([1])))
        disk.note("dead-lettered")
        stream.half_close()
        await stream.task


async def check(monkeypatch, directory, notes):
    """Checks that all that was answered is in the queues."""
    kinds = {note[0] for note in notes}
    confirmed = max((note[1] for note in notes if note[0] == "confirmed"), default=0)
    confirmed = min(confirmed, MESSAGES)
    async with Running(monkeypatch, directory, RecordingDisk()) as broker:
        if "declared" not in kinds:
            return
        here = await broker.bodies("q")
        assert here[: (confirmed + 1) // 2] == [b"%d" % n for n in range(1, confirmed + 1, 2)]
        assert ("committed" not in kinds) or await broker.bodies("batch") == [b"batch"]
        # The dead letter was confirmed before it was on disk, as its queue would be lost, too.
        assert ("dead-lettered" not in kinds) or await broker.bodies("dead") == [b"dead"]
        purged = await broker.bodies("purged")
        if "purged" in kinds:
            assert purged == []
        elif "purging" not in kinds:
            assert purged[: confirmed // 2] == [b"%d" % n for n in range(2, confirmed + 1, 2)]


@pytest.mark.parametrize("snapshots", [False, True])
def test_what_was_answered_outlives_a_power_cut(monkeypatch, tmp_path, snapshots):
    """I1, P4, C13, K3, Q7: after a power cut at any instant clients find what was answered.

    Confirmed messages, committed batches and dead letters are in their queues, purged messages are
    not. So it is with snapshots that are encoded piece by piece meanwhile, one after the other
    (I2).
    """
    if snapshots:
        monkeypatch.setattr(limits, "SNAPSHOT_EVERY_BYTES", 1)
        monkeypatch.setattr(snapshot, "_SLICE_S", 0)
        monkeypatch.setattr(snapshot, "_PAUSE_S", 0)
    disk = SlowDisk()
    asyncio.run(live(monkeypatch, tmp_path / "life", disk))
    notes = [change[1] for change in disk.changes if change[0] == "note"]
    assert notes.count("confirmed") == MESSAGES + 1
    renamed = [change for change in disk.changes if change[0] == "rename" and ".snap" in change[1]]
    assert len(renamed) > (3 if snapshots else 0)
    image = Image()
    for step, change in enumerate(disk.changes):
        image.apply(change)
        for attempt in range(IMAGES_PER_POINT):
            directory = tmp_path / f"{step}-{attempt}"
            directory.mkdir()
            left = image.after_power_cut(random.Random(1000 * step + attempt))
            for name, content in left.items():
                (directory / name).write_bytes(content)
            asyncio.run(check(monkeypatch, directory, image.notes))
