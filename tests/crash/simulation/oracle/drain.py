"""The end of a world: clients give back all that they hold, and all messages are counted."""

import asyncio
from collections import defaultdict

from ackq.v1 import admin_pb2, publishing_pb2, sessions_pb2
from tests.crash.simulation.clients.client import Client
from tests.crash.simulation.clients.wire import rows_of
from tests.crash.simulation.network import Cut

# The longest redelivery delays of a world are minutes; the wait is divided into pieces.
_PIECE_S = 5.0
_PIECES = 200


async def drain(world, oracle):
    """Ends sessions and stages, waits for delays, and reports each message's place to the oracle.

    The figures of queues must agree with their messages; afterwards the queues are empty, and
    nothing refers to a message.
    """
    client = _Counter(world, oracle, "drain")
    await client.release_sessions()
    await client.drop_stages()
    await asyncio.sleep(_PIECE_S)  # messages that have expired meanwhile are still being moved
    queues = await client.rewound(await client.settled_queues())
    await client.find_imported(queues)
    places = defaultdict(list)
    for info in queues:
        for row in await client.browse(info):
            home = row.headers.get("ackq-dead-queue", info.queue)
            mark = int(row.headers.get("ackq-rewound", -1))
            places[home, row.name].append((info.queue, row.count, mark))
            message = oracle.message(info.queue, row.name, row.headers)
            if message is not None:
                oracle.check(row.body == message.body, f"I4: the body of {row.name} is another")
    oracle.found(places)
    await client.purge(queues)


class _Counter(Client):
    ends = False

    async def call(self, method, request, *, tries=5):
        """Repeats a call that fails while a fault is under way; it may take effect twice."""
        return await super().call(method, request, tries=tries)

    async def release_sessions(self):
        listed = await self.call("ListSessions", sessions_pb2.ListSessionsRequest(finished=True))
        for info in listed.sessions:
            self.oracle.opening(info.session)
            self.oracle.may_release(info.incarnation, self.oracle.now())
            request = sessions_pb2.ReleaseSessionRequest(session=info.session, fence=True)
            await self.call("ReleaseSession", request)

    async def drop_stages(self):
        listed = await self.call("ListBatches", publishing_pb2.ListBatchesRequest())
        for info in listed.batches:
            key = publishing_pb2.BatchKey(writer=info.writer, batch_id=info.batch_id)
            request = publishing_pb2.DropBatchRequest(batch=key, force=True)
            await self.call("DropBatch", request)

    async def settled_queues(self):
        """The queues once no message is delayed, without channels from before the restart."""
        for _ in range(_PIECES):
            queues = (await self.call("ListQueues", admin_pb2.ListQueuesRequest())).queues
            if not any(info.delayed for info in queues):
                break
            await asyncio.sleep(_PIECE_S)
        for info in queues:
            left = {
                "unacked": info.unacked,
                "staged": info.staged,
                "delayed": info.delayed,
                "consumers": info.consumers,
            }
            self.oracle.check(
                not any(left.values()), f"Q5: {info.queue} has {left} when everybody is gone"
            )
        return queues

    async def rewound(self, queues):
        """S13, S14: the queues, with what they retain ready again: all that channels accepted."""
        for info in queues:
            if info.properties.retain_ms:
                operation = self.oracle.everywhere("rewind_queue", info.queue, None)
                await self.call("RewindQueue", admin_pb2.RewindQueueRequest(queue=info.queue))
                operation.done(self.oracle.now())
        return (await self.call("ListQueues", admin_pb2.ListQueuesRequest())).queues

    async def find_imported(self, queues):
        """O7: the imported queues and bindings exist, with their imported properties."""
        there = {info.queue: info.properties for info in queues}
        for name, properties in self.oracle.imported.items():
            found = there.get(name)
            kept = found is not None and all(
                getattr(found, field.name) == value for field, value in properties.ListFields()
            )
            self.oracle.check(kept, f"O7: {name} was imported, and is {found}")
        if self.oracle.bound:
            listed = await self.call("ListExchanges", admin_pb2.ListExchangesRequest())
            bound = {
                (info.exchange, each.queue) for info in listed.exchanges for each in info.bindings
            }
            missing = self.oracle.bound - bound
            self.oracle.check(not missing, f"O7: bindings {missing} were imported")

    async def browse(self, info):
        rows = await self._browse(admin_pb2.BrowseRequest(queue=info.queue))
        self.oracle.check(
            len(rows) == info.ready, f"Q5: {info.queue} says {info.ready} ready, has {len(rows)}"
        )
        tags = [row.tag for row in rows]
        self.oracle.check(tags == sorted(set(tags)), f"Q5: {info.queue} out of order: {tags}")
        size = sum(len(row.body) for row in rows)
        self.oracle.check(
            info.payload_bytes >= size, f"Q5: {info.queue} says {info.payload_bytes} B of {size}"
        )
        self.oracle.in_lease_order([row._replace(queue=info.queue) for row in rows])
        return rows

    async def _browse(self, request):
        while True:
            try:
                return await self.stream_rows(
                    "Browse", request, lambda frame: rows_of(frame.header, frame.block)
                )
            except Cut:
                await self.pause()

    async def purge(self, queues):
        for info in queues:
            request = admin_pb2.PurgeQueueRequest(queue=info.queue)
            purged = (await self.call("PurgeQueue", request)).purged
            self.oracle.check(
                purged == info.ready, f"Q4: {purged} purged of {info.ready} in {info.queue}"
            )
        for info in (await self.call("ListQueues", admin_pb2.ListQueuesRequest())).queues:
            self.oracle.check(
                not (info.ready or info.payload_bytes or info.retained),
                f"Q4, S13: {info.queue} has {info.ready} messages of {info.payload_bytes} B, and "
                f"retains {info.retained}, when purged",
            )
