"""Operators: purge, redrive, delete and declare again, release, look at figures."""

from contextlib import suppress

from ackq.v1 import admin_pb2, publishing_pb2, sessions_pb2
from tests.crash.simulation.clients.client import Client
from tests.crash.simulation.network import Cut, Refused


class Watcher(Client):
    """Asks for figures, again and again: what one tells is on disk (I1)."""

    async def work(self):
        self.finished = True
        while True:
            await self.pause(self.pace_s)
            with suppress(Cut):
                await self._look()

    async def _look(self):
        if self.sometimes(0.5):
            info = await self.call("ServerInfo", admin_pb2.ServerInfoRequest())
        else:
            info = await self.call("Horizon", sessions_pb2.HorizonRequest())
        self.oracle.sequence(info.sequence)


class Operator(Client):
    """Does one thing after the other, now and then.

    Args:
        tasks: Names of methods, each without its underscore.
        queues: What may be purged.
        count: Tasks in all.
        definitions: As `declarations` gives them, of what is deleted and declared again.
    """

    def __init__(self, world, oracle, name, tasks, queues, count, definitions):
        super().__init__(world, oracle, name)
        self._tasks = tasks
        self._queues = queues
        self._count = count
        self._definitions = definitions

    async def work(self):
        for _ in range(self._count):
            await self.pause(2.0)
            task = self.rng.choice(self._tasks)
            try:
                await getattr(self, f"_{task}")()
            except Cut:
                pass
            except Refused as refusal:
                known = ("session_not_found", "in_use", "queue_not_found", "batch_not_found")
                if refusal.code not in known and not self.excuses(refusal):
                    self.oracle.wrong(f"Q4: {self.name} was refused to {task}: {refusal}")

    async def _purge(self):
        queue = self.rng.choice(self._queues)
        operation = self.oracle.everywhere("purge", queue, queue)
        try:
            await self.call("PurgeQueue", admin_pb2.PurgeQueueRequest(queue=queue))
        except Refused:
            self.oracle.nothing(queue, operation)
            raise
        operation.done(self.oracle.now())

    async def _redrive(self):
        request = admin_pb2.RedriveRequest(queue="dead")
        if self.sometimes(0.5):
            request.max_messages = self.rng.choice((1, 3))
        operation = self.oracle.everywhere("redrive", "dead", False)
        try:
            answer = await self.call("Redrive", request)
        except Refused:
            self.oracle.nothing("dead", operation)
            raise
        if not answer.left and not answer.more:
            operation.what = True
        operation.done(self.oracle.now())

    async def _delete(self):
        """A forced delete, and the queue again: another one of the same name (Q1)."""
        name = "scratch"
        operation = self.oracle.everywhere("delete", name, name)
        try:
            await self.call("DeleteQueue", admin_pb2.DeleteQueueRequest(queue=name, force=True))
        except Refused:
            self.oracle.nothing(name, operation)
        else:
            operation.done(self.oracle.now())
        await self.pause(0.5)
        await self.call("DeclareQueue", self._definitions[name], tries=50)

    async def _release(self):
        """S8: a session's lease goes back, whoever holds it."""
        listed = await self.call("ListSessions", sessions_pb2.ListSessionsRequest())
        if not listed.sessions:
            return
        info = self.rng.choice(list(listed.sessions))
        self.oracle.opening(info.session)
        self.oracle.may_release(info.incarnation, self.oracle.now())
        request = sessions_pb2.ReleaseSessionRequest(session=info.session, fence=True)
        await self.call("ReleaseSession", request)

    async def _drop(self):
        """K3: a batch that is staged and not committed."""
        listed = await self.call("ListBatches", publishing_pb2.ListBatchesRequest())
        if listed.batches:
            info = self.rng.choice(list(listed.batches))
            key = publishing_pb2.BatchKey(writer=info.writer, batch_id=info.batch_id)
            self.oracle.dropped.add((info.writer, info.batch_id))
            await self.call("DropBatch", publishing_pb2.DropBatchRequest(batch=key, force=True))
