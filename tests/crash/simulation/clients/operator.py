"""Operators: purge, redrive, delete and declare again, release, settle, import, read figures."""

from contextlib import suppress

from ackq.v1 import admin_pb2, publishing_pb2, sessions_pb2
from tests.crash.simulation.clients.channel import OUTCOMES
from tests.crash.simulation.clients.client import Client
from tests.crash.simulation.network import Cut, Refused
from tests.crash.simulation.oracle.history import Rewind

# How often it looks for a lease that the query has read.
_LOOKS = 12


class Watcher(Client):
    """Asks for figures repeatedly: what an answer reports is on disk (I1)."""

    async def work(self):
        self.finished = True
        while True:
            await self.pause(self.pace_s)
            with suppress(Cut):
                await self.look()

    async def look(self):
        """Asks once."""
        if self.sometimes(0.5):
            info = await self.call("ServerInfo", admin_pb2.ServerInfoRequest())
        else:
            info = await self.call("Horizon", sessions_pb2.HorizonRequest())
        self.oracle.sequence(info.sequence)


class Operator(Client):
    """Does one task after another, with pauses.

    Args:
        tasks: Names of methods, each without its underscore.
        queues: The queues that may be purged.
        count: Tasks in all.
        definitions: Declarations by queue name, for queues that are deleted and declared again.
        query: The query whose leases are settled; None: none.
    """

    def __init__(self, world, oracle, name, tasks, queues, count, definitions, query=None):
        super().__init__(world, oracle, name)
        self._tasks = tasks
        self._queues = queues
        self._count = count
        self._definitions = definitions
        self._query = query
        # Whether a purge was not answered, and may still come.
        self._purges = False

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
                if task in ("settle", "rewind"):
                    known = ("session_not_found", "unknown_delivery_tag", "precondition_failed")
                if refusal.code not in known and not self.excuses(refusal):
                    self.oracle.wrong(f"Q4: {self.name} was refused to {task}: {refusal}")

    async def _purge(self):
        queue = self.rng.choice(self._queues)
        if self._query is not None and self._query.retain_ms:
            await self._wait(lambda info: info.retained_batches > 1)
        if self._query is not None and self._query.queue == queue:
            self._query.may_be_purged = True
        self._purges = True
        request = admin_pb2.PurgeQueueRequest(queue=queue)
        operation, _ = await self._everywhere("purge", queue, queue, "PurgeQueue", request)
        if self._query is not None and self._query.queue == queue:
            self._query.purged.append(operation.call)
        self._purges = False

    async def _everywhere(self, kind, queue, what, method, request):
        """An operation on a whole queue, and the answer to its call; a refusal had no effect."""
        operation = self.oracle.everywhere(kind, queue, what)
        try:
            answer = await self.call(method, request)
        except Refused:
            self.oracle.nothing(queue, operation)
            raise
        operation.done(self.oracle.now())
        return operation, answer

    async def _redrive(self):
        request = admin_pb2.RedriveRequest(queue="dead")
        if self.sometimes(0.5):
            request.max_messages = self.rng.choice((1, 3))
        operation, answer = await self._everywhere("redrive", "dead", False, "Redrive", request)
        operation.what = not answer.left and not answer.more

    async def _delete(self):
        """Deletes a queue by force and declares it again: another queue of the same name (Q1)."""
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
        """S8: releases a session's lease, also one with a live holder."""
        listed = await self.call("ListSessions", sessions_pb2.ListSessionsRequest())
        if not listed.sessions:
            return
        info = self.rng.choice(list(listed.sessions))
        self.oracle.opening(info.session)
        self.oracle.may_release(info.incarnation, self.oracle.now())
        request = sessions_pb2.ReleaseSessionRequest(session=info.session, fence=True)
        await self.call("ReleaseSession", request)

    async def _settle(self):
        """S8: settles some tags of a query's lease, which ends its reader."""
        query = self._query
        for _ in range(_LOOKS):
            listed = await self.call("ListSessions", sessions_pb2.ListSessionsRequest())
            for info in listed.sessions:
                lease = query.leases.get((info.incarnation, info.end_tag))
                if lease is not None and lease.rows and info.leased:
                    await self._settle_lease(query, info, [tag for tag, _, _ in lease.rows])
                    return
            await self.pause(0.2)

    async def _wait(self, fits):
        """Waits for a while until the query's session fits."""
        for _ in range(_LOOKS):
            listed = await self.call("ListSessions", sessions_pb2.ListSessionsRequest())
            if any(info.session == self._query.session and fits(info) for info in listed.sessions):
                return
            await self.pause(0.2)

    async def _rewind(self):
        """S14: makes what the query's session retains ready again: all, or from a batch or time."""
        query = self._query
        anyhow = self.sometimes(0.2)
        await self._wait(lambda info: info.retained_batches and (anyhow or not info.leased))
        called = self.oracle.now()
        request = sessions_pb2.PlanRetainedRequest(session=query.session)
        plan = await self.call("PlanRetained", request)
        if not plan.batches:
            return
        first, chosen = plan.batches[0], self.rng.choice(list(plan.batches))
        how = self.rng.choice(("all", "batch", "time"))
        past = first.after_tag > 0 and self.sometimes(0.5)
        if past:
            point = sessions_pb2.RewindPoint(from_us=1)
        elif how == "batch" and chosen.batch_id >= 0:
            point = sessions_pb2.RewindPoint(batch_id=chosen.batch_id)
        elif how == "time":
            point = sessions_pb2.RewindPoint(from_us=chosen.accepted_us)
            # While the broker's clock stands still, several have one time.
            chosen = next(each for each in plan.batches if each.accepted_us >= point.from_us)
        else:
            point, chosen = sessions_pb2.RewindPoint(), first
        request = sessions_pb2.RewindSessionRequest(session=query.session, rewind=point)
        request.dry_run = self.sometimes(0.2)
        if request.dry_run:
            await self.call("RewindSession", request)
            return
        what = Rewind(plan.incarnation, chosen.after_tag, called, query.retains)
        await self._rewound(request, what)
        self.oracle.check(not past, f"S14: {self.name} rewound past what is retained")
        again = await self._rewound(request, what)
        read = any(lease.begun > called for lease in query.leases.values())
        self.oracle.check(read or self._purges or not again, f"S14: {again} rewound twice")

    async def _rewind_queue(self):
        """S14: makes what channels accepted from a queue ready again; with a dry run nothing."""
        request = admin_pb2.RewindQueueRequest(queue="plain", dry_run=self.sometimes(0.2))
        if request.dry_run:
            await self.call("RewindQueue", request)
            return
        operation = self.oracle.everywhere("rewind_queue", "plain", None)
        answer = await self.call("RewindQueue", request)
        operation.done(self.oracle.now())
        self.oracle.figures["rewound by a queue"] += answer.messages

    async def _rewound(self, request, what):
        """The number of messages that a rewind made ready."""
        queue = self._query.queue
        _, answer = await self._everywhere("rewind", queue, what, "RewindSession", request)
        return answer.messages

    async def _settle_lease(self, query, info, tags):
        tags = self.rng.sample(tags, self.rng.randint(1, len(tags)))
        outcome = self.rng.choice(("rejected", "released"))
        operations = query.operate(info.incarnation, tags, outcome)
        request = sessions_pb2.SettleSessionRequest(
            session=info.session,
            outcome=OUTCOMES[outcome],
            first_tag=tags,
            last_tag=tags,
            reason=f"{outcome} by {self.name}",
            fence=True,
            discard=True,
            incarnation=info.incarnation,
        )
        answer = await self.call("SettleSession", request)
        self.oracle.figures["leases settled"] += 1
        for operation in operations:
            operation.done(self.oracle.now())
        self.oracle.check(
            answer.settled <= len(tags), f"S8: {answer.settled} settled of {len(tags)} tags"
        )
        self.oracle.ended(info.session, info.incarnation, answer.epoch)

    async def _drop(self):
        """K3: drops a batch that is staged and not committed."""
        listed = await self.call("ListBatches", publishing_pb2.ListBatchesRequest())
        if listed.batches:
            info = self.rng.choice(list(listed.batches))
            key = publishing_pb2.BatchKey(writer=info.writer, batch_id=info.batch_id)
            self.oracle.dropped.add((info.writer, info.batch_id))
            await self.call("DropBatch", publishing_pb2.DropBatchRequest(batch=key, force=True))


class Importer(Client):
    """Imports definitions, as `ackq definitions import` does, until all of them exist (O7).

    Args:
        queues: Requests to declare queues, dead-letter queues first.
        exchange: A request to declare an exchange.
        bindings: Requests to bind queues to it.
    """

    def __init__(self, world, oracle, name, queues, exchange, bindings):
        super().__init__(world, oracle, name)
        self._queues = queues
        self._exchange = exchange
        self._bindings = bindings

    async def work(self):
        await self.pause(2.0)
        await self._until_done(self._import)
        again = await self._until_done(self._import)
        self.oracle.check(not again, f"O7: {again} was made again")
        self.oracle.figures["imports"] += 1
        await self._until_done(self._differ)

    async def _until_done(self, step):
        while True:
            try:
                return await step()
            except Cut:
                await self.pause()

    async def _import(self):
        """Declares the missing definitions; returns their names."""
        listed = (await self.call("ListQueues", admin_pb2.ListQueuesRequest())).queues
        queues = {info.queue for info in listed}
        exchanges = (await self.call("ListExchanges", admin_pb2.ListExchangesRequest())).exchanges
        bound = {(info.exchange, each.queue) for info in exchanges for each in info.bindings}
        made = []
        for each in self._queues:
            if each.queue not in queues:
                made.append(each.queue)
                await self.call("DeclareQueue", each)
            self.oracle.imported[each.queue] = each.properties
        name = self._exchange.exchange
        if name not in {info.exchange for info in exchanges}:
            made.append(name)
            await self.call("DeclareExchange", self._exchange)
        for each in self._bindings:
            if (each.exchange, each.queue) not in bound:
                made.append((each.exchange, each.queue))
                await self.call("Bind", each)
            self.oracle.bound.add((each.exchange, each.queue))
        return made

    async def _differ(self):
        """Q1: an existing queue keeps its properties, whatever is declared."""
        request = admin_pb2.DeclareQueueRequest()
        request.CopyFrom(self._queues[-1])
        request.properties.max_length += 1
        try:
            await self.call("DeclareQueue", request)
        except Refused as refusal:
            self.oracle.check(refusal.code == "properties_differ", f"Q1: {self.name}: {refusal}")
        else:
            self.oracle.wrong(f"Q1: {request.queue} was declared with other properties")
