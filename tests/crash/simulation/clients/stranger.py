"""A stranger: a user with few rights who attacks other users' objects, knowing names and ids.

Each try must be refused (A10, P10, K3, S6, S11, L1), and nothing that other users do or have may
change, which the oracle judges. So where the stranger is admitted it goes on to do harm.
"""

from ackq.v1 import consuming_pb2, links_pb2, messages_pb2, publishing_pb2, sessions_pb2
from ackq.wire.fetch_key import fetch_key
from tests.crash.simulation.clients.channel import OUTCOMES, Consumer
from tests.crash.simulation.clients.client import Troublemaker
from tests.crash.simulation.clients.publisher import CONFIRM, PERSISTENT, Publisher
from tests.crash.simulation.clients.session import Query
from tests.crash.simulation.clients.transactional import TransactionalPublisher
from tests.crash.simulation.clients.wire import body_of, encoded, rows_of
from tests.crash.simulation.network import Cut, Refused
from tests.crash.simulation.oracle.history import Hold
from tests.crash.simulation.users import OWN, STRANGER

# A number, or batch id, that no client reaches.
FAR = 1 << 61
_SESSION = "strange"
_LONGEST_S = 0.1


class Lease:
    """The stranger's own lease of one message: incarnation, epoch, and whether it was read."""

    def __init__(self, answer):
        self.incarnation, self.epoch, self.end = answer.incarnation, answer.epoch, answer.end_tag
        self.read = False


class Stranger(Troublemaker):
    """Tries one attack after another until the world closes.

    Args:
        others: The clients of the world.
        links: Whether it opens other users' links.
    """

    user = STRANGER

    def __init__(self, world, oracle, name, others, *, links=False):
        super().__init__(world, oracle, name)
        self._holder = sessions_pb2.Holder(token=self.token(), host="h", pid=2, application="m")
        self._lease = None
        self._goes_far = self.sometimes(0.3)
        self._made = 0
        self._tries = [(self._count_too_far,), (self._read,), (self._release,), (self._write,)]
        if links:
            self._tries += [(self._link,)] * 3
        for other in others:
            if isinstance(other, Publisher | TransactionalPublisher):
                self._tries += [(self._publish, other)] * 2
            elif isinstance(other, Query):
                self._tries += [(self._claim, other)] * 5 + [(self._settle, other)]
            elif isinstance(other, Consumer):
                self._tries.append((self._consume, other))

    async def work(self):
        self.finished = True
        while True:
            await self.pause(_LONGEST_S)
            tried, *about = self.rng.choice(self._tries)
            try:
                await tried(*about)
            except Cut:
                pass
            except Refused as refusal:
                self.oracle.figures[f"refused {tried.__name__.strip('_')}"] += 1
                self.world.trace(self.name, tried.__name__, refusal.code)

    def _let_in(self, what):
        """A10: records that an attack was not refused."""
        self.oracle.wrong(f"A10: a stranger {what}")

    def _message(self):
        """A message of the stranger, about to be published to its queue."""
        self._made += 1
        name = f"{self.name}.{self._made}"
        return self.oracle.publish(name, body_of(name, 20), OWN)

    # --- publishers ---

    async def _publish(self, other):
        """P10: publishes under another user's publisher, with a number far ahead or a coming one.

        If admitted far ahead, the owner would be refused from then on; otherwise its publish of
        that number would be lost.
        """
        opening = other.opening()
        numbers = [FAR] if self._goes_far else getattr(other, "coming", (FAR,))
        if not opening.resume:
            return
        number = self.rng.choice(numbers)
        lowest = FAR if self._goes_far else 1
        stream = await self._open_publisher(opening, lowest)
        self._let_in(f"opened the publisher of {other.name}")
        if opening.mode == CONFIRM:
            await self._publish_one(stream, number, lowest)
        await stream.close_writes()
        await self.patiently(stream.read())

    async def _count_too_far(self):
        """P10: calls numbers of its own publisher answered that its stream has not shown.

        If that is not refused, later numbers are confirmed that are in no queue.
        """
        opening = publishing_pb2.PublishOpen(publisher_id=self.token(), mode=CONFIRM)
        stream = await self._open_publisher(opening, 1)
        await self._publish_one(stream, FAR, FAR)
        self._let_in(f"called the numbers below {FAR} answered")
        await self._publish_one(stream, 1, 1)

    async def _open_publisher(self, opening, lowest):
        stream = self.open("Publish")
        await self._send(stream, lowest, open=opening)
        await self.patiently(stream.read())
        return stream

    async def _publish_one(self, stream, number, lowest):
        message = self._message()
        row = messages_pb2.Message(body=message.body, routing_key=OWN, delivery_mode=PERSISTENT)
        data = publishing_pb2.PublishData(first_number=number, rows=1, messages=[row])
        await self._send(stream, lowest, data=data)
        answer = await self.patiently(stream.read())
        if answer is None:
            raise Cut("the broker ended the stream")
        if answer.header.WhichOneof("kind") == "confirm":
            self.oracle.confirmed(message)

    async def _send(self, stream, lowest, **kind):
        header = publishing_pb2.PublishHeader(lowest_unanswered=lowest, **kind)
        await self.send(stream, publishing_pb2.PublishRequest(header=header))

    # --- writers ---

    async def _write(self):
        """K3: writes an unwritten batch under the name of another user's writer."""
        listed = await self.call("ListWriters", publishing_pb2.ListWritersRequest())
        if not listed.writers:
            return
        info = self.rng.choice(list(listed.writers))
        batch = self.rng.choice((info.batch_id, info.batch_id + info.committed, FAR))
        which = {"writer": info.writer, "batch_id": batch}
        kind = self.rng.choice(("stage", "commit", "abort"))
        if kind == "commit":
            commit = publishing_pb2.CommitBatchRequest(run_id="strange", target=OWN, **which)
            await self.call("CommitBatch", commit)
        elif kind == "abort":
            await self.call("AbortBatch", publishing_pb2.AbortBatchRequest(**which))
            listed = await self.call("ListWriters", publishing_pb2.ListWritersRequest())
            if info.writer not in {each.writer for each in listed.writers}:
                return  # its owner had it forgotten meanwhile: there was nothing to abort
        else:
            stream = self.open("Stage")
            opening = publishing_pb2.StageOpen(stage_id=self.token(), run_id="strange", **which)
            for header in (
                publishing_pb2.StageHeader(open=opening),
                publishing_pb2.StageHeader(seal=publishing_pb2.StageSeal()),
            ):
                await self.send(stream, publishing_pb2.StageRequest(header=header))
            await self.patiently(stream.read())
        self._let_in(f"wrote as {info.writer}: {kind}")

    # --- sessions ---

    async def _another_session(self):
        """A session of another user; None if there is none."""
        listed = await self.call("ListSessions", sessions_pb2.ListSessionsRequest())
        found = [info for info in listed.sessions if info.session != _SESSION]
        return self.rng.choice(found) if found else None

    async def _read(self):
        """S3, A4: attaches, leases and fetches by another user's incarnation."""
        info = await self._another_session()
        if info is None:
            return
        which = {"session": info.session, "incarnation": info.incarnation}
        kind = self.rng.choice(("Attach", "Advance", "Fetch"))
        end = max(1, info.end_tag)
        if kind == "Attach":
            await self.call(kind, sessions_pb2.AttachRequest(holder=self._holder, **which))
        elif kind == "Advance":
            request = sessions_pb2.AdvanceRequest(
                holder=self._holder, queues=[OWN], start_tag=end, max_messages=5, **which
            )
            await self.call(kind, request)
        else:
            request = sessions_pb2.FetchRequest(epoch=info.epoch, last_tag=end, **which)
            await self.stream_rows(kind, request, lambda _: ())
        self._let_in(f"read session {info.session}: {kind}")

    async def _release(self):
        """S8: releases another user's session."""
        info = await self._another_session()
        if info is not None:
            request = sessions_pb2.ReleaseSessionRequest(session=info.session, fence=True)
            await self.call("ReleaseSession", request)
            self._let_in(f"released session {info.session}")

    async def _settle(self, query):
        """S6: rejects rows that another user's query has read."""
        if query.driver is None:
            return
        stage_id = self.token()
        owner = sessions_pb2.LeaseOwner(session=query.session, **self._run_of(query.driver))
        rejected = sessions_pb2.OutcomeGroup(outcome=OUTCOMES["rejected"], tags=[1])
        stream = self.open("StageOutcomes")
        request = sessions_pb2.StageOutcomesRequest(
            owner=owner, stage_id=stage_id, discard=True, groups=[rejected], seal=True
        )
        await self.send(stream, request)
        await stream.close_writes()
        if await self.patiently(stream.read()) is not None:
            self._let_in(f"settled a row of {query.name}")
            stages = [sessions_pb2.OutcomeStage(stage_id=stage_id, tags=1)]
            commit = sessions_pb2.CommitOutcomesRequest(owner=owner, stages=stages)
            await self.call("CommitOutcomes", commit)

    async def _claim(self, query):
        """S6, S11: fetches its own lease as another user's query and run, which has no effect."""
        if query.driver is None:
            return
        if self._lease is None:
            self._lease = await self._own_lease()
        lease, run = self._lease, self._run_of(query.driver)
        request = sessions_pb2.FetchRequest(
            session=_SESSION,
            incarnation=lease.incarnation,
            epoch=lease.epoch,
            last_tag=lease.end,
            key=fetch_key(self._holder.token, lease.incarnation, lease.epoch),
            **run,
        )
        begun = self.oracle.begun(lease.incarnation)
        try:
            rows = await self.stream_rows(
                "Fetch", request, lambda frame: rows_of(frame.header, frame.block)
            )
        except Refused:
            self._lease = None  # an operator has released it
            raise
        self.oracle.figures["claims"] += 1
        for row in () if lease.read else rows:
            self.oracle.delivered(row, OWN, Hold(lease.incarnation, lease.end), begun)
        lease.read = True

    def _run_of(self, driver):
        """The ids of a driver's batch, of its next one, or of one that it never reaches."""
        batch = self.rng.choice((driver.batch, driver.batch + 1, FAR))
        return {"query_id": driver.query_id, "run_id": driver.run_id, "batch_id": batch}

    async def _own_lease(self):
        """Opens its session again, and leases a message."""
        opening = publishing_pb2.PublishOpen(publisher_id=self.token(), mode=CONFIRM)
        await self._publish_one(await self._open_publisher(opening, 1), 1, 1)
        begun = self.oracle.opening(_SESSION)
        make = {"session": _SESSION, "holder": self._holder, "queues": [OWN]}
        opened = await self.call("Advance", sessions_pb2.AdvanceRequest(takeover=True, **make))
        self.oracle.opened(_SESSION, opened.incarnation, begun)
        lease = sessions_pb2.AdvanceRequest(incarnation=opened.incarnation, max_messages=1, **make)
        return Lease(await self.call("Advance", lease))

    # --- channels and links ---

    async def _consume(self, other):
        """C11: resumes another user's channel, to accept its last message.

        A channel that has ended has no owner: any user with its id may open it (A10).
        """
        channel_id = other.channel_id
        self.oracle.taken.add(channel_id)
        stream = self.open("Consume")
        opening = consuming_pb2.ChannelOpen(channel_id=channel_id)
        await self.send(stream, consuming_pb2.ConsumeRequest(open=opening))
        try:
            answer = await self.patiently(stream.read())
        except Refused:
            self.oracle.taken.discard(channel_id)
            raise
        if answer is not None and answer.header.opened.resumed:
            self._let_in(f"resumed the channel of {other.name}")
            settle = consuming_pb2.Settle(
                delivery_tag=other.last_tag, outcome=OUTCOMES["accepted"], number=1
            )
            await self.send(stream, consuming_pb2.ConsumeRequest(settle=settle))
        await stream.close_writes()
        await self.patiently(stream.read())

    async def _link(self):
        """L1: runs another user's link in its place."""
        listed = await self.call("ListLinks", links_pb2.ListLinksRequest())
        for info in listed.links:
            stream = self.open("Link")
            opening = links_pb2.LinkOpen(
                link=info.link, holder=self._holder, source=info.source, queue=info.queue, ack=1
            )
            header = links_pb2.LinkHeader(open=opening)
            await self.send(stream, links_pb2.LinkRequest(header=header))
            if await self.patiently(stream.read()) is not None:
                self._let_in(f"opened link {info.link}")
                await self._store(stream)

    async def _store(self, stream):
        """Stores a message by a link that no other client publishes."""
        subscribe = links_pb2.LinkHeader(subscribe=links_pb2.LinkSubscribe())
        await self.send(stream, links_pb2.LinkRequest(header=subscribe))
        while (answer := await self.patiently(stream.read())) is not None:
            if answer.WhichOneof("kind") == "stored":
                return
            if answer.WhichOneof("kind") == "subscribed":
                deliveries = links_pb2.LinkDeliveries(
                    subscription=answer.subscribed.subscription,
                    first_number=1,
                    rows=1,
                    lowest_unanswered=1,
                    keys=self.token(),
                    checks=self.token()[:8],
                )
                header = links_pb2.LinkHeader(deliveries=deliveries)
                block = encoded([body_of("strange", 0)], "")
                await self.send(stream, links_pb2.LinkRequest(header=header, block=block))
